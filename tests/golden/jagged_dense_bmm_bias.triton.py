"""jagged_dense_bmm_bias for cuda:sm90, blocks tk=64, tm=128, tn=256."""

import torch
import triton
import triton.language as tl


@triton.jit
def jagged_dense_bmm_bias_kernel(x_ptr, w_ptr, bias_ptr, offsets_ptr, y_ptr):
    groups = tl.arange(0, 128)
    pid = tl.program_id(0)
    # jagged_dense_bmm.py:42: y = torch.zeros([T, N], dtype=x.dtype)
    first = tl.load(offsets_ptr)
    last = tl.load(offsets_ptr + 128)
    # row is parallel: each row writes its own rows of y
    for row_start in tl.range(pid * 16, 32768, 2112):
        row_at = row_start + tl.arange(0, 16)
        outside = (row_start < first) | (row_start + 16 > last)
        ranges = tl.where(outside, 128, 0)
        # group is ordered: carries seen, a maximum
        seen = tl.zeros([16], tl.int32)
        for group_start in tl.range(0, ranges, 32):
            group_at = group_start + tl.arange(0, 32)
            offsets_tile_2 = tl.load(offsets_ptr + group_at)
            offsets_tile_3 = tl.load(offsets_ptr + group_at + 1)
            seen = tl.maximum(
                seen,
                tl.max(
                    (
                        (offsets_tile_2[None, :] <= row_at[:, None])
                        & (row_at[:, None] < offsets_tile_3[None, :])
                    ).to(tl.int32),
                    axis=1,
                ),
            )
        columns = tl.where(outside, 512, 0)
        # column is parallel: each column writes its own columns of y
        for column_start in tl.range(0, columns, 64):
            column_at = column_start + tl.arange(0, 64)
            tl.store(
                y_ptr + row_at[:, None] * 512 + column_at[None, :],
                tl.zeros([16, 64], tl.bfloat16),
                mask=(seen == 0)[:, None],
            )
    # jagged_dense_bmm.py:44: for tm, tn in hl.tile([offsets[b], 0], [offsets[b + 1], N], max_ext...
    offsets_tile = tl.load(offsets_ptr + groups)
    offsets_tile_1 = tl.load(offsets_ptr + groups + 1)
    tm_begins = tl.maximum(offsets_tile, 0)
    tm_ends = tl.minimum(offsets_tile_1, 32768)
    tile_counts = (tl.maximum(tm_ends, tm_begins) - tm_begins + 127) // 128
    tile_ends = tl.cumsum(tile_counts, axis=0)
    item_count = tl.sum(tile_counts, axis=0)
    # jagged_dense_bmm.py:47: acc = torch.addmm(acc, x[tm, tk], w[b, tk, tn])
    # x, up to the array's end
    x_boxes = tl.make_tensor_descriptor(x_ptr, [32768, 512], [512, 1], [128, 64])
    # w, up to the array's end
    w_boxes = tl.make_tensor_descriptor(w_ptr, [128, 512, 512], [262144, 512, 1], [1, 64, 256])
    for step in tl.range(pid, item_count * 2, 132, flatten=True):
        item = step // 2
        before = tile_ends <= item
        b = tl.sum(before.to(tl.int32), axis=0)
        tm_id = item - tl.sum(tl.where(before, tile_counts, 0), axis=0)
        # jagged_dense_bmm.py:43: for b in hl.grid(B):
        # b is parallel: y rows of different b are disjoint because offsets is sorted
        # jagged_dense_bmm.py:44: for tm, tn in hl.tile([offsets[b], 0], [offsets[b + 1], N], max...
        # tm is parallel: each tm writes its own rows of y
        offsets_value = tl.load(offsets_ptr + b)
        tm_begin = tl.maximum(offsets_value, 0)
        offsets_value_1 = tl.load(offsets_ptr + b + 1)
        tm_end = tl.minimum(offsets_value_1, 32768)
        tm_start = tm_begin + tm_id * 128
        tm_at = tm_start + tl.arange(0, 128)
        tm_in = tm_at < tm_end
        # tn is parallel: each tn writes its own columns of y
        tn_start = step % 2 * 256
        tn_at = tn_start + tl.arange(0, 256)
        # jagged_dense_bmm.py:45: acc = torch.zeros([tm, tn], dtype=torch.float32)
        acc = tl.zeros([128, 256], tl.float32)
        # jagged_dense_bmm.py:46: for tk in hl.tile(D):
        # tk is ordered: carries acc, a sum
        for tk_start in tl.range(0, 512, 64, num_stages=4):
            # jagged_dense_bmm.py:47: acc = torch.addmm(acc, x[tm, tk], w[b, tk, tn])
            x_tile = x_boxes.load([tm_start, tk_start])
            w_tile = tl.reshape(w_boxes.load([b, tk_start, tn_start]), [64, 256])
            acc = tl.dot(x_tile, w_tile, acc)
        # jagged_dense_bmm.py:48: y[tm, tn] = (acc + bias[b, tn]).to(y.dtype)
        bias_tile = tl.load(bias_ptr + b * 512 + tn_at)
        tl.store(
            y_ptr + tm_at[:, None] * 512 + tn_at[None, :],
            (acc + bias_tile.to(tl.float32)).to(tl.bfloat16),
            mask=tm_in[:, None],
        )


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Memory that Triton writes descriptors to."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy that begins at a multiple of 16 bytes, as arrays of descriptors do."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def jagged_dense_bmm_bias(
    x: torch.Tensor,
    w: torch.Tensor,
    bias: torch.Tensor,
    offsets: torch.Tensor,
) -> torch.Tensor:
    """y[r] = x[r] @ w[b] + bias[b] for offsets[b] <= r < offsets[b + 1]; other rows are zero."""
    x = _aligned(x)
    w = _aligned(w)
    triton.set_allocator(_scratch)
    y = torch.empty((32768, 512), dtype=torch.bfloat16, device=x.device)
    jagged_dense_bmm_bias_kernel[(132,)](x, w, bias, offsets, y, num_warps=8, num_stages=4)
    return y
