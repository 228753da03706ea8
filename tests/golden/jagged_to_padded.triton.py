"""jagged_to_padded for cuda:sm90, blocks t=8."""

import torch
import triton
import triton.language as tl


@triton.jit
def jagged_to_padded_kernel(x_ptr, offsets_ptr, out_ptr):
    groups = tl.arange(0, 512)
    at512 = tl.arange(0, 512)
    pid = tl.program_id(0)
    # jagged_to_padded.py:43: begin, end = offsets[b], offsets[b + 1]
    offsets_tile = tl.load(offsets_ptr + groups + 1)
    offsets_tile_1 = tl.load(offsets_ptr + groups)
    t_ends = tl.minimum(offsets_tile - offsets_tile_1, 1024)
    tile_counts = (tl.maximum(t_ends, 0) + 7) // 8
    tile_ends = tl.cumsum(tile_counts, axis=0)
    item_count = tl.sum(tile_counts, axis=0)
    for step in tl.range(pid, item_count, 65536):
        before = tile_ends <= step
        b = tl.sum(before.to(tl.int32), axis=0)
        t_id = step - tl.sum(tl.where(before, tile_counts, 0), axis=0)
        # jagged_to_padded.py:42: for b in hl.grid(B):
        # b is parallel: each b writes its own rows of out
        # jagged_to_padded.py:43: begin, end = offsets[b], offsets[b + 1]
        begin = tl.load(offsets_ptr + b)
        end = tl.load(offsets_ptr + b + 1)
        # jagged_to_padded.py:44: for t in hl.tile(hl.minimum(end - begin, L)):
        # t is parallel: each t writes its own slices of out
        t_end = tl.minimum(end - begin, 1024)
        t_start = t_id * 8
        t_at = t_start + tl.arange(0, 8)
        t_in = t_at < t_end
        # jagged_to_padded.py:45: out[b, t, :] = x[begin + t.index, :]
        x_rows = t_at + begin
        x_tile = tl.load(
            x_ptr + x_rows[:, None] * 512 + at512[None, :],
            mask=(t_in & (x_rows >= 0) & (x_rows < 131072))[:, None],
            other=0.0,
        )
        tl.store(
            out_ptr + b * 524288 + t_at[:, None] * 512 + at512[None, :],
            x_tile,
            mask=t_in[:, None],
        )


def jagged_to_padded(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """out[b, l] = x[offsets[b] + l] for l < min(offsets[b + 1] - offsets[b], L), and else 0."""
    out = torch.zeros((512, 1024, 512), dtype=torch.bfloat16, device=x.device)
    jagged_to_padded_kernel[(65536,)](x, offsets, out, num_warps=8, num_stages=1)
    return out
