"""weight_only_grouped_gemm for cuda:sm90, blocks tk=64, tm=128, tn=128."""

import torch
import triton
import triton.language as tl


@triton.jit
def weight_only_grouped_gemm_kernel(x_ptr, w_ptr, scale_ptr, offsets_ptr, y_ptr):
    groups = tl.arange(0, 64)
    pid = tl.program_id(0)
    # quantized_grouped_gemm.py:39: y = hl.zeros([M, N], dtype=x.dtype)
    first = tl.load(offsets_ptr)
    last = tl.load(offsets_ptr + 64)
    # row is parallel: each row writes its own rows of y
    for row_start in tl.range(pid * 16, 16384, 49152):
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
    # quantized_grouped_gemm.py:41: for tm, tn in hl.tile([offsets[g], 0], [offsets[g + 1], N], m...
    offsets_tile = tl.load(offsets_ptr + groups)
    offsets_tile_1 = tl.load(offsets_ptr + groups + 1)
    tm_begins = tl.maximum(offsets_tile, 0)
    tm_ends = tl.minimum(offsets_tile_1, 16384)
    tile_counts = (tl.maximum(tm_ends, tm_begins) - tm_begins + 127) // 128
    tile_ends = tl.cumsum(tile_counts, axis=0)
    item_count = tl.sum(tile_counts, axis=0)
    for step in tl.range(pid, item_count * 16, 3072):
        item = step // 16
        before = tile_ends <= item
        g = tl.sum(before.to(tl.int32), axis=0)
        tm_id = item - tl.sum(tl.where(before, tile_counts, 0), axis=0)
        # quantized_grouped_gemm.py:40: for g in hl.grid(G):
        # g is parallel: y rows of different g are disjoint because offsets is sorted
        # quantized_grouped_gemm.py:41: for tm, tn in hl.tile([offsets[g], 0], [offsets[g + 1], N...
        # tm is parallel: each tm writes its own rows of y
        offsets_value = tl.load(offsets_ptr + g)
        tm_begin = tl.maximum(offsets_value, 0)
        offsets_value_1 = tl.load(offsets_ptr + g + 1)
        tm_end = tl.minimum(offsets_value_1, 16384)
        tm_start = tm_begin + tm_id * 128
        tm_at = tm_start + tl.arange(0, 128)
        tm_in = tm_at < tm_end
        # tn is parallel: each tn writes its own columns of y
        tn_start = step % 16 * 128
        tn_at = tn_start + tl.arange(0, 128)
        # quantized_grouped_gemm.py:42: acc = hl.zeros([tm, tn], dtype=hl.float32)
        acc = tl.zeros([128, 128], tl.float32)
        # quantized_grouped_gemm.py:43: for tk in hl.tile(K):
        # tk is ordered: carries acc, a sum
        for tk_start in tl.range(0, 4096, 64, num_stages=4):
            tk_at = tk_start + tl.arange(0, 64)
            # quantized_grouped_gemm.py:44: acc = hl.dot(x[tm, tk], w[g, tk, tn].to(x.dtype), acc...
            x_tile = tl.load(
                x_ptr + tm_at[:, None] * 4096 + tk_at[None, :],
                mask=tm_in[:, None],
                other=0.0,
            )
            w_tile = tl.load(w_ptr + g * 8388608 + tk_at[:, None] * 2048 + tn_at[None, :])
            acc = tl.dot(x_tile, w_tile.to(tl.bfloat16), acc)
        # quantized_grouped_gemm.py:45: y[tm, tn] = (acc * scale[g, tn]).to(y.dtype)
        scale_tile = tl.load(scale_ptr + g * 2048 + tn_at)
        tl.store(
            y_ptr + tm_at[:, None] * 2048 + tn_at[None, :],
            (acc * scale_tile).to(tl.bfloat16),
            mask=tm_in[:, None],
        )


def weight_only_grouped_gemm(
    x: torch.Tensor,
    w: torch.Tensor,
    scale: torch.Tensor,
    offsets: torch.Tensor,
) -> torch.Tensor:
    """y[r] = x[r] @ (w[g] * scale[g]) for the rows r of group g; other rows are zero."""
    y = torch.empty((16384, 2048), dtype=torch.bfloat16, device=x.device)
    weight_only_grouped_gemm_kernel[(3072,)](x, w, scale, offsets, y, num_warps=4, num_stages=4)
    return y
