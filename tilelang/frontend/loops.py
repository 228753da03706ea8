"""for statements: hl.grid and hl.tile become loops of the kernel, all others are written out.

for tm, tn in hl.tile([M, N]): ...     Loop tm (Loop tn (...))
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import Loc, ParseError
from ..ir import Axis, GridIndex, Loop
from ..language.build import where
from ..language.calls import marker
from ..language.handles import TileHandle
from . import observed
from .axes import declare, finish, ranges
from .carries import carried, enter, fill_in, forget, leave, refused
from .containers import counted, items, mapping, unpack
from .markers import arguments
from .scope import Bound, Here, Left, evaluate, execute
from .unrolled import iterated

_INSTEAD = {
    "break": "end the range earlier, as in hl.tile(begin, min(end, stop))",
    "continue": "write an `if` around the rest of the body",
    "return": "store to an output, and return it after the loops",
}


def for_(here: Here, node: ast.For) -> Left | None:
    if node.orelse:
        hint = "write it after the loop, without else"
        raise ParseError("else after a loop is not in the language", here.loc(node.orelse[0]), hint)
    if isinstance(node.iter, ast.Call):
        kind = marker(evaluate(here, node.iter.func))
        if kind in ("grid", "tile"):
            return _of_kernel(here, node, node.iter, kind)
    return _written_out(here, node)


def _written_out(here: Here, node: ast.For) -> Left | None:
    for item in iterated(here.loc(node.iter), evaluate(replace(here, wish=None), node.iter)):
        unpack(here, node.target, item)
        left = execute(here, node.body)
        if left is not None and left.how == "return":
            return left
        if left is not None and left.how == "break":
            break
    return None


# ---------------------------------------------------------------- loops of the kernel


def _of_kernel(here: Here, node: ast.For, call: ast.Call, kind: str) -> None:
    loc = here.loc(node, node.iter)
    given = _arguments(here, call, kind)
    asked = ranges(here.loc(call), kind, given)
    users = _targets(here, node.target, len(asked))
    axes = [declare(here, kind, u, r, loc) for u, r in zip(users, asked, strict=True)]
    if here.condition is not None:
        _guard(here, axes[0], loc)
    wanted = carried(here, node)
    fill_in(here, wanted)
    uncarried = refused(here, wanted, node.lineno)
    here.frame.names.update(uncarried)
    kept = [n for n in wanted if isinstance(here.frame.names.get(n), Bound)]
    _nest(here, _Nest(node, axes, kept, loc), axes)
    forget(here, node, [n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)], kept)
    here.frame.names.update(uncarried)


def _arguments(here: Here, call: ast.Call, kind: str) -> dict[str, Any]:
    kwargs: dict[str, Any] = {}
    for keyword in call.keywords:
        value = evaluate(here, keyword.value)
        if keyword.arg is None:
            kwargs.update(mapping(here.loc(keyword.value), value))
        else:
            kwargs[keyword.arg] = value
    args = [observed.whole(arg) for arg in items(here, call.args)]
    named = {name: observed.whole(value) for name, value in kwargs.items()}
    return arguments(kind, here.loc(call), args, named)


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
        raise ParseError(f"{counted(len(names), 'name')} for {axes}", here.loc(target))
    return names


def _guard(here: Here, axis: Axis, loc: Loc) -> None:
    """Under a dynamic `if` the range is empty where the condition does not hold."""
    assert here.condition is not None
    end = where(here.condition, axis.end, axis.begin, loc)
    here.draft.axes[axis.name] = replace(axis, end=end)


@dataclass(frozen=True)
class _Nest:
    """The loops of one statement: its axes, and the variables that they carry."""

    node: ast.For
    axes: Sequence[Axis]
    kept: Sequence[str]
    loc: Loc


def _nest(here: Here, nest: _Nest, axes: Sequence[Axis]) -> None:
    """One loop, in which the rest of the axes and then the body are."""
    axis, *rest = axes
    entries = enter(here, nest.kept)
    around = (*here.loops, axis.name)
    inner = replace(here, into=[], loops=around, condition=None, wish=None)
    if rest:
        _nest(inner, nest, rest)
    else:
        _body(inner, nest)
    carries = leave(here, entries, nest.loc)
    finish(here, axis.name)
    here.into.append(Loop(axis.name, tuple(inner.into), carries, nest.loc))


def _body(here: Here, nest: _Nest) -> None:
    _bind_targets(here, nest)
    left = execute(here, nest.node.body)
    if left is not None:
        raise ParseError(f"{left.how} in a loop of the kernel", left.loc, _INSTEAD[left.how])


def _bind_targets(here: Here, nest: _Nest) -> None:
    target, values = nest.node.target, [_index(a) for a in nest.axes]
    loc = here.loc(target)
    if isinstance(target, ast.Name):
        value = values[0] if len(values) == 1 else tuple(values)
        here.frame.names[target.id] = Bound(value, loc)
        return
    nodes = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    for name, value in zip(nodes, values, strict=True):
        assert isinstance(name, ast.Name)
        here.frame.names[name.id] = Bound(value, loc)


def _index(axis: Axis) -> object:
    return GridIndex(axis.name) if axis.kind == "grid" else TileHandle(axis.name, axis.user)


STATEMENTS: Mapping[type[ast.stmt], Callable[[Here, Any], Left | None]] = {ast.For: for_}
