"""phrase(expr, known, number) -> str: an index expression in the author's words.

phrase(offsets[g + 1], known)                     "offsets[g + 1]"
phrase(offsets[g + 1], known, number=at g = 3)    "offsets[4]"
settled(min(offsets[g + 1], tile.end), number)    offsets[g + 1]
"""

from __future__ import annotations

from collections.abc import Callable

from ..ir import (
    Along,
    Apply,
    At,
    Const,
    Expr,
    Gather,
    GridIndex,
    Index,
    Load,
    Span,
    TileIndex,
    TileScalar,
    Var,
    map_children,
)
from .pointwise import Scope

Number = Callable[[Expr | Along], int | None]

INFIX = {"add": ("+", 1), "sub": ("-", 1), "mul": ("*", 2), "floordiv": ("//", 2), "mod": ("%", 2)}
NAMED = {"minimum": "min", "maximum": "max"}


def symbolic(_: Expr | Along) -> None:
    """No numbers: axes are printed by name."""


def phrase(expr: Expr, known: Scope, number: Number = symbolic) -> str:
    """The expression as text; `number` gives the value of axes and of indices, where known."""
    return _text(expr, known, number, 0)


def _text(expr: Expr, known: Scope, number: Number, binds: int) -> str:
    match expr:
        case Const(value):
            return str(value)
        case Var(name):
            value = known.definitions.get(name)
            return name if value is None else _text(value, known, number, binds)
        case GridIndex(axis) | TileIndex(axis):
            value = number(expr)
            suffix = ".index" if isinstance(expr, TileIndex) else ""
            return f"{known.ir.axis(axis).user}{suffix}" if value is None else str(value)
        case TileScalar(axis, what):
            return f"{known.ir.axis(axis).user}.{what}"
        case Load(tensor, index):
            view = known.ir.tensor(tensor).view
            if view is not None and not known.ir.tensor(view.source).shape:
                return view.source  # the number that a tensor without dimensions holds
            return f"{tensor}[{', '.join(_index(i, known, number) for i in index)}]"
        case Apply():
            return _apply(expr, known, number, binds)


def _index(index: Index, known: Scope, number: Number) -> str:
    match index:
        case At(expr) | Gather(expr):
            value = number(expr)
            return phrase(expr, known, number) if value is None else str(value)
        case Along(axis, offset):
            value = number(index)
            moved = "" if offset is None else f" + {phrase(offset, known, number)}"
            return f"{known.ir.axis(axis).user}{moved}" if value is None else str(value)
        case Span(start, stop):
            return f"{start}:{stop}"


def _apply(expr: Apply, known: Scope, number: Number, binds: int) -> str:
    if expr.op == "cast":
        return _text(expr.args[0], known, number, binds)
    if expr.op in INFIX:
        sign, strength = INFIX[expr.op]
        left, right = expr.args
        inner = f"{_text(left, known, number, strength)} {sign} "
        inner += _text(right, known, number, strength + 1)
        return f"({inner})" if strength < binds else inner
    name = NAMED.get(expr.op, expr.op)
    return f"{name}({', '.join(_text(a, known, number, 0) for a in expr.args)})"


def settled(expr: Expr, number: Number) -> Expr:
    """The expression without the arms of selects, minima and maxima that do not matter here."""
    chosen = _chosen(expr, number) if isinstance(expr, Apply) else None
    if chosen is not None:
        return settled(chosen, number)
    return map_children(expr, lambda e: settled(e, number))


def _chosen(expr: Apply, number: Number) -> Expr | None:
    if expr.op == "where":
        condition = number(expr.args[0])
        return None if condition is None else expr.args[1 if condition else 2]
    if expr.op not in NAMED:
        return None
    arms = [(number(arm), arm) for arm in expr.args]
    known = [(value, arm) for value, arm in arms if value is not None]
    pick = min if expr.op == "minimum" else max
    return pick(known, key=lambda pair: pair[0])[1] if known else None
