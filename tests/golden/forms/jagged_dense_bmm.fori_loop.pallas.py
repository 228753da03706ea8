"""jagged_dense_bmm for tpu:v6e, blocks tk=512, tm=128, tn=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_dense_bmm_kernel(offsets, x_ref, w_ref, y_ref):
    # b: grid dimension; parallel: y rows of different b are disjoint because offsets is sorted
    # tk: one tile, blocks of 512; ordered: carries acc, a sum
    # tm: loop inside the step, blocks of 128; parallel: each tm writes its own rows of y
    # tn: one tile, blocks of 512; parallel: each tn writes its own columns of y
    b = pl.program_id(0)

    @pl.when(b == 0)
    def _():
        # first step at this block of y: rows of no range keep 0.0
        y_ref[...] = jnp.zeros((32768, 512), jnp.bfloat16)

    # jagged_dense_bmm.py:29: for tm, tn in hl.tile([offsets[b], 0], [offsets[b + 1], N], max_ext...
    tm_begin = jnp.maximum(offsets[b], 0)
    tm_end = jnp.minimum(offsets[b + 1], 32768)
    tm_first = jax.lax.div(tm_begin, 128)
    tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 127, 128), tm_first)
    def each_tm(tm, _):
        # jagged_dense_bmm.py:30: acc = torch.zeros([tm, tn], dtype=torch.float32)
        acc = jnp.zeros((128, 512), jnp.float32)
        # jagged_dense_bmm.py:32: acc = torch.addmm(acc, x[tm, tk], w[b, tk, tn])
        acc = (
            acc
            + jnp.dot(x_ref[pl.ds(tm * 128, 128)], w_ref[...], preferred_element_type=jnp.float32)
        )
        # jagged_dense_bmm.py:33: y[tm, tn] = acc.to(y.dtype)
        tm_index = tm * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
        tm_mask = (tm_index >= offsets[b]) & (tm_index < offsets[b + 1])
        y_ref[pl.ds(tm * 128, 128)] = jnp.where(
            tm_mask, acc.astype(jnp.bfloat16), y_ref[pl.ds(tm * 128, 128)]
        )
        return 0

    jax.lax.fori_loop(tm_first, tm_stop, each_tm, 0)


def jagged_dense_bmm(
    x: jax.Array,
    w: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """y[r] = x[r] @ w[b] for offsets[b] <= r < offsets[b + 1]; other rows are zero."""
    y = pl.pallas_call(
        jagged_dense_bmm_kernel,
        out_shape=jax.ShapeDtypeStruct((32768, 512), jnp.bfloat16),
        grid=(128,),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec((32768, 512), lambda b: (0, 0)),
            pl.BlockSpec((None, 512, 512), lambda b: (b, 0, 0)),
        ],
        out_specs=pl.BlockSpec((32768, 512), lambda b: (0, 0)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary",),
            vmem_limit_bytes=85983232,
        ),
        interpret=interpret,
    )(offsets, x, w)
    return y
