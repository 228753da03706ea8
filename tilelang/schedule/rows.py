"""Rows: loops over single indices that go through the positions of one tile.

    for tt in hl.tile(T):
        for t in hl.grid(tt.begin, tt.end): h = a[t, :] * h + x[t, :]    t goes through rows of tt

What such a loop reads and writes of arrays lies in the blocks that a step at that tile has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..analysis.uses import IndexedSite, references
from ..ir import Along, At, Axis, Expr, GridIndex, Index, KernelIR, TileScalar, integers
from ..ir.traversal import index_exprs, walk


@dataclass(frozen=True)
class InTile:
    """An index, once `by` is added to it, is one of the tile's positions, as the author counts."""

    tile: str
    by: Expr


def rows_of_tiles(ir: KernelIR) -> dict[str, InTile]:
    """The loops that do, by their axes: those that index arrays in no other way.

    Numbers of arrays that lie in scalar memory are read wherever they are.
    """
    grids = (a for a in ir.axes if a.kind == "grid")
    found = {a.name: rows for a in grids if (rows := _within(a)) is not None}
    if not found:
        return {}
    other = {n for a in ir.axes for e in (a.begin, a.end) for n in _named(found, e)}
    sites = tuple(references(ir.body))
    vectors = {s.tensor for s in sites if s.written or any(not isinstance(e, At) for e in s.index)}
    read: dict[str, dict[Expr | None, None]] = {}
    written: dict[str, dict[Expr | None, None]] = {}
    for site in (s for s in sites if s.tensor in vectors):
        for entry in site.index:
            tile = as_tile(found, entry)
            if isinstance(tile, Along):
                for kept in (read, written) if site.written else (read,):
                    kept.setdefault(tile.axis, {})[tile.offset] = None
            else:
                other |= {n for e in index_exprs(entry) for n in _named(found, e)}
    cuts = {tile: written.get(tile, places) for tile, places in read.items()}

    def alike(name: str) -> bool:  # a tile is cut from arrays at one place, that of its rows, too
        cut, own = cuts.get(found[name].tile, {}).keys(), _own(sites, found, name)
        return bool(own) and len(cut) == 1 and own == cut

    return {name: rows for name, rows in found.items() if name not in other and alike(name)}


def as_tile(rows: Mapping[str, InTile], entry: Index) -> Index:
    """The tile that an index is a row of, where it is one; itself elsewhere."""
    if not isinstance(entry, At):
        return entry
    found = integers.linear(entry.expr, integers.anything) or ({}, 0)
    own = [e for e in found[0] if isinstance(e, GridIndex) and e.axis in rows]
    if len(own) != 1:
        return entry
    row = rows[own[0].axis]
    position = integers.linear(integers.add(own[0], row.by), integers.anything)
    left = integers.plus(found, position, -1)
    if left is None or any(own[0] in walk(part) for part in left[0]):
        return entry
    return Along(row.tile, integers.total(*left) if any(left) else None)


def _own(sites: Iterable[IndexedSite], rows: Mapping[str, InTile], name: str) -> set[Expr | None]:
    """The offsets at which a loop indexes arrays."""
    tiles = (as_tile({name: rows[name]}, e) for s in sites for e in s.index if isinstance(e, At))
    return {tile.offset for tile in tiles if isinstance(tile, Along)}


def _within(axis: Axis) -> InTile | None:
    """The tile that all its indices lie in, as its range says."""
    edges = (e for bound in (axis.begin, axis.end) for e in walk(bound))
    for tile in dict.fromkeys(e.axis for e in edges if isinstance(e, TileScalar)):
        low, high = TileScalar(tile, "begin"), TileScalar(tile, "end")
        for by in (integers.const(0), low):
            begins = (integers.add(e, by) for e in integers.most_of(axis.begin))
            ends = (integers.add(e, by) for e in integers.least_of(axis.end))
            behind, before = any(_sure(low, e) for e in begins), any(_sure(e, high) for e in ends)
            if behind and before:
                return InTile(tile, by)
    return None


def _sure(low: Expr, high: Expr) -> bool:
    """Whether one is certainly not more than the other."""
    far = integers.distance(low, high)
    return far is not None and far >= 0


def _named(found: Mapping[str, InTile], expr: Expr) -> set[str]:
    """Those of the loops that a position goes by."""
    return {e.axis for e in walk(expr) if isinstance(e, GridIndex) and e.axis in found}
