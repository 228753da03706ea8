"""hl.load, hl.store, hl.register_block_size ...: names whose meaning is the frontend's."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from .. import language
from ..errors import Loc, ParseError
from ..ir import BlockSize
from ..language.handles import BlockHandle, TensorHandle
from .hosting import kind_of, on_device, static_int
from .indexing import place
from .memory import Combine, load, of_index, store, update
from .scope import Here

Marker = Callable[[Here, Loc, list[Any], dict[str, Any]], Any]


def arguments(name: str, loc: Loc, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments of hl.<name> by name."""
    signature = inspect.signature(getattr(language, name))
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
        shown = signature.replace(parameters=plain, return_annotation=signature.empty)
        raise ParseError(f"hl.{name}: {error}", loc, f"it takes {name}{shown}") from None
    bound.apply_defaults()
    return dict(bound.arguments)


def _tensor(name: str, given: Mapping[str, Any], loc: Loc) -> TensorHandle:
    if isinstance(given["tensor"], TensorHandle):
        return given["tensor"]
    what = f"hl.{name} takes a tensor first, not {kind_of(given['tensor'])}"
    raise ParseError(what, loc, f"hl.{name}(x, [tile], ...)")


def _load(here: Here, loc: Loc, args: list[Any], kwargs: dict[str, Any]) -> Any:
    given = arguments("load", loc, args, kwargs)
    handle = _tensor("load", given, loc)
    entries = of_index(here, handle, given["index"], loc, given["mask"] is not None)
    return load(here, handle, entries, loc, given["mask"], given["other"])


def _store(here: Here, loc: Loc, args: list[Any], kwargs: dict[str, Any]) -> None:
    given = arguments("store", loc, args, kwargs)
    handle = _tensor("store", given, loc)
    entries = of_index(here, handle, given["index"], loc, False)
    where = place(here, handle, entries, loc, given["mask"] is not None)
    store(here, handle, where, given["value"], loc, given["mask"])


def _register_block_size(here: Here, loc: Loc, args: list[Any], kwargs: dict[str, Any]) -> Any:
    bounds = arguments("register_block_size", loc, args, kwargs)["bounds"]
    limits = [static_int(loc, bound, "a block size") for bound in bounds]
    if len(limits) > 2:
        hint = "hl.register_block_size(most) or hl.register_block_size(least, most)"
        raise ParseError(f"hl.register_block_size with {len(limits)} bounds", loc, hint)
    least = limits[0] if len(limits) == 2 else 1
    most = limits[-1] if limits else None
    if least < 1 or (most is not None and most < least):
        shown = ", ".join(map(str, limits))
        hint = "the least is 1 or more, and the most no less than it"
        raise ParseError(f"hl.register_block_size({shown}) leaves no block size", loc, hint)
    name = here.draft.unique(here.wish or "block")
    here.draft.blocks[name] = BlockSize(name, least, most, loc)
    return BlockHandle(name)


def _specialize(here: Here, loc: Loc, args: list[Any], kwargs: dict[str, Any]) -> Any:
    value = arguments("specialize", loc, args, kwargs)["value"]
    if on_device(value):
        hint = "shapes and arguments that are no tensors are constants already"
        raise ParseError("hl.specialize of a value that depends on data", loc, hint)
    return value


def _static_range(here: Here, loc: Loc, args: list[Any], kwargs: dict[str, Any]) -> Any:
    bounds = arguments("static_range", loc, args, kwargs)["bounds"]
    if not 1 <= len(bounds) <= 3:
        raise ParseError("hl.static_range takes one to three numbers", loc)
    first, *rest = (static_int(loc, b, "a bound of hl.static_range") for b in bounds)
    if rest[1:] == [0]:
        raise ParseError("hl.static_range with a step of 0", loc)
    return range(first, *rest)


def _loop(name: str) -> Marker:
    def misplaced(here: Here, loc: Loc, args: list[Any], kwargs: dict[str, Any]) -> Any:
        hint = f"write it in the loop: for i in hl.{name}(...):"
        raise ParseError(f"hl.{name} is used outside of a for statement", loc, hint)

    return misplaced


MEMORY_ORDERS = (None, "relaxed", "acquire", "release", "acq_rel")


def _atomic(name: str, op: Combine) -> Marker:
    """An update whose order does not matter; `sem` orders memory on other devices."""

    def updated(here: Here, loc: Loc, args: list[Any], kwargs: dict[str, Any]) -> None:
        given = arguments(name, loc, args, kwargs)
        if given["sem"] not in MEMORY_ORDERS:
            known = ", ".join(repr(order) for order in MEMORY_ORDERS if order)
            hint = f"leave it out, or write one of {known}"
            raise ParseError(f"hl.{name}: sem={given['sem']!r} is no memory order", loc, hint)
        update(here, op, _tensor(name, given, loc), given, loc)

    return updated


def _constexpr(here: Here, loc: Loc, args: list[Any], kwargs: dict[str, Any]) -> Any:
    hint = "annotate a parameter with it: def kernel(x, scale: hl.constexpr)"
    raise ParseError("hl.constexpr is called", loc, hint)


MARKERS: Mapping[str, Marker] = {
    "grid": _loop("grid"),
    "tile": _loop("tile"),
    "static_range": _static_range,
    "register_block_size": _register_block_size,
    "specialize": _specialize,
    "constexpr": _constexpr,
    "load": _load,
    "store": _store,
    "atomic_add": _atomic("atomic_add", "add"),
    "atomic_max": _atomic("atomic_max", "maximum"),
    "atomic_min": _atomic("atomic_min", "minimum"),
}
