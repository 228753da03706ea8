"""split_k_matmul for cuda:sm90, blocks tk=64, tm=128, tm_1=2, tn=128, tn_1=512, ts=16384."""

import torch
import triton
import triton.language as tl


@triton.jit
def split_k_matmul_1_kernel(x_ptr, w_ptr, partial_ptr):
    pid = tl.program_id(0)
    tile = pid % 8
    band = tile // 8 * 2
    place = tile % 8
    # split_k_matmul.py:31: for ts in hl.tile(K, block_size=length):
    # ts is parallel: each ts writes its own rows of partial
    ts_start = pid // 8 * 16384
    # split_k_matmul.py:32: for tm, tn in hl.tile([M, N]):
    # tm is parallel: each tm writes its own slices of partial
    tm_start = (band + place % 2) * 128
    tm_at = tm_start + tl.arange(0, 128)
    # tn is parallel: each tn writes its own slices of partial
    tn_start = place // 2 * 128
    tn_at = tn_start + tl.arange(0, 128)
    # split_k_matmul.py:33: acc = hl.zeros([tm, tn], dtype=hl.float32)
    acc = tl.zeros([128, 128], tl.float32)
    # split_k_matmul.py:34: for tk in hl.tile(ts.begin, ts.end):
    tk_end = ts_start + 16384
    # split_k_matmul.py:35: acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
    # w, up to the end of tk
    w_boxes = tl.make_tensor_descriptor(w_ptr, [tl.maximum(tk_end, 1), 512], [512, 1], [64, 128])
    # split_k_matmul.py:34: for tk in hl.tile(ts.begin, ts.end):
    # tk is ordered: carries acc, a sum
    for tk_start in tl.range(ts_start, tk_end, 64, num_stages=3):
        tk_at = tk_start + tl.arange(0, 64)
        tk_in = tk_at < tk_end
        # split_k_matmul.py:35: acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
        x_tile = tl.load(
            x_ptr + tm_at[:, None] * 65536 + tk_at[None, :],
            mask=tk_in[None, :],
            other=0.0,
        )
        w_tile = w_boxes.load([tk_start, tn_start])
        acc = tl.dot(x_tile, w_tile, acc)
    # split_k_matmul.py:36: partial[ts.id, tm, tn] = acc
    tl.store(partial_ptr + ts_start // 16384 * 131072 + tm_at[:, None] * 512 + tn_at[None, :], acc)


@triton.jit
def split_k_matmul_2_kernel(partial_ptr, y_ptr):
    at4 = tl.arange(0, 4)
    pid = tl.program_id(0)
    # split_k_matmul.py:37: for tm, tn in hl.tile([M, N]):
    # tm is parallel: each tm writes its own rows of y
    tm_1_start = pid * 2
    tm_1_at = tm_1_start + tl.arange(0, 2)
    # tn is parallel: each tn writes its own columns of y
    tn_1_start = 0 * 512
    tn_1_at = tn_1_start + tl.arange(0, 512)
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
    w = _aligned(w)
    triton.set_allocator(_scratch)
    partial = torch.empty((4, 256, 512), dtype=torch.float32, device=x.device)
    y = torch.empty((256, 512), dtype=torch.bfloat16, device=x.device)
    split_k_matmul_1_kernel[(32,)](x, w, partial, num_warps=8, num_stages=3)
    split_k_matmul_2_kernel[(128,)](partial, y, num_warps=8, num_stages=3)
    return y
