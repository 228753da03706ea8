"""weight_only_grouped_gemm for cuda:sm90, blocks tk=64, tm=128, tn=128."""

import torch
import triton
import triton.language as tl


@triton.jit
def weight_only_grouped_gemm_kernel(x_ptr, w_ptr, scale_ptr, offsets_ptr, y_ptr):
    groups = tl.arange(0, 64)
    pid = tl.program_id(0)
    # quantized_grouped_gemm.py:41: for tm, tn in hl.tile([offsets[g], 0], [offsets[g + 1], N], m...
    offsets_tile = tl.load(offsets_ptr + groups)
    offsets_tile_1 = tl.load(offsets_ptr + groups + 1)
    tm_begins = tl.maximum(offsets_tile, 0)
    tm_ends = tl.minimum(offsets_tile_1, 16384)
    tile_counts = tl.maximum(tm_ends - tm_begins + 127, 0) // 128
    tile_ends = tl.cumsum(tile_counts, axis=0)
    item_count = tl.sum(tile_counts, axis=0)
    # quantized_grouped_gemm.py:44: acc = hl.dot(x[tm, tk], w[g, tk, tn].to(x.dtype), acc=acc)
    # x, up to the array's end
    x_boxes = tl.make_tensor_descriptor(x_ptr, [16384, 4096], [4096, 1], [128, 64])
    # w, up to the array's end
    w_boxes = tl.make_tensor_descriptor(w_ptr, [64, 4096, 2048], [8388608, 2048, 1], [1, 64, 128])
    for step in tl.range(pid, item_count * 16, 3072):
        item = step // 16
        before = tile_ends <= item
        g = tl.sum(before.to(tl.int32), axis=0)
        tm_id = item - tl.sum(tl.where(before, tile_counts, 0), axis=0)
        # quantized_grouped_gemm.py:40: for g in hl.grid(G):
        # g is parallel: y rows of different g are disjoint because offsets is sorted
        # quantized_grouped_gemm.py:41: for tm, tn in hl.tile([offsets[g], 0], [offsets[g + 1], N...
        # tm is parallel: each tm writes its own rows of y
        offsets_value = tl.load(offsets_ptr + g)
        tm_begin = tl.maximum(offsets_value, 0)
        offsets_value_1 = tl.load(offsets_ptr + g + 1)
        tm_end = tl.minimum(offsets_value_1, 16384)
        tm_start = tm_begin + tm_id * 128
        tm_at = tm_start + tl.arange(0, 128)
        tm_in = tm_at < tm_end
        # tn is parallel: each tn writes its own columns of y
        tn_start = step % 16 * 128
        tn_at = tn_start + tl.arange(0, 128)
        # quantized_grouped_gemm.py:42: acc = hl.zeros([tm, tn], dtype=hl.float32)
        acc = tl.zeros([128, 128], tl.float32)
        # quantized_grouped_gemm.py:43: for tk in hl.tile(K):
        # tk is ordered: carries acc, a sum
        for tk_start in tl.range(0, 4096, 64, num_stages=3):
            # quantized_grouped_gemm.py:44: acc = hl.dot(x[tm, tk], w[g, tk, tn].to(x.dtype), acc...
            x_tile = x_boxes.load([tm_start, tk_start])
            w_tile = tl.reshape(w_boxes.load([g, tk_start, tn_start]), [64, 128])
            acc = tl.dot(x_tile, w_tile.to(tl.float32).to(tl.bfloat16), acc)
        # quantized_grouped_gemm.py:45: y[tm, tn] = (acc * scale[g, tn]).to(y.dtype)
        scale_tile = tl.load(scale_ptr + g * 2048 + tn_at)
        tl.store(
            y_ptr + tm_at[:, None] * 2048 + tn_at[None, :],
            (acc * scale_tile).to(tl.bfloat16),
            mask=tm_in[:, None],
        )


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Memory that Triton writes descriptors to."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy that begins at a multiple of 16 bytes, as arrays of descriptors do."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def weight_only_grouped_gemm(
    x: torch.Tensor,
    w: torch.Tensor,
    scale: torch.Tensor,
    offsets: torch.Tensor,
) -> torch.Tensor:
    """y[r] = x[r] @ (w[g] * scale[g]) for the rows r of group g; other rows are zero."""
    x = _aligned(x)
    w = _aligned(w)
    triton.set_allocator(_scratch)
    y = torch.zeros((16384, 2048), dtype=torch.bfloat16, device=x.device)
    weight_only_grouped_gemm_kernel[(3072,)](x, w, scale, offsets, y, num_warps=8, num_stages=3)
    return y
