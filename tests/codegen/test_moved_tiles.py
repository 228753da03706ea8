"""A static tile that is moved by the index of a loop: where it lies is known only at run time."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl


@tile.kernel
def partial_products(x, w, splits: hl.constexpr = 4):
    """The product of part s of the columns of x with part s of the rows of w."""
    M, K = x.shape
    length = K // splits
    partial = hl.empty([splits, M, w.shape[1]], dtype=hl.float32)
    for s in hl.grid(splits):
        for tm, tn in hl.tile([M, w.shape[1]]):
            acc = hl.zeros([tm, tn], dtype=hl.float32)
            for tk in hl.tile(length):
                acc = hl.dot(x[tm, s * length + tk.index], w[s * length + tk.index, tn], acc=acc)
            partial[s, tm, tn] = acc
    return partial


@pytest.mark.parametrize("form", [{}, {"loop_type": "fori_loop"}], ids=str)
@pytest.mark.parametrize("block", [None, 64, 128])
def test_parts_that_no_block_divides(block: int | None, form: dict[str, str]) -> None:
    rng = np.random.default_rng(0)
    x, w = rng.integers(-4, 5, (50, 800)), rng.integers(-4, 5, (800, 96))
    config = tile.Config({} if block is None else {"tk": block}, **form)
    result = partial_products(x.astype(np.float32), w.astype(np.float32), config=config)
    parts = [x[:, s * 200 : s * 200 + 200] @ w[s * 200 : s * 200 + 200] for s in range(4)]
    np.testing.assert_array_equal(result, np.stack(parts))
