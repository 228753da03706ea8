"""Small kernels that no example is like: odd lengths, scatters, barriers, carries that swap."""

from __future__ import annotations

import tilelang as tile
import tilelang.language as hl


@tile.kernel
def odd_product(x, w):
    """Lengths that are no powers of two, and a sum over fewer than 16."""
    M, _ = x.shape
    _, N = w.shape
    y = hl.empty([M, N], dtype=hl.float32)
    for tm in hl.tile(M):
        y[tm, :] = hl.dot(x[tm, :], w[:, :])
    return y


@tile.kernel
def numbers(x, n, scale):
    """Tensors without dimensions: a bound, a factor, and what is made."""
    count, total = hl.zeros([], dtype=hl.int32), hl.zeros([], dtype=hl.float32)
    for t in hl.tile(n):
        hl.atomic_add(count, [], (x[t, :] > 0).to(hl.int32).sum())
        hl.atomic_add(total, [], (x[t, :] * scale).sum())
    return count, total


@tile.kernel
def scatter(x, rows):
    """Several values for one row: the last one stays."""
    (T,) = rows.shape
    y = hl.zeros([8, x.shape[1]], dtype=x.dtype)
    for t in hl.tile(T):
        y[rows[t], :] = x[t, :]
    return y


@tile.kernel
def scattered_sums(x, rows):
    """Several values for one row: all of them count."""
    (T,) = rows.shape
    y = hl.zeros([8, x.shape[1]], dtype=hl.float32)
    for t in hl.tile(T):
        hl.atomic_add(y, [rows[t], slice(None)], x[t, :])
    return y


@tile.kernel
def twice(x):
    """What one loop stores, the next one reads: threads wait for each other."""
    M, N = x.shape
    half, y = hl.empty([M, N], dtype=x.dtype), hl.empty([M, N], dtype=x.dtype)
    for i in hl.grid(M):
        for t in hl.tile(N):
            half[i, t] = x[i, t] * 0.5
        for t in hl.tile(N):
            y[i, t] = half[i, t] + half[i, 0]
    return y


@tile.kernel
def running_sums(x):
    """A row that depends on the row before."""
    M, N = x.shape
    y = hl.empty([M, N], dtype=x.dtype)
    for t in hl.tile(N):
        y[0, t] = x[0, t]
        for i in hl.grid(1, M):
            y[i, t] = y[i - 1, t] + x[i, t]
    return y


@tile.kernel
def swapped(x):
    """Two carries that change places."""
    M, N = x.shape
    y = hl.empty([M], dtype=hl.float32)
    for t in hl.tile(M):
        a, b = hl.zeros([t], dtype=hl.float32), hl.full([t], 1.0, dtype=hl.float32)
        for i in hl.grid(N):
            a, b = b, a + x[t, i]
        y[t] = a * 2.0 + b
    return y


@tile.kernel
def picked(x, index):
    """Positions that memory holds: loads are kept inside, stores left out."""
    M, N = x.shape
    y = hl.zeros([M, N], dtype=x.dtype)
    for i in hl.grid(M):
        for t in hl.tile(N):
            y[index[i], t] = x[index[i], t] + 1.0
    return y


@tile.kernel
def floors(a, b):
    """Division that rounds down, whatever the signs."""
    (N,) = a.shape
    q, r = hl.empty([N], dtype=hl.int32), hl.empty([N], dtype=hl.int32)
    for t in hl.tile(N):
        q[t] = a[t] // b[t]
        r[t] = a[t] % b[t]
    return q, r


@tile.kernel
def largest(x):
    """NaN is larger and smaller than everything."""
    M, _ = x.shape
    high, low = hl.empty([M], dtype=x.dtype), hl.empty([M], dtype=x.dtype)
    for t in hl.tile(M):
        high[t] = hl.amax(x[t, :], 1)
        low[t] = hl.amin(x[t, :], 1)
    return high, low


@tile.kernel
def nested(x, outer, inner):
    """Ranges of ranges: lengths that memory holds, twice."""
    y = hl.zeros([x.shape[0]], dtype=hl.float32)
    for g in hl.grid(outer.shape[0] - 1):
        for s in hl.grid(outer[g], outer[g + 1], max_extent=inner.shape[0] - 1):
            for t in hl.tile(inner[s], inner[s + 1], max_extent=x.shape[0]):
                y[t] = x[t] * (g + 1.0)
    return y


@tile.kernel
def lonely(x):
    """The index of a grid of one is a number, whatever is computed from it."""
    M, N = x.shape
    y = hl.empty([M, N], dtype=hl.bfloat16)
    z = hl.empty([M], dtype=hl.float32)
    for i in hl.grid(M):
        scale, acc = hl.exp(i * 0.5), i * 1.5
        for t in hl.tile(N):
            y[i, t] = (x[i, t] * scale + hl.tanh(i + 0.25) + i**2).to(hl.bfloat16)
            acc = acc + x[i, t].sum(0)
        z[i] = hl.where(i > 0, -acc, acc)
    return y, z


@tile.kernel
def whole_weights(x, w, bias, offsets):
    """Weights of a group that are taken whole, larger than memory likes."""
    y = hl.zeros([x.shape[0], w.shape[2]], dtype=x.dtype)
    for g in hl.grid(w.shape[0]):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            y[t, :] = hl.maximum(hl.dot(x[t, :], w[g, :, :]) + bias[g, :][None, :], 0.0)
    return y


@tile.kernel
def whole_gates(x, up, gate, offsets):
    """Two products side by side; the rows of a neighbour are no part of either."""
    y = hl.zeros([x.shape[0], up.shape[2]], dtype=x.dtype)
    for g in hl.grid(up.shape[0]):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            value = hl.dot(x[t, :], gate[g, :, :])
            y[t, :] = hl.sigmoid(value) * hl.dot(x[t, :], up[g, :, :])
    return y


@tile.kernel
def whole_sums(x, w, offsets):
    """Each row is divided by its own sum, and a sum of groups is added to memory."""
    y = hl.zeros([x.shape[0], w.shape[2]], dtype=hl.float32)
    total = hl.zeros([w.shape[0], w.shape[2]], dtype=hl.float32)
    for g in hl.grid(w.shape[0]):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            e = hl.exp(hl.dot(x[t, :], w[g, :, :]) * 0.1)
            y[t, :] = e / e.sum(1)[:, None]
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            hl.atomic_add(total, [g, slice(None)], hl.dot(x[t, :], w[g, :, :]).sum(0))
    return y, total


@tile.kernel
def rotated(x, cos):
    """Halves that change places, of a length that is no power of two; a sum of what was joined."""
    T, D = x.shape
    y, z = hl.empty([T, D], dtype=x.dtype), hl.empty([T], dtype=hl.float32)
    for t in hl.tile(T):
        turned = hl.cat([-x[t, D // 2 : D], x[t, 0 : D // 2]], 1)
        y[t, :] = x[t, :] + turned * cos[:]
        z[t] = hl.exp(turned).sum(1)
    return y, z


@tile.kernel
def parts_of_products(x, w):
    """A gate of half of a product; parts of sums, at the begin, inside and at the end."""
    (T, _), F = x.shape, w.shape[1] // 2
    y, z = hl.empty([T, F], dtype=x.dtype), hl.empty([T, 3], dtype=hl.float32)
    for t in hl.tile(T):
        h = hl.dot(x[t, :], w[:, :])
        y[t, :] = h[:, :F] * hl.sigmoid(h[:, F:])
        e = hl.exp(h)
        z[t, :] = e[:, :3] + e[:, 4:7] + e[:, -3:] + hl.exp(w[:, :]).sum(0)[None, 5:8]
    return y, z


@tile.kernel
def interleaved(x):
    """Heads of odd numbers and lengths, along rows and back."""
    T, D = x.shape
    y, z = hl.empty([T, D], dtype=x.dtype), hl.empty([T, 3], dtype=hl.float32)
    for t in hl.tile(T):
        heads = hl.exp(x[t, :]).reshape(t, D // 3, 3)
        z[t, :] = heads.sum(1)
        y[t, :] = (
            heads.reshape(t, 3, D // 3)
            .sum(1)[:, None, :]
            .broadcast_to([t, 3, D // 3])
            .reshape(t, D)
            .to(y.dtype)
        )
    return y, z


@tile.kernel
def joined_and_multiplied(x, z, w):
    """Keys of two parts, and a reshape of what has lanes to spare: 8 are summed in 16."""
    T, D = x.shape
    y, v = hl.empty([T, w.shape[1]], dtype=hl.float32), hl.empty([D, 8], dtype=x.dtype)
    for t in hl.tile(T):
        y[t, :] = hl.dot(hl.cat([x[t, :], z[t, :]], 1), w[:, :]) + hl.dot(x[t, 0:8], w[0:8, :])
    for _ in hl.grid(1):
        v[:, :] = w[0:8, 0:D].reshape(D, 8)
    return y, v


@tile.kernel
def with_vectors(x, w, v, offsets):
    """Rows by a vector from either side, rows by their own rows, sums of rows by their weights."""
    T, D = x.shape
    G = offsets.shape[0] - 1
    y, own = hl.zeros([T], dtype=hl.float32), hl.zeros([T, 2], dtype=hl.float32)
    z = hl.zeros([G, D], dtype=hl.float32)
    for g in hl.grid(G):
        sums = hl.zeros([D], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t] = hl.einsum("td,d->t", x[t, :], v[:]) - hl.einsum("d,td->t", v[:], w[t, :])
            pairs = w[t, :].reshape(t, 2, D // 2)
            own[t, :] = hl.einsum("thd,td->th", pairs, x[t, : D // 2])
            sums += hl.einsum("td,t->d", x[t, :], hl.einsum("td,td->t", x[t, :], w[t, :]))
        z[g, :] = sums
    return y, own, z


@tile.kernel
def outer_scores(a, b, begins, ends):
    """Ranges of rows by ranges of rows: what does not move with the inner loop stands in it."""
    y = hl.zeros([a.shape[0], b.shape[0]], dtype=hl.float32)
    for g in hl.grid(begins.shape[0] - 1):
        for i in hl.tile(begins[g], begins[g + 1], max_extent=a.shape[0]):
            for j in hl.tile(ends[g], ends[g + 1], max_extent=b.shape[0]):
                y[i, j] = hl.dot(a[i, :], b[j, :].T)
    return y


@tile.kernel
def latent_attention(q, turned_q, latent, turned_k, offsets):
    """Keys of two parts, of which the long one is the value too; heads share both."""
    T, H, D = q.shape
    out = hl.zeros([T, H, D], dtype=q.dtype)
    for b, h in hl.grid([offsets.shape[0] - 1, H]):
        for tq in hl.tile(offsets[b], offsets[b + 1], max_extent=T):
            m = hl.full([tq], -1e30, dtype=hl.float32)
            total, acc = hl.zeros([tq], dtype=hl.float32), hl.zeros([tq, D], dtype=hl.float32)
            for tk in hl.tile(offsets[b], tq.end, max_extent=T):
                s = hl.dot(q[tq, h, :], latent[tk, :].T)
                s = 0.1 * (s + hl.dot(turned_q[tq, h, :], turned_k[tk, :].T))
                s = hl.where(tk.index[None, :] <= tq.index[:, None], s, -1e30)
                m_new = hl.maximum(m, s.amax(1))
                p, alpha = hl.exp(s - m_new[:, None]), hl.exp(m - m_new)
                total = total * alpha + p.sum(1)
                acc = acc * alpha[:, None] + hl.dot(p.to(latent.dtype), latent[tk, :])
                m = m_new
            out[tq, h, :] = (acc / total[:, None]).to(out.dtype)
    return out


@tile.kernel
def normalised_products(x, w, scale):
    """Rows by their own norm, columns by a number of theirs, before both are multiplied."""
    (T, K), N = x.shape, w.shape[1]
    y = hl.zeros([T, N], dtype=x.dtype)
    for t in hl.tile(T):
        squares = hl.zeros([t], dtype=hl.float32)
        for k in hl.tile(K):
            squares += x[t, k].to(hl.float32).pow(2).sum(1)
        factor = hl.rsqrt(squares / K + 1e-6)
        for n in hl.tile(N):
            acc = hl.zeros([t, n], dtype=hl.float32)
            for k in hl.tile(K):
                rows = (x[t, k].to(hl.float32) * factor[:, None]).to(x.dtype)
                acc += hl.dot(rows, w[k, n] * scale[n][None, :])
            y[t, n] = acc.to(y.dtype)
    return y


@tile.kernel
def low_rank_added(x, w, a, b, offsets):
    """A product of a group's own around the loop of the shared one."""
    y = hl.zeros([x.shape[0], w.shape[1]], dtype=x.dtype)
    for g in hl.grid(a.shape[0]):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            low = hl.zeros([t, a.shape[2]], dtype=hl.float32)
            for k in hl.tile(x.shape[1]):
                low += hl.dot(x[t, k], a[g, k, :])
            for n in hl.tile(w.shape[1]):
                acc = hl.zeros([t, n], dtype=hl.float32)
                for k in hl.tile(x.shape[1]):
                    acc += hl.dot(x[t, k], w[k, n])
                y[t, n] = (acc + hl.dot(low.to(x.dtype), b[g, :, n])).to(y.dtype)
    return y


@tile.kernel
def looked_up_scores(q, k, v, bias, offsets):
    """Numbers of a table at the distances of rows and keys: a chain of as many names as it has."""
    T, D = q.shape
    out = hl.zeros([T, D], dtype=v.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tq in hl.tile(offsets[g], offsets[g + 1], max_extent=T):
            acc = hl.zeros([tq, D], dtype=hl.float32)
            for tk in hl.tile(offsets[g], tq.end, max_extent=T):
                far = tq.index[:, None] - tk.index[None, :]
                s = hl.silu(hl.dot(q[tq, :], k[tk, :].T) + bias[far])
                acc += hl.dot(hl.where(far >= 0, s, 0.0).to(v.dtype), v[tk, :])
            out[tq, :] = acc.to(out.dtype)
    return out


@tile.kernel
def looked_up(x, table, places):
    """Numbers of a column of a table, at positions of which some are outside of it."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :] * table[places[t, :], 1]
    return y


@tile.kernel
def two_softmaxes(q, r, k, e, v, offsets):
    """The difference of two attentions with the same values."""
    T, H, D = q.shape
    out = hl.zeros([T, H, D], dtype=q.dtype)
    for b in hl.grid(offsets.shape[0] - 1):
        for h in hl.grid(H):
            for tq in hl.tile(offsets[b], offsets[b + 1], max_extent=T):
                m = hl.full([tq], -1e30, dtype=hl.float32)
                n = hl.full([tq], -1e30, dtype=hl.float32)
                total = hl.zeros([tq], dtype=hl.float32)
                others = hl.zeros([tq], dtype=hl.float32)
                one = hl.zeros([tq, D], dtype=hl.float32)
                other = hl.zeros([tq, D], dtype=hl.float32)
                for tk in hl.tile(offsets[b], offsets[b + 1], max_extent=T):
                    s = hl.dot(q[tq, h, :], k[tk, h, :].T) * 0.1
                    most = hl.maximum(m, s.amax(1))
                    p = hl.exp(s - most[:, None])
                    c = hl.exp(m - most)
                    total = total * c + p.sum(1)
                    one = one * c[:, None] + hl.dot(p.to(v.dtype), v[tk, h, :])
                    m = most
                    s = hl.dot(r[tq, h, :], e[tk, h, :].T) * 0.1
                    most = hl.maximum(n, s.amax(1))
                    p = hl.exp(s - most[:, None])
                    c = hl.exp(n - most)
                    others = others * c + p.sum(1)
                    other = other * c[:, None] + hl.dot(p.to(v.dtype), v[tk, h, :])
                    n = most
                out[tq, h, :] = (one / total[:, None] - 0.5 * other / others[:, None]).to(out.dtype)
    return out


@tile.kernel
def normed_rows(x, residual, gain, w, offsets):
    """A sum of rows, stored, and products of its norm with weights of each group."""
    y = hl.zeros([x.shape[0], w.shape[2]], dtype=x.dtype)
    total = hl.zeros([x.shape[0], x.shape[1]], dtype=x.dtype)
    for g in hl.grid(w.shape[0]):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            rows = x[t, :].to(hl.float32) + residual[t, :].to(hl.float32)
            total[t, :] = rows.to(total.dtype)
            apart = rows - rows.mean(1)[:, None]
            inverse = hl.rsqrt((apart * apart).mean(1) + 1e-5)
            left = (apart * inverse[:, None] * gain[:][None, :].to(hl.float32)).to(x.dtype)
            for n in hl.tile(w.shape[2]):
                y[t, n] = hl.dot(left, w[g, :, n]).to(y.dtype)
    return y, total


@tile.kernel
def linear_attention(q, k, v, offsets):
    """Rows after rows, with a state in between: what each tile stores no other one touches."""
    T, H, D = q.shape
    out = hl.zeros([T, H, D], dtype=q.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for h in hl.grid(H):
            state = hl.zeros([D, D], dtype=hl.float32)
            for t in hl.tile(offsets[g], offsets[g + 1]):
                seen = t.index[:, None] >= t.index[None, :]
                s = hl.where(seen, hl.dot(q[t, h, :], k[t, h, :].T), 0.0)
                o = hl.dot(s.to(v.dtype), v[t, h, :]) + hl.dot(q[t, h, :], state.to(q.dtype))
                out[t, h, :] = o.to(out.dtype)
                state = state + hl.dot(k[t, h, :].T, v[t, h, :])
    return out


@tile.kernel
def low_rank_cross(x0, x, v, u, b):
    """A product of few columns, and in tiles of others what becomes of it beside two arrays."""
    T, D = x.shape
    y = hl.empty([T, D], dtype=x.dtype)
    for t in hl.tile(T):
        low = hl.dot(x[t, :], v[:, :]).to(x.dtype)
        for n in hl.tile(D):
            up = hl.dot(low, u[:, n]) + b[n].to(hl.float32)[None, :]
            y[t, n] = (x0[t, n].to(hl.float32) * up + x[t, n].to(hl.float32)).to(y.dtype)
    return y


@tile.kernel
def retention(q, k, v, decay, offsets):
    """Linear attention with decay: a state of each sequence and head."""
    T, H, D = q.shape
    out = hl.zeros([T, H, D], dtype=q.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for h in hl.grid(H):
            rate = decay[h]
            state = hl.zeros([D, D], dtype=hl.float32)
            for t in hl.tile(offsets[g], offsets[g + 1]):
                place = (t.index - t.begin).to(hl.float32)
                left = hl.exp(rate * (place[:, None] - place[None, :]))
                seen = t.index[:, None] >= t.index[None, :]
                s = hl.where(seen, hl.dot(q[t, h, :], k[t, h, :].T) * left, 0.0)
                o = hl.dot(s.to(v.dtype), v[t, h, :])
                o += hl.exp(rate * (place + 1.0))[:, None] * hl.dot(q[t, h, :], state.to(q.dtype))
                out[t, h, :] = o.to(out.dtype)
                n = (t.end - t.begin) * 1.0
                faded = hl.exp(rate * (n - 1.0 - place))
                rows = (k[t, h, :].to(hl.float32) * faded[:, None]).to(k.dtype)
                state = state * hl.exp(rate * n) + hl.dot(rows.T, v[t, h, :])
    return out


@tile.kernel
def block_sparse(q, k, v, blocks, starts):
    """Attention to the blocks of 64 keys that a table names, 64 rows at a time."""
    T, H, D = q.shape
    out = hl.zeros([T, H, D], dtype=q.dtype)
    for h in hl.grid(H):
        for tq in hl.tile(T, block_size=64):
            m = hl.full([tq], -1e30, dtype=hl.float32)
            total, acc = hl.zeros([tq], dtype=hl.float32), hl.zeros([tq, D], dtype=hl.float32)
            for j in hl.grid(starts[tq.id], starts[tq.id + 1], max_extent=blocks.shape[0]):
                c = blocks[j]
                for tk in hl.tile(c * 64, c * 64 + 64, max_extent=64, block_size=64):
                    s = hl.dot(q[tq, h, :], k[tk, h, :].T) * 0.1
                    s = hl.where(tk.index[None, :] <= tq.index[:, None], s, -1e30)
                    n = hl.maximum(m, s.amax(1))
                    p, a = hl.exp(s - n[:, None]), hl.exp(m - n)
                    total = total * a + p.sum(1)
                    acc = acc * a[:, None] + hl.dot(p.to(v.dtype), v[tk, h, :])
                    m = n
            out[tq, h, :] = (acc / total[:, None]).to(out.dtype)
    return out


@tile.kernel
def sparse_rows(values, columns, x, starts):
    """A sparse matrix by rows times a dense one: rows are picked, and no product waits for them."""
    y = hl.zeros([starts.shape[0] - 1, x.shape[1]], dtype=hl.float32)
    for r in hl.grid(starts.shape[0] - 1):
        for n in hl.tile(x.shape[1]):
            acc = hl.zeros([n], dtype=hl.float32)
            for t in hl.tile(starts[r], starts[r + 1]):
                picked = x[columns[t], n].to(hl.float32)
                acc += (values[t].to(hl.float32)[:, None] * picked).sum(0)
            y[r, n] = acc
    return y


@tile.kernel
def picked_scores(q, k, rows):
    """A select by positions of both dimensions."""
    out = hl.zeros(q.shape, dtype=hl.float32)
    for tq in hl.tile(q.shape[0]):
        acc = hl.zeros([tq, q.shape[1]], dtype=hl.float32)
        for tk in hl.tile(k.shape[0]):
            both = (rows[tq] > 0)[:, None] & (tk.index < k.shape[0] - 24)[None, :]
            acc += hl.dot(hl.where(both, hl.dot(q[tq, :], k[tk, :].T), 0.0).to(k.dtype), k[tk, :])
        out[tq, :] = acc
    return out
