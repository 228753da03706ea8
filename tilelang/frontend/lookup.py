"""bias[rel]: numbers of a short table at positions that are a value of two dimensions or more.

    bias[h, rel]   ->   at = where(rel >= 1, bias[h, 1], bias[h, 0])
                        at = where(rel >= 2, bias[h, 2], at) ...

No TPU gathers single numbers from memory.  Compared in rising order, positions outside of the table
are those at its ends, as of every position that is read.
"""

from __future__ import annotations

from collections.abc import Callable

from ..errors import ParseError
from ..ir import Expr, Tensor
from ..language.build import binary, broadcast, cast, where
from ..language.dtypes import is_integer, itemsize, wide_of
from .hosting import is_value
from .indexing import Entries
from .scope import Here, assign

LONGEST = 256  # entries: each costs a comparison and a select of the whole block


def box_of(entries: Entries) -> int | None:
    """The entry that is a value of two dimensions or more; None if no one is."""
    boxes = [i for i, (v, _) in enumerate(entries) if is_value(v) and v.type.rank > 1]
    return boxes[0] if len(boxes) == 1 and is_integer(entries[boxes[0]][0].type.dtype) else None


def looked_up(
    here: Here, tensor: Tensor, entries: Entries, box: int, read: Callable[[Entries], Expr]
) -> Expr:
    """The numbers at the positions of entry number `box`; `read` loads one."""
    place, loc = entries[box]
    size = _length(tensor, entries, box)
    dtype = "int32" if tensor.dtype == "int64" else tensor.dtype
    wide = dtype if itemsize(dtype) == 4 else wide_of(dtype)  # as wide as what is compared

    def one(number: int) -> Expr:
        value = read([(number if i == box else v, at) for i, (v, at) in enumerate(entries)])
        return cast(value, wide, loc)

    place = assign(here, f"{tensor.name}_place", cast(place, "int32", loc), loc)
    found: Expr = broadcast(one(0), place.type.shape, loc)
    for number in range(1, size):
        behind = binary("ge", place, number, loc)
        found = assign(here, f"{tensor.name}_at", where(behind, one(number), found, loc), loc)
    return cast(found, dtype, loc)


def _length(tensor: Tensor, entries: Entries, box: int) -> int:
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
    return size
