"""What a kernel returns, and the tensors, loops and axes that are left of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

from .. import ir
from ..errors import Loc, ParseError
from ..ir.integers import const
from ..language.handles import TensorHandle
from .hosting import is_value, kind_of
from .scope import Draft, Left

Structure = Literal["none", "single", "tuple", "list"]


def returned(left: Left | None) -> tuple[Structure, tuple[str, ...]]:
    """How the author returned tensors, and which."""
    if left is None or left.value is None:
        return "none", ()
    if isinstance(left.value, tuple | list):
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


def launches(body: Iterable[ir.Stmt]) -> tuple[ir.Loop, ...]:
    """The top-level loops that store something; the others change nothing."""
    return tuple(s for s in _effective(tuple(body)) if isinstance(s, ir.Loop))


def _effective(body: tuple[ir.Stmt, ...]) -> Iterator[ir.Stmt]:
    """Statements without loops that neither store nor leave a value."""
    for stmt in body:
        if not isinstance(stmt, ir.Loop):
            yield stmt
            continue
        inner = tuple(_effective(stmt.body))
        if stmt.carries or any(isinstance(s, ir.Store) for s in ir.statements(inner)):
            yield replace(stmt, body=inner)


def used_axes(draft: Draft, body: tuple[ir.Loop, ...]) -> tuple[ir.Axis, ...]:
    """The axes of the loops that are left, outermost first."""
    kept = {loop.axis for loop in ir.every_loop(body)}
    return tuple(a for a in draft.axes.values() if a.name in kept)


def used_tensors(
    draft: Draft, body: tuple[ir.Loop, ...], returns: tuple[str, ...]
) -> tuple[ir.Tensor, ...]:
    """Parameters, and the outputs and views that are read, stored to or returned."""
    wanted = {*returns, *(s.tensor for s in ir.every_store(body))}
    every = ir.every_expr(body, used_axes(draft, body))
    wanted |= {e.tensor for e in every if isinstance(e, ir.Load)}
    for tensor in reversed(draft.tensors.values()):
        if tensor.view is not None and tensor.name in wanted:
            wanted.add(tensor.view.source)
    return tuple(t for t in draft.tensors.values() if t.role == "input" or t.name in wanted)


# ---------------------------------------------------------------- checks of the whole


def check_reads(draft: Draft, body: tuple[ir.Loop, ...]) -> None:
    """What is evaluated where it is used, not where it is written, may not change in between."""
    stored = {draft.root(s.tensor).name for s in ir.every_store(body)}
    for name, loc in draft.again:
        if name in stored:
            hint = f"read the number first, as in start = {name}[...], and add the tile to that"
            raise ParseError(f"{name} is stored to, and this index is read from it", loc, hint)
    for name, loc in draft.early:
        if name in stored:
            hint = "read it inside of the loop that needs it"
            raise ParseError(f"{name} is read before the loops, and a loop stores to it", loc, hint)


def check_scopes(
    draft: Draft, body: tuple[ir.Stmt, ...], known: frozenset[str] = frozenset()
) -> None:
    """No value of a loop is used outside of it, by way of a list for example."""
    for stmt in body:
        ranges = (draft.axes[stmt.axis],) if isinstance(stmt, ir.Loop) else ()
        names = set(ir.read_by((*ir.statement_exprs(stmt), *ir.edges_of(ranges))))
        if isinstance(stmt, ir.Loop):
            inside = {c.name for c in stmt.carries}
            names -= _defined(stmt.body)
            check_scopes(draft, stmt.body, known | inside)
            names -= inside
            known |= {c.out for c in stmt.carries}
        elif isinstance(stmt, ir.Assign):
            known |= {stmt.name}
            names -= {stmt.name}
        if not names <= known:
            hint = "give it to a variable that exists before the loop"
            raise ParseError("a value of a loop is used after the loop", stmt.loc, hint)


def _defined(body: tuple[ir.Stmt, ...]) -> set[str]:
    """Names that a carry's `next` may read: those at the end of the body."""
    outs = {c.out for s in body if isinstance(s, ir.Loop) for c in s.carries}
    return outs | {s.name for s in body if isinstance(s, ir.Assign)}


# ---------------------------------------------------------------- tensors without dimensions


def rankless(draft: Draft, body: tuple[ir.Loop, ...]) -> tuple[ir.Loop, ...]:
    """The loops with tensors without dimensions as arrays of one element; the draft gets those.

    s[()]           ->   s_one[0], a view of s       devices hold arrays of rank 1 and more
    y[()] = v       ->   y_one[0] = v                what is made is y_one, and y is a view of it
    """
    plain = [t for t in draft.tensors.values() if not t.shape]
    ones = {t.name: draft.unique(f"{t.name}_one") for t in plain}
    if not ones:
        return body
    first = (ir.At(const(0)),)

    def load(expr: ir.Expr) -> ir.Expr | None:
        if not isinstance(expr, ir.Load) or expr.tensor not in ones:
            return None
        mask = None if expr.mask is None else ir.rewrite(expr.mask, load)
        return replace(expr, tensor=ones[expr.tensor], index=first, mask=mask)

    def store(stmt: ir.Stmt) -> tuple[ir.Stmt, ...]:
        if isinstance(stmt, ir.Store) and stmt.tensor in ones:
            stmt = replace(stmt, tensor=ones[stmt.tensor], index=first)
        return (stmt,)

    every = [made for t in draft.tensors.values() for made in _declared(t, ones.get(t.name))]
    draft.tensors.clear()
    draft.tensors.update({t.name: t for t in every})
    for name, axis in draft.axes.items():
        draft.axes[name] = ir.map_range(axis, lambda bound: ir.rewrite(bound, load))
    changed = ir.map_body(ir.rewrite_body(body, load), store)
    return tuple(s for s in changed if isinstance(s, ir.Loop))


def _declared(tensor: ir.Tensor, one: str | None) -> tuple[ir.Tensor, ...]:
    """The tensor and its other form, of which one is a view of the other."""
    if one is None:
        return (tensor,)
    if tensor.role == "output":
        back = replace(tensor, role="view", view=ir.View(one, "reshape", ()), fill=None)
        return replace(tensor, name=one, shape=(1,)), back
    view = ir.View(tensor.name, "reshape", (1,))
    return tensor, replace(tensor, name=one, shape=(1,), role="view", view=view)
