"""Causal attention within sequences of any length, that looks back at most `window` positions.

    offsets     0          50 51          180     200
    k positions |-----------|-|------------|.......|
                                  kkkkkk            the window of one tile of queries:
                                      qqqq          from its first query - window + 1 to its last

How to read the kernel: as jagged_attention.py, but the loop over keys begins at
max(begin, tq.begin - window + 1): earlier keys are masked for every query of the tile.  The work
grows with T * window instead of the squares of the lengths.  The masks inside of the loop make
the window exact for each query.

Why no query divides 0 by 0: it always sees itself.  A tile of keys may lie before the window of a
late query of the tile; its m is then still -inf, so the differences that exp sees are guarded.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def sliding_window_attention(q, k, v, offsets, window: hl.constexpr = 64):
    """out[:, r] = softmax(q[:, r] k^T / sqrt(D)) v over positions s with r - window < s <= r.

    q, k, v  [H, T, D] in float32 or bfloat16
    offsets  [B + 1] integers, not decreasing: where the sequences begin, and the last one ends
    window   positions that a query sees, itself included

    Returns [H, T, D] in v's dtype; positions in no sequence are zero.
    """
    H, T, D = q.shape
    out = hl.zeros([H, T, D], dtype=v.dtype)
    for h, b in hl.grid([H, offsets.shape[0] - 1]):
        begin, end = offsets[b], offsets[b + 1]
        for tq in hl.tile(begin, end):
            m = hl.full([tq], -math.inf, dtype=hl.float32)
            total = hl.zeros([tq], dtype=hl.float32)
            acc = hl.zeros([tq, D], dtype=hl.float32)
            for tk in hl.tile(max(begin, tq.begin - window + 1), min(end, tq.end)):
                distance = tq.index[:, None] - tk.index[None, :]
                seen = (distance >= 0) & (distance < window)
                scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * D**-0.5
                scores = hl.where(seen, scores, -math.inf)
                m_new = hl.maximum(m, scores.amax(-1))
                known = hl.where(m_new == -math.inf, 0.0, m_new)
                alpha = hl.exp(m - known)
                p = hl.exp(scores - known[:, None])
                total = total * alpha + p.sum(-1)
                acc = hl.dot(p.to(v.dtype), v[h, tk, :], acc=acc * alpha[:, None])
                m = m_new
            out[h, tq, :] = (acc / total[:, None]).to(out.dtype)
    return out


def oracle(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, offsets: np.ndarray, window: int = 64
) -> np.ndarray:
    """The same in float64, one query after the other."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    out = np.zeros(v.shape)
    for begin, end in itertools.pairwise(offsets):
        for r in range(begin, end):
            seen = slice(max(begin, r - window + 1), r + 1)
            scores = np.einsum("hd,hsd->hs", q[:, r], k[:, seen]) / math.sqrt(q.shape[2])
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            out[:, r] = np.einsum("hs,hsd->hd", weights, v[:, seen])
    return out


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 50, 51, 51, 180),
    length: int = 200,
    heads: int = 2,
    width: int = 32,
    window: int = 40,
) -> tuple:
    """q, k, v [heads, length, width], offsets [sequences + 1], window."""
    rng = np.random.default_rng(seed)
    q, k, v = rng.standard_normal((3, heads, length, width), np.float32)
    return q, k, v, np.array(offsets, np.int32), window


def case(heads: int, length: int, width: int, sequences: int, window: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    q = tile.spec((heads, length, width), dtype)
    return q, q, q, tile.spec((sequences + 1,), "int32"), window


SIZES = (
    (4, 1024, 128, 8, 256),  # aligned
    (3, 1000, 64, 7, 100),  # unaligned
    (16, 16384, 128, 32, 1024),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("sliding_window_attention", sliding_window_attention, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
