"""What a kernel returns, and the tensors, loops and axes that are left of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

from ..errors import Loc, ParseError
from ..ir import (
    Axis,
    Expr,
    Load,
    Loop,
    Stmt,
    Store,
    Tensor,
    Var,
    statement_exprs,
    statements,
    walk,
)
from ..language.handles import TensorHandle
from .hosting import is_value, kind_of
from .scope import Draft, Left

Structure = Literal["none", "single", "tuple", "list"]


def returned(left: Left | None) -> tuple[Structure, tuple[str, ...]]:
    """How the author returned tensors, and which."""
    if left is None or left.value is None:
        return "none", ()
    match left.value:
        case TensorHandle(tensor):
            return "single", (tensor.name,)
        case tuple() | list():
            structure: Structure = "list" if isinstance(left.value, list) else "tuple"
            return structure, tuple(_tensor(v, left.loc) for v in left.value)
    return "single", (_tensor(left.value, left.loc),)


def _tensor(value: Any, loc: Loc) -> str:
    if isinstance(value, TensorHandle):
        return value.tensor.name
    hint = "a kernel returns tensors: inputs, outputs and views of them"
    if is_value(value):
        raise ParseError("a value is returned", loc, f"store it to an output; {hint}")
    shown = repr(value) if isinstance(value, int | float | str) else kind_of(value)
    raise ParseError(f"{shown} is returned", loc, hint)


# ---------------------------------------------------------------- what is left


def launches(body: Iterable[Stmt]) -> tuple[Loop, ...]:
    """The top-level loops that store something; the others change nothing."""
    return tuple(s for s in _effective(tuple(body)) if isinstance(s, Loop))


def _effective(body: tuple[Stmt, ...]) -> Iterator[Stmt]:
    """Statements without loops that neither store nor leave a value."""
    for stmt in body:
        if not isinstance(stmt, Loop):
            yield stmt
            continue
        inner = tuple(_effective(stmt.body))
        stores = any(isinstance(s, Store) for s in statements(inner))
        if stores or stmt.carries:
            yield replace(stmt, body=inner)


def used_axes(draft: Draft, body: tuple[Loop, ...]) -> tuple[Axis, ...]:
    """The axes of the loops that are left, outermost first."""
    kept = {s.axis for s in statements(body) if isinstance(s, Loop)}
    return tuple(a for a in draft.axes.values() if a.name in kept)


def used_tensors(
    draft: Draft, body: tuple[Loop, ...], returns: tuple[str, ...]
) -> tuple[Tensor, ...]:
    """Parameters, and the outputs and views that are read, stored to or returned."""
    wanted = {*returns, *_touched(draft, body)}
    for tensor in reversed(draft.tensors.values()):
        if tensor.view is not None and tensor.name in wanted:
            wanted.add(tensor.view.source)
    return tuple(t for t in draft.tensors.values() if t.role == "input" or t.name in wanted)


def _touched(draft: Draft, body: tuple[Loop, ...]) -> Iterator[str]:
    for stmt in statements(body):
        if isinstance(stmt, Store):
            yield stmt.tensor
        for expr in _expressions(draft, stmt):
            yield from (e.tensor for e in walk(expr) if isinstance(e, Load))


def _expressions(draft: Draft, stmt: Stmt) -> Iterator[Expr]:
    yield from statement_exprs(stmt)
    if isinstance(stmt, Loop):
        axis = draft.axes[stmt.axis]
        yield from (axis.begin, axis.end)


# ---------------------------------------------------------------- checks of the whole


def check_reads(draft: Draft, body: tuple[Loop, ...]) -> None:
    """What is evaluated where it is used, not where it is written, may not change in between."""
    stored = {_root(draft, s.tensor) for s in statements(body) if isinstance(s, Store)}
    for name, loc in draft.again:
        if name in stored:
            hint = f"read the number first, as in start = {name}[...], and add the tile to that"
            raise ParseError(f"{name} is stored to, and this index is read from it", loc, hint)
    for name, loc in draft.early:
        if name in stored:
            hint = "read it inside of the loop that needs it"
            raise ParseError(f"{name} is read before the loops, and a loop stores to it", loc, hint)


def _root(draft: Draft, name: str) -> str:
    view = draft.tensors[name].view
    return name if view is None else _root(draft, view.source)


def check_scopes(draft: Draft, body: tuple[Stmt, ...], known: frozenset[str] = frozenset()) -> None:
    """No value of a loop is used outside of it, by way of a list for example."""
    for stmt in body:
        names = {e.name for x in _expressions(draft, stmt) for e in walk(x) if isinstance(e, Var)}
        if isinstance(stmt, Loop):
            inside = {c.name for c in stmt.carries}
            lasting = _defined(stmt.body)
            names -= lasting
            check_scopes(draft, stmt.body, known | inside)
            names -= inside
            known |= {c.out for c in stmt.carries}
        elif not isinstance(stmt, Store):
            known |= {stmt.name}
            names -= {stmt.name}
        if not names <= known:
            hint = "give it to a variable that exists before the loop"
            raise ParseError("a value of a loop is used after the loop", stmt.loc, hint)


def _defined(body: tuple[Stmt, ...]) -> set[str]:
    """Names that a carry's `next` may read: those at the end of the body."""
    outs = {c.out for s in body if isinstance(s, Loop) for c in s.carries}
    return outs | {s.name for s in body if not isinstance(s, Loop | Store)}
