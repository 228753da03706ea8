"""jagged_dense_add for cuda:sm90, blocks tm=8."""

import torch
import triton
import triton.language as tl


@triton.jit
def jagged_dense_add_kernel(x_ptr, dense_ptr, offsets_ptr, y_ptr):
    groups = tl.arange(0, 512)
    at512 = tl.arange(0, 512)
    pid = tl.program_id(0)
    # jagged_dense_add.py:43: y = hl.zeros(x.shape, dtype=x.dtype)
    first = tl.load(offsets_ptr)
    last = tl.load(offsets_ptr + 512)
    # row is parallel: each row writes its own rows of y
    for row_start in tl.range(pid * 16, 131072, 270336):
        row_at = row_start + tl.arange(0, 16)
        outside = (row_start < first) | (row_start + 16 > last)
        ranges = tl.where(outside, 512, 0)
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
        columns = tl.where(outside, 512, 0)
        # column is parallel: each column writes its own columns of y
        for column_start in tl.range(0, columns, 64):
            column_at = column_start + tl.arange(0, 64)
            tl.store(
                y_ptr + row_at[:, None] * 512 + column_at[None, :],
                tl.zeros([16, 64], tl.bfloat16),
                mask=(seen == 0)[:, None],
            )
    # jagged_dense_add.py:45: begin, end = offsets[g], offsets[g + 1]
    offsets_tile = tl.load(offsets_ptr + groups)
    offsets_tile_1 = tl.load(offsets_ptr + groups + 1)
    tm_begins = tl.maximum(offsets_tile, 0)
    tm_ends = tl.minimum(offsets_tile_1, 131072)
    tile_counts = (tl.maximum(tm_ends, tm_begins) - tm_begins + 7) // 8
    tile_ends = tl.cumsum(tile_counts, axis=0)
    item_count = tl.sum(tile_counts, axis=0)
    for step in tl.range(pid, item_count, 16896):
        before = tile_ends <= step
        g = tl.sum(before.to(tl.int32), axis=0)
        tm_id = step - tl.sum(tl.where(before, tile_counts, 0), axis=0)
        # jagged_dense_add.py:44: for g in hl.grid(G):
        # g is parallel: y rows of different g are disjoint because offsets is sorted
        # jagged_dense_add.py:45: begin, end = offsets[g], offsets[g + 1]
        begin = tl.load(offsets_ptr + g)
        end = tl.load(offsets_ptr + g + 1)
        # jagged_dense_add.py:46: for tm in hl.tile(begin, end):
        # tm is parallel: each tm writes its own rows of y
        tm_begin = tl.maximum(begin, 0)
        tm_end = tl.minimum(end, 131072)
        tm_start = tm_begin + tm_id * 8
        tm_at = tm_start + tl.arange(0, 8)
        tm_in = tm_at < tm_end
        # jagged_dense_add.py:47: place = tm.index - begin
        place = tm_at - begin
        # jagged_dense_add.py:48: y[tm, :] = x[tm, :] + hl.load(dense, [g, place, slice(None)], m...
        x_tile = tl.load(
            x_ptr + tm_at[:, None] * 512 + at512[None, :],
            mask=tm_in[:, None],
            other=0.0,
        )
        dense_tile = tl.load(
            dense_ptr + g * 524288 + place[:, None] * 512 + at512[None, :],
            mask=(tm_in & (place >= 0) & (place < 1024))[:, None],
            other=0.0,
        )
        tl.store(
            y_ptr + tm_at[:, None] * 512 + at512[None, :],
            (x_tile.to(tl.float32) + dense_tile.to(tl.float32)).to(tl.bfloat16),
            mask=tm_in[:, None],
        )


def jagged_dense_add(x: torch.Tensor, dense: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """y[r] = x[r] + dense[g, r - offsets[g]] for offsets[g] <= r < offsets[g + 1]."""
    y = torch.empty((131072, 512), dtype=torch.bfloat16, device=x.device)
    jagged_dense_add_kernel[(16896,)](x, dense, offsets, y, num_warps=8, num_stages=1)
    return y
