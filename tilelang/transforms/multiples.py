"""is_multiple(expr, sums, varies) -> whether a value is a sum times numbers that stay.

    total / count.to(float32) * 0.5

Parts of the sum may be multiplied one by one, and added up then: a mean of parts is the mean.  The
numbers must be neither 0 nor infinite: 0 / 0 of an empty part is not what 5 / 0 of the whole is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from math import isfinite

from ..ir import Apply, Const, Expr, Var


def uncast(expr: Expr) -> Expr:
    """What a value is before it is rounded last."""
    return expr.args[0] if isinstance(expr, Apply) and expr.op == "cast" else expr


def is_multiple(expr: Expr, sums: Collection[str], varies: Callable[[Expr], bool]) -> bool:
    """Whether `expr` is one of the sums, by name, times numbers that do not vary."""
    match expr:
        case Var(name):
            return name in sums
        case Apply("mul" | "div" as op, (x, y)):
            if op == "mul" and not varies(x):
                x, y = y, x
            return not varies(y) and _is_finite(y) and is_multiple(x, sums, varies)
        case _:
            return False


def _is_finite(factor: Expr) -> bool:
    """Whether a number is proved to be neither 0 nor infinite."""
    match factor:
        case Const(value):
            return value != 0 and isfinite(value)
        case Apply("maximum", args) if "int" in factor.type.dtype:
            return any(isinstance(arg, Const) and arg.value > 0 for arg in args)
        case Apply("cast" | "broadcast" | "expand_dims", (x, *_)):
            return _is_finite(x)
        case Apply("full"):
            return _is_finite(Const(factor.attr("value"), factor.type))
        case Apply("mul" | "div", (x, y)) if "int" not in factor.type.dtype:
            return _is_finite(x) and _is_finite(y)
        case _:
            return False
