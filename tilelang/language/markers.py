"""What the frontend itself gives a meaning: loops, loads, stores, annotations.

They mean something in the body of a kernel only; called anywhere else they say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from ..errors import ParseError


def _outside(name: str) -> NoReturn:
    hint = "decorate the function with @tilelang.kernel, or call it from one that is"
    raise ParseError(f"hl.{name} is used outside of a kernel", hint=hint)


def grid(*bounds: Any, max_extent: Any = None) -> Iterator[Any]:
    """A loop over scalar indices: hl.grid(end), hl.grid(begin, end), or lists of both."""
    _outside("grid")


def tile(*bounds: Any, max_extent: Any = None, block_size: Any = None) -> Iterator[Any]:
    """A loop over tiles: hl.tile(end), hl.tile(begin, end), or lists of both.

    `max_extent` is an upper bound of end - begin, for bounds that are read from tensors.
    """
    _outside("tile")


def static_range(*bounds: int) -> Iterator[int]:
    """A loop that is written out: the bounds are known while compiling."""
    _outside("static_range")


def register_block_size(*bounds: Any) -> Any:
    """A block size that the config chooses, to give to hl.tile(..., block_size=).

    `bounds` are the largest one, or the smallest and the largest one, that may be chosen.  Where
    these are the same, it is fixed, as an int is.
    """
    _outside("register_block_size")


def specialize(value: Any) -> Any:
    """The value as a constant of the compiled kernel; shapes already are."""
    _outside("specialize")


def load(tensor: Any, index: Any, mask: Any = None, other: Any = 0) -> Any:
    """tensor[index], where `mask` holds; `other` elsewhere."""
    _outside("load")


def store(tensor: Any, index: Any, value: Any, mask: Any = None) -> None:
    """tensor[index] = value, where `mask` holds."""
    _outside("store")


def atomic_add(tensor: Any, index: Any, value: Any, mask: Any = None, sem: Any = None) -> None:
    """tensor[index] += value, in any order; `sem` is accepted and changes nothing."""
    _outside("atomic_add")


def atomic_max(tensor: Any, index: Any, value: Any, mask: Any = None, sem: Any = None) -> None:
    """tensor[index] = maximum(tensor[index], value), in any order."""
    _outside("atomic_max")


def atomic_min(tensor: Any, index: Any, value: Any, mask: Any = None, sem: Any = None) -> None:
    """tensor[index] = minimum(tensor[index], value), in any order."""
    _outside("atomic_min")


class constexpr:
    """The annotation of a parameter that is a constant of the compiled kernel."""

    def __init__(self, value: Any = None) -> None:
        _outside("constexpr")


_NAMES = """
    grid tile static_range register_block_size specialize constexpr
    load store atomic_add atomic_max atomic_min
"""
MARKERS = {id(globals()[name]): name for name in _NAMES.split()}


def marker(obj: object) -> str | None:
    """The marker's name, such as "tile", if the object is one."""
    return MARKERS.get(id(obj))
