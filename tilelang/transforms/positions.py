"""What positions of axes are in a kernel: places in tensors, which shards have, or numbers.

x[tm], w[g], k[h // share], offsets[g + 1]      places: the axis alone moves a dimension
tm.index - begin, bias[tm - begin], h * 0.5     numbers: those of the whole, also on a shard

`of_whole` makes the numbers of a shard those of the whole: what begins at `first` is added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from .. import ir
from ..errors import Loc
from ..ir import axis_of, children, index_exprs, inlined, map_body
from ..ir import definitions as assigned
from ..ir.traversal import map_index, map_range, map_stmt, rewriting, substitute

Number = ir.GridIndex | ir.TileIndex | ir.TileScalar
BEGINS = ("begin", "end")  # scalars of a tile that are positions


def step(entry: ir.Index) -> tuple[str, int] | None:
    """The axis that alone moves a dimension, and how many of its positions lie at one place."""
    match entry:
        case ir.At(ir.Apply("floordiv", (ir.GridIndex(axis), ir.Const(int(many))))) if many > 0:
            return axis, many
        case _:
            axis = axis_of(entry)
            return None if axis is None else (axis, 1)


def with_places(kernel: ir.KernelIR) -> ir.KernelIR:
    """The kernel with h // 4 where the author has a name for it."""
    values = {n: e for n, e in assigned(kernel.body).items() if (step(ir.At(e)) or ("", 1))[1] > 1}
    return replace(
        kernel,
        axes=tuple(map_range(axis, partial(inlined, values=values)) for axis in kernel.axes),
        body=map_body(
            substitute(kernel.body, values),
            lambda s: () if isinstance(s, ir.Assign) and s.name in values else (s,),
        ),
    )


def following(entry: ir.Index) -> str | None:
    """g of a position g + 1."""
    match entry:
        case ir.At(ir.Apply("add", (ir.GridIndex(axis), ir.Const(1)))):
            return axis
        case _:
            return None


def mover(entry: ir.Index) -> str | None:
    """The axis of a place."""
    found = step(entry)
    return following(entry) if found is None else found[0]


def within(entry: ir.Index) -> tuple[ir.Expr, ...]:
    """What is computed for a position: nothing where an axis moves it alone."""
    if mover(entry) is not None:
        return ()
    here = (ir.GridIndex(entry.axis),) if isinstance(entry, ir.Along) else ()  # a moved tile
    return (*here, *index_exprs(entry))


def numbers(expr: ir.Expr) -> Iterator[Number]:
    """Positions of axes that are numbers in an expression, not only places in tensors."""
    match expr:
        case ir.GridIndex() | ir.TileIndex() | ir.TileScalar():
            yield expr
        case ir.Load():
            inner = [e for entry in expr.index for e in within(entry)]
            inner += [] if expr.mask is None else [expr.mask]
            yield from (found for e in inner for found in numbers(e))
        case _:
            yield from (found for child in children(expr) for found in numbers(child))


def place_of(expr: ir.Expr, number: Number) -> Loc | None:
    """The smallest expression with a place in which a number is."""
    inner = next((c for c in children(expr) if number in numbers(c)), None)
    found = None if inner is None else place_of(inner, number)
    return found or (expr.loc if isinstance(expr, ir.Apply | ir.Load) else None)


def limits(bound: ir.Expr) -> Iterator[ir.Expr]:
    """What a bound is the smallest or the largest of."""
    match bound:
        case ir.Apply("minimum" | "maximum", (a, b)):
            yield from (*limits(a), *limits(b))
        case _:
            yield bound


Visit = Callable[[ir.Expr], ir.Expr]


def of_whole(
    firsts: Mapping[str, ir.Expr], twins: Mapping[str, str]
) -> tuple[Visit, Callable[[ir.Stmt], ir.Stmt]]:
    """Expressions and statements with the numbers of the whole.

    `firsts` are the first positions of split axes, `twins` the whole ones of tensors of numbers.
    """

    def change(expr: ir.Expr) -> ir.Expr | None:
        match expr:
            case ir.GridIndex(axis) | ir.TileIndex(axis) if axis in firsts:
                return plus(expr, firsts[axis])
            case ir.TileScalar(axis, what) if axis in firsts and what in BEGINS:
                return plus(expr, firsts[axis])
            case ir.Load(tensor):
                mask = None if expr.mask is None else visit(expr.mask)
                index = tuple(map(entry, expr.index))
                return replace(expr, tensor=twins.get(tensor, tensor), index=index, mask=mask)
            case _:
                return None

    visit = rewriting(change)

    def entry(index: ir.Index) -> ir.Index:
        if mover(index) is not None:
            return index
        moved = map_index(index, visit)
        if isinstance(moved, ir.Along) and moved.axis in firsts and moved.offset is not None:
            return replace(moved, offset=plus(moved.offset, firsts[moved.axis]))
        return moved

    return visit, partial(map_stmt, value=visit, index=entry)


def plus(expr: ir.Expr, number: ir.Expr) -> ir.Expr:
    """The sum of positions and a number."""
    return ir.Apply("add", (expr, number), expr.type)
