"""grouped_gemm for cuda:sm90, blocks tk=64, tm=128, tn=256."""

import torch
import triton
import triton.language as tl


@triton.jit
def grouped_gemm_kernel(x_ptr, w_ptr, offsets_ptr, y_ptr):
    groups = tl.arange(0, 64)
    pid = tl.program_id(0)
    # grouped_gemm.py:36: y = hl.zeros([M, N], dtype=x.dtype)
    first = tl.load(offsets_ptr)
    last = tl.load(offsets_ptr + 64)
    # row is parallel: each row writes its own rows of y
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
        columns = tl.where(outside, 2048, 0)
        # column is parallel: each column writes its own columns of y
        for column_start in tl.range(0, columns, 64):
            column_at = column_start + tl.arange(0, 64)
            tl.store(
                y_ptr + row_at[:, None] * 2048 + column_at[None, :],
                tl.zeros([16, 64], tl.bfloat16),
                mask=(seen == 0)[:, None],
            )
    # grouped_gemm.py:38: for tm, tn in hl.tile([offsets[g], 0], [offsets[g + 1], N], max_extent=...
    offsets_tile = tl.load(offsets_ptr + groups)
    offsets_tile_1 = tl.load(offsets_ptr + groups + 1)
    tm_begins = tl.maximum(offsets_tile, 0)
    tm_ends = tl.minimum(offsets_tile_1, 16384)
    tile_counts = (tl.maximum(tm_ends, tm_begins) - tm_begins + 127) // 128
    tile_ends = tl.cumsum(tile_counts, axis=0)
    item_count = tl.sum(tile_counts, axis=0)
    for step in tl.range(pid, item_count * 8, 1536):
        item = step // 8
        before = tile_ends <= item
        g = tl.sum(before.to(tl.int32), axis=0)
        tm_id = item - tl.sum(tl.where(before, tile_counts, 0), axis=0)
        # grouped_gemm.py:37: for g in hl.grid(G):
        # g is parallel: y rows of different g are disjoint because offsets is sorted
        # grouped_gemm.py:38: for tm, tn in hl.tile([offsets[g], 0], [offsets[g + 1], N], max_ext...
        # tm is parallel: each tm writes its own rows of y
        offsets_value = tl.load(offsets_ptr + g)
        tm_begin = tl.maximum(offsets_value, 0)
        offsets_value_1 = tl.load(offsets_ptr + g + 1)
        tm_end = tl.minimum(offsets_value_1, 16384)
        tm_start = tm_begin + tm_id * 128
        tm_at = tm_start + tl.arange(0, 128)
        tm_in = tm_at < tm_end
        # tn is parallel: each tn writes its own columns of y
        tn_start = step % 8 * 256
        tn_at = tn_start + tl.arange(0, 256)
        # grouped_gemm.py:39: acc = hl.zeros([tm, tn], dtype=hl.float32)
        acc = tl.zeros([128, 256], tl.float32)
        # grouped_gemm.py:40: for tk in hl.tile(K):
        # tk is ordered: carries acc, a sum
        for tk_start in tl.range(0, 4096, 64, num_stages=4):
            tk_at = tk_start + tl.arange(0, 64)
            # grouped_gemm.py:41: acc = hl.dot(x[tm, tk], w[g, tk, tn], acc=acc)
            x_tile = tl.load(
                x_ptr + tm_at[:, None] * 4096 + tk_at[None, :],
                mask=tm_in[:, None],
                other=0.0,
            )
            w_tile = tl.load(w_ptr + g * 8388608 + tk_at[:, None] * 2048 + tn_at[None, :])
            acc = tl.dot(x_tile, w_tile, acc)
        # grouped_gemm.py:42: y[tm, tn] = acc.to(y.dtype)
        tl.store(
            y_ptr + tm_at[:, None] * 2048 + tn_at[None, :],
            acc.to(tl.bfloat16),
            mask=tm_in[:, None],
        )


def grouped_gemm(x: torch.Tensor, w: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """y[r] = x[r] @ w[g] for offsets[g] <= r < offsets[g + 1]; other rows are zero."""
    y = torch.empty((16384, 2048), dtype=torch.bfloat16, device=x.device)
    grouped_gemm_kernel[(1536,)](x, w, offsets, y, num_warps=8, num_stages=4)
    return y
