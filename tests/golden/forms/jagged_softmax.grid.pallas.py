"""jagged_softmax for tpu:v6e, blocks tf=128, tm=16, tm_1=16."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def jagged_softmax_kernel(offsets, x, y, x_ref, y_ref, x_copied, y_copied, flow):
    # tf: grid dimension, blocks of 128; parallel: each tf writes its own columns of y
    # g: grid dimension; parallel: y rows of different g are disjoint because offsets is sorted
    # tm: loop inside the step, blocks of 16; ordered: carries total, m
    # tm_1: loop inside the step, blocks of 16; parallel: each tm writes its own rows of y
    tf = pl.program_id(0)
    g = pl.program_id(1)

    # Pieces of 4096 rows are copied while steps compute.
    def x_piece(piece):
        return pltpu.make_async_copy(
            x.at[pl.ds(piece * 4096, 4096), pl.ds(tf * 128, 128)],
            x_ref.at[pl.ds(piece * 4096, 4096)],
            x_copied.at[piece],
        )

    def y_piece(piece):
        return pltpu.make_async_copy(
            y_ref.at[pl.ds(piece * 4096, 4096)],
            y.at[pl.ds(piece * 4096, 4096), pl.ds(tf * 128, 128)],
            y_copied,
        )

    @pl.when(g == 0)
    def _():
        flow[0], flow[1], flow[2] = 0, 0, 0

        @pl.loop(0, 32)
        def _(piece):
            x_piece(piece).start()

    @pl.when(g == 0)
    def _():
        # first step at this block of y: rows of no range keep 0.0
        y_ref[...] = jnp.zeros((131072, 128), jnp.bfloat16)

    @pl.when((offsets[g + 1] > flow[0] * 4096) | (offsets[g] < flow[1] * 4096))
    def _():
        reach = jax.lax.div(jnp.clip(offsets[g + 1], 0, 131072) + 4095, 4096)

        @pl.loop(flow[0], reach)
        def _(piece):
            x_piece(piece).wait()

        flow[0] = jnp.maximum(flow[0], reach)
        back = jax.lax.div(jnp.clip(offsets[g], 0, 131072), 4096)

        # ranges that do not rise: what had gone is waited for, and goes again
        @pl.when(back < flow[1])
        def _():
            @pl.loop(flow[2], flow[1])
            def _(piece):
                y_piece(piece).wait()

            flow[1], flow[2] = back, back

    # jagged_softmax.py:44: for tm in hl.tile(begin, end):
    tm_begin = jnp.maximum(offsets[g], 0)
    tm_end = jnp.minimum(offsets[g + 1], 131072)
    tm_first = jax.lax.div(tm_begin, 16) * 16
    tm_stop = jnp.where(tm_end > tm_begin, jax.lax.div(tm_end - tm_first + 15, 16), 0)
    total, m = jnp.zeros((1, 128), jnp.float32), jnp.full((1, 128), -jnp.inf, jnp.float32)
    def each_tm(tm, carried):
        total, m = carried
        # jagged_softmax.py:45: rows = x[tm, tf].to(hl.float32)
        tm_row = pl.multiple_of(jnp.minimum(tm_first + tm * 16, 131056), 16)
        tm_index = tm_row + jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0)
        tm_mask = (
            (tm_index >= jnp.maximum(offsets[g], tm_first + tm * 16)) & (tm_index < offsets[g + 1])
        )
        rows = jnp.where(tm_mask, x_ref[pl.ds(tm_row, 16)].astype(jnp.float32), -jnp.inf)
        # jagged_softmax.py:46: new = hl.maximum(m, rows.amax(0))
        new = jnp.maximum(m, jnp.max(rows, axis=0, keepdims=True))
        # jagged_softmax.py:47: total = total * hl.exp(m - new) + hl.exp(rows - new[None, :]).sum(0)
        total_1 = total * jnp.exp(m - new) + jnp.sum(jnp.exp(rows - new), axis=0, keepdims=True)
        return total_1, new

    total, m = jax.lax.fori_loop(0, tm_stop, each_tm, (total, m))
    # jagged_softmax.py:49: for tm in hl.tile(begin, end):
    tm_1_begin = jnp.maximum(offsets[g], 0)
    tm_1_end = jnp.minimum(offsets[g + 1], 131072)
    tm_1_first = jax.lax.div(tm_1_begin, 16) * 16
    tm_1_stop = jnp.where(tm_1_end > tm_1_begin, jax.lax.div(tm_1_end - tm_1_first + 15, 16), 0)
    def each_tm_1(tm_1, _):
        # jagged_softmax.py:50: rows = x[tm, tf].to(hl.float32)
        tm_1_row = pl.multiple_of(jnp.minimum(tm_1_first + tm_1 * 16, 131056), 16)
        rows = x_ref[pl.ds(tm_1_row, 16)].astype(jnp.float32)
        # jagged_softmax.py:51: y[tm, tf] = (hl.exp(rows - m[None, :]) / total[None, :]).to(y.dtype)
        tm_1_index = tm_1_row + jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0)
        tm_1_mask = (
            (tm_1_index >= jnp.maximum(offsets[g], tm_1_first + tm_1 * 16))
            & (tm_1_index < offsets[g + 1])
        )
        y_ref[pl.ds(tm_1_row, 16)] = jnp.where(
            tm_1_mask, (jnp.exp(rows - m) / total).astype(jnp.bfloat16), y_ref[pl.ds(tm_1_row, 16)]
        )
        return 0

    jax.lax.fori_loop(0, tm_1_stop, each_tm_1, 0)

    @pl.when(offsets[g + 1] >= (flow[1] + 1) * 4096)
    def _():
        reach = jax.lax.div(jnp.clip(offsets[g + 1], 0, 131072), 4096)

        @pl.loop(flow[1], reach)
        def _(piece):
            y_piece(piece).start()

        flow[1] = jnp.maximum(flow[1], reach)

    @pl.when(g == 511)
    def _():
        @pl.loop(flow[0], 32)
        def _(piece):
            x_piece(piece).wait()

        @pl.loop(flow[1], 32)
        def _(piece):
            y_piece(piece).start()

        @pl.loop(flow[2], 32)
        def _(piece):
            y_piece(piece).wait()


def jagged_softmax(x: jax.Array, offsets: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[r, f] = exp(x[r, f]) / sum of exp(x[s, f]) over the rows s of r's group."""
    y = pl.pallas_call(
        jagged_softmax_kernel,
        out_shape=jax.ShapeDtypeStruct((131072, 512), jnp.bfloat16),
        grid=(4, 512),
        in_specs=[pl.BlockSpec(memory_space=pltpu.SMEM), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((131072, 128), jnp.bfloat16),
            pltpu.VMEM((131072, 128), jnp.bfloat16),
            pltpu.SemaphoreType.DMA((32,)),
            pltpu.SemaphoreType.DMA,
            pltpu.SMEM((3,), jnp.int32),
        ],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"),
            vmem_limit_bytes=84934656,
        ),
        interpret=interpret,
    )(offsets, x)
    return y
