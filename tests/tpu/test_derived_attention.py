"""Derived attention backward against the hand-written examples, by predicted schedule.

Evidence: libtpu, ahead of time, and its schedules executed by the model of docs/predict.md; no TPU
is used.  `python -m tests.tpu.test_derived_attention v6e v5e` prints the table of docs/derived.md.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import pytest

import tilelang as tile
from benchmarks.production import HEAD, LSE, skewed
from examples.dense.attention_backward import attention_backward
from examples.dense.flash_attention import flash_attention
from examples.jagged.jagged_attention import jagged_attention
from examples.jagged.jagged_attention_backward import backward_kv, backward_q
from tests.aot.written import needs_libtpu
from tilelang.autotune import model
from tilelang.language.dtypes import is_float
from tilelang.runtime.lowering import target_of
from tilelang.runtime.signature import bind

MOST = 1.15
ROWS = tile.spec((2, 4096, 128), "bfloat16")
SUMS, OFFSETS = tile.spec((2, 4096), "float32"), tile.spec((9,), "int32")
SECONDS = 400.0


@dataclass(frozen=True)
class Pair:
    """A kernel with its arguments, and the backward that was written by hand for it."""

    kernel: tile.Kernel
    arguments: tuple[Any, ...]
    by_hand: Sequence[tuple[tile.Kernel, tuple[Any, ...]]]
    values: Mapping[str, Any]


GIVEN = (ROWS, ROWS, ROWS, ROWS, SUMS, ROWS, OFFSETS)
PAIRS = {
    "jagged attention 4096": Pair(
        jagged_attention,
        (ROWS, ROWS, ROWS, OFFSETS, False),
        ((backward_q, GIVEN), (backward_kv, GIVEN)),
        skewed(4096, 8),
    ),
    "causal attention 4096": Pair(
        flash_attention,
        (HEAD, HEAD, HEAD, True),
        ((attention_backward, (HEAD, HEAD, HEAD, HEAD, LSE, HEAD)),),
        {},
    ),
}


def microseconds(pair: Pair, generation: str) -> tuple[float, float]:
    """What the derived kernels take, without the forward kernel, and those by hand."""
    kernel, target = pair.kernel, target_of(f"tpu:{generation}")
    known = kernel._parsed(kernel._given(bind(kernel.signature, pair.arguments, {})))
    tensors = known.ir.tensors
    wanted = frozenset(t.name for t in tensors if t.role == "input" and is_float(t.dtype))
    seconds = 0.0
    for n in range(len(known.derivative(wanted).launches)):
        lowered = kernel._planned(known.part(wanted, n), None, target)
        seconds += model.predict(lowered, {}, pair.values, timeout=SECONDS).seconds
    by_hand = (
        k.predict(*given, target=target.name, values=pair.values, timeout=SECONDS).seconds
        for k, given in pair.by_hand
    )
    return seconds * 1e6, sum(by_hand) * 1e6


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_derived_attention_is_as_fast_as_by_hand(name):
    derived, by_hand = microseconds(PAIRS[name], "v6e")
    assert derived <= MOST * by_hand


def main(generations: Sequence[str]) -> None:
    print("| backward of | TPU | derived, us | by hand, us | ratio |\n|---|---|---|---|---|")
    for name, pair in PAIRS.items():
        for each in generations:
            derived, by_hand = microseconds(pair, each)
            numbers = f"{derived:.1f} | {by_hand:.1f} | {derived / by_hand:.2f}"
            print(f"| {name} | {each} | {numbers} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
