"""quantized_matmul for cuda:sm90, blocks tk=128, tm=256, tn=64."""

import torch
import triton
import triton.language as tl


@triton.jit
def quantized_matmul_kernel(x_ptr, row_scale_ptr, w_ptr, scale_ptr, y_ptr):
    pid = tl.program_id(0)
    band = pid // 512 * 8
    place = pid % 512
    # quantized_matmul.py:49: for tm, tn in hl.tile([M, N]):
    # tm is parallel: each tm writes its own rows of y
    tm_start = (band + place % 8) * 256
    tm_at = tm_start + tl.arange(0, 256)
    # tn is parallel: each tn writes its own columns of y
    tn_start = place // 8 * 64
    tn_at = tn_start + tl.arange(0, 64)
    # quantized_matmul.py:50: acc = hl.zeros([tm, tn], dtype=hl.int32)
    acc = tl.zeros([256, 64], tl.int32)
    # quantized_matmul.py:51: for tk in hl.tile(K):
    # tk is ordered: carries acc, a sum
    for tk_start in tl.range(0, 4096, 128, num_stages=3):
        tk_at = tk_start + tl.arange(0, 128)
        # quantized_matmul.py:52: acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
        x_tile = tl.load(x_ptr + tm_at[:, None] * 4096 + tk_at[None, :])
        w_tile = tl.load(w_ptr + tk_at[:, None] * 4096 + tn_at[None, :])
        acc = tl.dot(x_tile, w_tile, acc, out_dtype=tl.int32)
    # quantized_matmul.py:53: rescaled = acc.to(hl.float32) * row_scale[tm][:, None] * scale[tn]
    row_scale_tile = tl.load(row_scale_ptr + tm_at)
    scale_tile = tl.load(scale_ptr + tn_at)
    rescaled = (
        acc.to(tl.float32) * row_scale_tile[:, None].to(tl.float32) * scale_tile.to(tl.float32)
    )
    # quantized_matmul.py:54: y[tm, tn] = rescaled.to(y.dtype)
    tl.store(y_ptr + tm_at[:, None] * 4096 + tn_at[None, :], rescaled.to(tl.bfloat16))


def quantized_matmul(
    x: torch.Tensor,
    row_scale: torch.Tensor,
    w: torch.Tensor,
    scale: torch.Tensor,
) -> torch.Tensor:
    """y = (x * row_scale) @ (w * scale), in the dtype of the scales."""
    y = torch.empty((8192, 4096), dtype=torch.bfloat16, device=x.device)
    quantized_matmul_kernel[(2048,)](x, row_scale, w, scale, y, num_warps=4, num_stages=3)
    return y
