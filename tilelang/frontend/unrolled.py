"""Loops over host values: written out, one copy of the body for each item."""

from __future__ import annotations

from ..errors import Loc, ParseError
from ..language.handles import TensorHandle, TileHandle
from ..reads import MOST  # more are certainly meant for a loop of the kernel
from . import observed
from .hosting import is_value, kind_of, reading


def iterated(loc: Loc, value: object) -> list[object]:
    """The items of a host value; ParseError for what has none."""
    match value:
        case TensorHandle(tensor):
            hint = f"loop over its indices: for i in hl.grid({tensor.name}.shape[0])"
            raise ParseError(f"the tensor {tensor.name} is iterated over", loc, hint)
        case TileHandle(_, user):
            hint = f"index with it as a whole: x[{user}], or {user}.index"
            raise ParseError(f"the tile {user} is iterated over", loc, hint)
    if is_value(value):
        hint = "hl.grid and hl.tile loop over lengths that depend on data"
        raise ParseError("a value of the kernel is iterated over", loc, hint)
    if not hasattr(value, "__iter__") and not hasattr(value, "__getitem__"):
        raise ParseError(f"{kind_of(value)} is iterated over", loc, "a sequence is needed here")
    found: list[object] = reading(loc, observed.items, value)
    if len(found) > MOST:
        hint = "hl.grid or hl.tile makes a loop in the kernel"
        raise ParseError(f"a Python loop of over {MOST} iterations would be unrolled", loc, hint)
    return found
