"""Outside: lanes of a tile that lie in no row of the array are no data.

    for t in hl.tile(L): x[start + t.index, :]   ->   where(start + t.index < M, x[...], 0)

A mask of the author's may follow, but 0 * NaN is NaN: what lies behind the last row must be gone
before anything is computed from it.  Tiles that were proved to lie in the array stay as they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tilelang.analysis.carries import definitions
from tilelang.analysis.facts import Facts, Leaving
from tilelang.analysis.uses import references
from tilelang.ir import (
    Along,
    Apply,
    Assign,
    Const,
    Dim,
    Expr,
    Gather,
    Index,
    KernelIR,
    Load,
    Loop,
    Stmt,
    Store,
    TileIndex,
    Type,
    Var,
    map_carries,
    map_children,
)
from tilelang.ir.traversal import loads

from .inline_indices import Definitions, resolve


@dataclass(frozen=True)
class _Kernel:
    """What is known of a kernel's loads; `picks` are the tensors that say which rows are meant."""

    ir: KernelIR
    leaving: Mapping[tuple[Index, int], Leaving]
    values: Definitions
    picks: frozenset[str]


def mask_outside(ir: KernelIR, facts: Facts) -> KernelIR:
    """The kernel in which no load gives what lies outside of its tensor.

    Tiles that may leave all arrays are cut where their range begins, so that none is left out.
    """
    if not facts.leaving:
        return ir
    leaving: dict[tuple[Index, int], Leaving] = {(f.index, f.size): f for f in facts.leaving}
    values = definitions(ir).values
    kernel = _Kernel(ir, leaving, values, _picking(ir, values))
    return replace(ir, body=tuple(_statement(s, kernel) for s in ir.body))


def _picking(ir: KernelIR, values: Definitions) -> frozenset[str]:
    """Tensors whose numbers pick rows: they are read one by one where the rows are."""
    entries = (e for r in references(ir.body) for e in r.index)
    picked = [e.expr for e in entries if isinstance(e, Gather)]
    return frozenset(load.tensor for e in picked for load in loads(resolve(e, values, None)))


def _statement(stmt: Stmt, kernel: _Kernel) -> Stmt:
    def guard(expr: Expr) -> Expr:
        return _guarded(expr, kernel)

    match stmt:
        case Assign():
            return replace(stmt, value=guard(stmt.value))
        case Store():
            mask = None if stmt.mask is None else guard(stmt.mask)
            return replace(stmt, value=_stored(stmt, guard), mask=mask)
        case Loop():
            body = tuple(_statement(s, kernel) for s in stmt.body)
            return replace(stmt, carries=map_carries(stmt.carries, guard), body=body)


def _stored(store: Store, guard: Callable[[Expr], Expr]) -> Expr:
    """The value; the old one of an atomic update is read only where it is written."""
    if store.combine is None:
        return guard(store.value)
    assert isinstance(store.value, Apply)
    old, new = store.value.args
    return replace(store.value, args=(old, guard(new)))


def _guarded(expr: Expr, kernel: _Kernel) -> Expr:
    if not isinstance(expr, Load):
        return map_children(expr, lambda e: _guarded(e, kernel))
    if expr.tensor in kernel.picks:
        return expr
    mask = None if expr.mask is None else _guarded(expr.mask, kernel)
    load, inside = replace(expr, mask=mask), _inside(expr, kernel)
    if not inside:
        return load
    load = replace(load, index=tuple(_loose(e, n, kernel) for e, n in _entries(load, kernel)))
    kept = inside[0]
    for mask in inside[1:]:
        kept = _both(kept, mask)
    other = Const(expr.other, Type((), expr.type.dtype))
    return Apply("where", (kept, load, other), expr.type, (), expr.loc)


def _entries(load: Load, kernel: _Kernel) -> Iterator[tuple[Index, int]]:
    return zip(load.index, kernel.ir.tensor(load.tensor).shape, strict=True)


def _loose(entry: Index, size: int, kernel: _Kernel) -> Index:
    moved = isinstance(entry, Along) and entry.offset is not None
    return replace(entry, loose=True) if moved and (entry, size) in kernel.leaving else entry


# ---------------------------------------------------------------- which lanes are in the array


def _inside(load: Load, kernel: _Kernel) -> list[Expr]:
    """The conditions under which lanes lie in the tensor, but those that its own mask states."""
    stated = list(_conjuncts(load.mask, kernel.values))
    found: list[Expr] = []
    for entry, size in _entries(load, kernel):
        known = kernel.leaving.get((entry, size))
        if known is None or not isinstance(entry, Along):
            continue
        place = _place(entry)
        sides = (("ge", 0, known.before), ("lt", size, known.behind))
        for op, limit, needed in sides:
            if needed and not any(_implies(s, op, place, limit, kernel.values) for s in stated):
                compared = Apply(op, (place, Const(limit, INT)), Type(place.type.shape, "bool"))
                found.append(_spread(compared, load.type.shape))
    return found


INT = Type((), "int32")


def _place(entry: Along) -> Expr:
    """The positions in the tensor."""
    lanes = Type((entry.axis,), "int32")
    index: Expr = TileIndex(entry.axis, lanes)
    return index if entry.offset is None else Apply("add", (index, entry.offset), lanes)


def _spread(mask: Expr, shape: tuple[Dim, ...]) -> Expr:
    """The mask of a dimension with ones for the dimensions behind it."""
    (axis,) = mask.type.shape
    for _ in shape[shape.index(axis) + 1 :]:
        wider = (*mask.type.shape, 1)
        mask = Apply("expand_dims", (mask,), Type(wider, "bool"), (("axis", len(wider) - 1),))
    return mask


def _both(a: Expr, b: Expr) -> Expr:
    return Apply("logical_and", (a, b), Type(max(a.type.shape, b.type.shape, key=len), "bool"))


def _conjuncts(mask: Expr | None, values: Definitions) -> Iterator[Apply]:
    """Comparisons that hold in every lane that a mask lets through."""
    match mask:
        case Var(name) if name in values:
            yield from _conjuncts(values[name], values)
        case Apply("logical_and", (a, b)):
            yield from _conjuncts(a, values)
            yield from _conjuncts(b, values)
        case Apply("expand_dims" | "broadcast", (inner,)):
            yield from _conjuncts(inner, values)
        case Apply("lt" | "le" | "ge" | "gt", (_, Const())):
            yield mask
        case _:
            pass


def _implies(stated: Apply, op: str, place: Expr, limit: int, values: Definitions) -> bool:
    """Whether `stated` says that `place op limit`."""
    left, right = stated.args
    if not isinstance(right, Const) or _terms(left, values) != _terms(place, values):
        return False
    bound = int(right.value) + (stated.op in ("le", "gt"))  # place < bound, or place >= bound
    if op == "lt":
        return stated.op in ("lt", "le") and bound <= limit
    return stated.op in ("ge", "gt") and bound >= limit


def _terms(expr: Expr, values: Definitions, sign: int = 1) -> Counter[Expr]:
    """A sum as what is added, each as often as it is."""
    match expr:
        case Var(name) if name in values:
            return _terms(values[name], values, sign)
        case Apply("add" | "sub", (a, b)):
            total, more = (
                _terms(a, values, sign),
                _terms(b, values, -sign if expr.op == "sub" else sign),
            )
            total.update(more)
            return Counter({e: n for e, n in total.items() if n})
        case Apply("neg", (a,)):
            return _terms(a, values, -sign)
        case _:
            return Counter({expr: sign})
