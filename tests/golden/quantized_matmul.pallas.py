"""quantized_matmul for tpu:v6e, blocks tk=4096, tm=512, tn=1024."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def quantized_matmul_kernel(x_ref, w_ref, row_scale_ref, scale_ref, y_ref):
    # tn: grid dimension, blocks of 1024; parallel: each tn writes its own columns of y
    # tm: grid dimension, blocks of 512; parallel: each tm writes its own rows of y
    # tk: one tile, blocks of 4096; ordered: carries acc, a sum
    # quantized_matmul.py:50: acc = hl.zeros([tm, tn], dtype=hl.int32)
    acc = jnp.zeros((512, 1024), jnp.int32)
    # quantized_matmul.py:52: acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
    acc = acc + jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.int32)
    # quantized_matmul.py:53: rescaled = acc.to(hl.float32) * row_scale[tm][:, None] * scale[tn]
    rescaled = (
        acc.astype(jnp.float32) * row_scale_ref[...].T.astype(jnp.float32)
        * scale_ref[...].astype(jnp.float32)
    )
    # quantized_matmul.py:54: y[tm, tn] = rescaled.to(y.dtype)
    y_ref[...] = rescaled.astype(jnp.bfloat16)


def quantized_matmul(
    x: jax.Array,
    row_scale: jax.Array,
    w: jax.Array,
    scale: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """y = (x * row_scale) @ (w * scale), in the dtype of the scales."""
    row_scale_row = row_scale.reshape((1, 8192))
    scale_row = scale.reshape((1, 4096))
    y = pl.pallas_call(
        quantized_matmul_kernel,
        out_shape=jax.ShapeDtypeStruct((8192, 4096), jnp.bfloat16),
        grid=(4, 16),
        in_specs=[
            pl.BlockSpec((512, 4096), lambda tn, tm: (tm, 0)),
            pl.BlockSpec((4096, 1024), lambda tn, tm: (0, tn)),
            pl.BlockSpec((1, 512), lambda tn, tm: (0, tm)),
            pl.BlockSpec((1, 1024), lambda tn, tm: (0, tn)),
        ],
        out_specs=pl.BlockSpec((512, 1024), lambda tn, tm: (tm, tn)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        interpret=interpret,
    )(x, w, row_scale_row, scale_row)
    return y
