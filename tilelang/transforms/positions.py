"""What positions of axes are in a kernel: places in tensors, which shards have, or numbers.

x[tm], w[g], k[h // share], offsets[g + 1]      places: the axis alone moves a dimension
tm.index - begin, bias[tm - begin], h * 0.5     numbers: those of the whole, also on a shard

`of_whole` makes the numbers of a shard those of the whole: what begins at `first` is added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from ..errors import Loc
from ..ir import (
    Along,
    Apply,
    Assign,
    At,
    Const,
    Expr,
    GridIndex,
    Index,
    KernelIR,
    Load,
    Stmt,
    TileIndex,
    TileScalar,
    axis_of,
    children,
    index_exprs,
    inlined,
    map_body,
)
from ..ir import definitions as assigned
from ..ir.traversal import map_index, map_range, map_stmt, rewriting, substitute

Number = GridIndex | TileIndex | TileScalar
BEGINS = ("begin", "end")  # scalars of a tile that are positions


def step(entry: Index) -> tuple[str, int] | None:
    """The axis that alone moves a dimension, and how many of its positions lie at one place."""
    match entry:
        case At(Apply("floordiv", (GridIndex(axis), Const(int(many))))) if many > 0:
            return axis, many
        case _:
            axis = axis_of(entry)
            return None if axis is None else (axis, 1)


def with_places(ir: KernelIR) -> KernelIR:
    """The kernel with h // 4 where the author has a name for it."""
    values = {n: e for n, e in assigned(ir.body).items() if (step(At(e)) or ("", 1))[1] > 1}
    return replace(
        ir,
        axes=tuple(map_range(axis, partial(inlined, values=values)) for axis in ir.axes),
        body=map_body(
            substitute(ir.body, values),
            lambda s: () if isinstance(s, Assign) and s.name in values else (s,),
        ),
    )


def following(entry: Index) -> str | None:
    """g of a position g + 1."""
    match entry:
        case At(Apply("add", (GridIndex(axis), Const(1)))):
            return axis
        case _:
            return None


def mover(entry: Index) -> str | None:
    """The axis of a place."""
    found = step(entry)
    return following(entry) if found is None else found[0]


def within(entry: Index) -> tuple[Expr, ...]:
    """What is computed for a position: nothing where an axis moves it alone."""
    if mover(entry) is not None:
        return ()
    here = (GridIndex(entry.axis),) if isinstance(entry, Along) else ()  # a moved tile
    return (*here, *index_exprs(entry))


def numbers(expr: Expr) -> Iterator[Number]:
    """Positions of axes that are numbers in an expression, not only places in tensors."""
    match expr:
        case GridIndex() | TileIndex() | TileScalar():
            yield expr
        case Load():
            inner = [e for entry in expr.index for e in within(entry)]
            inner += [] if expr.mask is None else [expr.mask]
            yield from (found for e in inner for found in numbers(e))
        case _:
            yield from (found for child in children(expr) for found in numbers(child))


def place_of(expr: Expr, number: Number) -> Loc | None:
    """The smallest expression with a place in which a number is."""
    inner = next((c for c in children(expr) if number in numbers(c)), None)
    found = None if inner is None else place_of(inner, number)
    return found or (expr.loc if isinstance(expr, Apply | Load) else None)


def limits(bound: Expr) -> Iterator[Expr]:
    """What a bound is the smallest or the largest of."""
    match bound:
        case Apply("minimum" | "maximum", (a, b)):
            yield from (*limits(a), *limits(b))
        case _:
            yield bound


Visit = Callable[[Expr], Expr]


def of_whole(
    firsts: Mapping[str, Expr], twins: Mapping[str, str]
) -> tuple[Visit, Callable[[Stmt], Stmt]]:
    """Expressions and statements with the numbers of the whole.

    `firsts` are the first positions of split axes, `twins` the whole ones of tensors of numbers.
    """

    def change(expr: Expr) -> Expr | None:
        match expr:
            case GridIndex(axis) | TileIndex(axis) if axis in firsts:
                return plus(expr, firsts[axis])
            case TileScalar(axis, what) if axis in firsts and what in BEGINS:
                return plus(expr, firsts[axis])
            case Load(tensor):
                mask = None if expr.mask is None else visit(expr.mask)
                index = tuple(map(entry, expr.index))
                return replace(expr, tensor=twins.get(tensor, tensor), index=index, mask=mask)
            case _:
                return None

    visit = rewriting(change)

    def entry(index: Index) -> Index:
        if mover(index) is not None:
            return index
        moved = map_index(index, visit)
        if isinstance(moved, Along) and moved.axis in firsts and moved.offset is not None:
            return replace(moved, offset=plus(moved.offset, firsts[moved.axis]))
        return moved

    return visit, partial(map_stmt, value=visit, index=entry)


def plus(expr: Expr, number: Expr) -> Expr:
    """The sum of positions and a number."""
    return Apply("add", (expr, number), expr.type)
