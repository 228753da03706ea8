"""HSTU attention: the attention of sequential recommenders, with silu in the place of softmax.

    offsets  0          50 51          180     200
             |-----------|-|------------|.......|
              user 0      1 user 3 (2 is empty)

A user's sequence is its history of events, and lengths differ wildly.  Every pair of positions is
weighted by silu(q k^T / sqrt(D)) / longest, without a maximum and without a sum, so that a tile of
keys needs no statistics of the others: the loop over keys carries the sum of weighted values only.
The sequences stay as they are, one after the other: nothing is padded to the longest.
"""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def hstu_attention(q, k, v, offsets, longest: hl.constexpr, causal: hl.constexpr = True):
    """out[:, r] = sum of silu(q[:, r] k[:, s] / sqrt(D)) v[:, s] / longest over s in r's sequence.

    q, k     [H, T, D] in float32 or bfloat16
    v        [H, T, width]
    offsets  [B + 1] integers, not decreasing: where the sequences begin, and the last one ends
    longest  the length that scores are divided by; no sequence may be longer
    causal   a position sees only itself and what comes before it

    Returns [H, T, width] in v's dtype; positions in no sequence are zero.
    """
    H, T, D = q.shape
    width = v.shape[2]
    out = jnp.zeros([H, T, width], dtype=v.dtype)
    for h, b in hl.grid([H, offsets.shape[0] - 1]):
        begin, end = offsets[b], offsets[b + 1]
        for tq in hl.tile(begin, end, max_extent=longest):
            acc = jnp.zeros([tq, width], dtype=jnp.float32)
            last = min(end, tq.end) if causal else end
            for tk in hl.tile(begin, last, max_extent=longest):
                scores = jnp.dot(q[h, tq, :], k[h, tk, :].T, preferred_element_type=jnp.float32)
                weights = jax.nn.silu(scores * D**-0.5) / longest
                if causal:
                    weights = jnp.where(tk.index[None, :] <= tq.index[:, None], weights, 0.0)
                acc += jnp.dot(
                    weights.astype(v.dtype), v[h, tk, :], preferred_element_type=jnp.float32
                )
            out[h, tq, :] = acc.astype(out.dtype)
    return out


def oracle(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    offsets: np.ndarray,
    longest: int,
    causal: bool = True,
) -> np.ndarray:
    """The same in float64, one sequence after the other."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    out = np.zeros(v.shape)
    for begin, end in itertools.pairwise(offsets):
        s = slice(begin, end)
        scores = q[:, s] @ k[:, s].transpose(0, 2, 1) / np.sqrt(q.shape[2])
        weights = scores / (1 + np.exp(-scores)) / longest
        out[:, s] = (np.tril(weights) if causal else weights) @ v[:, s]
    return out


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 50, 51, 51, 180),
    length: int = 200,
    heads: int = 2,
    width: int = 32,
) -> tuple:
    """q, k, v [heads, length, width], offsets [sequences + 1], longest."""
    rng = np.random.default_rng(seed)
    q, k, v = rng.standard_normal((3, heads, length, width), np.float32)
    return q, k, v, np.array(offsets, np.int32), length


def case(heads: int, length: int, width: int, sequences: int, longest: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    q = tile.spec((heads, length, width), dtype)
    return q, q, q, tile.spec((sequences + 1,), "int32"), longest


SIZES = (
    (4, 1024, 128, 8, 1024),  # aligned
    (3, 1000, 64, 7, 500),  # unaligned
    (16, 65536, 128, 256, 4096),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("hstu_attention", hstu_attention, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
