"""becomes(ir, run, before, after): what a pass makes of a kernel, as text; both are verified.

again(kernel) is the kernel anew, which remembers nothing of what was lowered before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from textwrap import dedent
from typing import Any

import numpy as np

import tilelang as tile
from tilelang.ir import KernelIR, Loop, statements
from tilelang.ir.chain import Chain, Level, chain
from tilelang.ir.verify import verify

Pass = Callable[[KernelIR], KernelIR]
RNG = np.random.default_rng(5)


def again(kernel: tile.Kernel) -> tile.Kernel:
    return tile.kernel(kernel.__wrapped__)


def floats(*shape: int) -> np.ndarray:
    """Random numbers, other ones each time."""
    return RNG.standard_normal(shape).astype(np.float32)


def ir_of(kernel: tile.Kernel, *args: Any) -> KernelIR:
    """The kernel as a TPU's plan begins with it."""
    return kernel.lower(*args, target="tpu:v6e").ir


def loops(ir: KernelIR) -> str:
    """The loops of a kernel as text, without its declarations."""
    return str(ir).partition("\n\n")[2]


def becomes(ir: KernelIR, run: Pass, before: str, after: str) -> None:
    assert loops(verify(ir)) == dedent(before).lstrip("\n")
    assert loops(verify(run(ir))) == dedent(after).lstrip("\n")


def stays(ir: KernelIR, run: Pass) -> None:
    assert run(verify(ir)) == ir


def on_chain(run: Callable[[tuple[Level, ...], tuple], Chain]) -> Pass:
    """A pass over the loops that contain one loop each, as one over a kernel of one such nest."""

    def changed(ir: KernelIR) -> KernelIR:
        found = {s.axis: s.loc for s in statements(ir.body) if isinstance(s, Loop)}
        levels, body = run(*chain(ir.body[0], lambda loop: False))
        for level in reversed(levels):
            around = (*level.before, *body, *level.after)
            body = (Loop(level.axis, around, level.carries, found[level.axis]),)
        return replace(ir, body=body)

    return changed
