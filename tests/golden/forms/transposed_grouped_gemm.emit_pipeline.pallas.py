"""transposed_grouped_gemm for tpu:v6e, blocks tk=512, tm=512, tn=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def transposed_grouped_gemm_kernel(offsets, x, dy, dw_ref, acc_ref):
    # g: grid dimension; parallel: each g writes its own rows of dw
    # tk: grid dimension, blocks of 512; parallel: each tk writes its own slices of dw
    # tn: grid dimension, blocks of 512; parallel: each tn writes its own slices of dw
    # tm: pipeline inside the step, blocks of 512; ordered: carries acc, a sum
    g = pl.program_id(0)
    tk = pl.program_id(1)
    tn = pl.program_id(2)
    # transposed_grouped_gemm.py:43: acc = hl.zeros([tk, tn], dtype=hl.float32)
    acc_ref[...] = jnp.zeros((512, 512), jnp.float32)
    # transposed_grouped_gemm.py:44: for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
    tm_begin = jnp.maximum(offsets[g], 0)
    tm_end = jnp.minimum(offsets[g + 1], 16384)
    tm_first = jax.lax.div(tm_begin, 512)
    tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 511, 512), tm_first)

    def each_tm(x_ref, dy_ref):
        tm = tm_first + pl.program_id(0)
        # transposed_grouped_gemm.py:45: acc = hl.dot(x[tm, tk].T, dy[tm, tn], acc=acc)
        tm_index = tm * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
        tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
        acc_ref[...] += jax.lax.dot_general(
            jnp.where(tm_mask, x_ref[...], 0.0),
            jnp.where(tm_mask, dy_ref[...], 0.0),
            (((0,), (0,)), ((), ())),
            preferred_element_type=jnp.float32,
        )

    pltpu.emit_pipeline(
        each_tm,
        grid=(tm_stop - tm_first,),
        in_specs=[
            pl.BlockSpec((512, 512), lambda tm: (tm_first + tm, tk)),
            pl.BlockSpec((512, 512), lambda tm: (tm_first + tm, tn)),
        ],
    )(x, dy)
    # transposed_grouped_gemm.py:46: dw[g, tk, tn] = acc.to(dw.dtype)
    dw_ref[...] = acc_ref[...].astype(jnp.bfloat16)


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
        grid=(64, 8, 4),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec((None, 512, 512), lambda g, tk, tn: (g, tk, tn)),
        scratch_shapes=[pltpu.VMEM((512, 512), jnp.float32)],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel"),
        ),
        interpret=interpret,
    )(offsets, x, dy)
    return dw
