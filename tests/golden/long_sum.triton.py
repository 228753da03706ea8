"""long_sum for cuda:sm90, blocks tm=8, tn=512."""

import torch
import triton
import triton.language as tl


@triton.jit
def long_sum_kernel(x_ptr, y_ptr):
    pid = tl.program_id(0)
    # long_sum.py:22: for tm in hl.tile(M):
    # tm is parallel: each tm writes its own elements of y
    tm_start = pid * 8
    tm_at = tm_start + tl.arange(0, 8)
    # long_sum.py:23: total = hl.zeros([tm], dtype=hl.float32)
    total = tl.zeros([8], tl.float32)
    # long_sum.py:24: for tn in hl.tile(N):
    # tn is ordered: carries total, a sum
    for tn_start in tl.range(0, 1048576, 512):
        tn_at = tn_start + tl.arange(0, 512)
        # long_sum.py:25: total += x[tm, tn].to(hl.float32).sum(-1)
        x_tile = tl.load(x_ptr + tm_at[:, None] * 1048576 + tn_at[None, :])
        total = total + tl.sum(x_tile.to(tl.float32), axis=1)
    # long_sum.py:26: y[tm] = total.to(y.dtype)
    tl.store(y_ptr + tm_at, total.to(tl.bfloat16))


def long_sum(x: torch.Tensor) -> torch.Tensor:
    """y[i] = the sum of x[i]."""
    y = torch.empty((256,), dtype=torch.bfloat16, device=x.device)
    long_sum_kernel[(32,)](x, y, num_warps=8, num_stages=1)
    return y
