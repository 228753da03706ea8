"""matmul for cuda:sm90, blocks tk=64, tm=128, tn=256."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(x_ptr, w_ptr, bias_ptr, y_ptr):
    pid = tl.program_id(0)
    # matmul.py:62: acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
    # x, up to the array's end
    x_boxes = tl.make_tensor_descriptor(x_ptr, [8192, 4096], [4096, 1], [128, 64])
    # w, up to the array's end
    w_boxes = tl.make_tensor_descriptor(w_ptr, [4096, 4096], [4096, 1], [64, 256])
    for step in tl.range(pid, 1024, 132, flatten=True):
        band_1 = step // 128 * 8
        place_1 = step % 128
        # matmul.py:59: for tm, tn in hl.tile([M, N]):
        # tm is parallel: each tm writes its own rows of y
        tm_start = (band_1 + place_1 % 8) * 128
        tm_at = tm_start + tl.arange(0, 128)
        # tn is parallel: each tn writes its own columns of y
        tn_start = place_1 // 8 * 256
        tn_at = tn_start + tl.arange(0, 256)
        # matmul.py:60: acc = hl.zeros([tm, tn], dtype=hl.float32)
        acc = tl.zeros([128, 256], tl.float32)
        # matmul.py:61: for tk in hl.tile(K):
        # tk is ordered: carries acc, a sum
        for tk_start in tl.range(0, 4096, 64, num_stages=4):
            # matmul.py:62: acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
            x_tile = x_boxes.load([tm_start, tk_start])
            w_tile = w_boxes.load([tk_start, tn_start])
            acc = tl.dot(x_tile, w_tile, acc)
        # matmul.py:63: block = epilogue(acc) if bias is None else epilogue(acc, bias[tn])
        bias = tl.load(bias_ptr + tn_at)
        # matmul.py:44: shifted = block + bias
        shifted = acc + bias.to(tl.float32)
        # matmul.py:63: block = epilogue(acc) if bias is None else epilogue(acc, bias[tn])
        block = tl.where(shifted > 0.0, shifted, 0.1 * shifted)
        # matmul.py:64: y[tm, tn] = block.to(y.dtype)
        tl.store(y_ptr + tm_at[:, None] * 4096 + tn_at[None, :], block.to(tl.bfloat16))


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Memory that Triton writes descriptors to."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy that begins at a multiple of 16 bytes, as arrays of descriptors do."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def matmul(x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """y = epilogue(x @ w), or epilogue(x @ w, bias) if there is a bias [N]."""
    x = _aligned(x)
    w = _aligned(w)
    triton.set_allocator(_scratch)
    y = torch.empty((8192, 4096), dtype=torch.bfloat16, device=x.device)
    matmul_kernel[(132,)](x, w, bias, y, num_warps=8, num_stages=4)
    return y
