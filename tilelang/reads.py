"""What a specialisation read outside of its own text, as steps that a later call takes again.

A list of reads is a small program over values: value 0 is the kernel's function, then come its
arguments, then the value of every step so far.

    scale = cfg.layers[0].scale     Global(0, "cfg")  Member(2, "layers")  Item(3, 0)
                                    Member(4, "scale") -> 2.0

`stamp(value)` is what a read has to give again for the specialisation to hold: the value itself for
numbers, strings, dtypes, classes and tuples of them; for objects only their type, since whatever
was read of them is a step of its own.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import (
    BuiltinFunctionType,
    CodeType,
    EllipsisType,
    ModuleType,
    NoneType,
    NotImplementedType,
)
from typing import Any, Final, TypeAlias

import numpy as np

FRAMEWORKS = ("torch", "jax", "jaxlib", "numpy", "ml_dtypes", "tilelang")
PYTHON = ("builtins", "math", "operator", "_operator", "functools", "_functools", "itertools")
LIBRARIES = frozenset((*FRAMEWORKS, *PYTHON, "typing", "dataclasses", "enum"))
CONSTANTS = frozenset(("dtype", "DType", "device", "layout", "memory_format"))  # of LIBRARIES
MOST = 4096  # items of a container that is read whole

# ---------------------------------------------------------------- stamps


@dataclass(frozen=True)
class Object:
    """Stands for any value of the type, and for tuples of the length: what they hold is read."""

    kind: type
    length: int = -1


@dataclass(frozen=True)
class Same:
    """A value that counts by identity; held so that its id is not used again."""

    value: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class _Missing:
    """What a name has that is not defined."""


MISSING: Final = _Missing()


def stamp(value: Any) -> Hashable:
    """Equal for two values exactly when a kernel that only takes them whole cannot tell them apart.

    Numbers and strings count with their type, as 1, 1.0 and True differ, and floats by their bits.
    """
    made = _EXACT.get(type(value))
    return _other(value) if made is None else made(value)


def _whole(value: Any) -> Hashable:
    return (type(value), value)


def _bits(value: float) -> Hashable:
    return (type(value), value.hex())  # tells 0.0 from -0.0, and NaN equals itself


def _items(value: Any) -> Hashable:
    parts = tuple([stamp(v) for v in value])
    if any(type(p) is Object for p in parts):
        return Object(type(value), len(parts))
    return (type(value), parts)


def _range(value: range | slice) -> Hashable:
    parts = (value.start, value.stop, value.step)
    known = not any(type(stamp(p)) is Object for p in parts)
    return (type(value), *map(stamp, parts)) if known else Object(type(value))


def _array(value: np.ndarray) -> Hashable:
    """An array without dimensions is a number."""
    if value.ndim:
        return Object(type(value))
    return (type(value), value.dtype.str, value.tobytes())


_EXACT: dict[type, Callable[[Any], Hashable]] = {
    **dict.fromkeys((int, bool, str, bytes, NoneType, EllipsisType, NotImplementedType), _whole),
    **dict.fromkeys((tuple, frozenset), _items),
    **dict.fromkeys((range, slice), _range),
    float: _bits,
    complex: repr,
    CodeType: Same,
    ModuleType: Same,
    np.ndarray: _array,
}


def _other(value: Any) -> Hashable:
    kind = type(value)
    match value:
        case enum.Enum():
            return (kind, value.name, stamp(value.value))
        case np.ndarray():
            return _array(value)
        case np.generic():
            return (kind, value.tobytes())
        case float():
            return _bits(value)
        case int() | str() | bytes():
            return (kind, kind.__base__, value)
        case tuple():
            return _items(value)
        case type() | ModuleType():
            return Same(value)
        case _:
            if _is_function(value):
                return Same(value)
            return (kind, value) if _is_constant(kind) else Object(kind)


def is_kernel(value: object) -> bool:
    """Whether it is a kernel, asked where no module may import those of calls."""
    return type(value).__module__ == "tilelang.api" and type(value).__name__ == "Kernel"


def in_library(value: Any) -> bool:
    """Whether it is part of Python or of a framework, and so does not change."""
    name = getattr(value, "__name__" if isinstance(value, ModuleType) else "__module__", None)
    if name is None and isinstance(value, BuiltinFunctionType):
        owner = value.__self__
        return owner is None or isinstance(owner, ModuleType | type)
    if name is None:
        name = getattr(value, "__objclass__", type(value)).__module__
    return isinstance(name, str) and name.partition(".")[0] in LIBRARIES


def _is_function(value: Any) -> bool:
    """A function of a library, which is bound to no object: jnp.exp, torch.relu, len, hl.zeros."""
    if not callable(value) or not isinstance(getattr(value, "__name__", None), str):
        return False
    owner = getattr(value, "__self__", None)
    return (owner is None or isinstance(owner, ModuleType | type)) and in_library(value)


def _is_constant(kind: type) -> bool:
    """Dtypes and the like: they are compared by value, and have nothing that changes."""
    return in_library(kind) and any(base.__name__ in CONSTANTS for base in kind.__mro__)


NUMBERS = (int, bool, float, complex)
SINGLE = (NoneType, EllipsisType, NotImplementedType, _Missing)
# of these no change of a value changes its stamp: code and modules count by identity
UNCHANGING = frozenset((*NUMBERS, *SINGLE, str, bytes, CodeType, ModuleType, type))
ATOMS = frozenset((*NUMBERS, *SINGLE, str, bytes, range, slice, CodeType))


def is_atom(value: Any) -> bool:
    """Whether nothing is behind the value: its attributes and methods are those of its stamp."""
    kind = type(value)
    if kind in ATOMS or isinstance(value, np.generic):
        return True
    if isinstance(value, type | ModuleType) or _is_function(value):
        return in_library(value)
    return _is_constant(kind)


# ---------------------------------------------------------------- steps

Values: TypeAlias = Sequence[Any]


@dataclass(frozen=True)
class Global:
    """A name in the module of a function; MISSING if it is a builtin."""

    of: int
    name: str

    def take(self, values: Values) -> Any:
        return values[self.of].__globals__.get(self.name, MISSING)


@dataclass(frozen=True)
class Cell:
    """A variable around a function."""

    of: int
    place: int

    def take(self, values: Values) -> Any:
        try:
            return values[self.of].__closure__[self.place].cell_contents
        except ValueError:  # not assigned yet
            return MISSING


@dataclass(frozen=True)
class Member:
    """value.name, stored or computed."""

    of: int
    name: str

    def take(self, values: Values) -> Any:
        return getattr(values[self.of], self.name)


@dataclass(frozen=True)
class Item:
    """value[key] for a number or a string."""

    of: int
    key: int | str

    def take(self, values: Values) -> Any:
        return values[self.of][self.key]


@dataclass(frozen=True)
class Items:
    """All that iterating over a value gives, up to one more than a kernel would unroll."""

    of: int

    def take(self, values: Values) -> Any:
        return taken(values[self.of])


def taken(value: Any) -> tuple[Any, ...]:
    """The first items of an iterable."""
    found = []
    for item in value:
        found.append(item)
        if len(found) > MOST:
            break
    return tuple(found)


@dataclass(frozen=True)
class Constant:
    """An object that the kernel made or was given by a library."""

    value: Same

    def take(self, values: Values) -> Any:
        return self.value.value


@dataclass(frozen=True)
class Identical:
    """Whether two paths lead to one object."""

    one: int
    other: int

    def take(self, values: Values) -> Any:
        return values[self.one] is values[self.other]


@dataclass(frozen=True)
class Argument:
    """An argument of a call: a value that was read, one that is known, or made of such parts."""

    of: int = -1
    known: Same | None = None
    make: Callable[[Any], Any] | None = None
    parts: tuple[Argument, ...] = ()

    def made(self, values: Values) -> Any:
        if self.make is not None:
            return self.make([part.made(values) for part in self.parts])
        return values[self.of] if self.known is None else self.known.value


@dataclass(frozen=True)
class Computed:
    """What host code computes from objects: an operator, a method, a function of the author's."""

    function: Argument
    args: tuple[Argument, ...]
    kwargs: tuple[tuple[str, Argument], ...] = ()

    def take(self, values: Values) -> Any:
        args = [part.made(values) for part in self.args]
        kwargs = {name: part.made(values) for name, part in self.kwargs}
        return self.function.made(values)(*args, **kwargs)


Step: TypeAlias = Global | Cell | Member | Item | Items | Constant | Identical | Computed


@dataclass(frozen=True)
class Stamped:
    """A step and the stamp of what it gave."""

    step: Step
    stamp: Hashable


# ---------------------------------------------------------------- arguments


class NotStatic(Exception):
    """A value that no kernel takes as an argument; the exception's argument is what makes it so."""


def check_static(value: object) -> None:
    """NotStatic for lists and what else has no hash: they are meant to change."""
    if isinstance(value, tuple):
        for item in value:
            check_static(item)
    elif type(value).__hash__ is None or isinstance(value, Mapping):
        raise NotStatic(value)
