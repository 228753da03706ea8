"""split_k_matmul for tpu:v6e, blocks tk=2048, tm=256, tm_1=256, tn=512, tn_1=512, ts=16384."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def split_k_matmul_1_kernel(x, w, partial, acc_ref):
    # ts: grid dimension, blocks of 16384; parallel: each ts writes its own rows of partial
    # tk: grid dimension, blocks of 2048; ordered: carries acc, a sum
    # tm: one tile, blocks of 256; parallel: each tm writes its own slices of partial
    # tn: one tile, blocks of 512; parallel: each tn writes its own slices of partial
    def step(x_ref, w_ref, partial_ref):
        tk_step = pl.program_id(1)

        @pl.when(tk_step == 0)
        def _():
            # split_k_matmul.py:33: acc = hl.zeros([tm, tn], dtype=hl.float32)
            acc_ref[...] = jnp.zeros((256, 512), jnp.float32)

        # split_k_matmul.py:35: acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
        acc_ref[...] += jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)

        @pl.when(tk_step == 7)
        def _():
            # split_k_matmul.py:36: partial[ts.id, tm, tn] = acc
            partial_ref[...] = acc_ref[...]

    pltpu.emit_pipeline(
        step,
        grid=(4, 8),
        in_specs=[
            pl.BlockSpec((256, 2048), lambda ts, tk: (0, ts * 8 + tk)),
            pl.BlockSpec((2048, 512), lambda ts, tk: (ts * 8 + tk, 0)),
        ],
        out_specs=[pl.BlockSpec((None, 256, 512), lambda ts, tk: (ts, 0, 0))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.ARBITRARY),
    )(x, w, partial)


def split_k_matmul_2_kernel(partial, y):
    # tm_1: one tile, blocks of 256; parallel: each tm writes its own rows of y
    # tn_1: one tile, blocks of 512; parallel: each tn writes its own columns of y
    def step(partial_ref, y_ref):
        # split_k_matmul.py:38: y[tm, tn] = partial[:, tm, tn].sum(0).to(y.dtype)
        y_ref[...] = jnp.sum(partial_ref[...], axis=0).astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(),
        in_specs=[pl.BlockSpec((4, 256, 512), lambda: (0, 0, 0))],
        out_specs=[pl.BlockSpec((256, 512), lambda: (0, 0))],
        dimension_semantics=(),
    )(partial, y)


def split_k_matmul(x: jax.Array, w: jax.Array, *, interpret: bool = False) -> jax.Array:
    """x [M, K] times w [K, N] as the sum of at most `splits` products; [M, N] in x's dtype."""
    partial = pl.pallas_call(
        split_k_matmul_1_kernel,
        out_shape=jax.ShapeDtypeStruct((4, 256, 512), jnp.float32),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.VMEM((256, 512), jnp.float32)],
        interpret=interpret,
    )(x, w)
    y = pl.pallas_call(
        split_k_matmul_2_kernel,
        out_shape=jax.ShapeDtypeStruct((256, 512), jnp.bfloat16),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        interpret=interpret,
    )(partial)
    return y
