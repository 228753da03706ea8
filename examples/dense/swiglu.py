"""SwiGLU: silu(gate) * up, the activation between the matrices of most language models.

Every element is computed by itself, so both loops are parallel, and the kernel is as fast as memory
is: it reads gate and up once, and writes y once.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def swiglu(gate, up):
    """y = silu(gate) * up, computed in float32: gate, up and y [M, N] of one dtype."""
    y = jnp.empty(gate.shape, dtype=gate.dtype)
    for tm, tn in hl.tile(gate.shape):
        value = jax.nn.silu(gate[tm, tn].astype(jnp.float32)) * up[tm, tn].astype(jnp.float32)
        y[tm, tn] = value.astype(y.dtype)
    return y


def oracle(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """The same in float64."""
    gate = gate.astype(np.float64)
    return gate / (1 + np.exp(-gate)) * up


def make_inputs(seed: int = 0, rows: int = 100, columns: int = 300) -> tuple:
    """gate and up [rows, columns]."""
    gate, up = np.random.default_rng(seed).standard_normal((2, rows, columns), np.float32)
    return gate, up


def case(rows: int, columns: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    gate = tile.spec((rows, columns), dtype)
    return gate, gate


SIZES = ((1024, 1024), (1000, 300), (16384, 11008))  # aligned, unaligned, production
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("swiglu", swiglu, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
