"""layer_norm for cuda:sm90, blocks tm=1."""

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr):
    at4096 = tl.arange(0, 4096)
    pid = tl.program_id(0)
    # layer_norm.py:28: for tm in hl.tile(x.shape[0]):
    # tm is parallel: each tm writes its own rows of out
    tm_at = pid + tl.arange(0, 1)
    # layer_norm.py:29: rows = x[tm, :].to(torch.float32)
    x_tile = tl.load(x_ptr + tm_at[:, None] * 4096 + at4096[None, :])
    rows = x_tile.to(tl.float32)
    # layer_norm.py:30: centred = rows - torch.mean(rows, dim=-1, keepdim=True)
    centred = rows - tl.sum(rows, axis=1, keep_dims=True) / 4096.0
    # layer_norm.py:31: variance = torch.mean(centred * centred, dim=-1, keepdim=True)
    variance = tl.sum(centred * centred, axis=1, keep_dims=True) / 4096.0
    # layer_norm.py:32: normal = centred * torch.rsqrt(variance + eps)
    normal = centred * tl.rsqrt(variance + 1e-05)
    # layer_norm.py:33: out[tm, :] = (normal * weight[:] + bias[:]).to(out.dtype)
    weight_tile = tl.load(weight_ptr + at4096)
    bias_tile = tl.load(bias_ptr + at4096)
    tl.store(
        out_ptr + tm_at[:, None] * 4096 + at4096[None, :],
        (normal * weight_tile.to(tl.float32) + bias_tile.to(tl.float32)).to(tl.bfloat16),
    )


def layer_norm(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """out[i] = (x[i] - mean) * rsqrt(variance + eps) * weight + bias, over each whole row."""
    out = torch.empty((16384, 4096), dtype=torch.bfloat16, device=x.device)
    layer_norm_kernel[(16384,)](x, weight, bias, out, num_warps=8, num_stages=1)
    return out
