r"""Attention over sequences laid end to end, in the layout in which most models hold them.

q is [T, H, D]: for every token H heads of width D, as a projection of the tokens gives them.  k and
v are [T, K, D] with K heads, each of them used by H / K heads of q (grouped queries).  Sequence b
owns the tokens from offsets[b] up to, but not including, offsets[b + 1].  See jagged_attention.py
for what is computed, and how the running softmax works; here the layout is the point:

    token 0   | head 0 | head 1 | ... |     a block is some tokens with all of their heads
    token 1   | head 0 | head 1 | ... |
    ...

The keys of one head do not lie together.  The usual way out is to transpose q, k, v and the result
in memory, which for short sequences takes longer than the attention itself.  Nothing of that is
written here, and nothing of that happens: `for h in hl.grid(H)` is a parallel loop, so all of its
iterations may run within one step, on blocks that hold all heads.  In vector memory a block is
turned to [heads, tokens, width], which is cheap.
"""

from __future__ import annotations

import itertools
import math

import jax.numpy as jnp
import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def varlen_attention(
    q, k, v, offsets, causal: hl.constexpr = True, max_length: hl.constexpr = None
):
    """out[r, h] = the mean of v over r's sequence, weighted by softmax(q[r, h] k^T / sqrt(D)).

    q           [T, H, D] in float32 or bfloat16
    k, v        [T, K, D]: K divides H, and head h of q belongs to head h // (H // K) of k and v
    offsets     [B + 1] integers, not decreasing: where the sequences begin, and the last one ends
    causal      a position sees only itself and what comes before it in its sequence
    max_length  the longest sequence that may occur, if that is known to be less than T

    Returns [T, H, D] in q's dtype; positions in no sequence are zero.
    """
    T, H, D = q.shape
    share = H // k.shape[1]
    longest = T if max_length is None else max_length
    out = jnp.zeros([T, H, D], dtype=q.dtype)
    for h, b in hl.grid([H, offsets.shape[0] - 1]):
        begin, end = offsets[b], offsets[b + 1]
        for tq in hl.tile(begin, end, max_extent=longest):
            m = jnp.full([tq], -math.inf, dtype=jnp.float32)
            total = jnp.zeros([tq], dtype=jnp.float32)
            acc = jnp.zeros([tq, D], dtype=jnp.float32)
            last = min(end, tq.end) if causal else end
            for tk in hl.tile(begin, last, max_extent=longest):
                keys, values = k[tk, h // share, :], v[tk, h // share, :]
                scores = jnp.dot(q[tq, h, :], keys.T, preferred_element_type=jnp.float32) * D**-0.5
                if causal:
                    scores = jnp.where(tk.index[None, :] <= tq.index[:, None], scores, -math.inf)
                m_new = jnp.maximum(m, scores.max(axis=-1))
                alpha = jnp.exp(m - m_new)
                p = jnp.exp(scores - m_new[:, None])
                total = total * alpha + p.sum(axis=-1)
                new = jnp.dot(p.astype(v.dtype), values, preferred_element_type=jnp.float32)
                acc = acc * alpha[:, None] + new
                m = m_new
            out[tq, h, :] = (acc / total[:, None]).astype(out.dtype)
    return out


def oracle(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    offsets: np.ndarray,
    causal: bool = True,
    max_length: int | None = None,
) -> np.ndarray:
    """The same in float64, one sequence and head after the other."""
    out, share = np.zeros(q.shape), q.shape[1] // k.shape[1]
    for begin, end in itertools.pairwise(offsets):
        for h in range(q.shape[1] if begin < end else 0):
            queries, keys = q[begin:end, h], k[begin:end, h // share]
            scores = queries.astype(np.float64) @ keys.astype(np.float64).T / math.sqrt(q.shape[2])
            if causal:
                scores = np.where(np.tri(end - begin, dtype=bool), scores, -np.inf)
            p = np.exp(scores - scores.max(1, keepdims=True))
            out[begin:end, h] = p / p.sum(1, keepdims=True) @ v[begin:end, h // share]
    return out


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 37, 37, 120, 190),
    length: int = 200,
    heads: int = 4,
    key_heads: int = 2,
    width: int = 32,
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """q [length, heads, width], k and v [length, key_heads, width], offsets."""
    rng = np.random.default_rng(seed)
    q = rng.standard_normal((length, heads, width), np.float32)
    k, v = rng.standard_normal((2, length, key_heads, width), np.float32)
    return q, k, v, np.array(offsets, np.int32)


def case(
    length: int, heads: int, keys: int, width: int, sequences: int, longest: int, dtype: str
) -> tuple:
    """Arguments of which only shapes are known."""
    q, k = tile.spec((length, heads, width), dtype), tile.spec((length, keys, width), dtype)
    return q, k, k, tile.spec((sequences + 1,), "int32"), True, longest


SIZES = (
    (1024, 8, 4, 128, 8, 512),  # aligned
    (1000, 6, 3, 64, 7, 300),  # unaligned
    (65536, 16, 16, 128, 256, 2048),  # production
    (65536, 16, 8, 64, 256, 2048),  # production, narrow heads
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("varlen_attention", varlen_attention, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
