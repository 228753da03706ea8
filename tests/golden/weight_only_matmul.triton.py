"""weight_only_matmul for cuda:sm90, blocks tk=64, tm=128, tn=128."""

import torch
import triton
import triton.language as tl


@triton.jit
def weight_only_matmul_kernel(x_ptr, w_ptr, scale_ptr, y_ptr):
    pid = tl.program_id(0)
    band = pid // 256 * 8
    place = pid % 256
    # quantized_matmul.py:32: for tm, tn in hl.tile([M, N]):
    # tm is parallel: each tm writes its own rows of y
    tm_start = (band + place % 8) * 128
    tm_at = tm_start + tl.arange(0, 128)
    # tn is parallel: each tn writes its own columns of y
    tn_start = place // 8 * 128
    tn_at = tn_start + tl.arange(0, 128)
    # quantized_matmul.py:33: acc = hl.zeros([tm, tn], dtype=hl.float32)
    acc = tl.zeros([128, 128], tl.float32)
    # quantized_matmul.py:35: acc = hl.dot(x[tm, tk], w[tk, tn].to(x.dtype), acc=acc)
    # x, up to the array's end
    x_boxes = tl.make_tensor_descriptor(x_ptr, [8192, 4096], [4096, 1], [128, 64])
    # w, up to the array's end
    w_boxes = tl.make_tensor_descriptor(w_ptr, [4096, 4096], [4096, 1], [64, 128])
    # quantized_matmul.py:34: for tk in hl.tile(K):
    # tk is ordered: carries acc, a sum
    for tk_start in tl.range(0, 4096, 64, num_stages=4):
        # quantized_matmul.py:35: acc = hl.dot(x[tm, tk], w[tk, tn].to(x.dtype), acc=acc)
        x_tile = x_boxes.load([tm_start, tk_start])
        w_tile = w_boxes.load([tk_start, tn_start])
        acc = tl.dot(x_tile, w_tile.to(tl.bfloat16), acc)
    # quantized_matmul.py:36: y[tm, tn] = (acc * scale[tn]).to(y.dtype)
    scale_tile = tl.load(scale_ptr + tn_at)
    tl.store(y_ptr + tm_at[:, None] * 4096 + tn_at[None, :], (acc * scale_tile).to(tl.bfloat16))


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Memory that Triton writes descriptors to."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy that begins at a multiple of 16 bytes, as arrays of descriptors do."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def weight_only_matmul(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """y = x @ (w * scale): x [M, K], w [K, N] int8, scale [N] float32; y in x's dtype."""
    x = _aligned(x)
    w = _aligned(w)
    triton.set_allocator(_scratch)
    y = torch.empty((8192, 4096), dtype=torch.bfloat16, device=x.device)
    weight_only_matmul_kernel[(2048,)](x, w, scale, y, num_warps=4, num_stages=4)
    return y
