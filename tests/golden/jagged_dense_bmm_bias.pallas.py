"""jagged_dense_bmm_bias for tpu:v6e, blocks tk=512, tm=512, tn=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_dense_bmm_bias_kernel(offsets, x, w, bias, y, b_of, tm_of):
    # b: column of the step table; parallel: y rows of different b are disjoint because offsets is
    #     sorted
    # tm: column of the step table, blocks of 512; parallel: each tm writes its own rows of y
    # tk: one tile, blocks of 512; ordered: carries acc, a sum
    # tn: one tile, blocks of 512; parallel: each tn writes its own columns of y
    # Step table: one row for every (b, tm), in the order of the loops.
    # A tm of no range gets one too, so that its outputs are defined;
    # every tm below `seen` has a row already.
    def add_tm(b, tm, n):
        b_of[n] = b
        tm_of[n] = tm
        return n + 1

    def add_b(b, state):
        n, seen = state
        tm_begin = jnp.maximum(offsets[b], 0)
        tm_end = jnp.minimum(offsets[b + 1], 32768)
        tm_first = jax.lax.div(tm_begin, 512)
        tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 511, 512), seen)
        tm_start = jnp.where((tm_end > tm_begin) & (tm_first < seen), seen - 1, seen)
        n = jax.lax.fori_loop(tm_start, tm_stop, lambda tm, n: add_tm(b, tm, n), n)
        return n, jnp.maximum(seen, tm_stop)

    steps, seen = jax.lax.fori_loop(0, 128, add_b, (jnp.int32(0), jnp.int32(0)))
    steps = jax.lax.fori_loop(seen, 64, lambda tm, n: add_tm(127, tm, n), steps)

    def step(x_ref, w_ref, bias_ref, y_ref):
        n = pl.program_id(0)
        b, tm = b_of[n], tm_of[n]
        before = jnp.maximum(n - 1, 0)

        @pl.when((n == 0) | (tm_of[before] != tm))
        def _():
            # first step at this block of y: rows of no range keep 0.0
            y_ref[...] = jnp.zeros((512, 512), jnp.bfloat16)

        # jagged_dense_bmm.py:45: acc = torch.zeros([tm, tn], dtype=torch.float32)
        acc = jnp.zeros((512, 512), jnp.float32)
        # jagged_dense_bmm.py:47: acc = torch.addmm(acc, x[tm, tk], w[b, tk, tn])
        acc = acc + jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)
        # jagged_dense_bmm.py:48: y[tm, tn] = (acc + bias[b, tn]).to(y.dtype)
        tm_index = tm * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
        tm_mask = (tm_index >= offsets[b]) & (tm_index < offsets[b + 1])
        b_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == jax.lax.rem(b, 16)
        bias_b = jnp.sum(jnp.where(b_row, bias_ref[...], 0.0), axis=0, keepdims=True)
        y_ref[...] = jnp.where(
            tm_mask, (acc + bias_b.astype(jnp.float32)).astype(jnp.bfloat16), y_ref[...]
        )

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec((512, 512), lambda n: (tm_of[n], 0), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec((None, 512, 512), lambda n: (b_of[n], 0, 0), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec(
                (16, 512),
                lambda n: (jax.lax.div(b_of[n], 16), 0),
                pipeline_mode=pl.Buffered(4),
            ),
        ],
        out_specs=[pl.BlockSpec((512, 512), lambda n: (tm_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(x, w, bias, y)


def jagged_dense_bmm_bias(
    x: jax.Array,
    w: jax.Array,
    bias: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """y[r] = x[r] @ w[b] + bias[b] for offsets[b] <= r < offsets[b + 1]; other rows are zero."""
    y = pl.pallas_call(
        jagged_dense_bmm_bias_kernel,
        out_shape=jax.ShapeDtypeStruct((32768, 512), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.SMEM((191,), jnp.int32), pltpu.SMEM((191,), jnp.int32)],
        interpret=interpret,
    )(offsets, x, w, bias)
    return y
