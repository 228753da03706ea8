"""A read gives what was in memory where it is written, whatever was read there before."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.tiers import share

Y = np.random.default_rng(0).standard_normal((4, 40)).astype(np.float32)
FORMS = (
    {},
    {"blocks": {"t": 8}},
    {"blocks": {"t": 16}, "loop_type": "fori_loop"},
    {"blocks": {"t": 16}, "loop_type": "unroll"},
)


def in_a_row(y):
    """Three reads of one row of a block, a write between each two."""
    z = hl.zeros([40], dtype=hl.float32)
    for t in hl.tile(40):
        a = y[1, t]
        y[1, t] = a + 1
        b = y[1, t]
        y[1, t] = b * 2
        z[t] = a + b + y[1, t]
    return y, z


def around_a_loop(y):
    """The row is written in every trip of a loop, and read before it, in it, and after it."""
    z = hl.zeros([2, 40], dtype=hl.float32)
    for t in hl.tile(40):
        z[0, t] = y[1, t]
        for _ in hl.grid(3):
            y[1, t] = y[1, t] * 2 + 1
        z[1, t] = y[1, t]
    return y, z


def under_an_if(y, flags):
    """The row is written in some calls."""
    z = hl.zeros([2, 40], dtype=hl.float32)
    for t in hl.tile(40):
        z[0, t] = y[1, t]
        if flags[0] > 0:
            y[1, t] = z[0, t] * 2
        z[1, t] = y[1, t]
    return y, z


def exchange(y):
    """Two rows, by assigning both at once."""
    for t in hl.tile(40):
        y[0, t], y[1, t] = y[1, t], y[0, t]
    return y


def with_row(row: np.ndarray) -> np.ndarray:
    return np.concatenate((Y[:1], row[None], Y[2:]))


ROW = Y[1]
TWICE, TRIPS = (ROW + 1) * 2, ROW * 8 + 7
CASES = (
    (in_a_row, (), (with_row(TWICE), ROW + ROW + 1 + TWICE)),
    (around_a_loop, (), (with_row(TRIPS), np.stack([ROW, TRIPS]))),
    (under_an_if, (np.array([1]),), (with_row(ROW * 2), np.stack([ROW, ROW * 2]))),
    (under_an_if, (np.array([0]),), (Y, np.stack([ROW, ROW]))),
    (exchange, (), (Y[[1, 0, 2, 3]],)),
)


@pytest.mark.parametrize("form", share(FORMS, 3))
@pytest.mark.parametrize(("function", "more", "right"), CASES)
def test_a_read_sees_what_was_written(function, more, right, form):
    kernel = tile.kernel(function)
    made = kernel(Y.copy(), *more, config=tile.Config(**form))
    checked = kernel.reference(Y.copy(), *more)
    for found in (made, checked):
        results = found if isinstance(found, tuple) else (found,)
        for one, exact in zip(results, right, strict=True):
            np.testing.assert_allclose(np.asarray(one), exact, rtol=1e-5, atol=1e-5)


def test_a_row_is_picked_again_after_a_write():
    text = tile.kernel(in_a_row).source(Y)
    assert text.count("jnp.sum(jnp.where(picked_row, y_ref[...]") == 3
