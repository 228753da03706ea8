"""Index tiles: a loop over indices of rows -> one over tiles of them, all rows of a tile at once.

    for g in grid(G):                            for g in tile(G):
        rows = x[n, g, :]                            rows = x[n, g, :]          [:] -> [g, :]
        mean = rows.sum(0) / C           ->          mean = rows.sum(1) / C     []  -> [g]
        y[n, g, :] = rows - mean                     y[n, g, :] = rows - mean[:, None]

Vector registers have 8 rows and more, and one row is taken out of a block by reading all of them.
Each value gets a dimension where the array that it comes from has it: between its own, of which
`behind` says how many come after.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import assert_never

from tilelang import ir
from tilelang.errors import Loc
from tilelang.ir import Apply, Expr, Type
from tilelang.ir.lanes import expanded, squeezed
from tilelang.ir.traversal import definitions, inlined, loads, picked
from tilelang.language.op import ELEMENTWISE, REDUCTIONS
from tilelang.schedule.problem import Problem

from .blocked_groups import Refuse, check_range, refuse

WHY = "a step has all rows of its tiles at once"
WHICH = (
    "only an hl.grid loop from 0 to a number that shapes give, whose iterations compute alike "
    "with rows of their own, can have one"
)


def index_tiles(problem: Problem, name: str, block: int | None = None) -> Problem:
    """The kernel with tiles of an `hl.grid` loop, of so many indices or as many as a plan chooses.

    Raises Refused where that loop does more than to compute with rows at its index.
    """
    axis, kernel = problem.axis(name), problem.ir
    no = partial(refuse, axis, WHICH)
    check_range(problem, axis, no)
    loop = next(s for s in ir.every_loop(kernel.body) if s.axis == name)
    run = RowTiles(problem, name, no)
    run.place(loop.body)
    inside = run.body(loop.body)

    def change(stmt: ir.Stmt) -> ir.Body:
        mine = isinstance(stmt, ir.Loop) and stmt.axis == name
        return (replace(loop, body=inside),) if mine else (stmt,)

    made = replace(axis, kind="tile", block=name if block is None else block)
    axes = tuple(made if a.name == name else a for a in kernel.axes)
    facts = tuple(
        replace(f, why=f"{f.why}; {WHY}", limit=None) if f.name == name else f
        for f in problem.facts.axes
    )
    body = ir.map_body(kernel.body, change)
    return Problem(replace(kernel, axes=axes, body=body), replace(problem.facts, axes=facts))


def picks_rows(problem: Problem, name: str, moved: bool = False) -> bool:
    """Whether an `hl.grid` loop picks rows of arrays: positions of the last dimension but one,
    as they are or looked up; `moved`: or computed, such as those from the last one on.
    """
    made, index = definitions(problem.ir.body), ir.GridIndex(name)

    def picks(entry: ir.Index) -> bool:
        if not isinstance(entry, ir.At):
            return False
        place = inlined(entry.expr, made)
        read = moved or any(True for _ in loads(place))
        return place == index or (read and any(e == index for e in ir.walk(place)))

    return any(
        len(site.index) > 1 and picks(site.index[-2]) and not isinstance(site.index[-1], ir.At)
        for site in problem.references
    )


@dataclass(frozen=True)
class RowTiles:
    """One run over the body of the loop.

    names  of values that every index has one of: how many of their dimensions come behind its own;
           None where that is not known yet
    types  theirs, as they are now
    """

    problem: Problem
    axis: str
    no: Refuse
    names: dict[str, int | None] = field(default_factory=dict)
    types: dict[str, Type] = field(default_factory=dict)

    def differs(self, expr: Expr) -> bool:
        """Whether a value is another one for every index."""
        return any(
            (isinstance(e, ir.GridIndex) and e.axis == self.axis)
            or (isinstance(e, ir.Var) and e.name in self.names)
            for e in ir.walk(expr)
        )

    # ------------------------------------------------------------ where the new dimension is

    def place(self, body: ir.Body) -> None:
        """Finds where every value has it; what a loop carries has it where its next value does."""
        self._settle(body)
        for carry in (c for loop in ir.every_loop(body) for c in loop.carries):
            if self.names[carry.name] is None:  # nothing says where: rows are
                self.names[carry.name] = min(carry.init.type.rank, 1)
                self._settle(body)

    def _settle(self, body: ir.Body) -> None:
        before = None
        while before != self.names:
            before = dict(self.names)
            self._place(body)

    def _place(self, body: ir.Body) -> None:
        for stmt in body:
            match stmt:
                case ir.Assign(name, value) if self.differs(value):
                    self.names[name] = self.behind(value)
                case ir.Loop():
                    for c in stmt.carries:
                        self.names.setdefault(c.name, None)
                    self._place(stmt.body)
                    for c in stmt.carries:
                        found = (self.names[c.name], self.behind(c.next), self.behind(c.init))
                        at = next((f for f in found if f is not None), None)
                        self.names[c.name] = self.names[c.out] = at
                case _:
                    pass

    def behind(self, expr: Expr) -> int | None:
        """How many dimensions of a value come behind the new one; None: none, or not known."""
        if not self.differs(expr):
            return None
        if not expr.type.shape:
            return 0
        match expr:
            case ir.Var(name):
                return self.names[name]
            case ir.Load():
                return self.entries_behind(expr.index)
            case Apply(_, (value,)) if _moves(expr):
                at = self.behind(value)
                if at is None:
                    return None
                own, new = int(expr.attr("axis")), value.type.rank - at
                return at + (own > new) if expr.op == "expand_dims" else at - (own >= new)
            case Apply(_, args):
                whole = sorted(args, key=lambda a: (a.type.shape != expr.type.shape, -a.type.rank))
                known = ((a.type.rank, at) for a in whole if (at := self.behind(a)) is not None)
                for rank, at in known:
                    # in front of all its own it may be in front of fewer of the result's
                    return max(at, 1) if at == rank < expr.type.rank else at
                return None
            case _:
                return None

    def entries_behind(self, index: tuple[ir.Index, ...]) -> int | None:
        place = next((n for n, e in enumerate(index) if self.is_own(e) or self.looks_up(e)), None)
        return None if place is None else _rank(index[place + 1 :])

    def is_own(self, entry: ir.Index) -> bool:
        return entry == ir.At(ir.GridIndex(self.axis))

    def looks_up(self, entry: ir.Index) -> bool:
        """Whether it is a number that was read for the index, by name or not."""
        return isinstance(entry, ir.At) and any(
            isinstance(e, ir.Load | ir.Var) and self.differs(e) for e in ir.walk(entry.expr)
        )

    # ------------------------------------------------------------ statements

    def body(self, body: ir.Body) -> ir.Body:
        return tuple(self.statement(s) for s in body)

    def statement(self, stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.Assign():
                value = self.lifted(stmt.value, stmt.loc)
                if stmt.name in self.names:
                    self.types[stmt.name] = value.type
                return replace(stmt, value=value)
            case ir.Store():
                return self.store(stmt)
            case ir.Loop():
                if self.axis in self.problem.fact(stmt.axis).depends:
                    user = self.problem.axis(stmt.axis).user
                    self.no(f"a loop in it over {user} has a range of its own", stmt.loc)
                for c in stmt.carries:
                    kind = self.type(c.init.type, self.names[c.name] or 0)
                    self.types[c.name] = self.types[c.out] = kind
                body = self.body(stmt.body)
                return replace(stmt, body=body, carries=tuple(map(self.carry, stmt.carries)))
            case _:
                assert_never(stmt)

    def carry(self, carry: ir.Carry) -> ir.Carry:
        at, kind = self.names[carry.name] or 0, self.types[carry.name]
        init, after = (self.whole(e, at, kind, carry.loc) for e in (carry.init, carry.next))
        return replace(carry, init=init, next=after)

    def store(self, store: ir.Store) -> ir.Store:
        if store.mask is not None or store.combine is not None:
            self.no("a store in it has a mask, or adds to what is there", store.loc)
        index, at = self.index(store.tensor, store.index, store.loc)
        stored = Type(picked(store.index), store.value.type.dtype)
        kind = self.type(stored, at)
        return replace(store, index=index, value=self.whole(store.value, at, kind, store.loc))

    def whole(self, expr: Expr, at: int, kind: Type, loc: Loc | None) -> Expr:
        """A value with all dimensions of a type, of which so many come behind the new one."""
        value = self.met(expr, at, loc)
        if value.type.shape == kind.shape:
            return value
        if isinstance(value, Apply) and value.op == "full" and not value.args:
            return replace(value, type=kind)
        return Apply("broadcast", (value,), kind)

    # ------------------------------------------------------------ values

    def type(self, kind: Type, at: int) -> Type:
        shape, place = kind.shape, kind.rank - at
        return replace(kind, shape=(*shape[:place], self.axis, *shape[place:]))

    def index(
        self, tensor: str, index: tuple[ir.Index, ...], loc: Loc | None
    ) -> tuple[tuple[ir.Index, ...], int]:
        """The same place with all indices of a tile, and how many dimensions come behind them."""
        at = self.entries_behind(index)
        made = [self.entry(entry, loc) for entry in index]
        left = [entry for entry, old in zip(made, index, strict=True) if entry == old]
        other = any(self.differs(e) for entry in left for e in ir.index_exprs(entry))
        if at is None or other or len(left) < len(index) - 1:
            self.no(f"{tensor} is not indexed by it in one of its dimensions, as it is", loc)
        return tuple(made), at

    def entry(self, entry: ir.Index, loc: Loc | None) -> ir.Index:
        """All places of a tile; itself where it is none of one index."""
        if self.is_own(entry):
            return ir.Along(self.axis)
        if isinstance(entry, ir.At) and self.looks_up(entry):
            return ir.Gather(self.lifted(entry.expr, loc))
        return entry

    def lifted(self, expr: Expr, loc: Loc | None) -> Expr:
        """The value for all indices of a tile; itself where it is the same for all."""
        if not self.differs(expr):
            return expr
        at = self.behind(expr) or 0
        match expr:
            case ir.GridIndex():
                return ir.TileIndex(self.axis, self.type(expr.type, 0))
            case ir.Var(name):
                return replace(expr, type=self.types[name])
            case ir.Load(mask=None):
                index, at = self.index(expr.tensor, expr.index, loc)
                return replace(expr, index=index, type=self.type(expr.type, at))
            case Apply("expand_dims" | "squeeze" as op, (value,)):
                own, new = int(expr.attr("axis")), value.type.rank - (self.behind(value) or 0)
                if op == "expand_dims":
                    return expanded(self.lifted(value, loc), own + (own > new))
                return squeezed(self.lifted(value, loc), own + (own >= new))
            case Apply(op, (value,)) if op in REDUCTIONS:
                own = int(expr.attr("axis"))
                own += own >= value.type.rank - (self.behind(value) or 0)
                attrs = (("axis", own), ("keepdim", expr.attr("keepdim")))
                kind, arg = self.type(expr.type, at), self.lifted(value, loc)
                return replace(expr, args=(arg,), type=kind, attrs=attrs)
            case Apply(op) if op == "broadcast" or op in ELEMENTWISE:
                args = tuple(self.met(a, at, loc) for a in expr.args)
                return replace(expr, args=args, type=self.type(expr.type, at))
            case _:
                what = expr.op if isinstance(expr, Apply) else "a load with a mask"
                self.no(f"{what} of one row is not possible for many", loc)

    def met(self, expr: Expr, at: int, loc: Loc | None) -> Expr:
        """A value that meets others, of which so many dimensions come behind the new one."""
        rank, value = expr.type.rank, self.lifted(expr, loc)
        if not self.differs(expr):
            return expanded(value, rank - at) if rank > at else value
        have = self.behind(expr) or 0
        while have != at:  # a dimension of one goes to the other side
            place = rank - have
            if have < at and place == 0:
                value, rank, have = expanded(value, 1), rank + 1, have + 1
                continue
            side = place - 1 if have < at else place + 1
            if value.type.shape[side] != 1:
                self.no("two values of its rows have these in different dimensions", loc)
            value = expanded(squeezed(value, side), place)
            have += 1 if have < at else -1
        return value


def _rank(index: tuple[ir.Index, ...]) -> int:
    """Dimensions that a value at an index has."""
    return sum(not isinstance(entry, ir.At) for entry in index)


def _moves(expr: Apply) -> bool:
    """Whether a value has another number of dimensions than what it is made of."""
    return expr.op in ("expand_dims", "squeeze") or (
        expr.op in REDUCTIONS and not expr.attr("keepdim")
    )
