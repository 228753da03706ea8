"""Several turns: an ordered loop that only carries values -> one whose turns are several of its.

    for p in grid(n):                       for p in grid((n + 1) // 2):
        k = pages[table[b, p]]                  k = pages[table[b, p * 2]]
        acc = f(acc, k)               ->        acc = f(acc, k)
                                                k_1 = pages[table[b, p * 2 + 1]]
                                                acc = where(p * 2 + 1 < n, f(acc, k_1), acc)

A block that is looked up cannot be larger than it is; but a step may have several, whose copies and
first products do not wait for each other.  What a turn behind the last one reads is inside of its
arrays, as every position is that was not proved to be, and what it makes of it is not taken.

A running maximum is taken of all of them at once, where it only keeps numbers small: what is
carried is scaled to it once, and not once for every iteration.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NoReturn

from tilelang import ir
from tilelang.analysis.facts import AxisFact
from tilelang.errors import Loc
from tilelang.ir import Expr, integers
from tilelang.ir.names import names_in, take
from tilelang.ir.traversal import index_exprs, map_body, rewrite, statement_exprs
from tilelang.language.build import binary, where
from tilelang.language.values import Site
from tilelang.passes.drop_unused import drop_unused
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule

from .running_maximum import Added, RunningMaximum, is_one, running_maximum, without_factors

MOST = 64  # iterations in a step: each is text, and depends on the one before


def several_turns(problem: Problem, name: str, count: int) -> Problem:
    """The kernel with so many iterations of an ordered `hl.grid` loop in one, and its facts.

    Raises Refused where that loop does more than to carry values.
    """
    axis = problem.axis(name)
    most = _most(problem, axis)
    if count > MOST:
        _refuse(
            axis, f"a step has a body for each of its {count} iterations, {MOST} at most", axis.loc
        )
    _check(problem, axis)
    taken = names_in(problem.ir)

    def change(stmt: ir.Stmt) -> ir.Body:
        if not isinstance(stmt, ir.Loop) or stmt.axis != name:
            return (stmt,)
        return (_Turns(stmt, axis, count, most, taken).made(),)

    turns = -(-most // count)
    made = replace(
        axis, end=_rounded_up(axis.end, count), max_extent=None if axis.static else turns
    )
    axes = tuple(made if a.name == name else a for a in problem.ir.axes)
    changed = partial(_fact, name=name, count=count, turns=turns)
    facts = replace(problem.facts, axes=tuple(map(changed, problem.facts.axes)))
    body = drop_unused(map_body(problem.ir.body, change), axes)
    return Problem(replace(problem.ir, axes=axes, body=body), facts)


def _fact(fact: AxisFact, name: str, count: int, turns: int) -> AxisFact:
    if fact.name != name:
        return fact
    limit = None if fact.limit is None else min(fact.limit, turns)
    return replace(fact, why=f"{fact.why}; a step runs {count} of its iterations", limit=limit)


def _rounded_up(end: Expr, count: int) -> Expr:
    return integers.floordiv(integers.add(end, integers.const(count - 1)), count)


def _most(problem: Problem, axis: ir.Axis) -> int:
    """How many iterations there are at most."""
    if axis.static is not None:
        return max(axis.static[1], 1)
    bounds = (axis.max_extent, problem.fact(axis.name).limit)
    return min((b for b in bounds if b), default=1)


# ---------------------------------------------------------------- legality


def _refuse(axis: ir.Axis, why: str, loc: Loc | None) -> NoReturn:
    raise Refused(
        Rule.CONFIG,
        f"{axis.user} cannot have a block: {why}",
        loc,
        f"leave the block of {axis.name} out; an ordered hl.grid loop can have one where it begins "
        "at 0, only carries values, and looks up whole blocks",
    )


def _check(problem: Problem, axis: ir.Axis) -> None:
    if integers.value_of(axis.begin) != 0:
        _refuse(axis, "it does not begin at 0", axis.loc)
    loop = next(s for s in ir.every_loop(problem.ir.body) if s.axis == axis.name)
    own = {axis.name} | {c.name for c in loop.carries}
    for stmt in (*loop.body, loop):
        if stmt is not loop and not isinstance(stmt, ir.Assign):
            what = f"a store to {stmt.tensor}" if isinstance(stmt, ir.Store) else "a loop"
            _refuse(axis, f"there is {what} in it", stmt.loc)
        for load in _moved(stmt, own):
            _refuse(axis, f"what it reads of {load.tensor} begins elsewhere every time", load.loc)
        if isinstance(stmt, ir.Assign) and _named(stmt.value) & own:
            own.add(stmt.name)


def _moved(stmt: ir.Stmt, own: set[str]) -> Iterator[ir.Load]:
    """Loads of tiles and rows whose place depends on the iteration."""
    for expr in statement_exprs(stmt):
        for load in ir.loads(expr):
            entries = (e for e in load.index if isinstance(e, ir.Along | ir.Gather))
            if any(_named(place) & own for e in entries for place in index_exprs(e)):
                yield load


def _named(expr: Expr) -> set[str]:
    """The names and grid loops that a value is made of."""
    grids = (e.axis for e in ir.walk(expr) if isinstance(e, ir.GridIndex))
    return {*ir.read_by((expr,)), *grids}


# ---------------------------------------------------------------- the loop


@dataclass(frozen=True)
class _Turn:
    """One of the iterations that are one now.

    live   whether there is such an iteration; None where there certainly is
    known  what the names of an iteration stand for here, those of carries too
    tops   the name of the maximum of all iterations
    ones   names of factors that are 1
    """

    index: Expr
    live: Expr | None
    known: dict[str, Expr] = field(default_factory=dict)
    tops: set[str] = field(default_factory=set)
    ones: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Turns:
    """One run over the loop: `most` iterations, `count` of them one; `body` is what was made."""

    loop: ir.Loop
    axis: ir.Axis
    count: int
    most: int
    taken: set[str]
    body: list[ir.Stmt] = field(default_factory=list)

    def made(self) -> ir.Loop:
        """The loop.  Nothing in it keeps its name: what is proved of values of an iteration does
        not hold of several.
        """
        turns = [self.turn(number) for number in range(self.count)]
        running = running_maximum(self.loop)
        if running is not None and running.lows is not None:
            carried = self.together(turns, running, running.lows)
        else:
            carried = self.in_order(turns, running)
        carries = (replace(c, next=carried[c.name]) for c in self.loop.carries)
        return replace(self.loop, body=tuple(self.body), carries=tuple(carries))

    @property
    def own(self) -> dict[str, Expr]:
        """What is carried into the loop's body."""
        return {c.name: ir.Var(c.name, c.init.type) for c in self.loop.carries}

    def others(self, names: Collection[str]) -> list[str]:
        """What the other statements make."""
        own = (s.name for s in self.loop.body if isinstance(s, ir.Assign))
        return [name for name in own if name not in names]

    def in_order(self, turns: Sequence[_Turn], running: RunningMaximum | None) -> dict[str, Expr]:
        """What is carried on of iterations one after the other."""
        carried, first = self.own, frozenset[str]()
        if running is not None:
            first = running.first | {running.next}
            self.state(turns, running.first)
            carried[running.carry] = self.largest(turns, running, carried[running.carry])
        rest = self.others(first)
        for number, turn in enumerate(turns):
            turn.known.update(carried if number else self.own)
            self.state([turn], rest)
            carried = self.after(turn, running, carried)
        return carried

    def together(
        self, turns: Sequence[_Turn], running: RunningMaximum, lows: str
    ) -> dict[str, Expr]:
        """What is carried on of iterations whose terms are added before they are summed.

        One that there is not has -inf for `lows`, with which what it adds is 0.
        """
        carried, known = self.own, {a.carry: a for a in running.added}
        carry = {c.name: c for c in self.loop.carries}
        self.state(turns, running.first - {lows})
        for turn in turns:
            self.lowered(turn, lows)
        value = running.value
        assert isinstance(value, ir.Apply)
        highest = self.folded("maximum", [t.known[lows] for t in turns], lows, value.loc)
        own, loc = carried[running.carry], carry[running.carry].loc
        larger = binary("maximum", own, replace(value, args=(highest,)), loc)
        largest = self.named(running.next, larger, loc)
        added = {c.next.name for c in self.loop.carries if isinstance(c.next, ir.Var)}
        for number, turn in enumerate(turns):
            turn.known.update(carried | {running.next: largest})
            turn.tops.add(largest.name)
            if number:
                turn.known[running.carry] = largest
            self.state([turn], self.others(running.first | {running.next} | added))
        carried[running.carry] = largest
        for name, each in known.items():
            total = self.added(turns, each)
            carried[name] = self.named(name, total, carry[name].loc, carry[name].user)
        return carried

    def lowered(self, turn: _Turn, lows: str) -> None:
        """States what the maximum is taken of: -inf where there is no such iteration."""
        stmt = next(s for s in self.loop.body if isinstance(s, ir.Assign) and s.name == lows)
        value = self.value(turn, stmt.value)
        match value:
            case _ if turn.live is None:
                pass
            case ir.Apply("where", (seen, a, ir.Const(low))) if low == -math.inf:
                seen = binary("logical_and", seen, turn.live, stmt.loc)
                value = where(seen, a, value.args[2], stmt.loc)
            case _:
                value = self.taken_of(turn, value, -math.inf, stmt.loc)
        turn.known[lows] = self.named(lows, value, stmt.loc, stmt.user)

    def added(self, turns: Sequence[_Turn], each: Added) -> Expr:
        """A carry, scaled once, with what all iterations add to it."""
        loc, term = each.term.loc, each.term
        total = self.value(turns[0], each.scaled)
        if term.op == "sum":
            terms = [self.value(t, term.args[0]) for t in turns]
            all_of_them = self.folded("add", terms, "terms", loc)
            return binary("add", total, replace(term, args=(all_of_them,)), loc)
        for turn in turns:
            left, right = (self.value(turn, a) for a in term.args)
            right = self.taken_of(turn, right, 0, loc)
            total = binary("add", total, replace(term, args=(left, right)), loc)
        return total

    def folded(self, op: str, values: Sequence[Expr], wish: str, loc: Site) -> Expr:
        """Values of all iterations, element by element."""
        found = values[0]
        for value in values[1:]:
            found = binary(op, found, value, loc)
        return found if len(values) < 2 else self.named(wish, found, self.axis.loc)

    def turn(self, number: int) -> _Turn:
        index = integers.mul(ir.GridIndex(self.axis.name), self.count)
        index = integers.add(index, integers.const(number))
        live = self.live(index, number)
        return _Turn(index, live if live is None else self.named("live", live, self.axis.loc))

    def live(self, index: Expr, number: int) -> Expr | None:
        """Whether there is such an iteration; None where there certainly is."""
        last = -(-self.most // self.count) * self.count - self.count + number
        ends = integers.value_of(self.axis.end) is None and number > 0
        tests = [binary("lt", index, self.axis.end, self.axis.loc)] if ends else []
        if last >= self.most:
            tests.append(integers.compare("lt", index, self.most))
        match tests:
            case [a, b]:
                return binary("logical_and", a, b, self.axis.loc)
            case [one]:
                return one
            case _:
                return None

    def named(self, wish: str, value: Expr, loc: Loc, user: str = "") -> ir.Var:
        name = take(wish, self.taken)
        self.body.append(ir.Assign(name, value, loc, user or wish))
        return ir.Var(name, value.type)

    def value(self, turn: _Turn, expr: Expr) -> Expr:
        """A value of an iteration, without factors that are 1."""

        def change(part: Expr) -> Expr | None:
            if isinstance(part, ir.GridIndex) and part.axis == self.axis.name:
                return turn.index
            return turn.known.get(part.name) if isinstance(part, ir.Var) else None

        return without_factors(rewrite(expr, change), turn.tops, turn.ones)

    def taken_of(self, turn: _Turn, value: Expr, other: Expr | float, loc: Site) -> Expr:
        """A value of an iteration, and another one where there is no such iteration."""
        if turn.live is None:
            return value
        made = where(turn.live, value, other, loc)
        chooses = isinstance(made, ir.Apply) and made.op == "where"  # and is no number
        return replace(made, masks=(("turn", self.axis.user),)) if chooses else made

    def state(self, turns: Sequence[_Turn], names: Collection[str]) -> None:
        """Adds the statements that make these names, for each of the iterations."""
        for turn in turns:
            for stmt in self.loop.body:
                if not isinstance(stmt, ir.Assign) or stmt.name not in names:
                    continue
                value = self.value(turn, stmt.value)
                turn.known[stmt.name] = made = self.named(stmt.name, value, stmt.loc, stmt.user)
                if is_one(value, turn.tops, turn.ones):
                    turn.ones.add(made.name)

    def largest(self, turns: Sequence[_Turn], running: RunningMaximum, largest: Expr) -> Expr:
        """The running maximum of all iterations, which each of them takes for its own."""
        carry = next(c for c in self.loop.carries if c.name == running.carry)
        for turn in turns:
            larger = binary("maximum", largest, self.value(turn, running.value), carry.loc)
            larger = self.taken_of(turn, larger, largest, carry.loc)
            largest = self.named(running.next, larger, carry.loc, carry.user)
        for turn in turns:
            turn.known[running.next] = largest
            if isinstance(largest, ir.Var):
                turn.tops.add(largest.name)
        return largest

    def after(
        self, turn: _Turn, running: RunningMaximum | None, carried: Mapping[str, Expr]
    ) -> dict[str, Expr]:
        """What is carried on: what was before, where there is no such iteration."""
        found = dict(carried)
        for carry in self.loop.carries:
            if running is not None and carry.name == running.carry:
                continue
            value = self.value(turn, carry.next)
            value = self.taken_of(turn, value, carried[carry.name], carry.loc)
            found[carry.name] = self.named(carry.name, value, carry.loc, carry.user)
        return found
