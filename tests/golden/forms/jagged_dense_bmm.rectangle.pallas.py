"""jagged_dense_bmm for tpu:v6e, blocks tk=512, tm=128, tn=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_dense_bmm_kernel(offsets, x, w, y_in, y):
    # b: column of the step table; parallel: y rows of different b are disjoint because offsets is
    #     sorted
    # tm: column of the step table, blocks of 128; parallel: each tm writes its own rows of y
    # tk: one tile, blocks of 512; ordered: carries acc, a sum
    # tn: one tile, blocks of 512; parallel: each tn writes its own columns of y
    # Rectangle of steps (b, tm), 128 x 256; dead steps move no data.
    def at(n):
        b = jax.lax.div(n, 256)
        tm_step = jax.lax.rem(n, 256)
        tm_begin = jnp.maximum(offsets[b], 0)
        tm_end = jnp.minimum(offsets[b + 1], 32768)
        tm_first = jax.lax.div(tm_begin, 128)
        tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 127, 128), tm_first)
        tm_live = tm_step < tm_stop - tm_first
        tm = jnp.minimum(jnp.minimum(tm_first + tm_step, jnp.maximum(tm_stop - 1, tm_first)), 255)
        return tm_live, (b, tm)

    def step(x_ref, w_ref, y_in_ref, y_ref):
        n = pl.program_id(0)
        live, (b, tm) = at(n)
        _, before = at(jnp.maximum(n - 1, 0))

        @pl.when((n == 0) | (before[1] != tm))
        def _():
            # first step at this block of y: start from what the array holds
            y_ref[...] = y_in_ref[...]

        @pl.when(live)
        def _():
            # jagged_dense_bmm.py:30: acc = torch.zeros([tm, tn], dtype=torch.float32)
            acc = jnp.zeros((128, 512), jnp.float32)
            # jagged_dense_bmm.py:32: acc = torch.addmm(acc, x[tm, tk], w[b, tk, tn])
            acc = acc + jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)
            # jagged_dense_bmm.py:33: y[tm, tn] = acc.to(y.dtype)
            tm_index = tm * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
            tm_mask = (tm_index >= offsets[b]) & (tm_index < offsets[b + 1])
            y_ref[...] = jnp.where(tm_mask, acc.astype(jnp.bfloat16), y_ref[...])

    pltpu.emit_pipeline(
        step,
        grid=(32768,),
        in_specs=[
            pl.BlockSpec((128, 512), lambda n: (at(n)[1][1], 0)),
            pl.BlockSpec((None, 512, 512), lambda n: (at(n)[1][0], 0, 0)),
            pl.BlockSpec((128, 512), lambda n: (at(n)[1][1], 0)),
        ],
        out_specs=[pl.BlockSpec((128, 512), lambda n: (at(n)[1][1], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(x, w, y_in, y)


def jagged_dense_bmm(
    x: jax.Array,
    w: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """y[r] = x[r] @ w[b] for offsets[b] <= r < offsets[b + 1]; other rows are zero."""
    y_in = jnp.zeros((32768, 512), jnp.bfloat16)
    y = pl.pallas_call(
        jagged_dense_bmm_kernel,
        out_shape=jax.ShapeDtypeStruct((32768, 512), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        input_output_aliases={3: 0},
        interpret=interpret,
    )(offsets, x, w, y_in)
    return y
