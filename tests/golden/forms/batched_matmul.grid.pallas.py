"""batched_matmul for tpu:v6e, blocks tb=64, tk=128, tm=128, tn=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def batched_matmul_kernel(x_ref, w_ref, y_ref, acc_ref):
    # tm: grid dimension, blocks of 128; parallel: each tm writes its own slices of y
    # tn: grid dimension, blocks of 128; parallel: each tn writes its own slices of y
    # tk: grid dimension, blocks of 128; ordered: carries acc, a sum
    # tb: one tile, blocks of 64; parallel: each tb writes its own rows of y
    tk = pl.program_id(2)

    @pl.when(tk == 0)
    def _():
        # batched_matmul.py:25: acc = torch.zeros([tb, tm, tn], dtype=torch.float32)
        acc_ref[...] = jnp.zeros((64, 128, 128), jnp.float32)

    # batched_matmul.py:27: acc = torch.baddbmm(acc, x[tb, tm, tk], w[tb, tk, tn])
    acc_ref[...] += jax.lax.dot_general(
        x_ref[...],
        w_ref[...],
        (((2,), (1,)), ((0,), (0,))),
        preferred_element_type=jnp.float32,
    )

    @pl.when(tk == 7)
    def _():
        # batched_matmul.py:28: y[tb, tm, tn] = acc.to(y.dtype)
        y_ref[...] = acc_ref[...].astype(jnp.bfloat16)


def batched_matmul(x: jax.Array, w: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[b] = x[b] @ w[b]."""
    y = pl.pallas_call(
        batched_matmul_kernel,
        out_shape=jax.ShapeDtypeStruct((64, 1024, 1024), jnp.bfloat16),
        grid=(8, 8, 8),
        in_specs=[
            pl.BlockSpec((64, 128, 128), lambda tm, tn, tk: (0, tm, tk)),
            pl.BlockSpec((64, 128, 128), lambda tm, tn, tk: (0, tk, tn)),
        ],
        out_specs=pl.BlockSpec((64, 128, 128), lambda tm, tn, tk: (0, tm, tn)),
        scratch_shapes=[pltpu.VMEM((64, 128, 128), jnp.float32)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"),
        ),
        interpret=interpret,
    )(x, w)
    return y
