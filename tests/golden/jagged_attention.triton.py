"""jagged_attention for cuda:sm90, blocks tk=64, tq=64."""

import torch
import triton
import triton.language as tl


@triton.jit
def _nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def jagged_attention_kernel(q_ptr, k_ptr, v_ptr, offsets_ptr, out_ptr):
    groups = tl.arange(0, 32)
    at128 = tl.arange(0, 128)
    pid = tl.program_id(0)
    # jagged_attention.py:72: out = hl.zeros([H, T, v.shape[2]], dtype=v.dtype)
    first = tl.load(offsets_ptr)
    last = tl.load(offsets_ptr + 32)
    # row is parallel: each row writes its own slices of out
    for row_start in tl.range(pid * 16, 16384, 73728):
        row_at = row_start + tl.arange(0, 16)
        outside = (row_start < first) | (row_start + 16 > last)
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
        outers = tl.where(outside, 16, 0)
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
    # jagged_attention.py:74: begin, end = offsets[b], offsets[b + 1]
    offsets_tile = tl.load(offsets_ptr + groups)
    offsets_tile_1 = tl.load(offsets_ptr + groups + 1)
    tq_begins = tl.maximum(offsets_tile, 0)
    tq_ends = tl.minimum(offsets_tile_1, 16384)
    tile_counts = (tl.maximum(tq_ends, tq_begins) - tq_begins + 63) // 64
    tile_ends = tl.cumsum(tile_counts, axis=0)
    item_count = tl.sum(tile_counts, axis=0)
    for step in tl.range(pid, item_count * 16, 4608):
        h = step // item_count
        item = step % item_count
        before = tile_ends <= item
        b = tl.sum(before.to(tl.int32), axis=0)
        tq_id = item - tl.sum(tl.where(before, tile_counts, 0), axis=0)
        # jagged_attention.py:73: for h, b in hl.grid([H, B]):
        # h is parallel: each h writes its own rows of out
        # b is parallel: out slices of different b are disjoint because offsets is sorted
        # jagged_attention.py:74: begin, end = offsets[b], offsets[b + 1]
        begin = tl.load(offsets_ptr + b)
        end = tl.load(offsets_ptr + b + 1)
        # jagged_attention.py:75: for tq in hl.tile(begin, end, max_extent=longest):
        # tq is parallel: each tq writes its own slices of out
        tq_begin = tl.maximum(begin, 0)
        tq_end = tl.minimum(end, 16384)
        tq_start = tq_begin + tq_id * 64
        tq_at = tq_start + tl.arange(0, 64)
        tq_in = tq_at < tq_end
        # jagged_attention.py:76: m = hl.full([tq], -math.inf, dtype=hl.float32)
        m = tl.full([64], float("-inf"), tl.float32)
        # jagged_attention.py:77: total = hl.zeros([tq], dtype=hl.float32)
        total = tl.zeros([64], tl.float32)
        # jagged_attention.py:78: acc = hl.zeros([tq, v.shape[2]], dtype=hl.float32)
        acc = tl.zeros([64, 128], tl.float32)
        # jagged_attention.py:80: for tk in hl.tile(begin, last, max_extent=longest):
        tk_whole = tq_begin + (tl.maximum(tq_end, tq_begin) - tq_begin) // 64 * 64
        # tk is ordered: carries total, acc, m
        # whole tiles: no mask along tk
        for tk_start in tl.range(tq_begin, tk_whole, 64, num_stages=3):
            tk_at = tk_start + tl.arange(0, 64)
            # jagged_attention.py:81: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * scale
            q_tile = tl.load(
                q_ptr + h * 2097152 + tq_at[:, None] * 128 + at128[None, :],
                mask=tq_in[:, None],
                other=0.0,
            )
            k_tile = tl.load(k_ptr + h * 2097152 + tk_at[:, None] * 128 + at128[None, :])
            scores = tl.dot(q_tile, k_tile.T)
            # jagged_attention.py:85: m_new = hl.maximum(m, scores.amax(-1))
            m_new = tl.maximum(
                m,
                tl.reduce(scores, axis=1, combine_fn=_nan_max) * 0.12751743082459868,
                propagate_nan=tl.PropagateNan.ALL,
            )
            # jagged_attention.py:86: alpha = hl.exp(m - m_new)
            alpha = tl.exp2(m - m_new)
            # jagged_attention.py:87: p = hl.exp(scores - m_new[:, None])
            p = tl.exp2(scores * 0.12751743082459868 - m_new[:, None])
            # jagged_attention.py:88: total = total * alpha + p.sum(-1)
            total = total * alpha + tl.sum(p, axis=1)
            # jagged_attention.py:89: acc = hl.dot(p.to(v.dtype), v[h, tk, :], acc=acc * alpha[:,...
            v_tile = tl.load(v_ptr + h * 2097152 + tk_at[:, None] * 128 + at128[None, :])
            acc = tl.dot(p.to(tl.bfloat16), v_tile, acc * alpha[:, None])
            m = m_new
        # jagged_attention.py:80: for tk in hl.tile(begin, last, max_extent=longest):
        # the other tiles, masked along tk
        for tk_start in tl.range(tk_whole, tq_end, 64, num_stages=3):
            tk_at = tk_start + tl.arange(0, 64)
            tk_in = tk_at < tq_end
            # jagged_attention.py:81: scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * scale
            q_tile = tl.load(
                q_ptr + h * 2097152 + tq_at[:, None] * 128 + at128[None, :],
                mask=tq_in[:, None],
                other=0.0,
            )
            k_tile = tl.load(
                k_ptr + h * 2097152 + tk_at[:, None] * 128 + at128[None, :],
                mask=tk_in[:, None],
                other=0.0,
            )
            scores = tl.where(tk_in, tl.dot(q_tile, k_tile.T), float("-inf"))
            # jagged_attention.py:85: m_new = hl.maximum(m, scores.amax(-1))
            m_new = tl.maximum(
                m,
                tl.reduce(scores, axis=1, combine_fn=_nan_max) * 0.12751743082459868,
                propagate_nan=tl.PropagateNan.ALL,
            )
            # jagged_attention.py:86: alpha = hl.exp(m - m_new)
            alpha = tl.exp2(m - m_new)
            # jagged_attention.py:87: p = hl.exp(scores - m_new[:, None])
            p = tl.exp2(scores * 0.12751743082459868 - m_new[:, None])
            # jagged_attention.py:88: total = total * alpha + p.sum(-1)
            total = total * alpha + tl.sum(p, axis=1)
            # jagged_attention.py:89: acc = hl.dot(p.to(v.dtype), v[h, tk, :], acc=acc * alpha[:,...
            v_tile = tl.load(
                v_ptr + h * 2097152 + tk_at[:, None] * 128 + at128[None, :],
                mask=tk_in[:, None],
                other=0.0,
            )
            acc = tl.dot(p.to(tl.bfloat16), v_tile, acc * alpha[:, None])
            m = m_new
        # jagged_attention.py:91: out[h, tq, :] = (acc / total[:, None]).to(out.dtype)
        tl.store(
            out_ptr + h * 2097152 + tq_at[:, None] * 128 + at128[None, :],
            (acc / total[:, None]).to(tl.bfloat16),
            mask=tq_in[:, None],
        )


def jagged_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    offsets: torch.Tensor,
) -> torch.Tensor:
    """out[:, r] = the mean of v over r's sequence, weighted by softmax(q[:, r] k^T / sqrt(D))."""
    out = torch.empty((16, 16384, 128), dtype=torch.bfloat16, device=q.device)
    jagged_attention_kernel[(4608,)](q, k, v, offsets, out, num_warps=4, num_stages=3)
    return out
