"""lives(body) -> Life...: how long the values of statements are needed, whatever their sizes.

p = exp(s - m)      until the product, and its statement computes p
acc = dot(p, v)     a product of p, which is stored for that
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilelang.ir import Apply, Dim, TileIndex, Type, Var
from tilelang.ir.traversal import dots
from tilelang.language.op import ELEMENTWISE, OPS

from .physical import (
    Bind,
    Diagonals,
    GroupSum,
    Head,
    Inner,
    InRange,
    Iota,
    LaneGather,
    Named,
    PExpr,
    PStmt,
    Read,
    Repeat,
    Roll,
    TakeRows,
    names_read,
    parts_of,
    physical_children,
)

SHAPES = frozenset(n for n, op in OPS.items() if op.cost == "free") | {"reshape"}


@dataclass(frozen=True)
class Mixed:
    """What a value is made of by operations on single elements alone.

    columns  of one number a row, which the lanes of its row share
    rows     how many times rows are read from memory
    """

    columns: tuple[PExpr, ...] = ()
    rows: int = 0

    def __add__(self, other: Mixed) -> Mixed:
        both = dict.fromkeys((*self.columns, *other.columns))
        return Mixed((*both,), self.rows + other.rows)


@dataclass(frozen=True)
class Life:
    """A statement.

    held      its value, where that is kept longer than to the next statement, and the place of
              the last statement that reads it
    computed  what it computes, masks and products left out
    outer     what of that has no operand of its own shape but positions: rows with columns
    spread    values whose rows of lanes a reshape cuts into short ones, each with lanes of its own
    ranked    values whose greatest or least is looked for, and whether along the lanes
    products  matrix products
    sums      of the rows of many groups
    mixed     what its value is made of, those of statements before it that it reads included
    inside    the statements of a loop
    """

    stmt: PStmt
    held: tuple[Type, int] | None
    computed: tuple[Type, ...]
    outer: tuple[Type, ...]
    spread: tuple[Type, ...]
    ranked: tuple[tuple[Type, bool], ...]
    products: tuple[Apply, ...]
    sums: tuple[GroupSum, ...]
    mixed: Mixed
    inside: tuple[Life, ...]


def lives(body: tuple[PStmt, ...]) -> tuple[Life, ...]:
    """Every statement of a body; a value that the next one alone uses goes to it in registers."""
    last = {name: place for place, stmt in enumerate(body) for name in names_read(stmt)}
    uses = Counter(e.name for stmt in body for e in parts_of(stmt) if isinstance(e, Var))
    found, known = [], dict[str, Mixed]()
    for place, stmt in enumerate(body):
        held = None
        if isinstance(stmt, Bind):
            end = last.get(stmt.name, -1)
            if uses[stmt.name] > 1 or end > place + 1:
                held = stmt.value.type, max(end, place + 1)
        found.append(life := _life(stmt, held, known))
        if isinstance(stmt, Bind):
            known[stmt.name] = life.mixed
    return tuple(found)


def products(stmt: PStmt) -> Iterator[Apply]:
    """The matrix products of a statement, those of loops inside too."""
    return dots(parts_of(stmt))


def _life(stmt: PStmt, held: tuple[Type, int] | None, known: Mapping[str, Mixed]) -> Life:
    if isinstance(stmt, Inner):
        return Life(stmt, held, (), (), (), (), (), (), Mixed(), lives(stmt.body))
    parts = tuple(parts_of(stmt))
    applied = [e for e in parts if isinstance(e, Apply)]
    computed = [e for e in applied if e.op not in {*SHAPES, "dot"} and e.type.dtype != "bool"]
    outer = tuple(e.type for e in computed if e.op in ELEMENTWISE and _is_outer(e))
    spread = tuple(e.type for e in applied if _is_spread(e))
    ranked = tuple(_ranked(e) for e in applied if e.op in ("argmax", "argmin"))
    sums = tuple(e for e in parts if isinstance(e, GroupSum))
    tables = (e.type for e in parts if isinstance(e, Diagonals | LaneGather))
    types, own = (*(e.type for e in computed), *tables), tuple(products(stmt))
    return Life(stmt, held, types, outer, spread, ranked, own, sums, _mixed(stmt.value, known), ())


def _ranked(expr: Apply) -> tuple[Type, bool]:
    """What is looked through, as narrow as it was, and whether along its lanes."""
    (value,) = expr.args
    last = value.type.rank - 1
    while isinstance(value, Apply) and value.op == "cast":
        (value,) = value.args
    return value.type, expr.attr("axis") == last


def _mixed(expr: PExpr, known: Mapping[str, Mixed]) -> Mixed:
    match expr:
        case Var(name):
            return known.get(name, Mixed())
        case Apply("where", (_, value, _)):  # masks are made of positions, the rest waits for them
            return _mixed(value, known)
        case Apply(op, args, Type(shape)) if op in ELEMENTWISE and len(shape) > 1:
            columns = tuple(a for a in args if _shape(a)[-1:] == (1,) != shape[-1:])
            whole = (_mixed(a, known) for a in args if _shape(a) == shape)
            return sum(whole, Mixed(columns))
        case Read():
            return Mixed((), 1)
        case _:  # products come when they come
            return Mixed()


def _is_outer(expr: PExpr) -> bool:
    """Whether nothing of that shape is read: it is made of rows and columns, or is positions."""
    match expr:
        case Apply(op, (arg,)) if op in SHAPES:
            return sum(d != 1 for d in _shape(arg)) < 2 or _is_outer(arg)
        case Apply(op, args) if op in ELEMENTWISE:
            shape = expr.type.shape
            return len(shape) > 1 and all(_is_outer(a) for a in args if _shape(a) == shape)
        case _:
            return isinstance(expr, TileIndex | InRange | Iota)


def _shape(expr: PExpr) -> tuple[Dim, ...]:
    return expr.type.shape


def _is_spread(expr: Apply) -> bool:
    """Whether it cuts the last dimension: (t, 300) -> (t, 150, 2)."""
    if expr.op != "reshape" or expr.type.rank < 3:
        return False
    before, last = expr.args[0].type.shape[-1:], expr.type.shape[-1]
    return isinstance(last, int) and all(isinstance(d, str) or last < d for d in before)


def is_costly(expr: PExpr) -> bool:
    """Whether computing the expression again costs more than keeping it."""
    match expr:
        case TakeRows() | GroupSum() | Diagonals() | LaneGather():
            return True
        case Apply(op) if op in OPS and OPS[op].cost == "costly":
            return True
        case Apply() | Roll() | Head() | Repeat() | Named():
            return any(map(is_costly, physical_children(expr)))
        case _:
            return False
