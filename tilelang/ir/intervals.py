"""interval(expr, leaf) -> (low, high): the least and the largest value of an integer expression.

g * 4 + 1    (1, 13) where g lies in (0, 3)

`leaf` says it of what is no operation: an index, a name, a load.  An end of which nothing is known
is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from .types import Apply, Const, Expr

Interval = tuple[float, float]

ANYTHING: Interval = (-math.inf, math.inf)


def interval(expr: Expr, leaf: Callable[[Expr], Interval]) -> Interval:
    """What an expression cannot be below and cannot be above."""
    match expr:
        case Const(value):
            return int(value), int(value)
        case Apply(op, args) if op in RULES:
            return RULES[op](*(interval(a, leaf) for a in args))
        case _:
            return leaf(expr)


def difference(expr: Expr, leaf: Callable[[Expr], Interval]) -> Interval:
    """How an expression may differ between two moments; `leaf` says it of what is no operation.

    g * 4 + 1    (8, 12) where g goes up by 2 or 3
    """
    match expr:
        case Const():
            return 0, 0
        case Apply("add" | "sub" | "neg", args):
            return RULES[expr.op](*(difference(a, leaf) for a in args))
        case Apply("mul", (value, Const(by)) | (Const(by), value)):
            return times(difference(value, leaf), (int(by), int(by)))
        case Apply("floordiv", (value, Const(by))) if by > 0:
            return divided(difference(value, leaf), by, up=True)
        case Apply("minimum" | "maximum", (value, Const()) | (Const(), value)):
            return either(difference(value, leaf), (0, 0))
        case _:
            return leaf(expr)


def plus(a: Interval, b: Interval) -> Interval:
    """Sums of a value of each."""
    return a[0] + b[0], a[1] + b[1]


def minus(a: Interval) -> Interval:
    """The negated values."""
    return -a[1], -a[0]


def times(a: Interval, b: Interval) -> Interval:
    """Products of a value of each."""
    corners = [x * y if x and y else 0 for x in a for y in b]
    return min(corners), max(corners)


def divided(a: Interval, by: float, up: bool = False) -> Interval:
    """Quotients by a positive number: whole ones, rounded down; `up`: the high end up."""
    low, high = (x if math.isinf(x) else x / by for x in a)
    return _whole(low, math.floor), _whole(high, math.ceil if up else math.floor)


def _whole(value: float, cut: Callable[[float], int]) -> float:
    return value if math.isinf(value) else cut(value)


def either(a: Interval, b: Interval) -> Interval:
    """Values of the one or of the other."""
    return min(a[0], b[0]), max(a[1], b[1])


RULES: Mapping[str, Callable[..., Interval]] = {
    "add": plus,
    "sub": lambda a, b: plus(a, minus(b)),
    "neg": minus,
    "mul": times,
    "floordiv": lambda a, b: divided(a, b[0]) if b[0] == b[1] > 0 else ANYTHING,
    "mod": lambda _, b: (0, b[1] - 1) if b[0] > 0 else ANYTHING,
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "where": lambda _, a, b: either(a, b),
}
