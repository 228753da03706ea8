"""split_k_matmul for tpu:v6e, blocks tk=2048, tm=256, tm_1=256, tn=512, tn_1=512, ts=2048."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def split_k_matmul_1_kernel(x_ref, w_ref, partial_ref):
    # ts: grid dimension, blocks of 2048; parallel: each ts writes its own rows of partial
    # tk: one tile, blocks of 2048; ordered: carries acc, a sum
    # tm: one tile, blocks of 256; parallel: each tm writes its own slices of partial
    # tn: one tile, blocks of 512; parallel: each tn writes its own slices of partial
    # split_k_matmul.py:33: acc = hl.zeros([tm, tn], dtype=hl.float32)
    acc = jnp.zeros((256, 512), jnp.float32)
    # split_k_matmul.py:35: acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
    acc = acc + jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)
    # split_k_matmul.py:36: partial[ts.id, tm, tn] = acc
    partial_ref[...] = acc


def split_k_matmul_2_kernel(partial_ref, y_ref):
    # tm_1: one tile, blocks of 256; parallel: each tm writes its own rows of y
    # tn_1: one tile, blocks of 512; parallel: each tn writes its own columns of y
    # split_k_matmul.py:38: y[tm, tn] = partial[:, tm, tn].sum(0).to(y.dtype)
    y_ref[...] = jnp.sum(partial_ref[...], axis=0).astype(jnp.bfloat16)


def split_k_matmul(x: jax.Array, w: jax.Array, *, interpret: bool = False) -> jax.Array:
    """x [M, K] times w [K, N] as the sum of at most `splits` products; [M, N] in x's dtype."""
    partial = pl.pallas_call(
        split_k_matmul_1_kernel,
        out_shape=jax.ShapeDtypeStruct((4, 256, 512), jnp.float32),
        grid=(32,),
        in_specs=[
            pl.BlockSpec((256, 2048), lambda ts: (0, ts)),
            pl.BlockSpec((2048, 512), lambda ts: (ts, 0)),
        ],
        out_specs=pl.BlockSpec((None, 256, 512), lambda ts: (ts, 0, 0)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
    )(x, w)
    y = pl.pallas_call(
        split_k_matmul_2_kernel,
        out_shape=jax.ShapeDtypeStruct((256, 512), jnp.bfloat16),
        in_specs=[pl.BlockSpec((4, 256, 512), lambda: (0, 0, 0))],
        out_specs=pl.BlockSpec((256, 512), lambda: (0, 0)),
        interpret=interpret,
    )(partial)
    return y
