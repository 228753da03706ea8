"""embedding for tpu:v6e, blocks m=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def embedding_kernel(ids, table, y_ref, fetched_rows_ref, tiles_rows_ref, copies_ref):
    # m: grid dimension, blocks of 512; parallel: each m writes its own rows of y; a step has all
    #     rows of its tiles at once
    m = pl.program_id(0)

    # embedding.py:29: y[m, :] = table[ids[m], :]
    def place_of(first, slot):
        lane = jnp.minimum(first * 16 + slot, 511)
        row = jnp.clip(ids[m * 512 + lane], 0, 128255)
        return lane, row, jax.lax.div(row, 8) * 8

    def fetch_some(first, _):
        def tile_copy(slot):
            _, _, start = place_of(first, slot)
            source = table.at[pl.ds(start, 8), :]
            target = tiles_rows_ref.at[slot]
            return pltpu.make_async_copy(source, target, copies_ref)

        def start_copy(slot, _):
            tile_copy(slot).start()
            return 0

        jax.lax.fori_loop(0, 16, start_copy, 0)

        def wait_for_copy(slot, _):
            tile_copy(slot).wait()
            return 0

        jax.lax.fori_loop(0, 16, wait_for_copy, 0)

        def take_row(slot, _):
            lane, row, start = place_of(first, slot)
            chosen = jax.lax.broadcasted_iota(jnp.int32, (8, 1), 0) == row - start
            kept = jnp.where(chosen, tiles_rows_ref[slot].astype(jnp.float32), 0)
            fetched_rows_ref[pl.ds(lane, 1), :] = jnp.sum(kept, axis=0, keepdims=True)
            return 0

        jax.lax.fori_loop(0, 16, take_row, 0)
        return 0

    jax.lax.fori_loop(0, 32, fetch_some, 0)
    rows = fetched_rows_ref[...].astype(jnp.bfloat16)
    y_ref[...] = rows


def embedding(ids: jax.Array, table: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[r] = table[ids[r]]: ids [M] integers in 0 .. V - 1, table [V, D]; y [M, D]."""
    y = pl.pallas_call(
        embedding_kernel,
        out_shape=jax.ShapeDtypeStruct((8192, 4096), jnp.bfloat16),
        grid=(16,),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec((512, 4096), lambda m: (m, 0)),
        scratch_shapes=[
            pltpu.VMEM((512, 4096), jnp.float32),
            pltpu.VMEM((16, 8, 4096), jnp.bfloat16),
            pltpu.SemaphoreType.DMA,
        ],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
    )(ids, table)
    return y
