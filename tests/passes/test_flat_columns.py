"""flat_columns: two dimensions of known lengths at last become one."""

from __future__ import annotations

import pytest

import tilelang as tile
import tilelang.language as hl
from tests.passes.becomes import becomes, ir_of, loops
from tilelang.codegen.pallas.passes.flat_columns import flat_columns
from tilelang.ir.verify import verify


@tile.kernel
def weighed(x, p, offsets):
    """Sums of rows of heads, each times a number of its head."""
    out = hl.zeros([offsets.shape[0] - 1, *x.shape[1:]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        acc = hl.zeros(x.shape[1:], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            acc += (p[tm, :, None] * x[tm, :, :]).sum(0)
        out[g, :, :] = acc
    return out


@tile.kernel
def of_heads(x, w):
    """The sums of heads, and of their columns."""
    y = hl.empty([x.shape[0], x.shape[1]], dtype=x.dtype)
    z = hl.empty([x.shape[0], x.shape[2]], dtype=x.dtype)
    for tm in hl.tile(x.shape[0]):
        rows = x[tm, :, :] * w[:, :]
        y[tm, :] = rows.sum(2)
        z[tm, :] = rows.amax(1)
    return y, z


X, P = tile.spec((64, 2, 8), "float32"), tile.spec((64, 2), "float32")
OFFSETS, W = tile.spec((5,), "int32"), tile.spec((2, 8), "float32")

BEFORE = """
for g in grid(4):
    acc: float32[2, 8] = full([2, 8], float32, value=0.0)
    for tm in tile(offsets[g], offsets[g + 1], max_extent=64) carrying acc_1 = acc:
        acc_2: float32[2, 8] = acc_1 + sum(expand_dims(p[tm, 0:2], axis=2) * x[tm, 0:2, 0:8], axis=0)
        next acc_1 = acc_2
    after acc_3 = acc_1
    out[g, 0:2, 0:8] = acc_3
"""
AFTER = """
for g in grid(4):
    acc: float32[16] = full([16], float32, value=0.0)
    for tm in tile(offsets[g], offsets[g + 1], max_extent=64) carrying acc_1 = acc:
        acc_2: float32[16] = acc_1 + sum(concat(ONE, TWO, axis=1) * x_columns[tm, 0:16], axis=0)
        next acc_1 = acc_2
    after acc_3 = acc_1
    out[g, 0:16] = acc_3
"""
ONE = "broadcast(narrow(p[tm, 0:2], axis=1, start={}, stop={}), [tm, 8])"


def test_numbers_of_heads_are_repeated():
    after = AFTER.replace("ONE", ONE.format(0, 1)).replace("TWO", ONE.format(1, 2))
    kernel = ir_of(weighed, X, P, OFFSETS)
    becomes(kernel, flat_columns, BEFORE, after)
    made = flat_columns(kernel)
    assert made.tensor("out").shape == (4, 16) and made.returns == ("out_heads",)
    assert made.tensor("out_heads").shape == (4, 2, 8)


def test_sums_of_heads_and_over_them():
    text = loops(verify(flat_columns(ir_of(of_heads, X, W))))
    part = "narrow(rows, axis=1, start={}, stop={})"
    one, two = part.format(0, 8), part.format(8, 16)
    assert "rows: float32[tm, 16] = x_columns[tm, 0:16] * w_columns[0:16]" in text
    sums = (f"sum({p}, axis=1, keepdim=True)" for p in (one, two))
    assert f"y[tm, 0:2] = concat({', '.join(sums)}, axis=1)" in text
    assert f"z[tm, 0:8] = maximum({one}, {two})" in text


@tile.kernel
def turned(x, offsets):
    """Rows whose heads and columns change places."""
    out = hl.zeros([x.shape[0], x.shape[2], x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            out[tm, :, :] = hl.transpose(x[tm, :, :], (0, 2, 1))
    return out


@tile.kernel
def in_place(x, offsets):
    """Rows that change where they are."""
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            x[tm, :, :] = x[tm, :, :] * 2


@tile.kernel
def some_columns(x, offsets):
    """Half of the columns of every head."""
    out = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            out[tm, :, 0:4] = x[tm, :, 4:8]
    return out


@pytest.mark.parametrize("kernel", [turned, in_place, some_columns], ids=str)
def test_what_has_no_one_dimension_stays(kernel):
    before = ir_of(kernel, X, OFFSETS)
    assert flat_columns(before) is before
