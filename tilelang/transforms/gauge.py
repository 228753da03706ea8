"""moves(graph, root, seeds) -> how a value moves when other values are shifted or scaled.

An online softmax keeps a running maximum m only to keep numbers small: its sums are scaled by
exp(m_old - m_new) whenever it moves, and its result is the same for any m.  Such an m is a *gauge*:
nothing passes through it, and every sum may be written with the last m from the start.  That is
proved here, by following a shift m -> m + c through every operation:

    m  Shift(1)     exp(s - m)  Scale(-1)     log(total)  Shift(-1)     acc / total  Scale(0): free

What keeps such a total from zero moves as the total, and whether it is zero does not move: where it
could say anything else the maximum depends on no score (see `softmax`).

Of derivatives that is asked once more with all that is detached held: exp(s - detach(m)) is scaled
when m moves, and its derivative by m is 0.

`by` counts by name, since the old and the new maximum of a step move by different amounts.  Every
element of m may move by an amount of its own: `dims` are those, from the last one, in which the
amounts differ, and what is folded over one of them does not move in this way.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, assert_never

from ..ir import Apply, Const, Expr, Load, Var
from ..language.op import SAME
from ..passes.separate_joins import followed
from .graph import Graph, Over, Scan, Term, number, parts_of
from .softmax import kept_from_zero, seen

Dims = frozenset[int]


@dataclass(frozen=True)
class Move:
    """`shift`: it grows by what `by` says; `scale`: it is multiplied by exp of that.

    `any` is what fits every move: 0 is scaled by anything, and -inf is shifted by anything.
    """

    how: Literal["shift", "scale", "any shift", "any scale"]
    by: tuple[tuple[str, float], ...] = ()

    @property
    def free(self) -> bool:
        """It stays as it is."""
        return not self.by


STAYS = Move("scale")
GIVEN = SAME | {"cast", "full"}
BASE = {"exp": 1.0, "exp2": math.log(2)}


@dataclass(frozen=True)
class Seeds:
    """Values that move, each by an amount of its own in every iteration of `axes`.

    held  what is detached stays where it was: so do derivatives see it
    """

    moves: Mapping[str, Move]
    axes: Collection[str]
    held: bool = False


def shift_of(value: Var, name: str) -> Mapping[str, Move]:
    """A value that is shifted by `name`."""
    return {value.name: Move("shift", ((name, 1.0),))}


def moves(graph: Graph, root: Expr, seeds: Seeds) -> Move | None:
    """How `root` moves with the values in `seeds`; None if that is neither a shift nor a scale."""
    found: dict[str, Move | None] = dict(seeds.moves)
    dims: dict[str, Dims] = {}

    def of(expr: Expr) -> Move | None:
        if isinstance(expr, Const):
            return _of_number(expr.value)
        return found.get(expr.name, STAYS) if isinstance(expr, Var) else STAYS

    def varying(expr: Expr) -> Dims:
        if not isinstance(expr, Var) or (expr.name not in seeds.moves and of(expr) == STAYS):
            return frozenset()
        own = frozenset(d - expr.type.rank for d, n in enumerate(expr.type.shape) if n != 1)
        return dims.get(expr.name, own)

    for name, term in graph.reached((root,), until=frozenset(seeds.moves)).items():
        if name in found:
            continue
        if seeds.held and isinstance(term, Apply) and term.op == "detach":
            found[name] = STAYS
            continue
        parts = parts_of(term)
        left = _carried_over(term, [varying(p) for p in parts])
        folded = left is None or (isinstance(term, Over | Scan) and term.axis in seeds.axes)
        own = of(kept) if (kept := _total_of(graph, term, seeds)) is not None else None
        made = own or _moved(graph, term, [of(p) for p in parts])
        found[name] = None if folded and (made is None or not made.free) else made
        dims[name] = left or frozenset()
    return of(root)


def _total_of(graph: Graph, term: Term, seeds: Seeds) -> Expr | None:
    """What moves as a value does that keeps a total from zero, or asks whether it is."""
    if not isinstance(term, Apply):
        return None
    kept, asked = kept_from_zero(graph, term), seen(graph, term)
    if kept is not None and kept.m.name in seeds.moves:
        return kept.total
    if asked is not None and asked.softmax.m.name in seeds.moves:
        return Const(1.0, term.type)  # it stays
    return None


def _carried_over(term: Term, dims: list[Dims]) -> Dims | None:
    """The dimensions in which a result moves differently; None if such a one was folded."""
    every = frozenset[int]().union(*dims)
    if not every or not isinstance(term, Apply):
        return every
    left, met = set[int](), set[tuple[int, int]]()
    for dim, size in enumerate(term.type.shape):
        places = followed(term, dim) if size != 1 else ()
        if places is None or term.op in ("concat", "narrow"):
            return None
        there = ((n, p - term.args[n].type.rank) for n, p in enumerate(places) if p is not None)
        found = {(n, place) for n, place in there if place in dims[n]}
        left |= {dim - term.type.rank for _ in found}
        met |= found
    whole = met == {(n, place) for n, moving in enumerate(dims) for place in moving}
    return frozenset(left) if whole else None


def _of_number(value: float) -> Move:
    if value == 0:
        return Move("any scale")
    return Move("any shift") if math.isinf(value) else STAYS


def _moved(graph: Graph, term: Term, parts: list[Move | None]) -> Move | None:
    if isinstance(term, Apply) and term.op == "where" and parts[0] is None:
        parts = [STAYS, *parts[1:]] if _asks_if_empty(graph, term.args[0]) else parts
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return None
    if isinstance(term, Apply) and (constant := number(term)) is not None:
        return _of_number(constant)
    if all(p.free and p.how in ("shift", "scale") for p in known):
        return STAYS
    made = _of_parts(graph, term, known)
    # numbers fit moves that they do not make: what is loaded at [0] stays, as all that stays gives
    return STAYS if made is None and all(p.free for p in known) else made


def _of_parts(graph: Graph, term: Term, known: list[Move]) -> Move | None:
    match term:
        case Load() | Scan():
            return None
        case Over(_, _, "sum"):
            return known[0] if "scale" in known[0].how else None
        case Over():
            return known[0]
        case Apply():
            return _applied(graph, term, known)
        case _:
            assert_never(term)


def _applied(graph: Graph, term: Apply, parts: list[Move]) -> Move | None:
    match term.op:
        case "add" | "sub":
            return _added(parts[0], parts[1], -1 if term.op == "sub" else 1)
        case "mul" | "div":
            return _multiplied(parts[0], parts[1], -1 if term.op == "div" else 1)
        case "dot":
            return _multiplied(parts[0], parts[1], 1)
        case "neg":
            return _times(parts[0], -1) if "shift" in parts[0].how else parts[0]
        case "exp" | "exp2":
            return _through_exp(parts[0], BASE[term.op])
        case "log" | "log2":
            back = _times(parts[0], 1 / BASE[f"exp{term.op[3:]}"])
            return Move("shift", back.by) if back.how == "scale" else None
        case "sum":
            return parts[0] if "scale" in parts[0].how else None
        case "maximum" | "minimum" | "concat":
            return _joined(parts)
        case "where":
            return _selected(graph, term, parts)
        case "eq" | "ne" | "lt" | "le" | "gt" | "ge":
            return STAYS if _joined(parts) is not None else None
        case "max" | "min" | "relu" | "abs":
            return parts[0] if term.op in ("max", "min") or "scale" in parts[0].how else None
        case op if op in GIVEN:
            return parts[0] if term.type.dtype.startswith(("float", "bfloat")) else None
        case _:
            return None


def _selected(graph: Graph, term: Apply, parts: list[Move]) -> Move | None:
    """Where m is -inf nothing was seen yet, and all sums are 0: what stands there does not count.

    where(m == -inf, 0, m) moves as m
    """
    if not parts[0].free:
        return None
    if _asks_if_empty(graph, term.args[0]) and isinstance(term.args[1], Const):
        return parts[2]
    return _joined(parts[1:])


def _asks_if_empty(graph: Graph, condition: Expr) -> bool:
    """m == -inf"""
    term = graph.term(condition)
    while isinstance(term, Apply) and term.op == "expand_dims":
        term = graph.term(term.args[0])
    return isinstance(term, Apply) and term.op == "eq" and Const(-math.inf, term.args[1].type) in (
        Const(a.value, a.type) for a in term.args if isinstance(a, Const)
    )  # fmt: skip


def _by(move: Move) -> dict[str, float]:
    return dict(move.by)


def _sum(one: Move, other: Move, sign: float) -> tuple[tuple[str, float], ...]:
    total = _by(one)
    for name, count in other.by:
        total[name] = total.get(name, 0) + sign * count
    return tuple(sorted((name, count) for name, count in total.items() if count))


def _times(move: Move, factor: float) -> Move:
    return Move(move.how, tuple((name, factor * count) for name, count in move.by))


def _added(one: Move, other: Move, sign: float) -> Move | None:
    """Shifts add up; what is scaled alike is scaled as a whole."""
    if "any shift" in (one.how, other.how):
        return Move("any shift")
    if _shifts(one) and _shifts(other):
        return Move("shift", _sum(one, other, sign))
    return _joined([one, other])


def _shifts(move: Move) -> bool:
    return move.how == "shift" or (move.free and move.how in ("scale", "any scale"))


def _multiplied(one: Move, other: Move, sign: float) -> Move | None:
    if "any scale" in (one.how, other.how):
        return Move("any scale")
    if all(m.how == "scale" or (m.free and m.how == "shift") for m in (one, other)):
        return Move("scale", _sum(one, other, sign))
    return None


def _through_exp(move: Move, base: float) -> Move | None:
    if move.how == "any shift":
        return Move("any scale")
    return Move("scale", _times(move, base).by) if move.how == "shift" or move.free else None


def _joined(parts: list[Move]) -> Move | None:
    """The move that all of them make."""
    kinds = {p for p in parts if p.how in ("shift", "scale")}
    wild = {p.how for p in parts if p not in kinds}
    if not kinds:
        return parts[0] if len(wild) == 1 else STAYS
    if len(kinds) > 1:
        return STAYS if all(k.free for k in kinds) and not wild else None
    (kind,) = kinds
    allowed = {f"any {kind.how}"} | ({"any shift", "any scale"} if kind.free else set())
    return kind if wild <= allowed else None
