"""bind(signature, args, kwargs) -> one value per parameter of the user's function, in order."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType

from ..errors import CallError, Loc, nearest
from ..instead import of_option
from ..reads import is_kernel

RESERVED = ("config", "target")


@dataclass(frozen=True)
class Signature:
    """The parameters of a kernel.

    names       every parameter, keyword-only ones last
    positional  how many of them may be given by position
    defaults    parameter -> default value
    """

    kernel: str
    names: tuple[str, ...]
    positional: int
    defaults: Mapping[str, object]


def plain_function(fn: object) -> FunctionType:
    """The function of a kernel; CallError for what is no plain `def`."""
    above = "decorate a function: @tile.kernel above a def"
    if is_kernel(fn):
        name = getattr(fn, "__name__", "it")
        hint = f"tile.kernel({name}.__wrapped__, ...) makes another one, with other options"
        raise CallError(f"{name} is a kernel already", hint=hint)
    if callable(inner := getattr(fn, "__wrapped__", None)):
        what = f"{getattr(inner, '__name__', 'the function')} is wrapped by another decorator"
        raise CallError(what, hint="@tile.kernel goes directly above the def, others above it")
    if not isinstance(fn, FunctionType):
        options = "" if callable(fn) else "; options have names: @tile.kernel(config=...)"
        raise CallError(f"{fn!r} is not a Python function", hint=above + options)
    if fn.__name__ == "<lambda>":
        raise CallError("a lambda is no kernel", hint="write a def")
    return fn


def signature(fn: FunctionType) -> Signature:
    """The signature of a kernel function; CallError where it is not a fixed list of parameters."""
    parameters = list(inspect.signature(fn).parameters.values())
    for parameter in parameters:
        _check_parameter(fn, parameter)
    by_position = [p for p in parameters if p.kind is not p.KEYWORD_ONLY]
    return Signature(
        kernel=fn.__name__,
        names=tuple(p.name for p in parameters),
        positional=len(by_position),
        defaults={p.name: p.default for p in parameters if p.default is not p.empty},
    )


def _check_parameter(fn: FunctionType, parameter: inspect.Parameter) -> None:
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        raise CallError(
            f"kernel {fn.__name__} takes {parameter}: its parameters must be a fixed list",
            _place(fn, name),
            "name every tensor and every static argument",
        )
    if name in RESERVED:
        raise CallError(
            f"kernel {fn.__name__} has a parameter named {name!r}, which tilelang reserves",
            _place(fn, name),
            "rename it: config= and target= choose how a kernel is compiled",
        )


def _place(fn: FunctionType, name: str) -> Loc | None:
    """Where a parameter is written, as far as the source can be read."""
    filename, first = fn.__code__.co_filename, fn.__code__.co_firstlineno
    for line in range(first, first + 40):
        text = linecache.getline(filename, line).rstrip("\n")
        found = re.search(rf"(?<=[(,*\s]){name}\b", text)
        if found and not text.lstrip().startswith("@"):
            return Loc(filename, line, found.start(), found.end(), text)
    return None


def bind(sig: Signature, args: tuple, kwargs: Mapping[str, object]) -> tuple:
    """The arguments in parameter order with defaults filled in; CallError if they do not fit."""
    if len(args) > sig.positional:
        where = " by position" if len(args) <= len(sig.names) else ""
        verb = "was" if len(args) == 1 else "were"
        raise CallError(f"{_takes(sig)} but {len(args)} {verb} given{where}")
    given = dict(zip(sig.names, args, strict=False))
    for name, value in kwargs.items():
        _check_keyword(sig, name, given)
        given[name] = value
    missing = [n for n in sig.names if n not in given and n not in sig.defaults]
    if missing:
        raise CallError(f"{_takes(sig)}: no value for {_listed(missing)}")
    return tuple(given[n] if n in given else sig.defaults[n] for n in sig.names)


def _check_keyword(sig: Signature, name: str, given: Mapping[str, object]) -> None:
    if name in given:
        raise CallError(f"{sig.kernel} got two values for {name}")
    if name not in sig.names:
        known = f"its parameters are {_listed(sig.names)}" if sig.names else "it has no parameters"
        if name in RESERVED:
            planned = f"{name} is not taken here, where {sig.kernel} is not planned"
            raise CallError(planned, hint=known)
        close = nearest(name, (*sig.names, *RESERVED))
        hint = f"did you mean {close}? " if close else ""
        hint = hint or (f"{of_option(name)}; " if of_option(name) else "")
        raise CallError(f"{sig.kernel} has no parameter named {name!r}", hint=hint + known)


def _takes(sig: Signature) -> str:
    names = f" ({', '.join(sig.names)})" if sig.names else ""
    plural = "" if len(sig.names) == 1 else "s"
    return f"{sig.kernel} takes {len(sig.names)} argument{plural}{names}"


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
