r"""Attention over a batch of sequences of unequal length, laid end to end and never padded.

q, k and v are [H, T, D]: H heads, and along T all the sequences, one after another.  Sequence b
owns the positions from offsets[b] up to, but not including, offsets[b + 1], in q as well as in k
and v.  Within each sequence and head this is ordinary attention:

    out = softmax(q k^T / sqrt(D)) v

and with `causal`, a position attends only to itself and to positions before it.  The scores of one
head look like this; everything outside of the blocks is neither stored nor computed:

               keys                          keys, causal
             +-----+                         +-
             |  0  |                         | \
    queries  +-----+---+                     +---+-
                   | 1 |                         | \
                   +---+-------+                 +---+-
                       |   2   |                     | \
                       |       |                     |   \
                       +-------+                     +-----

No row of scores is ever complete.  The kernel walks over the keys of a query tile in tiles and
keeps a *running* softmax, per query:

    m      the largest score so far
    total  the sum of exp(score - m) so far
    acc    the sum of exp(score - m) * v so far

When a tile raises the maximum from m to m_new, what was summed before is too large by a factor of
exp(m_new - m), so `total` and `acc` are multiplied by alpha = exp(m - m_new) first.  In the end
acc / total is the result.  exp only ever sees numbers <= 0, so that nothing overflows, whatever the
scores are.

The loop over `tk` carries m, total and acc from tile to tile and is therefore ordered; the loops
over heads, sequences and query tiles are parallel.  Both `tq` and `tk` have ranges that are read
from memory, and the range of `tk` also depends on `tq`: with `causal` it ends where the query tile
ends, since later keys are masked for all of its queries.

Why no query ever divides 0 by 0: a query at position r has r >= begin, so the first key tile,
which starts at `begin`, holds a key that the query may see, and m is finite from then on.  A query
exists only if its sequence is not empty, and then the loop over keys runs at least once.
"""

from __future__ import annotations

import math

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def jagged_attention(
    q, k, v, offsets, causal: hl.constexpr = False, max_length: hl.constexpr = None
):
    """out[:, r] = the mean of v over r's sequence, weighted by softmax(q[:, r] k^T / sqrt(D)).

    q, k, v     [H, T, D] in float32, bfloat16 or float16; v may have a width of its own
    offsets     [B + 1] integers, not decreasing: where the sequences begin, and the last one ends
    causal      a position sees only itself and what comes before it in its sequence
    max_length  the longest sequence that may occur, if that is known to be less than T

    Returns [H, T, width of v] in v's dtype; positions in no sequence are zero.
    """
    H, T, D = q.shape
    B = offsets.shape[0] - 1
    longest = T if max_length is None else max_length
    scale = D**-0.5
    out = hl.zeros([H, T, v.shape[2]], dtype=v.dtype)
    for h, b in hl.grid([H, B]):
        begin, end = offsets[b], offsets[b + 1]
        for tq in hl.tile(begin, end, max_extent=longest):
            m = hl.full([tq], -math.inf, dtype=hl.float32)
            total = hl.zeros([tq], dtype=hl.float32)
            acc = hl.zeros([tq, v.shape[2]], dtype=hl.float32)
            last = min(end, tq.end) if causal else end
            for tk in hl.tile(begin, last, max_extent=longest):
                scores = hl.dot(q[h, tq, :], k[h, tk, :].T) * scale
                if causal:
                    seen = tk.index[None, :] <= tq.index[:, None]
                    scores = hl.where(seen, scores, -math.inf)
                m_new = hl.maximum(m, scores.amax(-1))
                alpha = hl.exp(m - m_new)
                p = hl.exp(scores - m_new[:, None])
                total = total * alpha + p.sum(-1)
                acc = hl.dot(p.to(v.dtype), v[h, tk, :], acc=acc * alpha[:, None])
                m = m_new
            out[h, tq, :] = (acc / total[:, None]).to(out.dtype)
    return out


def oracle(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    offsets: np.ndarray,
    causal: bool = False,
    max_length: int | None = None,
) -> np.ndarray:
    """The same in float64, from the definition: all scores of T x T, of which most are masked."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    begins, ends = offsets[:-1, None], offsets[1:, None]
    position = np.arange(q.shape[1])
    member = (begins <= position) & (position < ends)  # [B, T]
    allowed = (member[:, :, None] & member[:, None, :]).any(0)  # [T, T]
    if causal:
        allowed &= position[None, :] <= position[:, None]
    inside = member.any(0)
    q, k, v = (np.where(inside[:, None], a, 0) for a in (q, k, v))
    scores = np.where(allowed, q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[2]), -math.inf)
    peak = np.where(inside, scores.max(-1, initial=-math.inf), 0)[..., None]
    weights = np.exp(scores - peak)
    total = weights.sum(-1, keepdims=True)
    return weights @ v / np.where(total == 0, 1, total)


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 50, 51, 51, 180),
    length: int = 200,
    heads: int = 2,
    width: int = 32,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """q, k, v [heads, length, width], offsets [sequences + 1]."""
    rng = np.random.default_rng(seed)
    q, k, v = rng.standard_normal((3, heads, length, width), np.float32)
    return q, k, v, np.array(offsets, np.int32)


def case(heads: int, length: int, width: int, sequences: int, causal: bool, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    q = tile.spec((heads, length, width), dtype)
    return q, q, q, tile.spec((sequences + 1,), "int32"), causal


SIZES = (
    (4, 1024, 128, 8, False),  # aligned
    (3, 1000, 64, 7, True),  # unaligned
    (16, 16384, 128, 32, True),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX, with and without the causal mask."""
    for causal in (False, True):
        arguments = (*make_inputs(), causal)
        title = "jagged_attention, causal" if causal else "jagged_attention"
        compare(title, jagged_attention, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
