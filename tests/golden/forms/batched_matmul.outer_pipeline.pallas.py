"""batched_matmul for tpu:v6e, blocks tb=1, tk=1024, tm=1024, tn=1024."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def batched_matmul_kernel(x, w, y):
    # tb: grid dimension, blocks of 1; parallel: each tb writes its own rows of y
    # tk: one tile, blocks of 1024; ordered: carries acc, a sum
    # tm: one tile, blocks of 1024; parallel: each tm writes its own slices of y
    # tn: one tile, blocks of 1024; parallel: each tn writes its own slices of y
    def step(x_ref, w_ref, y_ref):
        # batched_matmul.py:25: acc = torch.zeros([tb, tm, tn], dtype=torch.float32)
        acc = jnp.zeros((1, 1024, 1024), jnp.float32)
        # batched_matmul.py:27: acc = torch.baddbmm(acc, x[tb, tm, tk], w[tb, tk, tn])
        acc = (
            acc
            + jax.lax.dot_general(
                x_ref[...],
                w_ref[...],
                (((2,), (1,)), ((0,), (0,))),
                preferred_element_type=jnp.float32,
            )
        )
        # batched_matmul.py:28: y[tb, tm, tn] = acc.to(y.dtype)
        y_ref[...] = acc.astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(64,),
        in_specs=[
            pl.BlockSpec((1, 1024, 1024), lambda tb: (tb, 0, 0)),
            pl.BlockSpec((1, 1024, 1024), lambda tb: (tb, 0, 0)),
        ],
        out_specs=[pl.BlockSpec((1, 1024, 1024), lambda tb: (tb, 0, 0))],
        dimension_semantics=(pltpu.PARALLEL,),
    )(x, w, y)


def batched_matmul(x: jax.Array, w: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[b] = x[b] @ w[b]."""
    y = pl.pallas_call(
        batched_matmul_kernel,
        out_shape=jax.ShapeDtypeStruct((64, 1024, 1024), jnp.bfloat16),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        interpret=interpret,
    )(x, w)
    return y
