"""Moved lanes: joins, reshapes and parts whose elements change lanes, as takes of lanes.

    x[t, 48] -> [t, 3, 16]     as it is: 64 lanes are 4 x 16, and element e stays in lane e
    x[t, 48] -> [t, 16, 3]     take(x, p): lane 4 * a + b is made of lane 3 * a + b
    x[t, 48][:, 16:32]         take(x, 16 + n), n the lanes of the result
    cat(a[t, 48], b[t, 16])    where(n < 48, take(a, n), take(b, n - 48)), n the lanes of the result

Lanes that are no element's have another element's value: whoever reads them masks them, as those
of any padded dimension.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod

from tilelang.ir import Apply, Assign, Body, Const, Dim, Expr, KernelIR, Stmt, Type, Var
from tilelang.ir.lanes import arange, trailing
from tilelang.ir.names import names_in, take
from tilelang.ir.traversal import map_body, map_index, map_stmt, rebuilding

from .explicit_casts import apply
from .pad_dims import Padded, PaddedIR, power_of_two

INT = "int32"


@dataclass(frozen=True)
class Part:
    """Static dimensions that a reshape makes others of, or the axis of a tile, which it keeps."""

    before: tuple[Dim, ...]
    after: tuple[Dim, ...]


def moved_lanes(padded: PaddedIR) -> KernelIR:
    """The kernel without joins, and with each element in its lane where a value is reshaped."""
    names = names_in(padded.ir)

    def place(stmt: Stmt) -> Body:
        moving = _Moving(padded.dims, names)
        visit = rebuilding(moving.moved)
        made = map_stmt(stmt, visit, partial(map_index, fn=visit))
        return (*(Assign(v.name, e, stmt.loc, v.name) for e, v in moving.places.items()), made)

    return replace(padded.ir, body=map_body(padded.ir.body, place))


def taken_from(expr: Expr, dims: Mapping[str, Padded]) -> tuple[Expr, ...]:
    """The values that an expression takes lanes of."""
    match expr:
        case Apply("concat", args):
            return args
        case Apply("narrow", args):
            return args if expr.attr("start") or _lanes_differ(expr, dims) else ()
        case Apply("reshape", (value,)):
            moves = any(_moves(p, dims) for p in parts(value.type.shape, expr.type.shape, dims))
            return (value,) if moves else ()
        case _:
            return ()


# ---------------------------------------------------------------- what a reshape moves


def parts(
    before: Sequence[Dim], after: Sequence[Dim], dims: Mapping[str, Padded]
) -> Iterator[Part]:
    """The least runs of dimensions with as many elements before a reshape as after it.

    Without dimensions of one; where there are no elements, none of them moves.
    """
    left, right = ([d for d in side if d != 1] for side in (before, after))
    if not _elements(left, dims):
        return
    while left or right:
        a, b = left[:1], right[:1]
        del left[:1], right[:1]
        while (few := _elements(a, dims)) != (many := _elements(b, dims)):
            side, rest = (a, left) if few < many else (b, right)
            side.append(rest.pop(0))
        yield Part(tuple(a), tuple(b))


def _elements(shape: Sequence[Dim], dims: Mapping[str, Padded]) -> int:
    """How many elements there are, without the axes of tiles, which stand on both sides."""
    return prod(_wide(d, dims).size for d in shape)


def _wide(dim: Dim, dims: Mapping[str, Padded]) -> Padded:
    """Positions and lanes of a static dimension; an axis of a tile stays as it is."""
    if isinstance(dim, int):
        return Padded(dim, power_of_two(dim))
    return dims.get(dim, Padded(1, 1))


def _moves(part: Part, dims: Mapping[str, Padded]) -> bool:
    """Whether elements change lanes: not if all dimensions but the first fill theirs."""
    sides = [[_wide(d, dims) for d in side] for side in (part.before, part.after)]
    if sides[0] == sides[1]:
        return False
    lanes = [prod(d.lanes for d in side) for side in sides]
    return lanes[0] != lanes[1] or any(d.size != d.lanes for side in sides for d in side[1:])


# ---------------------------------------------------------------- rewriting


@dataclass(frozen=True)
class _Moving:
    """One statement while its lanes are moved; `places` are to stand before it, under names."""

    dims: Mapping[str, Padded]
    names: set[str]
    places: dict[Expr, Var] = field(default_factory=dict)

    def moved(self, expr: Expr) -> Expr:
        """The value with its elements in their lanes, of operands that have theirs."""
        match expr:
            case Apply("concat"):
                return self._joined(expr)
            case Apply("narrow"):
                return self._part(expr)
            case Apply("reshape", (value,)):
                moves = taken_from(expr, self.dims)
                return self._reshaped(expr) if moves else _shaped(value, expr.type.shape)
            case _:
                return expr

    def _reshaped(self, expr: Apply) -> Expr:
        """Runs of dimensions that move are one dimension each while their lanes are taken."""
        (value,) = expr.args
        found = list(parts(value.type.shape, expr.type.shape, self.dims))
        moves = [_moves(p, self.dims) for p in found]
        runs = [
            (self._lanes(p.before),) if m else p.after for p, m in zip(found, moves, strict=True)
        ]
        value = _shaped(value, tuple(d for run in runs for d in run))
        for n, part in enumerate(found):
            if moves[n]:
                axis = sum(map(len, runs[:n]))
                value = self._take(value, axis, self._lanes(part.after), self._places(part))
        return _shaped(value, expr.type.shape)

    def _lanes(self, shape: Sequence[Dim]) -> int:
        return prod(_wide(d, self.dims).lanes for d in shape)

    def _places(self, part: Part) -> Expr:
        """For each lane after the reshape, the lane before it that holds the same element."""
        before, after = ([_wide(d, self.dims) for d in side] for side in (part.before, part.after))
        lane = arange(self._lanes(part.after))
        element = _counted(lane, [d.lanes for d in after], [d.size for d in after])
        if any(d.size != d.lanes for d in after):
            element = _op("minimum", element, prod(d.size for d in after) - 1)
        return _counted(element, [d.size for d in before], [d.lanes for d in before])

    def _joined(self, expr: Apply) -> Expr:
        """The first value up to its end, the second from there on, and so on."""
        axis = expr.attr("axis")
        assert isinstance(axis, int)
        lane = arange(expr.type.shape[axis])
        sizes = [_wide(a.type.shape[axis], self.dims).size for a in expr.args]
        held = [(a, sum(sizes[:n]), sizes[n]) for n, a in enumerate(expr.args) if sizes[n]]
        if len(held) < 2:
            return held[0][0] if held else expr.args[0]
        made: Expr | None = None
        for value, begin, size in reversed(held):
            own = _op("maximum", _op("sub", lane, begin), 0) if begin else lane
            last = begin + size == sum(sizes) == self._lanes(expr.type.shape[axis : axis + 1])
            own = own if last else _op("minimum", own, size - 1)
            moved = self._take(value, axis, lane.type.shape[0], own)
            if made is None:
                made = moved
                continue
            below = apply("lt", (lane, _number(begin + size)), "bool", lane.type.shape)
            args = (trailing(below, moved.type.rank - 1 - axis), moved, made)
            made = apply("where", args, expr.type.dtype, expr.type.shape)
        assert made is not None
        return made

    def _part(self, expr: Apply) -> Expr:
        """Lanes from the first one of the part on; lanes behind its end have anything of it."""
        (value,), axis, start = expr.args, expr.attr("axis"), expr.attr("start")
        if not taken_from(expr, self.dims):
            return _shaped(value, expr.type.shape)
        dim = expr.type.shape[axis]
        places = arange(dim, start)
        if start + _wide(dim, self.dims).lanes > _wide(value.type.shape[axis], self.dims).lanes:
            places = _op("minimum", places, expr.attr("stop") - 1)
        return self._take(value, axis, dim, places)

    def _take(self, value: Expr, axis: int, dim: Dim, places: Expr) -> Expr:
        """The value whose lanes along one dimension are those at `places`."""
        shape = (*value.type.shape[:axis], dim, *value.type.shape[axis + 1 :])
        if value.type.shape[axis] == 1:
            return apply("broadcast", (value,), value.type.dtype, shape)
        if places not in self.places:
            self.places[places] = Var(take("lanes", self.names), places.type)
        spread = trailing(self.places[places], len(shape) - 1 - axis)
        index = apply("broadcast", (spread,), INT, shape)
        return apply("take", (value, index), value.type.dtype, shape, axis=axis)


def _lanes_differ(part: Apply, dims: Mapping[str, Padded]) -> bool:
    """Whether a part has fewer lanes than what it is of."""
    axis = part.attr("axis")
    sizes = (v.type.shape[axis] for v in (part, part.args[0]))
    return len({_wide(size, dims).lanes for size in sizes}) > 1


def _counted(number: Expr, wide: Sequence[int], by: Sequence[int]) -> Expr:
    """What a number in row-major order over `wide` is over `by`, dimension by dimension."""
    if wide[1:] == by[1:]:
        return number
    made: Expr | None = None
    for n, width in enumerate(wide):
        below, step = prod(wide[n + 1 :]), prod(by[n + 1 :])
        own = number if below == 1 else _op("quotient", number, below)
        own = own if n == 0 else _op("remainder", own, width)
        term = own if step == 1 else _op("mul", own, step)
        made = term if made is None else apply("add", (made, term), INT, number.type.shape)
    assert made is not None
    return made


def _op(op: str, value: Expr, number: int) -> Expr:
    """An op of positions and a number."""
    return apply(op, (value, _number(number)), INT, value.type.shape)


def _number(value: int) -> Const:
    return Const(value, Type((), INT))


def _shaped(value: Expr, shape: tuple[Dim, ...]) -> Expr:
    """The same lanes under another shape."""
    while isinstance(value, Apply) and value.op == "reshape":
        (value,) = value.args
    same = value.type.shape == shape
    return value if same else apply("reshape", (value,), value.type.dtype, shape)
