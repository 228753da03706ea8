"""grouped_gemm_gated for cuda:sm90, blocks tk=64, tm=128, tn=128."""

import torch
import triton
import triton.language as tl


@triton.jit
def _silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def grouped_gemm_gated_kernel(x_ptr, w_ptr, v_ptr, offsets_ptr, y_ptr):
    groups = tl.arange(0, 64)
    pid = tl.program_id(0)
    # grouped_gemm_bias_activation.py:64: y = jnp.zeros([M, N], dtype=x.dtype)
    first = tl.load(offsets_ptr)
    last = tl.load(offsets_ptr + 64)
    # row is parallel: each row writes its own rows of y
    for row_start in tl.range(pid * 16, 16384, 49152):
        row_at = row_start + tl.arange(0, 16)
        outside = (row_start < first) | (row_start + 16 > last)
        ranges = tl.where(outside, 64, 0)
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
        columns = tl.where(outside, 2048, 0)
        # column is parallel: each column writes its own columns of y
        for column_start in tl.range(0, columns, 64):
            column_at = column_start + tl.arange(0, 64)
            tl.store(
                y_ptr + row_at[:, None] * 2048 + column_at[None, :],
                tl.zeros([16, 64], tl.bfloat16),
                mask=(seen == 0)[:, None],
            )
    # grouped_gemm_bias_activation.py:66: for tm, tn in hl.tile([offsets[g], 0], [offsets[g + 1],...
    offsets_tile = tl.load(offsets_ptr + groups)
    offsets_tile_1 = tl.load(offsets_ptr + groups + 1)
    tm_begins = tl.maximum(offsets_tile, 0)
    tm_ends = tl.minimum(offsets_tile_1, 16384)
    tile_counts = (tl.maximum(tm_ends, tm_begins) - tm_begins + 127) // 128
    tile_ends = tl.cumsum(tile_counts, axis=0)
    item_count = tl.sum(tile_counts, axis=0)
    # grouped_gemm_bias_activation.py:70: rows = x[tm, tk]
    # x, up to the array's end
    x_boxes = tl.make_tensor_descriptor(x_ptr, [16384, 4096], [4096, 1], [128, 64])
    # grouped_gemm_bias_activation.py:71: gate += jnp.dot(rows, w[g, tk, tn], preferred_element_t...
    # w, up to the array's end
    w_boxes = tl.make_tensor_descriptor(w_ptr, [64, 4096, 2048], [8388608, 2048, 1], [1, 64, 128])
    # grouped_gemm_bias_activation.py:72: value += jnp.dot(rows, v[g, tk, tn], preferred_element_...
    # v, up to the array's end
    v_boxes = tl.make_tensor_descriptor(v_ptr, [64, 4096, 2048], [8388608, 2048, 1], [1, 64, 128])
    for step in tl.range(pid, item_count * 16, 3072):
        item = step // 16
        before = tile_ends <= item
        g = tl.sum(before.to(tl.int32), axis=0)
        tm_id = item - tl.sum(tl.where(before, tile_counts, 0), axis=0)
        # grouped_gemm_bias_activation.py:65: for g in hl.grid(G):
        # g is parallel: y rows of different g are disjoint because offsets is sorted
        # grouped_gemm_bias_activation.py:66: for tm, tn in hl.tile([offsets[g], 0], [offsets[g +...
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
        # grouped_gemm_bias_activation.py:67: gate = jnp.zeros([tm, tn], dtype=jnp.float32)
        gate = tl.zeros([128, 128], tl.float32)
        # grouped_gemm_bias_activation.py:68: value = jnp.zeros([tm, tn], dtype=jnp.float32)
        value = tl.zeros([128, 128], tl.float32)
        # grouped_gemm_bias_activation.py:69: for tk in hl.tile(K):
        # tk is ordered: carries gate, value, sums
        for tk_start in tl.range(0, 4096, 64, num_stages=3):
            # grouped_gemm_bias_activation.py:70: rows = x[tm, tk]
            rows = x_boxes.load([tm_start, tk_start])
            # grouped_gemm_bias_activation.py:71: gate += jnp.dot(rows, w[g, tk, tn], preferred_e...
            w_tile = tl.reshape(w_boxes.load([g, tk_start, tn_start]), [64, 128])
            gate = tl.dot(rows, w_tile, gate)
            # grouped_gemm_bias_activation.py:72: value += jnp.dot(rows, v[g, tk, tn], preferred_...
            v_tile = tl.reshape(v_boxes.load([g, tk_start, tn_start]), [64, 128])
            value = tl.dot(rows, v_tile, value)
        # grouped_gemm_bias_activation.py:73: y[tm, tn] = (activation(gate) * value).astype(y.dtype)
        tl.store(
            y_ptr + tm_at[:, None] * 2048 + tn_at[None, :],
            (_silu(gate) * value).to(tl.bfloat16),
            mask=tm_in[:, None],
        )


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Memory that Triton writes descriptors to."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def _aligned(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy that begins at a multiple of 16 bytes, as arrays of descriptors do."""
    return tensor if tensor.data_ptr() % 16 == 0 else tensor.clone()


def grouped_gemm_gated(
    x: torch.Tensor,
    w: torch.Tensor,
    v: torch.Tensor,
    offsets: torch.Tensor,
) -> torch.Tensor:
    """y[r] = activation(x[r] @ w[g]) * (x[r] @ v[g]); rows in no group are zero."""
    x = _aligned(x)
    w = _aligned(w)
    v = _aligned(v)
    triton.set_allocator(_scratch)
    y = torch.empty((16384, 2048), dtype=torch.bfloat16, device=x.device)
    grouped_gemm_gated_kernel[(3072,)](x, w, v, offsets, y, num_warps=8, num_stages=3)
    return y
