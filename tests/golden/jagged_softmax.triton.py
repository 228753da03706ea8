"""jagged_softmax for cuda:sm90, blocks tf=32, tm=128, tm_1=128."""

import torch
import triton
import triton.language as tl


@triton.jit
def _nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def jagged_softmax_kernel(x_ptr, offsets_ptr, y_ptr):
    pid = tl.program_id(0)
    # jagged_softmax.py:38: y = hl.zeros([T, F], dtype=x.dtype)
    first = tl.load(offsets_ptr)
    last = tl.load(offsets_ptr + 512)
    # row is parallel: each row writes its own rows of y
    for row_start in tl.range(pid * 16, 131072, 131072):
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
    # jagged_softmax.py:39: for g in hl.grid(offsets.shape[0] - 1):
    # g is parallel: y rows of different g are disjoint because offsets is sorted
    g = pid // 16
    # jagged_softmax.py:40: begin, end = offsets[g], offsets[g + 1]
    begin = tl.load(offsets_ptr + g)
    end = tl.load(offsets_ptr + g + 1)
    # jagged_softmax.py:41: for tf in hl.tile(F):
    # tf is parallel: each tf writes its own columns of y
    tf_start = pid % 16 * 32
    tf_at = tf_start + tl.arange(0, 32)
    # jagged_softmax.py:42: m = hl.full([tf], -math.inf, dtype=hl.float32)
    m = tl.full([32], float("-inf"), tl.float32)
    # jagged_softmax.py:43: total = hl.zeros([tf], dtype=hl.float32)
    total = tl.zeros([32], tl.float32)
    # jagged_softmax.py:44: for tm in hl.tile(begin, end):
    tm_begin = tl.maximum(begin, 0)
    tm_end = tl.minimum(end, 131072)
    # tm is ordered: carries total, m
    for tm_start in tl.range(tm_begin, tm_end, 128):
        tm_at = tm_start + tl.arange(0, 128)
        tm_in = tm_at < tm_end
        # jagged_softmax.py:45: rows = x[tm, tf].to(hl.float32)
        x_tile = tl.load(
            x_ptr + tm_at[:, None] * 512 + tf_at[None, :],
            mask=tm_in[:, None],
            other=float("-inf"),
        )
        rows = x_tile.to(tl.float32)
        # jagged_softmax.py:46: new = hl.maximum(m, rows.amax(0))
        new = tl.maximum(
            m,
            tl.reduce(rows, axis=0, combine_fn=_nan_max),
            propagate_nan=tl.PropagateNan.ALL,
        )
        # jagged_softmax.py:47: total = total * hl.exp(m - new) + hl.exp(rows - new[None, :]).sum(0)
        total = total * tl.exp(m - new) + tl.sum(tl.exp(rows - new[None, :]), axis=0)
        m = new
    # jagged_softmax.py:49: for tm in hl.tile(begin, end):
    # tm is parallel: each tm writes its own rows of y
    for tm_1_start in tl.range(tm_begin, tm_end, 128):
        tm_1_at = tm_1_start + tl.arange(0, 128)
        tm_1_in = tm_1_at < tm_end
        # jagged_softmax.py:50: rows = x[tm, tf].to(hl.float32)
        x_tile_1 = tl.load(
            x_ptr + tm_1_at[:, None] * 512 + tf_at[None, :],
            mask=tm_1_in[:, None],
            other=0.0,
        )
        rows_1 = x_tile_1.to(tl.float32)
        # jagged_softmax.py:51: y[tm, tf] = (hl.exp(rows - m[None, :]) / total[None, :]).to(y.dtype)
        tl.store(
            y_ptr + tm_1_at[:, None] * 512 + tf_at[None, :],
            (tl.exp(rows_1 - m[None, :]) / total[None, :]).to(tl.bfloat16),
            mask=tm_1_in[:, None],
        )


def jagged_softmax(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """y[r, f] = exp(x[r, f]) / sum of exp(x[s, f]) over the rows s of r's group."""
    y = torch.empty((131072, 512), dtype=torch.bfloat16, device=x.device)
    jagged_softmax_kernel[(8192,)](x, offsets, y, num_warps=4, num_stages=1)
    return y
