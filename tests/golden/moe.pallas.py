"""moe for tpu:v6e, blocks td=2048, tn=512, ts=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def moe_1_kernel(token, x_ref, rows_ref):
    # s: grid dimension; parallel: each s writes its own rows of rows
    s = pl.program_id(0)
    # moe.py:53: rows[s, :] = x[token[s], :]
    s_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == jax.lax.rem(s, 16)
    s_row_1 = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == token[s] % 16
    x_s = jnp.sum(jnp.where(s_row_1, x_ref[...], 0.0), axis=0, keepdims=True)
    rows_ref[...] = jnp.where(s_row, x_s, rows_ref[...])


def moe_2_kernel(offsets, rows, w, z, e_of, ts_of):
    # tn: grid dimension, blocks of 512; parallel: each tn writes its own columns of z
    # e: column of the step table; parallel: z rows of different e are disjoint because offsets is
    #     sorted
    # ts: column of the step table, blocks of 128; parallel: each ts writes its own rows of z
    # td: one tile, blocks of 2048; ordered: carries acc, a sum
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

    def step(rows_ref, w_ref, z_ref):
        n = pl.program_id(1)
        e, ts = e_of[n], ts_of[n]
        before = jnp.maximum(n - 1, 0)

        @pl.when((n == 0) | (ts_of[before] != ts))
        def _():
            # first step at this block of z: rows of no range keep 0.0
            z_ref[...] = jnp.zeros((128, 512), jnp.bfloat16)

        # moe.py:57: acc = torch.zeros([ts, tn], dtype=torch.float32)
        acc = jnp.zeros((128, 512), jnp.float32)
        # moe.py:59: acc = torch.addmm(acc, rows[ts, td], w[e, td, tn])
        acc = acc + jnp.dot(rows_ref[...], w_ref[...], preferred_element_type=jnp.float32)
        # moe.py:60: z[ts, tn] = acc.to(z.dtype)
        ts_index = ts * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
        ts_mask = (ts_index >= offsets[e]) & (ts_index < offsets[e + 1])
        z_ref[...] = jnp.where(ts_mask, acc.astype(jnp.bfloat16), z_ref[...])

    pltpu.emit_pipeline(
        step,
        grid=(2, steps),
        in_specs=[
            pl.BlockSpec((128, 2048), lambda tn, n: (ts_of[n], 0)),
            pl.BlockSpec((None, 2048, 512), lambda tn, n: (e_of[n], 0, tn)),
        ],
        out_specs=[pl.BlockSpec((128, 512), lambda tn, n: (ts_of[n], tn))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.ARBITRARY),
    )(rows, w, z)


def moe_3_kernel(slots, gates, z_ref, y_ref, acc_ref):
    # t: grid dimension; parallel: each t writes its own rows of y
    # k: grid dimension; ordered: carries acc, a sum
    t = pl.program_id(0)
    k = pl.program_id(1)

    @pl.when(k == 0)
    def _():
        # moe.py:63: acc = torch.zeros([N], dtype=torch.float32)
        acc_ref[...] = jnp.zeros((1, 1024), jnp.float32)

    # moe.py:65: acc = acc + gates[t * K + k] * z[slots[t * K + k], :].to(torch.float32)
    t_row = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == slots[t * 4 + k] % 16
    z_t = jnp.sum(jnp.where(t_row, z_ref[...], 0.0), axis=0, keepdims=True)
    acc_ref[...] += jnp.float32(gates[t * 4 + k]) * z_t.astype(jnp.float32)

    @pl.when(k == 3)
    def _():
        # moe.py:66: y[t, :] = acc.to(y.dtype)
        t_row_1 = jax.lax.broadcasted_iota(jnp.int32, (16, 1), 0) == jax.lax.rem(t, 16)
        y_ref[...] = jnp.where(t_row_1, acc_ref[...].astype(jnp.bfloat16), y_ref[...])


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
    slots = slot.reshape((16384,))
    gates = gate.reshape((16384,))
    rows = pl.pallas_call(
        moe_1_kernel,
        out_shape=jax.ShapeDtypeStruct((16384, 2048), jnp.bfloat16),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=1,
            grid=(16384,),
            in_specs=[
                pl.BlockSpec(
                    (16, 2048), lambda s, token: (jax.lax.div(jnp.clip(token[s], 0, 4095), 16), 0)
                ),
            ],
            out_specs=pl.BlockSpec((16, 2048), lambda s, token: (jax.lax.div(s, 16), 0)),
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary",)),
        interpret=interpret,
    )(token, x)
    z = pl.pallas_call(
        moe_2_kernel,
        out_shape=jax.ShapeDtypeStruct((16384, 1024), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.SMEM((191,), jnp.int32), pltpu.SMEM((191,), jnp.int32)],
        interpret=interpret,
    )(offsets, rows, w)
    y = pl.pallas_call(
        moe_3_kernel,
        out_shape=jax.ShapeDtypeStruct((4096, 1024), jnp.bfloat16),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2,
            grid=(4096, 4),
            in_specs=[
                pl.BlockSpec(
                    (16, 1024),
                    lambda t, k, slots, gates: (
                        jax.lax.div(jnp.clip(slots[t * 4 + k], 0, 16383), 16), 0
                    ),
                ),
            ],
            out_specs=pl.BlockSpec((16, 1024), lambda t, k, slots, gates: (jax.lax.div(t, 16), 0)),
            scratch_shapes=[pltpu.VMEM((1, 1024), jnp.float32)],
        ),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("arbitrary", "arbitrary")),
        interpret=interpret,
    )(slots, gates, z)
    return y
