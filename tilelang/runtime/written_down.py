"""text(value) -> str: the same in every process, for values that a kernel means the same with.

What a kernel rests on is the reads of its parse (`reads.py`), numbers and strings whole and of
objects what was read of them.  Here they are written down, without what is of one process: modules,
classes and functions by their names, objects by their types, code not at all, since its text is.
"""

from __future__ import annotations

import functools
import hashlib
import secrets
from dataclasses import fields, is_dataclass
from types import CodeType, FunctionType, ModuleType
from typing import Any

from ..reads import Object, Same, in_library, is_kernel, stamp
from ..texts import cells, codes

_PROCESS = secrets.token_hex(8)


def digest(*parts: Any) -> str:
    """A short hash of values, equal in two processes where their texts are."""
    return hashlib.sha256(text(parts).encode()).hexdigest()[:12]


def text(value: Any) -> str:
    """A value, a stamp or a step that is read, as far as it is the same everywhere."""
    match value:
        case CodeType():
            return "code"
        case ModuleType():
            return value.__name__
        case type():
            return _qualified(value)
        case Same():
            found = stamp(value.value)
            return text(value.value if isinstance(found, Same) else found)
        case Object():
            return f"{text(value.kind)}[{value.length}]"
        case (kind, tuple() as items) if kind in (frozenset, set):  # in the order of their hashes
            return f"{text(kind)}{sorted(map(text, items))}"
        case tuple():
            return f"({', '.join(map(text, value))})"
        case set() | frozenset():
            return f"{{{', '.join(sorted(map(text, value)))}}}"
        case _ if is_dataclass(value):
            held = ", ".join(text(getattr(value, field.name)) for field in fields(value))
            return f"{text(type(value))}({held})"
        case _ if hasattr(value, "__qualname__"):
            return _qualified(value)
        case _:
            return repr(value) if isinstance(stamp(value), tuple) else text(type(value))


def _qualified(value: Any) -> str:
    """The author's have the name of a module only there: what is run as a script is __main__."""
    module = f"{getattr(value, '__module__', None)}." if in_library(value) else ""
    return module + value.__qualname__


def origin(function: Any, around: tuple[Any, ...] = ()) -> str:
    """Where a function that calls kernels is from, what it does, and what it holds.

    One that holds more than numbers, strings and such functions is another one in every process.
    `around` are the functions that hold this one.
    """
    if any(function is each for each in around):
        return "itself"
    match function:
        case functools.partial():
            held = [function.func, *function.args, *sorted(function.keywords.items())]
            own = "partial"
        case FunctionType():
            held = [*cells(function), *(function.__defaults__ or ())]
            held += sorted((function.__kwdefaults__ or {}).items())
            own = text((text(function), *map(_instructions, codes(function.__code__))))
        case _ if is_kernel(function):
            return origin(function.__wrapped__, (*around, function))
        case _:
            found = stamp(function)
            return _PROCESS if isinstance(found, Object) else text(found)
    return f"{own}({', '.join([origin(each, (*around, function)) for each in held])})"


def _instructions(code: CodeType) -> tuple[Any, ...]:
    constants = tuple(stamp(v) for v in code.co_consts if not isinstance(v, CodeType))
    return code.co_code, code.co_names, constants
