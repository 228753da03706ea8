"""bias[rel]: numbers of a short table at positions that are a value of two dimensions or more.

    bias[h, rel]   ->   at = where(rel >= 1, bias[h, 1], bias[h, 0])
                        at = where(rel >= 2, bias[h, 2], at) ...

No TPU gathers single numbers from memory.  Compared in rising order, positions outside of the table
are those at its ends, as of every position that is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import Loc, ParseError
from ..ir import Expr, Tensor
from ..language.build import binary, broadcast, where
from ..language.dtypes import is_integer
from ..language.values import const
from .hosting import is_value
from .naming import assign
from .scope import Here

LONGEST = 256  # entries: each costs a comparison and a select of the whole block

Entries = list[tuple[Any, Loc]]


def box_of(entries: Entries) -> int | None:
    """The entry that is a value of two dimensions or more; None if no one is."""
    boxes = [i for i, (v, _) in enumerate(entries) if is_value(v) and v.type.rank > 1]
    return boxes[0] if len(boxes) == 1 and is_integer(entries[boxes[0]][0].type.dtype) else None


def looked_up(
    here: Here, tensor: Tensor, entries: Entries, box: int, read: Callable[[Entries], Expr]
) -> Expr:
    """The numbers at the positions of entry number `box`; `read` loads one."""
    place, loc = entries[box]
    _check(tensor, entries, box)
    size = tensor.shape[box]
    place = assign(here, f"{tensor.name}_place", place, loc)
    found: Expr = broadcast(_one(entries, box, 0, read), place.type.shape, loc)
    for number in range(1, size):
        behind = binary("ge", place, const(number, like=place.type.dtype), loc)
        found = where(behind, _one(entries, box, number, read), found, loc)
        found = assign(here, f"{tensor.name}_at", found, loc)
    return found


def _one(entries: Entries, box: int, number: int, read: Callable[[Entries], Expr]) -> Expr:
    return read([(number if i == box else v, at) for i, (v, at) in enumerate(entries)])


def _check(tensor: Tensor, entries: Entries, box: int) -> None:
    value, loc = entries[box]
    what = f"{tensor.name} is indexed with a value of type {value.type}"
    others = [v for i, (v, _) in enumerate(entries) if i != box]
    scalars = all(not v.type.rank if is_value(v) else hasattr(v, "__index__") for v in others)
    if len(entries) != len(tensor.shape) or not scalars:
        hint = "each other dimension is indexed with a number: bias[h, rel]"
        raise ParseError(what, loc, hint)
    size = tensor.shape[box]
    if not 1 <= size <= LONGEST:
        what += f", and has {size} entries there"
        hint = f"a table that is looked up in has 1 to {LONGEST} entries: group the positions"
        raise ParseError(what, loc, hint)
