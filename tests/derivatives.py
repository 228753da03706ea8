"""A derivative run in NumPy, launch by launch: what every test of gradients asks about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tilelang import reference
from tilelang.analysis.facts import Facts
from tilelang.ir import KernelIR
from tilelang.ir.verify import verify
from tilelang.runtime.signature import bind
from tilelang.transforms import Derivative, derive

Arrays = Mapping[str, np.ndarray]


def parsed(kernel: Any, arguments: Sequence[object]) -> tuple[KernelIR, Facts]:
    """A kernel specialised to arguments, and what is true of it; not planned."""
    known = kernel._parsed(kernel._given(bind(kernel.signature, tuple(arguments), {})))
    return known.ir, known.facts


def derived(kernel: Any, arguments: Sequence[object]) -> tuple[KernelIR, Derivative]:
    """The kernel, and its derivative by every argument; all of it is legal IR."""
    ir, facts = parsed(kernel, arguments)
    made = derive(ir, facts, frozenset(p.tensor for p in ir.params if p.tensor))
    for each in (made.forward, *(launch.kernel for launch in made.launches)):
        verify(each)
    return ir, made


def named(ir: KernelIR, arguments: Sequence[object]) -> dict[str, np.ndarray]:
    """The arrays among complete arguments, by the names of the kernel."""
    pairs = zip(ir.params, arguments, strict=False)
    return {p.tensor: np.asarray(a) for p, a in pairs if p.tensor is not None}


def gradients(
    derivative: Derivative,
    arrays: Arrays,
    cotangents: Sequence[np.ndarray],
    block: int | None = None,
) -> dict[str, np.ndarray]:
    """The gradient of every argument that has one, in the NumPy reference."""
    known, _ = launched(derivative, arrays, cotangents, block)
    return {argument: known[name] for argument, name in derivative.gradients}


def launched(
    derivative: Derivative,
    arrays: Arrays,
    cotangents: Sequence[np.ndarray],
    block: int | None = None,
) -> tuple[dict[str, np.ndarray], list[tuple[KernelIR, Arrays]]]:
    """Every array of a backward by name, and its kernels with what each is given."""
    known = {**arrays, **_run(derivative.forward, arrays, block)}
    known |= zip(derivative.cotangents, cotangents, strict=True)
    calls = list[tuple[KernelIR, Arrays]]()
    for launch in derivative.launches:
        given = {n: known[n] for n in launch.operands}
        calls.append((launch.kernel, given))
        known |= _run(launch.kernel, given, block)
    return known, calls


def _run(ir: KernelIR, arrays: Arrays, block: int | None) -> dict[str, np.ndarray]:
    tiles = [a.name for a in ir.axes if a.kind == "tile" and not isinstance(a.block, int)]
    blocks = None if block is None else dict.fromkeys(tiles, block)
    return reference.evaluate(ir, arrays, blocks=blocks)
