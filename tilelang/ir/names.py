"""Names: new ones, which nothing of the author has."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import assert_never

from .kernel import KernelIR
from .traversal import map_children, map_index, map_stmt, statements
from .types import (
    Along,
    Assign,
    Expr,
    GridIndex,
    Index,
    Load,
    Loop,
    Stmt,
    Store,
    TileIndex,
    TileScalar,
    Type,
    Var,
)


def first_free(wish: str, busy: Callable[[str], bool]) -> str:
    """The wished name, or the first one with a number that is not busy."""
    if not busy(wish):
        return wish
    return next(name for n in count(1) if not busy(name := f"{wish}_{n}"))


def fresh(wish: str, taken: Container[str]) -> str:
    """The wished name, or the first one with a number that is not taken."""
    return first_free(wish, taken.__contains__)


def take(wish: str, taken: set[str]) -> str:
    """The same, which is taken from then on."""
    name = fresh(wish, taken)
    taken.add(name)
    return name


def names_in(ir: KernelIR) -> set[str]:
    """Every name of a kernel: tensors, axes, values and what loops carry."""
    found = {t.name for t in ir.tensors} | {a.name for a in ir.axes}
    for stmt in statements(ir.body):
        match stmt:
            case Assign(name):
                found.add(name)
            case Loop():
                found |= {n for c in stmt.carries for n in (c.name, c.out)}
            case _:
                pass
    return found


def stem(name: str) -> str:
    """What a name was made from by a number: `acc` of `acc_2`."""
    first, _, number = name.rpartition("_")
    return first if first and number.isdigit() else name


def unique(ir: KernelIR, name: str, suffix: str) -> str:
    """`name_suffix`, or a variant that no tensor of the author's has."""
    taken = {t.name for t in ir.tensors} | {ir.name}

    def busy(stem: str) -> bool:
        wish = f"{stem}_{suffix}"
        return wish in taken or wish.removesuffix("_ref") in taken - {name}

    return f"{first_free(name, busy)}_{suffix}"


def renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """An expression under other names of axes and values."""

    def name(old: str) -> str:
        return names.get(old, old)

    shape = tuple(name(d) if isinstance(d, str) else d for d in expr.type.shape)
    inner = map_children(expr, partial(renamed, names=names))
    match replace(inner, type=Type(shape, expr.type.dtype)):
        case Load() as made:
            return replace(made, index=tuple(_along(entry, names) for entry in made.index))
        case GridIndex() | TileIndex() | TileScalar() as made:
            return replace(made, axis=name(made.axis))
        case Var() as made:
            return replace(made, name=name(made.name))
        case made:
            return made


def _along(entry: Index, names: Mapping[str, str]) -> Index:
    if not isinstance(entry, Along):
        return entry
    return replace(entry, axis=names.get(entry.axis, entry.axis))


def renamed_stmt(stmt: Stmt, names: Mapping[str, str]) -> Stmt:
    """A statement under other names, without what is in it."""
    value = partial(renamed, names=names)
    made = map_stmt(stmt, value, lambda entry: _along(map_index(entry, value), names))
    match made:
        case Assign(name):
            return replace(made, name=names.get(name, name))
        case Loop(axis):
            carries = tuple(
                replace(c, name=names.get(c.name, c.name), out=names.get(c.out, c.out))
                for c in made.carries
            )
            return replace(made, axis=names.get(axis, axis), carries=carries)
        case Store():
            return made
        case _:
            assert_never(made)
