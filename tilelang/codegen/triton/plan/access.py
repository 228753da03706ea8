"""Access: the elements that a load or store is about, as an offset and a mask.

x[tm, 0:64]  ->  offset tm.index[:, None] * 64 + arange(64)[None, :]     mask in_range(tm)[:, None]

Every position is inside of the tensor wherever the mask holds, so that offsets fit in 32 bits
unless the tensor has more elements than they count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from types import MappingProxyType
from typing import assert_never

from tilelang.analysis.masks import broadcast
from tilelang.codegen.triton.passes.explicit_casts import apply
from tilelang.ir import (
    Along,
    Apply,
    At,
    Const,
    Dim,
    Expr,
    Gather,
    Index,
    Span,
    TileIndex,
    Type,
    Var,
    conjuncts,
    integers,
    map_children,
    part_of,
)
from tilelang.ir.lanes import arange, leading, trailing

from .problem import Prepared
from .strides import Runs, strides
from .types import Access

INT, BOOL = "int32", "bool"
MOST = 2**31 - 1
NOTHING: Mapping[str, Expr] = MappingProxyType({})


def dims_of(index: tuple[Index, ...], kernel: Prepared) -> tuple[Dim, ...]:
    """The dimensions that a value at an index has."""
    return tuple(d for i in index if not _is_scalar(i) for d in _dims(i, kernel))


def _is_scalar(entry: Index) -> bool:
    return isinstance(entry, At) and not entry.expr.type.shape


def _dims(entry: Index, kernel: Prepared) -> tuple[Dim, ...]:
    match entry:
        case Along(axis):
            return (axis,)
        case Span(start, stop):
            size = stop - start
            return (kernel.named(size),)
        case At(expr) | Gather(expr):
            return expr.type.shape
        case _:
            assert_never(entry)


def access(
    kernel: Prepared,
    tensor: str,
    index: tuple[Index, ...],
    mask: Expr | None,
    also: Sequence[tuple[Expr, Dim]] = (),
) -> tuple[Access, tuple[Dim, ...]]:
    """The elements at an index, in terms of the IR, and their dimensions.

    also  conditions of lanes along some dimensions, beside those that the index makes
    """
    array, dims = kernel.ir.tensor(kernel.ir.root(tensor)), dims_of(index, kernel)
    shape, wide = kernel.ir.tensor(tensor).shape, prod(array.shape) > MOST
    terms: list[Expr] = []
    conditions: list[Expr] = []
    place = 0
    for entry, size, runs in zip(index, shape, strides(kernel.ir, tensor), strict=True):
        if _is_scalar(entry):
            assert isinstance(entry, At)
            terms += apart(entry.expr, runs, wide)
            continue
        position = _position(entry, dims[place])
        terms += apart(spread(position, place, len(dims)), runs, wide)
        for n, held in _conditions(kernel, entry, dims[place:], position, size):
            conditions.append(spread(held, place + n, len(dims)))
        place += position.type.rank
    conditions += [spread(condition, dims.index(dim), len(dims)) for condition, dim in also]
    if mask is not None:
        conditions.append(mask)
    whole = array.name == tensor
    parts = tuple(map(part_of, index)) if whole else ()
    held = reduce(both, conditions) if conditions else None
    if held is not None and dims and not held.type.shape:  # the interpreter takes no scalar mask
        held = apply("broadcast", (held,), BOOL, dims)
    return Access(array.name, array.dtype, total(terms), held, parts), dims


# ---------------------------------------------------------------- masks


def by_dimension(mask: Expr, named: Mapping[str, Expr] = NOTHING) -> Expr:
    """A mask with the conditions of each dimension together, each once.

    a[:, None] & (b[None, :] & c[:, None])  ->  (a & c)[:, None] & b[None, :]

    named  what names stand for: one for conditions that are all there says nothing more
    """
    found: dict[tuple[int, int], dict[Expr, None]] = {}
    rest: dict[Expr, None] = {}
    for term in conjuncts(mask):
        base, axes = _spread_from(term)
        if base.type.rank != 1 or not axes:
            rest[_typed(term)] = None
            continue
        place = 0
        for axis in axes:
            place += axis <= place
        own = map(_typed, conjuncts(base))
        found.setdefault((place, 1 + len(axes)), {}).update(dict.fromkeys(own))
    grouped = [spread(reduce(both, _said(own, named)), *at) for at, own in found.items()]
    return reduce(both, [*grouped, *_said(rest, named)])


def _said(conditions: Collection[Expr], named: Mapping[str, Expr]) -> list[Expr]:
    """The conditions without names that stand for others of them."""

    def new(condition: Expr) -> bool:
        value = named.get(condition.name) if isinstance(condition, Var) else None
        return value is None or any(_typed(c) not in conditions for c in conjuncts(value))

    return [c for c in conditions if new(c)]


def _typed(condition: Expr) -> Expr:
    """A condition that is the same as the author's if its numbers are."""
    if not isinstance(condition, Apply):
        return condition
    return map_children(condition, lambda e: replace(e, weak=False) if isinstance(e, Const) else e)


def _spread_from(expr: Expr) -> tuple[Expr, tuple[int, ...]]:
    """What a value is without the dimensions that it was given, and where those were added."""
    match expr:
        case Apply("expand_dims", (value,)):
            base, axes = _spread_from(value)
            axis = expr.attr("axis")
            assert isinstance(axis, int)
            return base, (*axes, axis)
        case _:
            return expr, ()


def total(terms: list[Expr]) -> Expr | None:
    """The sum of the terms that are not zero; None if there is none."""
    kept = [t for t in terms if integers.value_of(t) != 0]
    return reduce(_plus, kept) if kept else None


def _plus(a: Expr, b: Expr) -> Expr:
    dtype = "int64" if "int64" in (a.type.dtype, b.type.dtype) else INT
    return apply("add", (a, b), dtype, broadcast(a.type.shape, b.type.shape))


def both(a: Expr, b: Expr) -> Expr:
    """Where both conditions hold."""
    return apply("logical_and", (a, b), BOOL, broadcast(a.type.shape, b.type.shape))


def compare(op: str, a: Expr, number: Expr | int) -> Expr:
    """a op number, in every lane of a."""
    right = number if isinstance(number, Expr) else integers.const(number)
    return apply(op, (a, right), BOOL, broadcast(a.type.shape, right.type.shape))


def quotient(a: Expr, by: int) -> Expr:
    """a // by of a number that is not negative."""
    if isinstance(a, Apply) and a.op == "quotient" and isinstance(a.args[1], Const):
        return quotient(a.args[0], int(a.args[1].value) * by)
    return a if by == 1 else _computed("quotient", a, by)


def apart(position: Expr, runs: Runs, wide: bool) -> Iterator[Expr]:
    """How far a position is from the first one, as what each run of its dimension adds to that."""
    for n, (count, stride) in enumerate(runs):
        below = prod(inner for inner, _ in runs[n + 1 :])
        own = _computed("quotient", position, below) if below > 1 else position
        yield scaled(_computed("remainder", own, count) if n else own, stride, wide)


def _computed(op: str, a: Expr, by: int) -> Expr:
    """a // by or a % by of a number that is not negative."""
    if (value := integers.value_of(a)) is not None:
        return integers.const(value // by if op == "quotient" else value % by)
    return apply(op, (a, integers.const(by)), a.type.dtype, a.type.shape)


def scaled(position: Expr, stride: int, wide: bool) -> Expr:
    """A position times the distance of neighbours, in as many bits as are needed."""
    value = integers.value_of(position)
    if value is not None:
        return Const(value * stride, Type((), "int64" if wide else INT))
    shape = position.type.shape
    if wide:
        position = apply("cast", (position,), "int64", shape)
    if stride == 1:
        return position
    return apply("mul", (position, integers.const(stride)), position.type.dtype, shape)


def spread(expr: Expr, place: int, rank: int) -> Expr:
    """A value as dimension `place` of several, and as those behind it if it has more than one."""
    return trailing(leading(expr, place), rank - expr.type.rank - place)


def _position(entry: Index, dim: Dim) -> Expr:
    """Where the lanes lie along the dimension of the tensor."""
    match entry:
        case Along(axis, offset):
            lanes: Expr = TileIndex(axis, Type((axis,), INT))
            return lanes if offset is None else apply("add", (lanes, offset), INT, (axis,))
        case Span(start, _):
            return arange(dim, start)
        case At(expr) | Gather(expr):
            return expr
        case _:
            assert_never(entry)


def _conditions(
    kernel: Prepared, entry: Index, dims: tuple[Dim, ...], position: Expr, size: int
) -> Iterator[tuple[int, Expr]]:
    """What must hold in a lane for it to be meant: in range, and in the array.

    Each with the dimension of `dims` that it begins at.  Positions that are a block and lie in the
    array, as of tables that are looked up in, need none: see `Prepared.held`.
    """
    if isinstance(entry, At) and position.type.rank > 1:
        return
    for n, dim in enumerate(dims[: position.type.rank]):
        if isinstance(dim, str) and kernel.is_partial(dim):
            yield n, in_range(dim)
    before, behind = isinstance(entry, Gather), isinstance(entry, Gather)
    if isinstance(entry, Along):
        before, behind = kernel.leaves(entry, size)
    if before:
        yield 0, compare("ge", position, 0)
    if behind:
        yield 0, compare("lt", position, size)


def in_range(dim: str) -> Expr:
    """The lanes of a dimension that lie in its range."""
    return apply("in_range", (), BOOL, (dim,), axis=dim)
