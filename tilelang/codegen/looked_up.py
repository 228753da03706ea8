"""Looked up: what selects pick from a table, number by number, at positions that are a block.

    at = where(rel >= 1, bias[h, 1], bias[h, 0])
    at = where(rel >= 2, bias[h, 2], at) ...        number bias[h, clamp(rel, 0, 255)] of each lane

So the language says it, and so it is computed where nothing else is better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilelang.ir import Apply, At, Const, Expr, Load, Var, integers


@dataclass(frozen=True)
class LookedUp:
    """Numbers first ... last along a dimension of a table, at positions clamped to these.

    number  the last of them, as it is loaded and cast
    """

    number: Expr
    place: Expr
    dim: int
    first: int
    last: int

    @property
    def load(self) -> Load:
        found = load_of(self.number)
        assert found is not None
        return found


def looked_up(value: Expr, found: Mapping[str, LookedUp]) -> LookedUp | None:
    """What a select picks: the next number of those that are picked so far, or one of two.

    found  what names that were assigned before pick
    """
    match value:
        case Apply("where", (Apply("ge", (place, Const(least))), number, other)):
            pass
        case _:
            return None
    before = found.get(other.name) if isinstance(other, Var) else None
    if before is not None and before.place == place and before.last + 1 == least:
        if _next_dim(before.number, number, int(least)) != before.dim:
            return None
        return replace(before, number=number, last=before.last + 1)
    match other:
        case Apply("full" | "broadcast", (first,)):
            dim = _next_dim(first, number, int(least))
            return None if dim is None else LookedUp(number, place, dim, int(least) - 1, int(least))
        case _:
            return None


def _next_dim(before: Expr, number: Expr, place: int) -> int | None:
    """The dimension along which a number, at `place`, is the next one of a table."""
    one, other = load_of(before), load_of(number)
    if one is None or other is None or before.type != number.type or one.mask or other.mask:
        return None
    moved = [n for n, (a, b) in enumerate(zip(one.index, other.index)) if a != b]
    if one.tensor != other.tensor or len(moved) != 1 or one.type.shape:
        return None
    wanted = At(integers.const(place - 1)), At(integers.const(place))
    return moved[0] if (one.index[moved[0]], other.index[moved[0]]) == wanted else None


def load_of(number: Expr) -> Load | None:
    """The load of a number that may be cast."""
    match number:
        case Load():
            return number
        case Apply("cast", (Load() as load,)):
            return load
        case _:
            return None
