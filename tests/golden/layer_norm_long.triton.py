"""layer_norm_long for cuda:sm90, blocks tm=1, tn=2048, tn_1=2048, tn_2=2048."""

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm_long_kernel(x_ptr, weight_ptr, bias_ptr, out_ptr):
    pid = tl.program_id(0)
    # layer_norm.py:42: for tm in hl.tile(M):
    # tm is parallel: each tm writes its own rows of out
    tm_at = pid + tl.arange(0, 1)
    # layer_norm.py:43: total = torch.zeros([tm], dtype=torch.float32)
    total = tl.zeros([1], tl.float32)
    # layer_norm.py:44: for tn in hl.tile(N):
    # tn is ordered: carries total, a sum
    for tn_start in tl.range(0, 4096, 2048):
        tn_at = tn_start + tl.arange(0, 2048)
        # layer_norm.py:45: total += torch.sum(x[tm, tn].float(), dim=-1)
        x_tile = tl.load(x_ptr + tm_at[:, None] * 4096 + tn_at[None, :])
        total = total + tl.sum(x_tile.to(tl.float32), axis=1)
    # layer_norm.py:46: mean = (total / N)[:, None]
    mean = (total / 4096.0)[:, None]
    # layer_norm.py:48: squares = torch.zeros([tm], dtype=torch.float32)
    squares = tl.zeros([1], tl.float32)
    # layer_norm.py:49: for tn in hl.tile(N):
    # tn is ordered: carries squares, a sum
    for tn_1_start in tl.range(0, 4096, 2048):
        tn_1_at = tn_1_start + tl.arange(0, 2048)
        # layer_norm.py:50: centred = x[tm, tn].float() - mean
        x_tile_1 = tl.load(x_ptr + tm_at[:, None] * 4096 + tn_1_at[None, :])
        centred = x_tile_1.to(tl.float32) - mean
        # layer_norm.py:51: squares += torch.sum(centred * centred, dim=-1)
        squares = squares + tl.sum(centred * centred, axis=1)
    # layer_norm.py:52: scale = torch.rsqrt(squares / N + eps)[:, None]
    scale = tl.rsqrt(squares / 4096.0 + 1e-05)[:, None]
    # layer_norm.py:54: for tn in hl.tile(N):
    # tn is parallel: each tn writes its own columns of out
    for tn_2_start in tl.range(0, 4096, 2048):
        tn_2_at = tn_2_start + tl.arange(0, 2048)
        # layer_norm.py:55: normal = (x[tm, tn].float() - mean) * scale
        x_tile_2 = tl.load(x_ptr + tm_at[:, None] * 4096 + tn_2_at[None, :])
        normal = (x_tile_2.to(tl.float32) - mean) * scale
        # layer_norm.py:56: out[tm, tn] = (normal * weight[tn] + bias[tn]).to(out.dtype)
        weight_tile = tl.load(weight_ptr + tn_2_at)
        bias_tile = tl.load(bias_ptr + tn_2_at)
        tl.store(
            out_ptr + tm_at[:, None] * 4096 + tn_2_at[None, :],
            (normal * weight_tile.to(tl.float32) + bias_tile.to(tl.float32)).to(tl.bfloat16),
        )


def layer_norm_long(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The same for long rows: three passes over tiles of columns."""
    out = torch.empty((16384, 4096), dtype=torch.bfloat16, device=x.device)
    layer_norm_long_kernel[(16384,)](x, weight, bias, out, num_warps=8, num_stages=1)
    return out
