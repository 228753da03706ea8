"""moe for tpu:v6e, blocks td=2048, tn=1024, tn_1=1024, ts=128, tt=64."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def moe_1_kernel(offsets, x_picked, w, z, e_of, ts_of):
    # e: column of the step table; parallel: z rows of different e are disjoint because offsets is
    #     sorted
    # ts: column of the step table, blocks of 128; parallel: each ts writes its own rows of z
    # td: one tile, blocks of 2048; ordered: carries acc, a sum
    # tn: one tile, blocks of 1024; parallel: each tn writes its own columns of z
    # Step table: one row for every (e, ts), in the order of the loops.
    # A ts of no range gets one too, so that its outputs are defined;
    # every ts below `seen` has a row already.
    def add_ts(e, ts, n):
        e_of[n] = e
        ts_of[n] = ts
        return n + 1

    def add_e(e, state):
        n, seen = state
        ts_begin = jnp.maximum(offsets[e], 0)
        ts_end = jnp.minimum(offsets[e + 1], 16384)
        ts_first = jax.lax.div(ts_begin, 128)
        ts_stop = jnp.where(ts_end > ts_begin, jax.lax.div(ts_end + 127, 128), seen)
        ts_start = jnp.where((ts_end > ts_begin) & (ts_first < seen), seen - 1, seen)
        n = jax.lax.fori_loop(ts_start, ts_stop, lambda ts, n: add_ts(e, ts, n), n)
        return n, jnp.maximum(seen, ts_stop)

    steps, seen = jax.lax.fori_loop(0, 64, add_e, (jnp.int32(0), jnp.int32(0)))
    steps = jax.lax.fori_loop(seen, 128, lambda ts, n: add_ts(63, ts, n), steps)

    def step(x_picked_ref, w_ref, z_ref):
        n = pl.program_id(0)
        e, ts = e_of[n], ts_of[n]
        before = jnp.maximum(n - 1, 0)

        @pl.when((n == 0) | (ts_of[before] != ts))
        def _():
            # first step at this block of z: rows of no range keep 0.0
            z_ref[...] = jnp.zeros((128, 1024), jnp.float32)

        # moe.py:53: acc = torch.zeros([ts, tn], dtype=torch.float32)
        acc = jnp.zeros((128, 1024), jnp.float32)
        # moe.py:55: acc = torch.addmm(acc, x[token[ts], td], w[e, td, tn])
        x_rows = x_picked_ref[...]
        acc = acc + jnp.dot(x_rows, w_ref[...], preferred_element_type=jnp.float32)
        # moe.py:56: z[ts, tn] = acc
        ts_index = ts * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
        ts_mask = (ts_index >= offsets[e]) & (ts_index < offsets[e + 1])
        z_ref[...] = jnp.where(ts_mask, acc, z_ref[...])

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec((128, 2048), lambda n: (ts_of[n], 0), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec(
                (None, 2048, 1024),
                lambda n: (e_of[n], 0, 0),
                pipeline_mode=pl.Buffered(4),
            ),
        ],
        out_specs=[pl.BlockSpec((128, 1024), lambda n: (ts_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(x_picked, w, z)


def moe_2_kernel(z_picked, gate, y):
    # tt: grid dimension, blocks of 64; parallel: each tt writes its own rows of y
    # tn_1: one tile, blocks of 1024; parallel: each tn writes its own columns of y
    def step(z_picked_ref, gate_ref, z_picked_1_ref, z_picked_2_ref, z_picked_3_ref, y_ref):
        # moe.py:59: acc = torch.zeros([tt, tn], dtype=torch.float32)
        acc = jnp.zeros((64, 1024), jnp.float32)
        # moe.py:61: acc = acc + gate[tt, k].to(torch.float32)[:, None] * z[slot[tt, k], tn]
        z_rows = z_picked_ref[...]
        picked_row = jax.lax.broadcasted_iota(jnp.int32, (1, 4), 1) == 0
        gate_picked = jnp.sum(jnp.where(picked_row, gate_ref[...], 0.0), axis=1, keepdims=True)
        acc = acc + gate_picked.astype(jnp.float32) * z_rows
        z_rows = z_picked_1_ref[...]
        picked_row_1 = jax.lax.broadcasted_iota(jnp.int32, (1, 4), 1) == 1
        gate_picked_1 = jnp.sum(jnp.where(picked_row_1, gate_ref[...], 0.0), axis=1, keepdims=True)
        acc = acc + gate_picked_1.astype(jnp.float32) * z_rows
        z_rows = z_picked_2_ref[...]
        picked_row_2 = jax.lax.broadcasted_iota(jnp.int32, (1, 4), 1) == 2
        gate_picked_2 = jnp.sum(jnp.where(picked_row_2, gate_ref[...], 0.0), axis=1, keepdims=True)
        acc = acc + gate_picked_2.astype(jnp.float32) * z_rows
        z_rows = z_picked_3_ref[...]
        picked_row_3 = jax.lax.broadcasted_iota(jnp.int32, (1, 4), 1) == 3
        gate_picked_3 = jnp.sum(jnp.where(picked_row_3, gate_ref[...], 0.0), axis=1, keepdims=True)
        acc = acc + gate_picked_3.astype(jnp.float32) * z_rows
        # moe.py:62: y[tt, tn] = acc.to(y.dtype)
        y_ref[...] = acc.astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(64,),
        in_specs=[
            pl.BlockSpec((None, 64, 1024), lambda tt: (0, tt, 0), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec((64, 4), lambda tt: (tt, 0), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec((None, 64, 1024), lambda tt: (1, tt, 0), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec((None, 64, 1024), lambda tt: (2, tt, 0), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec((None, 64, 1024), lambda tt: (3, tt, 0), pipeline_mode=pl.Buffered(4)),
        ],
        out_specs=[pl.BlockSpec((64, 1024), lambda tt: (tt, 0))],
        dimension_semantics=(pltpu.PARALLEL,),
    )(z_picked, gate, z_picked, z_picked, z_picked, y)


def moe(
    x: jax.Array,
    w: jax.Array,
    token: jax.Array,
    slot: jax.Array,
    gate: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """y[t] = sum of gate[t, k] * x[t] @ w[expert of slot[t, k]] over k."""
    x_picked = jnp.take(x, token, axis=0, mode="clip")
    z = pl.pallas_call(
        moe_1_kernel,
        out_shape=jax.ShapeDtypeStruct((16384, 1024), jnp.float32),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.SMEM((191,), jnp.int32), pltpu.SMEM((191,), jnp.int32)],
        interpret=interpret,
    )(offsets, x_picked, w)
    z_picked = jnp.take(z, jnp.transpose(slot, (1, 0)), axis=0, mode="clip")
    y = pl.pallas_call(
        moe_2_kernel,
        out_shape=jax.ShapeDtypeStruct((4096, 1024), jnp.bfloat16),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        interpret=interpret,
    )(z_picked, gate)
    return y
