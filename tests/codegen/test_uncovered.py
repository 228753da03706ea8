"""A query tile of no sequence gets one step, so that its outputs are defined, and no more."""

from __future__ import annotations

import inspect
from itertools import pairwise

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged import jagged_attention as example
from tests.passes.becomes import again
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
    config = tile.Config(blocks, within=[])  # every head has steps of its own
    case = example.case(HEADS, TOKENS, 128, len(offsets) - 1, causal, "bfloat16")
    lowered = example.jagged_attention.lower(*case, target="tpu:v6e", config=config)
    live = attention(HEADS, TOKENS, 128, causal, "bfloat16").live(np.array(offsets), blocks)
    touched = {row // BLOCK for begin, end in pairwise(offsets) for row in range(begin, end)}
    uncovered = TOKENS // BLOCK - len(touched)
    assert steps_of(lowered, np.array(offsets, np.int32)) == live + HEADS * uncovered


@tile.kernel
def under_an_if(x, rows, chosen):
    """y[b, rows[b, 0]] = the sum of x[b], for the b that are chosen."""
    y = hl.full([x.shape[0], 2, x.shape[2]], 0.0, dtype=hl.float32)
    for b in hl.grid(x.shape[0]):
        if chosen[b] > 0:
            for h in hl.grid(1):
                acc = hl.zeros([x.shape[2]], dtype=hl.float32)
                for t in hl.tile(x.shape[1]):
                    acc = acc + x[b, t, :].sum(0)
                y[b, rows[b, h], :] = acc
    return y


def test_blocks_that_no_step_shows_are_filled() -> None:
    """Of a loop that may have no iteration inside of the one that moves the block."""
    x, rows = np.ones((3, 16, 3), np.float32), np.array([[1], [0], [1]], np.int32)
    kernel = tile.kernel(inspect.unwrap(under_an_if))  # planned anew, for planted bugs
    for chosen in np.ndindex(2, 2, 2):
        expected = np.zeros((3, 2, 3))
        for b in np.flatnonzero(chosen):
            expected[b, rows[b, 0]] = 16
        found = kernel(x, rows, np.array(chosen, np.int32))
        np.testing.assert_array_equal(found, expected)


@tile.kernel
def rows_and_their_ends(x, n):
    """y = the first n rows of x, tile by tile; z is stored once for all tiles of columns."""
    y, z = hl.full(x.shape, 7.0, dtype=hl.float32), hl.full([x.shape[0]], 7.0, dtype=hl.float32)
    for ts in hl.tile(n[()]):
        for tn in hl.tile(x.shape[1]):
            y[ts, tn] = x[ts, tn]
        z[ts] = x[ts, 0]
    return y, z


def test_no_step_behind_the_end_goes_back() -> None:
    """The rectangle has steps behind the last row, in which the loop over columns goes on."""
    x = np.arange(16 * 16, dtype=np.float32).reshape(16, 16)
    kernel = tile.kernel(inspect.unwrap(rows_and_their_ends))  # planned anew, for planted bugs
    refused = tile.Config({"ts": 8, "tn": 8}, loop_type="outer_pipeline", steps="rectangle")
    with pytest.raises(tile.PlanError, match="would visit blocks of y again"):
        kernel(x, np.array(3, np.int32), config=refused)
    for columns, steps in ((16, "rectangle"), (8, "table")):
        config = tile.Config({"ts": 8, "tn": columns}, loop_type="outer_pipeline", steps=steps)
        for n in (0, 3, 8, 9, 16):
            y, z = kernel(x, np.array(n, np.int32), config=config)
            expected = np.where(np.arange(16)[:, None] < n, x, 7)
            np.testing.assert_array_equal(y, expected)
            np.testing.assert_array_equal(z, expected[:, 0])


@tile.kernel
def counted_twice(x):
    """What the first loop fills is read in single numbers, and in tiles."""
    h = hl.zeros([12], dtype=hl.int32)
    c = hl.full([12], 3, dtype=hl.int32)
    y = hl.zeros([12, 4], dtype=hl.float32)
    for i in hl.grid(x.shape[0]):
        hl.atomic_add(h, [x[i]], 1)
    for _ in hl.grid(1):
        total = 0
        for e in hl.grid(12):
            total += h[e]
            c[e] = total
    for t in hl.tile(12):
        y[t, :] = hl.full([t, 4], 2.0, dtype=hl.float32) + h[t][:, None]
    return h, c, y


@pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])
def test_numbers_of_an_array_that_no_loop_fills(target):
    text = str(again(counted_twice).source(np.zeros(0, np.int32), target=target))
    assert 0 < text.find("    h = jnp.zeros((12,), jnp.int32)") < text.find(")(h")


@pytest.mark.parametrize("rows", [0, 40])
@pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])
def test_what_no_turn_stored_is_what_it_was_made_with(rows, target):
    """A loop without turns is not launched, and those behind it read what it would store to."""
    x = (np.arange(rows) % 12).astype(np.int32)
    h, c, y = counted_twice(x, target=target)
    want = np.bincount(x, minlength=12)
    np.testing.assert_array_equal(h, want)
    np.testing.assert_array_equal(c, want.cumsum())
    np.testing.assert_array_equal(y, np.repeat(want[:, None] + 2, 4, 1))
