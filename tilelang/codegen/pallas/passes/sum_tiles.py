"""Sum tiles: a loop that adds rows one by one -> one over tiles of them.

    for j in grid(begin, end):                   for j in tile(begin, end):
        row = table[ids[j], :]                       row = table[rows(ids[j]), :]     [j, d]
        acc = acc + row * w[j]           ->          acc = acc + sum(row * w[j][:, None], 0)

What is carried is only added to, by what goes by the index and by nothing carried, so that the
terms may be put together first: a sum in another order, as that of any other tile is, and the
greatest and the least as they were.  The facts are those of the loop as an author would write it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from tilelang import ir
from tilelang.analysis import again
from tilelang.analysis.carries import Definitions, combination, definitions, depends_on
from tilelang.ir import Apply, Expr
from tilelang.ir.names import names_in, take
from tilelang.language.build import binary, cast, reduce, where
from tilelang.language.op import REDUCED_BY, neutral
from tilelang.schedule.problem import Problem

from .blocked_groups import Refuse, refuse
from .index_tiles import RowTiles

WHICH = (
    "an ordered hl.grid loop can have one where all that it does is to add to what it carries, or "
    "to take the greatest or the least of that and rows of its own"
)


def sum_tiles(problem: Problem, name: str, block: int | None = None) -> Problem:
    """The kernel with tiles of a loop that adds rows, of so many or as many as a plan chooses.

    Raises Refused where that loop does more.
    """
    axis, kernel = problem.axis(name), problem.ir
    no = partial(refuse, axis, WHICH)
    if problem.fact(name).meets:
        no("its iterations touch what others store", axis.loc)
    loop = next(s for s in ir.every_loop(kernel.body) if s.axis == name)
    known = definitions(kernel)
    inside = _Sums(problem, loop, known, no).made()

    def change(stmt: ir.Stmt) -> ir.Body:
        return (inside,) if isinstance(stmt, ir.Loop) and stmt.axis == name else (stmt,)

    made = replace(axis, kind="tile", block=name if block is None else block)
    axes = tuple(made if a.name == name else a for a in kernel.axes)
    whole = replace(kernel, axes=axes, body=ir.map_body(kernel.body, change))
    return Problem(whole, again(whole, problem.facts))


@dataclass(frozen=True)
class _Sums:
    """One run over the loop; `values` are those of its statements that go by what it carries."""

    problem: Problem
    loop: ir.Loop
    known: Definitions
    no: Refuse

    def made(self) -> ir.Loop:
        loop, carried = self.loop, frozenset(c.name for c in self.loop.carries)
        if any(True for _ in ir.every_store(loop.body)):
            self.no("there is a store in it", loop.loc)
        self._check_lengths()
        own = {
            s.name for s in loop.body
            if isinstance(s, ir.Assign) and depends_on(s.value, carried, self.known)
        }  # fmt: skip
        rest = tuple(s for s in loop.body if not (isinstance(s, ir.Assign) and s.name in own))
        rows = RowTiles(self.problem, loop.axis, self.no)
        rows.place(rest)
        body = list(rows.body(rest))
        taken = names_in(self.problem.ir)
        carries = tuple(self._carry(c, carried, rows, body, taken) for c in loop.carries)
        return replace(loop, body=tuple(body), carries=carries)

    def _check_lengths(self) -> None:
        """A loop that memory ends goes no further than its arrays do: all of them, or the least."""
        axis, index = self.problem.axis(self.loop.axis), ir.At(ir.GridIndex(self.loop.axis))
        if axis.static is not None:
            return
        tensor = self.problem.ir.tensor
        lengths = {
            size
            for site in self.problem.references
            for entry, size in zip(site.index, tensor(site.tensor).shape, strict=True)
            if entry == index
        }
        if len(lengths) != 1:
            self.no("what it indexes is not of one length", axis.loc)

    def _carry(
        self, carry: ir.Carry, carried: frozenset[str], rows: RowTiles, body: list[ir.Stmt],
        taken: set[str],
    ) -> ir.Carry:  # fmt: skip
        """The carry with what all rows of a tile add to it; the body states both."""
        op = combination(carry.next, carry.name, carried, self.known)
        if op not in REDUCED_BY:
            self.no(f"{carry.called} is not only added to, nor the greatest or least", carry.loc)
        term = self._term(carry.next, op, carry)
        if term is None:
            self.no(f"{carry.called} is carried through a loop in it", carry.loc)
        term = _or_none(term, op, carry)
        at = rows.behind(term) or 0 if rows.differs(term) else term.type.rank
        value = rows.whole(term, at, rows.type(term.type, at), carry.loc)
        each = take(f"{carry.user}_rows", taken)
        body.append(ir.Assign(each, value, carry.loc, each))
        named = ir.Var(each, value.type)
        total = reduce(REDUCED_BY[op], named, term.type.rank - at, False, carry.loc)
        total = cast(total, term.type.dtype, carry.loc)
        after = binary(op, ir.Var(carry.name, carry.init.type), total, carry.loc)
        name = carry.next.name if isinstance(carry.next, ir.Var) else take(carry.user, taken)
        body.append(ir.Assign(name, after, carry.loc, carry.user))
        return replace(carry, next=ir.Var(name, after.type))

    def _term(self, expr: Expr, op: str, carry: ir.Carry) -> Expr | None:
        """What an iteration combines the carry with; the carry itself where that is nothing."""
        match expr:
            case ir.Var(name) if name == carry.name:
                return expr
            case ir.Var(name) if name in self.known.values:
                return self._term(self.known.values[name], op, carry)
            case Apply("where", (condition, a, b)):
                one, other = (self._term(e, op, carry) for e in (a, b))
                if one is None or other is None:
                    return None
                one, other = (_or_none(e, op, carry) for e in (one, other))
                return where(condition, one, other, carry.loc)
            case Apply(found, (a, b)) if found == op:
                old, new = (a, b) if depends_on(a, frozenset({carry.name}), self.known) else (b, a)
                before = self._term(old, op, carry)
                if before is None:
                    return None
                return new if _is(before, carry) else binary(op, before, new, carry.loc)
            case _:
                return None


def _or_none(term: Expr, op: str, carry: ir.Carry) -> Expr:
    """The term, or what changes nothing where it is the carry itself."""
    dtype = carry.init.type.dtype
    nothing = ir.Const(neutral(REDUCED_BY[op], dtype), ir.Type((), dtype))
    return nothing if _is(term, carry) else term


def _is(term: Expr, carry: ir.Carry) -> bool:
    return isinstance(term, ir.Var) and term.name == carry.name
