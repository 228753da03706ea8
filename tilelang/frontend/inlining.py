"""Functions of the author's that a kernel calls: their statements become the kernel's."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from ..errors import Loc, ParseError, TileError
from ..language.calls import marker, resolve
from ..language.dtypes import DType
from . import observed
from .liveness import assigned, liveness
from .naming import named
from .scope import (
    DEEPEST,
    Bound,
    Frame,
    Here,
    Nested,
    around,
    evaluate,
    execute,
    variable,
)
from .source import Function, Source, parameters, read

LIBRARIES = frozenset({"torch", "jax", "jaxlib", "numpy", "scipy", "tilelang", "ml_dtypes"})


# ---------------------------------------------------------------- what can be inlined


def inlinable(fn: Any) -> tuple[FunctionType | Nested, list[object]] | None:
    """The Python function behind a callable and what is passed first; None if there is none.

    A method gives its object, jax.jit and custom_jvp the function that they wrap.
    """
    for _ in range(8):
        match fn:
            case Nested():
                return fn, []
            case FunctionType():
                return None if in_library(fn) else (fn, [])
            case MethodType():
                found = inlinable(observed.attribute(fn, "__func__"))
                return None if found is None else (found[0], [observed.attribute(fn, "__self__")])
            case type():
                return None
        inner = _wrapped(fn)
        if inner is None:
            call = inspect.getattr_static(type(fn), "__call__", None)
            if not isinstance(call, FunctionType) or in_library(call):
                return None
            return observed.attribute(type(fn), "__call__"), [fn]
        fn = inner
    return None


def _wrapped(fn: Any) -> Any:
    """What jax.jit, functools.cache or jax.custom_jvp was given."""
    for name in ("__wrapped__", "fun"):
        if callable(getattr(fn, name, None)):
            return observed.attribute(fn, name)
    return None


def in_library(fn: Any) -> bool:
    """Whether it is part of Python or of a framework: not inlined, and not the author's."""
    name = fn.__name__ if isinstance(fn, ModuleType) else getattr(fn, "__module__", None)
    first = str(name).partition(".")[0]
    return first in LIBRARIES or (first in sys.stdlib_module_names and first != "__main__")


def uses_language(fn: Any) -> bool:
    """Whether a function of host values calls ops of the language, and so is inlined too."""
    return _uses(fn, set())


def _uses(value: Any, seen: set[int]) -> bool:
    match value:
        case Nested():
            return True
        case partial():
            return _uses(value.func, seen)
        case MethodType():
            return _uses(value.__func__, seen)
    if marker(value) or _is_op(value):
        return True
    if not isinstance(value, FunctionType) or in_library(value) or id(value) in seen:
        return False
    seen.add(id(value))
    names = _names(value.__code__)
    found = [*_cells(value), *(value.__globals__.get(name) for name in names)]
    return any(_uses(v, seen) or _names_op(v, names, 0) for v in found)


def _cells(fn: FunctionType) -> list[Any]:
    """What the function's closure holds, without what is not assigned yet."""
    found = []
    for cell in fn.__closure__ or ():
        with suppress(ValueError):
            found.append(cell.cell_contents)
    return found


def _is_op(value: Any) -> bool:
    plain = isinstance(value, type | DType) or not callable(value)
    return not plain and resolve(value) is not None


def _names_op(module: Any, names: frozenset[str], depth: int) -> bool:
    """Whether `module.name`, or `module.part.name`, is an op for one of the names."""
    if not isinstance(module, ModuleType) or depth > 2 or module.__name__ in ("math", "numpy"):
        return False
    members = [vars(module).get(name) for name in names]
    return any(marker(m) or _is_op(m) or _names_op(m, names, depth + 1) for m in members)


def _names(code: CodeType) -> frozenset[str]:
    """Global and attribute names that code uses, nested functions included."""
    inner = (c for c in code.co_consts if isinstance(c, CodeType))
    return frozenset(code.co_names).union(*(_names(c) for c in inner))


# ---------------------------------------------------------------- inlining


def inline(
    here: Here, fn: FunctionType | Nested, args: list[Any], kwargs: dict[str, Any], loc: Loc
) -> Any:
    """Evaluates the function's body here, with its own variables; its return value."""
    if here.calls >= DEEPEST:
        hint = "a recursion must end on host values, such as shapes"
        raise ParseError(f"calls are nested more than {DEEPEST} deep", loc, hint)
    inner, node = _entered(here, fn, args, kwargs, loc)
    name = fn.name if isinstance(fn, Nested) else fn.__name__
    try:
        return _result(inner, node)
    except TileError as error:
        raise _traced(error, name, loc) from None


def _traced(error: TileError, name: str, loc: Loc) -> TileError:
    """The error with the calls that led to it, of which three are enough."""
    what, step = error.what, f"in {name}, called from line {loc.line}"
    if what.count("called from line") < 3:
        inside = what.endswith(")") and " (in " in what
        what = f"{what[:-1]}; {step})" if inside else f"{what} ({step})"
    return type(error)(what, error.loc or loc, error.hint)


def _result(inner: Here, node: Function) -> Any:
    if isinstance(node, ast.Lambda):
        return evaluate(inner, node.body)
    left = execute(inner, node.body)
    return None if left is None else left.value


def _entered(
    here: Here, fn: FunctionType | Nested, args: list[Any], kwargs: dict[str, Any], loc: Loc
) -> tuple[Here, Function]:
    """The place inside the function, with its parameters bound."""
    if isinstance(fn, Nested):
        source, node = fn.frame.source, fn.node
        signature, outer = _signature(node, fn.defaults), partial(variable, fn.frame)
    else:
        observed.attribute(fn, "__code__")
        source, node = _read(here, fn, loc)
        signature, outer = _signature(node, _defaults(fn, node)), around(fn)
    bound = _bound(signature, fn, args, kwargs, loc)
    inner = replace(here, frame=frame(source, node, outer), calls=here.calls + 1)
    for user, value in bound.items():
        inner.frame.names[user] = Bound(named(here, user, value, loc), loc)
    return inner, node


def frame(source: Source, node: Function, outer: Callable[[str], object]) -> Frame:
    """A function's variables before its first statement."""
    given = [a.arg for a in parameters(node)]
    own = assigned(node.body) if isinstance(node, ast.FunctionDef) else ()
    return Frame(source, {}, frozenset([*given, *own]), outer, liveness(node))


def _read(here: Here, fn: FunctionType, loc: Loc) -> tuple[Source, Function]:
    try:
        return read(fn, here.draft.texts)
    except ParseError as error:
        raise ParseError(error.what, error.loc or loc, error.hint) from None


def _bound(
    signature: inspect.Signature,
    fn: FunctionType | Nested,
    args: list[Any],
    kwargs: dict[str, Any],
    loc: Loc,
) -> dict[str, Any]:
    name = fn.name if isinstance(fn, Nested) else fn.__name__
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError as error:
        raise ParseError(f"{name}: {error}", loc, f"it takes {name}{_shown(signature)}") from None
    bound.apply_defaults()
    return dict(bound.arguments)


def _shown(signature: inspect.Signature) -> str:
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


def _defaults(fn: FunctionType, node: Function) -> dict[str, Any]:
    """The defaults that the function has now, by parameter."""
    positional, named = observed.whole_attributes(fn, "__defaults__", "__kwdefaults__")
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    return {**dict(zip(names[::-1], (positional or ())[::-1], strict=False)), **(named or {})}


def _signature(node: Function, defaults: Mapping[str, Any]) -> inspect.Signature:
    """The signature of a function as it is written, with the defaults that it has."""
    given, kind = node.args, inspect.Parameter
    made: list[inspect.Parameter] = []
    for argument in given.posonlyargs:
        made.append(_parameter(defaults, argument, kind.POSITIONAL_ONLY))
    for argument in given.args:
        made.append(_parameter(defaults, argument, kind.POSITIONAL_OR_KEYWORD))
    if given.vararg:
        made.append(kind(given.vararg.arg, kind.VAR_POSITIONAL))
    for argument in given.kwonlyargs:
        made.append(_parameter(defaults, argument, kind.KEYWORD_ONLY))
    if given.kwarg:
        made.append(kind(given.kwarg.arg, kind.VAR_KEYWORD))
    return inspect.Signature(made)


def _parameter(defaults: Mapping[str, Any], argument: ast.arg, kind: Any) -> inspect.Parameter:
    default = defaults.get(argument.arg, inspect.Parameter.empty)
    return inspect.Parameter(argument.arg, kind, default=default)
