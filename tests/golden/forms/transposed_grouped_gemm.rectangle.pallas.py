"""transposed_grouped_gemm for tpu:v6e, blocks tk=512, tm=512, tn=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def transposed_grouped_gemm_kernel(offsets, x, dy, dw, acc_ref):
    # tk: grid dimension, blocks of 512; parallel: each tk writes its own slices of dw
    # tn: grid dimension, blocks of 512; parallel: each tn writes its own slices of dw
    # g: column of the step table; parallel: each g writes its own rows of dw
    # tm: column of the step table, blocks of 512; ordered: carries acc, a sum
    # Rectangle of steps (g, tm), 64 x 32; dead steps move no data.
    def at(n):
        g = jax.lax.div(n, 32)
        tm_step = jax.lax.rem(n, 32)
        tm_begin = jnp.maximum(offsets[g], 0)
        tm_end = jnp.minimum(offsets[g + 1], 16384)
        tm_first = jax.lax.div(tm_begin, 512)
        tm_first = jnp.minimum(tm_first, 31)
        tm_stop = jnp.maximum(
            jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 511, 512), tm_first), tm_first + 1
        )
        tm_live = tm_step < tm_stop - tm_first
        tm = jnp.minimum(jnp.minimum(tm_first + tm_step, jnp.maximum(tm_stop - 1, tm_first)), 31)
        return tm_live, (g, tm), (tm_first, tm_stop)

    def step(x_ref, dy_ref, dw_ref):
        n = pl.program_id(2)
        live, (g, tm), (tm_first, tm_stop) = at(n)

        @pl.when(live & (tm == tm_first))
        def _():
            # transposed_grouped_gemm.py:43: acc = hl.zeros([tk, tn], dtype=hl.float32)
            acc_ref[...] = jnp.zeros((512, 512), jnp.float32)

        @pl.when(live)
        def _():
            # transposed_grouped_gemm.py:45: acc = hl.dot(x[tm, tk].T, dy[tm, tn], acc=acc)
            tm_index = tm * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
            tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
            acc_ref[...] += jax.lax.dot_general(
                jnp.where(tm_mask, x_ref[...], 0.0),
                jnp.where(tm_mask, dy_ref[...], 0.0),
                (((0,), (0,)), ((), ())),
                preferred_element_type=jnp.float32,
            )

        @pl.when(live & (tm == tm_stop - 1))
        def _():
            # transposed_grouped_gemm.py:46: dw[g, tk, tn] = acc.to(dw.dtype)
            dw_ref[...] = acc_ref[...].astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(8, 4, 2048),
        in_specs=[
            pl.BlockSpec((512, 512), lambda tk, tn, n: (at(n)[1][1], tk)),
            pl.BlockSpec((512, 512), lambda tk, tn, n: (at(n)[1][1], tn)),
        ],
        out_specs=[pl.BlockSpec((None, 512, 512), lambda tk, tn, n: (at(n)[1][0], tk, tn))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.PARALLEL, pltpu.ARBITRARY),
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
        scratch_shapes=[pltpu.VMEM((512, 512), jnp.float32)],
        interpret=interpret,
    )(offsets, x, dy)
    return dw
