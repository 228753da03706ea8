"""Rows that lie at other positions than tiles: programs for many numbers of them, symbols too."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.errors import CallError, RaggedValueError
from tilelang.ir import Along
from tilelang.runtime import buckets

RNG = np.random.default_rng(0)
ROWS = (66, 75, 80)  # one bucket


def permuted(x, starts, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(starts.shape[0]):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = x[starts[g] - offsets[g] + t.index, :] * 2
    return y


def scattered(x, starts, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(starts.shape[0]):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[starts[g] - offsets[g] + t.index, :] = x[t, :] * 2
    return y


def boxes(x, starts, offsets):
    """Boxes of 30 rows; those of no group are not read."""
    y = hl.zeros([starts.shape[0], 30, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(starts.shape[0]):
        for t in hl.tile(30):
            within = t.index < offsets[g + 1] - offsets[g]
            y[g, t, :] = hl.load(x, [starts[g] + t.index, slice(None)], mask=within[:, None])
    return y


def next_ones(x, offsets):
    """What lies behind the last row is -7, which dead rows are not."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            within = (t.index >= 0)[:, None]
            y[t, :] = hl.load(x, [t.index + 1, slice(None)], mask=within, other=-7.0)
    return y


KERNELS = (permuted, scattered, boxes)


def arguments(rows):
    """Groups of a third, of no row and of the rest, which change places."""
    x, few = RNG.standard_normal((rows, 8), np.float32), rows // 3
    return x, np.int32([rows - few, 5, 0]), np.int32([0, few, few, rows])


@pytest.mark.parametrize("kernel", KERNELS)
def test_one_program_for_all_lengths(kernel):
    served = tile.kernel(kernel, rows="bucket", max_recompiles=1)
    for rows in ROWS:
        given = arguments(rows)
        np.testing.assert_array_equal(served(*given), tile.kernel(kernel)(*given))
    assert served.stats().compiles == 1


@pytest.mark.parametrize("kernel", KERNELS)
def test_numbers_of_moved_rows_may_be_symbols(kernel):
    (rows,) = jax.export.symbolic_shape("rows", constraints=["rows <= 80"])
    specs = [jax.ShapeDtypeStruct(shape, jnp.int32) for shape in ((3,), (4,))]
    x, served = jax.ShapeDtypeStruct((rows, 8), jnp.float32), tile.kernel(kernel, rows="bucket")

    def run(*given):
        return served(*given)

    made = jax.export.export(jax.jit(run), platforms=["cpu", "tpu"])(x, *specs)
    for rows in (9, 75):
        given = arguments(rows)
        np.testing.assert_array_equal(made.call(*given), tile.kernel(kernel)(*given))


@pytest.mark.parametrize("kernel", [permuted, scattered])
def test_rows_past_the_end(kernel):
    """They are found where somebody looks, and leave other groups alone where nobody does."""
    x, starts, offsets = arguments(75)
    starts[0] += 4
    served = tile.kernel(kernel, rows="bucket")
    with pytest.raises(RaggedValueError, match="= 79 is past the 75 rows of"):
        served(x, starts, offsets)
    given = jnp.asarray(x), jnp.asarray(starts), jnp.asarray(offsets)
    found, wanted = jax.jit(served)(*given), jax.jit(tile.kernel(kernel))(*given)
    np.testing.assert_array_equal(found, wanted)


def test_what_is_not_zero_outside_is_no_row():
    x, _, offsets = arguments(75)
    with pytest.raises(CallError, match="kernel next_ones has no rows to pad"):
        tile.kernel(next_ones, rows="bucket")(x, offsets)


def test_a_planted_bug_is_caught(monkeypatch):
    """Dead rows are taken for anything that lies outside."""
    monkeypatch.setattr(
        buckets, "_ends_nowhere", lambda site, entry, *given: isinstance(entry, Along)
    )
    x, _, offsets = arguments(75)
    given = jnp.asarray(x), jnp.asarray(offsets)
    found = jax.jit(tile.kernel(next_ones, rows="bucket"))(*given)
    assert not np.array_equal(found, jax.jit(tile.kernel(next_ones))(*given))
