"""jagged_sum for tpu:v6e, blocks g=128, tf=512, tm=2048."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def spans_of(offsets: jax.Array, size: int) -> jax.Array:
    """Where blocks of `size` ranges [offsets[g], offsets[g + 1]) begin, then where they end.

    Of a block without rows, where its rows would be: its step stays there.  Few blocks look at all
    ranges, each at its own: to lay them out anew takes longer.
    """
    begin, end = offsets[:-1], offsets[1:]
    count, most = len(begin), jnp.iinfo(begin.dtype).max
    live, own = end > begin, jnp.arange(-(-count // size))[:, None] == jnp.arange(count) // size

    def each(values: jax.Array, other: int) -> jax.Array:
        if count <= 128 * size:
            return jnp.where(own, values, other)
        return jnp.pad(values, (0, -count % size), constant_values=other).reshape(-1, size)

    first = each(jnp.where(live, begin, most), most).min(axis=1)
    stop = each(jnp.where(live, end, 0), 0).max(axis=1)
    first = jnp.where(first < stop, first, each(begin, most).min(axis=1))
    return jnp.concatenate([first, stop])


def group_sums(member: jax.Array, rows: jax.Array) -> jax.Array:
    """The sums of the rows of groups, by a product: member[g, r] says whether row r is of group g.

    0 * NaN is NaN: what is not finite is left out then, and put back where it belongs.
    """
    member = member.astype(jnp.bfloat16)

    def product(values: jax.Array) -> jax.Array:
        return jnp.dot(member, values.astype(jnp.bfloat16), preferred_element_type=jnp.float32)

    def upper(values: jax.Array) -> jax.Array:  # the part of float32 that bfloat16 holds
        bits = jax.lax.bitcast_convert_type(values, jnp.int32) & -65536
        return jax.lax.bitcast_convert_type(bits, jnp.float32)

    def exact(values: jax.Array) -> jax.Array:
        if values.dtype == jnp.bfloat16:
            return product(values)
        high = upper(values)
        middle = upper(values - high)
        return product(values - high - middle) + product(middle) + product(high)

    def apart() -> jax.Array:
        values = rows.astype(jnp.float32)
        up, down = (product(~over) > 0.0 for over in (values < jnp.inf, values > -jnp.inf))
        finite = jnp.where(jnp.abs(values) < jnp.inf, values, 0.0).astype(rows.dtype)
        return exact(finite) + jnp.where(up, jnp.inf, 0.0) - jnp.where(down, jnp.inf, 0.0)

    sums = exact(rows)
    return jax.lax.cond(jnp.isnan(jnp.sum(sums * 0.0)), apart, lambda: sums)


def jagged_sum_kernel(
    offsets_spans, offsets_begin_row, offsets_end_row, x, y, acc_ref, g_of, tm_of,
):
    # g: column of the step table, blocks of 128; parallel: each g writes its own rows of y; a step
    #     has the rows of all in its block
    # tm: column of the step table, blocks of 2048; ordered: carries acc, a sum
    # tf: one tile, blocks of 512; parallel: each tf writes its own columns of y
    # Step table: one row for every (g, tm), in the order of the loops.
    def add_tm(g, tm, n):
        g_of[n] = g
        tm_of[n] = tm
        return n + 1

    def add_g(g, n):
        tm_begin = jnp.maximum(offsets_spans[g], 0)
        tm_end = jnp.minimum(offsets_spans[g + 4], 131072)
        tm_first = jax.lax.div(tm_begin, 2048)
        tm_first = jnp.minimum(tm_first, 63)
        tm_stop = jnp.maximum(
            jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 2047, 2048), tm_first), tm_first + 1
        )
        return jax.lax.fori_loop(tm_first, tm_stop, lambda tm, n: add_tm(g, tm, n), n)

    steps = jax.lax.fori_loop(0, 4, add_g, jnp.int32(0))

    def step(offsets_begin_ref, offsets_end_ref, x_ref, y_ref):
        n = pl.program_id(0)
        g, tm = g_of[n], tm_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (g_of[before] != g))
        def _():
            acc_ref[...] = jnp.broadcast_to(jnp.zeros((1, 512), jnp.float32), (128, 512))

        # jagged_sum.py:34: acc += x[tm, tf].to(total).sum(0)
        tm_index = tm * 2048 + jax.lax.broadcasted_iota(jnp.int32, (1, 2048), 1)
        tm_index_1 = tm * 2048 + jax.lax.broadcasted_iota(jnp.int32, (2048, 1), 0)
        tm_mask = (tm_index_1 >= offsets_spans[g]) & (tm_index_1 < offsets_spans[g + 4])
        acc_ref[...] += group_sums(
            (tm_index >= offsets_begin_ref[...].T) & (tm_index < offsets_end_ref[...].T),
            jnp.where(tm_mask, x_ref[...], 0.0),
        )

        @pl.when((n == steps - 1) | (g_of[after] != g))
        def _():
            # jagged_sum.py:35: y[g, tf] = acc.to(y.dtype)
            y_ref[...] = acc_ref[...].astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec((1, 128), lambda n: (0, g_of[n]), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec((1, 128), lambda n: (0, g_of[n]), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec((2048, 512), lambda n: (tm_of[n], 0), pipeline_mode=pl.Buffered(4)),
        ],
        out_specs=[pl.BlockSpec((128, 512), lambda n: (g_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(offsets_begin_row, offsets_end_row, x, y)


def jagged_sum(x: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[g] = the sum of x[offsets[g] : offsets[g + 1]]."""
    offsets_begin = offsets[0:512]
    offsets_end = offsets[1:513]
    offsets_spans = spans_of(offsets, 128)
    offsets_begin_row = offsets_begin.reshape((1, 512))
    offsets_end_row = offsets_end.reshape((1, 512))
    y = pl.pallas_call(
        jagged_sum_kernel,
        out_shape=jax.ShapeDtypeStruct((512, 512), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((128, 512), jnp.float32),
            pltpu.SMEM((256,), jnp.int32),
            pltpu.SMEM((256,), jnp.int32),
        ],
        interpret=interpret,
    )(offsets_spans, offsets_begin_row, offsets_end_row, x)
    return y
