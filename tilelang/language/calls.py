"""resolve(callable) -> Builder: what a call in a kernel means, by the identity of what is called.

torch, jax and numpy are never imported here: a module that is not loaded cannot have been named.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

from ..errors import TypingError
from .creation import READERS, Created
from .dtypes import DType, canonical
from .markers import marker as marker
from .spellings import BUILDERS, METHODS, MODULES, OPERATORS, PROPERTIES, Build
from .values import Site
from .variants import cast_method

# Other names of the same argument: the first that the op has is meant.
_ALIASES = """
    input:acc,x a:x b:y x1:x x2:y arr:x array:x object:x data:x operand:x lhs:x rhs:y other:y,x
    exponent:y tensor:x mat1:x mat2:y batch1:x batch2:y vec:y vec2:y pred:condition on_true:x
    on_false:y a_min:min a_max:max dim:axis axis:dim dims:axes,axis axes:axis dimension:axis
    dimensions:axis permutation:axes dim0:axis1 dim1:axis2 axis0:axis1 keepdim:keepdims
    keepdims:keepdim tensors:values arrays:values operands:values size:shape newshape:shape
    new_sizes:shape fill_value:value new_dtype:dtype ord:p end:stop
    split_size_or_sections:sizes split_size:sizes
    out_dtype:preferred_element_type preferred_element_type:out_dtype
"""
ALIASES: Mapping[str, Sequence[str]] = {
    given: own.split(",") for given, _, own in (w.partition(":") for w in _ALIASES.split())
}


@dataclass(frozen=True)
class Builder:
    """What a name means: called as builder(loc, *args, **kwargs), it makes typed expressions.

    Arguments are expressions, Python numbers, dtypes, strings, tiles and sequences of them.
    """

    name: str
    build: Build

    def __call__(self, loc: Site, *args: object, **kwargs: object) -> Any:
        named = _bind(self.name, self.build, loc, args, kwargs)
        return self.build(loc, *args, **named)


def _bind(
    name: str, build: Build, loc: Site, args: Sequence[object], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """The keyword arguments by the op's own names, all checked against its signature."""
    signature = _signature(build)
    named: dict[str, object] = {}
    for given, value in kwargs.items():
        own = _own_name(given, signature)
        if own is None:
            raise TypingError(f"{name} has no argument {given!r} here", loc, _usage(name, build))
        if own in named:
            raise TypingError(f"{name}: {given!r} is given twice", loc, _usage(name, build))
        named[own] = value
    try:
        signature.bind(loc, *args, **named)
    except TypeError as error:
        raise TypingError(f"{name}: {error}", loc, _usage(name, build)) from None
    return named


@cache
def _signature(build: Build) -> inspect.Signature:
    return inspect.signature(build)


def _own_name(given: str, signature: inspect.Signature) -> str | None:
    candidates = (given, *ALIASES.get(given, ()))
    keywords = (n for n, p in signature.parameters.items() if p.kind != p.VAR_POSITIONAL)
    known = set(keywords) - {"loc"}
    return next((c for c in candidates if c in known), None)


def _usage(name: str, build: Build) -> str:
    """How the op is called: sum(x, axis=None, keepdims=False)."""
    shown = []
    for parameter in list(_signature(build).parameters.values())[1:]:
        if parameter.kind == parameter.VAR_POSITIONAL:
            shown.append(f"*{parameter.name}")
        elif parameter.default is parameter.empty:
            shown.append(parameter.name)
        else:
            shown.append(f"{parameter.name}={parameter.default!r}")
    return f"it takes {name.rpartition('.')[2]}({', '.join(shown)})"


# ---------------------------------------------------------------- by identity


def resolve(obj: object) -> Builder | None:
    """The builder that a callable stands for, or None if it is not in the language.

    A dtype, such as jnp.float32 or Python's float, is a cast.
    """
    found = _identities(_loaded()).get(id(obj))
    if found is not None and found[0] is obj:
        return found[1]
    if isinstance(obj, DType | type) and (name := canonical(obj)) is not None:
        return Builder(getattr(obj, "__name__", name), cast_method(name))
    return None


def _loaded() -> tuple[str, ...]:
    """The modules with a table that are imported, and completely so."""
    return tuple(n for n in MODULES if (m := sys.modules.get(n)) is not None and _is_ready(m))


def _is_ready(module: ModuleType) -> bool:
    return not getattr(getattr(module, "__spec__", None), "_initializing", False)


@lru_cache(maxsize=8)
def _identities(loaded: tuple[str, ...]) -> dict[int, tuple[object, Builder]]:
    """id -> (the object, which keeps the id its own, and its builder)."""
    found: dict[int, tuple[object, Builder]] = {}
    for module_name in loaded:
        module = sys.modules[module_name]
        for name, build in MODULES[module_name].items():
            obj = getattr(module, name, None)
            if obj is not None:
                builder = Builder(f"{_SHORT.get(module_name, module_name)}.{name}", build)
                found.setdefault(id(obj), (obj, builder))
    return found


_SHORT = {"tilelang.language": "hl", "jax.numpy": "jnp", "torch.nn.functional": "F"}


def method(name: str) -> Builder | None:
    """The builder of x.name(...), called with x as its first argument."""
    build = METHODS.get(name)
    return None if build is None else Builder(f"x.{name}", build)


def property_of(name: str) -> Builder | None:
    """The builder of x.name without a call: an Expr for T and mT, else a Python value."""
    build = PROPERTIES.get(name)
    return None if build is None else Builder(f"x.{name}", build)


def operator(symbol: str) -> Builder:
    """The builder of a Python operator: "+", "@", "<=", "and"; one operand: "-x" "+x" "~" "not"."""
    return Builder(symbol, OPERATORS[symbol])


# ---------------------------------------------------------------- creation calls

_CREATORS = {BUILDERS[name]: name for name in READERS}


def creation(obj: object) -> str | None:
    """ "zeros", "full", "empty_like", ... if the callable makes arrays of one number."""
    builder = resolve(obj)
    return None if builder is None else _CREATORS.get(builder.build)


def creation_method(name: str) -> str | None:
    """The same for a method: "new_zeros", "new_full", ..."""
    return name if name.startswith("new_") and name in READERS else None


def created(loc: Site, kind: str, args: Sequence[object], kwargs: Mapping[str, object]) -> Created:
    """The arguments of a creation call: what host code declares an output tensor by."""
    read = READERS[kind]
    return read(loc, *args, **_bind(kind, read, loc, args, kwargs))
