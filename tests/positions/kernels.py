"""Kernels whose scalar positions may leave their arrays, with what they mean for any numbers.

Loads outside of an array read its nearest element, stores outside of it do nothing; with checks
such numbers are refused before the launch.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilelang as tile
import tilelang.language as hl

ROWS, COLUMNS = 11, 5
WILD = np.array([3, -7, 10, 11, 2**31 - 1, -(2**31), 0, 4], np.int32)
OFFSETS = np.array([0, 4, 4, 9, 11], np.int32)


def rows(seed: int = 0, count: int = ROWS) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 90, (count, COLUMNS)).astype(np.float32)


# ---------------------------------------------------------------- behind a condition


def row_before(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for i in hl.grid(x.shape[0]):
        v = x[i, :]
        if i > 0:
            v = v + x[i - 1, :]
        y[i, :] = v
    return y


def row_before_meaning(x):
    return x + np.concatenate([np.zeros((1, COLUMNS), np.float32), x[:-1]])


def number_after(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for i in hl.grid(offsets[g], offsets[g + 1]):
            v = x[i]
            if i + 1 < x.shape[0]:
                v = v + x[i + 1]
            y[i] = v
    return y


def number_after_meaning(x, offsets):
    return x + np.append(x[1:], np.float32(0))


def row_after(x, offsets):
    G = offsets.shape[0] - 1
    y = hl.zeros([G, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(G):
        for td in hl.tile(x.shape[1]):
            acc = hl.zeros([td], dtype=hl.float32)
            for i in hl.grid(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
                acc = acc + hl.load(x, [i + 1, td], mask=i + 1 < x.shape[0])
            y[g, td] = acc
    return y


def row_after_meaning(x, offsets):
    after = np.concatenate([x[1:], np.zeros((1, COLUMNS), np.float32)])
    return np.stack([after[a:b].sum(0) for a, b in itertools.pairwise(offsets)])


def stored_after(x):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for i in hl.grid(x.shape[0]):
        if i + 3 < x.shape[0]:
            y[i + 3, :] = x[i, :]
    return y


def stored_after_meaning(x):
    return np.concatenate([np.zeros((3, COLUMNS), np.float32), x[:-3]])


# ---------------------------------------------------------------- read from memory


def picked_rows(x, index):
    G = index.shape[0]
    y = hl.empty([G, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(G):
        y[g, :] = x[index[g], :]
    return y


def picked_rows_meaning(x, index):
    return x[np.clip(index, 0, len(x) - 1)]


def picked_twice(x, index):
    G = index.shape[0]
    y = hl.empty([G, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(G):
        y[g, :] = x[index[index[g]], :] + x[index[g] - 2, :]
    return y


def picked_twice_meaning(x, index):
    again = index[np.clip(index, 0, len(index) - 1)]
    less = (index - np.int32(2)).astype(np.int32)  # int32 wraps
    return x[np.clip(again, 0, len(x) - 1)] + x[np.clip(less, 0, len(x) - 1)]


def stored_rows(x, index):
    y = hl.zeros([ROWS, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(index.shape[0]):
        y[index[g], :] = x[g, :]
    return y


def stored_rows_meaning(x, index):
    y = np.zeros((ROWS, COLUMNS), np.float32)
    for g, at in enumerate(index):
        if 0 <= at < ROWS:
            y[at] = x[g]
    return y


def stored_rows_where(x, index):
    y = hl.zeros([ROWS, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(index.shape[0]):
        if x[g, 0] > 20:
            y[index[g] - 1, :] = x[g, :]
    return y


def stored_rows_where_meaning(x, index):
    y = np.zeros((ROWS, COLUMNS), np.float32)
    for g, at in enumerate((index - np.int32(1)).astype(np.int32)):
        if 0 <= at < ROWS and x[g, 0] > 20:
            y[at] = x[g]
    return y


# ---------------------------------------------------------------- neither proved nor refused


def of_every_group(x, offsets, v):
    G = offsets.shape[0] - 1
    y = hl.zeros([G], dtype=x.dtype)
    for g in hl.grid(G):
        acc = 0.0
        for i in hl.grid(offsets[g], offsets[g + 1]):
            acc = acc + x[i, 0] * v[g + 2]
        y[g] = acc
    return y


def of_every_group_meaning(x, offsets, v):
    pairs = enumerate(itertools.pairwise(offsets))
    return np.array([x[a:b, 0].sum() * v[min(g + 2, len(v) - 1)] for g, (a, b) in pairs])


def every_other(x, offsets):
    G = offsets.shape[0] - 1
    y = hl.zeros([G], dtype=x.dtype)
    for g in hl.grid(G):
        acc = 0.0
        for i in hl.grid(offsets[g], offsets[g + 1], max_extent=5):
            acc = acc + x[2 * i]
        y[g] = acc
    return y


def every_other_meaning(x, offsets):
    return np.array([x[2 * a : 2 * b : 2].sum() for a, b in itertools.pairwise(offsets)])


def first_row(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = x[t, :] - x[offsets[g], :]
    return y


def first_row_meaning(x, offsets):
    y = np.zeros_like(x)
    for a, b in itertools.pairwise(offsets):
        y[a:b] = x[a:b] - x[min(a, len(x) - 1)]
    return y


@dataclass(frozen=True)
class Program:
    """A kernel, what it means, and arguments.

    wild      some number lies outside, so that the reference refuses them
    guarded   where it does an `if` decides by data, so that no call knows before it runs
    """

    fn: Callable[..., Any]
    meaning: Callable[..., np.ndarray]
    arguments: tuple[np.ndarray, ...]
    wild: bool = False
    guarded: bool = False

    def __str__(self) -> str:
        return self.fn.__name__

    def kernel(self, **options: Any) -> tile.Kernel:
        return tile.kernel(self.fn, **options)


PROGRAMS = (
    Program(row_before, row_before_meaning, (rows(),)),
    Program(number_after, number_after_meaning, (rows()[:, 0], OFFSETS)),
    Program(row_after, row_after_meaning, (rows(), OFFSETS)),
    Program(picked_rows, picked_rows_meaning, (rows(), WILD), wild=True),
    Program(picked_twice, picked_twice_meaning, (rows(), WILD), wild=True),
    Program(stored_rows, stored_rows_meaning, (rows(count=len(WILD)), WILD), wild=True),
    Program(
        stored_rows_where, stored_rows_where_meaning, (rows(count=8), WILD), wild=True, guarded=True
    ),
    Program(of_every_group, of_every_group_meaning, (rows(), OFFSETS, rows()[:5, 1]), wild=True),
    Program(every_other, every_other_meaning, (rows(count=2 * ROWS)[:, 0], OFFSETS)),
    Program(first_row, first_row_meaning, (rows(), OFFSETS)),
)

# Right once conditions on blocks follow the block of a window that an offset moves.
MOVED = Program(stored_after, stored_after_meaning, (rows(),))
