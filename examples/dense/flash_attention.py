"""Attention with a running softmax over tiles of keys, for sequences that are all equally long.

q is [B, H, T, D], k and v are [B, H, S, D].  A row of scores is never held whole: the kernel walks
over the keys in tiles and keeps, per query, the largest score so far (m), the sum of
exp(score - m) so far (total), and the sum of exp(score - m) * v so far (acc).  When the maximum
grows, what was summed before is scaled down.  `examples/jagged/jagged_attention.py` explains each
step, and is the same kernel for sequences of unequal length.

With `causal`, query i sees keys 0 to i, and the loop over keys ends where the query tile
ends: a tile of keys that no query of the tile sees is neither loaded nor computed.

Batch and heads are indices here (`hl.grid`), queries and keys are tiles.  Spelled in torch.
"""

from __future__ import annotations

import math

import numpy as np
import torch

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def flash_attention(q, k, v, causal: hl.constexpr = False):
    """out = softmax(q k^T / sqrt(D)) v; with `causal`, query i sees keys 0 to i."""
    B, H, T, D = q.shape
    S = k.shape[2]
    assert not causal or T == S, "causal attention needs as many keys as queries"
    scale = D**-0.5
    out = torch.empty_like(q)
    for b, h in hl.grid([B, H]):
        for tq in hl.tile(T):
            m = torch.full([tq], -math.inf, dtype=torch.float32)
            total = torch.zeros([tq], dtype=torch.float32)
            acc = torch.zeros([tq, D], dtype=torch.float32)
            for tk in hl.tile(0, tq.end if causal else S, max_extent=S):
                keys = k[b, h, tk, :]
                scores = hl.dot(q[b, h, tq, :], keys.transpose(0, 1)) * scale
                if causal:
                    seen = tq.index[:, None] >= tk.index[None, :]
                    scores = torch.where(seen, scores, -math.inf)
                m_new = torch.maximum(m, torch.amax(scores, -1))
                alpha = torch.exp(m - m_new)
                p = torch.exp(scores - m_new[:, None])
                total = total * alpha + torch.sum(p, -1)
                acc = torch.addmm(acc * alpha[:, None], p.to(v.dtype), v[b, h, tk, :])
                m = m_new
            out[b, h, tq, :] = (acc / total[:, None]).to(out.dtype)
    return out


def oracle(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False) -> np.ndarray:
    """The same in float64, with all scores at once."""
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    scores = np.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[3])
    if causal:
        scores = np.where(np.tri(q.shape[2], dtype=bool), scores, -math.inf)
    weights = np.exp(scores - np.logaddexp.reduce(scores, axis=-1, keepdims=True))
    return weights @ v


def make_inputs(
    seed: int = 0, batch: int = 2, heads: int = 2, length: int = 150, width: int = 32
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, k, v [batch, heads, length, width]."""
    rng = np.random.default_rng(seed)
    q, k, v = rng.standard_normal((3, batch, heads, length, width), np.float32)
    return q, k, v


def case(batch: int, heads: int, length: int, width: int, causal: bool, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    q = tile.spec((batch, heads, length, width), dtype)
    return q, q, q, causal


SIZES = (
    (2, 4, 1024, 128, False),  # aligned
    (2, 3, 1000, 64, True),  # unaligned
    (8, 16, 4096, 128, True),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX, with and without the causal mask."""
    for causal in (False, True):
        arguments = (*make_inputs(), causal)
        title = "flash_attention, causal" if causal else "flash_attention"
        compare(title, flash_attention, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
