"""Tracks: windows of loops in a row -> which of them are one window, and what picks their blocks.

    for tm in rows: ... x[tm]             x     is one window of both loops, on track tm: {tm, tm_1}
    for tm_1 in rows: y[tm_1] = x[tm_1]   y     is a window of the second loop, on track tm_1

A block that one loop leaves and the next one begins with is copied once that way.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tilelang.codegen.pallas.plan.types import (
    ByBlock,
    ByIndex,
    ByTile,
    Packed,
    Track,
    Window,
    WindowDim,
)
from tilelang.ir import GridIndex, TileIndex, TileScalar, walk
from tilelang.ir.names import fresh

Found = dict[tuple[str, tuple[WindowDim, ...]], Window]


def tracked(
    found: Found, phases: tuple[str, ...], taken: Collection[str]
) -> tuple[Found, tuple[Track, ...]]:
    """The windows, merged where loops in a row see the same blocks, and the tracks they follow."""
    if not phases:
        return found, ()
    merged: dict[object, list[tuple[str, tuple[WindowDim, ...]]]] = {}
    for key, window in found.items():
        merged.setdefault(_blocks(key[0], window, phases), []).append(key)
    users = {
        keys[0]: tuple(p for p in phases if any(p in _moved_by(found[k], phases) for k in keys))
        for keys in merged.values()
    }
    names = _names(tuple(u for u in users.values() if u), phases, taken)
    out = dict(found)
    for keys in merged.values():
        name = names.get(users[keys[0]])
        for key in keys:
            out[key] = replace(found[keys[0]], track=name)
    return out, tuple(Track(name, axes) for axes, name in names.items())


def _moved_by(window: Window, phases: tuple[str, ...]) -> set[str]:
    """The loops in a row that pick the window's block."""
    found: set[str] = set()
    for dim in window.dims:
        match dim:
            case ByTile(axis):
                found.add(axis)
            case ByBlock(expr) | ByIndex(expr) | Packed(expr):
                parts = (e for e in walk(expr) if isinstance(e, GridIndex | TileIndex | TileScalar))
                found |= {e.axis for e in parts}
            case _:
                pass
    return found & set(phases)


def _blocks(tensor: str, window: Window, phases: tuple[str, ...]) -> object:
    """Equal for inputs that see the same blocks but in different loops."""
    simple = all(not isinstance(d, ByBlock | ByIndex | Packed) for d in window.dims)
    if window.output or not (simple or not _moved_by(window, phases)):
        return window.ref
    dims = tuple(
        ByTile("", d.block) if isinstance(d, ByTile) and d.axis in phases else d
        for d in window.dims
    )
    return tensor, dims


def _names(
    users: tuple[tuple[str, ...], ...], phases: tuple[str, ...], taken: Collection[str]
) -> dict[tuple[str, ...], str]:
    """A name for every set of loops that share blocks; a loop without any gets a track, too."""
    seen = {p for axes in users for p in axes}
    wanted = dict.fromkeys((*users, *((p,) for p in phases if p not in seen)))
    names: dict[tuple[str, ...], str] = {axes: axes[0] for axes in wanted if len(axes) == 1}
    for axes in wanted:
        if len(axes) > 1:
            own = (a for a in axes if a not in names.values())
            busy = {*names.values(), *taken}
            names[axes] = next(own, None) or fresh(f"{axes[0]}_shared", busy)
    order = {p: i for i, p in enumerate(phases)}
    return dict(sorted(names.items(), key=lambda item: [order[a] for a in item[0]]))
