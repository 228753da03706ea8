"""for statements: hl.grid and hl.tile become loops of the kernel, all others are written out.

`while` is written out, too: whether it goes on is known while compiling.

for tm, tn in hl.tile([M, N]): ...     Loop tm (Loop tn (...))
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..errors import Loc, ParseError
from ..ir import Axis, GridIndex, Loop
from ..language.build import where
from ..language.calls import marker
from ..language.handles import TileHandle
from . import observed
from .axes import declare, finish, ranges
from .carries import carried, enter, fill_in, forget, leave, refused
from .containers import items, keywords, unpack
from .hosting import MOST, condition, counted, iterated
from .markers import arguments
from .scope import Arguments, Bound, Here, Left, Rules, evaluate, execute

_INSTEAD = {
    "break": "end the range earlier, as in hl.tile(begin, min(end, stop))",
    "continue": "write an `if` around the rest of the body",
    "return": "store to an output, and return it after the loops",
}


def for_(here: Here, node: ast.For) -> Left | None:
    _check_else(here, node)
    if isinstance(node.iter, ast.Call):
        kind = marker(evaluate(here, node.iter.func))
        if kind == "grid" or kind == "tile":
            return _of_kernel(here, node, node.iter, kind)
    for item in iterated(here.loc(node.iter), evaluate(replace(here, wish=None), node.iter)):
        unpack(here, node.target, item)
        left = execute(here, node.body)
        if left is not None and left.how != "continue":
            return left if left.how == "return" else None
    return None


def while_(here: Here, node: ast.While) -> Left | None:
    _check_else(here, node)
    loc = here.loc(node.test)
    for _ in range(MOST):
        answer = condition(loc, evaluate(replace(here, wish=None), node.test), "`while`")
        if not isinstance(answer, bool):
            hint = "loop with hl.grid or hl.tile and a mask, or range(...) of known length"
            raise ParseError("`while` goes on by what is not known while compiling", loc, hint)
        left = execute(here, node.body) if answer else Left("break", None, loc)
        if left is not None and left.how != "continue":
            return left if left.how == "return" else None
    hint = "hl.grid or hl.tile makes a loop in the kernel"
    raise ParseError(f"a Python loop of over {MOST} iterations would be unrolled", loc, hint)


def _check_else(here: Here, node: ast.For | ast.While) -> None:
    if node.orelse:
        hint = "write it after the loop, without else"
        raise ParseError("else after a loop is not in the language", here.loc(node.orelse[0]), hint)


# ---------------------------------------------------------------- loops of the kernel


def _of_kernel(here: Here, node: ast.For, call: ast.Call, kind: Literal["grid", "tile"]) -> None:
    loc, at = here.loc(node, node.iter), here.loc(call)
    named = {name: observed.plain(v) for name, v in keywords(here, call.keywords).items()}
    args = [observed.plain(arg) for arg in items(here, call.args)]
    asked = ranges(at, kind, arguments(kind, Arguments(args, named, at, f"hl.{kind}")))
    users = _targets(here, node.target, len(asked))
    for user in users:
        _check_free(here, node.target, user)
    axes = [declare(here, kind, u, r, loc) for u, r in zip(users, asked, strict=True)]
    if here.condition is not None:  # the range is empty where the condition does not hold
        outer = axes[0]
        end = where(here.condition, outer.end, outer.begin, loc)
        here.draft.axes[outer.name] = replace(outer, end=end)
    wanted = carried(here, node)
    fill_in(here, wanted)
    uncarried = refused(here, wanted, node.lineno)
    here.frame.names.update(uncarried)
    kept = [n for n in wanted if isinstance(here.frame.names.get(n), Bound)]
    _nest(here, _LoopsOfStatement(node, axes, kept, loc), axes)
    forget(here, node, _names(node.target), kept)
    here.frame.names.update(uncarried)


def _targets(here: Here, target: ast.expr, number: int) -> list[str]:
    """The author's name of each axis; one name for several axes holds a tuple of tiles."""
    if isinstance(target, ast.Name):
        return [target.id] * number
    nodes = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    names = [n.id for n in nodes if isinstance(n, ast.Name)]
    if len(names) != len(nodes):
        raise ParseError("the target of a loop is a name for each axis", here.loc(target))
    if len(names) != number:
        axes = "1 axis" if number == 1 else f"{number} axes"
        hint = "a list of bounds makes a loop of each: for a, b in hl.tile([n, m])"
        raise ParseError(f"{counted(len(names), 'name')} for {axes}", here.loc(target), hint)
    if len(set(names) - {"_"}) + names.count("_") != number:
        what = "one name is the index of two loops"
        raise ParseError(what, here.loc(target), "give each loop a name of its own")
    return names


def _check_free(here: Here, target: ast.expr, name: str) -> None:
    """ParseError for the name of a loop around, whose index nothing inside could name any more."""
    match here.frame.names.get(name):
        case Bound(TileHandle(axis) | GridIndex(axis)) if axis in here.loops and name != "_":
            line = here.draft.axes[axis].loc.line
            what = f"{name} is the index of the loop of line {line} around this one too"
            raise ParseError(what, here.loc(target), "give each loop a name of its own")
        case _:
            pass  # any other name may be used anew


@dataclass(frozen=True)
class _LoopsOfStatement:
    """The loops of one statement: its axes, and the variables that they carry."""

    node: ast.For
    axes: Sequence[Axis]
    kept: Sequence[str]
    loc: Loc


def _nest(here: Here, nest: _LoopsOfStatement, axes: Sequence[Axis]) -> None:
    """One loop, in which the rest of the axes and then the body are."""
    axis, *rest = axes
    entries = enter(here, nest.kept)
    around = (*here.loops, axis.name)
    inner = replace(here, into=[], loops=around, condition=None, wish=None)
    if rest:
        _nest(inner, nest, rest)
    else:
        _bind_targets(inner, nest)
        left = execute(inner, nest.node.body)
        if left is not None:
            raise ParseError(f"{left.how} in a loop of the kernel", left.loc, _INSTEAD[left.how])
    carries = leave(here, entries, nest.loc)
    finish(here, axis.name)
    here.into.append(Loop(axis.name, tuple(inner.into), carries, nest.loc))


def _bind_targets(here: Here, nest: _LoopsOfStatement) -> None:
    values: list[object] = [
        GridIndex(a.name) if a.kind == "grid" else TileHandle(a.name, a.user) for a in nest.axes
    ]
    target, loc = nest.node.target, here.loc(nest.node.target)
    if isinstance(target, ast.Name):
        value = values[0] if len(values) == 1 else tuple(values)
        here.frame.names[target.id] = Bound(value, loc)
        return
    for name, value in zip(_names(target), values, strict=True):
        here.frame.names[name] = Bound(value, loc)


def _names(target: ast.expr) -> list[str]:
    return [n.id for n in ast.walk(target) if isinstance(n, ast.Name)]


RULES: Rules = {ast.For: for_, ast.While: while_}
