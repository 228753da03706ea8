"""transposed_matmul for cuda:sm90, blocks tk=64, tm=128, tn=256."""

import torch
import triton
import triton.language as tl


@triton.jit
def transposed_matmul_kernel(w_ptr, x_ptr, y_ptr):
    pid = tl.program_id(0)
    # transposed_matmul.py:31: product = jnp.dot(x[tk, tm].T, w[tn, tk].T, preferred_element_type...
    # x, up to the array's end
    x_boxes = tl.make_tensor_descriptor(x_ptr, [4096, 8192], [8192, 1], [64, 128])
    # w, up to the array's end
    w_boxes = tl.make_tensor_descriptor(w_ptr, [4096, 4096], [4096, 1], [256, 64])
    for step in tl.range(pid, 1024, 132, flatten=True):
        band_1 = step // 128 * 8
        place_1 = step % 128
        # transposed_matmul.py:28: for tm, tn in hl.tile([M, N]):
        # tm is parallel: each tm writes its own rows of y
        tm_start = (band_1 + place_1 % 8) * 128
        tm_at = tm_start + tl.arange(0, 128)
        # tn is parallel: each tn writes its own columns of y
        tn_start = place_1 // 8 * 256
        tn_at = tn_start + tl.arange(0, 256)
        # transposed_matmul.py:29: acc = jnp.zeros([tm, tn], dtype=jnp.float32)
        acc = tl.zeros([128, 256], tl.float32)
        # transposed_matmul.py:30: for tk in hl.tile(K):
        # tk is ordered: carries acc, a sum
        for tk_start in tl.range(0, 4096, 64, num_stages=4):
            # transposed_matmul.py:31: product = jnp.dot(x[tk, tm].T, w[tn, tk].T, preferred_elem...
            x_tile = x_boxes.load([tk_start, tm_start])
            w_tile = w_boxes.load([tn_start, tk_start])
            product = tl.dot(x_tile.T, w_tile.T)
            # transposed_matmul.py:32: acc = acc + product
            acc = acc + product
        # transposed_matmul.py:33: y[tm, tn] = acc.astype(y.dtype)
        tl.store(y_ptr + tm_at[:, None] * 4096 + tn_at[None, :], acc.to(tl.bfloat16))


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Memory that Triton writes descriptors to."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy that begins at a multiple of 16 bytes, as arrays of descriptors do."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def transposed_matmul(w: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """y = x.T @ w.T: w [N, K], x [K, M]; y [M, N] in x's dtype."""
    w = _aligned(w)
    x = _aligned(x)
    triton.set_allocator(_scratch)
    y = torch.empty((8192, 4096), dtype=torch.bfloat16, device=w.device)
    transposed_matmul_kernel[(132,)](w, x, y, num_warps=8, num_stages=4)
    return y
