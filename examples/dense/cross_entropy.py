"""Cross entropy of rows of logits over a vocabulary that is too long to be looked at at once.

    loss[r] = log(sum over v of exp(logits[r, v])) - logits[r, labels[r]]

How to read the kernel: one pass over tiles of the vocabulary.  As in attention, a running maximum m
keeps exp from overflowing, and the sum so far is rescaled when m grows.  The logit of the label is
picked in passing, where the number of the column equals the label: no gather is needed.  m begins
with the lowest finite number and not with -inf, so that words whose logits are -inf, even a whole
tile of them, have a weight of zero: -inf - -inf would be NaN.
"""

from __future__ import annotations

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare

LOWEST = float(np.finfo(np.float32).min)


@tile.kernel
def cross_entropy(logits, labels):
    """The loss of every row: logits [M, V], labels [M] integers in 0 .. V - 1; float32 [M]."""
    M, V = logits.shape
    loss = hl.empty([M], dtype=hl.float32)
    for tm in hl.tile(M):
        m = hl.full([tm], LOWEST, dtype=hl.float32)
        total = hl.zeros([tm], dtype=hl.float32)
        target = hl.zeros([tm], dtype=hl.float32)
        for tv in hl.tile(V):
            row = logits[tm, tv].to(hl.float32)
            m_new = hl.maximum(m, row.amax(-1))
            total = total * hl.exp(m - m_new) + hl.exp(row - m_new[:, None]).sum(-1)
            here = tv.index[None, :] == labels[tm][:, None]
            target = target + hl.where(here, row, 0.0).sum(-1)
            m = m_new
        loss[tm] = hl.log(total) + (m - target)
    return loss


def oracle(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The same in float64."""
    wide = logits.astype(np.float64)
    peak = wide.max(-1, initial=-np.inf)
    total = np.exp(wide - peak[:, None]).sum(-1)
    return peak + np.log(total) - wide[np.arange(len(wide)), labels]


def make_inputs(seed: int = 0, rows: int = 100, vocabulary: int = 1000) -> tuple:
    """logits [rows, vocabulary], labels [rows]."""
    rng = np.random.default_rng(seed)
    logits = rng.standard_normal((rows, vocabulary), np.float32) * 4
    return logits, rng.integers(0, vocabulary, rows).astype(np.int32)


def case(rows: int, vocabulary: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    return tile.spec((rows, vocabulary), dtype), tile.spec((rows,), "int32")


SIZES = ((1024, 4096), (1000, 5003), (8192, 128256))  # aligned, unaligned, production
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("cross_entropy", cross_entropy, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
