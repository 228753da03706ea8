"""moved(draft, expr) -> (tile axis, offset): an index that is a tile moved by a scalar.

start + t.index     ("t", start)         a slice of memory, not a gather
t.index - 1 + k     ("t", k - 1)
"""

from __future__ import annotations

from ..errors import Loc
from ..ir import Apply, Const, Expr, GridIndex, TileIndex, Var
from ..ir.integers import Linear, linear
from ..language.build import binary, unary
from .scope import Draft, integer

Moved = tuple[str, Expr | None]


def moved(draft: Draft, expr: Expr, loc: Loc) -> Moved | None:
    """The tile and how far it is moved (None: not at all); None for any other expression."""
    match expr:
        case TileIndex(axis):
            return axis, None
        case Var(name) if name in draft.definitions:
            return moved(draft, draft.definitions[name], loc)
        case Apply("add", (left, right)):
            if not right.type.rank:
                return _further(moved(draft, left, loc), "add", right, loc)
            return None if left.type.rank else _further(moved(draft, right, loc), "add", left, loc)
        case Apply("sub", (left, right)) if not right.type.rank:
            return _further(moved(draft, left, loc), "sub", right, loc)
    return None


def _further(base: Moved | None, op: str, by: Expr, loc: Loc) -> Moved | None:
    if base is None:
        return None
    axis, offset = base
    if offset is None:
        return axis, by if op == "add" else _plain(unary("neg", by, loc))
    return axis, _plain(binary(op, offset, by, loc))


def _plain(offset: Expr) -> Expr | None:
    """Numbers as indices have them; no offset instead of zero."""
    if isinstance(offset, Const):
        return integer(int(offset.value)) if offset.value else None
    return offset


def offset_of(base: Moved) -> Moved:
    """The same with a number as the offset in its plain form."""
    axis, offset = base
    return axis, None if offset is None else _plain(offset)


def grid_axis(draft: Draft, expr: Expr) -> str | None:
    """The axis of g and g + k; None for any other expression."""

    def leaf(part: Expr) -> Linear | None:
        match part:
            case GridIndex():
                return {part: 1}, 0
            case Var(name) if name in draft.definitions:
                return linear(draft.definitions[name], leaf)
            case _:
                return None

    terms, _ = linear(expr, leaf) or ({}, 0)
    return next(iter(terms)).axis if list(terms.values()) == [1] else None
