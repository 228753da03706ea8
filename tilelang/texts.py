"""texts(fn) -> the files that a function and those that it calls are written in, as they are now.

Read when a kernel is decorated: what is edited afterwards and not imported again is no part of it.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Mapping, Sequence
from types import CodeType, FunctionType, ModuleType
from typing import Any, TypeAlias

from .reads import in_library

Texts: TypeAlias = Mapping[str, Sequence[str]]  # file name -> its lines


def texts(fn: FunctionType) -> Texts:
    """The files of the function and of all functions that its code names, as far as they exist."""
    found: dict[int, FunctionType] = {}
    _collect(fn, found)
    return {name: lines(f) for f in found.values() if (name := f.__code__.co_filename)}


def lines(fn: FunctionType) -> Sequence[str]:
    """The lines of the function's file as it is now; none if there is no such file."""
    filename = fn.__code__.co_filename
    linecache.checkcache(filename)
    return linecache.getlines(filename, fn.__globals__)


def _collect(fn: FunctionType, found: dict[int, FunctionType]) -> None:
    found[id(fn)] = fn
    for value in _named(fn):
        if isinstance(value, FunctionType) and id(value) not in found and not in_library(value):
            _collect(value, found)


def _named(fn: FunctionType) -> Iterator[Any]:
    """What the function's globals and closure hold under names that its code uses."""
    names = read_by(fn.__code__)
    values = [fn.__globals__[name] for name in names if name in fn.__globals__]
    for module in values:
        if isinstance(module, ModuleType) and not in_library(module):
            yield from (vars(module)[name] for name in names if name in vars(module))
    yield from (*values, *cells(fn))


def read_by(code: CodeType) -> frozenset[str]:
    """Global and attribute names that code uses, nested functions included."""
    return frozenset(name for each in codes(code) for name in each.co_names)


def codes(code: CodeType) -> Iterator[CodeType]:
    """The code and the code objects in it, outer ones first."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def cells(fn: FunctionType) -> Iterator[Any]:
    """What the function's closure holds, without what is not assigned yet."""
    for cell in fn.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            continue
