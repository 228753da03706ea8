"""rotations(body) -> {id(statement): values}: what is moved along the lanes so that lanes meet.

    a, b = x[t, :64], x[t, 64:]    as it was read, b begins in lane 64
    y[t, :64] = a * c - b * s      b * s goes to lane 0, where a * c is
    y[t, 64:] = b * c + a * s      a * s goes to lane 64; and so did c and s, once for both uses

libtpu leaves a value in the lanes that it was read from.  An operation takes those of the first
operand that has any, and moves the others there; a store moves to those of its block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from tilelang.codegen.pallas.plan.lives import SHAPES
from tilelang.codegen.pallas.plan.physical import (
    Bind,
    Keep,
    Part,
    PExpr,
    PStmt,
    Read,
    Select,
    Write,
    flat,
    physical_children,
)
from tilelang.ir import Apply, Const, Type, Var
from tilelang.language.op import REDUCTIONS

LANES = 128
STAYS = frozenset({"transpose", "reshape", "dot"})  # their results begin in lane 0, as operands do


@dataclass(frozen=True)
class Rotated:
    """A value whose registers are moved along the lanes, from `lane` or to it."""

    type: Type
    lane: int


@dataclass
class _Begins:
    """Where the values of a body begin, and what was found to be moved, by statement.

    makers  the statement that made a name: what others move is moved there, once
    moved   names and reads, and the lanes that they were moved to
    """

    found: defaultdict[int, list[Rotated]] = field(default_factory=lambda: defaultdict(list))
    begins: dict[str, int | None] = field(default_factory=dict)
    makers: dict[str, int] = field(default_factory=dict)
    moved: set[tuple[Var | Read, int]] = field(default_factory=set)

    def meet(self, value: PExpr, lane: int, at: int) -> None:
        """Moves what a statement evaluates to a lane."""
        self._move(value, self.begin(value, at), lane, at)

    def _move(self, value: PExpr, begin: int | None, lane: int, at: int) -> None:
        """The same for what begins in a lane, unless it is there or in all lanes."""
        if begin is None or begin == lane:
            return
        if isinstance(value, Var | Read):
            if (value, lane) in self.moved:
                return
            self.moved.add((value, lane))
            at = self.makers.get(value.name, at) if isinstance(value, Var) else at
        self.found[at].append(Rotated(_type(value), max(begin, lane)))

    def begin(self, value: PExpr, at: int) -> int | None:
        """The lane that a value begins in, its operands moved; None if any of them will do."""
        lane = self._first_lane(value, at)
        return lane if _type(value).shape else None  # a number is in no lane

    def _first_lane(self, value: PExpr, at: int) -> int | None:
        match value:
            case Const():
                return None
            case Var(name):
                return self.begins.get(name, 0)
            case Read(_, select) if not value.turned:
                return None if _narrow(value.type) else _lane(select)
            case Apply(op, args) if op in STAYS:
                for arg in args:
                    self.meet(arg, 0, at)
                return 0
            case Apply("narrow", (arg,)) if _along_lanes(value):
                begin = self.begin(arg, at)
                return None if begin is None else (begin + int(value.attr("start"))) % LANES
            case Apply("concat", args) if _along_lanes(value):
                return self._joined(args, at)
            case Apply(op, (arg,)) if op in REDUCTIONS and _over_lanes(value):
                self.meet(arg, 0, at)
                return None
            case Apply(op, args) if op in SHAPES:
                begins = [self.begin(arg, at) for arg in args]
                kinds = (value.type, *map(_type, args))
                return None if any(map(_narrow, kinds)) else next(iter(begins), None)
            case Apply(_, args):
                return self._together(args, at)
            case _:
                for child in physical_children(value):
                    self.meet(child, 0, at)
                return 0

    def _joined(self, args: tuple[PExpr, ...], at: int) -> int:
        place = 0
        for arg in args:
            self.meet(arg, place % LANES, at)
            length = _type(arg).shape[-1]
            place += length if isinstance(length, int) else 0  # tiles are whole registers
        return 0

    def _together(self, args: tuple[PExpr, ...], at: int) -> int | None:
        begins = [self.begin(arg, at) for arg in args]
        lane = next((b for b in begins if b is not None), None)
        for arg, begin in zip(args, begins, strict=True):
            self._move(arg, begin, lane or 0, at)
        return lane


def rotations(body: Iterable[PStmt]) -> dict[int, tuple[Rotated, ...]]:
    """Every statement, loops inside included; what two uses need is moved once."""
    lanes, every = _Begins(), tuple(flat(body))
    for stmt in every:
        match stmt:
            case Bind(name, value):
                lanes.begins[name] = lanes.begin(value, id(stmt))
                lanes.makers[name] = id(stmt)
            case Write(_, select, value) if not _narrow(_type(value)):
                lanes.meet(value, 0 if stmt.turned else _lane(select), id(stmt))
            case Keep(_, value):
                lanes.meet(value, 0, id(stmt))
            case _:
                pass
    return {id(stmt): tuple(lanes.found.get(id(stmt), ())) for stmt in every}


def _lane(select: tuple[Select, ...]) -> int:
    last = select[-1] if select else None
    return last.start % LANES if isinstance(last, Part) else 0


def _type(value: PExpr) -> Type:
    found: Type = value.type
    return found


def _along_lanes(expr: Apply) -> bool:
    return expr.attr("axis") in (-1, expr.type.rank - 1)


def _over_lanes(expr: Apply) -> bool:
    return expr.attr("axis") in (-1, _type(expr.args[0]).rank - 1)


def _narrow(kind: Type) -> bool:
    """Whether it has one number a row, which is spread over the lanes, or is a number."""
    return not kind.shape or kind.shape[-1] == 1
