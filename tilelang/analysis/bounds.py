"""width_facts(ir, references) -> WidthFact: whether int32 holds every index that is formed.

Lanes outside a tile's range are never accessed, so an element offset stays below the tensor's size.
What remains is the arithmetic that forms a position: g * K + k is bounded by the ranges of g and k.
A sum of non-negative terms that is a valid position bounds each of its terms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from ..ir import (
    Along,
    Apply,
    Axis,
    Const,
    Expr,
    GridIndex,
    Index,
    KernelIR,
    Load,
    Store,
    TileIndex,
    TileScalar,
    Var,
    index_exprs,
    statement_exprs,
    walk,
)
from .facts import WidthFact
from .placed import placed

LIMIT = 2**31
Span = tuple[int, int]  # smallest and largest value
WIDTHS: Mapping[str, Span] = {
    "bool": (0, 1),
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-(2**15), 2**15 - 1),
    "uint32": (0, 2**32 - 1),
}
ANY: Span = (-LIMIT, LIMIT - 1)


def width_facts(ir: KernelIR, values: Mapping[str, Expr]) -> tuple[WidthFact, ...]:
    """One fact per tensor that is accessed; `values` defines the Vars."""
    axes = {a.name: a for a in ir.axes}
    largest: dict[str, int] = {}
    for tensor, index in accesses(ir):
        shape = ir.tensor(tensor).shape
        formed = [
            _largest(entry, size, axes, values) for entry, size in zip(index, shape, strict=True)
        ]
        largest[tensor] = max(largest.get(tensor, 0), prod(shape), *formed, 0)
    return tuple(WidthFact(name, size, size < LIMIT) for name, size in largest.items())


def accesses(ir: KernelIR) -> Iterator[tuple[str, tuple[Index, ...]]]:
    """Tensor and index of every load and store, loop bounds included."""
    for axis in ir.axes:
        yield from _loads((axis.begin, axis.end))
    for stmt, _ in placed(ir.body):
        yield from _loads(statement_exprs(stmt))
        if isinstance(stmt, Store):
            yield stmt.tensor, stmt.index


def _loads(exprs: tuple[Expr, ...]) -> Iterator[tuple[str, tuple[Index, ...]]]:
    for expr in exprs:
        yield from ((e.tensor, e.index) for e in walk(expr) if isinstance(e, Load))


def _largest(entry: Index, size: int, axes: Mapping[str, Axis], values: Mapping[str, Expr]) -> int:
    """The largest magnitude formed on the way to a position in a dimension of `size`."""
    found = size
    for expr in index_exprs(entry):
        if not _rising(expr, axes, values) or not _positions(entry, axes):
            found = max(found, *(_size(e, axes, values) for e in _steps(expr, values)))
    return found


def _positions(entry: Index, axes: Mapping[str, Axis]) -> bool:
    """Whether a tile that an offset moves has no negative positions."""
    if not isinstance(entry, Along):
        return True
    return _non_negative(axes[entry.axis])


def _non_negative(axis: Axis) -> bool:
    """Whether no position of the axis is negative; loaded begins are not."""
    return not isinstance(axis.begin, Const) or axis.begin.value >= 0


def _steps(expr: Expr, values: Mapping[str, Expr]) -> Iterator[Expr]:
    """The scalar expressions evaluated for a position; loads have facts of their own."""
    yield expr
    match expr:
        case Var(name) if name in values:
            yield from _steps(values[name], values)
        case Apply():
            for argument in expr.args:
                yield from _steps(argument, values)
        case _:
            pass


def _rising(expr: Expr, axes: Mapping[str, Axis], values: Mapping[str, Expr]) -> bool:
    """Whether the value is a sum of non-negative terms, so that it bounds each of them.

    Loaded integers that form a position are taken to be non-negative: the language has no others.
    """
    match expr:
        case Const(value):
            return value >= 0
        case Var(name):
            return name in values and _rising(values[name], axes, values)
        case GridIndex(axis) | TileIndex(axis) | TileScalar(axis):
            return _non_negative(axes[axis])
        case Load():
            return True
        case Apply("add", args) | Apply("cast", args):
            return all(_rising(a, axes, values) for a in args)
        case Apply("mul", (Const(value), other)) | Apply("mul", (other, Const(value))):
            return value >= 1 and _rising(other, axes, values)
        case _:
            return False


# ---------------------------------------------------------------- intervals of int32 arithmetic


def _size(expr: Expr, axes: Mapping[str, Axis], values: Mapping[str, Expr]) -> int:
    low, high = span(expr, axes, values)
    return max(abs(low), abs(high))


def span(expr: Expr, axes: Mapping[str, Axis], values: Mapping[str, Expr]) -> Span:
    """The smallest and the largest value that an integer expression can have."""
    match expr:
        case Const(value):
            return int(value), int(value)
        case Var(name) if name in values:
            return span(values[name], axes, values)
        case GridIndex(axis) | TileIndex(axis) | TileScalar(axis, "begin" | "end"):
            return _range(axes[axis], axes, values)
        case TileScalar(axis):
            low, high = _range(axes[axis], axes, values)
            return 0, max(high - low, 1)
        case Apply():
            inner = [span(a, axes, values) for a in expr.args]
            rule = RULES.get(expr.op)
            return WIDTHS.get(expr.type.dtype, ANY) if rule is None else rule(*inner)
        case _:
            return WIDTHS.get(expr.type.dtype, ANY)


def _range(axis: Axis, axes: Mapping[str, Axis], values: Mapping[str, Expr]) -> Span:
    """Positions of an axis, its end included."""
    begin, end = span(axis.begin, axes, values), span(axis.end, axes, values)
    return begin[0], max(begin[0], end[1])


def _products(a: Span, b: Span) -> Span:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _quotients(a: Span, b: Span) -> Span:
    """A quotient is no larger than the dividend: the divisor is an integer other than 0."""
    reach = max(abs(a[0]), abs(a[1]))
    return (0 if a[0] >= 0 and b[0] > 0 else -reach), reach


def _remainders(a: Span, b: Span) -> Span:
    return min(b[0] + 1, 0), max(b[1] - 1, 0)


RULES = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "neg": lambda a: (-a[1], -a[0]),
    "mul": _products,
    "floordiv": _quotients,
    "mod": _remainders,
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "where": lambda c, a, b: (min(a[0], b[0]), max(a[1], b[1])),
    "cast": lambda a: a,
    "expand_dims": lambda a: a,
}
