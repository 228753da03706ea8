"""Tracks: windows of loops in a row -> which of them are one window, and what picks their blocks.

    for tm in rows: ... x[tm]             x     is one window of both loops, on track tm: {tm, tm_1}
    for tm_1 in rows: y[tm_1] = x[tm_1]   y     is a window of the second loop, on track tm_1

A block that one loop leaves and the next one begins with is copied once that way.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tilelang.codegen.pallas.plan.types import Track
from tilelang.ir.names import fresh

from .types import ByBlock, ByIndex, ByTile, Edge, Key, Packed, Window


def tracked(
    found: Mapping[Key, Window], phases: tuple[str, ...], taken: Collection[str]
) -> tuple[dict[Key, Window], tuple[Track, ...]]:
    """The windows, merged where loops in a row see the same blocks, and the tracks they follow."""
    out = dict(found)
    if not phases:
        return out, ()
    merged: dict[object, list[Key]] = {}
    for key, window in found.items():
        merged.setdefault(_blocks(key[0], window, phases), []).append(key)
    users = {
        keys[0]: tuple(p for p in phases if any(p in found[k].axes for k in keys))
        for keys in merged.values()
    }
    names = _names(tuple(u for u in users.values() if u), phases, taken)
    for keys in merged.values():
        name = names.get(users[keys[0]])
        for key in keys:
            out[key] = replace(found[keys[0]], track=name)
    return out, tuple(Track(name, axes) for axes, name in names.items())


def _blocks(tensor: str, window: Window, phases: tuple[str, ...]) -> object:
    """Equal for inputs that see the same blocks but in different loops."""
    simple = all(not isinstance(d, ByBlock | ByIndex | Edge | Packed) for d in window.dims)
    if window.output or not (simple or window.axes.isdisjoint(phases)):
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
