"""Products of small floats on a CPU, of which XLA's has not all."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl

OFFSETS = np.array([0, 7, 7, 30], np.int32)
DTYPES = ("bfloat16", "float16")


@tile.kernel
def turned(x, offsets):
    """A turned name that products and other things read, and an operand computed of it."""
    G, F = offsets.shape[0] - 1, x.shape[1]
    w = hl.zeros([G, F, F], dtype=hl.float32)
    for g in hl.grid(G):
        acc = hl.zeros([F, F], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            xt = (x[tm, :] * 2).T
            acc = acc + hl.dot(xt, x[tm, :]) + hl.dot(xt, hl.exp(xt.T * 0.125))
        w[g, :, :] = acc
    return w


@tile.kernel
def one_name(x, y, offsets):
    """w[g] = exp(x)^T y over the rows of group g, of which the left side has a name."""
    G = offsets.shape[0] - 1
    w = hl.zeros([G, x.shape[1], y.shape[1]], dtype=hl.float32)
    for g in hl.grid(G):
        acc = hl.zeros([x.shape[1], y.shape[1]], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            left = hl.exp(x[tm, :].to(hl.float32)).T.to(x.dtype)
            acc = hl.dot(left, y[tm, :], acc=acc)
        w[g, :, :] = acc
    return w


def drawn(dtype, columns):
    return jnp.asarray(np.random.default_rng(columns).integers(-4, 5, (40, columns)), dtype)


def groups():
    return itertools.pairwise(OFFSETS)


@pytest.mark.parametrize("dtype", DTYPES)
def test_turned_values_that_are_read_otherwise_too(dtype):
    x = drawn(dtype, 16)
    a = np.asarray(x, np.float32)
    right = a + np.exp(a / 4).astype(x.dtype).astype(np.float32)
    wanted = np.stack([2 * a[i:j].T @ right[i:j] for i, j in groups()])
    rounded = 2.0**-7  # of exp, in that dtype
    np.testing.assert_allclose(turned(x, OFFSETS), wanted, atol=rounded * np.abs(wanted).max())


@pytest.mark.parametrize("dtype", DTYPES)
def test_turned_values_that_products_read(dtype):
    x, y = drawn(dtype, 16), drawn(dtype, 8)
    left = np.exp(np.asarray(x, np.float32)).astype(x.dtype).astype(np.float32)
    right = np.asarray(y, np.float32)
    wanted = [left[i:j].T @ right[i:j] for i, j in groups()]
    np.testing.assert_allclose(one_name(x, y, OFFSETS), wanted, rtol=1e-5, atol=1e-5)


def test_whole_numbers_stay_whole():
    """A product of int8 is exact where float32 would not be."""

    @tile.kernel
    def product(x, y):
        w = hl.empty([x.shape[0], y.shape[1]], dtype=hl.int32)
        for tm, tn in hl.tile([x.shape[0], y.shape[1]]):
            w[tm, tn] = hl.dot(x[tm, :], y[:, tn])
        return w

    x, y = np.full((8, 4096), 127, np.int8), np.full((4096, 8), 127, np.int8)
    y[0] = 126
    np.testing.assert_array_equal(product(x, y), x.astype(np.int64) @ y.astype(np.int64))


def test_products_of_a_lowering_for_tpu_keep_their_operands():
    """Only what a CPU runs is changed: an MXU takes bfloat16."""
    x, y = drawn("bfloat16", 16), drawn("bfloat16", 8)
    call = jax.jit(lambda *arrays: one_name(*arrays, OFFSETS))
    assert "algorithm" in call.lower(x, y).as_text()
    assert "algorithm" not in call.trace(x, y).lower(lowering_platforms=("tpu",)).as_text()
