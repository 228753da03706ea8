"""transposed_grouped_gemm for tpu:v6e, blocks tk=1024, tm=512, tn=2048."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def transposed_grouped_gemm_kernel(offsets, x, dy, dw, acc_ref, g_of, tm_of):
    # tk: grid dimension, blocks of 1024; parallel: each tk writes its own slices of dw
    # g: column of the step table; parallel: each g writes its own rows of dw
    # tm: column of the step table, blocks of 512; ordered: carries acc, a sum
    # tn: one tile, blocks of 2048; parallel: each tn writes its own slices of dw
    # Step table: one row for every (g, tm), in the order of the loops.
    def add_tm(g, tm, n):
        g_of[n] = g
        tm_of[n] = tm
        return n + 1

    def add_g(g, n):
        tm_begin = jnp.maximum(offsets[g], 0)
        tm_end = jnp.minimum(offsets[g + 1], 16384)
        tm_first = jax.lax.div(tm_begin, 512)
        tm_first = jnp.minimum(tm_first, 31)
        tm_stop = jnp.minimum(
            jnp.maximum(
                jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 511, 512), tm_first),
                tm_first + 1,
            ),
            tm_first + (160 - n),
        )
        return jax.lax.fori_loop(tm_first, tm_stop, lambda tm, n: add_tm(g, tm, n), n)

    steps = jax.lax.fori_loop(0, 64, add_g, jnp.int32(0))

    def step(x_ref, dy_ref, dw_ref):
        n = pl.program_id(1)
        g, tm = g_of[n], tm_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (g_of[before] != g))
        def _():
            # transposed_grouped_gemm.py:43: acc = hl.zeros([tk, tn], dtype=hl.float32)
            acc_ref[...] = jnp.zeros((1024, 2048), jnp.float32)

        # transposed_grouped_gemm.py:45: acc = hl.dot(x[tm, tk].T, dy[tm, tn], acc=acc)
        tm_index = tm * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
        tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
        acc_ref[...] += jax.lax.dot_general(
            jnp.where(tm_mask, x_ref[...], 0.0),
            jnp.where(tm_mask, dy_ref[...], 0.0),
            (((0,), (0,)), ((), ())),
            preferred_element_type=jnp.float32,
        )

        @pl.when((n == steps - 1) | (g_of[after] != g))
        def _():
            # transposed_grouped_gemm.py:46: dw[g, tk, tn] = acc.to(dw.dtype)
            dw_ref[...] = acc_ref[...].astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(4, steps),
        in_specs=[
            pl.BlockSpec((512, 1024), lambda tk, n: (tm_of[n], tk), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec((512, 2048), lambda tk, n: (tm_of[n], 0), pipeline_mode=pl.Buffered(4)),
        ],
        out_specs=[pl.BlockSpec((None, 1024, 2048), lambda tk, n: (g_of[n], tk, 0))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.ARBITRARY),
    )(x, dy, dw)


def transposed_grouped_gemm(
    x: jax.Array,
    dy: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """dw[g] = x[rows of g].T @ dy[rows of g]."""
    dw = pl.pallas_call(
        transposed_grouped_gemm_kernel,
        out_shape=jax.ShapeDtypeStruct((64, 4096, 2048), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((1024, 2048), jnp.float32),
            pltpu.SMEM((160,), jnp.int32),
            pltpu.SMEM((160,), jnp.int32),
        ],
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=39845888),
        interpret=interpret,
    )(offsets, x, dy)
    return dw
