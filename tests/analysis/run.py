"""Runs the loops of a kernel on concrete integers and records which elements each store touches."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from tilelang.ir import Along, Apply, At, Const, GridIndex, Load, Loop, Span, Store, TileScalar

OPS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "minimum": min,
    "maximum": max,
    "gt": lambda a, b: a > b,
    "where": lambda c, a, b: a if c else b,
}


@dataclass(frozen=True)
class Touch:
    """One element touched; `at` holds (axis, number of the iteration), outermost first."""

    tensor: str
    element: tuple[int, ...]
    writes: bool
    at: tuple[tuple[str, int], ...]


@dataclass
class Trace:
    """What happened: touches, and per axis (iterations around it, begin, end) of every run."""

    touches: list[Touch] = field(default_factory=list)
    runs: dict[str, list[tuple[dict[str, int], int, int]]] = field(default_factory=dict)


class OutOfRange(Exception):
    """A table was read outside of its bounds: not a valid input for this kernel."""


def trace(ir, tables, block):
    """Every touch of the kernel with tiles of `block` positions and the integer tensors given."""
    out = Trace()
    for loop in ir.body:
        _loop(ir, loop, tables, block, {}, (), out)
    return out


def _loop(ir, loop, tables, block, where, at, out):
    axis = ir.axis(loop.axis)
    first, last = number(axis.begin, tables, where), number(axis.end, tables, where)
    indices = dict(at)
    out.runs.setdefault(axis.name, []).append((indices, first, last))
    step = 1 if axis.kind == "grid" else block
    for count, start in enumerate(range(first, last, step)):
        here = {**where, axis.name: (start, min(start + step, last), count)}
        for stmt in loop.body:
            _statement(ir, stmt, tables, block, here, (*at, (axis.name, count)), out)


def _statement(ir, stmt, tables, block, where, at, out):
    if isinstance(stmt, Loop):
        _loop(ir, stmt, tables, block, where, at, out)
    if isinstance(stmt, Store):
        for element in elements(ir, stmt, tables, where):
            out.touches.append(Touch(stmt.tensor, element, True, at))
        if isinstance(stmt.value, Load):
            for element in elements(ir, stmt.value, tables, where):
                out.touches.append(Touch(stmt.value.tensor, element, False, at))


def elements(ir, access, tables, where):
    """Elements inside of the tensor; the others are never touched."""
    shape = ir.tensor(access.tensor).shape
    dims = [_positions(i, tables, where) for i in access.index]
    inside = [[p for p in d if 0 <= p < size] for d, size in zip(dims, shape, strict=True)]
    return itertools.product(*inside)


def _positions(entry, tables, where):
    match entry:
        case At(expr):
            return [number(expr, tables, where)]
        case Along(axis, offset):
            shift = 0 if offset is None else number(offset, tables, where)
            start, last, _ = where[axis]
            return range(start + shift, last + shift)
        case Span(start, stop):
            return range(start, stop)


def number(expr, tables, where):
    """The value of an integer expression."""
    match expr:
        case Const(value):
            return value
        case GridIndex(axis):
            return where[axis][0]
        case TileScalar(axis, what):
            return where[axis][("begin", "end", "id").index(what)]
        case Load(tensor, index):
            place = number(index[0].expr, tables, where)
            if not 0 <= place < len(tables[tensor]):
                raise OutOfRange
            return tables[tensor][place]
        case Apply(op, args):
            return OPS[op](*(number(a, tables, where) for a in args))
