"""Reading Python objects from outside of the kernel: every read is written down as it is made.

    with recording(fn, arguments) as reads:   what is read in the block, in order
        attribute(cfg, "scale")             Read(Attribute(2, "scale"), stamp of 2.0)

Where an object came from is found by its identity.  What the kernel makes itself (numbers, lists,
tuples, values) is not written down; what it is made of was.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from .. import reads
from ..reads import MISSING, Same, Stamped, Step, is_atom, stamp, taken

CONTAINERS = (list, tuple, dict, set, frozenset)
STATEFUL = ("torch", "jax", "jaxlib")  # libraries whose functions may answer by a global setting


@dataclass(frozen=True)
class Log:
    """The reads of one parse so far.

    roots    the number of values before the first read: the kernel's function and its arguments
    places   id of an object -> (it, the place of the value that it is)
    steps    reads that were made before -> the value and its stamp
    """

    roots: int = 0
    reads: list[Stamped] = field(default_factory=list)
    places: dict[int, tuple[Any, int]] = field(default_factory=dict)
    steps: dict[Step, tuple[Any, Hashable]] = field(default_factory=dict)

    def add(self, step: Step, value: Any) -> Any:
        """Writes a read down, once, and where the object that it gave is from now on; the value."""
        made = stamp(value)
        if not isinstance(step, reads.Computed):
            before, stamped = self.steps.get(step, (self, None))
            if before is value or (stamped == made and is_atom(value)):
                return value
            self.steps[step] = value, made
        place = self._append(Stamped(step, made))
        known = self.place(value)
        if known is None and not is_atom(value):
            self.places[id(value)] = value, place
        elif known is not None and isinstance(made, reads.Object):
            self._append(Stamped(reads.Identical(known, place), stamp(True)))
        return value

    def _append(self, read: Stamped) -> int:
        self.reads.append(read)
        return self.roots + len(self.reads) - 1

    def place(self, value: Any) -> int | None:
        """Where an object came from; None if that was not written down."""
        known = self.places.get(id(value))
        return None if known is None or known[0] is not value else known[1]

    def adopted(self, value: Any) -> int | None:
        """The same, also for objects that came out of something unrecorded; None if nothing of the
        value can change: it is a number, or the kernel's own."""
        place = self.place(value)
        if place is None and not is_atom(value) and not _is_own(value):
            self.add(reads.Constant(Same(value)), value)
            place = self.place(value)
        return place


def _is_own(value: Any) -> bool:
    """Whether the kernel made the value: a container, an iterator, an expression, a handle."""
    kind = type(value)
    if kind in CONTAINERS or hasattr(kind, "__next__"):
        return True
    owner = getattr(value, "__self__", None)
    if type(owner) in CONTAINERS or isinstance(owner, str | int | float):
        return True
    return kind.__module__.startswith("tilelang.")


_LOG: ContextVar[Log] = ContextVar("reads of the parse that is going on")


@contextmanager
def recording(fn: FunctionType, arguments: Sequence[Any]) -> Iterator[list[Stamped]]:
    """What the block reads, starting from a function and its arguments."""
    log = Log(1 + len(arguments))
    for place, value in enumerate((fn, *arguments)):
        known = log.place(value)
        if known is None and not is_atom(value):
            log.places[id(value)] = value, place
        elif known is not None and isinstance(stamp(value), reads.Object):
            log.add(reads.Identical(known, place), True)
    token = _LOG.set(log)
    try:
        yield log.reads
    finally:
        _LOG.reset(token)


# ---------------------------------------------------------------- reads


def attribute(value: Any, name: str) -> Any:
    """value.name"""
    log = _LOG.get()
    place = log.adopted(value)
    found = getattr(value, name)
    return found if place is None else log.add(reads.Member(place, name), found)


def item(value: Any, key: Any) -> Any:
    """value[key]"""
    log = _LOG.get()
    place = log.adopted(value)
    if place is None or type(key) not in (int, str):
        return call(operator.getitem, value, key)
    return log.add(reads.Item(place, key), value[key])


def items(value: Any) -> list[Any]:
    """The items of an iterable, at most reads.MOST + 1 of them."""
    log = _LOG.get()
    place = log.adopted(value)
    if place is None:
        return list(taken(value))
    found = log.add(reads.Items(place), taken(value))
    if not isinstance(stamp(found), reads.Object):
        return list(found)
    inner = log.place(found)
    assert inner is not None
    return [log.add(reads.Item(inner, i), v) for i, v in enumerate(found)]


def listed(value: Any) -> Any:
    """A list of the items of an iterable from outside; other values as they are."""
    if _LOG.get().place(value) is None or not hasattr(value, "__iter__"):
        return value
    return items(value)


def name_in_module(fn: FunctionType, name: str) -> Any:
    """A global of the function; KeyError if its module has no such name."""
    log = _LOG.get()
    place = log.adopted(fn)
    found = fn.__globals__.get(name, MISSING)
    if place is not None:
        log.add(reads.Global(place, name), found)
    if found is MISSING:
        raise KeyError(name)
    return found


def variable_around(fn: FunctionType, number: int) -> Any:
    """A closed-over variable of the function; ValueError if it has no value yet."""
    log = _LOG.get()
    place = log.adopted(fn)
    found = (fn.__closure__ or ())[number].cell_contents
    return found if place is None else log.add(reads.Cell(place, number), found)


def call(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """fn(*args, **kwargs), computed by Python: again for every call that reads an object so."""
    log = _LOG.get()
    found = fn(*args, **kwargs)
    function = _part(log, fn)
    parts = tuple(_part(log, arg) for arg in args)
    named = tuple((name, _part(log, value)) for name, value in kwargs.items())
    known = all(map(_is_known, (function, *parts, *(part for _, part in named))))
    of_own = type(getattr(fn, "__self__", None)) in CONTAINERS  # which the kernel made
    module = str(getattr(fn, "__module__", None) or type(fn).__module__)
    is_stateful = module.partition(".")[0] in STATEFUL
    if (of_own and _is_known(function)) or (known and not is_stateful):
        return found
    return log.add(reads.Computed(function, parts, named), found)


def _part(log: Log, value: Any) -> reads.Argument:
    """How a later call gets the argument."""
    place = log.adopted(value)
    if place is not None:
        return reads.Argument(of=place)
    if type(value) is slice:
        parts = tuple(_part(log, v) for v in (value.start, value.stop, value.step))
        return _built(value, _slice, parts)
    if type(value) is dict:
        parts = tuple(_part(log, pair) for pair in value.items())
        return _built(value, dict, parts)
    if type(value) in CONTAINERS:
        return _built(value, type(value), tuple(_part(log, v) for v in value))
    return reads.Argument(known=Same(value))


def _slice(parts: list[Any]) -> slice:
    return slice(*parts)


def _built(
    value: Any, make: Callable[[Any], Any], parts: tuple[reads.Argument, ...]
) -> reads.Argument:
    return (
        reads.Argument(known=Same(value))
        if all(map(_is_known, parts))
        else reads.Argument(make=make, parts=parts)
    )


def _is_known(part: reads.Argument) -> bool:
    return part.known is not None


def whole(value: Any) -> Any:
    """A copy of lists, tuples and dicts from outside, every item read; other values as they are."""
    if _LOG.get().place(value) is None or type(value) not in CONTAINERS:
        return value
    if isinstance(value, dict):
        return {key: whole(item(value, key)) for key in items(value)}
    return type(value)(whole(v) for v in items(value))


def plain(value: Any) -> Any:
    """What looks into sequences at any depth gets: plain containers, of items that were read.

    Classes that are derived from list or tuple count too, as do those in what the kernel made.
    """
    kind = next((c for c in CONTAINERS if isinstance(value, c)), None)
    if kind is None:
        return value
    found = value if _LOG.get().place(value) is None else items(value)
    if kind is dict:
        return {key: plain(item(value, key)) for key in found}
    return kind(plain(v) for v in found)


def whole_attributes(value: Any, *names: str) -> Iterator[Any]:
    """The attributes of a value with all their items."""
    return (whole(attribute(value, name)) for name in names)
