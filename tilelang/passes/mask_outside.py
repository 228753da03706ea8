"""Mask outside: lanes of a tile that lie in no row of the array are no data.

    for t in hl.tile(L): x[start + t.index, :]   ->   where(start + t.index < M, x[...], 0)

A mask of the author's may follow, but 0 * NaN is NaN: what lies behind the last row must be gone
before anything is computed from it.  Tiles that were proved to lie in the array stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

from .. import ir
from ..analysis.facts import Facts, Leaving
from ..analysis.uses import references
from ..ir.integers import Linear, compare, linear
from ..ir.lanes import trailing
from ..language.build import binary

Values = Mapping[str, ir.Expr]


@dataclass(frozen=True)
class _Loads:
    """What is known of a kernel's loads; `picks` are the tensors that say which rows are meant."""

    kernel: ir.KernelIR
    leaving: Mapping[tuple[ir.Index, int], Leaving]
    values: Values
    picks: frozenset[str]


def mask_outside(kernel: ir.KernelIR, facts: Facts) -> ir.KernelIR:
    """The kernel in which no load gives what lies outside of its tensor.

    Tiles that may leave all arrays are cut where their range begins, so that none is left out.
    """
    if not facts.leaving:
        return kernel
    leaving: dict[tuple[ir.Index, int], Leaving] = {(f.index, f.size): f for f in facts.leaving}
    values = ir.definitions(kernel.body)
    about = _Loads(kernel, leaving, values, _picking(kernel, values))
    return replace(kernel, body=ir.map_body(kernel.body, lambda stmt: (_statement(stmt, about),)))


def _picking(kernel: ir.KernelIR, values: Values) -> frozenset[str]:
    """Tensors whose numbers pick rows: they are read one by one where the rows are."""
    entries = (e for r in references(kernel.body) for e in r.index)
    picked = [e.expr for e in entries if isinstance(e, ir.Gather)]
    return frozenset(load.tensor for e in picked for load in ir.loads(ir.inlined(e, values)))


def _statement(stmt: ir.Stmt, about: _Loads) -> ir.Stmt:
    """The old value of an atomic update stays: it is read only where it is written."""
    made = ir.map_stmt(stmt, lambda e: _guarded(e, about))
    if not (isinstance(stmt, ir.Store) and isinstance(made, ir.Store)):
        return made
    made = replace(made, index=tuple(_masked(stmt, e, n, about) for e, n in _entries(stmt, about)))
    if stmt.combine is None:
        return made
    assert isinstance(stmt.value, ir.Apply) and isinstance(made.value, ir.Apply)
    old, new = stmt.value.args[0], made.value.args[1]
    return replace(made, value=replace(made.value, args=(old, new)))


def _guarded(expr: ir.Expr, about: _Loads) -> ir.Expr:
    if not isinstance(expr, ir.Load):
        return ir.map_children(expr, lambda e: _guarded(e, about))
    if expr.tensor in about.picks:
        return expr
    mask = None if expr.mask is None else _guarded(expr.mask, about)
    index = tuple(_loose(expr, e, n, about) for e, n in _entries(expr, about))
    load, inside = replace(expr, mask=mask, index=index), _inside(expr, about)
    if not inside:
        return load
    other = ir.Const(expr.other, ir.Type((), expr.type.dtype))
    why = (("array", expr.tensor),)
    within = reduce(partial(binary, "logical_and", loc=None), inside)
    return ir.Apply("where", (within, load, other), expr.type, (), expr.loc, why)


def _entries(place: ir.Load | ir.Store, about: _Loads) -> Iterator[tuple[ir.Index, int]]:
    return zip(place.index, about.kernel.tensor(place.tensor).shape, strict=True)


def _masked(store: ir.Store, entry: ir.Index, size: int, about: _Loads) -> ir.Index:
    """A tile that may leave what is stored to: calls refuse that only of stores without a mask."""
    leaves = isinstance(entry, ir.Along) and (entry, size) in about.leaving
    return replace(entry, loose=True) if leaves and store.mask is not None else entry


def _loose(load: ir.Load, entry: ir.Index, size: int, about: _Loads) -> ir.Index:
    """A tile that may leave the tensor, and says nothing of where its range ends.

    Without an offset and a mask it does: calls refuse ranges that leave what is read as it is.
    """
    if not isinstance(entry, ir.Along) or (entry, size) not in about.leaving:
        return entry
    masked = load.mask is not None  # a number leaves out all lanes
    return replace(entry, loose=True) if masked or entry.offset is not None else entry


# ---------------------------------------------------------------- which lanes are in the array


def _inside(load: ir.Load, about: _Loads) -> list[ir.Expr]:
    """The conditions under which lanes lie in the tensor, but those that its own mask states."""
    stated = list(_conjuncts(load.mask, about.values))
    found: list[ir.Expr] = []
    for entry, size in _entries(load, about):
        known = about.leaving.get((entry, size))
        if known is None or not isinstance(entry, ir.Along):
            continue
        place = _place(entry)
        for op, limit, needed in (("ge", 0, known.before), ("lt", size, known.behind)):
            if needed and not any(_implies(s, op, place, limit, about.values) for s in stated):
                found.append(_spread(compare(op, place, limit), load.type.shape))
    return found


def _place(entry: ir.Along) -> ir.Expr:
    """The positions in the tensor."""
    lanes = ir.Type((entry.axis,), "int32")
    index: ir.Expr = ir.TileIndex(entry.axis, lanes)
    return index if entry.offset is None else ir.Apply("add", (index, entry.offset), lanes)


def _spread(mask: ir.Expr, shape: tuple[ir.Dim, ...]) -> ir.Expr:
    """The mask of a dimension with ones for the dimensions behind it."""
    (axis,) = mask.type.shape
    return trailing(mask, len(shape) - 1 - shape.index(axis))


def _conjuncts(mask: ir.Expr | None, values: Values) -> Iterator[ir.Apply]:
    """Comparisons that hold in every lane that a mask lets through."""
    match mask:
        case ir.Var(name) if name in values:
            yield from _conjuncts(values[name], values)
        case ir.Apply("logical_and", (a, b)):
            yield from _conjuncts(a, values)
            yield from _conjuncts(b, values)
        case ir.Apply("expand_dims" | "broadcast", (inner,)):
            yield from _conjuncts(inner, values)
        case ir.Apply("lt" | "le" | "ge" | "gt", (_, ir.Const())):
            yield mask
        case _:
            pass


def _implies(stated: ir.Apply, op: str, place: ir.Expr, limit: int, values: Values) -> bool:
    """Whether `stated` says that `place op limit`."""
    left, right = stated.args
    if not isinstance(right, ir.Const) or _sum(left, values) != _sum(place, values):
        return False
    bound = int(right.value) + (stated.op in ("le", "gt"))  # place < bound, or place >= bound
    if op == "lt":
        return stated.op in ("lt", "le") and bound <= limit
    return stated.op in ("ge", "gt") and bound >= limit


def _sum(expr: ir.Expr, values: Values) -> Linear | None:
    """A sum as what is added, each as often as it is; names are what they stand for."""

    def leaf(part: ir.Expr) -> Linear | None:
        if isinstance(part, ir.Var) and part.name in values:
            return linear(values[part.name], leaf)
        index: Any = part  # whatever is no sum is taken as it is
        return {index: 1}, 0

    return linear(expr, leaf)
