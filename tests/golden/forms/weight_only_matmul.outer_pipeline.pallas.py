"""weight_only_matmul for tpu:v6e, blocks tk=4096, tm=256, tn=1024."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def weight_only_matmul_kernel(x, w, scale_row, y):
    # tn: grid dimension, blocks of 1024; parallel: each tn writes its own columns of y
    # tm: grid dimension, blocks of 256; parallel: each tm writes its own rows of y
    # tk: one tile, blocks of 4096; ordered: carries acc, a sum
    def step(x_ref, w_ref, scale_ref, y_ref):
        # quantized_matmul.py:33: acc = hl.zeros([tm, tn], dtype=hl.float32)
        acc = jnp.zeros((256, 1024), jnp.float32)
        # quantized_matmul.py:35: acc = hl.dot(x[tm, tk], w[tk, tn].to(x.dtype), acc=acc)
        acc = (
            acc
            + jnp.dot(
                x_ref[...],
                w_ref[...].astype(jnp.bfloat16),
                preferred_element_type=jnp.float32,
            )
        )
        # quantized_matmul.py:36: y[tm, tn] = (acc * scale[tn]).to(y.dtype)
        y_ref[...] = (acc * scale_ref[...]).astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(4, 32),
        in_specs=[
            pl.BlockSpec((256, 4096), lambda tn, tm: (tm, 0)),
            pl.BlockSpec((4096, 1024), lambda tn, tm: (0, tn)),
            pl.BlockSpec((1, 1024), lambda tn, tm: (0, tn)),
        ],
        out_specs=[pl.BlockSpec((256, 1024), lambda tn, tm: (tm, tn))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.PARALLEL),
    )(x, w, scale_row, y)


def weight_only_matmul(
    x: jax.Array,
    w: jax.Array,
    scale: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """y = x @ (w * scale): x [M, K], w [K, N] int8, scale [N] float32; y in x's dtype."""
    scale_row = scale.reshape((1, 4096))
    y = pl.pallas_call(
        weight_only_matmul_kernel,
        out_shape=jax.ShapeDtypeStruct((8192, 4096), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        interpret=interpret,
    )(x, w, scale_row)
    return y
