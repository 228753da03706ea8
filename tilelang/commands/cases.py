"""cases_of(path) -> Case...: the kernels of a file, and the arguments to try them with.

A file says so in one of two ways: a function `cases()` that yields (kernel, arguments), or a tuple
CASES of arguments for each of its kernels (BIAS_CASES for kernels with "bias" in their name).
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ..api import Kernel
from ..errors import CallError


@dataclass(frozen=True)
class Case:
    """A kernel under the name that its file gives it, with one set of arguments."""

    name: str
    kernel: Kernel
    arguments: tuple

    def __str__(self) -> str:
        """The arguments in a line: dtypes, shapes and static values."""
        return ", ".join(map(_shown, self.arguments))


def cases_of(path: Path) -> tuple[Case, ...]:
    """Every case of a file; CallError if it cannot be loaded, or says nothing to compile."""
    return tuple(_cases(load(path), path))


def load(path: Path) -> ModuleType:
    """The module in a file; CallError if there is none or if it raises."""
    if not path.is_file():
        raise CallError(f"{path} is not a file", hint="give a Python file with kernels")
    try:
        return _import(path.resolve())
    except Exception as error:
        raise CallError(
            f"{path} cannot be imported: {type(error).__name__}: {error}",
            hint="run from the folder that its imports start from",
        ) from error


def _cases(module: ModuleType, path: Path) -> Iterator[Case]:
    listed = getattr(module, "cases", None)
    if callable(listed):
        yield from _listed(listed(), path)
        return
    kernels = {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, Kernel) and value.__module__ == module.__name__
    }
    if not kernels:
        raise CallError(f"{path} has no kernel", hint="decorate a function with @tile.kernel")
    for name, kernel in kernels.items():
        for arguments in _arguments(module, name, path):
            if not _is_case(arguments):
                what = f"a case of {name} in {path} is a {type(arguments).__name__}"
                raise CallError(what, hint="each case is a tuple of arguments: CASES = ((x, w),)")
            yield Case(name, kernel, tuple(arguments))


def _listed(found: Any, path: Path) -> Iterator[Case]:
    """What a file's own `cases()` yields."""
    empty = True
    for entry in found:
        pair = tuple(entry) if isinstance(entry, tuple | list) else ()
        if len(pair) != 2 or not isinstance(pair[0], Kernel) or not _is_case(pair[1]):
            raise CallError(
                f"cases() of {path} yields {entry!r}", hint="yield (kernel, (argument, ...))"
            )
        empty = False
        yield Case(pair[0].signature.kernel, pair[0], tuple(pair[1]))
    if empty:
        raise CallError(f"cases() of {path} yields nothing", hint="yield (kernel, (argument, ...))")


def _is_case(arguments: object) -> bool:
    return isinstance(arguments, tuple | list)


def _arguments(module: ModuleType, kernel: str, path: Path) -> tuple:
    listed = "BIAS_CASES" if "bias" in kernel else "CASES"
    found = getattr(module, listed, ())
    if not found:
        raise CallError(
            f"{path} does not say with which arguments to compile {kernel}",
            hint=f"add {listed} = ((tile.spec((1024, 512), 'float32'), ...), ...), or a function "
            "cases() that yields (kernel, arguments)",
        )
    return tuple(found)


def _import(path: Path) -> ModuleType:
    """By its dotted name from the working directory if that leads to it, else by its place."""
    here = Path.cwd()
    if str(here) not in sys.path:
        sys.path.insert(0, str(here))
    if path.is_relative_to(here) and path.suffix == ".py":
        dotted = ".".join(path.relative_to(here).with_suffix("").parts)
        found = importlib.util.find_spec(dotted) if _is_name(dotted) else None
        if found is not None and found.origin == str(path):
            return importlib.import_module(dotted)
    spec = importlib.util.spec_from_file_location(f"checked_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError("it is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _is_name(dotted: str) -> bool:
    """Whether every part may be imported; a folder that is no package cannot be a parent."""
    return all(part.isidentifier() for part in dotted.split("."))


def _shown(argument: object) -> str:
    shape, dtype = getattr(argument, "shape", None), getattr(argument, "dtype", None)
    if shape is None or dtype is None:
        return getattr(argument, "__name__", None) or repr(argument)
    return f"{dtype}{list(shape)}"
