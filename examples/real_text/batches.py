"""sentences -> arrays: embeddings with one row per token, and the groups that a router makes."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SEED = 20_240_229
VOCABULARY = 8192  # rows of the embedding table that tokens are hashed into


@dataclass(frozen=True)
class Lengths:
    """Group sizes of one ragged batch."""

    sizes: tuple[int, ...]

    @staticmethod
    def of(offsets: np.ndarray) -> Lengths:
        return Lengths(tuple(int(n) for n in np.diff(offsets)))

    def summary(self) -> str:
        """Smallest / median / largest."""
        if not self.sizes:
            return "-"
        return f"{min(self.sizes)} / {int(np.median(self.sizes))} / {max(self.sizes)}"


def offsets_of(sizes: Sequence[int] | np.ndarray) -> np.ndarray:
    """int64 [groups + 1]: where each group begins, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(np.asarray(sizes, np.int64))]).astype(np.int64)


def embed(sentences: Sequence[Sequence[str]], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows float32 [tokens, width] of a fixed random table, and the sentences' offsets."""
    table = np.random.default_rng(SEED).standard_normal((VOCABULARY, width), np.float32)
    hashes = [zlib.crc32(token.lower().encode()) % VOCABULARY for s in sentences for token in s]
    return table[np.asarray(hashes, np.int64)], offsets_of([len(s) for s in sentences])


def route(rows: np.ndarray, experts: int, top: int = 2) -> tuple[np.ndarray, np.ndarray]:
    """Sends every row to the `top` experts that a fixed random router scores highest.

    Returns the rows sorted by expert, [rows * top, width], and the experts' offsets.
    """
    router = np.random.default_rng(SEED + 1).standard_normal((rows.shape[1], experts), np.float32)
    chosen = np.argsort(-(rows @ router), axis=1, kind="stable")[:, :top].reshape(-1)
    order = np.argsort(chosen, kind="stable")
    counts = np.bincount(chosen, minlength=experts)
    return rows[order // top], offsets_of(counts)


def weights(*shape: int) -> np.ndarray:
    """Fixed random float32 weights, scaled so that a product keeps the size of its input."""
    scale = np.float32(shape[-2] ** -0.5)
    return np.random.default_rng(SEED + 2).standard_normal(shape, np.float32) * scale


def heads(rows: np.ndarray, count: int, width: int) -> list[np.ndarray]:
    """q, k and v, each [count, tokens, width], as fixed random projections of the rows."""
    projection = weights(3, rows.shape[1], count * width)
    flat = np.einsum("tw,nwd->ntd", rows, projection)
    split = flat.reshape(3, len(rows), count, width).transpose(0, 2, 1, 3)
    return [np.ascontiguousarray(part) for part in split]
