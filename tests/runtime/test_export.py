"""Programs that JAX exports run where this package is not."""

from __future__ import annotations

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from examples.jagged.grouped_gemm import grouped_gemm

X = np.random.default_rng(0).standard_normal((60, 8), np.float32)
W = np.random.default_rng(1).standard_normal((3, 8, 4), np.float32)
OFFSETS = np.array([0, 20, 20, 55], np.int32)
# In a process that cannot import it; JAX alone calls what was written.
SERVE = """
import sys
for name in ("tilelang", "examples", "torch"):
    sys.modules[name] = None
import jax, numpy as np
given = np.load(sys.argv[2])
served = jax.export.deserialize(open(sys.argv[1], "rb").read())
np.save(sys.argv[3], served.call(given["x"], given["w"], given["offsets"]))
"""


@pytest.mark.parametrize("gradient", [False, True])
def test_served_without_this_package(tmp_path, gradient):
    pytest.importorskip("flatbuffers", reason="JAX writes exported programs with flatbuffers")

    def run(x, w, offsets):
        if gradient:
            return jax.grad(lambda x: (grouped_gemm(x, w, offsets) ** 2).sum())(x)
        return grouped_gemm(x, w, offsets)

    exported = jax.export.export(jax.jit(run), platforms=["cpu", "tpu"])(X, W, OFFSETS)
    assert exported.mlir_module().count("tpu_custom_call") == 1 + gradient
    paths = [str(tmp_path / name) for name in ("program", "given.npz", "found.npy")]
    (tmp_path / "program").write_bytes(exported.serialize())
    np.savez(paths[1], x=2 * X, w=W, offsets=OFFSETS)
    done = subprocess.run(
        [sys.executable, "-c", SERVE, *paths], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    np.testing.assert_allclose(np.load(paths[2]), run(2 * X, W, jnp.asarray(OFFSETS)), rtol=1e-6)
