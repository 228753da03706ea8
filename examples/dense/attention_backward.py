"""Causal attention with heads and a batch, and its gradients dq, dk and dv.

The forward kernel returns, besides out, one number per query: lse = log of the sum of exp(scores).
With it the backward kernel has the weights of any tile at once, p = exp(scores - lse), without a
running maximum.  For a gradient g of out:

    delta = sum over features of g * out
    dv = p^T g        dp = g v^T        ds = p * (dp - delta) / sqrt(D)        dq = ds k
                                                                              dk = ds^T q

How to read the backward kernel: three loop nests, each of which is a launch.  The first one
computes delta, once for every query.  The second one sums dq over the keys of a tile of queries;
these end where the tile of queries ends.  The third one sums dk and dv over the queries of a tile
of keys; these begin where the tile of keys begins.  The weights are computed twice: that costs a
product, and no two iterations add to the same gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def attention_with_lse(q, k, v):
    """Causal attention: q, k, v [B, H, T, D]; out [B, H, T, D] in v's dtype, lse [B, H, T]."""
    B, H, T, D = q.shape
    out = hl.empty(v.shape, dtype=v.dtype)
    lse = hl.empty([B, H, T], dtype=hl.float32)
    for b, h in hl.grid([B, H]):
        for tq in hl.tile(T):
            m = hl.full([tq], -math.inf, dtype=hl.float32)
            total = hl.zeros([tq], dtype=hl.float32)
            acc = hl.zeros([tq, D], dtype=hl.float32)
            for tk in hl.tile(0, tq.end):
                scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
                scores = hl.where(tk.index[None, :] <= tq.index[:, None], scores, -math.inf)
                m_new = hl.maximum(m, scores.amax(-1))
                alpha = hl.exp(m - m_new)
                p = hl.exp(scores - m_new[:, None])
                total = total * alpha + p.sum(-1)
                acc = hl.dot(p.to(v.dtype), v[b, h, tk, :], acc=acc * alpha[:, None])
                m = m_new
            out[b, h, tq, :] = (acc / total[:, None]).to(out.dtype)
            lse[b, h, tq] = m + hl.log(total)
    return out, lse


@tile.kernel
def attention_backward(q, k, v, out, lse, grad):
    """The gradients of causal attention.

    q, k, v, out, grad  [B, H, T, D] in float32 or bfloat16; grad is the gradient of out
    lse                 [B, H, T] in float32

    Returns dq, dk and dv [B, H, T, D] in the dtypes of q, k and v.
    """
    B, H, T, D = q.shape
    delta = hl.empty([B, H, T], dtype=hl.float32)
    dq = hl.empty(q.shape, dtype=q.dtype)
    dk = hl.empty(k.shape, dtype=k.dtype)
    dv = hl.empty(v.shape, dtype=v.dtype)
    for b, h in hl.grid([B, H]):
        for tq in hl.tile(T):
            products = grad[b, h, tq, :].to(hl.float32) * out[b, h, tq, :].to(hl.float32)
            delta[b, h, tq] = products.sum(-1)
    for b, h in hl.grid([B, H]):
        for tq in hl.tile(T):
            acc = hl.zeros([tq, D], dtype=hl.float32)
            for tk in hl.tile(0, tq.end):
                scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
                p = hl.exp(scores - lse[b, h, tq][:, None])
                p = hl.where(tk.index[None, :] <= tq.index[:, None], p, 0.0)
                dp = hl.dot(grad[b, h, tq, :], v[b, h, tk, :].T)
                ds = p * (dp - delta[b, h, tq][:, None]) * D**-0.5
                acc = hl.dot(ds.to(k.dtype), k[b, h, tk, :], acc=acc)
            dq[b, h, tq, :] = acc.to(dq.dtype)
    for b, h in hl.grid([B, H]):
        for tk in hl.tile(T):
            sum_k = hl.zeros([tk, D], dtype=hl.float32)
            sum_v = hl.zeros([tk, D], dtype=hl.float32)
            for tq in hl.tile(tk.begin, T):
                g = grad[b, h, tq, :]
                scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
                p = hl.exp(scores - lse[b, h, tq][:, None])
                p = hl.where(tk.index[None, :] <= tq.index[:, None], p, 0.0)
                sum_v = hl.dot(p.to(v.dtype).T, g, acc=sum_v)
                dp = hl.dot(g, v[b, h, tk, :].T)
                ds = p * (dp - delta[b, h, tq][:, None]) * D**-0.5
                sum_k = hl.dot(ds.to(q.dtype).T, q[b, h, tq, :], acc=sum_k)
            dk[b, h, tk, :] = sum_k.to(dk.dtype)
            dv[b, h, tk, :] = sum_v.to(dv.dtype)
    return dq, dk, dv


def causal_scores(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """q k^T / sqrt(D) in float64, -inf where the key comes after the query."""
    scores = q.astype(np.float64) @ k.astype(np.float64).swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    return np.where(np.tri(q.shape[-2], dtype=bool), scores, -math.inf)


def oracle_forward(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """out and lse in float64, from whole matrices."""
    lse = np.logaddexp.reduce(causal_scores(q, k), axis=-1)
    return np.exp(causal_scores(q, k) - lse[..., None]) @ v.astype(np.float64), lse


def oracle(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    out: np.ndarray,
    lse: np.ndarray,
    grad: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dq, dk and dv in float64, for out and lse as they are given."""
    q, k, v, out, lse, grad = (a.astype(np.float64) for a in (q, k, v, out, lse, grad))
    p = np.exp(causal_scores(q, k) - lse[..., None])
    dp = grad @ v.swapaxes(-1, -2)
    ds = p * (dp - (grad * out).sum(-1, keepdims=True)) / math.sqrt(q.shape[-1])
    return ds @ k, ds.swapaxes(-1, -2) @ q, p.swapaxes(-1, -2) @ grad


def make_inputs(
    seed: int = 0, batch: int = 1, heads: int = 2, length: int = 100, width: int = 32
) -> tuple[np.ndarray, ...]:
    """q, k, v, out [batch, heads, length, width], lse [batch, heads, length], grad as q."""
    rng = np.random.default_rng(seed)
    q, k, v, grad = rng.standard_normal((4, batch, heads, length, width), np.float32)
    out, lse = (a.astype(np.float32) for a in oracle_forward(q, k, v))
    return q, k, v, out, lse, grad


def case(batch: int, heads: int, length: int, width: int, dtype: str) -> tuple:
    """Arguments of the backward kernel of which only shapes are known."""
    q = tile.spec((batch, heads, length, width), dtype)
    return q, q, q, q, tile.spec((batch, heads, length), "float32"), q


SIZES = ((2, 4, 1024, 128), (1, 3, 1000, 64), (4, 16, 4096, 128))  # aligned, unaligned, production
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))
FORWARD_CASES = tuple(each[:3] for each in CASES)


def cases() -> Iterator[tuple[tile.Kernel, tuple]]:
    """Every kernel with its arguments, for compile checks."""
    yield from ((attention_with_lse, each) for each in FORWARD_CASES)
    yield from ((attention_backward, each) for each in CASES)


def main() -> None:
    """Runs the kernels from torch and from JAX."""
    arguments = make_inputs()
    forward = arguments[:3]
    compare("attention_with_lse", attention_with_lse, forward, oracle_forward(*forward))
    compare("attention_backward", attention_backward, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
