"""simplified(term) -> term: the same value, computed with less; what differentiation leaves behind.

x * 1        x                 transpose(transpose(x))              x
x + 0        x                 squeeze(sum(x, keepdim=True))        sum(x)
where(c, where(c, x, y), z)    where(c, x, z)
broadcast(x) * y               x * y, where y has the whole shape
cast(cast(x, wide), own)       x, of the dtype that it had
A number that is repeated counts as the number, in any shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ..errors import TypingError
from ..ir import Apply, Const, Expr
from ..language.dtypes import is_float, itemsize
from ..language.shapes import broadcast, full, transpose
from ..language.values import broadcast_shapes

Look = Callable[[Expr], Any]  # a name -> what it stands for
BROADCASTING = frozenset(
    ["add", "sub", "mul", "div", "where", "minimum", "maximum", "eq", "lt", "le", "gt", "ge"]
)


def simplified(term: Expr, look: Look) -> Expr:
    """The same value; `look` says what a name stands for."""
    if not isinstance(term, Apply):
        return term
    if term.op in BROADCASTING:
        term = _without_broadcasts(term, look)
    match term.op, term.args:
        case (("expand_dims" | "squeeze" | "transpose" | "broadcast"), (x,)) if _is_full(look(x)):
            return replace(look(x), type=term.type)
        case (("log" | "log2"), (x,)) if _repeated(x, look) == 1:
            return full(term.type.shape, 0.0, term.type.dtype, term.loc)
        case (("mul" | "div"), (x, y)) if _repeated(y, look) == 1:
            return broadcast(x, term.type.shape, term.loc) if _same(x, term) else term
        case (("add" | "sub"), (x, y)) if _repeated(y, look) == 0:
            return broadcast(x, term.type.shape, term.loc) if _same(x, term) else term
        case "cast", (x,):
            return _back(term, look(x))
        case "transpose", (x,):
            return _turned(term, look(x))
        case "squeeze", (x,):
            return _squeezed(term, look(x))
        case "expand_dims", (x,):
            inner = look(x)
            same = isinstance(inner, Apply) and inner.op == "squeeze" and inner.attrs == term.attrs
            return inner.args[0] if same else term
        case "neg", (x,):
            inner = look(x)
            return inner.args[0] if isinstance(inner, Apply) and inner.op == "neg" else term
        case "where", (condition, x, y):
            return _selected(term, condition, look(x), look(y))
        case (("mul" | "div"), (x, Const(1 | 1.0))) if x.type == term.type:
            return x
        case "mul", (Const(1 | 1.0), x) if x.type == term.type:
            return x
        case (("add" | "sub"), (x, Const(0 | 0.0))) if x.type == term.type:
            return x
        case "add", (Const(0 | 0.0), x) if x.type == term.type:
            return x
        case _:
            return term


def _is_full(inner: Any) -> bool:
    return isinstance(inner, Apply) and inner.op == "full" and not inner.args


def _repeated(expr: Expr, look: Look) -> float | int | None:
    """The number that an array repeats."""
    inner = look(expr)
    return inner.attr("value") if _is_full(inner) else None


def _same(x: Expr, term: Apply) -> bool:
    return x.type.dtype == term.type.dtype


def _back(term: Apply, inner: Any) -> Expr:
    """What was made wider is what it was."""
    if not (isinstance(inner, Apply) and inner.op == "cast" and inner.args[0].type == term.type):
        return term
    narrow, wide = term.type.dtype, inner.type.dtype
    exact = is_float(narrow) and is_float(wide) and itemsize(wide) > itemsize(narrow)
    return inner.args[0] if exact else term


def _turned(term: Apply, inner: Any) -> Expr:
    """Two transpositions are one, or none; (x @ y).T is y.T @ x.T."""
    if _is_matmul(inner):
        x, y = (transpose(a, (1, 0), term.loc) for a in reversed(inner.args))
        return replace(inner, args=(x, y), type=term.type)
    if not (isinstance(inner, Apply) and inner.op == "transpose"):
        return term
    first, then = inner.attr("perm"), term.attr("perm")
    perm = tuple(first[p] for p in then)
    if perm == tuple(range(len(perm))):
        return inner.args[0]
    return replace(term, args=inner.args, attrs=(("perm", perm),))


def _is_matmul(term: Any) -> bool:
    """Of two matrices, as `x @ y` is."""
    if not isinstance(term, Apply) or term.op != "dot" or term.attr("contract") != (1, 0):
        return False
    return all(a.type.rank == 2 for a in term.args)


def _squeezed(term: Apply, inner: Any) -> Expr:
    if not isinstance(inner, Apply) or inner.attr("axis") != term.attr("axis"):
        return term
    if inner.op == "expand_dims":
        return inner.args[0]
    if inner.op in ("sum", "max", "min") and inner.attr("keepdim"):
        attrs = (("axis", inner.attr("axis")), ("keepdim", False))
        return replace(inner, type=term.type, attrs=attrs)
    return term


def _selected(term: Apply, condition: Expr, x: Any, y: Any) -> Expr:
    """The same condition is asked once."""
    args = list(term.args)
    if isinstance(x, Apply) and x.op == "where" and x.args[0] == condition:
        args[1] = x.args[1]
    if isinstance(y, Apply) and y.op == "where" and y.args[0] == condition:
        args[2] = y.args[2]
    return replace(term, args=tuple(args)) if _shape(args) == term.type.shape else term


def _without_broadcasts(term: Apply, look: Look) -> Apply:
    """Operands are repeated anyway as far as another one has the whole shape."""
    args = list(term.args)
    for place, arg in enumerate(args):
        inner = look(arg)
        if isinstance(inner, Apply) and inner.op == "broadcast":
            fewer = [*args[:place], inner.args[0], *args[place + 1 :]]
            if _shape(fewer) == term.type.shape:
                args = fewer
    return replace(term, args=tuple(args))


def _shape(args: list[Expr]) -> tuple[Any, ...] | None:
    try:
        return broadcast_shapes(args, None, "")
    except TypingError:
        return None
