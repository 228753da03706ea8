"""Kernels from JAX on a GPU: JAX_PLATFORMS=cpu,cuda pytest -m gpu tests/gpu/test_device_jax.py

The CPU stays the default, so that what is expected is computed there.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.jagged.grouped_gemm import grouped_gemm
from tests import checks
from tests.gpu import machine
from tests.ragged import Space, every_stratum, wild_offsets
from tests.subjects import SUBJECTS


def _gpus():
    try:
        return jax.devices("cuda")
    except RuntimeError:
        return []


if machine.LACKS or machine.INTERPRETS or not _gpus():
    pytest.skip(
        machine.LACKS or "JAX has no GPU here: JAX_PLATFORMS=cpu,cuda", allow_module_level=True
    )

pytestmark = pytest.mark.gpu
GPU = _gpus()[0]
SPACE = Space(100, 5, 32)


def call(kernel, *args):
    """One program of XLA on the GPU, as a function of NumPy arrays."""
    given = [jax.device_put(a, GPU) if isinstance(a, np.ndarray) else a for a in args]
    places = tuple(n for n, a in enumerate(args) if not isinstance(a, np.ndarray))
    made = jax.jit(kernel, static_argnums=places)(*given)
    assert all(one.devices() == {GPU} for one in jax.tree.leaves(made))
    return jax.tree.map(np.asarray, made)


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_every_example_inside_jit(subject):
    def run(*args):
        return call(subject.kernel, *args)

    dtype = subject.dtypes[-1]
    if subject.ragged is None:
        arguments = subject.arguments(subject.arrays(dtype))
        assert checks.right(subject, run, arguments, dtype) == ""
        return
    arrays = subject.arrays(dtype, rows=SPACE.rows, groups=SPACE.groups)
    layouts = every_stratum(subject.ragged.space(SPACE))
    assert checks.every_layout(subject, run, arrays, layouts[::4], dtype) == []
    if dtype == "float32":
        offsets = next(iter(wild_offsets(subject.ragged.space(SPACE)).values()))
        assert checks.unchecked(subject, run, arrays, offsets) == []


def test_outside_of_jit_and_gradients():
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((64, 32)), rng.standard_normal((3, 32, 16))
    offsets = np.array([0, 20, 20, 64], np.int32)
    x, w, offsets = (
        jax.device_put(jnp.asarray(a, a.dtype if a.dtype == np.int32 else "float32"), GPU)
        for a in (x, w, offsets)
    )
    y = grouped_gemm(x, w, offsets)
    assert y.devices() == {GPU}
    rows, weights = np.asarray(x, np.float64), np.asarray(w, np.float64)
    wanted = np.concatenate([rows[:20] @ weights[0], rows[20:] @ weights[2]])
    np.testing.assert_allclose(y, wanted, atol=1e-3)
    gradient = jax.grad(lambda x: grouped_gemm(x, w, offsets).sum())(x)
    wanted = np.concatenate(
        [np.ones((20, 16)) @ np.asarray(w[0]).T, np.ones((44, 16)) @ np.asarray(w[2]).T]
    )
    np.testing.assert_allclose(gradient, wanted, atol=1e-3)
