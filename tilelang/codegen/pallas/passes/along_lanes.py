"""Along lanes: tiles of vectors stay in rows where few numbers are beside each of theirs.

    sum(x[t][:, None] > b[:][None, :], 1)   ->   sum(x[t][None, :] > b[:][:, None], 0)

Registers have eight rows of 128 lanes, and vectors lie along the lanes.  As a column a tile has to
be turned first, and each of its numbers then fills a row of registers with the few beside it.  The
other way round nothing of the tile is turned, and the few fill rows.  What is made of vectors alone
can be made in either order, and nobody sees in which if only sums over it, or its transposition,
are used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace

from tilelang.ir import Apply, Assign, At, Body, Expr, KernelIR, Load, Stmt, TileIndex, Var, walk
from tilelang.ir.lanes import expanded
from tilelang.ir.traversal import definitions, every_expr, map_body, map_children, map_stmt
from tilelang.language.op import ELEMENTWISE, REDUCTIONS, kind_of

MOST = 2048  # beside each number of a tile: with 4096 both orders take as long on a v6e


def along_lanes(ir: KernelIR) -> KernelIR:
    """The kernel in which such values have their dimensions in the other order."""
    values = definitions(ir.body)
    names = frozenset(name for name, value in values.items() if value.type.rank == 2)
    while True:
        turning = _Turning(values, names)
        body = turning.body(ir.body)
        if not (stay := {e.name for e in _names(body) if turning.lost(e)}):
            return replace(ir, body=body)
        names -= stay


def _names(body: Body) -> Iterator[Var]:
    return (e for e in every_expr(body) if isinstance(e, Var))


@dataclass(frozen=True)
class _Turning:
    """Rewrites sums over values of two dimensions; `names` are those that may be turned, too."""

    values: Mapping[str, Expr]
    names: Set[str]
    done: dict[int, tuple[Expr, Expr]] = field(default_factory=dict)
    other: dict[int, tuple[Expr, Expr | None]] = field(default_factory=dict)
    lie: dict[int, tuple[Expr, frozenset[tuple[str, bool]]]] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)

    def body(self, body: Body) -> Body:
        """The statements, names that are read the other way round made so, too.

        What names stand for is looked at in the order in which they are made: chains are long.
        """
        for value in self.values.values():
            self.lies(value)
            self._better(value)
        body = map_body(body, lambda stmt: (map_stmt(stmt, self.visit),))
        left = [e for e in _names(body) if self._is_turned(e)]
        while left:
            if (name := left.pop().name) not in self.read:
                self.read.add(name)
                parts = walk(self._made(name))
                left += [e for e in parts if isinstance(e, Var) and self._is_turned(e)]
        return map_body(body, lambda stmt: (self._assigned(stmt),))

    def lost(self, name: Var) -> bool:
        """Whether a name that is read the other way round is also read as it was."""
        return name.name in self.read and not self._is_turned(name)

    def _is_turned(self, name: Var) -> bool:
        return name.name in self.names and name.type != self.values[name.name].type

    def _made(self, name: str) -> Expr:
        made = self.turned(self.values[name])
        assert made is not None
        return made

    def _assigned(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Assign) and stmt.name in self.read:
            return replace(stmt, value=self._made(stmt.name))
        return stmt

    def visit(self, expr: Expr) -> Expr:
        """The expression with such sums over the other dimension."""
        if id(expr) not in self.done:
            found = self._used(expr)
            made = map_children(expr, self.visit) if found is None else found
            self.done[id(expr)] = expr, made
        return self.done[id(expr)][1]

    def _used(self, expr: Expr) -> Expr | None:
        """A sum, or a transposition, of a value that is better the other way round."""
        match expr:
            case Apply("transpose", (arg,)):
                return self._better(arg)
            case Apply(op, (arg,)) if op in REDUCTIONS:
                value = self._better(arg)
                return None if value is None else _over_other(expr, value)
            case _:
                return None

    def _better(self, value: Expr) -> Expr | None:
        """The value the other way round, if a tile would be a column and lies along the lanes."""
        match value.type.shape:
            case (str(tile), int(n)) if 1 < n <= MOST:
                rows = {row for t, row in self.lies(value) if t == tile}
                return self.turned(value) if rows == {True} else None
            case _:
                return None

    def turned(self, expr: Expr) -> Expr | None:
        """The value with its two dimensions in the other order; None if it has only this one."""
        if id(expr) not in self.other:
            self.other[id(expr)] = expr, self._turned(expr)
        return self.other[id(expr)][1]

    def _turned(self, expr: Expr) -> Expr | None:
        kind = replace(expr.type, shape=expr.type.shape[::-1])
        match expr:
            case Var(name) if name in self.names and self.turned(self.values[name]) is not None:
                return replace(expr, type=kind)
            case Apply("expand_dims", (vector,)) if vector.type.rank == 1:
                return expanded(self.visit(vector), 1 - int(expr.attr("axis")))
            case Apply("full" | "broadcast", args) if all(a.type.rank == 0 for a in args):
                return replace(expr, args=tuple(map(self.visit, args)), type=kind)
            case Apply(op, (arg,)) if op in REDUCTIONS and arg.type.rank == 2:
                value = self.turned(arg)
                return None if value is None else _over_other(expr, value)
            case Apply(op, args) if op == "broadcast" or op in ELEMENTWISE:
                made = tuple(map(self._operand, args))
                found = tuple(m for m in made if m is not None)
                return replace(expr, args=found, type=kind) if len(found) == len(args) else None
            case _:
                return None

    def _operand(self, arg: Expr) -> Expr | None:
        """An operand of what has two dimensions: a vector is along the last one."""
        if arg.type.rank == 2:
            return self.turned(arg)
        return expanded(self.visit(arg), 1) if arg.type.rank else self.visit(arg)

    def lies(self, value: Expr) -> frozenset[tuple[str, bool]]:
        """(tile, whether it lies along the lanes) of the vectors that a value is made of."""
        if id(value) not in self.lie:
            dims = value.type.shape
            found = frozenset(each for each in self._lies(value) if each[0] in dims)
            self.lie[id(value)] = value, found
        return self.lie[id(value)][1]

    def _lies(self, value: Expr) -> Iterable[tuple[str, bool]]:
        tiles = [d for d in value.type.shape if isinstance(d, str)]
        match value:
            case Var(name) if name in self.values:
                return self.lies(self.values[name])
            case Load(index=index) if value.type.rank == 1:
                return [(t, not isinstance(index[-1], At)) for t in tiles]
            case Apply(op, (arg,)) if op in REDUCTIONS and arg.type.rank == 2:
                over = 1 if self._better(arg) is not None else 0
                return [(t, value.attr("axis") == over) for t in tiles]
            case Apply(op, args) if kind_of(op) in ("elementwise", "shape", "create"):
                return [each for arg in args for each in self.lies(arg)]
            case TileIndex():  # made in either layout
                return ()
            case _:
                return [(t, False) for t in tiles]


def _over_other(expr: Apply, value: Expr) -> Expr:
    """The reduction, over the other dimension of the value that is turned."""
    attrs = {**dict(expr.attrs), "axis": 1 - int(expr.attr("axis"))}
    kind = replace(expr.type, shape=expr.type.shape[::-1])  # of one dimension: the same
    return replace(expr, args=(value,), type=kind, attrs=tuple(attrs.items()))
