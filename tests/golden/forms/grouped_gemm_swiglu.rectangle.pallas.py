"""grouped_gemm_gated for tpu:v6e, blocks tk=4096, tm=128, tn=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def grouped_gemm_gated_kernel(offsets, x, w, v, y_in, y):
    # tn: grid dimension, blocks of 512; parallel: each tn writes its own columns of y
    # g: column of the step table; parallel: y rows of different g are disjoint because offsets is
    #     sorted
    # tm: column of the step table, blocks of 128; parallel: each tm writes its own rows of y
    # tk: one tile, blocks of 4096; ordered: carries gate, value, sums
    # Rectangle of steps (g, tm), 64 x 128; dead steps move no data.
    def at(n):
        g = jax.lax.div(n, 128)
        tm_step = jax.lax.rem(n, 128)
        tm_begin = jnp.maximum(offsets[g], 0)
        tm_end = jnp.minimum(offsets[g + 1], 16384)
        tm_first = jax.lax.div(tm_begin, 128)
        tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 127, 128), tm_first)
        tm_live = tm_step < tm_stop - tm_first
        tm = jnp.minimum(jnp.minimum(tm_first + tm_step, jnp.maximum(tm_stop - 1, tm_first)), 127)
        return tm_live, (g, tm)

    def step(x_ref, w_ref, v_ref, y_in_ref, y_ref):
        n = pl.program_id(1)
        live, (g, tm) = at(n)
        _, before = at(jnp.maximum(n - 1, 0))

        @pl.when((n == 0) | (before[1] != tm))
        def _():
            # first step at this block of y: start from what the array holds
            y_ref[...] = y_in_ref[...]

        @pl.when(live)
        def _():
            # grouped_gemm_bias_activation.py:67: gate = jnp.zeros([tm, tn], dtype=jnp.float32)
            gate = jnp.zeros((128, 512), jnp.float32)
            # grouped_gemm_bias_activation.py:68: value = jnp.zeros([tm, tn], dtype=jnp.float32)
            value = jnp.zeros((128, 512), jnp.float32)
            # grouped_gemm_bias_activation.py:70: rows = x[tm, tk]
            rows = x_ref[...]
            # grouped_gemm_bias_activation.py:71: gate += jnp.dot(rows, w[g, tk, tn], preferred_e...
            gate = gate + jnp.dot(rows, w_ref[...], preferred_element_type=jnp.float32)
            # grouped_gemm_bias_activation.py:72: value += jnp.dot(rows, v[g, tk, tn], preferred_...
            value = value + jnp.dot(rows, v_ref[...], preferred_element_type=jnp.float32)
            # grouped_gemm_bias_activation.py:73: y[tm, tn] = (activation(gate) * value).astype(y...
            tm_index = tm * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
            tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
            y_ref[...] = jnp.where(
                tm_mask, (jax.nn.silu(gate) * value).astype(jnp.bfloat16), y_ref[...]
            )

    pltpu.emit_pipeline(
        step,
        grid=(4, 8192),
        in_specs=[
            pl.BlockSpec((128, 4096), lambda tn, n: (at(n)[1][1], 0)),
            pl.BlockSpec((None, 4096, 512), lambda tn, n: (at(n)[1][0], 0, tn)),
            pl.BlockSpec((None, 4096, 512), lambda tn, n: (at(n)[1][0], 0, tn)),
            pl.BlockSpec((128, 512), lambda tn, n: (at(n)[1][1], tn)),
        ],
        out_specs=[pl.BlockSpec((128, 512), lambda tn, n: (at(n)[1][1], tn))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.ARBITRARY),
    )(x, w, v, y_in, y)


def grouped_gemm_gated(
    x: jax.Array,
    w: jax.Array,
    v: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """y[r] = activation(x[r] @ w[g]) * (x[r] @ v[g]); rows in no group are zero."""
    y_in = jnp.zeros((16384, 2048), jnp.bfloat16)
    y = pl.pallas_call(
        grouped_gemm_gated_kernel,
        out_shape=jax.ShapeDtypeStruct((16384, 2048), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        input_output_aliases={4: 0},
        interpret=interpret,
    )(offsets, x, w, v, y_in)
    return y
