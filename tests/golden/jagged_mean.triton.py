"""jagged_mean for cuda:sm90, blocks tf=128, tm=16."""

import torch
import triton
import triton.language as tl


@triton.jit
def jagged_mean_kernel(x_ptr, offsets_ptr, y_ptr):
    pid = tl.program_id(0)
    # jagged_mean.py:23: for g in hl.grid(G):
    # g is parallel: each g writes its own rows of y
    g = pid // 4
    # jagged_mean.py:24: begin, end = offsets[g], offsets[g + 1]
    begin = tl.load(offsets_ptr + g)
    end = tl.load(offsets_ptr + g + 1)
    # jagged_mean.py:25: for tf in hl.tile(F):
    # tf is parallel: each tf writes its own columns of y
    tf_start = pid % 4 * 128
    tf_at = tf_start + tl.arange(0, 128)
    # jagged_mean.py:26: total = jnp.zeros([tf], dtype=jnp.float32)
    total = tl.zeros([128], tl.float32)
    # jagged_mean.py:27: for tm in hl.tile(begin, end, max_extent=T):
    tm_begin = tl.maximum(begin, 0)
    tm_end = tl.minimum(end, 131072)
    # tm is ordered: carries total, a sum
    for tm_start in tl.range(tm_begin, tm_end, 16, num_stages=3):
        tm_at = tm_start + tl.arange(0, 16)
        tm_in = tm_at < tm_end
        # jagged_mean.py:28: total += jnp.sum(x[tm, tf].astype(jnp.float32), axis=0)
        x_tile = tl.load(
            x_ptr + tm_at[:, None] * 512 + tf_at[None, :],
            mask=tm_in[:, None],
            other=0.0,
        )
        total = total + tl.sum(x_tile.to(tl.float32), axis=0)
    # jagged_mean.py:29: count = jnp.maximum(end - begin, 1)
    count = tl.maximum(end - begin, 1)
    # jagged_mean.py:30: y[g, tf] = (total / count.astype(jnp.float32)).astype(y.dtype)
    tl.store(y_ptr + g * 512 + tf_at, (total / count.to(tl.float32)).to(tl.bfloat16))


def jagged_mean(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """y[g] = the mean of x[offsets[g] : offsets[g + 1]], 0 if there are no such rows."""
    y = torch.empty((512, 512), dtype=torch.bfloat16, device=x.device)
    jagged_mean_kernel[(2048,)](x, offsets, y, num_warps=1, num_stages=3)
    return y
