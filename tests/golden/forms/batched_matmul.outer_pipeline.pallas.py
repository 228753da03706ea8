"""batched_matmul for tpu:v6e, blocks tb=32, tk=1024, tm=128, tn=256."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def batched_matmul_kernel(x, w, y):
    # tb: grid dimension, blocks of 32; parallel: each tb writes its own rows of y
    # tn: grid dimension, blocks of 256; parallel: each tn writes its own slices of y
    # tm: grid dimension, blocks of 128; parallel: each tm writes its own slices of y
    # tk: one tile, blocks of 1024; ordered: carries acc, a sum
    def step(x_ref, w_ref, y_ref):
        # batched_matmul.py:25: acc = torch.zeros([tb, tm, tn], dtype=torch.float32)
        acc = jnp.zeros((32, 128, 256), jnp.float32)
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
        grid=(2, 4, 8),
        in_specs=[
            pl.BlockSpec((32, 128, 1024), lambda tb, tn, tm: (tb, tm, 0)),
            pl.BlockSpec((32, 1024, 256), lambda tb, tn, tm: (tb, 0, tn)),
        ],
        out_specs=[pl.BlockSpec((32, 128, 256), lambda tb, tn, tm: (tb, tm, tn))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.PARALLEL, pltpu.PARALLEL),
    )(x, w, y)


def batched_matmul(x: jax.Array, w: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[b] = x[b] @ w[b]."""
    y = pl.pallas_call(
        batched_matmul_kernel,
        out_shape=jax.ShapeDtypeStruct((64, 1024, 1024), jnp.bfloat16),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=74448896),
        interpret=interpret,
    )(x, w)
    return y
