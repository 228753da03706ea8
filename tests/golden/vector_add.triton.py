"""vector_add for cuda:sm90, blocks ti=1024."""

import torch
import triton
import triton.language as tl


@triton.jit
def vector_add_kernel(x_ptr, y_ptr, out_ptr):
    pid = tl.program_id(0)
    # vector_add.py:22: for ti in hl.tile(x.shape[0]):
    # ti is parallel: each ti writes its own elements of out
    ti_start = pid * 1024
    ti_at = ti_start + tl.arange(0, 1024)
    # vector_add.py:23: out[ti] = x[ti] + y[ti]
    x_tile = tl.load(x_ptr + ti_at)
    y_tile = tl.load(y_ptr + ti_at)
    tl.store(out_ptr + ti_at, (x_tile.to(tl.float32) + y_tile.to(tl.float32)).to(tl.bfloat16))


def vector_add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """out[i] = x[i] + y[i]."""
    out = torch.empty((16777216,), dtype=torch.bfloat16, device=x.device)
    vector_add_kernel[(16384,)](x, y, out, num_warps=2, num_stages=1)
    return out
