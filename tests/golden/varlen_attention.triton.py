"""varlen_attention for cuda:sm90, blocks tk=32, tq=64."""

import torch
import triton
import triton.language as tl


@triton.jit
def _nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def varlen_attention_kernel(q_ptr, k_ptr, v_ptr, offsets_ptr, out_ptr):
    groups = tl.arange(0, 256)
    at64 = tl.arange(0, 64)
    pid = tl.program_id(0)
    # varlen_attention.py:49: out = jnp.zeros([T, H, D], dtype=q.dtype)
    first = tl.load(offsets_ptr)
    last_1 = tl.load(offsets_ptr + 256)
    # row is parallel: each row writes its own rows of out
    for row_start in tl.range(pid * 16, 65536, 327680):
        row_at = row_start + tl.arange(0, 16)
        outside = (row_start < first) | (row_start + 16 > last_1)
        ranges = tl.where(outside, 256, 0)
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
        outers = tl.where(outside, 16, 0)
        columns = tl.where(outside, 64, 0)
        # outer is parallel: each outer writes its own slices of out
        for outer in tl.range(0, outers):
            # column is parallel: each column writes its own slices of out
            for column_start in tl.range(0, columns, 64):
                column_at = column_start + tl.arange(0, 64)
                tl.store(
                    out_ptr + row_at[:, None] * 1024 + outer * 64 + column_at[None, :],
                    tl.zeros([16, 64], tl.bfloat16),
                    mask=(seen == 0)[:, None],
                )
    # varlen_attention.py:51: begin, end = offsets[b], offsets[b + 1]
    offsets_tile = tl.load(offsets_ptr + groups)
    offsets_tile_1 = tl.load(offsets_ptr + groups + 1)
    tq_begins = tl.maximum(offsets_tile, 0)
    tq_ends = tl.minimum(offsets_tile_1, 65536)
    tile_counts = (tl.maximum(tq_ends, tq_begins) - tq_begins + 63) // 64
    tile_ends = tl.cumsum(tile_counts, axis=0)
    item_count = tl.sum(tile_counts, axis=0)
    for step in tl.range(pid, item_count * 16, 20480):
        h = step // item_count
        item = step % item_count
        before = tile_ends <= item
        b = tl.sum(before.to(tl.int32), axis=0)
        tq_id = item - tl.sum(tl.where(before, tile_counts, 0), axis=0)
        # varlen_attention.py:50: for h, b in hl.grid([H, offsets.shape[0] - 1]):
        # h is parallel: each h writes its own slices of out
        # b is parallel: out rows of different b are disjoint because offsets is sorted
        # varlen_attention.py:51: begin, end = offsets[b], offsets[b + 1]
        begin = tl.load(offsets_ptr + b)
        end = tl.load(offsets_ptr + b + 1)
        # varlen_attention.py:52: for tq in hl.tile(begin, end, max_extent=longest):
        # tq is parallel: each tq writes its own rows of out
        tq_begin = tl.maximum(begin, 0)
        tq_end = tl.minimum(end, 65536)
        tq_start = tq_begin + tq_id * 64
        tq_at = tq_start + tl.arange(0, 64)
        tq_in = tq_at < tq_end
        # varlen_attention.py:53: m = jnp.full([tq], -math.inf, dtype=jnp.float32)
        m = tl.full([64], float("-inf"), tl.float32)
        # varlen_attention.py:54: total = jnp.zeros([tq], dtype=jnp.float32)
        total = tl.zeros([64], tl.float32)
        # varlen_attention.py:55: acc = jnp.zeros([tq, D], dtype=jnp.float32)
        acc = tl.zeros([64, 64], tl.float32)
        # varlen_attention.py:56: last = min(end, tq.end) if causal else end
        last = tl.minimum(end, tl.minimum(tq_start + 64, tq_end))
        # varlen_attention.py:57: for tk in hl.tile(begin, last, max_extent=longest):
        tk_whole = (
            tq_begin + (tl.maximum(tl.minimum(last, tq_start + 1), tq_begin) - tq_begin) // 32 * 32
        )
        # tk is ordered: carries total, acc, m
        # whole tiles: no mask along tk
        for tk_start in tl.range(tq_begin, tk_whole, 32, num_stages=3):
            tk_at = tk_start + tl.arange(0, 32)
            # varlen_attention.py:58: keys, values = k[tk, h // share, :], v[tk, h // share, :]
            keys = tl.load(k_ptr + tk_at[:, None] * 512 + h // 2 * 64 + at64[None, :])
            values = tl.load(v_ptr + tk_at[:, None] * 512 + h // 2 * 64 + at64[None, :])
            # varlen_attention.py:59: scores = jnp.dot(q[tq, h, :], keys.T, preferred_element_typ...
            q_tile = tl.load(
                q_ptr + tq_at[:, None] * 1024 + h * 64 + at64[None, :],
                mask=tq_in[:, None],
                other=0.0,
            )
            scores = tl.dot(q_tile, keys.T)
            # varlen_attention.py:62: m_new = jnp.maximum(m, scores.max(axis=-1))
            m_new = tl.maximum(
                m,
                tl.reduce(scores, axis=1, combine_fn=_nan_max) * 0.18033688011112042,
                propagate_nan=tl.PropagateNan.ALL,
            )
            # varlen_attention.py:63: alpha = jnp.exp(m - m_new)
            alpha = tl.exp2(m - m_new)
            # varlen_attention.py:64: p = jnp.exp(scores - m_new[:, None])
            p = tl.exp2(scores * 0.18033688011112042 - m_new[:, None])
            # varlen_attention.py:65: total = total * alpha + p.sum(axis=-1)
            total = total * alpha + tl.sum(p, axis=1)
            # varlen_attention.py:66: new = jnp.dot(p.astype(v.dtype), values, preferred_element_...
            new = tl.dot(p.to(tl.bfloat16), values)
            # varlen_attention.py:67: acc = acc * alpha[:, None] + new
            acc = acc * alpha[:, None] + new
            m = m_new
        # varlen_attention.py:57: for tk in hl.tile(begin, last, max_extent=longest):
        # the other tiles, masked along tk
        for tk_start in tl.range(tk_whole, last, 32, num_stages=3):
            tk_at = tk_start + tl.arange(0, 32)
            tk_in = tk_at < last
            # varlen_attention.py:58: keys, values = k[tk, h // share, :], v[tk, h // share, :]
            keys = tl.load(
                k_ptr + tk_at[:, None] * 512 + h // 2 * 64 + at64[None, :],
                mask=tk_in[:, None],
                other=0.0,
            )
            values = tl.load(
                v_ptr + tk_at[:, None] * 512 + h // 2 * 64 + at64[None, :],
                mask=tk_in[:, None],
                other=0.0,
            )
            # varlen_attention.py:59: scores = jnp.dot(q[tq, h, :], keys.T, preferred_element_typ...
            q_tile = tl.load(
                q_ptr + tq_at[:, None] * 1024 + h * 64 + at64[None, :],
                mask=tq_in[:, None],
                other=0.0,
            )
            scores = tl.dot(q_tile, keys.T)
            # varlen_attention.py:61: scores = jnp.where(tk.index[None, :] <= tq.index[:, None], ...
            scores_1 = tl.where((tk_at[None, :] <= tq_at[:, None]) & tk_in, scores, float("-inf"))
            # varlen_attention.py:62: m_new = jnp.maximum(m, scores.max(axis=-1))
            m_new = tl.maximum(
                m,
                tl.reduce(scores_1, axis=1, combine_fn=_nan_max) * 0.18033688011112042,
                propagate_nan=tl.PropagateNan.ALL,
            )
            # varlen_attention.py:63: alpha = jnp.exp(m - m_new)
            alpha = tl.exp2(m - m_new)
            # varlen_attention.py:64: p = jnp.exp(scores - m_new[:, None])
            p = tl.exp2(scores_1 * 0.18033688011112042 - m_new[:, None])
            # varlen_attention.py:65: total = total * alpha + p.sum(axis=-1)
            total = total * alpha + tl.sum(p, axis=1)
            # varlen_attention.py:66: new = jnp.dot(p.astype(v.dtype), values, preferred_element_...
            new = tl.dot(p.to(tl.bfloat16), values)
            # varlen_attention.py:67: acc = acc * alpha[:, None] + new
            acc = acc * alpha[:, None] + new
            m = m_new
        # varlen_attention.py:69: out[tq, h, :] = (acc / total[:, None]).astype(out.dtype)
        tl.store(
            out_ptr + tq_at[:, None] * 1024 + h * 64 + at64[None, :],
            (acc / total[:, None]).to(tl.bfloat16),
            mask=tq_in[:, None],
        )


def varlen_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    offsets: torch.Tensor,
) -> torch.Tensor:
    """out[r, h] = the mean of v over r's sequence, weighted by softmax(q[r, h] k^T / sqrt(D))."""
    out = torch.empty((65536, 16, 64), dtype=torch.bfloat16, device=q.device)
    varlen_attention_kernel[(20480,)](q, k, v, offsets, out, num_warps=4, num_stages=3)
    return out
