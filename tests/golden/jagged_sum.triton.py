"""jagged_sum for cuda:sm90, blocks tf=128, tm=16."""

import torch
import triton
import triton.language as tl


@triton.jit
def jagged_sum_kernel(x_ptr, offsets_ptr, y_ptr):
    pid = tl.program_id(0)
    # jagged_sum.py:30: for g in hl.grid(G):
    # g is parallel: each g writes its own rows of y
    g = pid // 4
    # jagged_sum.py:31: for tf in hl.tile(F):
    # tf is parallel: each tf writes its own columns of y
    tf_start = pid % 4 * 128
    tf_at = tf_start + tl.arange(0, 128)
    # jagged_sum.py:32: acc = hl.zeros([tf], dtype=total)
    acc = tl.zeros([128], tl.float32)
    # jagged_sum.py:33: for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=T):
    offsets_value = tl.load(offsets_ptr + g)
    tm_begin = tl.maximum(offsets_value, 0)
    offsets_value_1 = tl.load(offsets_ptr + g + 1)
    tm_end = tl.minimum(offsets_value_1, 131072)
    # tm is ordered: carries acc, a sum
    for tm_start in tl.range(tm_begin, tm_end, 16, num_stages=3):
        tm_at = tm_start + tl.arange(0, 16)
        tm_in = tm_at < tm_end
        # jagged_sum.py:34: acc += x[tm, tf].to(total).sum(0)
        x_tile = tl.load(
            x_ptr + tm_at[:, None] * 512 + tf_at[None, :],
            mask=tm_in[:, None],
            other=0.0,
        )
        acc = acc + tl.sum(x_tile.to(tl.float32), axis=0)
    # jagged_sum.py:35: y[g, tf] = acc.to(y.dtype)
    tl.store(y_ptr + g * 512 + tf_at, acc.to(tl.bfloat16))


def jagged_sum(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """y[g] = the sum of x[offsets[g] : offsets[g + 1]]."""
    y = torch.empty((512, 512), dtype=torch.bfloat16, device=x.device)
    jagged_sum_kernel[(2048,)](x, offsets, y, num_warps=1, num_stages=3)
    return y
