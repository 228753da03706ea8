"""padded_to_jagged for tpu:v6e, blocks t=512."""

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


def padded_to_jagged_kernel(offsets, d, y, d_cut_ref, b_of, t_of, d_first_of, d_count_of):
    # b: column of the step table; parallel: y rows of different b are disjoint because offsets is
    #     sorted
    # t: column of the step table, blocks of 512; parallel: each t writes its own rows of y
    # Step table: one row for every (b, t), in the order of the loops.
    # A t of no range gets one too, so that its outputs are defined;
    # every t below `seen` has a row already.
    def add_t(b, t, n):
        b_of[n] = b
        t_of[n] = t
        d_first = jnp.clip(jnp.maximum(offsets[b], t * 512) - offsets[b], 0, 1023) // 16
        d_first_of[n] = d_first
        d_count = jnp.clip(
            (
                jnp.clip(
                    jnp.minimum(jnp.minimum(offsets[b + 1], offsets[b] + 1024), t * 512 + 512)
                    - offsets[b],
                    0,
                    1024,
                )
                + 7
            )
            // 8
            - d_first * 2,
            1,
            66,
        )
        d_count_of[n] = d_count
        return n + 1

    def add_b(b, state):
        n, seen = state
        t_begin = jnp.maximum(offsets[b], 0)
        t_end = jnp.minimum(jnp.minimum(offsets[b + 1], offsets[b] + 1024), 131072)
        t_first = jax.lax.div(t_begin, 512)
        t_stop = jnp.where(t_end > t_begin, jax.lax.div(t_end + 511, 512), seen)
        t_start = jnp.where((t_end > t_begin) & (t_first < seen), seen - 1, seen)
        n = jax.lax.fori_loop(t_start, t_stop, lambda t, n: add_t(b, t, n), n)
        return n, jnp.maximum(seen, t_stop)

    steps, seen = jax.lax.fori_loop(0, 512, add_b, (jnp.int32(0), jnp.int32(0)))
    steps = jax.lax.fori_loop(seen, 256, lambda t, n: add_t(511, t, n), steps)

    def step(d_ref, y_ref):
        n = pl.program_id(0)
        b, t = b_of[n], t_of[n]
        before = jnp.maximum(n - 1, 0)

        @pl.when((n == 0) | (t_of[before] != t))
        def _():
            # first step at this block of y: rows of no range keep 0.0
            y_ref[...] = jnp.zeros((512, 512), jnp.bfloat16)

        # padded_to_jagged.py:45: y[t, :] = d[b, t.index - begin, :]
        t_index = t * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
        t_mask = (
            (t_index >= offsets[b]) & (t_index < jnp.minimum(offsets[b + 1], offsets[b] + 1024))
        )
        d_moved = rows_from(
            d_ref, d_cut_ref, jnp.clip(t * 512 - offsets[b] - d_first_of[n] * 16, -512, 16), 512
        )
        y_ref[...] = jnp.where(t_mask, d_moved, y_ref[...])

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec(
                (None, pl.BoundedSlice(528), 512),
                lambda n: (b_of[n], pl.ds(d_first_of[n] * 16, d_count_of[n] * 8), 0),
                pipeline_mode=pl.Buffered(4),
            ),
        ],
        out_specs=[pl.BlockSpec((512, 512), lambda n: (t_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(d, y)


def padded_to_jagged(d: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[r] = d[b, r - offsets[b]] for offsets[b] <= r < min(offsets[b + 1], offsets[b] + L)."""
    y = pl.pallas_call(
        padded_to_jagged_kernel,
        out_shape=jax.ShapeDtypeStruct((131072, 512), jnp.bfloat16),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((4, 784, 128), jnp.int32),
            pltpu.SMEM((767,), jnp.int32),
            pltpu.SMEM((767,), jnp.int32),
            pltpu.SMEM((767,), jnp.int32),
            pltpu.SMEM((767,), jnp.int32),
        ],
        interpret=interpret,
    )(offsets, d)
    return y
