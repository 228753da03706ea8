"""quantized_grouped_gemm for tpu:v6e, blocks tk=4096, tm=512, tn=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def quantized_grouped_gemm_kernel(offsets, x, w, row_scale_row, scale, y_in, y):
    # tn: grid dimension, blocks of 512; parallel: each tn writes its own columns of y
    # g: column of the step table; parallel: y rows of different g are disjoint because offsets is
    #     sorted
    # tm: column of the step table, blocks of 512; parallel: each tm writes its own rows of y
    # tk: one tile, blocks of 4096; ordered: carries acc, a sum
    # Rectangle of steps (g, tm), 64 x 32; dead steps move no data.
    def at(n):
        g = jax.lax.div(n, 32)
        tm_step = jax.lax.rem(n, 32)
        tm_begin = jnp.maximum(offsets[g], 0)
        tm_end = jnp.minimum(offsets[g + 1], 16384)
        tm_first = jax.lax.div(tm_begin, 512)
        tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 511, 512), tm_first)
        tm_live = tm_step < tm_stop - tm_first
        tm = jnp.minimum(jnp.minimum(tm_first + tm_step, jnp.maximum(tm_stop - 1, tm_first)), 31)
        return tm_live, (g, tm)

    def step(x_ref, w_ref, row_scale_ref, scale_ref, y_in_ref, y_ref):
        n = pl.program_id(1)
        live, (g, tm) = at(n)
        _, before = at(jnp.maximum(n - 1, 0))

        @pl.when((n == 0) | (before[1] != tm))
        def _():
            # first step at this block of y: start from what the array holds
            y_ref[...] = y_in_ref[...]

        @pl.when(live)
        def _():
            # quantized_grouped_gemm.py:58: acc = hl.zeros([tm, tn], dtype=sums)
            acc = jnp.zeros((512, 512), jnp.int32)
            # quantized_grouped_gemm.py:60: acc = hl.dot(x[tm, tk], w[g, tk, tn], acc=acc)
            acc = acc + jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.int32)
            # quantized_grouped_gemm.py:61: rescaled = acc.to(hl.float32) * row_scale[tm][:, None...
            g_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == jax.lax.rem(g, 16)
            scale_g = jnp.sum(jnp.where(g_row, scale_ref[...], 0.0), axis=0, keepdims=True)
            rescaled = (
                acc.astype(jnp.float32) * row_scale_ref[...].T.astype(jnp.float32)
                * scale_g.astype(jnp.float32)
            )
            # quantized_grouped_gemm.py:62: y[tm, tn] = rescaled.to(y.dtype)
            tm_index = tm * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
            tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
            y_ref[...] = jnp.where(tm_mask, rescaled.astype(jnp.bfloat16), y_ref[...])

    pltpu.emit_pipeline(
        step,
        grid=(4, 2048),
        in_specs=[
            pl.BlockSpec((512, 4096), lambda tn, n: (at(n)[1][1], 0)),
            pl.BlockSpec((None, 4096, 512), lambda tn, n: (at(n)[1][0], 0, tn)),
            pl.BlockSpec((1, 512), lambda tn, n: (0, at(n)[1][1])),
            pl.BlockSpec((16, 512), lambda tn, n: (jax.lax.div(at(n)[1][0], 16), tn)),
            pl.BlockSpec((512, 512), lambda tn, n: (at(n)[1][1], tn)),
        ],
        out_specs=[pl.BlockSpec((512, 512), lambda tn, n: (at(n)[1][1], tn))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.ARBITRARY),
    )(x, w, row_scale_row, scale, y_in, y)


def quantized_grouped_gemm(
    x: jax.Array,
    row_scale: jax.Array,
    w: jax.Array,
    scale: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """y[r] = (x[r] * row_scale[r]) @ (w[g] * scale[g]), of 8-bit x and w; dtype of the scales."""
    row_scale_row = row_scale.reshape((1, 16384))
    y_in = jnp.zeros((16384, 2048), jnp.bfloat16)
    y = pl.pallas_call(
        quantized_grouped_gemm_kernel,
        out_shape=jax.ShapeDtypeStruct((16384, 2048), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        input_output_aliases={5: 0},
        interpret=interpret,
    )(offsets, x, w, row_scale_row, scale, y_in)
    return y
