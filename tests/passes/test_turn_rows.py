"""turn_rows: lanes that a reshape brings to other rows are joined to one, which is cut.

Evidence: the TPU's plan in Pallas's interpreter; libtpu, ahead of time.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.passes.becomes import becomes, floats, ir_of, stays
from tilelang.codegen.pallas.passes.turn_rows import turn_rows

OFFSETS = np.array([1, 3, 3, 4, 5], np.int32)
PAIRS = {
    "a row in rows": ((16,), (4, 4)),
    "a row in many rows": ((140,), (70, 2)),
    "a row in planes": ((24,), (2, 3, 4)),
    "rows in a row": ((3, 5), (15,)),
    "planes in a row": ((2, 3, 4), (24,)),
    "rows in other rows": ((8, 24), (16, 12)),
    "rows in a column": ((3, 5), (15, 1)),
    "planes in rows": ((2, 3, 4), (4, 6)),
}


def reshaped(before: tuple[int, ...], after: tuple[int, ...]) -> tile.Kernel:
    """Twice the rows of groups, each in another form."""
    whole = tuple(slice(None) for _ in before)
    place = tuple(slice(None) for _ in after)

    @tile.kernel
    def kernel(x, offsets):
        y = hl.zeros([x.shape[0], *after], dtype=x.dtype)
        for g in hl.grid(offsets.shape[0] - 1):
            for r in hl.grid(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
                y[(r, *place)] = (x[(r, *whole)] + x[(r, *whole)]).reshape(after)
        return y

    return kernel


@tile.kernel
def square(x):
    y = hl.empty([x.shape[0], 2, 3], dtype=x.dtype)
    for i in hl.grid(x.shape[0]):
        y[i, :, :] = x[i, :].reshape(2, 3)
    return y


@tile.kernel
def flat(x):
    y = hl.empty([x.shape[0], 6], dtype=x.dtype)
    for i in hl.grid(x.shape[0]):
        y[i, :] = hl.exp(x[i, :, :]).reshape(6)
    return y


@tile.kernel
def heads(x):
    y = hl.empty([x.shape[0], 2, 3], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :, :] = x[t, :].reshape(t, 2, 3)
    return y


def test_a_row_is_cut():
    becomes(
        ir_of(square, floats(4, 6)),
        turn_rows,
        """
        for i in grid(4):
            y[i, 0:2, 0:3] = reshape(x[i, 0:6], [2, 3])
        """,
        """
        for i in grid(4):
            y[i, 0:2, 0:3] = concat(expand_dims(narrow(x[i, 0:6], axis=0, start=0, stop=3), axis=0), expand_dims(narrow(x[i, 0:6], axis=0, start=3, stop=6), axis=0), axis=0)
        """,
    )


def test_rows_of_a_tile_stay_where_they_are():
    stays(ir_of(heads, floats(4, 6)), turn_rows)


def test_what_is_joined_is_computed_once():
    assert flat.source(floats(4, 2, 3), target="tpu:v6e").count("jnp.exp") == 1


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_they_mean_the_same(pair):
    before, after = pair
    x = floats(5, *before)
    want = np.where((np.arange(5) >= 1)[:, None], 2 * x.reshape(5, -1), 0).reshape(5, *after)
    for target in ("tpu:v6e", "cpu"):
        found = reshaped(before, after)(x, OFFSETS, target=target)
        np.testing.assert_array_equal(found, want)


@needs_libtpu
@pytest.mark.parametrize("target", ["tpu:v5e", pytest.param("tpu:v6e", marks=pytest.mark.slow)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_they_compile(pair, dtype, target):
    before, after = pair
    x = np.zeros((5, *before), ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    assert compiled(reshaped(before, after), x, OFFSETS, target=target).memory.code
