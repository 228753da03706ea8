"""Embedding: rows of a table, picked by an array of indices.

    ids    3  0  3  7             table[ids[r]]  ->  y[r]
    y      table[3]  table[0]  table[3]  table[7]

Nothing is computed: the kernel moves memory, and only the rows that are asked for.

How to read the kernel: it is the definition, row by row.  No row waits for another, so that a step
may have a tile of them, whose copies are on their way together.  Indices may come again, and in any
order.
"""

from __future__ import annotations

import numpy as np

import tilelang as tile
import tilelang.language as hl
from examples.compare import compare


@tile.kernel
def embedding(ids, table):
    """y[r] = table[ids[r]]: ids [M] integers in 0 .. V - 1, table [V, D]; y [M, D]."""
    M = ids.shape[0]
    D = table.shape[1]
    y = hl.empty([M, D], dtype=table.dtype)
    for m in hl.grid(M):
        y[m, :] = table[ids[m], :]
    return y


def oracle(ids: np.ndarray, table: np.ndarray) -> np.ndarray:
    """The same in float64, as a product with one-hot rows."""
    chosen = np.arange(len(table)) == ids[:, None]
    return chosen.astype(np.float64) @ table.astype(np.float64)


def make_inputs(
    seed: int = 0, tokens: int = 100, vocabulary: int = 300, width: int = 200
) -> tuple[np.ndarray, np.ndarray]:
    """ids [tokens], table [vocabulary, width]."""
    rng = np.random.default_rng(seed)
    table = rng.standard_normal((vocabulary, width), np.float32)
    return rng.integers(0, vocabulary, tokens).astype(np.int32), table


def case(tokens: int, vocabulary: int, width: int, dtype: str) -> tuple:
    """Arguments of which only shapes are known."""
    return tile.spec((tokens,), "int32"), tile.spec((vocabulary, width), dtype)


SIZES = ((1024, 4096, 256), (1000, 5003, 200), (8192, 128256, 4096))  # the last one: production
CASES = tuple(case(*sizes, dtype) for sizes in SIZES for dtype in ("bfloat16", "float32"))


def main() -> None:
    """Runs the kernel from torch and from JAX."""
    arguments = make_inputs()
    compare("embedding", embedding, arguments, oracle(*arguments))


if __name__ == "__main__":
    main()
