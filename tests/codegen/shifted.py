"""Stores whose position is an index with an offset or a factor, and what they give.

Each is written once and stored to outputs of every fill, and to an argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tilelang as tile
import tilelang.language as hl

M, D, G = 70, 128, 20  # more rows than two blocks of the narrowest type have
STARTS = 40  # rows of groups


@dataclass(frozen=True)
class Shifted:
    """One way to store: the statements, and the shapes of the input and of the output."""

    stores: Callable[..., None]
    source: tuple[int, ...]
    result: tuple[int, ...]
    ragged: bool = False
    blocks: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        return self.stores.__name__

    def kernel(self, fill: float | None) -> Any:
        """The kernel with an output of its own; `None` leaves it as it comes."""
        stores, shape = self.stores, self.result
        if fill is None:

            @tile.kernel
            def empty(x, offsets):
                y = hl.empty(shape, dtype=x.dtype)
                stores(x, offsets, y)
                return y

            return empty

        @tile.kernel
        def filled(x, offsets):
            y = hl.full(shape, fill, dtype=x.dtype)
            stores(x, offsets, y)
            return y

        return filled

    def in_place(self) -> Any:
        """The kernel that stores to an argument."""
        stores = self.stores

        @tile.kernel
        def changed(x, offsets, y):
            stores(x, offsets, y)

        return changed


def next_row(x, offsets, y):
    for i in hl.grid(M - 1):
        y[i + 1, :] = x[i, :]


def third_row(x, offsets, y):
    for i in hl.grid(M - 3):
        y[i + 3, :] = x[i, :]


def next_block(x, offsets, y):
    for i in hl.grid(M - 8):
        y[i + 8, :] = x[i, :]


def even_rows(x, offsets, y):
    for i in hl.grid(M // 2):
        y[2 * i, :] = x[i, :]


def odd_rows(x, offsets, y):
    for i in hl.grid(M // 2):
        y[2 * i + 1, :] = x[i, :]


def every_third(x, offsets, y):
    for i in hl.grid(M // 3 - 1):
        y[3 * i + 5, :] = x[i, :]


def backwards(x, offsets, y):
    for i in hl.grid(M - 2):
        y[M - 1 - i, :] = x[i, :]


def halves(x, offsets, y):
    for i in hl.grid(M):
        y[i // 2, :] = x[i, :]


def earlier(x, offsets, y):
    for i in hl.grid(3, M):
        y[i - 3, :] = x[i, :]


def later(x, offsets, y):
    for i in hl.grid(3, M - 2):
        y[i + 2, :] = x[i, :]


def pairs(x, offsets, y):
    for i in hl.grid(M // 2 - 1):
        for c in hl.grid(2):
            y[2 * i + c + 1, :] = x[2 * i + c, :]


def strided(x, offsets, y):
    for i in hl.grid(M):
        y[i * 3 % M, :] = x[i, :]


def cut_columns(x, offsets, y):
    for i in hl.grid(M - 1):
        for td in hl.tile(2 * D):
            y[i + 1, td] = x[i, td]


def part_of_rows(x, offsets, y):
    for i in hl.grid(M - 1):
        y[i + 1, 0:64] = x[i, 0:64]


def some_rows(x, offsets, y):
    for i in hl.grid(G):
        if offsets[i] % 2 == 0:
            y[i + 1, :] = x[i, :]


def sums_of_two(x, offsets, y):
    for i in hl.grid(M):
        y[i // 2, :] = y[i // 2, :] + x[i, :]


def sums_round(x, offsets, y):
    for i in hl.grid(M):
        y[i % 40, :] = y[i % 40, :] + x[i, :]


def tile_numbers(x, offsets, y):
    for t in hl.tile(M, block_size=4):
        y[t.id + 1, :] = x[t, :].sum(0).to(y.dtype)


def tile_begins(x, offsets, y):
    for t in hl.tile(M, block_size=4):
        y[t.begin, :] = x[t, :].sum(0).to(y.dtype)


def next_tile(x, offsets, y):
    for t in hl.tile(M - 4, block_size=16):
        y[t.index + 4, :] = x[t, :]


def columns(x, offsets, y):
    for j in hl.grid(2 * D):
        y[:, j + 3] = x[:, j]


def planes(x, offsets, y):
    for i in hl.grid(5):
        y[i + 1, :, :] = x[i, :, :]


def rows_of_planes(x, offsets, y):
    for b in hl.grid(3):
        for i in hl.grid(39):
            y[b + 1, i + 1, :] = x[b, i, :]


def odd_rows_of_planes(x, offsets, y):
    for i in hl.grid(20):
        for b in hl.grid(3):
            y[b, 2 * i + 1, :] = x[b, i, :]


def half_planes(x, offsets, y):
    for b in hl.grid(4):
        for i in hl.grid(4):
            y[b // 2, i + 34, :] = x[b, i, :]


def parts_of_half_planes(x, offsets, y):
    for b in hl.grid(4):
        for i in hl.grid(4):
            y[b // 2, i + 34, 0:64] = y[b // 2, i + 34, 0:64] + x[b, i, 0:64]


def group_sums(x, offsets, y):
    for g in hl.grid(G):
        for td in hl.tile(D):
            acc = hl.zeros([td], dtype=hl.float32)
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                acc = acc + x[tm, td].to(hl.float32).sum(0)
            y[g + 1, td] = acc.to(y.dtype)


def odd_group_sums(x, offsets, y):
    for g in hl.grid(G):
        for td in hl.tile(D):
            acc = hl.zeros([td], dtype=hl.float32)
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                acc = acc + x[tm, td].to(hl.float32).sum(0)
            y[2 * g + 3, td] = acc.to(y.dtype)


def group_sums_backwards(x, offsets, y):
    for g in hl.grid(G):
        for td in hl.tile(D):
            acc = hl.zeros([td], dtype=hl.float32)
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                acc = acc + x[tm, td].to(hl.float32).sum(0)
            y[G - g, td] = acc.to(y.dtype)


def tile_sums(x, offsets, y):
    for g in hl.grid(G):
        for tm in hl.tile(offsets[g], block_size=8):
            y[g, tm.id + 1, :] = x[tm, :].to(hl.float32).sum(0).to(y.dtype)


def group_rows(x, offsets, y):
    for g in hl.grid(G):
        for r in hl.grid(offsets[g], offsets[g + 1]):
            y[r + 1, :] = x[r, :]


def group_tiles(x, offsets, y):
    for g in hl.grid(G):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[g + 1, tm, :] = x[tm, :]


def group_lanes(x, offsets, y):
    """Rows of eight groups share a block, which a sweep over its lanes would come back to."""
    for g in hl.grid(G):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[g, tm] = x[tm, 0]


def later_group_lanes(x, offsets, y):
    for g in hl.grid(G):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[g + 1, tm] = x[tm, 0] + x[tm, 1]


def centred_sums(x, offsets, y):
    """Two loops in a row, and a store behind them."""
    for g in hl.grid(G):
        acc = hl.zeros([D], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            acc = acc + x[tm, :].to(hl.float32).sum(0)
        top = hl.zeros([D], dtype=hl.float32)
        for tk in hl.tile(offsets[g], offsets[g + 1]):
            top = hl.maximum(top, (x[tk, :].to(hl.float32) * 4 - acc).amax(0))
        y[g + 3, :] = top.to(y.dtype)


WIDE = M, 2 * D
DENSE = (
    *(Shifted(f, (M, D), (M, D)) for f in (
        next_row, third_row, next_block, even_rows, odd_rows, every_third, backwards, halves,
        earlier, later, pairs, strided, part_of_rows, some_rows, sums_of_two, sums_round,
        tile_numbers, tile_begins, next_tile,
    )),
    Shifted(cut_columns, WIDE, WIDE),
    Shifted(columns, (M, 3 * D), (M, 3 * D)),
    *(Shifted(f, (6, 40, D), (6, 40, D)) for f in (
        planes, rows_of_planes, odd_rows_of_planes, half_planes, parts_of_half_planes,
    )),
)  # fmt: skip
TM, TK = ("tm", 16), ("tk", 16)
RAGGED = tuple(
    Shifted(f, (STARTS, D), shape, True, blocks) for f, shape, blocks in (
        (group_sums, (M, D), (TM,)),
        (odd_group_sums, (M, D), (TM,)),
        (group_sums_backwards, (M, D), (TM,)),
        (tile_sums, (G, 40, D), ()),
        (group_rows, (M, D), ()),
        (group_tiles, (G + 1, STARTS, D), (TM,)),
        (group_lanes, (G, STARTS), (TM,)),
        (later_group_lanes, (M, STARTS), (TM,)),
        (centred_sums, (M, D), (TM, TK)),
    )
)  # fmt: skip
EVERY = DENSE + RAGGED
FORMS = {
    "default": {},
    "grid": {"loop_type": "grid"},
    "table": {"loop_type": "outer_pipeline"},
    "rectangle": {"loop_type": "outer_pipeline", "steps": "rectangle"},
    "worklist": {"loop_type": "worklist"},
    "emit_pipeline": {"loop_type": "emit_pipeline"},
    "fori_loop": {"loop_type": "fori_loop"},
    "unroll": {"loop_type": "unroll"},
}
