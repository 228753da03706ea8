"""moe for tpu:v6e, blocks td=128, tn=128, tn_1=128, ts=128, tt=16."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def moe_1_kernel(token, offsets, w_ref, x_wide, z_ref, fetched_x_rows_ref, copies_ref):
    # e: grid dimension; parallel: z rows of different e are disjoint because offsets is sorted
    # td: loop inside the step, blocks of 128; ordered: carries acc, a sum
    # tn: loop inside the step, blocks of 128; parallel: each tn writes its own columns of z
    # ts: loop inside the step, blocks of 128; parallel: each ts writes its own rows of z
    e = pl.program_id(0)

    @pl.when(e == 0)
    def _():
        # first step at this block of z: rows of no range keep 0.0
        z_ref[...] = jnp.zeros((16384, 1024), jnp.float32)

    # moe.py:52: for ts, tn in hl.tile([offsets[e], 0], [offsets[e + 1], N], max_extent=[S, N]):
    ts_begin = jnp.maximum(offsets[e], 0)
    ts_end = jnp.minimum(offsets[e + 1], 16384)
    ts_first = jax.lax.div(ts_begin, 128)
    ts_stop = jnp.where(ts_end > ts_begin, jax.lax.div(ts_end + 127, 128), ts_first)
    def each_ts(ts, _):
        def each_tn(tn, _):
            # moe.py:53: acc = torch.zeros([ts, tn], dtype=torch.float32)
            acc = jnp.zeros((128, 128), jnp.float32)
            # moe.py:54: for td in hl.tile(D):
            acc_1 = acc
            def each_td(td, acc_1):
                # moe.py:55: acc = torch.addmm(acc, x[token[ts], td], w[e, td, tn])
                def row_copy(lane):
                    row = jnp.clip(token[ts * 128 + lane], 0, 4095)
                    source = x_wide.at[pl.ds(row, 1), pl.ds(td * 128, 128)]
                    target = fetched_x_rows_ref.at[pl.ds(lane, 1), :]
                    return pltpu.make_async_copy(source, target, copies_ref)

                def start_copy(lane, _):
                    row_copy(lane).start()
                    return 0

                jax.lax.fori_loop(0, 128, start_copy, 0)

                def wait_for_copy(lane, _):
                    row_copy(lane).wait()
                    return 0

                jax.lax.fori_loop(0, 128, wait_for_copy, 0)
                x_rows = fetched_x_rows_ref[...].astype(jnp.bfloat16)
                acc_2 = (
                    acc_1
                    + jnp.dot(
                        x_rows,
                        w_ref[pl.ds(td * 128, 128), pl.ds(tn * 128, 128)],
                        preferred_element_type=jnp.float32,
                    )
                )
                return acc_2

            acc_1 = jax.lax.fori_loop(0, 16, each_td, acc_1)
            # moe.py:56: z[ts, tn] = acc
            ts_index = ts * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
            ts_mask = (ts_index >= offsets[e]) & (ts_index < offsets[e + 1])
            z_ref[pl.ds(ts * 128, 128), pl.ds(tn * 128, 128)] = jnp.where(
                ts_mask, acc_1, z_ref[pl.ds(ts * 128, 128), pl.ds(tn * 128, 128)]
            )
            return 0

        jax.lax.fori_loop(0, 8, each_tn, 0)
        return 0

    jax.lax.fori_loop(ts_first, ts_stop, each_ts, 0)


def moe_2_kernel(
    slot_flat, gate_ref, z, y_ref, fetched_z_rows_ref, fetched_z_rows_ref_1, fetched_z_rows_ref_2,
    fetched_z_rows_ref_3, copies_ref,
):
    # tt: grid dimension, blocks of 16; parallel: each tt writes its own rows of y
    # tn_1: grid dimension, blocks of 128; parallel: each tn writes its own columns of y
    tt = pl.program_id(0)
    tn_1 = pl.program_id(1)
    # moe.py:59: acc = torch.zeros([tt, tn], dtype=torch.float32)
    acc = jnp.zeros((16, 128), jnp.float32)

    # moe.py:61: acc = acc + gate[tt, k].to(torch.float32)[:, None] * z[slot[tt, k], tn]
    def row_copy(lane):
        row = jnp.clip(slot_flat[(tt * 16 + lane) * 4], 0, 16383)
        source = z.at[pl.ds(row, 1), pl.ds(tn_1 * 128, 128)]
        target = fetched_z_rows_ref.at[pl.ds(lane, 1), :]
        return pltpu.make_async_copy(source, target, copies_ref)

    def start_copy(lane, _):
        row_copy(lane).start()
        return 0

    jax.lax.fori_loop(0, 16, start_copy, 0)

    def wait_for_copy(lane, _):
        row_copy(lane).wait()
        return 0

    jax.lax.fori_loop(0, 16, wait_for_copy, 0)
    z_rows = fetched_z_rows_ref[...]
    picked_row = jax.lax.broadcasted_iota(jnp.int32, (1, 4), 1) == 0
    gate_picked = jnp.sum(jnp.where(picked_row, gate_ref[...], 0.0), axis=1, keepdims=True)
    acc = acc + gate_picked.astype(jnp.float32) * z_rows

    def row_copy_1(lane):
        row = jnp.clip(slot_flat[(tt * 16 + lane) * 4 + 1], 0, 16383)
        source = z.at[pl.ds(row, 1), pl.ds(tn_1 * 128, 128)]
        target = fetched_z_rows_ref_1.at[pl.ds(lane, 1), :]
        return pltpu.make_async_copy(source, target, copies_ref)

    def start_copy_1(lane, _):
        row_copy_1(lane).start()
        return 0

    jax.lax.fori_loop(0, 16, start_copy_1, 0)

    def wait_for_copy_1(lane, _):
        row_copy_1(lane).wait()
        return 0

    jax.lax.fori_loop(0, 16, wait_for_copy_1, 0)
    z_rows = fetched_z_rows_ref_1[...]
    picked_row_1 = jax.lax.broadcasted_iota(jnp.int32, (1, 4), 1) == 1
    gate_picked_1 = jnp.sum(jnp.where(picked_row_1, gate_ref[...], 0.0), axis=1, keepdims=True)
    acc = acc + gate_picked_1.astype(jnp.float32) * z_rows

    def row_copy_2(lane):
        row = jnp.clip(slot_flat[(tt * 16 + lane) * 4 + 2], 0, 16383)
        source = z.at[pl.ds(row, 1), pl.ds(tn_1 * 128, 128)]
        target = fetched_z_rows_ref_2.at[pl.ds(lane, 1), :]
        return pltpu.make_async_copy(source, target, copies_ref)

    def start_copy_2(lane, _):
        row_copy_2(lane).start()
        return 0

    jax.lax.fori_loop(0, 16, start_copy_2, 0)

    def wait_for_copy_2(lane, _):
        row_copy_2(lane).wait()
        return 0

    jax.lax.fori_loop(0, 16, wait_for_copy_2, 0)
    z_rows = fetched_z_rows_ref_2[...]
    picked_row_2 = jax.lax.broadcasted_iota(jnp.int32, (1, 4), 1) == 2
    gate_picked_2 = jnp.sum(jnp.where(picked_row_2, gate_ref[...], 0.0), axis=1, keepdims=True)
    acc = acc + gate_picked_2.astype(jnp.float32) * z_rows

    def row_copy_3(lane):
        row = jnp.clip(slot_flat[(tt * 16 + lane) * 4 + 3], 0, 16383)
        source = z.at[pl.ds(row, 1), pl.ds(tn_1 * 128, 128)]
        target = fetched_z_rows_ref_3.at[pl.ds(lane, 1), :]
        return pltpu.make_async_copy(source, target, copies_ref)

    def start_copy_3(lane, _):
        row_copy_3(lane).start()
        return 0

    jax.lax.fori_loop(0, 16, start_copy_3, 0)

    def wait_for_copy_3(lane, _):
        row_copy_3(lane).wait()
        return 0

    jax.lax.fori_loop(0, 16, wait_for_copy_3, 0)
    z_rows = fetched_z_rows_ref_3[...]
    picked_row_3 = jax.lax.broadcasted_iota(jnp.int32, (1, 4), 1) == 3
    gate_picked_3 = jnp.sum(jnp.where(picked_row_3, gate_ref[...], 0.0), axis=1, keepdims=True)
    acc = acc + gate_picked_3.astype(jnp.float32) * z_rows
    # moe.py:62: y[tt, tn] = acc.to(y.dtype)
    y_ref[...] = acc.astype(jnp.bfloat16)


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
    slot_flat = slot.reshape((16384,))
    x_wide = x.astype(jnp.float32)
    z = pl.pallas_call(
        moe_1_kernel,
        out_shape=jax.ShapeDtypeStruct((16384, 1024), jnp.float32),
        grid=(64,),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec((None, 2048, 1024), lambda e: (e, 0, 0)),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec((16384, 1024), lambda e: (0, 0)),
        scratch_shapes=[pltpu.VMEM((128, 128), jnp.float32), pltpu.SemaphoreType.DMA],
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary",),
            vmem_limit_bytes=95420416,
        ),
        interpret=interpret,
    )(token, offsets, w, x_wide)
    y = pl.pallas_call(
        moe_2_kernel,
        out_shape=jax.ShapeDtypeStruct((4096, 1024), jnp.bfloat16),
        grid=(256, 8),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec((16, 4), lambda tt, tn_1: (tt, 0)),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec((16, 128), lambda tt, tn_1: (tt, tn_1)),
        scratch_shapes=[
            pltpu.VMEM((16, 128), jnp.float32),
            pltpu.VMEM((16, 128), jnp.float32),
            pltpu.VMEM((16, 128), jnp.float32),
            pltpu.VMEM((16, 128), jnp.float32),
            pltpu.SemaphoreType.DMA,
        ],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        interpret=interpret,
    )(slot_flat, gate, z)
    return y
