"""Bugs of intervals, of sums of indices and of folding: each makes one rule a little too narrow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tilelang.ir import integers, intervals
from tilelang.ir.intervals import divided


@dataclass(frozen=True)
class Mutation:
    """What `at` names in `owner`, an attribute or an entry of a table, replaced by `wrong`."""

    what: str
    owner: Any
    at: str
    wrong: Callable[..., Any]

    def __str__(self) -> str:
        return self.what


def _ends(a, b):
    return a[0] * b[0], a[1] * b[1]


def _first_sign(a, b, by=1):
    return _plus(a, b)


def _some(expr, of, *leaf):
    """A multiple where one of the operands is."""
    own = [_is_multiple(a, of, *leaf) for a in getattr(expr, "args", ()) if a.type.dtype == "int32"]
    return _is_multiple(expr, of, *leaf) or any(own)


_plus, _is_multiple = integers.plus, integers.is_multiple
RULES = intervals.RULES

MUTATIONS = (
    Mutation("ends are subtracted in order", RULES, "sub", lambda a, b: (a[0] - b[0], a[1] - b[1])),
    Mutation("a negation keeps its ends", RULES, "neg", lambda a: (-a[0], -a[1])),
    Mutation("factors are positive", RULES, "mul", _ends),
    Mutation("quotients round to zero", RULES, "floordiv",
             lambda a, b: tuple(int(e / b[0]) if b[0] == b[1] > 0 else e for e in a)),
    Mutation("a divisor may be negative", RULES, "floordiv",
             lambda a, b: divided(a, abs(b[0]) or 1)),
    Mutation("remainders are less by one", RULES, "mod",
             lambda a, b: (0, b[1] - 2) if b[0] > 0 else intervals.ANYTHING),
    Mutation("a minimum is what is left of it", RULES, "minimum", lambda a, b: a),
    Mutation("a maximum has the larger low end only", RULES, "maximum",
             lambda a, b: (max(a[0], b[0]), a[1])),
    Mutation("the condition holds", RULES, "where", lambda _, a, b: a),
    Mutation("differences are sums", integers, "plus", _first_sign),
    Mutation("changes of quotients are rounded down", intervals, "divided",
             lambda a, by, up=False: divided(a, by)),
    Mutation("a minimum with a number changes as the other term", intervals, "either",
             lambda a, b: a),
    Mutation("a sum is a multiple of what one term is", integers, "is_multiple", _some),
)  # fmt: skip
