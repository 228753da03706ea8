"""Kernels as authors write them; the docstring of each is the IR that it gets.

The arguments are those of ARGUMENTS by the names of the parameters.
"""

# ruff: noqa: E501  (the IR is not wrapped)

from __future__ import annotations

import jax
import jax.numpy as jnp
import torch

import tilelang.language as hl
from tilelang.ir import TensorSpec

ARGUMENTS = {
    "x": TensorSpec((96, 64), "bfloat16"),
    "w": TensorSpec((4, 64, 48), "bfloat16"),
    "b": TensorSpec((64, 48), "bfloat16"),
    "bias": TensorSpec((48,), "bfloat16"),
    "offsets": TensorSpec((5,), "int64"),
    "q": TensorSpec((96, 4, 32), "bfloat16"),
    "k": TensorSpec((96, 4, 32), "bfloat16"),
    "v": TensorSpec((96, 4, 32), "bfloat16"),
    "dense_k": TensorSpec((4, 40, 32), "float32"),
    "q_offsets": TensorSpec((5,), "int32"),
    "k_offsets": TensorSpec((5,), "int32"),
    "flags": TensorSpec((96,), "int32"),
    "idx": TensorSpec((24,), "int32"),
    "causal": True,
    "window": 8,
    "activation": jax.nn.gelu,
    "epilogue": lambda acc, bias: torch.relu(acc + bias),
}


def grouped_gemm(x, w, offsets):
    """
      x: bfloat16[96, 64]
      w: bfloat16[4, 64, 48]
      offsets: int64[5]
      y: bfloat16[96, 48], output, filled with 0.0

    for g in grid(4):
        for tm in tile(offsets[g], offsets[g + 1], max_extent=96):
            for tn in tile(48):
                acc: float32[tm, tn] = full([tm, tn], float32, value=0.0)
                for tk in tile(64) carrying acc_1 = acc:
                    acc_2: float32[tm, tn] = acc_1 + dot(x[tm, tk], w[g, tk, tn], contract=(1, 0))
                    next acc_1 = acc_2
                after acc_3 = acc_1
                y[tm, tn] = cast(acc_3, bfloat16)
    """
    M, K = x.shape
    G, _, N = w.shape
    y = hl.zeros([M, N], dtype=x.dtype)
    for g in hl.grid(G):
        for tm, tn in hl.tile([offsets[g], 0], [offsets[g + 1], N], max_extent=[M, N]):
            acc = hl.zeros([tm, tn], dtype=hl.float32)
            for tk in hl.tile(K):
                acc = hl.dot(x[tm, tk], w[g, tk, tn], acc=acc)
            y[tm, tn] = acc.to(y.dtype)
    return y


def jagged_attention(q, k, v, q_offsets, k_offsets, causal):
    """
      q: bfloat16[96, 4, 32]
      k: bfloat16[96, 4, 32]
      v: bfloat16[96, 4, 32]
      q_offsets: int32[5]
      k_offsets: int32[5]
      out: bfloat16[96, 4, 32], output, filled with 0.0

    for g in grid(4):
        for h in grid(4):
            begin: int32[] = k_offsets[g]
            end: int32[] = k_offsets[g + 1]
            for tq in tile(q_offsets[g], q_offsets[g + 1], max_extent=96):
                m: float32[tq] = full([tq], float32, value=-inf)
                total: float32[tq] = full([tq], float32, value=0.0)
                acc: float32[tq, 32] = full([tq, 32], float32, value=0.0)
                for tk in tile(begin, minimum(end, tq.end), max_extent=96) carrying total_1 = total, acc_1 = acc, m_1 = m:
                    s: float32[tq, tk] = dot(q[tq, h, 0:32], transpose(k[tk, h, 0:32], perm=(1, 0)), contract=(1, 0)) * 0.1767766952966369
                    s_1: float32[tq, tk] = where(expand_dims(tq.index, axis=1) >= expand_dims(tk.index, axis=0), s, -inf)
                    m_new: float32[tq] = maximum(m_1, max(s_1, axis=1))
                    p: float32[tq, tk] = exp(s_1 - expand_dims(m_new, axis=1))
                    alpha: float32[tq] = exp(m_1 - m_new)
                    total_2: float32[tq] = total_1 * alpha + sum(p, axis=1)
                    acc_2: float32[tq, 32] = acc_1 * expand_dims(alpha, axis=1) + dot(cast(p, bfloat16), v[tk, h, 0:32], contract=(1, 0))
                    next total_1 = total_2
                    next acc_1 = acc_2
                    next m_1 = m_new
                after total_3 = total_1
                after acc_3 = acc_1
                after m_2 = m_1
                out[tq, h, 0:32] = cast(acc_3 / expand_dims(total_3, axis=1), bfloat16)
    """
    T, H, D = q.shape
    out = hl.zeros([T, H, D], dtype=q.dtype)
    for g, h in hl.grid([q_offsets.shape[0] - 1, H]):
        begin, end = k_offsets[g], k_offsets[g + 1]
        for tq in hl.tile(q_offsets[g], q_offsets[g + 1]):
            m = hl.full([tq], float("-inf"), dtype=hl.float32)
            total = hl.zeros([tq], dtype=hl.float32)
            acc = hl.zeros([tq, D], dtype=hl.float32)
            for tk in hl.tile(begin, min(end, tq.end) if causal else end):
                s = hl.dot(q[tq, h, :], k[tk, h, :].T) * D**-0.5
                if causal:
                    s = hl.where(tq.index[:, None] >= tk.index[None, :], s, float("-inf"))
                m_new = torch.maximum(m, s.amax(dim=1))
                p = torch.exp(s - m_new[:, None])
                alpha = torch.exp(m - m_new)
                total = total * alpha + p.sum(dim=1)
                acc = torch.addmm(acc * alpha[:, None], p.to(v.dtype), v[tk, h, :])
                m = m_new
            out[tq, h, :] = acc / total[:, None]
    return out


def sliding_window(q, k_offsets, window):
    """
      q: bfloat16[96, 4, 32]
      k_offsets: int32[5]
      out: bfloat16[96, 4, 32], output, empty

    for g in grid(4):
        for tq in tile(k_offsets[g], k_offsets[g + 1], max_extent=96):
            acc: float32[tq, 32] = full([tq, 32], float32, value=0.0)
            first: int32[] = maximum(k_offsets[g], tq.begin - 8)
            for tk in tile(first, minimum(k_offsets[g + 1], tq.end), max_extent=96) carrying acc_1 = acc:
                acc_2: float32[tq, 32] = acc_1 + dot(cast(dot(q[tq, 0, 0:32], transpose(q[tk, 0, 0:32], perm=(1, 0)), contract=(1, 0)), bfloat16), q[tk, 0, 0:32], contract=(1, 0))
                next acc_1 = acc_2
            after acc_3 = acc_1
            out[tq, 0, 0:32] = cast(acc_3, bfloat16)
    """
    out = hl.empty_like(q)
    for g in hl.grid(4):
        for tq in hl.tile(k_offsets[g], k_offsets[g + 1]):
            acc = hl.zeros([tq, 32])
            first = max(k_offsets[g], tq.begin - window)
            for tk in hl.tile(first, min(k_offsets[g + 1], tq.end)):
                acc = hl.dot(q[tq, 0, :] @ q[tk, 0, :].T, q[tk, 0, :], acc=acc)
            out[tq, 0, :] = acc
    return out


def gdpa(q, dense_k, q_offsets, activation):
    """
      q: bfloat16[96, 4, 32]
      dense_k: float32[4, 40, 32]
      q_offsets: int32[5]
      out: bfloat16[96, 4, 32], output, filled with 0.0

    for b in grid(4):
        for tq in tile(q_offsets[b], q_offsets[b + 1], max_extent=96):
            acc: float32[tq, 32] = full([tq, 32], float32, value=0.0)
            for ts in tile(40) carrying acc_1 = acc:
                keys: float32[ts, 32] = dense_k[b, ts, 0:32]
                scores: float32[tq, ts] = dot(cast(q[tq, 0, 0:32], float32), transpose(keys, perm=(1, 0)), contract=(1, 0))
                acc_2: float32[tq, 32] = acc_1 + dot(gelu_tanh(scores), keys, contract=(1, 0))
                next acc_1 = acc_2
            after acc_3 = acc_1
            out[tq, 0, 0:32] = cast(acc_3, bfloat16)
    """
    out = torch.zeros_like(q)
    for b in hl.grid(dense_k.shape[0]):
        for tq in hl.tile(q_offsets[b], q_offsets[b + 1]):
            acc = torch.zeros([tq, q.shape[2]], dtype=torch.float32)
            for ts in hl.tile(dense_k.shape[1]):
                keys = dense_k[b, ts, :]
                scores = q[tq, 0, :].float() @ keys.T
                acc = acc + activation(scores) @ keys
            out[tq, 0, :] = acc.to(out.dtype)
    return out


def jagged_mean(x, offsets):
    """
      x: bfloat16[96, 64]
      offsets: int64[5]
      y: bfloat16[4, 64], output, filled with 0.0

    for g in grid(4):
        begin: int32[] = offsets[g]
        end: int32[] = offsets[g + 1]
        for td in tile(64):
            total: float32[td] = full([td], float32, value=0.0)
            for tm in tile(begin, end, max_extent=96) carrying total_1 = total:
                total_2: float32[td] = total_1 + sum(cast(x[tm, td], float32), axis=0)
                next total_1 = total_2
            after total_3 = total_1
            y[g, td] = cast(total_3 / cast(maximum(end - begin, 1), float32), bfloat16)
    """
    G, D = offsets.shape[0] - 1, x.shape[1]
    y = jnp.zeros((G, D), x.dtype)
    for g in hl.grid(G):
        begin, end = offsets[g], offsets[g + 1]
        for td in hl.tile(D):
            total = jnp.zeros(td, jnp.float32)
            for tm in hl.tile(begin, end):
                total += jnp.sum(x[tm, td].astype(jnp.float32), axis=0)
            y[g, td] = total / max(end - begin, 1)
    return y


def matmul_with_epilogue(x, b, bias, epilogue):
    """
      x: bfloat16[96, 64]
      b: bfloat16[64, 48]
      bias: bfloat16[48]
      y: bfloat16[96, 48], output, empty

    for tm in tile(96, block=rows (64 to 256)):
        for tn in tile(48, block=128):
            acc: float32[tm, tn] = full([tm, tn], float32, value=0.0)
            for tk in tile(64) carrying acc_1 = acc:
                acc_2: float32[tm, tn] = acc_1 + dot(x[tm, tk], b[tk, tn], contract=(1, 0))
                next acc_1 = acc_2
            after acc_3 = acc_1
            bias_1: bfloat16[tn] = bias[tn]
            y[tm, tn] = cast(relu(acc_3 + cast(bias_1, float32)), bfloat16)
    """
    (M, K), (_, N) = x.shape, b.shape
    y = hl.empty([M, N], dtype=x.dtype)
    rows = hl.register_block_size(64, 256)
    for tm, tn in hl.tile([M, N], block_size=[rows, 128]):
        acc = hl.zeros([tm, tn], dtype=hl.float32)
        for tk in hl.tile(K):
            acc = hl.dot(x[tm, tk], b[tk, tn], acc=acc)
        y[tm, tn] = epilogue(acc, bias[tn])
    return y


def two_pass_layer_norm(x):
    """
      x: bfloat16[96, 64]
      y: bfloat16[96, 64], output, empty

    for tm in tile(96):
        total: float32[tm] = full([tm], float32, value=0.0)
        squares: float32[tm] = full([tm], float32, value=0.0)
        for tn in tile(64) carrying total_1 = total, squares_1 = squares:
            row: float32[tm, tn] = cast(x[tm, tn], float32)
            total_2: float32[tm] = total_1 + sum(row, axis=1)
            squares_2: float32[tm] = squares_1 + sum(row * row, axis=1)
            next total_1 = total_2
            next squares_1 = squares_2
        after total_3 = total_1
        after squares_3 = squares_1
        mean: float32[tm] = total_3 / 64.0
        scale: float32[tm] = rsqrt(squares_3 / 64.0 - mean * mean + 1e-05)
        for tn_1 in tile(64):
            y[tm, tn_1] = cast((cast(x[tm, tn_1], float32) - expand_dims(mean, axis=1)) * expand_dims(scale, axis=1), bfloat16)
    """
    y = hl.empty_like(x)
    M, N = x.shape
    for tm in hl.tile(M):
        total = hl.zeros([tm])
        squares = hl.zeros([tm])
        for tn in hl.tile(N):
            row = x[tm, tn].float()
            total = total + row.sum(-1)
            squares = squares + (row * row).sum(-1)
        mean = total / N
        scale = hl.rsqrt(squares / N - mean * mean + 1e-5)
        for tn in hl.tile(N):
            y[tm, tn] = (x[tm, tn] - mean[:, None]) * scale[:, None]
    return y


def softmax_torch(x):
    """
      x: bfloat16[96, 64]
      out: bfloat16[96, 64], output, empty

    for tm in tile(96):
        row: bfloat16[tm, 64] = x[tm, 0:64]
        top: bfloat16[tm, 1] = max(row, axis=1, keepdim=True)
        e: bfloat16[tm, 64] = exp(row - top)
        out[tm, 0:64] = e / cast(sum(cast(e, float32), axis=1, keepdim=True), bfloat16)
    """
    out = torch.empty_like(x)
    for tm in hl.tile(x.size(0)):
        row = x[tm, :]
        top = torch.amax(row, dim=-1, keepdim=True)
        e = torch.exp(row - top)
        out[tm, :] = e / e.sum(-1, keepdim=True)
    return out


def several_launches(x):
    """
      x: bfloat16[96, 64]
      total: float32[64], output, filled with 0.0
      y: bfloat16[96, 64], output, empty
      total_view: float32[1, 64] = total.reshape(1, 64)

    for td in tile(64):
        acc: float32[td] = full([td], float32, value=0.0)
        for tm in tile(96) carrying acc_1 = acc:
            acc_2: float32[td] = acc_1 + sum(cast(x[tm, td], float32), axis=0)
            next acc_1 = acc_2
        after acc_3 = acc_1
        total[td] = acc_3

    for tm_1 in tile(96):
        for td_1 in tile(64):
            y[tm_1, td_1] = cast(cast(x[tm_1, td_1], float32) / total[td_1], bfloat16)
    """
    total = hl.zeros([64], dtype=hl.float32)
    y = hl.empty_like(x)
    for td in hl.tile(64):
        acc = hl.zeros([td])
        for tm in hl.tile(96):
            acc = acc + x[tm, td].float().sum(0)
        total[td] = acc
    for tm, td in hl.tile(x.shape):
        y[tm, td] = x[tm, td] / total[td]
    return y, total.reshape(1, -1)


def dynamic_if(x, flags):
    """
      x: bfloat16[96, 64]
      flags: int32[96]
      y: bfloat16[96, 64], output, filled with 0.0

    for i in grid(96):
        condition: bool[] = flags[i] > 1
        y[i, 0] = 7.0 where condition
        condition_1: bool[] = flags[i] > 0
        for tn in tile(0, where(not condition and condition_1, 64, 0), max_extent=64) carrying scale = 1.0:
            scale_1: float32[] = scale + sum(cast(x[i, tn], float32), axis=0)
            next scale = scale_1
        after scale_2 = scale
        scale_3: float32[] = where(condition, 2.0, scale_2)
        y[i, 1] = cast(scale_3, bfloat16)
    """
    y = hl.zeros_like(x)
    for i in hl.grid(96):
        scale = 1.0
        if flags[i] > 1:
            scale = 2.0
            y[i, 0] = 7.0
        elif flags[i] > 0:
            for tn in hl.tile(64):
                scale = scale + x[i, tn].float().sum()
        y[i, 1] = scale
    return y


def guarded_neighbour(x, flags):
    """
      x: bfloat16[96, 64]
      flags: int32[96]
      y: bfloat16[96, 64], output, filled with 0.0

    for i in grid(96):
        condition: bool[] = i > 0 and load(flags[i - 1], mask=i > 0, other=0) == flags[i]
        y[i, 0:64] = load(x[i - 1, 0:64], mask=condition, other=0.0) where condition
    """
    y = hl.zeros_like(x)
    for i in hl.grid(96):
        if i > 0 and flags[i - 1] == flags[i]:
            y[i, :] = x[i - 1, :]
    return y


def unrolled(x):
    """
      x: bfloat16[96, 64]
      y: float32[96], output, empty

    for tm in tile(96):
        acc: float32[tm] = full([tm], float32, value=0.0)
        column: float32[tm] = cast(x[tm, 0], float32)
        acc_1: float32[tm] = acc + column * 1.0
        column_1: float32[tm] = cast(x[tm, 2], float32)
        acc_2: float32[tm] = acc_1 + column_1 * 3.0
        column_2: float32[tm] = cast(x[tm, 4], float32)
        acc_3: float32[tm] = acc_2 + column_2 * 5.0
        y[tm] = acc_3
    """
    y = hl.empty([96], dtype=hl.float32)
    for tm in hl.tile(96):
        acc = hl.zeros([tm])
        for k in hl.static_range(0, 6, 2):
            column = x[tm, k].float()
            acc = acc + column * (k + 1)
        y[tm] = acc
    return y


def inlined_helpers(x):
    """
      x: bfloat16[96, 64]
      y: bfloat16[96, 64], output, empty

    for tm in tile(96):
        for tn in tile(64):
            value: bfloat16[tm, tn] = x[tm, tn]
            value_1: bfloat16[tm, tn] = value * 2.0
            inner: bfloat16[tm, tn] = minimum(maximum(value_1, -3.0), 3.0)
            y[tm, tn] = inner * sigmoid(inner)
    """
    y = hl.empty_like(x)
    for tm, tn in hl.tile(x.shape):
        y[tm, tn] = gated(x[tm, tn], limit=3.0)
    return y


def gated(value, limit):
    inner = clipped(value * 2, limit)
    return inner * torch.sigmoid(inner)


def clipped(value, limit):
    return torch.clamp(value, -limit, limit)


def gathered_rows(x, idx):
    """
      x: bfloat16[96, 64]
      idx: int32[24]
      y: bfloat16[24, 64], output, empty

    for t in tile(24):
        rows: int32[t] = idx[t]
        x_rows: bfloat16[t, 64] = load(x[rows(rows), 0:64], mask=expand_dims(rows >= 0, axis=1), other=1.0)
        y[t, 0:64] = x_rows
    """
    y = hl.empty([24, 64], dtype=x.dtype)
    for t in hl.tile(24):
        rows = idx[t]
        y[t, :] = hl.load(x, [rows, ...], mask=(rows >= 0)[:, None], other=1)
    return y


def moved_tiles(x, offsets):
    """
      x: bfloat16[96, 64]
      offsets: int64[5]
      y: bfloat16[4, 32, 64], output, filled with 0.0

    for g in grid(4):
        start: int32[] = offsets[g]
        for t in tile(0, minimum(offsets[g + 1] - start, 32), max_extent=32):
            rows: int32[t] = start + t.index
            y[g, t, 0:64] = x[t + start, 0:64] + x[t + (start + 1 - 1), 0:64]
    """
    y = hl.zeros([4, 32, 64], dtype=x.dtype)
    for g in hl.grid(4):
        start = offsets[g]
        for t in hl.tile(min(offsets[g + 1] - start, 32)):
            rows = start + t.index
            y[g, t, :] = x[rows, :] + x[t.index + (start + 1) - 1, :]
    return y


def views(x):
    """
      x: bfloat16[96, 64]
      xt: bfloat16[64, 96] = x.permute(1, 0)
      y_view: bfloat16[64, 96], output, filled with 0.0
      y_view_1: bfloat16[96, 64] = y_view.reshape(96, 64)

    for tn in tile(64):
        for tm in tile(96):
            y_view[tn, tm] = xt[tn, tm]
    """
    xt = x.T
    y = hl.zeros([64 * 96], dtype=x.dtype)
    for tn, tm in hl.tile(xt.shape):
        y.view(64, 96)[tn, tm] = xt[tn, tm]
    return y.reshape(x.shape)


def taps(x):
    """
      x: bfloat16[96, 64]
      y: bfloat16[96, 64], output, empty

    for tm in tile(96):
        for tn in tile(64):
            acc: float32[tm, tn] = full([tm, tn], float32, value=0.0)
            at: int32[tm] = tm.index - 3 + 0
            acc_1: float32[tm, tn] = acc + cast(load(x[tm - 3, tn], mask=expand_dims(at >= 0, axis=1), other=0.0), float32)
            at_1: int32[tm] = tm.index - 3 + 1
            acc_2: float32[tm, tn] = acc_1 + cast(load(x[tm - 2, tn], mask=expand_dims(at_1 >= 0, axis=1), other=0.0), float32)
            at_2: int32[tm] = tm.index - 3 + 2
            acc_3: float32[tm, tn] = acc_2 + cast(load(x[tm - 1, tn], mask=expand_dims(at_2 >= 0, axis=1), other=0.0), float32)
            at_3: int32[tm] = tm.index - 3 + 3
            acc_4: float32[tm, tn] = acc_3 + cast(load(x[tm, tn], mask=expand_dims(at_3 >= 0, axis=1), other=0.0), float32)
            y[tm, tn] = cast(acc_4, bfloat16)
    """
    y = hl.empty(x.shape, dtype=x.dtype)
    for tm, tn in hl.tile(x.shape):
        acc = hl.zeros([tm, tn])
        for k in hl.static_range(4):
            at = tm.index - 3 + k  # as another would say tm.index + (k - 3)
            acc += hl.load(x, [at, tn], mask=(at >= 0)[:, None], other=0.0)
        y[tm, tn] = acc.to(y.dtype)
    return y
