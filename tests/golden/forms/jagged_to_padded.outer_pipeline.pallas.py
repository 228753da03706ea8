"""jagged_to_padded for tpu:v6e, blocks t=1024."""

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


def jagged_to_padded_kernel(offsets, x, out, x_cut_ref, b_of, t_of, x_first_of, x_count_of):
    # b: column of the step table; parallel: each b writes its own rows of out
    # t: column of the step table, blocks of 1024; parallel: each t writes its own slices of out
    # Step table: one row for every (b, t), in the order of the loops.
    def add_t(b, t, n):
        b_of[n] = b
        t_of[n] = t
        x_first = jnp.clip(jnp.maximum(t * 1024, 0) + offsets[b], 0, 131071) // 16
        x_first_of[n] = x_first
        x_count = jnp.clip(
            (
                jnp.clip(
                    jnp.minimum(jnp.minimum(offsets[b + 1] - offsets[b], t * 1024 + 1024), 1024)
                    + offsets[b],
                    0,
                    131072,
                )
                + 7
            )
            // 8
            - x_first * 2,
            1,
            130,
        )
        x_count_of[n] = x_count
        return n + 1

    def add_b(b, n):
        return jax.lax.fori_loop(0, 1, lambda t, n: add_t(b, t, n), n)

    steps = jax.lax.fori_loop(0, 512, add_b, jnp.int32(0))

    def step(x_ref, out_ref):
        n = pl.program_id(0)
        b, t = b_of[n], t_of[n]
        before = jnp.maximum(n - 1, 0)

        @pl.when((n == 0) | (b_of[before] != b))
        def _():
            # first step at this block of out: rows of no range keep 0.0
            out_ref[...] = jnp.zeros((1024, 512), jnp.bfloat16)

        # jagged_to_padded.py:45: out[b, t, :] = x[begin + t.index, :]
        t_index = t * 1024 + jax.lax.broadcasted_iota(jnp.int32, (1024, 1), 0)
        t_mask = t_index < jnp.minimum(offsets[b + 1] - offsets[b], 1024)
        x_moved = rows_from(
            x_ref, x_cut_ref, jnp.clip(t * 1024 + offsets[b] - x_first_of[n] * 16, -1024, 16), 1024
        )
        out_ref[...] = jnp.where(t_mask, x_moved, out_ref[...])

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec(
                (pl.BoundedSlice(1040), 512),
                lambda n: (pl.ds(x_first_of[n] * 16, x_count_of[n] * 8), 0),
            ),
        ],
        out_specs=[pl.BlockSpec((None, 1024, 512), lambda n: (b_of[n], 0, 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(x, out)


def jagged_to_padded(x: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """out[b, l] = x[offsets[b] + l] for l < min(offsets[b + 1] - offsets[b], L), and else 0."""
    out = pl.pallas_call(
        jagged_to_padded_kernel,
        out_shape=jax.ShapeDtypeStruct((512, 1024, 512), jnp.bfloat16),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((4, 1552, 128), jnp.int32),
            pltpu.SMEM((512,), jnp.int32),
            pltpu.SMEM((512,), jnp.int32),
            pltpu.SMEM((512,), jnp.int32),
            pltpu.SMEM((512,), jnp.int32),
        ],
        interpret=interpret,
    )(offsets, x)
    return out
