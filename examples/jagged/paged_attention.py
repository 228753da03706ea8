"""Ragged paged attention: queries of many sequences against keys and values that lie in pages.

A server holds the keys and values of all sequences in one pool of pages of equal size.  The page
table of a sequence says which pages are its own, in order; `lengths` says how many positions of
them are in use.  The last page is filled in part, and what else it holds is never seen:

    sequence b, lengths[b] = 37, pages of 16        the pool
      positions   0 ... 15   16 ... 31   32 .. 36     page 0  1  2  3  4  5  6  7
      table[b]       5           2           7               [.][.][b][.][.][b][.][b]

The queries of all sequences are concatenated: sequence b asks with the rows from offsets[b] to
offsets[b + 1] of `q`, which are its last positions.  So one call serves sequences that are being
decoded (one query each), sequences whose prompt is being read (many), and ones that have nothing to
ask.  A query sees its own position and everything before it.  `heads / kv_heads` query heads share
the keys and values of one head.

How to read the kernel: `tq` is a tile of queries of one sequence, and `p` counts the pages of that
sequence, as many as its length needs.  `page = table[b, p]` is read from memory and used as an
index: which block of the pool comes next is looked up, nothing is copied together.  `m`, `total`
and `acc` are carried from page to page: the largest score so far, and the sums of weights and of
weighted values relative to it.
"""

from __future__ import annotations

import math

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def paged_attention(q, k_pages, v_pages, table, lengths, offsets):
    """Causal attention of the last positions of each sequence to all of its pages.

    q                 [heads, tokens, width]
    k_pages, v_pages  [kv_heads, pages, page_size, width]
    table             [sequences, most pages of one] integers: the pages of each sequence
    lengths           [sequences] integers: positions in use, the queries' own included
    offsets           [sequences + 1] integers, not decreasing: where the queries of each begin

    Returns [heads, tokens, width] in q's dtype; rows in no sequence are zero.
    """
    H, T, D = q.shape
    KV, _, P, _ = k_pages.shape
    B, most = table.shape
    scale = D**-0.5
    out = hl.zeros(q.shape, dtype=q.dtype)
    for h, b in hl.grid([H, B]):
        begin, end, length = offsets[b], offsets[b + 1], lengths[b]
        for tq in hl.tile(begin, end, max_extent=T):
            m = hl.full([tq], -math.inf, dtype=hl.float32)
            total = hl.zeros([tq], dtype=hl.float32)
            acc = hl.zeros([tq, D], dtype=hl.float32)
            asks = tq.index - end + length
            for p in hl.grid(0, (length + P - 1) // P, max_extent=most):
                page = table[b, p]
                holds = p * P + hl.arange(P)
                k = k_pages[h // (H // KV), page, :, :]
                v = v_pages[h // (H // KV), page, :, :]
                scores = hl.dot(q[h, tq, :], k.T) * scale
                scores = hl.where(holds[None, :] <= asks[:, None], scores, -math.inf)
                m_new = hl.maximum(m, scores.amax(-1))
                alpha = hl.exp(m - m_new)
                weights = hl.exp(scores - m_new[:, None])
                total = total * alpha + weights.sum(-1)
                used = hl.where(holds[:, None] < length, v, 0)
                acc = hl.dot(weights.to(v.dtype), used, acc=acc * alpha[:, None])
                m = m_new
            out[h, tq, :] = (acc / total[:, None]).to(out.dtype)
    return out


def oracle(
    q: np.ndarray,
    k_pages: np.ndarray,
    v_pages: np.ndarray,
    table: np.ndarray,
    lengths: np.ndarray,
    offsets: np.ndarray,
) -> np.ndarray:
    """The same in float64: the pages of each sequence are put together, then plain attention."""
    heads, _, width = q.shape
    shared = heads // len(k_pages)
    out = np.zeros(q.shape)
    for b, length in enumerate(lengths):
        begin, end = offsets[b : b + 2]
        if begin == end:
            continue
        k, v = (
            pages[:, table[b]].reshape(len(pages), -1, width)[:, :length].repeat(shared, 0)
            for pages in (k_pages.astype(np.float64), v_pages.astype(np.float64))
        )
        scores = q[:, begin:end].astype(np.float64) @ k.transpose(0, 2, 1) / math.sqrt(width)
        asks = np.arange(length - (end - begin), length)
        scores = np.where(np.arange(length) <= asks[:, None], scores, -math.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        out[:, begin:end] = weights @ v / weights.sum(-1, keepdims=True)
    return out


Arrays = tuple[np.ndarray, ...]


def make_inputs(
    seed: int = 0,
    offsets: tuple[int, ...] = (0, 50, 51, 51, 60),
    rows: int = 64,
    heads: int = 4,
    kv_heads: int = 2,
    width: int = 32,
    page: int = 16,
    longest: int = 96,
) -> Arrays:
    """q, k_pages, v_pages, table, lengths, offsets; lengths are at least `rows`.

    Positions of pages that are not in use are NaN.
    """
    rng = np.random.default_rng(seed)
    sequences, most = len(offsets) - 1, -(-max(longest, rows) // page)
    pages = max(sequences * most, 1) + 2
    q = rng.standard_normal((heads, rows, width), np.float32)
    k, v = rng.standard_normal((2, kv_heads, pages, page, width), np.float32)
    table = rng.permutation(pages)[: sequences * most].reshape(sequences, most).astype(np.int32)
    lengths = rng.integers(rows, max(longest, rows) + 1, sequences).astype(np.int32)
    return q, *_spoiled(k, v, table, lengths), table, lengths, np.array(offsets, np.int32)


def _spoiled(k: np.ndarray, v: np.ndarray, table: np.ndarray, lengths: np.ndarray) -> Arrays:
    """The pages with NaN wherever no sequence has a position."""
    page = k.shape[2]
    used = np.zeros(k.shape[1:3], bool)
    for own, length in zip(table, lengths):
        position = np.arange(length)
        used[own[position // page], position % page] = True
    return tuple(np.where(used[None, :, :, None], pages, np.float32(np.nan)) for pages in (k, v))


def case(
    heads: int,
    kv_heads: int,
    tokens: int,
    width: int,
    sequences: int,
    page: int,
    most: int,
    dtype: str,
) -> tuple:
    """Arguments of which only shapes are known; the pool is just large enough for all."""
    pages = tile.spec((kv_heads, sequences * most, page, width), dtype)
    return (
        tile.spec((heads, tokens, width), dtype),
        pages,
        pages,
        tile.spec((sequences, most), "int32"),
        tile.spec((sequences,), "int32"),
        tile.spec((sequences + 1,), "int32"),
    )


SIZES = (
    (8, 4, 512, 128, 8, 128, 8),  # aligned
    (6, 3, 250, 64, 7, 16, 9),  # unaligned
    (32, 8, 4096, 128, 64, 128, 64),  # production
)
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("paged_attention", paged_attention, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
