"""What goes by the sign of a sum over a tile goes by the block, wherever the loop is.

Numbers that are made up for memory have both signs along the loop: at whatever group, row or
position it is, and in arrays of any length.
"""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.derivatives import parsed
from tilelang import ParseError

OFFSETS = tile.spec((5,), "int32")


def of_groups(fold):
    @tile.kernel
    def kernel(x, offsets):
        y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(offsets.shape[0] - 1):
            acc = hl.zeros([x.shape[1]], dtype=hl.float32)
            for t in hl.tile(offsets[g], offsets[g + 1]):
                acc += fold(x[t, :].to(hl.float32).sum(0))
            y[g, :] = acc
        return y

    return kernel


def of_all_columns(fold):
    @tile.kernel
    def kernel(x, offsets):
        y = hl.zeros([offsets.shape[0] - 1], dtype=hl.float32)
        for g in hl.grid(offsets.shape[0] - 1):
            acc = hl.zeros([], dtype=hl.float32)
            for t in hl.tile(offsets[g], offsets[g + 1]):
                acc += fold(x[t, :].to(hl.float32).sum(1).sum(0))
            y[g] = acc
        return y

    return kernel


def of_rows(fold):
    @tile.kernel
    def kernel(x, offsets):
        y = hl.zeros([x.shape[0]], dtype=hl.float32)
        for m in hl.tile(x.shape[0]):
            acc = hl.zeros([m], dtype=hl.float32)
            for t in hl.tile(x.shape[1]):
                acc += fold(x[m, t].to(hl.float32).sum(1))
            y[m] = acc
        return y

    return kernel


def of_products(fold):
    @tile.kernel
    def kernel(x, offsets):
        y = hl.zeros([x.shape[0], x.shape[0]], dtype=hl.float32)
        for m, n in hl.tile([x.shape[0], x.shape[0]]):
            acc = hl.zeros([m, n], dtype=hl.float32)
            for t in hl.tile(x.shape[1]):
                acc += fold(hl.dot(x[m, t].to(hl.float32), x[n, t].to(hl.float32).T))
            y[m, n] = acc
        return y

    return kernel


def added(fold):
    @tile.kernel
    def kernel(x, offsets):
        y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(offsets.shape[0] - 1):
            for t in hl.tile(offsets[g], offsets[g + 1]):
                hl.atomic_add(y, [g, slice(None)], fold(x[t, :].to(hl.float32).sum(0)))
        return y

    return kernel


def in_boxes(fold):
    @tile.kernel
    def kernel(x, offsets):
        y = hl.zeros([x.shape[0], x.shape[1]], dtype=hl.float32)
        for g in hl.grid(x.shape[0]):
            for u in hl.tile(x.shape[1]):
                acc = hl.zeros([u], dtype=hl.float32)
                for t in hl.tile(x.shape[2]):
                    acc += fold(x[g, u, t].to(hl.float32).sum(1))
                y[g, u] = acc
        return y

    return kernel


FOLDS = {
    "positive": lambda v: hl.maximum(v, 0),
    "negative": lambda v: hl.where(v < 0, v, 0),
    "size": lambda v: hl.abs(v),
    "above": lambda v: hl.maximum(v - 3, 0),
}
PLACES = [
    (of_groups, (37, 8)), (of_all_columns, (37, 8)), (of_all_columns, (37, 500)),
    (of_rows, (37, 40)), (of_rows, (5000, 40)), (of_rows, (4096, 4096)), (of_products, (40, 40)),
    (of_products, (256, 4096)), (added, (37, 8)), (in_boxes, (3, 40, 8)),
    (in_boxes, (1000, 8, 4000)),
]  # fmt: skip


def refused(kernel, shape, dtype):
    with pytest.raises(ParseError, match="would depend on the block of t"):
        parsed(kernel, (tile.spec(shape, dtype), OFFSETS))


@pytest.mark.parametrize(("place", "shape"), PLACES, ids=lambda p: getattr(p, "__name__", str(p)))
@pytest.mark.parametrize("fold", FOLDS.values(), ids=FOLDS)
def test_it_is_refused_wherever_the_loop_is(place, shape, fold):
    refused(place(fold), shape, "float32")


@pytest.mark.parametrize("dtype", ["bfloat16", "int32", "int8", "uint8"])
def test_of_whatever_numbers(dtype):
    refused(of_groups(FOLDS["above" if dtype == "uint8" else "positive"]), (37, 8), dtype)


@pytest.mark.parametrize("dtype", ["float32", "int32", "int8", "uint8"])
@pytest.mark.parametrize("place", [of_groups, of_all_columns, of_rows, of_products, added])
def test_sums_themselves_are_taken(place, dtype):
    for fold in (lambda v: v, lambda v: 2.0 * v, lambda v: -v):
        _, facts = parsed(place(fold), (tile.spec((37, 8), dtype), OFFSETS))
        assert not facts.folds


def test_a_relu_of_each_number_is_taken():
    @tile.kernel
    def kernel(x, offsets):
        y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(offsets.shape[0] - 1):
            acc = hl.zeros([x.shape[1]], dtype=hl.float32)
            for t in hl.tile(offsets[g], offsets[g + 1]):
                acc += hl.maximum(x[t, :], 0).sum(0)
            y[g, :] = hl.maximum(acc, 1)
        return y

    x, offsets = np.ones((37, 8), np.float32), np.array([0, 5, 5, 21, 37], np.int32)
    np.testing.assert_array_equal(kernel(x, offsets), kernel.reference(x, offsets))


def rows_less_their_mean(x):
    y = hl.zeros(x.shape, dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :] - x[t, :].mean(0)[None, :]
    return y


def sums_less_their_sum(x):
    y = hl.zeros([x.shape[0]], dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        each = x[t, :].sum(1)
        y[t] = each - each.sum(0)
    return y


@pytest.mark.parametrize("function", [rows_less_their_mean, sums_less_their_sum])
@pytest.mark.parametrize("columns", [1000, 20_000, 128_256])
def test_rows_may_be_long(function, columns):
    """Of a vocabulary; nothing was known of rows of more than 18,000 numbers."""
    with pytest.raises(ParseError, match="goes by which others are in its tile"):
        parsed(tile.kernel(function), (tile.spec((512, columns), "float32"),))
