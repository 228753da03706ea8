"""Lifted groups: what a group has one of, for all groups of a block at once.

A value is of rows (its first dimension is the rows of a ragged loop), or every group has one of its
own, which gets a dimension of groups in front, or it is the same for all of them:

    total += x[tm].sum()        total: [] -> [g], the sums of members
    c = x[tm, :] - total / n    c: [tm, f] as it was; total / n: [g], looked up for every row
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import assert_never

from tilelang import ir
from tilelang.errors import Loc
from tilelang.ir import Apply, Expr, Type, integers
from tilelang.ir.lanes import expanded, squeezed
from tilelang.ir.traversal import definitions, statement_exprs
from tilelang.language.op import COMBINED_BY, ELEMENTWISE, REDUCED_BY, REDUCTIONS
from tilelang.schedule.problem import Problem

from .blocked_groups import Refuse, view_of
from .members import Members, aligned

COLUMNS = 16  # of which the largest are looked for one by one: more are quicker group by group


@dataclass(frozen=True)
class Lifted:
    """One run over the body of the loop over groups.

    rows     the loops over rows of a group
    table    the tensor that says where those begin
    names    of values that every group has one of, with the type that they have now
    views    of tensors, which the new kernel reads
    members  which rows are whose, in a loop over them
    """

    problem: Problem
    axis: ir.Axis
    count: int
    rows: frozenset[str]
    table: str
    refuse: Refuse
    names: dict[str, Type] = field(default_factory=dict)
    views: dict[ir.View, ir.Tensor] = field(default_factory=dict)
    members: Members | None = None

    def viewed(self, view: ir.View, suffix: str, length: int) -> ir.Tensor:
        """A part of a tensor of rank 1, or what is made of it, as a tensor."""
        kernel = self.problem.ir
        if view not in self.views:
            known = replace(kernel, tensors=(*kernel.tensors, *self.views.values()))
            self.views[view] = view_of(known, view, suffix, length)
        return self.views[view]

    # ------------------------------------------------------------ of rows, of groups, of all

    def of_rows(self, expr: Expr) -> bool:
        """Whether rows of a group have a value each."""
        return self.members is not None and self.members.rows in expr.type.shape

    def differs(self, expr: Expr) -> bool:
        """Whether a value is another one for every group, by more than which rows it is of."""
        return any(map(self._own, ir.walk(expr)))

    def _own(self, expr: Expr) -> bool:
        match expr:
            case ir.GridIndex(axis) | ir.TileScalar(axis):
                return axis == self.axis.name or axis in self.rows
            case ir.Var(name):
                return name in self.names
            case Apply():
                return not self.of_rows(expr) and any(map(self.of_rows, expr.args))
            case _:
                return False

    def type(self, kind: Type) -> Type:
        return replace(kind, shape=(self.axis.name, *kind.shape))

    # ------------------------------------------------------------ statements

    def body(self, stmts: ir.Body) -> ir.Body:
        return tuple(self.statement(s) for s in stmts)

    def statement(self, stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.Assign():
                value = self.lifted(stmt.value, stmt.loc)
                if self.differs(stmt.value) and not self.of_rows(stmt.value):
                    self.names[stmt.name] = value.type
                return replace(stmt, value=value)
            case ir.Store():
                return self.store(stmt) if self.members is None else self.store_of_rows(stmt)
            case ir.Loop() if self.members is not None:
                user = self.problem.axis(stmt.axis).user
                self.refuse(f"a loop over {user} stands in one over its rows", stmt.loc)
            case ir.Loop() if stmt.axis in self.rows:
                return self.loop(stmt)
            case ir.Loop():
                if stmt.carries:
                    over, user = self.problem.axis(stmt.axis).user, stmt.carries[0].user
                    self.refuse(f"a loop of it over {over} carries {user}", stmt.loc)
                return replace(stmt, body=self.body(stmt.body))
            case _:
                assert_never(stmt)

    def store(self, store: ir.Store) -> ir.Store:
        """A store of what every group has one of, to the rows of these groups."""
        if store.mask is not None or store.combine is not None:
            self.refuse("a store of it has a mask, or adds to what is there", store.loc)
        index = self.index(store.tensor, store.index, store.loc)
        value = self.lifted(store.value, store.loc)
        if self.differs(store.value):
            rank = sum(not isinstance(e, ir.At) for e in store.index)
            value = aligned(value, store.value.type.rank, rank)
        return replace(store, index=index, value=value)

    def index(
        self, tensor: str, index: tuple[ir.Index, ...], loc: Loc | None
    ) -> tuple[ir.Index, ...]:
        """The same place, of all groups: its dimension of groups must be the first of any."""
        sizes = self.problem.ir.tensor(tensor).shape
        found: list[ir.Index] = []
        for entry, size in zip(index, sizes, strict=True):
            if not any(map(self.differs, ir.index_exprs(entry))):
                found.append(entry)
                continue
            own = isinstance(entry, ir.At) and moved(entry.expr, self.axis.name) == 0
            if not own or size != self.count or any(not isinstance(e, ir.At) for e in found):
                where = f"{tensor} is not indexed by {self.axis.name} in its first dimension"
                self.refuse(where, loc)
            found.append(ir.Along(self.axis.name))
        if not any(isinstance(e, ir.Along) and e.axis == self.axis.name for e in found):
            self.refuse(f"a store to {tensor} is not at {self.axis.name}", loc)
        return tuple(found)

    # ------------------------------------------------------------ loops over rows

    def loop(self, loop: ir.Loop) -> ir.Loop:
        """The loop over the rows of a group, over those of all groups of a block."""
        begin, end = (self.part(self.table, at) for at in (0, 1))
        flat = all(e.type.rank < 2 for e in _values_of(loop) if loop.axis in e.type.shape)
        inside = replace(self, members=Members(self.axis.name, loop.axis, begin, end, flat))
        for carry in loop.carries:
            self.names[carry.name] = self.names[carry.out] = self.type(carry.init.type)
        defined = definitions(loop.body)
        body = inside.body(loop.body)
        carries = tuple(inside.carry(c, defined) for c in loop.carries)
        return replace(loop, body=body, carries=carries)

    def carry(self, carry: ir.Carry, defined: Mapping[str, Expr]) -> ir.Carry:
        """A carry of every group: those that have no rows in a tile keep theirs."""
        assert self.members is not None
        kind, old = self.names[carry.name], carry.init.type.rank
        init, after = self._spread(carry.init, kind, carry.loc), carry.next
        after = self._spread(after, kind, carry.loc)
        if not takes_rows(carry, defined, self):
            present = aligned(self.members.present(), 0, old)
            after = Apply("where", (present, after, ir.Var(carry.name, kind)), kind)
        return replace(carry, init=init, next=after)

    def _spread(self, expr: Expr, kind: Type, loc: Loc | None) -> Expr:
        """A value for all groups, if it is the same for all, too."""
        if self.differs(expr):
            return self.lifted(expr, loc)
        if isinstance(expr, Apply) and expr.op == "full" and not expr.args:
            return replace(expr, type=kind)
        return Apply("broadcast", (expr,), kind)

    def store_of_rows(self, store: ir.Store) -> ir.Store:
        """A store of rows, to their places."""
        assert self.members is not None
        if store.mask is not None or store.combine is not None:
            self.refuse("a store of its rows has a mask, or adds to what is there", store.loc)
        dims = [e for e in store.index if not isinstance(e, ir.At)]
        exprs = [x for e in store.index for x in ir.index_exprs(e)]
        if dims[:1] != [ir.Along(self.members.rows)] or any(map(self.differs, exprs)):
            where = f"{store.tensor} is not stored at its rows, in the first dimension"
            self.refuse(where, store.loc)
        kernel = self.problem.ir
        loads = {kernel.root(r.tensor) for r in self.problem.references if not r.written}
        if kernel.root(store.tensor) in loads:
            self.refuse(f"{store.tensor} is read and stored", store.loc)
        live = aligned(self.members.live(), 1, len(dims))
        value = self.placed(store.value, len(dims), store.loc)
        return replace(store, value=value, mask=live)

    # ------------------------------------------------------------ values

    def lifted(self, expr: Expr, loc: Loc | None) -> Expr:
        """A value for all groups of a block."""
        rows = self.members.rows if self.members is not None else None
        for part in ir.walk(expr) if rows is not None else ():
            if rows in part.type.shape[1:]:
                self.refuse("a value of its rows has them in another dimension than the first", loc)
        return self._lifted(expr, loc)

    def _lifted(self, expr: Expr, loc: Loc | None) -> Expr:
        if not self.differs(expr):
            return expr
        return self.row(expr, loc) if self.of_rows(expr) else self.each(expr, loc)

    def row(self, expr: Expr, loc: Loc | None) -> Expr:
        """A value of rows: what groups have one of is looked up for every row."""
        match expr:
            case Apply(op) if op == "broadcast" or op in ELEMENTWISE:
                args = tuple(self.placed(a, expr.type.rank, loc) for a in expr.args)
                return replace(expr, args=args)
            case Apply() if all(self.of_rows(a) or not self.differs(a) for a in expr.args):
                return replace(expr, args=tuple(self._lifted(a, loc) for a in expr.args))
            case _:
                self.refuse(f"{_called(expr)} of rows by a value of their group", loc)

    def placed(self, expr: Expr, rank: int, loc: Loc | None) -> Expr:
        """A value that meets values of rows, which have that rank."""
        assert self.members is not None
        if not self.differs(expr) or self.of_rows(expr):
            return self.lifted(expr, loc)
        own = min(expr.type.rank, rank - 1)
        value = self.each((self.narrow(expr) if own else None) or expr, loc)
        if expr.type.rank == rank:  # a dimension of 1 meets the rows
            value = squeezed(value, 1)
        if not own:
            return aligned(self.members.picked(value), 0, rank - 1)
        if own > 1 or rank > 2 or value.type.dtype not in ("float32", "bfloat16"):
            what = f"of {expr.type.dtype} that has {own} dimensions"
            self.refuse(f"its rows use a value of their group {what}", loc)
        found = self.members.looked_up(value)
        if expr.type.dtype == "float32":
            return found
        return Apply("cast", (found,), Type(found.type.shape, expr.type.dtype))

    def each(self, expr: Expr, loc: Loc | None) -> Expr:
        """A value that every group has one of, for all groups of a block: they are in front."""
        if not self.differs(expr):
            return expr
        match expr:
            case ir.GridIndex(name) if name == self.axis.name:
                return ir.TileIndex(name, self.type(expr.type))
            case ir.Var(name):
                return replace(expr, type=self.names[name])
            case ir.Load():
                return self.load(expr, loc)
            case Apply("expand_dims" | "squeeze" as op, (value,)):
                shape = expanded if op == "expand_dims" else squeezed
                return shape(self.each(value, loc), 1 + int(expr.attr("axis")))
            case Apply(op) if op == "broadcast" or op in ELEMENTWISE:
                rank = expr.type.rank
                args = (
                    aligned(self.each(a, loc), a.type.rank, rank) if self.differs(a) else a
                    for a in expr.args
                )
                return replace(expr, args=tuple(args), type=self.type(expr.type))
            case Apply("narrow" | "concat", args) if not any(map(self.of_rows, args)):
                every = tuple(self._spread(a, self.type(a.type), loc) for a in args)
                attrs = {**dict(expr.attrs), "axis": 1 + int(expr.attr("axis"))}
                kind = self.type(expr.type)
                return replace(expr, args=every, type=kind, attrs=tuple(attrs.items()))
            case Apply(op, (values,)) if (
                op in COMBINED_BY and self.of_rows(values) and not expr.attr("keepdim")
            ):
                return self.reduced(op, values, loc)
            case Apply(op, (value,)) if op in REDUCTIONS and not self.of_rows(value):
                attrs = (("axis", 1 + int(expr.attr("axis"))), ("keepdim", expr.attr("keepdim")))
                kind = self.type(expr.type)
                return replace(expr, args=(self.each(value, loc),), type=kind, attrs=attrs)
            case _:
                what = f"{_called(expr)} of a value of one group is not possible for many"
                self.refuse(what, loc)

    def reduced(self, op: str, values: Expr, loc: Loc | None) -> Expr:
        """What the rows of every group are together: their sum, the largest or the least."""
        assert self.members is not None
        kind, rank = values.type.dtype, values.type.rank
        if rank == 1:
            return self.members.reduced(op, self.lifted(values, loc))
        if rank > 2:
            taken = "sums" if op == "sum" else f"takes the {op} of"
            self.refuse(f"it {taken} rows that have several dimensions", loc)
        if op != "sum":
            width = values.type.shape[1]
            if not isinstance(width, int) or width > COLUMNS:
                self.refuse(f"it takes the {op} of rows of more than {COLUMNS} numbers", loc)
            return self.members.by_column(op, self.lifted(values, loc), width)
        if kind != "float32":
            self.refuse(f"it sums rows of {kind}, and products sum in float32", loc)
        return self.members.product(self.lifted(self.narrow(values) or values, loc))

    def narrow(self, values: Expr) -> Expr | None:
        """A value without a cast that a product does not need."""
        match ir.meant(values, definitions(self.problem.ir.body)):
            case Apply("cast", (own,)) if own.type.dtype == "bfloat16":
                return own
            case Apply("expand_dims", (value,)) as made:
                own = self.narrow(value)
                return None if own is None else expanded(own, int(made.attr("axis")))
            case _:
                return None

    def load(self, load: ir.Load, loc: Loc | None) -> ir.Load:
        if load.mask is not None:
            self.refuse(f"a load of {load.tensor} has a mask", loc)
        shape, first = self.problem.ir.tensor(load.tensor).shape, load.index[0]
        at = moved(first.expr, self.axis.name) if isinstance(first, ir.At) else None
        if len(shape) == 1 and at is not None and 0 <= at <= shape[0] - self.count:
            return replace(self.part(load.tensor, at), loc=load.loc)
        index = self.index(load.tensor, load.index, loc)
        return replace(load, index=index, type=self.type(load.type))

    def part(self, tensor: str, at: int) -> ir.Load:
        """tensor[g + at], of all groups of a block."""
        source = self.problem.ir.tensor(tensor)
        if source.shape != (self.count,):
            suffix = "begin" if at == 0 else "end" if at == 1 else f"from_{at}"
            view = ir.View(tensor, "slice", (at, at + self.count))
            source = self.viewed(view, suffix, self.count)
        kind = Type((self.axis.name,), "int32" if source.dtype == "int64" else source.dtype)
        return ir.Load(source.name, (ir.Along(self.axis.name),), kind)


def moved(expr: Expr, name: str) -> int | None:
    """c of an index `name + c`."""
    found = integers.linear(expr)
    return found[1] if found is not None and found[0] == {ir.GridIndex(name): 1} else None


def takes_rows(carry: ir.Carry, defined: Mapping[str, Expr], run: Lifted) -> bool:
    """Whether a carry is `acc + v.sum(0)`, or of `v.amax(0)`: without rows it stays as it is."""
    after = ir.meant(carry.next, defined)
    if not (isinstance(after, Apply) and after.op in REDUCED_BY):
        return False
    first, second = (ir.meant(a, defined) for a in after.args)
    kept = ir.Var(carry.name, carry.init.type)
    taken = second if first == kept else first if second == kept else None
    if not isinstance(taken, Apply) or taken.op != REDUCED_BY[after.op]:
        return False
    return run.of_rows(taken.args[0])


def _values_of(loop: ir.Loop) -> Iterator[Expr]:
    """Every value in a loop."""
    for stmt in loop.body:
        for expr in statement_exprs(stmt):
            yield from ir.walk(expr)


def _called(expr: Expr) -> str:
    return expr.op if isinstance(expr, Apply) else "an index"
