"""if statements: decided now on host values, turned into selects on values of the kernel.

if flags[i] > 0:        stores in it get the condition as a mask, loops an empty range where it
    v = -v              does not hold, and variables a select:  v = where(condition, -v, v)
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from operator import eq
from typing import Any

from ..errors import Loc, ParseError, TypingError
from ..ir import Apply, Const, Expr, Load, Var, walk
from ..language.build import unary, where
from ..language.values import as_expr
from .carries import alike, form, values_in
from .hosting import condition, is_value, on_device, really, under
from .positions import bound_extent
from .scope import Bound, Here, Left, Missing, Rules, assign, evaluate, execute, named, settled

Names = dict[str, Bound | Missing]


def if_(here: Here, node: ast.If) -> Left | None:
    loc = here.loc(node.test)
    answer = condition(loc, evaluate(here, node.test), "`if`")
    if isinstance(answer, bool):
        return execute(here, node.body if answer else node.orelse)
    if any(isinstance(e, Load) for e in walk(answer)):
        answer = assign(here, "condition", answer, loc)  # the branches may store to what it reads
    before = dict(here.frame.names)
    holds = _branch(here, node.body, answer, before, loc)
    fails = _branch(here, node.orelse, unary("logical_not", answer, loc), before, loc)
    for axis in holds.extents.keys() & fails.extents.keys():
        bound_extent(here, axis, max(holds.extents[axis], fails.extents[axis]), False)
    left = _left(here, _Choice("result", answer, (holds.when, fails.when), loc), holds, fails)
    if left is None:
        _merge(here, node, answer, holds, fails)
    return left


@dataclass(frozen=True)
class Branch:
    """What one branch gives.

    names    the variables after it
    when     its statements take effect
    left     how it was left
    extents  of axes that it indexes arrays with, as of a Draft
    """

    names: Names
    when: Expr
    left: Left | None
    extents: dict[str, int]


def _branch(here: Here, body: list[ast.stmt], answer: Expr, before: Names, loc: Loc) -> Branch:
    inner = under(here, answer, loc)
    assert inner.condition is not None
    here.frame.names.clear()
    here.frame.names.update(before)
    around = here.draft.perhaps.copy()
    here.draft.perhaps.clear()
    left = execute(inner, body)
    extents = here.draft.perhaps.copy()
    here.draft.perhaps.clear()
    here.draft.perhaps.update(around)
    return Branch(dict(here.frame.names), inner.condition, left, extents)


def _left(here: Here, choice: _Choice, holds: Branch, fails: Branch) -> Left | None:
    """How an `if` is left: by returns in both branches, whose values a select chooses between."""
    one, other = holds.left, fails.left
    if one is not None and other is not None and one.how == other.how == "return":
        pair = Bound(one.value, one.loc), Bound(other.value, other.loc)
        value = _select(here, choice, *pair)
        if isinstance(value, Bound):
            return Left("return", value.value, one.loc)
    left = one or other
    if left is not None:
        hint = "write an if with both branches, or hl.where"
        what = f"{left.how} under a condition that is not known while compiling"
        raise ParseError(what, left.loc, hint)
    return None


def _merge(here: Here, node: ast.If, answer: Expr, holds: Branch, fails: Branch) -> None:
    """Gives every variable that a branch assigns its value after the `if`."""
    live, loc = here.frame.live, here.loc(node, node.test)
    whens = (holds.when, fails.when)
    for user in live.assigned[node]:
        first, second = holds.names.get(user), fails.names.get(user)
        if first is second:
            merged = first
        elif user not in live.after[node] or first is None or second is None:
            what = f"{user} is assigned only in one branch of the `if` of line {node.lineno}"
            merged = Missing(what, f"give {user} a value before the `if`")
        elif isinstance(first, Missing) or isinstance(second, Missing):
            merged = first if isinstance(first, Missing) else second
        else:
            merged = _select(here, _Choice(user, answer, whens, loc), first, second)
        if merged is not None:
            here.frame.names[user] = merged


@dataclass(frozen=True)
class _Choice:
    """A variable that gets its value by a select."""

    user: str
    answer: Expr
    whens: tuple[Expr, Expr]
    loc: Loc


class _Different(Exception):
    """Two host values that no select can choose between."""


def _select(here: Here, choice: _Choice, first: Bound, second: Bound) -> Bound | Missing:
    try:
        value = _chosen(here, choice, first, second)
    except _Different:
        return Missing(
            f"{choice.user} is another host value in each branch of the `if` of line "
            f"{choice.loc.line}",
            "which branch is taken is not known while compiling: both give values of the kernel",
        )
    return Bound(named(here, choice.user, value, choice.loc), choice.loc)


def _chosen(here: Here, choice: _Choice, first: Bound, second: Bound) -> Any:
    a, b = first.value, second.value
    on_host = type(a) is type(b) and not on_device(a) and not on_device(b)
    if a is b or (on_host and really(choice.loc, eq, a, b)):
        return a
    if form(a) is not None and form(a) == form(b):
        pairs = zip(values_in(a), values_in(b), strict=True)
        both = ((Bound(x, first.loc), Bound(y, second.loc)) for x, y in pairs)
        return alike(here, a, (_chosen(here, choice, x, y) for x, y in both))
    if not all(is_value(v) or isinstance(v, bool | int | float) for v in (a, b)):
        raise _Different
    x, y = as_expr(a, first.loc), as_expr(b, second.loc)
    if x == y or _left_by_loop(here, x, y, choice.whens[0]):
        return a
    if _left_by_loop(here, y, x, choice.whens[1]):
        return b
    weak = any(isinstance(e, Const) and e.weak for e in (x, y))
    if x.type != y.type and not weak:
        what = f"{choice.user} is {x.type} in one branch and {y.type} in the other"
        raise TypingError(what, second.loc, "both branches must give it one shape and dtype")
    return settled(where(choice.answer, x, y, choice.loc))


def _left_by_loop(here: Here, value: Expr, other: Expr, when: Expr) -> bool:
    """Whether the value is carried by a loop whose range is empty unless `when`, from `other`."""
    if not isinstance(value, Var) or value.name not in here.draft.inits:
        return False
    init, guard = here.draft.inits[value.name]
    before = Const(other.value, other.type) if isinstance(other, Const) else other
    return init == before and _implies(guard, when)


def _implies(guard: Expr | None, when: Expr) -> bool:
    if guard is None or guard == when:
        return guard is not None
    return isinstance(guard, Apply) and guard.op == "logical_and" and _implies(guard.args[0], when)


RULES: Rules = {ast.If: if_}
