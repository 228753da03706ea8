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
from .inlining import shown
from .memory import Combine, load, of_index, store, update
from .scope import Arguments, Here

Marker = Callable[[Here, Arguments], Any]


def arguments(name: str, given: Arguments) -> dict[str, Any]:
    """The arguments of hl.<name> by name."""
    signature = inspect.signature(getattr(language, name))
    try:
        bound = signature.bind(*given.args, **given.kwargs)
    except TypeError as error:
        hint = f"it takes {name}{shown(signature)}"
        raise ParseError(f"hl.{name}: {error}", given.loc, hint) from None
    bound.apply_defaults()
    return dict(bound.arguments)


def _tensor(name: str, tensor: object, loc: Loc) -> TensorHandle:
    if isinstance(tensor, TensorHandle):
        return tensor
    what = f"hl.{name} takes a tensor first, not {kind_of(tensor)}"
    raise ParseError(what, loc, f"hl.{name}(x, [tile], ...)")


def _load(here: Here, call: Arguments) -> Any:
    given, loc = arguments("load", call), call.loc
    handle = _tensor("load", given["tensor"], loc)
    entries = of_index(given["index"], loc, given["mask"] is not None)
    return load(here, handle, entries, loc, given["mask"], given["other"])


def _store(here: Here, call: Arguments) -> None:
    given, loc = arguments("store", call), call.loc
    handle = _tensor("store", given["tensor"], loc)
    entries = of_index(given["index"], loc, False)
    where = place(here, handle, entries, loc, given["mask"] is not None)
    store(here, handle, where, given["value"], loc, given["mask"])


def _register_block_size(here: Here, call: Arguments) -> Any:
    bounds, loc = arguments("register_block_size", call)["bounds"], call.loc
    limits = [static_int(loc, bound, "a block size") for bound in bounds]
    if len(limits) > 2:
        hint = "hl.register_block_size(most) or hl.register_block_size(least, most)"
        raise ParseError(f"hl.register_block_size with {len(limits)} bounds", loc, hint)
    least = limits[0] if len(limits) == 2 else 1
    most = limits[-1] if limits else None
    if least < 1 or (most is not None and most < least):
        listed = ", ".join(map(str, limits))
        hint = "the least is 1 or more, and the most no less than it"
        raise ParseError(f"hl.register_block_size({listed}) leaves no block size", loc, hint)
    name = here.draft.unique(here.wish or "block")
    here.draft.blocks[name] = BlockSize(name, least, most, loc)
    return BlockHandle(name)


def _specialize(here: Here, call: Arguments) -> Any:
    value = arguments("specialize", call)["value"]
    if on_device(value):
        hint = "shapes and arguments that are no tensors are constants already"
        raise ParseError("hl.specialize of what is not known while compiling", call.loc, hint)
    return value


def _static_range(here: Here, call: Arguments) -> Any:
    bounds = arguments("static_range", call)["bounds"]
    if not 1 <= len(bounds) <= 3:
        raise ParseError("hl.static_range takes one to three numbers", call.loc)
    first, *rest = (static_int(call.loc, b, "a bound of hl.static_range") for b in bounds)
    if rest[1:] == [0]:
        raise ParseError("hl.static_range with a step of 0", call.loc)
    return range(first, *rest)


def _loop(name: str) -> Marker:
    def misplaced(here: Here, call: Arguments) -> Any:
        hint = f"write it in the loop: for i in hl.{name}(...):"
        raise ParseError(f"hl.{name} is used outside of a for statement", call.loc, hint)

    return misplaced


MEMORY_ORDERS = ("relaxed", "acquire", "release", "acq_rel")


def _atomic(name: str, op: Combine) -> Marker:
    """An update whose order does not matter; `sem` orders memory on other devices."""

    def updated(here: Here, call: Arguments) -> None:
        given = arguments(name, call)
        if given["sem"] not in (None, *MEMORY_ORDERS):
            hint = f"leave it out, or write one of {', '.join(map(repr, MEMORY_ORDERS))}"
            raise ParseError(f"hl.{name}: sem={given['sem']!r} is no memory order", call.loc, hint)
        update(here, op, _tensor(name, given["tensor"], call.loc), given, call.loc)

    return updated


def _constexpr(here: Here, call: Arguments) -> Any:
    hint = "annotate a parameter with it: def kernel(x, scale: hl.constexpr)"
    raise ParseError("hl.constexpr is called", call.loc, hint)


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
