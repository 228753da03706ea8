"""stamp(value) -> Stamp: equal for two static values exactly when a kernel compiled for one serves
the other.

Numbers and strings count with their type (1, 1.0 and True differ); tuples by their items; a Python
function by its code, defaults, closure and the globals that it reads, recursively.  So a closure
made twice with equal content is one value, and one whose content changed is another.
"""

from __future__ import annotations

import builtins
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import CellType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from .reads import Path, reads

LIBRARIES = ("torch", "jax", "jaxlib", "numpy", "math", "tilelang", "builtins", "operator")
MISSING = object()


class NotStatic(Exception):
    """A value that cannot be part of a key; the argument is what makes it so."""


@dataclass(frozen=True)
class Stamp:
    """A key with its hash computed once."""

    value: Hashable
    hash: int = field(compare=False)

    def __hash__(self) -> int:
        return self.hash


@dataclass(frozen=True)
class Same:
    """An object that counts by identity; held so that its id is not used again."""

    object: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.object is other.object

    def __hash__(self) -> int:
        return id(self.object)


@dataclass(frozen=True)
class Fingerprint:
    """The stamp of a function and what it rests on.

    `cells` and `items` are the places it was read from with the objects found there: while they
    hold the same objects the stamp holds too.  `volatile` if it rests on a list, dict or array,
    which can change in place.
    """

    stamp: Stamp
    cells: tuple[tuple[CellType, object], ...]
    items: tuple[tuple[Mapping[str, object], str, object], ...]
    volatile: bool

    def holds(self) -> bool:
        """Whether the function still means what it meant."""
        if self.volatile:
            return False
        for names, name, value in self.items:
            if names.get(name, MISSING) is not value:
                return False
        return all(_content(cell) is value for cell, value in self.cells)


@dataclass(frozen=True)
class _Trail:
    """What has been visited while a stamp is made; `mutable` lists what can change in place."""

    cells: list[tuple[CellType, object]] = field(default_factory=list)
    items: list[tuple[Mapping[str, object], str, object]] = field(default_factory=list)
    functions: dict[int, int] = field(default_factory=dict)
    mutable: list[object] = field(default_factory=list)


def fingerprint(fn: FunctionType) -> Fingerprint:
    """The stamp of a function with the places to look at to see whether it still holds."""
    trail = _Trail()
    stamped = _stamped(_function(fn, trail))
    return Fingerprint(stamped, tuple(trail.cells), tuple(trail.items), bool(trail.mutable))


def stamp(value: object) -> Stamp:
    """The key of a static argument; NotStatic if it is mutable."""
    return _stamped(_key(value, _Trail(), captured=False))


def _stamped(key: Hashable) -> Stamp:
    return Stamp(key, hash(key))


def _key(value: Any, trail: _Trail, captured: bool) -> Hashable:
    """`captured` values may be mutable: a function reads them, nobody passed them."""
    match value:
        case float():
            return (type(value), value.hex())  # tells 0.0 from -0.0, and NaN equals itself
        case None | bool() | int() | str() | bytes():
            return (type(value), value)
        case tuple():
            return (type(value), *(_key(v, trail, captured) for v in value))
        case np.generic():
            return (type(value), value.tobytes())
        case FunctionType():
            return _function(value, trail)
        case MethodType():
            return (MethodType, _function(value.__func__, trail), Same(value.__self__))
        case partial():
            parts = (value.func, value.args, tuple(sorted(value.keywords.items())))
            return (partial, *(_key(p, trail, captured) for p in parts))
        case ModuleType():
            return (ModuleType, value.__name__)
    return _captured(value, trail) if captured else _argument(value)


def _argument(value: Any) -> Hashable:
    try:
        hash(value)
    except TypeError:
        raise NotStatic(value) from None
    return (type(value), value)


def _captured(value: Any, trail: _Trail) -> Hashable:
    match value:
        case list() | set() | frozenset():
            trail.mutable.append(value)
            items = value if isinstance(value, list) else sorted(value, key=repr)
            return (type(value), *(_key(v, trail, True) for v in items))
        case dict():
            trail.mutable.append(value)
            return (dict, *(_key(pair, trail, True) for pair in value.items()))
        case np.ndarray():
            trail.mutable.append(value)
            return (np.ndarray, value.shape, value.dtype.str, value.tobytes())
    try:
        return _argument(value)
    except NotStatic:
        return Same(value)


def _function(fn: FunctionType, trail: _Trail) -> Hashable:
    if _library(fn):
        return Same(fn)
    if id(fn) in trail.functions:  # recursion: the n-th function met
        return ("again", trail.functions[id(fn)])
    trail.functions[id(fn)] = len(trail.functions)
    kwdefaults = tuple(sorted((fn.__kwdefaults__ or {}).items()))
    return (
        fn.__code__,
        _key(fn.__defaults__, trail, True),
        _key(kwdefaults, trail, True),
        *_free(fn, trail),
        *_globals(fn, trail),
    )


def _library(value: object) -> bool:
    name = getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", None)
    return isinstance(name, str) and name.split(".")[0] in LIBRARIES


def _free(fn: FunctionType, trail: _Trail) -> list[Hashable]:
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    found: list[Hashable] = []
    for root, *attributes in reads(fn.__code__).free:
        if root not in cells:  # a local of fn that a nested function reads
            continue
        value = _content(cells[root])
        trail.cells.append((cells[root], value))
        found.append((root, *attributes, _follow(value, tuple(attributes), trail)))
    return found


def _globals(fn: FunctionType, trail: _Trail) -> list[Hashable]:
    found: list[Hashable] = []
    for root, *attributes in reads(fn.__code__).globals:
        value = fn.__globals__.get(root, MISSING)
        if value is MISSING and hasattr(builtins, root):
            continue
        trail.items.append((fn.__globals__, root, value))
        found.append((root, *attributes, _follow(value, tuple(attributes), trail)))
    return found


def _follow(value: Any, attributes: Path, trail: _Trail) -> Hashable:
    """The key of value.a.b, as far as attributes are stored rather than computed."""
    for attribute in attributes:
        names = getattr(value, "__dict__", {})
        if _library(value) or attribute not in names:
            break
        trail.items.append((names, attribute, names[attribute]))
        value = names[attribute]
    return _key(value, trail, captured=True)


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return MISSING
