"""longest(draft, axis) -> how long a range can be that depends on static loops only, else None.

for tq in hl.tile(L): for tk in hl.tile(0, tq.end)     L, whatever tk indexes
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..ir import Apply, Axis, Const, Expr, GridIndex, TileScalar, Var
from .scope import Draft

Span = tuple[int, int]  # smallest and largest value


def longest(draft: Draft, axis: Axis) -> int | None:
    """The largest extent of the axis in any iteration of the loops around it."""
    begin, end = _span(draft, axis.begin), _span(draft, axis.end)
    return None if begin is None or end is None else max(end[1] - begin[0], 0)


def _span(draft: Draft, expr: Expr) -> Span | None:
    match expr:
        case Const(value):
            return int(value), int(value)
        case Var(name) if name in draft.definitions:
            return _span(draft, draft.definitions[name])
        case GridIndex(axis) | TileScalar(axis, "begin" | "end"):
            begin, end = (_span(draft, e) for e in (draft.axes[axis].begin, draft.axes[axis].end))
            return None if begin is None or end is None else (begin[0], max(end[1], begin[0]))
        case Apply("where", (_, a, b)) | Apply(
            "add" | "sub" | "mul" | "minimum" | "maximum", (a, b)
        ):
            left, right = _span(draft, a), _span(draft, b)
            return None if left is None or right is None else RULES[expr.op](left, right)
        case _:
            return None


RULES: Mapping[str, Callable[[Span, Span], Span]] = {
    "add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "mul": lambda a, b: (min(x * y for x in a for y in b), max(x * y for x in a for y in b)),
    "minimum": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "maximum": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    "where": lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
}
