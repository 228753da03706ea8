"""dot: the sum of products over one dimension, in NumPy."""

from __future__ import annotations

import numpy as np

Array = np.ndarray
Pair = tuple[int, int]
Batch = tuple[tuple[int, ...], tuple[int, ...]]


def dot(a: Array, b: Array, contract: Pair, batch: Batch = ((), ())) -> Array:
    """Multiplies and sums over dimension contract[0] of a and contract[1] of b.

    The result has the batch dimensions, then the free ones of a, then the free ones of b.

    >>> hl.dot(np.float32([[1, 2]]), np.float32([[3], [4]]))
    array([[11.]], dtype=float32)
    """
    left = _free(a.ndim, contract[0], batch[0])
    right = _free(b.ndim, contract[1], batch[1])
    many = tuple(a.shape[d] for d in batch[0])
    rows, columns = tuple(a.shape[d] for d in left), tuple(b.shape[d] for d in right)
    length = a.shape[contract[0]]
    x = a.transpose((*batch[0], *left, contract[0])).reshape((*many, _size(rows), length))
    y = b.transpose((*batch[1], contract[1], *right)).reshape((*many, length, _size(columns)))
    return np.matmul(x, y).reshape((*many, *rows, *columns))


def _free(rank: int, contract: int, batch: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(d for d in range(rank) if d != contract and d not in batch)


def _size(shape: tuple[int, ...]) -> int:
    return int(np.prod(shape, dtype=np.int64))
