"""grouped_query_attention for cuda:sm90, blocks tk=64, tq=64."""

import torch
import triton
import triton.language as tl


@triton.jit
def _nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def grouped_query_attention_kernel(q_ptr, k_ptr, v_ptr, offsets_ptr, out_ptr):
    groups = tl.arange(0, 32)
    at128 = tl.arange(0, 128)
    pid = tl.program_id(0)
    # grouped_query_attention.py:39: out = hl.zeros([H, T, D], dtype=v.dtype)
    first = tl.load(offsets_ptr)
    last_1 = tl.load(offsets_ptr + 32)
    # row is parallel: each row writes its own slices of out
    for row_start in tl.range(pid * 16, 16384, 147456):
        row_at = row_start + tl.arange(0, 16)
        outside = (row_start < first) | (row_start + 16 > last_1)
        ranges = tl.where(outside, 32, 0)
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
        outers = tl.where(outside, 32, 0)
        columns = tl.where(outside, 128, 0)
        # outer is parallel: each outer writes its own rows of out
        for outer in tl.range(0, outers):
            # column is parallel: each column writes its own slices of out
            for column_start in tl.range(0, columns, 64):
                column_at = column_start + tl.arange(0, 64)
                tl.store(
                    out_ptr + outer * 2097152 + row_at[:, None] * 128 + column_at[None, :],
                    tl.zeros([16, 64], tl.bfloat16),
                    mask=(seen == 0)[:, None],
                )
    # grouped_query_attention.py:41: begin, end = offsets[b], offsets[b + 1]
    offsets_tile = tl.load(offsets_ptr + groups)
    offsets_tile_1 = tl.load(offsets_ptr + groups + 1)
    tq_begins = tl.maximum(offsets_tile, 0)
    tq_ends = tl.minimum(offsets_tile_1, 16384)
    tile_counts = (tl.maximum(tq_ends, tq_begins) - tq_begins + 63) // 64
    tile_ends = tl.cumsum(tile_counts, axis=0)
    item_count = tl.sum(tile_counts, axis=0)
    for step in tl.range(pid, item_count * 32, 9216):
        h = step // item_count
        item = step % item_count
        before = tile_ends <= item
        b = tl.sum(before.to(tl.int32), axis=0)
        tq_id = item - tl.sum(tl.where(before, tile_counts, 0), axis=0)
        # grouped_query_attention.py:40: for h, b in hl.grid([H, offsets.shape[0] - 1]):
        # h is parallel: each h writes its own rows of out
        # b is parallel: out slices of different b are disjoint because offsets is sorted
        # grouped_query_attention.py:41: begin, end = offsets[b], offsets[b + 1]
        begin = tl.load(offsets_ptr + b)
        end = tl.load(offsets_ptr + b + 1)
        # grouped_query_attention.py:42: for tq in hl.tile(begin, end):
        # tq is parallel: each tq writes its own slices of out
        tq_begin = tl.maximum(begin, 0)
        tq_end = tl.minimum(end, 16384)
        tq_start = tq_begin + tq_id * 64
        tq_at = tq_start + tl.arange(0, 64)
        tq_in = tq_at < tq_end
        # grouped_query_attention.py:43: m = hl.full([tq], -math.inf, dtype=hl.float32)
        m = tl.full([64], float("-inf"), tl.float32)
        # grouped_query_attention.py:44: total = hl.zeros([tq], dtype=hl.float32)
        total = tl.zeros([64], tl.float32)
        # grouped_query_attention.py:45: acc = hl.zeros([tq, D], dtype=hl.float32)
        acc = tl.zeros([64, 128], tl.float32)
        # grouped_query_attention.py:46: last = min(end, tq.end) if causal else end
        last = tl.minimum(end, tl.minimum(tq_start + 64, tq_end))
        # grouped_query_attention.py:47: for tk in hl.tile(begin, last):
        tk_whole = (
            tq_begin + (tl.maximum(tl.minimum(last, tq_start + 1), tq_begin) - tq_begin) // 64 * 64
        )
        # tk is ordered: carries total, acc, m
        # whole tiles: no mask along tk
        for tk_start in tl.range(tq_begin, tk_whole, 64, num_stages=3):
            tk_at = tk_start + tl.arange(0, 64)
            # grouped_query_attention.py:48: scores = hl.dot(q[h, tq, :], k[h // share, tk, :].T)...
            q_tile = tl.load(
                q_ptr + h * 2097152 + tq_at[:, None] * 128 + at128[None, :],
                mask=tq_in[:, None],
                other=0.0,
            )
            k_tile = tl.load(k_ptr + h // 4 * 2097152 + tk_at[:, None] * 128 + at128[None, :])
            scores = tl.dot(q_tile, k_tile.T)
            # grouped_query_attention.py:51: m_new = hl.maximum(m, scores.amax(-1))
            m_new = tl.maximum(
                m,
                tl.reduce(scores, axis=1, combine_fn=_nan_max) * 0.12751743082459868,
                propagate_nan=tl.PropagateNan.ALL,
            )
            # grouped_query_attention.py:52: alpha = hl.exp(m - m_new)
            alpha = tl.exp2(m - m_new)
            # grouped_query_attention.py:53: p = hl.exp(scores - m_new[:, None])
            p = tl.exp2(scores * 0.12751743082459868 - m_new[:, None])
            # grouped_query_attention.py:54: total = total * alpha + p.sum(-1)
            total = total * alpha + tl.sum(p, axis=1)
            # grouped_query_attention.py:55: acc = hl.dot(p.to(v.dtype), v[h // share, tk, :], ac...
            v_tile = tl.load(v_ptr + h // 4 * 2097152 + tk_at[:, None] * 128 + at128[None, :])
            acc = tl.dot(p.to(tl.bfloat16), v_tile, acc * alpha[:, None])
            m = m_new
        # grouped_query_attention.py:47: for tk in hl.tile(begin, last):
        # the other tiles, masked along tk
        for tk_start in tl.range(tk_whole, last, 64, num_stages=3):
            tk_at = tk_start + tl.arange(0, 64)
            tk_in = tk_at < last
            # grouped_query_attention.py:48: scores = hl.dot(q[h, tq, :], k[h // share, tk, :].T)...
            q_tile = tl.load(
                q_ptr + h * 2097152 + tq_at[:, None] * 128 + at128[None, :],
                mask=tq_in[:, None],
                other=0.0,
            )
            k_tile = tl.load(
                k_ptr + h // 4 * 2097152 + tk_at[:, None] * 128 + at128[None, :],
                mask=tk_in[:, None],
                other=0.0,
            )
            scores = tl.dot(q_tile, k_tile.T)
            # grouped_query_attention.py:50: scores = hl.where(tk.index[None, :] <= tq.index[:, N...
            scores_1 = tl.where((tk_at[None, :] <= tq_at[:, None]) & tk_in, scores, float("-inf"))
            # grouped_query_attention.py:51: m_new = hl.maximum(m, scores.amax(-1))
            m_new = tl.maximum(
                m,
                tl.reduce(scores_1, axis=1, combine_fn=_nan_max) * 0.12751743082459868,
                propagate_nan=tl.PropagateNan.ALL,
            )
            # grouped_query_attention.py:52: alpha = hl.exp(m - m_new)
            alpha = tl.exp2(m - m_new)
            # grouped_query_attention.py:53: p = hl.exp(scores - m_new[:, None])
            p = tl.exp2(scores_1 * 0.12751743082459868 - m_new[:, None])
            # grouped_query_attention.py:54: total = total * alpha + p.sum(-1)
            total = total * alpha + tl.sum(p, axis=1)
            # grouped_query_attention.py:55: acc = hl.dot(p.to(v.dtype), v[h // share, tk, :], ac...
            v_tile = tl.load(
                v_ptr + h // 4 * 2097152 + tk_at[:, None] * 128 + at128[None, :],
                mask=tk_in[:, None],
                other=0.0,
            )
            acc = tl.dot(p.to(tl.bfloat16), v_tile, acc * alpha[:, None])
            m = m_new
        # grouped_query_attention.py:57: out[h, tq, :] = (acc / total[:, None]).to(out.dtype)
        tl.store(
            out_ptr + h * 2097152 + tq_at[:, None] * 128 + at128[None, :],
            (acc / total[:, None]).to(tl.bfloat16),
            mask=tq_in[:, None],
        )


def grouped_query_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    offsets: torch.Tensor,
) -> torch.Tensor:
    """out[h, r] = softmax(q[h, r] k[h // share]^T / sqrt(D)) v[h // share] within r's seque..."""
    out = torch.empty((32, 16384, 128), dtype=torch.bfloat16, device=q.device)
    grouped_query_attention_kernel[(9216,)](q, k, v, offsets, out, num_warps=4, num_stages=3)
    return out
