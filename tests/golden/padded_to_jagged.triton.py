"""padded_to_jagged for cuda:sm90, blocks t=8."""

import torch
import triton
import triton.language as tl


@triton.jit
def padded_to_jagged_kernel(d_ptr, offsets_ptr, y_ptr):
    groups = tl.arange(0, 512)
    at512 = tl.arange(0, 512)
    pid = tl.program_id(0)
    # padded_to_jagged.py:43: begin = offsets[b]
    offsets_tile = tl.load(offsets_ptr + groups)
    # padded_to_jagged.py:44: for t in hl.tile(begin, hl.minimum(offsets[b + 1], begin + L)):
    offsets_tile_1 = tl.load(offsets_ptr + groups + 1)
    t_begins = tl.maximum(offsets_tile, 0)
    t_ends = tl.minimum(tl.minimum(offsets_tile_1, offsets_tile + 1024), 131072)
    tile_counts = (tl.maximum(t_ends, t_begins) - t_begins + 7) // 8
    tile_ends = tl.cumsum(tile_counts, axis=0)
    item_count = tl.sum(tile_counts, axis=0)
    for step in tl.range(pid, item_count, 16896):
        before = tile_ends <= step
        b = tl.sum(before.to(tl.int32), axis=0)
        t_id = step - tl.sum(tl.where(before, tile_counts, 0), axis=0)
        # padded_to_jagged.py:42: for b in hl.grid(B):
        # b is parallel: y rows of different b are disjoint because offsets is sorted
        # padded_to_jagged.py:43: begin = offsets[b]
        begin = tl.load(offsets_ptr + b)
        # padded_to_jagged.py:44: for t in hl.tile(begin, hl.minimum(offsets[b + 1], begin + L)):
        # t is parallel: each t writes its own rows of y
        t_begin = tl.maximum(begin, 0)
        offsets_value = tl.load(offsets_ptr + b + 1)
        t_end = tl.minimum(tl.minimum(offsets_value, begin + 1024), 131072)
        t_start = t_begin + t_id * 8
        t_at = t_start + tl.arange(0, 8)
        t_in = t_at < t_end
        # padded_to_jagged.py:45: y[t, :] = d[b, t.index - begin, :]
        d_rows = t_at - begin
        d_tile = tl.load(
            d_ptr + b * 524288 + d_rows[:, None] * 512 + at512[None, :],
            mask=(t_in & (d_rows >= 0) & (d_rows < 1024))[:, None],
            other=0.0,
        )
        tl.store(y_ptr + t_at[:, None] * 512 + at512[None, :], d_tile, mask=t_in[:, None])


def padded_to_jagged(d: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """y[r] = d[b, r - offsets[b]] for offsets[b] <= r < min(offsets[b + 1], offsets[b] + L)."""
    y = torch.zeros((131072, 512), dtype=torch.bfloat16, device=d.device)
    padded_to_jagged_kernel[(16896,)](d, offsets, y, num_warps=8, num_stages=1)
    return y
