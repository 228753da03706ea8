"""Writing one expression twice: with a framework's own arrays, and as the language reads it."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np

from tilelang.ir import Type, Var
from tilelang.language.calls import method, operator, property_of, resolve
from tilelang.language.dtypes import canonical
from tilelang.language.evaluate import evaluate
from tilelang.language.values import EXPRS


def plain(value: Any) -> Any:
    """Arguments without the wrapper."""
    if isinstance(value, Written):
        return value.expr
    if isinstance(value, list | tuple):
        return type(value)(plain(v) for v in value)
    return value


def wrap(value: Any) -> Any:
    """Expressions with the wrapper."""
    if isinstance(value, EXPRS):
        return Written(value)
    if hasattr(value, "_fields"):
        return type(value)(*map(wrap, value))
    if isinstance(value, tuple):
        return tuple(map(wrap, value))
    return value


class Written:
    """An expression that methods, properties and operators apply to, as in a kernel."""

    def __init__(self, expr: Any) -> None:
        self.expr = expr

    def __getattr__(self, name: str) -> Any:
        found = property_of(name)
        if found is not None:
            return wrap(found(None, self.expr))
        builder = method(name)
        assert builder is not None, f"no method {name}"
        return lambda *a, **k: wrap(builder(None, self.expr, *map(plain, a), **named(k)))


def named(keywords: dict[str, Any]) -> dict[str, Any]:
    return {k: plain(v) for k, v in keywords.items()}


def _binary(symbol: str) -> Any:
    return lambda a, b: wrap(operator(symbol)(None, plain(a), plain(b)))


def _swapped(symbol: str) -> Any:
    return lambda b, a: wrap(operator(symbol)(None, plain(a), plain(b)))


for _name, _symbol in {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "matmul": "@",
    "and": "&",
    "or": "|",
    "xor": "^",
    "lshift": "<<",
    "rshift": ">>",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
}.items():
    setattr(Written, f"__{_name}__", _binary(_symbol))
    setattr(Written, f"__r{_name}__", _swapped(_symbol))
for _name, _symbol in {"neg": "-x", "pos": "+x", "invert": "~"}.items():
    setattr(Written, f"__{_name}__", lambda a, s=_symbol: wrap(operator(s)(None, plain(a))))


class Spelling:
    """A module whose functions are what the language resolves them to."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.module, name)
        if isinstance(found, ModuleType):
            return Spelling(found)
        builder = resolve(found)
        if builder is None or canonical(found) is not None:
            return found
        return lambda *a, **k: wrap(builder(None, *map(plain, a), **named(k)))


def read(fn: Any, module: ModuleType, arrays: list[np.ndarray]) -> Any:
    """The value of fn(module, *arrays) as the language understands it."""
    values = {f"v{i}": a for i, a in enumerate(arrays)}
    given = [Written(Var(n, Type(a.shape, a.dtype.name))) for n, a in values.items()]
    return evaluated(fn(Spelling(module), *given), values)


def evaluated(result: Any, values: dict[str, np.ndarray]) -> Any:
    if isinstance(result, Written):
        with np.errstate(all="ignore"):
            return evaluate(result.expr, values)
    if isinstance(result, tuple):
        return tuple(evaluated(r, values) for r in result)
    return result
