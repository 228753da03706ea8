"""jagged_dense_add for cuda:sm90, blocks tm=8."""

import torch
import triton
import triton.language as tl


@triton.jit
def jagged_dense_add_kernel(x_ptr, dense_ptr, offsets_ptr, y_ptr):
    groups = tl.arange(0, 512)
    at512 = tl.arange(0, 512)
    pid = tl.program_id(0)
    # jagged_dense_add.py:45: begin, end = offsets[g], offsets[g + 1]
    offsets_tile = tl.load(offsets_ptr + groups)
    offsets_tile_1 = tl.load(offsets_ptr + groups + 1)
    tm_begins = tl.maximum(offsets_tile, 0)
    tm_ends = tl.minimum(offsets_tile_1, 131072)
    tile_counts = tl.maximum(tm_ends - tm_begins + 7, 0) // 8
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
        dense_rows = tm_at - begin
        dense_tile = tl.load(
            dense_ptr + g * 524288 + dense_rows[:, None] * 512 + at512[None, :],
            mask=tm_in[:, None] & (dense_rows >= 0)[:, None] & (dense_rows < 1024)[:, None]
            & (place < 1024)[:, None],
            other=0.0,
        )
        tl.store(
            y_ptr + tm_at[:, None] * 512 + at512[None, :],
            (x_tile.to(tl.float32) + dense_tile.to(tl.float32)).to(tl.bfloat16),
            mask=tm_in[:, None],
        )


def jagged_dense_add(x: torch.Tensor, dense: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """y[r] = x[r] + dense[g, r - offsets[g]] for offsets[g] <= r < offsets[g + 1]."""
    y = torch.zeros((131072, 512), dtype=torch.bfloat16, device=x.device)
    jagged_dense_add_kernel[(16896,)](x, dense, offsets, y, num_warps=8, num_stages=1)
    return y
