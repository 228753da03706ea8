"""Arrays that a kernel sees in another shape, padded to more rows: one program for all lengths."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.xla import assert_same
from tilelang.errors import CallError

RNG = np.random.default_rng(0)


def heads(x, offsets):
    """Columns are seen as heads, and the result is returned as columns."""
    M, N = x.shape
    v = x.reshape(M, 2, N // 2)
    y = hl.zeros([M, 2, N // 2], dtype=x.dtype)
    for g, h in hl.grid([offsets.shape[0] - 1, 2]):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, h, :] = hl.exp(v[t, 1 - h, :])
    return y.reshape(M, N)


def turned(x, offsets):
    v, y = x.T, hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = hl.exp(v[:, t].T)
    return y.T


def of_one(x, offsets):
    """A dimension of length 1 before the rows, of which there may be one, too."""
    v, y = x.unsqueeze(0), hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = hl.exp(v[0, t, :])
    return y


def with_a_first(x, offsets):
    """Returned with a dimension of length 1 before the rows, which of one row looks like them."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = hl.exp(x[t, :])
    return y.unsqueeze(0)


def squares(x, offsets):
    """Rows by rows, returned as one dimension: of one row or column it is as long as the other."""
    M, N = x.shape
    y = hl.zeros([M, N], dtype=x.dtype)
    for t in hl.tile(offsets[0], offsets[1]):
        for u in hl.tile(offsets[1], offsets[2]):
            y[t, u] = hl.exp(x[t, u])
    return y.reshape(M * N)


def elsewhere(x, offsets):
    """Of as many rows, which lie elsewhere: with more rows they are others."""
    M, N = x.shape
    v, y = x.reshape(2, M, N // 2), hl.zeros([2, M, N // 2], dtype=x.dtype)
    for g, h in hl.grid([offsets.shape[0] - 1, 2]):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[h, t, :] = hl.exp(v[h, t, :])
    return y


def flat(x, offsets):
    first, y = x.reshape(-1), hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = hl.exp(x[t, :]) * first[0]
    return y


def planes(x, offsets):
    """Returned flat: of one row alone the planes lie as its elements do."""
    y = hl.zeros([18, x.shape[0]], dtype=x.dtype)
    for u in hl.tile(2):
        for t in hl.tile(offsets[0], offsets[1]):
            y[u.index + 16, t] = x[t, 0][None, :] + hl.zeros([u, t], dtype=x.dtype)
    return y.reshape(y.shape[0] * y.shape[1])


@pytest.mark.parametrize("kernel", [heads, turned, of_one, with_a_first], ids=lambda k: k.__name__)
def test_forms_of_an_array_have_its_rows(kernel):
    plain, bucketed = tile.kernel(kernel), tile.kernel(kernel, rows="bucket")
    for rows in (0, 1, 2, 40):
        x = jnp.asarray(RNG.standard_normal((rows, 6), np.float32))
        offsets = jnp.array([rows // 3, rows // 2, rows // 2, rows])
        assert_same(bucketed(x, offsets), plain(x, offsets))


@pytest.mark.parametrize("kernel", [elsewhere, flat], ids=lambda k: k.__name__)
def test_forms_whose_rows_lie_elsewhere_are_refused(kernel):
    for rows in (1, 6):
        with pytest.raises(CallError, match="has no rows to pad"):
            tile.kernel(kernel, rows="bucket")(jnp.ones((rows, 6)), jnp.array([0, 1]))


def test_one_row_is_not_taken_for_planes():
    x, offsets = jnp.ones((1, 6)), jnp.array([0, 1])
    with pytest.raises(CallError, match="computes with how many rows there are"):
        tile.kernel(planes, rows="bucket")(x, offsets)
    assert tile.kernel(planes)(x, offsets).tolist() == [0.0] * 16 + [1.0] * 2


def test_two_rows_of_one_are_no_row():
    kernel = tile.kernel(squares, rows="bucket")
    for shape in ((5, 1), (1, 5), (3, 4)):
        with pytest.raises(CallError, match="how many rows there are"):
            kernel(jnp.ones(shape), jnp.array([0, 1, 1]))


def test_symbols_are_rows_of_heads():
    """Exported once, for the CPU and a TPU; the gradient, too."""
    kernel = tile.kernel(heads, rows="bucket")
    (rows,) = jax.export.symbolic_shape("rows", constraints=["rows <= 64"])
    spec = jax.ShapeDtypeStruct((rows, 8), jnp.float32), jax.ShapeDtypeStruct((4,), jnp.int32)
    for run in (kernel, jax.grad(lambda x, o: (kernel(x, o) ** 2).sum())):
        made = jax.export.export(jax.jit(run), platforms=["cpu", "tpu"])(*spec)
        assert "tpu_custom_call" in made.mlir_module()
        for n in (5, 64):
            x = jnp.asarray(RNG.standard_normal((n, 8), np.float32))
            offsets = jnp.array([1, n // 3, n // 3, n])
            np.testing.assert_allclose(made.call(x, offsets), run(x, offsets), rtol=1e-6)
