"""rms_norm for cuda:sm90, blocks tm=1."""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, y_ptr):
    at4096 = tl.arange(0, 4096)
    pid = tl.program_id(0)
    # rms_norm.py:25: for tm in hl.tile(x.shape[0]):
    # tm is parallel: each tm writes its own rows of y
    tm_at = pid + tl.arange(0, 1)
    # rms_norm.py:26: rows = x[tm, :].to(torch.float32)
    x_tile = tl.load(x_ptr + tm_at[:, None] * 4096 + at4096[None, :])
    rows = x_tile.to(tl.float32)
    # rms_norm.py:27: mean = torch.mean(rows * rows, dim=-1, keepdim=True)
    mean = tl.sum(rows * rows, axis=1, keep_dims=True) / 4096.0
    # rms_norm.py:28: y[tm, :] = (rows * torch.rsqrt(mean + eps) * weight[:]).to(x.dtype)
    weight_tile = tl.load(weight_ptr + at4096)
    tl.store(
        y_ptr + tm_at[:, None] * 4096 + at4096[None, :],
        (rows * tl.rsqrt(mean + 1e-06) * weight_tile.to(tl.float32)).to(tl.bfloat16),
    )


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """y[r] = x[r] / sqrt(mean(x[r]^2) + eps) * weight."""
    y = torch.empty((16384, 4096), dtype=torch.bfloat16, device=x.device)
    rms_norm_kernel[(16384,)](x, weight, y, num_warps=8, num_stages=1)
    return y
