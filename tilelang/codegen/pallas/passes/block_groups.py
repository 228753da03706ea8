"""Block groups: a loop over groups, of which each sums rows of its own, -> one over blocks of them.

    for g in grid(G):                                   for g in tile(G):
        for tm in tile(offsets[g], offsets[g + 1]): ->      for tm in tile(first row, end of all):
            acc += sum(x[tm, tf])                               acc += group_sum(member, x[tm, tf])
        y[g, tf] = acc                                      y[g, tf] = acc

What a group has one of gets a dimension of groups in front; member[g, tm] says which row is whose.
A step sums the rows of all groups of its block, where a short group took a step of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NoReturn

from tilelang import ir
from tilelang.analysis.facts import AxisFact, Facts, PositionFact
from tilelang.analysis.placed import root
from tilelang.errors import Loc
from tilelang.ir import Apply, Expr, Type, integers
from tilelang.ir.names import names_in, unique
from tilelang.ir.traversal import definitions, inlined
from tilelang.language.op import OPS
from tilelang.passes.drop_unused import drop_unused
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule

SUM = "group_sum"  # (member [groups, rows], values [rows, ...]) -> [groups, ...]
WHY = "a step sums the rows of all in its block"
HELPERS = frozenset({"group_sums", "spans_of"})  # functions of the generated source
BLOCKS, SHORT = (128, 256), 64  # groups of a block: the second where they have fewer rows than that
Made = Literal["slice", "spans"]  # views
LOOSE = 16_384  # rows of a table of steps that take an eighth of the scalar memory


def block_groups(problem: Problem, name: str, block: int) -> Problem:
    """The kernel with blocks of so many iterations of an `hl.grid` loop, and what is true of it.

    Raises Refused where that loop does more than to sum rows of its own.
    """
    kernel, axis = problem.ir, problem.axis(name)
    _check_loop(problem, axis)
    rows, table = _ranges(problem, axis)
    groups = axis.static[1] if axis.static is not None else 0
    run = _Groups(problem, axis, groups, rows, table)
    body = tuple(
        replace(loop, body=run.body(loop.body)) if loop.axis == name else loop
        for loop in kernel.body
    )
    spans = run.view("spans", (block, groups), "spans", 2 * -(-groups // block))
    first: Expr = ir.TileScalar(name, "id")
    stop = integers.add(first, integers.const(spans.shape[0] // 2))
    begin, end = (ir.Load(spans.name, (ir.At(at),), integers.INT) for at in (first, stop))
    length = min((rows.max_extent or 1) * block, problem.extent(rows.name))
    changed = {
        name: replace(axis, kind="tile", block=block, max_extent=groups),
        rows.name: replace(rows, begin=begin, end=end, max_extent=length),
    }
    axes = tuple(changed.get(a.name, a) for a in kernel.axes)
    bounds = [b for a in axes for b in (a.begin, a.end)]
    tensors = (*kernel.tensors, *run.views.values())
    made = replace(kernel, tensors=tensors, axes=axes, body=drop_unused(body, bounds))
    loose = -(-groups // block) * -(-problem.extent(rows.name) // 128) <= LOOSE
    return Problem(made, _facts(problem.facts, name, rows.name, (first, stop), spans, loose))


def of_groups(problem: Problem, name: str) -> Problem:
    """The same with a block that suits groups of this length in the mean."""
    rows, _ = _ranges(problem, problem.axis(name))
    count = (problem.axis(name).static or (0, 1))[1]
    short = problem.extent(rows.name) < SHORT * count
    return block_groups(problem, name, BLOCKS[short])


def _facts(
    facts: Facts,
    name: str,
    rows: str,
    positions: tuple[Expr, ...],
    spans: ir.Tensor,
    loose: bool,
) -> Facts:
    """What was proved of every group holds of blocks: their rows are as disjoint as the groups'.

    `loose`: nobody is told so.  Then the table of steps has room for blocks that all span
    everything, as wild offsets make them.
    """

    def changed(fact: AxisFact) -> AxisFact:
        if fact.name == name:
            return replace(fact, why=f"{fact.why}; {WHY}", limit=None)
        if fact.name == rows:
            rises = () if loose else fact.rises
            return replace(fact, depends=(name,), rises=rises, nonempty=False)
        return fact

    size = spans.shape[0]
    proved = (PositionFact(e, size, "proved", "as many blocks", "", spans.loc) for e in positions)
    axes = tuple(map(changed, facts.axes))
    return replace(facts, axes=axes, positions=(*facts.positions, *proved))


# ---------------------------------------------------------------- legality


def _refuse(axis: ir.Axis, why: str, loc: Loc | None) -> NoReturn:
    raise Refused(
        Rule.CONFIG,
        f"{axis.user} cannot have a block: {why}",
        loc,
        f"leave the block of {axis.name} out; only an hl.grid loop whose ragged loop sums rows "
        "[offsets[g], offsets[g + 1]) can have one",
    )


def _check_loop(problem: Problem, axis: ir.Axis) -> None:
    fact, taken = problem.fact(axis.name), names_in(problem.ir) | {problem.ir.name}
    if all(loop.axis != axis.name for loop in problem.ir.body):
        _refuse(axis, "its loop stands inside of another one", axis.loc)
    if axis.static is None or axis.static[0] != 0 or axis.static[1] < 1:
        _refuse(axis, "its indices do not go from 0 to a number that shapes give", axis.loc)
    if fact.kind != "parallel":
        _refuse(axis, f"it is ordered, because {fact.why}", axis.loc)
    if clash := HELPERS & taken:
        _refuse(axis, f"the generated source has a function {min(clash)} of its own", axis.loc)


def _ranges(problem: Problem, axis: ir.Axis) -> tuple[ir.Axis, str]:
    """The loop over the rows of a group, and the tensor that holds where they begin."""
    kernel, name = problem.ir, axis.name
    loops = [a for a in kernel.axes if name in problem.fact(a.name).depends]
    if len(loops) != 1:
        few = "no loop has a range of its own for each" if not loops else "several loops do"
        where = loops[1].loc if loops else axis.loc
        _refuse(axis, few if not loops else f"{loops[0].user} is not its only ragged loop", where)
    defined, (rows,) = definitions(kernel.body), loops
    match inlined(rows.begin, defined), inlined(rows.end, defined):
        case (
            ir.Load(table, (ir.At(ir.GridIndex(at)),), mask=None),
            ir.Load(other, (ir.At(after),), mask=None),
        ) if table == other and at == name and _moved(after, name) == 1:
            pass
        case _:
            _refuse(axis, f"{rows.user} does not go from T[{name}] to T[{name} + 1]", rows.loc)
    written = {
        root(kernel, s.tensor) for s in ir.statements(kernel.body) if isinstance(s, ir.Store)
    }
    if root(kernel, table) in written:
        _refuse(axis, f"the kernel changes {table}, which says where rows are", rows.loc)
    if rows.kind != "tile" or name not in problem.fact(rows.name).rises:
        _refuse(axis, f"the ranges of {rows.user} were not proved to be disjoint", rows.loc)
    return rows, table


def _moved(expr: Expr, name: str) -> int | None:
    """c of an index `name + c`."""
    found = integers.linear(expr)
    return found[1] if found is not None and found[0] == {ir.GridIndex(name): 1} else None


# ---------------------------------------------------------------- a dimension of groups


@dataclass(frozen=True)
class _Groups:
    """One run over the body of the loop.

    names  of values that every group has one of, with the type that they have now
    views  of tensors, which the new kernel reads
    """

    problem: Problem
    axis: ir.Axis
    count: int
    rows: ir.Axis
    table: str
    names: dict[str, Type] = field(default_factory=dict)
    views: dict[ir.View, ir.Tensor] = field(default_factory=dict)

    def no(self, why: str, loc: Loc | None) -> NoReturn:
        _refuse(self.axis, why, loc)

    def view(self, how: Made, arg: tuple[int, ...], suffix: str, length: int) -> ir.Tensor:
        return self.viewed(self.table, how, arg, suffix, length)

    def viewed(
        self, source: str, how: Made, arg: tuple[int, ...], suffix: str, length: int
    ) -> ir.Tensor:
        """A part of a tensor of rank 1, or what is made of it, as a tensor."""
        kernel = self.problem.ir
        key = ir.View(source, how, arg)
        if key not in self.views:
            known = replace(kernel, tensors=(*kernel.tensors, *self.views.values()))
            self.views[key] = replace(
                kernel.tensor(source), name=unique(known, source, suffix), shape=(length,),
                role="view", view=key, fill=None, mutated=False,
            )  # fmt: skip
        return self.views[key]

    def differs(self, expr: Expr) -> bool:
        """Whether a value is another one for every group."""
        return any(
            (isinstance(e, ir.GridIndex) and e.axis == self.axis.name)
            or (isinstance(e, ir.Var) and e.name in self.names)
            for e in ir.walk(expr)
        )

    def type(self, kind: Type) -> Type:
        return replace(kind, shape=(self.axis.name, *kind.shape))

    # ------------------------------------------------------------ statements

    def body(self, stmts: ir.Body) -> ir.Body:
        return tuple(self.statement(s) for s in stmts)

    def statement(self, stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.Assign():
                value = self.each(stmt.value, stmt.loc)
                if value is not stmt.value:
                    self.names[stmt.name] = value.type
                return replace(stmt, value=value)
            case ir.Store():
                return self.store(stmt)
            case ir.Loop() if stmt.axis == self.rows.name:
                return self.summed(stmt)
            case ir.Loop():
                if stmt.carries:
                    user = self.problem.axis(stmt.axis).user
                    self.no(f"a loop of it over {user} carries {stmt.carries[0].user}", stmt.loc)
                return replace(stmt, body=self.body(stmt.body))

    def store(self, store: ir.Store) -> ir.Store:
        """A store of what every group has one of, to the rows of these groups."""
        if store.mask is not None or store.combine is not None:
            self.no("a store of it has a mask, or adds to what is there", store.loc)
        index = self.index(store.tensor, store.index, store.loc)
        value = self.each(store.value, store.loc)
        if self.differs(store.value):
            rank = sum(not isinstance(e, ir.At) for e in store.index)
            value = _aligned(value, store.value.type.rank, rank)
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
            own = isinstance(entry, ir.At) and _moved(entry.expr, self.axis.name) == 0
            if not own or size != self.count or any(not isinstance(e, ir.At) for e in found):
                self.no(f"{tensor} is not indexed by {self.axis.name} in its first dimension", loc)
            found.append(ir.Along(self.axis.name))
        if not any(isinstance(e, ir.Along) and e.axis == self.axis.name for e in found):
            self.no(f"a store to {tensor} is not at {self.axis.name}", loc)
        return tuple(found)

    # ------------------------------------------------------------ the sum

    def summed(self, loop: ir.Loop) -> ir.Loop:
        """The loop over rows: those of all groups, each added to the sum of its own."""
        defined = definitions(loop.body)
        if any(not isinstance(s, ir.Assign) for s in loop.body):
            self.no(f"the loop over {self.rows.user} does more than to sum", loop.loc)
        carried = {c.name for c in loop.carries}
        own = [s for s in loop.body if isinstance(s, ir.Assign)]
        kept: list[ir.Stmt] = []
        for stmt in own:
            reads = {e.name for e in ir.walk(inlined(stmt.value, defined)) if isinstance(e, ir.Var)}
            if reads & carried:
                continue
            if self.differs(inlined(stmt.value, defined)):
                user = stmt.user or stmt.name
                self.no(f"{user}, of the rows in {self.rows.user}, depends on the group", stmt.loc)
            kept.append(stmt)
        carries = tuple(self.carry(c, defined) for c in loop.carries)
        return replace(loop, body=tuple(kept), carries=carries)

    def carry(self, carry: ir.Carry, defined: Mapping[str, Expr]) -> ir.Carry:
        """acc + sum(values of the rows), for all groups at once."""
        kind, old = self.type(carry.init.type), carry.init.type
        values = _values(carry, defined)
        if values is None or self.differs(values):
            self.no(f"{carry.user} is no sum of rows: acc + v.sum(0)", carry.loc)
        if values.type.rank != 2 or values.type.shape[0] != self.rows.name:
            self.no(f"{carry.user} is no sum of rows [{self.rows.name}, columns]", carry.loc)
        if old.dtype != "float32" or values.type.dtype not in ("float32", "bfloat16"):
            what = f"{carry.user} is a sum of {values.type.dtype} in {old.dtype}"
            self.no(f"{what}, and products sum in float32", carry.loc)
        added = Apply(SUM, (self.member(), values), kind, (), carry.loc)
        after = Apply("add", (ir.Var(carry.name, kind), added), kind, (), carry.loc)
        init = self.each(carry.init, carry.loc)
        if init is carry.init:
            init = _spread(init, kind)
        self.names[carry.out] = kind
        return replace(carry, init=init, next=after)

    def member(self) -> Expr:
        """member[g, tm]: offsets[g] <= tm < offsets[g + 1]"""
        both = (self.axis.name, self.rows.name)
        index = ir.TileIndex(self.rows.name, Type((self.rows.name,), "int32"))
        row = Apply("expand_dims", (index,), Type((1, self.rows.name), "int32"), (("axis", 0),))
        begin, end = (_aligned(self.part(self.table, at), 0, 1) for at in (0, 1))
        sides = ("ge", (row, begin)), ("lt", (row, end))
        tests = tuple(Apply(op, args, Type(both, "bool")) for op, args in sides)
        return Apply("logical_and", tests, Type(both, "bool"))

    def part(self, tensor: str, at: int) -> ir.Load:
        """tensor[g + at], of all groups of a block."""
        source = self.problem.ir.tensor(tensor)
        if source.shape != (self.count,):
            suffix = "begin" if at == 0 else "end" if at == 1 else f"from_{at}"
            source = self.viewed(tensor, "slice", (at, at + self.count), suffix, self.count)
        kind = Type((self.axis.name,), "int32" if source.dtype == "int64" else source.dtype)
        return ir.Load(source.name, (ir.Along(self.axis.name),), kind)

    # ------------------------------------------------------------ values

    def each(self, expr: Expr, loc: Loc | None) -> Expr:
        """A value that every group has one of, for all groups of a block: they are in front."""
        if not self.differs(expr):
            return expr
        match expr:
            case ir.GridIndex(name):
                return ir.TileIndex(name, self.type(expr.type))
            case ir.Var(name):
                return replace(expr, type=self.names[name])
            case ir.Load():
                return self.load(expr, loc)
            case Apply(op) if op in OPS and OPS[op].kind == "elementwise":
                rank, kind = expr.type.rank, self.type(expr.type)
                args = (
                    _aligned(self.each(a, loc), a.type.rank, rank) if self.differs(a) else a
                    for a in expr.args
                )
                return replace(expr, args=tuple(args), type=kind)
            case _:
                what = expr.op if isinstance(expr, Apply) else "an index"
                self.no(f"{what} of a value of one group is not possible for many", loc)

    def load(self, load: ir.Load, loc: Loc | None) -> ir.Load:
        if load.mask is not None:
            self.no(f"a load of {load.tensor} has a mask", loc)
        shape, first = self.problem.ir.tensor(load.tensor).shape, load.index[0]
        at = _moved(first.expr, self.axis.name) if isinstance(first, ir.At) else None
        if len(shape) == 1 and at is not None and 0 <= at <= shape[0] - self.count:
            return replace(self.part(load.tensor, at), loc=load.loc)
        index = self.index(load.tensor, load.index, loc)
        return replace(load, index=index, type=self.type(load.type))


def _values(carry: ir.Carry, defined: Mapping[str, Expr]) -> Expr | None:
    """v of `acc + v.sum(0)`, without a cast that a product does not need."""

    def meant(expr: Expr) -> Expr:
        while isinstance(expr, ir.Var) and expr.name in defined:
            expr = defined[expr.name]
        return expr

    after = meant(carry.next)
    if not (isinstance(after, Apply) and after.op == "add"):
        return None
    rest = [e for e in map(meant, after.args) if e != ir.Var(carry.name, carry.init.type)]
    match rest:
        case [Apply("sum", (values,)) as total] if total.attr("axis") == 0:
            if total.attr("keepdim"):
                return None
            match meant(values):
                case Apply("cast", (narrow,)) if narrow.type.dtype == "bfloat16":
                    return narrow
                case _:
                    return values
        case _:
            return None


def _spread(expr: Expr, kind: Type) -> Expr:
    """A value that is the same for all groups."""
    if isinstance(expr, Apply) and expr.op == "full" and not expr.args:
        return replace(expr, type=kind)
    return Apply("broadcast", (expr,), kind)


def _aligned(expr: Expr, rank: int, wanted: int) -> Expr:
    """A value of groups, each of `rank`, that meets others of rank `wanted`: groups stay first."""
    for _ in range(wanted - rank):
        first, *rest = expr.type.shape
        kind = replace(expr.type, shape=(first, 1, *rest))
        expr = Apply("expand_dims", (expr,), kind, (("axis", 1),))
    return expr
