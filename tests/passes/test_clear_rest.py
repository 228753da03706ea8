"""clear_rest: a fill becomes one of the rows that no range stores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.derivatives import named, parsed
from tests.passes.becomes import becomes, stays
from tests.ragged import Space, every_stratum
from tilelang import reference
from tilelang.codegen.triton.passes import clear_rest as rest
from tilelang.codegen.triton.passes.clear_rest import clear_rest
from tilelang.ir.verify import verify

ROWS, COLUMNS, GROUPS = 100, 48, 7
X = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
OFFSETS = np.array([3, 20, 20, 50, 64, 70, 90, 91], np.int32)


@tile.kernel
def doubled(x, offsets):
    y = hl.full(x.shape, 7.0, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = x[t, :] * 2.0
    return y


@tile.kernel
def numbers(x, offsets):
    """An output without columns."""
    y = hl.zeros([x.shape[0]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t] = x[t, :].sum(1)
    return y


@tile.kernel
def masked(x, offsets):
    """Rows that a range covers and a mask leaves out keep the fill."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            hl.store(y, [t, slice(None)], x[t, :], mask=x[t, :] > 0)
    return y


def test_rows_in_no_range_are_looked_for() -> None:
    ir, _ = parsed(doubled, (X, OFFSETS))
    becomes(
        ir,
        clear_rest,
        """
        for g in grid(7):
            for t in tile(offsets[g], offsets[g + 1], max_extent=100):
                y[t, 0:48] = x[t, 0:48] * 2.0
        """,
        """
        for g in grid(7):
            for t in tile(offsets[g], offsets[g + 1], max_extent=100):
                y[t, 0:48] = x[t, 0:48] * 2.0

        for row in tile(100, block=16):
            first: int32[] = offsets[0]
            last: int32[] = offsets[7]
            outside: bool[] = row.begin < first or row.end > last
            ranges: int32[] = where(outside, 7, 0)
            for group in tile(0, ranges, max_extent=7, block=32) carrying seen = full([row], int32, value=0):
                next seen = maximum(seen, max(cast(expand_dims(offsets[group], axis=0) <= expand_dims(row.index, axis=1) and expand_dims(row.index, axis=1) < expand_dims(offsets[group + 1], axis=0), int32), axis=1))
            after found = seen
            columns: int32[] = where(outside, 48, 0)
            for column in tile(0, columns, max_extent=48, block=64):
                y[row, column] = full([row, column], float32, value=7.0) where expand_dims(found == 0, axis=1)
        """,
    )
    assert ir.tensor("y").fill == 7.0 and clear_rest(ir).tensor("y").fill is None


def test_rows_that_a_mask_leaves_out_need_the_fill() -> None:
    ir, _ = parsed(masked, (X, OFFSETS))
    stays(ir, clear_rest)


def values(kernel: tile.Kernel, right: Any) -> None:
    """The reference's, of the kernel and of what the pass makes of it, over ragged layouts."""
    for layout in every_stratum(Space(ROWS, GROUPS, 32)):
        arguments = X, layout.offsets.astype(np.int32)
        ir, _ = parsed(kernel, arguments)
        inside = np.zeros(ROWS, bool)
        for begin, end in zip(layout.offsets, layout.offsets[1:], strict=False):
            inside[begin:end] = True
        for one in (ir, clear_rest(ir)):
            found = reference.evaluate(verify(one), named(one, arguments), blocks={"t": 16})["y"]
            np.testing.assert_array_equal(found, right(inside), str(layout))


def filled(inside: np.ndarray) -> np.ndarray:
    return np.where(inside[:, None], X * 2, 7)


def test_values() -> None:
    values(doubled, filled)
    values(numbers, lambda inside: np.where(inside, X.sum(1), 0))


def test_a_planted_bug_is_seen(monkeypatch) -> None:
    """Rows that may be in no range are not looked for."""
    monkeypatch.setattr(rest, "_if", lambda some, count: rest.integers.const(0))
    with pytest.raises(AssertionError):
        values(doubled, filled)
