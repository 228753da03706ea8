"""batched_matmul for cuda:sm90, blocks tb=1, tk=64, tm=128, tn=128."""

import torch
import triton
import triton.language as tl


@triton.jit
def batched_matmul_kernel(x_ptr, w_ptr, y_ptr):
    pid = tl.program_id(0)
    # batched_matmul.py:27: acc = torch.baddbmm(acc, x[tb, tm, tk], w[tb, tk, tn])
    # x, up to the array's end
    x_boxes = tl.make_tensor_descriptor(x_ptr, [64, 1024, 1024], [1048576, 1024, 1], [1, 128, 64])
    # w, up to the array's end
    w_boxes = tl.make_tensor_descriptor(w_ptr, [64, 1024, 1024], [1048576, 1024, 1], [1, 64, 128])
    for step in tl.range(pid, 4096, 132):
        place_1 = step % 64
        # batched_matmul.py:24: for tb, tm, tn in hl.tile([B, M, N]):
        # tb is parallel: each tb writes its own rows of y
        tb_start = step // 64
        tb_at = tb_start + tl.arange(0, 1)
        # tm is parallel: each tm writes its own slices of y
        tm_start = place_1 % 8 * 128
        tm_at = tm_start + tl.arange(0, 128)
        # tn is parallel: each tn writes its own slices of y
        tn_start = place_1 // 8 * 128
        tn_at = tn_start + tl.arange(0, 128)
        # batched_matmul.py:26: for tk in hl.tile(K):
        # tk is ordered: carries acc, a sum
        acc = tl.zeros([128, 128], tl.float32)
        for tk_start in tl.range(0, 1024, 64, num_stages=4):
            # batched_matmul.py:27: acc = torch.baddbmm(acc, x[tb, tm, tk], w[tb, tk, tn])
            x_tile = x_boxes.load([tb_start, tm_start, tk_start])
            w_tile = w_boxes.load([tb_start, tk_start, tn_start])
            acc = tl.dot(tl.reshape(x_tile, [128, 64]), tl.reshape(w_tile, [64, 128]), acc)
        acc_1 = tl.reshape(acc, [1, 128, 128])
        # batched_matmul.py:28: y[tb, tm, tn] = acc.to(y.dtype)
        tl.store(
            y_ptr + tb_at[:, None, None] * 1048576 + tm_at[None, :, None] * 1024
            + tn_at[None, None, :],
            acc_1.to(tl.bfloat16),
        )


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Memory that Triton writes descriptors to."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy that begins at a multiple of 16 bytes, as arrays of descriptors do."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def batched_matmul(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """y[b] = x[b] @ w[b]."""
    x = _aligned(x)
    w = _aligned(w)
    triton.set_allocator(_scratch)
    y = torch.empty((64, 1024, 1024), dtype=torch.bfloat16, device=x.device)
    batched_matmul_kernel[(132,)](x, w, y, num_warps=8, num_stages=4)
    return y
