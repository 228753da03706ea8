"""A query tile of no sequence gets one step, so that its outputs are defined, and no more."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import tilelang as tile
from examples.jagged import jagged_attention as example
from tests.schedule_table import attention, steps_of

HEADS, TOKENS, BLOCK = 2, 1024, 128
LAYOUTS = (
    (0, 200, 300),  # nothing behind the second sequence
    (600, 800, 800),  # nothing before the first one
    (0, 0, 0),
    (1024, 1024, 1024),
    (0, 1024, 1024),
    (130, 250, 900),
)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("offsets", LAYOUTS)
def test_one_step_for_every_uncovered_tile(offsets: tuple[int, ...], causal: bool) -> None:
    blocks = {"tq": BLOCK, "tk": BLOCK}
    case = example.case(HEADS, TOKENS, 128, len(offsets) - 1, causal, "bfloat16")
    lowered = example.jagged_attention.lower(*case, target="tpu:v6e", config=tile.Config(blocks))
    live = attention(HEADS, TOKENS, 128, causal, "bfloat16").live(np.array(offsets), blocks)
    touched = {row // BLOCK for begin, end in pairwise(offsets) for row in range(begin, end)}
    uncovered = TOKENS // BLOCK - len(touched)
    assert steps_of(lowered, np.array(offsets, np.int32)) == live + HEADS * uncovered
