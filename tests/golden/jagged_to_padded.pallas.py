"""jagged_to_padded for tpu:v6e, blocks b=4, t=2048."""

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


def move_rows(source, target, held, by, first, stop, some: int) -> None:
    """target[r] = source[r + by] for first <= r < stop; no other row of it changes.

    `some` rows are moved at a time.  A block is read from whole register tiles on: they go to
    `held`, of which a row is 32 bits of 128 columns, and any one can be the first that is read.
    """
    each = 4 // source.dtype.itemsize  # rows in 32 bits
    tile, near = 8 * each, min(some + 8 * each, source.shape[0])
    begin = jax.lax.div(first, tile)

    def move_some(n, _):
        row = tile * jnp.minimum(begin + n * (some // tile), (target.shape[0] - some) // tile)
        there = jnp.maximum(row + by, 0)
        there = tile * jnp.minimum(jax.lax.div(there, tile), (source.shape[0] - near) // tile)
        far = jnp.clip(row + by - there + some, 0, some + near)  # `some` rows lie before those
        index = row + jax.lax.broadcasted_iota(jnp.int32, (some, 1), 0)
        mask = (index >= first) & (index < stop)
        for part in range(held.shape[0]):
            columns = slice(128 * part, min(128 * part + 128, target.shape[1]))
            width = columns.stop - columns.start
            rows = pltpu.bitcast(source[pl.ds(there, near), columns], jnp.int32)
            held[part, some // each : (some + near) // each, :width] = rows
            rows = held[part, pl.ds(jax.lax.div(far, each), some // each), :width]
            if each > 1:
                bits = jnp.full_like(rows, jax.lax.rem(far, each) * (32 // each))
                after = held[part, pl.ds(jax.lax.div(far, each) + 1, some // each), :width]
                after = jax.lax.shift_left(after, 32 - bits)
                after |= jax.lax.shift_right_logical(rows, bits)
                rows = jnp.where(bits == 0, rows, after)
            rows = pltpu.bitcast(rows, target.dtype)
            place = pl.ds(row, some), columns
            target[place] = jnp.where(mask, rows, target[place])
        return 0

    count = jax.lax.div(stop - begin * tile + some - 1, some)
    move_some(0, 0)  # most groups are short: no loop for those
    jax.lax.fori_loop(1, count, move_some, 0)


def jagged_to_padded_kernel(
    offsets_begin, offsets_end, offsets_spans, x, out, out_moved_ref, b_of, t_of,
):
    # b: column of the step table, blocks of 4; parallel: each b writes its own rows of out; a step
    #     moves the rows of all in its block
    # t: column of the step table, blocks of 2048; parallel: each t writes its own slices of out
    # Step table: one row for every (b, t), in the order of the loops.
    def add_t(b, t, n):
        b_of[n] = b
        t_of[n] = t
        return n + 1

    def add_b(b, n):
        t_begin = jnp.maximum(offsets_spans[b], 0)
        t_end = jnp.minimum(offsets_spans[b + 128], 131072)
        t_first = jax.lax.div(t_begin, 2048)
        t_first = jnp.minimum(t_first, 63)
        t_stop = jnp.maximum(
            jnp.where(t_end > t_begin, jax.lax.div(t_end + 2047, 2048), t_first), t_first + 1
        )
        return jax.lax.fori_loop(t_first, t_stop, lambda t, n: add_t(b, t, n), n)

    steps = jax.lax.fori_loop(0, 128, add_b, jnp.int32(0))

    def step(x_ref, out_ref):
        n = pl.program_id(0)
        b, t = b_of[n], t_of[n]
        before = jnp.maximum(n - 1, 0)

        @pl.when((n == 0) | (b_of[before] != b))
        def _():
            # first step at this block of out: rows of no range keep 0.0
            out_ref[...] = jnp.zeros((4, 1024, 512), jnp.bfloat16)

        @pl.when(
            jnp.maximum(offsets_spans[b], t * 2048)
            < jnp.minimum(offsets_spans[b + 128], t * 2048 + 2048),
        )
        def _():
            # jagged_to_padded.py:45: out[b, t, :] = x[begin + t.index, :]
            def move_group(lane, _):
                begin = offsets_begin[b * 4 + lane]
                first = jnp.maximum(begin, t * 2048)
                stop = jnp.minimum(
                    jnp.minimum(offsets_end[b * 4 + lane], begin + 1024), t * 2048 + 2048
                )

                @pl.when(first < stop)
                def move():
                    move_rows(
                        x_ref,
                        out_ref.at[lane],
                        out_moved_ref,
                        begin - t * 2048,
                        first - begin,
                        stop - begin,
                        64,
                    )

                return 0

            jax.lax.fori_loop(0, 4, move_group, 0)

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec(
                (2048, 512),
                lambda n: (t_of[n], 0),
                pipeline_mode=pl.Buffered(2, use_lookahead=True),
            ),
        ],
        out_specs=[pl.BlockSpec((4, 1024, 512), lambda n: (b_of[n], 0, 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(x, out)


def jagged_to_padded(x: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """out[b, l] = x[offsets[b] + l] for l < min(offsets[b + 1] - offsets[b], L), and else 0."""
    offsets_begin = offsets[0:512]
    offsets_end = offsets[1:513]
    offsets_spans = spans_of(offsets, 4)
    out = pl.pallas_call(
        jagged_to_padded_kernel,
        out_shape=jax.ShapeDtypeStruct((512, 1024, 512), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((4, 112, 128), jnp.int32),
            pltpu.SMEM((8192,), jnp.int32),
            pltpu.SMEM((8192,), jnp.int32),
        ],
        interpret=interpret,
    )(offsets_begin, offsets_end, offsets_spans, x)
    return out
