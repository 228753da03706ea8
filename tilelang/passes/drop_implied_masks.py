"""Drop implied masks: those of weights whose scores are masked already go.

    s = where(mask, ..., -inf); m = max(m_before, max(s)); p = where(mask, exp(s - m), 0)   ->
    s = where(mask, ..., -inf); m = max(m_before, max(s)); p = exp(s - m)

A masked lane has exp(-inf - m), which is 0 unless m is -inf or NaN.  Since m is at least every s of
the row, every lane of the row is NaN then, the unmasked ones too.  So what is summed or multiplied
over the row is the same with and without the mask, in a step that has an unmasked lane; steps that
have none are guarded where they could change anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from ..ir import Apply, Assign, Body, Const, Dim, Expr, Stmt, Var, children
from ..ir.chain import Chain, Level, chain_exprs, level_statements, map_chain
from ..ir.traversal import definitions, reduced, rewrite, rewrite_stmt

Values = Mapping[str, Expr]


def drop_implied_masks(levels: tuple[Level, ...], leaf: Body) -> Chain:
    """The chain without masks that decide nothing."""
    stmts = level_statements(levels, leaf)
    values = definitions(stmts)
    axes = {name: axis for name, value in values.items() if (axis := _implied(value, values))}
    elsewhere: set[str] = set()
    for expr in chain_exprs(levels, leaf):
        _other_uses(expr, axes, elsewhere)
    # Loops inside of the chain keep theirs: steps without lanes are guarded in the chain only.
    outside = {s.name for s in stmts if isinstance(s, Assign)}
    named = (axes.keys() & outside) - elsewhere

    def change(expr: Expr) -> Expr | None:
        args = tuple(rewrite(_unmasked(a, d, values), change) for a, d in _summed(expr))
        return replace(expr, args=args) if args else None

    def visit(stmt: Stmt) -> Body:
        if isinstance(stmt, Assign) and stmt.name in named:
            stmt = replace(stmt, value=_inner(stmt.value))
        return (rewrite_stmt(stmt, change),)

    return map_chain(levels, leaf, visit, lambda e: rewrite(e, change))


# ---------------------------------------------------------------- what is summed


def _summed(expr: Expr) -> list[tuple[Expr, Dim]]:
    """The arguments of a sum or a product, each with the dimension that is summed over."""
    if not isinstance(expr, Apply) or expr.op not in ("sum", "dot"):
        return []
    return [(arg, arg.type.shape[d]) for arg, d in reduced(expr)]


def _unmasked(expr: Expr, dim: Dim, values: Values) -> Expr:
    """The argument without a mask along the summed dimension that decides nothing."""
    if isinstance(expr, Apply) and expr.op == "cast":
        return replace(expr, args=(_unmasked(expr.args[0], dim, values),))
    return _inner(expr) if _implied(expr, values) == dim else expr


def _other_uses(expr: Expr, axes: Mapping[str, str], found: set[str]) -> None:
    """Collects the names that are used otherwise than to be summed over their masked dimension."""
    summed = _summed(expr)
    for child in children(expr):
        value = child
        while isinstance(value, Apply) and value.op == "cast":
            value = value.args[0]
        dim = next((d for a, d in summed if a is child), None)
        if not (isinstance(value, Var) and value.name in axes and axes[value.name] == dim):
            _other_uses(child, axes, found)
    if isinstance(expr, Var):
        found.add(expr.name)


# ---------------------------------------------------------------- what decides


def _inner(expr: Expr) -> Expr:
    assert isinstance(expr, Apply)
    return expr.args[1]


def _implied(expr: Expr, values: Values) -> str | None:
    """The axis of `where(mask of the axis, exp(s - m), 0)` in which the mask decides nothing."""
    match expr:
        case Apply("where", (mask, Apply("exp" | "exp2", (difference,)), Const(0))):
            axis = _range_of(mask)
        case _:
            return None
    match difference:
        case Apply("sub", (Var(name, value_type), peak)) if axis and axis in value_type.shape:
            place = value_type.shape.index(axis)
            sure = _never_seen(values.get(name), axis) and _is_peak(peak, name, place, values)
            return axis if sure else None
        case _:
            return None


def _range_of(mask: Expr) -> str | None:
    """The axis whose range is all that a mask asks for, along whatever dimension."""
    match mask:
        case Apply("in_range"):
            return str(mask.attr("axis"))
        case Apply("expand_dims" | "broadcast", (inner,)):
            return _range_of(inner)
        case _:
            return None


def _never_seen(value: Expr | None, axis: str) -> bool:
    """Whether a value is -inf in the lanes outside of the axis' range."""
    if not (isinstance(value, Apply) and value.op == "where"):
        return False
    mask, _, other = value.args
    return isinstance(other, Const) and other.value == -math.inf and _needs(mask, axis)


def _needs(mask: Expr, axis: str) -> bool:
    match mask:
        case Apply("logical_and", (left, right)):
            return _needs(left, axis) or _needs(right, axis)
        case _:
            return _range_of(mask) == axis


def _is_peak(expr: Expr, name: str, place: int, values: Values) -> bool:
    """Whether an expression is at least every element of `name` along the dimension `place`."""
    match expr:
        case Apply("expand_dims", (inner,)):
            return expr.attr("axis") == place and _is_peak(inner, name, place, values)
        case Apply("maximum", args):
            return any(_is_peak(a, name, place, values) for a in args)
        case Apply("max", (Var(found),)):
            return found == name and expr.attr("axis") == place
        case Var(other) if other in values:
            return _is_peak(values[other], name, place, values)
        case _:
            return False
