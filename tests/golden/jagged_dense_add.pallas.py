"""jagged_dense_add for tpu:v6e, blocks tm=256."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def rows_from(source, held, start, rows: int):
    """`rows` rows of a block from row `start` on, which may be any one, and lie outside of it.

    What those hold that the block does not have is anything.  All go through `held`, of which a row
    is 32 bits of 128 columns, and any one can be the first that is read.
    """
    each = 4 // source.dtype.itemsize  # rows in 32 bits
    far = start + rows  # `rows` rows lie before those of the block
    found = []
    for part in range(held.shape[0]):
        columns = slice(128 * part, min(128 * part + 128, source.shape[1]))
        width = columns.stop - columns.start
        block = pltpu.bitcast(source[:, columns], jnp.int32)
        held[part, rows // each : (rows + source.shape[0]) // each, :width] = block
    for part in range(held.shape[0]):
        width = min(128, source.shape[1] - 128 * part)
        words = held[part, pl.ds(jax.lax.div(far, each), rows // each), :width]
        if each > 1:
            bits = jnp.full_like(words, jax.lax.rem(far, each) * (32 // each))
            after = held[part, pl.ds(jax.lax.div(far, each) + 1, rows // each), :width]
            after = jax.lax.shift_left(after, 32 - bits)
            after |= jax.lax.shift_right_logical(words, bits)
            words = jnp.where(bits == 0, words, after)
        found.append(pltpu.bitcast(words, source.dtype))
    return jnp.concatenate(found, 1) if len(found) > 1 else found[0]


def jagged_dense_add_kernel(
    offsets, x, dense, y, dense_cut_ref, g_of, tm_of, dense_first_of, dense_count_of,
):
    # g: column of the step table; parallel: y rows of different g are disjoint because offsets is
    #     sorted
    # tm: column of the step table, blocks of 256; parallel: each tm writes its own rows of y
    # Step table: one row for every (g, tm), in the order of the loops.
    # A tm of no range gets one too, so that its outputs are defined;
    # every tm below `seen` has a row already.
    def add_tm(g, tm, n):
        g_of[n] = g
        tm_of[n] = tm
        dense_first = jnp.clip(jnp.maximum(offsets[g], tm * 256) - offsets[g], 0, 1023) // 16
        dense_first_of[n] = dense_first
        dense_count = jnp.clip(
            (jnp.clip(jnp.minimum(offsets[g + 1], tm * 256 + 256) - offsets[g], 0, 1024) + 7) // 8
            - dense_first * 2,
            1,
            34,
        )
        dense_count_of[n] = dense_count
        return n + 1

    def add_g(g, state):
        n, seen = state
        tm_begin = jnp.maximum(offsets[g], 0)
        tm_end = jnp.minimum(offsets[g + 1], 131072)
        tm_first = jax.lax.div(tm_begin, 256)
        tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end + 255, 256), seen)
        tm_start = jnp.where((tm_end > tm_begin) & (tm_first < seen), seen - 1, seen)
        n = jax.lax.fori_loop(tm_start, tm_stop, lambda tm, n: add_tm(g, tm, n), n)
        return n, jnp.maximum(seen, tm_stop)

    steps, seen = jax.lax.fori_loop(0, 512, add_g, (jnp.int32(0), jnp.int32(0)))
    steps = jax.lax.fori_loop(seen, 512, lambda tm, n: add_tm(511, tm, n), steps)

    def step(x_ref, dense_ref, y_ref):
        n = pl.program_id(0)
        g, tm = g_of[n], tm_of[n]
        before = jnp.maximum(n - 1, 0)

        @pl.when((n == 0) | (tm_of[before] != tm))
        def _():
            # first step at this block of y: rows of no range keep 0.0
            y_ref[...] = jnp.zeros((256, 512), jnp.bfloat16)

        # jagged_dense_add.py:45: begin, end = offsets[g], offsets[g + 1]
        begin = offsets[g]
        # jagged_dense_add.py:48: y[tm, :] = x[tm, :] + hl.load(dense, [g, place, slice(None)], m...
        tm_index = tm * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
        dense_moved = rows_from(
            dense_ref,
            dense_cut_ref,
            jnp.clip(tm * 256 - offsets[g] - dense_first_of[n] * 16, -256, 16),
            256,
        )
        y_ref[...] = jnp.where(
            tm_mask, x_ref[...] + jnp.where(tm_index - begin < 1024, dense_moved, 0.0), y_ref[...]
        )

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec((256, 512), lambda n: (tm_of[n], 0), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec(
                (None, pl.BoundedSlice(272), 512),
                lambda n: (g_of[n], pl.ds(dense_first_of[n] * 16, dense_count_of[n] * 8), 0),
                pipeline_mode=pl.Buffered(4),
            ),
        ],
        out_specs=[pl.BlockSpec((256, 512), lambda n: (tm_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(x, dense, y)


def jagged_dense_add(
    x: jax.Array,
    dense: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """y[r] = x[r] + dense[g, r - offsets[g]] for offsets[g] <= r < offsets[g + 1]."""
    y = pl.pallas_call(
        jagged_dense_add_kernel,
        out_shape=jax.ShapeDtypeStruct((131072, 512), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((4, 400, 128), jnp.int32),
            pltpu.SMEM((1023,), jnp.int32),
            pltpu.SMEM((1023,), jnp.int32),
            pltpu.SMEM((1023,), jnp.int32),
            pltpu.SMEM((1023,), jnp.int32),
        ],
        interpret=interpret,
    )(offsets, x, dense)
    return y
