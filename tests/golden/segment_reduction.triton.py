"""segment_reduction for cuda:sm90, blocks tf=128, tm=16."""

import torch
import triton
import triton.language as tl


@triton.jit
def _nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def segment_reduction_kernel(x_ptr, offsets_ptr, sums_ptr, peaks_ptr):
    pid = tl.program_id(0)
    # segment_reduction.py:40: for g in hl.grid(G):
    # g is parallel: each g writes its own rows of sums and peaks
    g = pid // 4
    # segment_reduction.py:41: begin, end = offsets[g], offsets[g + 1]
    begin = tl.load(offsets_ptr + g)
    end = tl.load(offsets_ptr + g + 1)
    # segment_reduction.py:42: for tf in hl.tile(F):
    # tf is parallel: each tf writes its own columns of sums and peaks
    tf_start = pid % 4 * 128
    tf_at = tf_start + tl.arange(0, 128)
    # segment_reduction.py:43: total = jnp.zeros([tf], dtype=jnp.float32)
    total = tl.zeros([128], tl.float32)
    # segment_reduction.py:44: peak = jnp.full([tf], -math.inf, dtype=jnp.float32)
    peak = tl.full([128], float("-inf"), tl.float32)
    # segment_reduction.py:45: for tm in hl.tile(begin, end):
    tm_begin = tl.maximum(begin, 0)
    tm_end = tl.minimum(end, 131072)
    # tm is ordered: carries total, peak
    for tm_start in tl.range(tm_begin, tm_end, 16, num_stages=3):
        tm_at = tm_start + tl.arange(0, 16)
        tm_in = tm_at < tm_end
        # segment_reduction.py:46: rows = x[tm, tf].astype(jnp.float32)
        x_tile = tl.load(
            x_ptr + tm_at[:, None] * 512 + tf_at[None, :],
            mask=tm_in[:, None],
            other=0.0,
        )
        rows = x_tile.to(tl.float32)
        # segment_reduction.py:47: total += jnp.sum(rows, axis=0)
        total = total + tl.sum(rows, axis=0)
        # segment_reduction.py:48: peak = jnp.maximum(peak, jnp.max(rows, axis=0))
        peak = tl.maximum(
            peak,
            tl.reduce(tl.where(tm_in[:, None], rows, float("-inf")), axis=0, combine_fn=_nan_max),
            propagate_nan=tl.PropagateNan.ALL,
        )
    # segment_reduction.py:49: sums[g, tf] = total.astype(sums.dtype)
    tl.store(sums_ptr + g * 512 + tf_at, total.to(tl.bfloat16))
    # segment_reduction.py:50: peaks[g, tf] = jnp.where(begin < end, peak, 0.0).astype(peaks.dtype)
    tl.store(peaks_ptr + g * 512 + tf_at, tl.where(begin < end, peak, 0.0).to(tl.bfloat16))


def segment_reduction(x: torch.Tensor, offsets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum and the maximum of x[offsets[g] : offsets[g + 1]], for every g."""
    sums = torch.empty((512, 512), dtype=torch.bfloat16, device=x.device)
    peaks = torch.empty((512, 512), dtype=torch.bfloat16, device=x.device)
    segment_reduction_kernel[(2048,)](x, offsets, sums, peaks, num_warps=1, num_stages=3)
    return (sums, peaks)
