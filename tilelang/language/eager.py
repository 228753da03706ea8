"""Calling an op outside of a kernel: on NumPy arrays, with the meaning that it has inside.

hl.softmax(np.float32([[1, 2]]))
"""

from __future__ import annotations

import functools
import inspect
from typing import Any

import numpy as np

from ..errors import TypingError
from ..ir import Type, Var
from .calls import Builder
from .dtypes import SUPPORTED
from .evaluate import evaluate
from .spellings import Build
from .values import EXPRS


def eager(name: str, build: Build) -> Build:
    """The public function of an op: builds its expression and evaluates it at once."""
    builder = Builder(f"hl.{name}", build)

    @functools.wraps(build)
    def call(*args: Any, **kwargs: Any) -> Any:
        arrays: dict[str, np.ndarray] = {}
        given = [_named(a, arrays) for a in args]
        named = {k: _named(v, arrays) for k, v in kwargs.items()}
        with np.errstate(all="ignore"):
            return _evaluated(builder(None, *given, **named), arrays)

    call.__name__ = call.__qualname__ = name
    call.__module__ = __package__ or ""
    call.__signature__ = _public_signature(build)  # type: ignore[attr-defined]  # any name is taken
    return call


def _public_signature(build: Build) -> inspect.Signature:
    """The builder's signature without the place in the source."""
    signature = inspect.signature(build)
    return signature.replace(parameters=list(signature.parameters.values())[1:])


def _named(value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """The argument with every array replaced by a variable, which `arrays` then holds."""
    if isinstance(value, list | tuple):
        return type(value)([_named(v, arrays) for v in value])
    if not isinstance(value, np.ndarray):
        return value
    if value.dtype.name not in SUPPORTED:
        hint = "give float32, bfloat16, int32, ..."
        raise TypingError(f"an array of {value.dtype.name}", hint=hint)
    name = f"argument {len(arrays)}"
    arrays[name] = value
    return Var(name, Type(value.shape, value.dtype.name))


def _evaluated(result: Any, arrays: dict[str, np.ndarray]) -> Any:
    if isinstance(result, EXPRS):
        return evaluate(result, arrays)
    if isinstance(result, tuple):
        return tuple(_evaluated(r, arrays) for r in result)
    return result
