"""transposed_grouped_gemm for tpu:v6e, blocks tk=512, tm=256, tn=1024."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def transposed_grouped_gemm_kernel(offsets, x_ref, dy_ref, dw_ref):
    # tn: grid dimension, blocks of 1024; parallel: each tn writes its own slices of dw
    # tk: grid dimension, blocks of 512; parallel: each tk writes its own slices of dw
    # g: grid dimension; parallel: each g writes its own rows of dw
    # tm: loop inside the step, blocks of 256; ordered: carries acc, a sum
    g = pl.program_id(2)
    # transposed_grouped_gemm.py:43: acc = hl.zeros([tk, tn], dtype=hl.float32)
    acc = jnp.zeros((512, 1024), jnp.float32)
    # transposed_grouped_gemm.py:44: for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
    tm_begin = jnp.maximum(offsets[g], 0)
    tm_end = jnp.minimum(offsets[g + 1], 16384)
    tm_first = jax.lax.div(tm_begin, 256)
    tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 255, 256), tm_first)
    acc_1 = acc
    def each_tm(tm, acc_1):
        # transposed_grouped_gemm.py:45: acc = hl.dot(x[tm, tk].T, dy[tm, tn], acc=acc)
        tm_index = tm * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
        acc_2 = (
            acc_1
            + jax.lax.dot_general(
                jnp.where(tm_mask, x_ref[pl.ds(tm * 256, 256)], 0.0),
                jnp.where(tm_mask, dy_ref[pl.ds(tm * 256, 256)], 0.0),
                (((0,), (0,)), ((), ())),
                preferred_element_type=jnp.float32,
            )
        )
        return acc_2

    acc_1 = jax.lax.fori_loop(tm_first, tm_stop, each_tm, acc_1)
    # transposed_grouped_gemm.py:46: dw[g, tk, tn] = acc.to(dw.dtype)
    dw_ref[...] = acc_1.astype(jnp.bfloat16)


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
        grid=(2, 8, 64),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec((16384, 512), lambda tn, tk, g: (0, tk)),
            pl.BlockSpec((16384, 1024), lambda tn, tk, g: (0, tn)),
        ],
        out_specs=pl.BlockSpec((None, 512, 1024), lambda tn, tk, g: (g, tk, tn)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel"),
            vmem_limit_bytes=132120576,
        ),
        interpret=interpret,
    )(offsets, x, dy)
    return dw
