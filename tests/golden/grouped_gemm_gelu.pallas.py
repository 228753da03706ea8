"""grouped_gemm_bias_activation for tpu:v6e, blocks tk=4096, tm=128, tn=2048."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def grouped_gemm_bias_activation_kernel(offsets, x, w, bias, y, g_of, tm_of):
    # g: column of the step table; parallel: y rows of different g are disjoint because offsets is
    #     sorted
    # tm: column of the step table, blocks of 128; parallel: each tm writes its own rows of y
    # tk: one tile, blocks of 4096; ordered: carries acc, a sum
    # tn: one tile, blocks of 2048; parallel: each tn writes its own columns of y
    # Step table: one row for every (g, tm), in the order of the loops.
    # A tm of no range gets one too, so that its outputs are defined;
    # every tm below `seen` has a row already.
    def add_tm(g, tm, n):
        g_of[n] = g
        tm_of[n] = tm
        return n + 1

    def add_g(g, state):
        n, seen = state
        tm_begin = jnp.maximum(offsets[g], 0)
        tm_end = jnp.minimum(offsets[g + 1], 16384)
        tm_first = jax.lax.div(tm_begin, 128)
        tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 127, 128), seen)
        tm_start = jnp.where((tm_end > tm_begin) & (tm_first < seen), seen - 1, seen)
        n = jax.lax.fori_loop(tm_start, tm_stop, lambda tm, n: add_tm(g, tm, n), n)
        return n, jnp.maximum(seen, tm_stop)

    steps, seen = jax.lax.fori_loop(0, 64, add_g, (jnp.int32(0), jnp.int32(0)))
    steps = jax.lax.fori_loop(seen, 128, lambda tm, n: add_tm(63, tm, n), steps)

    def step(x_ref, w_ref, bias_ref, y_ref):
        n = pl.program_id(0)
        g, tm = g_of[n], tm_of[n]
        before = jnp.maximum(n - 1, 0)

        @pl.when((n == 0) | (tm_of[before] != tm))
        def _():
            # first step at this block of y: rows of no range keep 0.0
            y_ref[...] = jnp.zeros((128, 2048), jnp.bfloat16)

        # grouped_gemm_bias_activation.py:47: acc = jnp.zeros([tm, tn], dtype=jnp.float32)
        acc = jnp.zeros((128, 2048), jnp.float32)
        # grouped_gemm_bias_activation.py:49: acc += jnp.dot(x[tm, tk], w[g, tk, tn], preferred_e...
        acc = acc + jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)
        # grouped_gemm_bias_activation.py:50: y[tm, tn] = activation(acc + bias[g, tn]).astype(y....
        tm_index = tm * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
        tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
        g_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == jax.lax.rem(g, 16)
        bias_g = jnp.sum(jnp.where(g_row, bias_ref[...], 0.0), axis=0, keepdims=True)
        y_ref[...] = jnp.where(
            tm_mask, jax.nn.gelu(acc + bias_g.astype(jnp.float32)).astype(jnp.bfloat16), y_ref[...]
        )

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec((128, 4096), lambda n: (tm_of[n], 0), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec(
                (None, 4096, 2048),
                lambda n: (g_of[n], 0, 0),
                pipeline_mode=pl.Buffered(4),
            ),
            pl.BlockSpec(
                (16, 2048),
                lambda n: (jax.lax.div(g_of[n], 16), 0),
                pipeline_mode=pl.Buffered(4),
            ),
        ],
        out_specs=[pl.BlockSpec((128, 2048), lambda n: (tm_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(x, w, bias, y)


def grouped_gemm_bias_activation(
    x: jax.Array,
    w: jax.Array,
    bias: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """y[r] = activation(x[r] @ w[g] + bias[g]); rows in no group are zero."""
    y = pl.pallas_call(
        grouped_gemm_bias_activation_kernel,
        out_shape=jax.ShapeDtypeStruct((16384, 2048), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.SMEM((191,), jnp.int32), pltpu.SMEM((191,), jnp.int32)],
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=92274688),
        interpret=interpret,
    )(offsets, x, w, bias)
    return y
