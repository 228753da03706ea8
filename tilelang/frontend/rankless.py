"""rankless(draft, body) -> the kernel with tensors without dimensions as arrays of one element.

s[()]           ->   s_one[0], a view of s         devices hold arrays of rank 1 and more
y[()] = v       ->   y_one[0] = v                  what is made is y_one, and y is a view of it
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import (
    At,
    Axis,
    Expr,
    Load,
    Loop,
    Stmt,
    Store,
    Tensor,
    View,
    map_carries,
    map_children,
    map_index,
)
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
    draft.axes.update({n: _axis(a, ones) for n, a in draft.axes.items()})
    return tuple(_loop(loop, ones) for loop in body)


def _declared(tensor: Tensor, one: str | None) -> tuple[Tensor, ...]:
    """The tensor and its other form, of which one is a view of the other."""
    if one is None:
        return (tensor,)
    if tensor.role == "output":
        back = replace(tensor, role="view", view=View(one, "reshape", ()), fill=None)
        return replace(tensor, name=one, shape=(1,)), back
    view = View(tensor.name, "reshape", (1,))
    return tensor, replace(tensor, name=one, shape=(1,), role="view", view=view)


def _axis(axis: Axis, ones: Names) -> Axis:
    return replace(axis, begin=_value(axis.begin, ones), end=_value(axis.end, ones))


def _loop(loop: Loop, ones: Names) -> Loop:
    carries = map_carries(loop.carries, lambda e: _value(e, ones))
    return replace(loop, carries=carries, body=tuple(_statement(s, ones) for s in loop.body))


def _statement(stmt: Stmt, ones: Names) -> Stmt:
    match stmt:
        case Loop():
            return _loop(stmt, ones)
        case Store():
            mask = None if stmt.mask is None else _value(stmt.mask, ones)
            index = tuple(map_index(i, lambda e: _value(e, ones)) for i in stmt.index)
            moved = replace(stmt, index=index, value=_value(stmt.value, ones), mask=mask)
            one = ones.get(stmt.tensor)
            return moved if one is None else replace(moved, tensor=one, index=(At(integer(0)),))
        case _:
            return replace(stmt, value=_value(stmt.value, ones))


def _value(expr: Expr, ones: Names) -> Expr:
    expr = map_children(expr, lambda e: _value(e, ones))
    if isinstance(expr, Load) and expr.tensor in ones:
        return replace(expr, tensor=ones[expr.tensor], index=(At(integer(0)),))
    return expr
