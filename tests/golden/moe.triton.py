"""moe for cuda:sm90, blocks td=64, tn=128, tn_1=512, ts=128, tt=8."""

import torch
import triton
import triton.language as tl


@triton.jit
def moe_1_kernel(x_ptr, w_ptr, token_ptr, offsets_ptr, z_ptr):
    groups = tl.arange(0, 64)
    pid = tl.program_id(0)
    # moe.py:50: z = torch.zeros([S, N], dtype=torch.float32)
    first = tl.load(offsets_ptr)
    last = tl.load(offsets_ptr + 64)
    # row is parallel: each row writes its own rows of z
    for row_start in tl.range(pid * 16, 16384, 24576):
        row_at = row_start + tl.arange(0, 16)
        outside = (row_start < first) | (row_start + 16 > last)
        ranges = tl.where(outside, 64, 0)
        # group is ordered: carries seen, a maximum
        seen = tl.zeros([16], tl.int32)
        for group_start in tl.range(0, ranges, 32):
            group_at = group_start + tl.arange(0, 32)
            offsets_tile_2 = tl.load(offsets_ptr + group_at)
            offsets_tile_3 = tl.load(offsets_ptr + group_at + 1)
            seen = tl.maximum(
                seen,
                tl.max(
                    (
                        (offsets_tile_2[None, :] <= row_at[:, None])
                        & (row_at[:, None] < offsets_tile_3[None, :])
                    ).to(tl.int32),
                    axis=1,
                ),
            )
        columns = tl.where(outside, 1024, 0)
        # column is parallel: each column writes its own columns of z
        for column_start in tl.range(0, columns, 64):
            column_at = column_start + tl.arange(0, 64)
            tl.store(
                z_ptr + row_at[:, None] * 1024 + column_at[None, :],
                tl.zeros([16, 64], tl.float32),
                mask=(seen == 0)[:, None],
            )
    # moe.py:52: for ts, tn in hl.tile([offsets[e], 0], [offsets[e + 1], N], max_extent=[S, N]):
    offsets_tile = tl.load(offsets_ptr + groups)
    offsets_tile_1 = tl.load(offsets_ptr + groups + 1)
    ts_begins = tl.maximum(offsets_tile, 0)
    ts_ends = tl.minimum(offsets_tile_1, 16384)
    tile_counts = (tl.maximum(ts_ends, ts_begins) - ts_begins + 127) // 128
    tile_ends = tl.cumsum(tile_counts, axis=0)
    item_count = tl.sum(tile_counts, axis=0)
    for step in tl.range(pid, item_count * 8, 1536):
        item = step // 8
        before = tile_ends <= item
        e = tl.sum(before.to(tl.int32), axis=0)
        ts_id = item - tl.sum(tl.where(before, tile_counts, 0), axis=0)
        # moe.py:51: for e in hl.grid(E):
        # e is parallel: z rows of different e are disjoint because offsets is sorted
        # moe.py:52: for ts, tn in hl.tile([offsets[e], 0], [offsets[e + 1], N], max_extent=[S, N]):
        # ts is parallel: each ts writes its own rows of z
        offsets_value = tl.load(offsets_ptr + e)
        ts_begin = tl.maximum(offsets_value, 0)
        offsets_value_1 = tl.load(offsets_ptr + e + 1)
        ts_end = tl.minimum(offsets_value_1, 16384)
        ts_start = ts_begin + ts_id * 128
        ts_at = ts_start + tl.arange(0, 128)
        ts_in = ts_at < ts_end
        # tn is parallel: each tn writes its own columns of z
        tn_start = step % 8 * 128
        tn_at = tn_start + tl.arange(0, 128)
        # moe.py:53: acc = torch.zeros([ts, tn], dtype=torch.float32)
        acc = tl.zeros([128, 128], tl.float32)
        # moe.py:55: acc = torch.addmm(acc, x[token[ts], td], w[e, td, tn])
        token_tile = tl.load(token_ptr + ts_at, mask=ts_in, other=0)
        # moe.py:54: for td in hl.tile(D):
        # td is ordered: carries acc, a sum
        for td_start in tl.range(0, 2048, 64, num_stages=4):
            td_at = td_start + tl.arange(0, 64)
            # moe.py:55: acc = torch.addmm(acc, x[token[ts], td], w[e, td, tn])
            x_rows = tl.load(
                x_ptr + token_tile[:, None] * 2048 + td_at[None, :],
                mask=(ts_in & (token_tile >= 0) & (token_tile < 4096))[:, None],
                other=0.0,
            )
            w_tile = tl.load(w_ptr + e * 2097152 + td_at[:, None] * 1024 + tn_at[None, :])
            acc = tl.dot(x_rows, w_tile, acc)
        # moe.py:56: z[ts, tn] = acc
        tl.store(z_ptr + ts_at[:, None] * 1024 + tn_at[None, :], acc, mask=ts_in[:, None])


@triton.jit
def moe_2_kernel(slot_ptr, gate_ptr, z_ptr, y_ptr):
    pid = tl.program_id(0)
    band = pid // 16 * 8
    place = pid % 16
    # moe.py:58: for tt, tn in hl.tile([T, N]):
    # tt is parallel: each tt writes its own rows of y
    tt_start = (band + place % 8) * 8
    tt_at = tt_start + tl.arange(0, 8)
    # tn is parallel: each tn writes its own columns of y
    tn_1_start = place // 8 * 512
    tn_1_at = tn_1_start + tl.arange(0, 512)
    # moe.py:59: acc = torch.zeros([tt, tn], dtype=torch.float32)
    acc = tl.zeros([8, 512], tl.float32)
    # moe.py:61: acc = acc + gate[tt, k].to(torch.float32)[:, None] * z[slot[tt, k], tn]
    slot_tile = tl.load(slot_ptr + tt_at * 4)
    z_rows = tl.load(
        z_ptr + slot_tile[:, None] * 1024 + tn_1_at[None, :],
        mask=((slot_tile >= 0) & (slot_tile < 16384))[:, None],
        other=0.0,
    )
    gate_tile = tl.load(gate_ptr + tt_at * 4)
    acc_1 = acc + gate_tile.to(tl.float32)[:, None] * z_rows
    slot_tile_1 = tl.load(slot_ptr + tt_at * 4 + 1)
    z_rows_1 = tl.load(
        z_ptr + slot_tile_1[:, None] * 1024 + tn_1_at[None, :],
        mask=((slot_tile_1 >= 0) & (slot_tile_1 < 16384))[:, None],
        other=0.0,
    )
    gate_tile_1 = tl.load(gate_ptr + tt_at * 4 + 1)
    acc_2 = acc_1 + gate_tile_1.to(tl.float32)[:, None] * z_rows_1
    slot_tile_2 = tl.load(slot_ptr + tt_at * 4 + 2)
    z_rows_2 = tl.load(
        z_ptr + slot_tile_2[:, None] * 1024 + tn_1_at[None, :],
        mask=((slot_tile_2 >= 0) & (slot_tile_2 < 16384))[:, None],
        other=0.0,
    )
    gate_tile_2 = tl.load(gate_ptr + tt_at * 4 + 2)
    acc_3 = acc_2 + gate_tile_2.to(tl.float32)[:, None] * z_rows_2
    slot_tile_3 = tl.load(slot_ptr + tt_at * 4 + 3)
    z_rows_3 = tl.load(
        z_ptr + slot_tile_3[:, None] * 1024 + tn_1_at[None, :],
        mask=((slot_tile_3 >= 0) & (slot_tile_3 < 16384))[:, None],
        other=0.0,
    )
    gate_tile_3 = tl.load(gate_ptr + tt_at * 4 + 3)
    acc_4 = acc_3 + gate_tile_3.to(tl.float32)[:, None] * z_rows_3
    # moe.py:62: y[tt, tn] = acc.to(y.dtype)
    tl.store(y_ptr + tt_at[:, None] * 1024 + tn_1_at[None, :], acc_4.to(tl.bfloat16))


def moe(
    x: torch.Tensor,
    w: torch.Tensor,
    token: torch.Tensor,
    slot: torch.Tensor,
    gate: torch.Tensor,
    offsets: torch.Tensor,
) -> torch.Tensor:
    """y[t] = sum of gate[t, k] * x[t] @ w[expert of slot[t, k]] over k."""
    z = torch.empty((16384, 1024), dtype=torch.float32, device=x.device)
    y = torch.empty((4096, 1024), dtype=torch.bfloat16, device=x.device)
    moe_1_kernel[(1536,)](x, w, token, offsets, z, num_warps=8, num_stages=4)
    moe_2_kernel[(1024,)](slot, gate, z, y, num_warps=8, num_stages=4)
    return y
