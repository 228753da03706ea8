"""split_k_matmul for cuda:sm90, blocks tk=64, tm=128, tm_1=2, tn=256, tn_1=512."""

import torch
import triton
import triton.language as tl


@triton.jit
def split_k_matmul_1_kernel(x_ptr, w_ptr, acc_parts_ptr):
    pid = tl.program_id(0)
    place = pid % 4
    # split_k_matmul.py:34: for tk in hl.tile(ts.begin, ts.end):
    # part is parallel: each part writes its own rows of acc_parts
    part = pid // 16
    # split_k_matmul.py:31: for ts in hl.tile(K, block_size=length):
    # ts is parallel: each ts writes its own slices of acc_parts
    ts_start = pid // 4 % 4 * 16384
    # split_k_matmul.py:32: for tm, tn in hl.tile([M, N]):
    # tm is parallel: each tm writes its own slices of acc_parts
    tm_start = place % 2 * 128
    tm_at = tm_start + tl.arange(0, 128)
    # tn is parallel: each tn writes its own slices of acc_parts
    tn_start = place // 2 * 256
    tn_at = tn_start + tl.arange(0, 256)
    # split_k_matmul.py:34: for tk in hl.tile(ts.begin, ts.end):
    tk_part = tl.maximum(ts_start + part * 1024, ts_start)
    tk_end = tl.minimum(tk_part + 1024, ts_start + 16384)
    # split_k_matmul.py:35: acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
    # x, up to the array's end
    x_boxes = tl.make_tensor_descriptor(x_ptr, [256, 65536], [65536, 1], [128, 64])
    # w, up to the array's end
    w_boxes = tl.make_tensor_descriptor(w_ptr, [65536, 512], [512, 1], [64, 256])
    # split_k_matmul.py:34: for tk in hl.tile(ts.begin, ts.end):
    # tk is ordered: carries acc, a sum
    acc = tl.zeros([128, 256], tl.float32)
    for tk_start in tl.range(tk_part, tk_end, 64, num_stages=3):
        # split_k_matmul.py:35: acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
        x_tile = x_boxes.load([tm_start, tk_start])
        w_tile = w_boxes.load([tk_start, tn_start])
        acc = tl.dot(x_tile, w_tile, acc)
    tl.store(
        acc_parts_ptr + part * 524288 + ts_start // 16384 * 131072 + tm_at[:, None] * 512
        + tn_at[None, :],
        acc,
    )


@triton.jit
def split_k_matmul_2_kernel(acc_parts_ptr, partial_ptr):
    pid = tl.program_id(0)
    place = pid % 64
    # split_k_matmul.py:31: for ts in hl.tile(K, block_size=length):
    # ts is parallel: each ts writes its own rows of partial
    ts_1_start = pid // 64 * 16384
    # split_k_matmul.py:32: for tm, tn in hl.tile([M, N]):
    # tm is parallel: each tm writes its own slices of partial
    tm_2_start = place % 8 * 32
    tm_2_at = tm_2_start + tl.arange(0, 32)
    # tn is parallel: each tn writes its own slices of partial
    tn_2_start = place // 8 * 64
    tn_2_at = tn_2_start + tl.arange(0, 64)
    # split_k_matmul.py:33: acc = hl.zeros([tm, tn], dtype=hl.float32)
    acc = tl.zeros([32, 64], tl.float32)
    # split_k_matmul.py:34: for tk in hl.tile(ts.begin, ts.end):
    # part is ordered: carries acc, a sum
    for part_1 in tl.range(0, 16):
        # split_k_matmul.py:35: acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
        acc_parts_tile = tl.load(
            acc_parts_ptr + part_1 * 524288 + ts_1_start // 16384 * 131072 + tm_2_at[:, None] * 512
            + tn_2_at[None, :],
        )
        acc = acc + acc_parts_tile
    # split_k_matmul.py:36: partial[ts.id, tm, tn] = acc
    tl.store(
        partial_ptr + ts_1_start // 16384 * 131072 + tm_2_at[:, None] * 512 + tn_2_at[None, :], acc
    )


@triton.jit
def split_k_matmul_3_kernel(partial_ptr, y_ptr):
    at4 = tl.arange(0, 4)
    pid = tl.program_id(0)
    # split_k_matmul.py:37: for tm, tn in hl.tile([M, N]):
    # tm is parallel: each tm writes its own rows of y
    tm_1_start = pid * 2
    tm_1_at = tm_1_start + tl.arange(0, 2)
    # tn is parallel: each tn writes its own columns of y
    tn_1_at = tl.arange(0, 512)
    # split_k_matmul.py:38: y[tm, tn] = partial[:, tm, tn].sum(0).to(y.dtype)
    partial_tile = tl.load(
        partial_ptr + at4[:, None, None] * 131072 + tm_1_at[None, :, None] * 512
        + tn_1_at[None, None, :],
    )
    tl.store(
        y_ptr + tm_1_at[:, None] * 512 + tn_1_at[None, :],
        tl.sum(partial_tile, axis=0).to(tl.bfloat16),
    )


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Memory that Triton writes descriptors to."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy that begins at a multiple of 16 bytes, as arrays of descriptors do."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def split_k_matmul(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """x [M, K] times w [K, N] as the sum of at most `splits` products; [M, N] in x's dtype."""
    x = _aligned(x)
    w = _aligned(w)
    triton.set_allocator(_scratch)
    acc_parts = torch.empty((16, 4, 256, 512), dtype=torch.float32, device=x.device)
    partial = torch.empty((4, 256, 512), dtype=torch.float32, device=x.device)
    y = torch.empty((256, 512), dtype=torch.bfloat16, device=x.device)
    split_k_matmul_1_kernel[(256,)](x, w, acc_parts, num_warps=8, num_stages=3)
    split_k_matmul_2_kernel[(256,)](acc_parts, partial, num_warps=8, num_stages=3)
    split_k_matmul_3_kernel[(128,)](partial, y, num_warps=8, num_stages=3)
    return y
