"""The gradients of attention over sequences of any length: dq, dk and dv.

The forward pass keeps, besides out, one number per query: lse = log of the sum of exp(scores).
With it the weights of any tile are p = exp(scores - lse), at once and without a running maximum.
For a gradient g of out:

    dv = p^T g        dp = g v^T        ds = p * (dp - delta) / sqrt(D),  delta = sum of g * out
    dq = ds k         dk = ds^T q

How to read the kernels: `backward_q` loops over tiles of queries and, inside, over keys, and sums
dq; `backward_kv` loops over tiles of keys and, inside, over queries, and sums dk and dv.  Each
computes the weights for itself: that costs a product, and saves writing a matrix of T x T.
Nothing is stored by two iterations, so that no atomic addition is needed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def attention_with_lse(q, k, v, offsets):
    """Attention within sequences (see jagged_attention.py), and the log of the sum of exp(scores).

    q, k, v  [H, T, D] in float32 or bfloat16
    offsets  [B + 1] integers, not decreasing: where the sequences begin, and the last one ends

    Returns out [H, T, D] in v's dtype and lse [H, T] in float32; both are zero in no sequence.
    """
    H, T, D = q.shape
    out = hl.zeros([H, T, D], dtype=v.dtype)
    lse = hl.zeros([H, T], dtype=hl.float32)
    for h, b in hl.grid([H, offsets.shape[0] - 1]):
        for tq in hl.tile(offsets[b], offsets[b + 1]):
            m = hl.full([tq], -math.inf, dtype=hl.float32)
            total = hl.zeros([tq], dtype=hl.float32)
            acc = hl.zeros([tq, D], dtype=hl.float32)
            for tk in hl.tile(offsets[b], offsets[b + 1]):
                scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * D**-0.5
                m_new = hl.maximum(m, scores.amax(-1))
                alpha = hl.exp(m - m_new)
                p = hl.exp(scores - m_new[:, None])
                total = total * alpha + p.sum(-1)
                acc = hl.dot(p.to(v.dtype), v[h, tk, :], acc=acc * alpha[:, None])
                m = m_new
            out[h, tq, :] = (acc / total[:, None]).to(out.dtype)
            lse[h, tq] = m + hl.log(total)
    return out, lse


@tile.kernel
def backward_q(q, k, v, out, lse, grad, offsets):
    """dq [H, T, D] in q's dtype; rows in no sequence are zero."""
    D = q.shape[2]
    dq = hl.zeros(q.shape, dtype=q.dtype)
    for h, b in hl.grid([q.shape[0], offsets.shape[0] - 1]):
        for tq in hl.tile(offsets[b], offsets[b + 1]):
            g = grad[h, tq, :]
            delta = (g.to(hl.float32) * out[h, tq, :].to(hl.float32)).sum(-1)
            acc = hl.zeros([tq, D], dtype=hl.float32)
            for tk in hl.tile(offsets[b], offsets[b + 1]):
                scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * D**-0.5
                p = hl.exp(scores - lse[h, tq][:, None])
                dp = hl.dot(g, v[h, tk, :].T)
                ds = p * (dp - delta[:, None]) * D**-0.5
                acc = hl.dot(ds.to(k.dtype), k[h, tk, :], acc=acc)
            dq[h, tq, :] = acc.to(dq.dtype)
    return dq


@tile.kernel
def backward_kv(q, k, v, out, lse, grad, offsets):
    """dk and dv [H, T, D] in the dtypes of k and v; rows in no sequence are zero."""
    D = q.shape[2]
    dk = hl.zeros(k.shape, dtype=k.dtype)
    dv = hl.zeros(v.shape, dtype=v.dtype)
    for h, b in hl.grid([q.shape[0], offsets.shape[0] - 1]):
        for tk in hl.tile(offsets[b], offsets[b + 1]):
            sum_k = hl.zeros([tk, D], dtype=hl.float32)
            sum_v = hl.zeros([tk, D], dtype=hl.float32)
            for tq in hl.tile(offsets[b], offsets[b + 1]):
                g = grad[h, tq, :]
                delta = (g.to(hl.float32) * out[h, tq, :].to(hl.float32)).sum(-1)
                scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * D**-0.5
                p = hl.exp(scores - lse[h, tq][:, None])
                sum_v = hl.dot(p.to(v.dtype).T, g, acc=sum_v)
                dp = hl.dot(g, v[h, tk, :].T)
                ds = p * (dp - delta[:, None]) * D**-0.5
                sum_k = hl.dot(ds.to(q.dtype).T, q[h, tq, :], acc=sum_k)
            dk[h, tk, :] = sum_k.to(dk.dtype)
            dv[h, tk, :] = sum_v.to(dv.dtype)
    return dk, dv


def weights(q: np.ndarray, k: np.ndarray, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
    """softmax(q k^T / sqrt(D)) and the log of its denominators for one sequence, in float64."""
    rows = slice(begin, end)
    scores = q[:, rows].astype(np.float64) @ k[:, rows].astype(np.float64).transpose(0, 2, 1)
    scores /= math.sqrt(q.shape[2])
    peak = scores.max(-1, keepdims=True)
    total = np.exp(scores - peak).sum(-1, keepdims=True)
    return np.exp(scores - peak) / total, (peak + np.log(total))[..., 0]


def oracle(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """out and lse in float64, one sequence after the other."""
    out, lse = np.zeros(v.shape), np.zeros(q.shape[:2])
    for begin, end in itertools.pairwise(offsets):
        if begin < end:
            p, lse[:, begin:end] = weights(q, k, begin, end)
            out[:, begin:end] = p @ v[:, begin:end].astype(np.float64)
    return out, lse


def gradients(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, grad: np.ndarray, offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dq, dk and dv in float64, from the derivative of softmax: dp p - p (p . dp)."""
    wide = [a.astype(np.float64) for a in (q, k, v, grad)]
    found = np.zeros((3, *q.shape))
    for begin, end in itertools.pairwise(offsets):
        if begin == end:
            continue
        rows, g, values = slice(begin, end), wide[3][:, begin:end], wide[2][:, begin:end]
        p, _ = weights(q, k, begin, end)
        dp = g @ values.transpose(0, 2, 1)
        ds = p * (dp - (p * dp).sum(-1, keepdims=True)) / math.sqrt(q.shape[2])
        found[0][:, rows] = ds @ wide[1][:, rows]
        found[1][:, rows] = ds.transpose(0, 2, 1) @ wide[0][:, rows]
        found[2][:, rows] = p.transpose(0, 2, 1) @ g
    return found[0], found[1], found[2]


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 50, 51, 51, 180),
    length: int = 200,
    heads: int = 2,
    width: int = 32,
) -> tuple:
    """q, k, v, out [heads, length, width], lse [heads, length], grad as out, offsets."""
    rng = np.random.default_rng(seed)
    q, k, v, grad = rng.standard_normal((4, heads, length, width), np.float32)
    cuts = np.array(offsets, np.int32)
    out, lse = (a.astype(np.float32) for a in oracle(q, k, v, cuts))
    return q, k, v, out, lse, grad, cuts


def case(heads: int, length: int, width: int, sequences: int, dtype: str) -> tuple:
    """Arguments of the backward kernels of which only shapes are known."""
    q, lse = tile.spec((heads, length, width), dtype), tile.spec((heads, length), "float32")
    return q, q, q, q, lse, q, tile.spec((sequences + 1,), "int32")


SIZES = (
    (4, 1024, 128, 8),  # aligned
    (3, 1000, 64, 7),  # unaligned
    (16, 16384, 128, 32),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))
FORWARD_CASES = tuple((*c[:3], c[-1]) for c in CASES)


def cases() -> Iterator[tuple[tile.Kernel, tuple]]:
    """Every kernel with its arguments, for compile checks."""
    for kernel, arguments in (
        (attention_with_lse, FORWARD_CASES),
        (backward_q, CASES),
        (backward_kv, CASES),
    ):
        yield from ((kernel, each) for each in arguments)


def main() -> None:
    """Runs the kernels from torch and from JAX."""
    arguments = make_inputs()
    q, k, v, _, _, grad, offsets = arguments
    forward = oracle(q, k, v, offsets)
    compare("attention_with_lse", attention_with_lse, (q, k, v, offsets), forward)
    dq, dk, dv = gradients(q, k, v, grad, offsets)
    compare("backward_q", backward_q, arguments, dq)
    compare("backward_kv", backward_kv, arguments, (dk, dv))


if __name__ == "__main__":
    main()
