"""Single parts: one position of what a nest stores parts of is a part of one, too.

    y[t, 0:16] = v               y[t, 0:16] = v
    y[t, 16] = v.sum(1)    ->    y[t, 16:17] = v.sum(1)[:, None]

A block of an output is written once: it has all that a nest stores to of a dimension, or one
position of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from functools import partial

from tilelang import ir
from tilelang.ir import every_access, map_children, map_index, statements
from tilelang.ir.lanes import expanded, squeezed
from tilelang.ir.traversal import map_body, map_stmt

Dims = Mapping[str, Set[int]]


def single_parts(kernel: ir.KernelIR) -> ir.KernelIR:
    """The kernel with parts in place of positions, in the nests that store to a tensor by both."""
    body = tuple(_nest(loop) for loop in kernel.body)
    return kernel if body == kernel.body else replace(kernel, body=body)


def _nest(loop: ir.Loop) -> ir.Loop:
    dims = {name: found for name in _stored(loop) if (found := _both(loop, name))}
    if not dims:
        return loop
    (made,) = map_body((loop,), lambda stmt: (_statement(dims, stmt),))
    assert isinstance(made, ir.Loop)
    return made


def _stored(loop: ir.Loop) -> Set[str]:
    return {s.tensor for s in statements((loop,)) if isinstance(s, ir.Store)}


def _both(loop: ir.Loop, name: str) -> frozenset[int]:
    """The dimensions of a tensor that the nest has parts of, and constant positions."""
    indices = [each.index for each in every_access((loop,)) if each.tensor == name]
    every = enumerate(zip(*indices, strict=True))
    return frozenset(
        d
        for d, at in every
        if any(_part(e) is not None for e in at) and any(isinstance(e, ir.Span) for e in at)
    )


def _part(entry: ir.Index) -> ir.Span | None:
    """A constant position as a part of one."""
    match entry:
        case ir.At(ir.Const(value)):
            return ir.Span(int(value), int(value) + 1)
        case _:
            return None


def _statement(dims: Dims, stmt: ir.Stmt) -> ir.Stmt:
    read = partial(_read, dims)
    made = map_stmt(stmt, read, lambda entry: map_index(entry, read))
    if not (isinstance(made, ir.Store) and (found := [*_axes(dims, made)])):
        return made
    rank = len(made.index) - sum(isinstance(entry, ir.At) for entry in made.index)
    return replace(
        made,
        index=_place(dims, made),
        value=_updated(made, found, rank) if made.combine else _longer(made.value, found, rank),
        mask=None if made.mask is None else _longer(made.mask, found, rank),
    )


def _updated(store: ir.Store, axes: list[int], rank: int) -> ir.Expr:
    """An update with what is there among its operands."""
    old, new = (_longer(arg, axes, rank) for arg in store.operands)
    return replace(store.value, args=(old, new), type=_longer(store.value, axes, rank).type)


def _read(dims: Dims, expr: ir.Expr) -> ir.Expr:
    """A value as it was, of loads of parts."""
    expr = map_children(expr, partial(_read, dims))
    if not (isinstance(expr, ir.Load) and (found := [*_axes(dims, expr)])):
        return expr
    longer = _longer(expr, found, expr.type.rank)
    mask = None if expr.mask is None else _longer(expr.mask, found, expr.type.rank)
    made: ir.Expr = replace(expr, index=_place(dims, expr), mask=mask, type=longer.type)
    for axis in reversed(found):
        made = squeezed(made, axis)
    return made


def _longer(value: ir.Expr, axes: list[int], rank: int) -> ir.Expr:
    """What broadcasts to `rank` dimensions, with dimensions of one at these of the place.

    One number for all lanes stays one.
    """
    if isinstance(value, ir.Const) or (rank and not value.type.shape):
        return value
    for added, axis in enumerate(axes):
        own = axis - (rank + added - value.type.rank)
        value = expanded(value, own) if own >= 0 else value
    return value


def _axes(dims: Dims, to: ir.Load | ir.Store) -> Iterator[int]:
    """The dimensions that the place gets, as it then counts them."""
    axis = 0
    for d, entry in enumerate(to.index):
        if single := d in dims.get(to.tensor, ()) and _part(entry) is not None:
            yield axis
        axis += single or not isinstance(entry, ir.At)


def _place(dims: Dims, to: ir.Load | ir.Store) -> tuple[ir.Index, ...]:
    own = dims[to.tensor]
    return tuple((d in own and _part(entry)) or entry for d, entry in enumerate(to.index))
