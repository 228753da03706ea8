"""Eight-bit tensors of each framework: in, out, and changed in place, in small and large arrays."""

from __future__ import annotations

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.frameworks import torch

DTYPES = ("int8", "uint8", "float8_e4m3fn", "float8_e5m2")
SIZES = (3, 1100)  # rows of 1000: results above a megabyte leave by another way
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")


@tile.kernel
def halved(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for tm in hl.tile(x.shape[0]):
        y[tm, :] = (x[tm, :].to(hl.float32) * 0.5).to(x.dtype)
    return y


@tile.kernel
def halve(x):
    for tm in hl.tile(x.shape[0]):
        x[tm, :] = (x[tm, :].to(hl.float32) * 0.5).to(x.dtype)


def numbers(rows: int, dtype: str) -> np.ndarray:
    """Even numbers that every dtype holds exactly."""
    values = np.resize([0, 2, 4, 8, 16, 32], (rows, 1000)).astype(np.float32)
    return values.astype(getattr(ml_dtypes, dtype, dtype))


def tensor(array: np.ndarray):
    assert torch is not None
    return torch.from_numpy(array.view(np.uint8)).view(getattr(torch, array.dtype.name))


def same(result, x: np.ndarray) -> None:
    assert result.dtype == x.dtype
    np.testing.assert_array_equal(result.astype(np.float32), x.astype(np.float32) / 2)


@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_numpy_and_jax(dtype, rows):
    x = numbers(rows, dtype)
    same(halved(x), x)
    same(np.asarray(halved(jnp.asarray(x))), x)
    changed = x.copy()
    halve(changed)
    same(changed, x)


@needs_torch
@pytest.mark.parametrize("rows", SIZES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_torch(dtype, rows):
    assert torch is not None
    x = numbers(rows, dtype)
    given = tensor(x.copy())
    result = halved(given)
    assert result.dtype == given.dtype
    same(result.view(torch.uint8).numpy().view(x.dtype), x)
    halve(given)
    same(given.view(torch.uint8).numpy().view(x.dtype), x)
