"""rankless(draft, body) -> the kernel with tensors without dimensions as arrays of one element.

s[()]           ->   s_one[0], a view of s         devices hold arrays of rank 1 and more
y[()] = v       ->   y_one[0] = v                  what is made is y_one, and y is a view of it
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import (
    At,
    Expr,
    Load,
    Loop,
    Stmt,
    Store,
    Tensor,
    View,
    map_children,
    map_index,
)
from ..ir.traversal import map_body, map_range, map_stmt
from .scope import Draft, integer

Names = dict[str, str]


def rankless(draft: Draft, body: tuple[Loop, ...]) -> tuple[Loop, ...]:
    """The loops, in which every tensor has a dimension; the draft gets the new tensors."""
    plain = [t for t in draft.tensors.values() if not t.shape]
    ones = {t.name: draft.unique(f"{t.name}_one") for t in plain}
    if not ones:
        return body
    every = [made for t in draft.tensors.values() for made in _declared(t, ones.get(t.name))]
    draft.tensors.clear()
    draft.tensors.update({t.name: t for t in every})
    draft.axes.update({n: map_range(a, lambda e: _value(e, ones)) for n, a in draft.axes.items()})
    changed = map_body(body, lambda stmt: _statement(stmt, ones))
    return tuple(s for s in changed if isinstance(s, Loop))


def _declared(tensor: Tensor, one: str | None) -> tuple[Tensor, ...]:
    """The tensor and its other form, of which one is a view of the other."""
    if one is None:
        return (tensor,)
    if tensor.role == "output":
        back = replace(tensor, role="view", view=View(one, "reshape", ()), fill=None)
        return replace(tensor, name=one, shape=(1,)), back
    view = View(tensor.name, "reshape", (1,))
    return tensor, replace(tensor, name=one, shape=(1,), role="view", view=view)


def _statement(stmt: Stmt, ones: Names) -> tuple[Stmt, ...]:
    stmt = map_stmt(
        stmt, lambda e: _value(e, ones), lambda i: map_index(i, lambda e: _value(e, ones))
    )
    if isinstance(stmt, Store) and stmt.tensor in ones:
        stmt = replace(stmt, tensor=ones[stmt.tensor], index=(At(integer(0)),))
    return (stmt,)


def _value(expr: Expr, ones: Names) -> Expr:
    expr = map_children(expr, lambda e: _value(e, ones))
    if isinstance(expr, Load) and expr.tensor in ones:
        return replace(expr, tensor=ones[expr.tensor], index=(At(integer(0)),))
    return expr
