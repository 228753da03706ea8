"""long_sum for cuda:sm90, blocks tm=8, tn=512."""

import torch
import triton
import triton.language as tl


@triton.jit
def long_sum_1_kernel(x_ptr, total_parts_ptr):
    pid = tl.program_id(0)
    # long_sum.py:24: for tn in hl.tile(N):
    # part is parallel: each part writes its own rows of total_parts
    part = pid // 32
    # long_sum.py:22: for tm in hl.tile(M):
    # tm is parallel: each tm writes its own columns of total_parts
    tm_start = pid % 32 * 8
    tm_at = tm_start + tl.arange(0, 8)
    # long_sum.py:24: for tn in hl.tile(N):
    tn_begin = part * 131072
    tn_end = part * 131072 + 131072
    # tn is ordered: carries total, a sum
    total = tl.zeros([8], tl.float32)
    for tn_start in tl.range(tn_begin, tn_end, 512, num_stages=3):
        tn_at = tn_start + tl.arange(0, 512)
        # long_sum.py:25: total += x[tm, tn].to(hl.float32).sum(-1)
        x_tile = tl.load(x_ptr + tm_at[:, None] * 1048576 + tn_at[None, :])
        total = total + tl.sum(x_tile.to(tl.float32), axis=1)
    tl.store(total_parts_ptr + part * 256 + tm_at, total)


@triton.jit
def long_sum_2_kernel(total_parts_ptr, y_ptr):
    pid = tl.program_id(0)
    # long_sum.py:22: for tm in hl.tile(M):
    # tm is parallel: each tm writes its own elements of y
    tm_1_start = pid * 8
    tm_1_at = tm_1_start + tl.arange(0, 8)
    # long_sum.py:23: total = hl.zeros([tm], dtype=hl.float32)
    total = tl.zeros([8], tl.float32)
    # long_sum.py:24: for tn in hl.tile(N):
    # part is ordered: carries total, a sum
    for part_1 in tl.range(0, 8, num_stages=3):
        # long_sum.py:25: total += x[tm, tn].to(hl.float32).sum(-1)
        total_parts_tile = tl.load(total_parts_ptr + part_1 * 256 + tm_1_at)
        total = total + total_parts_tile
    # long_sum.py:26: y[tm] = total.to(y.dtype)
    tl.store(y_ptr + tm_1_at, total.to(tl.bfloat16))


def long_sum(x: torch.Tensor) -> torch.Tensor:
    """y[i] = the sum of x[i]."""
    total_parts = torch.empty((8, 256), dtype=torch.float32, device=x.device)
    y = torch.empty((256,), dtype=torch.bfloat16, device=x.device)
    long_sum_1_kernel[(256,)](x, total_parts, num_warps=8, num_stages=3)
    long_sum_2_kernel[(32,)](total_parts, y, num_warps=8, num_stages=3)
    return y
