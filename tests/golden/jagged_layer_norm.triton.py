"""jagged_layer_norm for cuda:sm90, blocks tm=32, tm_1=32, tm_2=32."""

import torch
import triton
import triton.language as tl


@triton.jit
def jagged_layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, offsets_ptr, y_ptr):
    at512 = tl.arange(0, 512)
    pid = tl.program_id(0)
    # jagged_layer_norm.py:40: y = jnp.zeros([T, F], dtype=x.dtype)
    first = tl.load(offsets_ptr)
    last = tl.load(offsets_ptr + 512)
    # row is parallel: each row writes its own rows of y
    for row_start in tl.range(pid * 16, 131072, 8192):
        row_at = row_start + tl.arange(0, 16)
        outside = (row_start < first) | (row_start + 16 > last)
        ranges = tl.where(outside, 512, 0)
        # group is ordered: carries seen, a maximum
        seen = tl.zeros([16], tl.int32)
        for group_start in tl.range(0, ranges, 32):
            group_at = group_start + tl.arange(0, 32)
            offsets_tile = tl.load(offsets_ptr + group_at)
            offsets_tile_1 = tl.load(offsets_ptr + group_at + 1)
            seen = tl.maximum(
                seen,
                tl.max(
                    (
                        (offsets_tile[None, :] <= row_at[:, None])
                        & (row_at[:, None] < offsets_tile_1[None, :])
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
    # jagged_layer_norm.py:41: for g in hl.grid(offsets.shape[0] - 1):
    # g is parallel: y rows of different g are disjoint because offsets is sorted
    # jagged_layer_norm.py:42: begin, end = offsets[g], offsets[g + 1]
    begin = tl.load(offsets_ptr + pid)
    end = tl.load(offsets_ptr + pid + 1)
    # jagged_layer_norm.py:43: count = jnp.maximum(end - begin, 1).astype(jnp.float32) * F
    count = tl.maximum(end - begin, 1).to(tl.float32) * 512.0
    # jagged_layer_norm.py:45: for tm in hl.tile(begin, end):
    tm_begin = tl.maximum(begin, 0)
    tm_end = tl.minimum(end, 131072)
    # tm is ordered: carries total, a sum
    total = tl.full([], 0.0, tl.float32)
    for tm_start in tl.range(tm_begin, tm_end, 32):
        tm_at = tm_start + tl.arange(0, 32)
        tm_in = tm_at < tm_end
        # jagged_layer_norm.py:46: total += jnp.sum(x[tm, :].astype(jnp.float32))
        x_tile = tl.load(
            x_ptr + tm_at[:, None] * 512 + at512[None, :],
            mask=tm_in[:, None],
            other=0.0,
        )
        total = total + tl.sum(tl.sum(x_tile.to(tl.float32), axis=1), axis=0)
    # jagged_layer_norm.py:47: mean = total / count
    mean = total / count
    # jagged_layer_norm.py:49: for tm in hl.tile(begin, end):
    # tm is ordered: carries squares, a sum
    squares = tl.full([], 0.0, tl.float32)
    for tm_1_start in tl.range(tm_begin, tm_end, 32):
        tm_1_at = tm_1_start + tl.arange(0, 32)
        tm_1_in = tm_1_at < tm_end
        # jagged_layer_norm.py:50: centred = x[tm, :].astype(jnp.float32) - mean
        x_tile_1 = tl.load(
            x_ptr + tm_1_at[:, None] * 512 + at512[None, :],
            mask=tm_1_in[:, None],
            other=0.0,
        )
        centred = x_tile_1.to(tl.float32) - mean
        # jagged_layer_norm.py:51: squares += jnp.sum(centred * centred)
        squares = (
            squares + tl.sum(tl.where(tm_1_in, tl.sum(centred * centred, axis=1), 0.0), axis=0)
        )
    # jagged_layer_norm.py:52: scale = jax.lax.rsqrt(squares / count + eps)
    scale = tl.rsqrt(squares / count + 1e-05)
    # jagged_layer_norm.py:55: y[tm, :] = (normal * weight[:] + bias[:]).astype(y.dtype)
    weight_tile = tl.load(weight_ptr + at512)
    bias_tile = tl.load(bias_ptr + at512)
    # jagged_layer_norm.py:53: for tm in hl.tile(begin, end):
    # tm is parallel: each tm writes its own rows of y
    for tm_2_start in tl.range(tm_begin, tm_end, 32):
        tm_2_at = tm_2_start + tl.arange(0, 32)
        tm_2_in = tm_2_at < tm_end
        # jagged_layer_norm.py:54: normal = (x[tm, :].astype(jnp.float32) - mean) * scale
        x_tile_2 = tl.load(
            x_ptr + tm_2_at[:, None] * 512 + at512[None, :],
            mask=tm_2_in[:, None],
            other=0.0,
        )
        normal = (x_tile_2.to(tl.float32) - mean) * scale
        # jagged_layer_norm.py:55: y[tm, :] = (normal * weight[:] + bias[:]).astype(y.dtype)
        tl.store(
            y_ptr + tm_2_at[:, None] * 512 + at512[None, :],
            (normal * weight_tile.to(tl.float32) + bias_tile.to(tl.float32)).to(tl.bfloat16),
            mask=tm_2_in[:, None],
        )


def jagged_layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    offsets: torch.Tensor,
) -> torch.Tensor:
    """y[r] = (x[r] - mean of r's group) / sqrt(variance of r's group + eps) * weight + bias."""
    y = torch.empty((131072, 512), dtype=torch.bfloat16, device=x.device)
    jagged_layer_norm_kernel[(512,)](x, weight, bias, offsets, y, num_warps=8, num_stages=1)
    return y
