"""rope for cuda:sm90, blocks t=64."""

import torch
import triton
import triton.language as tl


@triton.jit
def rope_kernel(x_ptr, cos_ptr, sin_ptr, y_ptr):
    at64 = tl.arange(0, 64)
    pid = tl.program_id(0)
    # rope.py:29: for h in hl.grid(H):
    # h is parallel: each h writes its own rows of y
    h = pid // 128
    # rope.py:30: for t in hl.tile(T):
    # t is parallel: each t writes its own slices of y
    t_start = pid % 128 * 64
    t_at = t_start + tl.arange(0, 64)
    # rope.py:31: a, b = x[h, t, :half].to(hl.float32), x[h, t, half:].to(hl.float32)
    x_tile = tl.load(x_ptr + h * 1048576 + t_at[:, None] * 128 + at64[None, :])
    a = x_tile.to(tl.float32)
    x_tile_1 = tl.load(x_ptr + h * 1048576 + t_at[:, None] * 128 + (64 + at64)[None, :])
    b = x_tile_1.to(tl.float32)
    # rope.py:32: c, s = cos[t, :], sin[t, :]
    c = tl.load(cos_ptr + t_at[:, None] * 64 + at64[None, :])
    s = tl.load(sin_ptr + t_at[:, None] * 64 + at64[None, :])
    # rope.py:33: y[h, t, :half] = (a * c - b * s).to(y.dtype)
    tl.store(
        y_ptr + h * 1048576 + t_at[:, None] * 128 + at64[None, :], (a * c - b * s).to(tl.bfloat16)
    )
    # rope.py:34: y[h, t, half:] = (b * c + a * s).to(y.dtype)
    tl.store(
        y_ptr + h * 1048576 + t_at[:, None] * 128 + (64 + at64)[None, :],
        (b * c + a * s).to(tl.bfloat16),
    )


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Turns the pairs (x[h, t, d], x[h, t, d + D / 2]) by the angles of position t."""
    y = torch.empty((32, 8192, 128), dtype=torch.bfloat16, device=x.device)
    rope_kernel[(4096,)](x, cos, sin, y, num_warps=8, num_stages=1)
    return y
