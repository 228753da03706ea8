"""Causal attention over sequences of any length, in which several query heads share keys.

    query heads  0 1 2 3 4 5 6 7
    key heads    0 0 0 0 1 1 1 1      (8 heads of queries, 2 of keys and values)

    offsets      0          50 51          180     200
                 |-----------|-|------------|.......|

How to read the kernel: as jagged_attention.py; keys and values are picked by h // share.  Nothing
is repeated in memory: the block of keys that four heads read is the same one.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def grouped_query_attention(q, k, v, offsets, causal: hl.constexpr = True):
    """out[h, r] = softmax(q[h, r] k[h // share]^T / sqrt(D)) v[h // share] within r's sequence.

    q        [H, T, D] in float32 or bfloat16
    k, v     [K, T, D]; H is a multiple of K, and share = H // K
    offsets  [B + 1] integers, not decreasing: where the sequences begin, and the last one ends
    causal   a position sees only itself and what comes before it

    Returns [H, T, D] in v's dtype; positions in no sequence are zero.
    """
    H, T, D = q.shape
    assert H % k.shape[0] == 0, "the number of query heads must be a multiple of that of key heads"
    share = H // k.shape[0]
    out = hl.zeros([H, T, D], dtype=v.dtype)
    for h, b in hl.grid([H, offsets.shape[0] - 1]):
        begin, end = offsets[b], offsets[b + 1]
        for tq in hl.tile(begin, end):
            m = hl.full([tq], -math.inf, dtype=hl.float32)
            total = hl.zeros([tq], dtype=hl.float32)
            acc = hl.zeros([tq, D], dtype=hl.float32)
            last = min(end, tq.end) if causal else end
            for tk in hl.tile(begin, last):
                scores = hl.dot(q[h, tq, :], k[h // share, tk, :].T) * D**-0.5
                if causal:
                    scores = hl.where(tk.index[None, :] <= tq.index[:, None], scores, -math.inf)
                m_new = hl.maximum(m, scores.amax(-1))
                alpha = hl.exp(m - m_new)
                p = hl.exp(scores - m_new[:, None])
                total = total * alpha + p.sum(-1)
                acc = hl.dot(p.to(v.dtype), v[h // share, tk, :], acc=acc * alpha[:, None])
                m = m_new
            out[h, tq, :] = (acc / total[:, None]).to(out.dtype)
    return out


def oracle(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, offsets: np.ndarray, causal: bool = True
) -> np.ndarray:
    """The same in float64, one sequence after the other, with keys and values repeated."""
    share = len(q) // len(k)
    q, k, v = (a.astype(np.float64) for a in (q, np.repeat(k, share, 0), np.repeat(v, share, 0)))
    out = np.zeros(q.shape)
    for begin, end in itertools.pairwise(offsets):
        if begin == end:
            continue
        s = slice(begin, end)
        scores = q[:, s] @ k[:, s].transpose(0, 2, 1) / math.sqrt(q.shape[2])
        if causal:
            scores = np.where(np.tri(end - begin, dtype=bool), scores, -math.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, s] = weights / weights.sum(-1, keepdims=True) @ v[:, s]
    return out


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 50, 51, 51, 180),
    length: int = 200,
    heads: int = 4,
    key_heads: int = 2,
    width: int = 32,
) -> tuple:
    """q [heads, length, width], k and v [key_heads, length, width], offsets [sequences + 1]."""
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((heads, length, width), np.float32)
    k, v = rng.standard_normal((2, key_heads, length, width), np.float32)
    return q, k, v, np.array(offsets, np.int32)


def case(heads: int, keys: int, length: int, width: int, sequences: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    q, k = tile.spec((heads, length, width), dtype), tile.spec((keys, length, width), dtype)
    return q, k, k, tile.spec((sequences + 1,), "int32")


SIZES = (
    (8, 2, 1024, 128, 8),  # aligned
    (6, 3, 1000, 64, 7),  # unaligned
    (32, 8, 16384, 128, 32),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("grouped_query_attention", grouped_query_attention, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
