"""Kernels with a state of each sequence, or much that is computed of scores: for their defaults."""

from __future__ import annotations

import math

import tilelang as tile
import tilelang.language as hl


@tile.kernel
def weighted_keys(k, v, gate, offsets):
    """The sum of gate * outer(k, v) over a sequence."""
    T, H, D = k.shape
    B, E = offsets.shape[0] - 1, v.shape[2]
    state = hl.zeros([B, H, D, E], dtype=hl.float32)
    for b, h in hl.grid([B, H]):
        acc = hl.zeros([D, E], dtype=hl.float32)
        for t in hl.tile(offsets[b], offsets[b + 1], max_extent=T):
            weighted = (k[t, h, :] * gate[t, h][:, None]).to(k.dtype)
            acc = hl.dot(weighted.T, v[t, h, :], acc=acc)
        state[b, h, :, :] = acc
    return state


@tile.kernel
def decayed_keys(k, v, decay, offsets):
    """The same with weights that follow from positions."""
    T, H, D = k.shape
    B, E = offsets.shape[0] - 1, v.shape[2]
    state = hl.zeros([B, H, D, E], dtype=hl.float32)
    for b, h in hl.grid([B, H]):
        acc, end = hl.zeros([D, E], dtype=hl.float32), offsets[b + 1]
        for t in hl.tile(offsets[b], end, max_extent=T):
            weight = hl.exp((end - 1 - t.index).to(hl.float32) * decay[h])
            acc = hl.dot((k[t, h, :] * weight[:, None]).to(k.dtype).T, v[t, h, :], acc=acc)
        state[b, h, :, :] = acc
    return state


@tile.kernel
def two_passes(q, k, v, offsets):
    """Linear attention of all keys: their state, then every query times it."""
    T, H, D = q.shape
    out = hl.zeros([T, H, v.shape[2]], dtype=v.dtype)
    for b, h in hl.grid([offsets.shape[0] - 1, H]):
        state = hl.zeros([D, v.shape[2]], dtype=hl.float32)
        for t in hl.tile(offsets[b], offsets[b + 1], max_extent=T):
            state = hl.dot(k[t, h, :].T, v[t, h, :], acc=state)
        for u in hl.tile(offsets[b], offsets[b + 1], max_extent=T):
            out[u, h, :] = hl.dot(q[u, h, :], state.to(q.dtype)).to(out.dtype)
    return out


@tile.kernel
def sloped_attention(q, k, v, slopes, offsets):
    """Causal attention whose scores fall with distance."""
    T, H, D = q.shape
    out = hl.zeros([T, H, D], dtype=q.dtype)
    for b, h in hl.grid([offsets.shape[0] - 1, H]):
        begin, end = offsets[b], offsets[b + 1]
        for tq in hl.tile(begin, end, max_extent=T):
            m = hl.full([tq], -math.inf, dtype=hl.float32)
            total = hl.zeros([tq], dtype=hl.float32)
            acc = hl.zeros([tq, D], dtype=hl.float32)
            for tk in hl.tile(begin, min(end, tq.end), max_extent=T):
                far = tk.index[None, :] - tq.index[:, None]
                s = hl.dot(q[tq, h, :], k[tk, h, :].T) * D**-0.5
                s = hl.where(far <= 0, s + slopes[h] * far.to(hl.float32), -math.inf)
                m_new = hl.maximum(m, s.amax(-1))
                alpha = hl.exp(m - m_new)
                p = hl.exp(s - m_new[:, None])
                total = total * alpha + p.sum(-1)
                acc = acc * alpha[:, None] + hl.dot(p.to(v.dtype), v[tk, h, :])
                m = m_new
            out[tq, h, :] = (acc / total[:, None]).to(out.dtype)
    return out


@tile.kernel
def low_rank_groups(x, a, b, offsets):
    """y[r] = (x[r] @ a[g]) @ b[g] for the rows of group g."""
    M, K = x.shape
    G, _, R = a.shape
    y = hl.zeros([M, b.shape[2]], dtype=x.dtype)
    for g in hl.grid(G):
        for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=M):
            low = hl.zeros([tm, R], dtype=hl.float32)
            for tk in hl.tile(K):
                low = hl.dot(x[tm, tk], a[g, tk, :], acc=low)
            for tn in hl.tile(b.shape[2]):
                y[tm, tn] = hl.dot(low.to(x.dtype), b[g, :, tn]).to(y.dtype)
    return y


@tile.kernel
def adapted(x, a, b, which, offsets):
    """Products of few columns, by weights that a table names for each segment, and back."""
    T, N = x.shape[0], b.shape[2]
    y = hl.zeros([T, N], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        w = which[g]
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=T):
            if w >= 0:
                low = hl.dot(x[t, :], a[w, :, :]).to(x.dtype)
                for n in hl.tile(N):
                    y[t, n] = hl.dot(low, b[w, :, n]).to(y.dtype)
    return y


@tile.kernel
def latent_pages(q, turned_q, latent, turned_k, table, lengths):
    """A query of each sequence: its heads are rows, and its keys, values too, lie in pages."""
    B, H, D = q.shape
    P = latent.shape[1]
    out = hl.zeros([B, H, D], dtype=q.dtype)
    for b in hl.grid(B):
        length = lengths[b]
        for h in hl.tile(H):
            m = hl.full([h], -1e30, dtype=hl.float32)
            total, acc = hl.zeros([h], dtype=hl.float32), hl.zeros([h, D], dtype=hl.float32)
            for p in hl.grid(0, (length + P - 1) // P, max_extent=table.shape[1]):
                page = table[b, p]
                live = (p * P + hl.arange(P)) < length
                keys = hl.where(live[:, None], latent[page, :, :], 0)
                s = hl.dot(q[b, h, :], keys.T)
                s = 0.04 * (s + hl.dot(turned_q[b, h, :], turned_k[page, :, :].T))
                s = hl.where(live[None, :], s, -1e30)
                m_new = hl.maximum(m, s.amax(1))
                weights, alpha = hl.exp(s - m_new[:, None]), hl.exp(m - m_new)
                total = total * alpha + weights.sum(1)
                acc = acc * alpha[:, None] + hl.dot(weights.to(keys.dtype), keys)
                m = m_new
            out[b, h, :] = (acc / hl.maximum(total, 1e-20)[:, None]).to(out.dtype)
    return out
