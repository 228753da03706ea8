"""Functions of the author's, called or defined in a kernel: their statements become its own."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

from ..errors import ParseError, TileError
from ..language.calls import marker, resolve
from ..language.dtypes import DType
from ..reads import FRAMEWORKS
from ..texts import cells, read_by
from . import observed
from .liveness import Live, assigned, liveness, loop_variables
from .scope import (
    DEEPEST,
    Arguments,
    Bound,
    Frame,
    Here,
    Nested,
    Rules,
    around,
    bind,
    evaluate,
    execute,
    named,
    variable,
)
from .source import Function, SourceLines, parameters, read

# ---------------------------------------------------------------- functions defined in the kernel


def lambda_(here: Here, node: ast.Lambda) -> object:
    return _nested(here, "<lambda>", node)


def def_(here: Here, node: ast.FunctionDef) -> None:
    if node.decorator_list:
        loc = here.loc(node.decorator_list[0])
        raise ParseError("a decorator in a kernel", loc, "leave it out, or define it outside")
    bind(here, node.name, _nested(here, node.name, node), here.loc(node))


def _nested(here: Here, name: str, node: Function) -> Nested:
    """The function with its defaults, which are evaluated now."""
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    having = positional[len(positional) - len(given.defaults) :]
    defaults = {a.arg: evaluate(here, d) for a, d in zip(having, given.defaults, strict=True)}
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        if default is not None:
            defaults[argument.arg] = evaluate(here, default)
    return Nested(name, node, here.frame, defaults)


# ---------------------------------------------------------------- what can be inlined


def inlinable(fn: Any) -> tuple[FunctionType | Nested, list[object]] | None:
    """The Python function behind a callable and what is passed first; None if there is none.

    A method gives its object, an object of the author's its class's __call__; jax.jit, custom_jvp
    and functools.cache give the function that they wrap, which they call as it is.
    """
    for _ in range(8):
        match fn:
            case Nested():
                return fn, []
            case FunctionType():
                return None if is_foreign(fn) else (fn, [])
            case MethodType():
                found = inlinable(observed.attribute(fn, "__func__"))
                return None if found is None else (found[0], [observed.attribute(fn, "__self__")])
            case type():
                return None
            case _:
                pass  # an object that may be callable
        call = inspect.getattr_static(type(fn), "__call__", None)
        if isinstance(call, FunctionType) and not is_foreign(call):
            return observed.attribute(type(fn), "__call__"), [fn]
        wrapped = [n for n in ("__wrapped__", "fun") if callable(getattr(fn, n, None))]
        if not wrapped or not is_foreign(type(fn)):  # what others wrap, they may change
            return None
        fn = observed.attribute(fn, wrapped[0])
    return None


def is_foreign(fn: Any) -> bool:
    """Whether it is part of Python or of a framework: not inlined, and not the author's."""
    name = fn.__name__ if isinstance(fn, ModuleType) else getattr(fn, "__module__", None)
    first = str(name).partition(".")[0]
    standard = first in sys.stdlib_module_names and first != "__main__"
    return standard or first in (*FRAMEWORKS, "scipy", "triton")


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
        case _:
            pass  # an operation, a function, or what uses nothing
    if _is_op(value):
        return True
    if not isinstance(value, FunctionType) or is_foreign(value) or id(value) in seen:
        return False
    seen.add(id(value))
    names = read_by(value.__code__)
    found = [*cells(value), *(value.__globals__.get(name) for name in names)]
    return any(_uses(v, seen) or _names_op(v, names, 0) for v in found)


def _is_op(value: Any) -> bool:
    if marker(value):
        return True
    return callable(value) and not isinstance(value, type | DType) and resolve(value) is not None


def _names_op(module: Any, names: frozenset[str], depth: int) -> bool:
    """Whether `module.name`, or `module.part.name`, is an op for one of the names."""
    if not isinstance(module, ModuleType) or depth > 2 or module.__name__ in ("math", "numpy"):
        return False
    members = [vars(module).get(name) for name in names]
    return any(_is_op(m) or _names_op(m, names, depth + 1) for m in members)


# ---------------------------------------------------------------- inlining


def inline(here: Here, fn: FunctionType | Nested, given: Arguments) -> Any:
    """Evaluates the function's body here, with its own variables; its return value."""
    loc = given.loc
    if here.calls >= DEEPEST:
        hint = "a recursion must end on host values, such as shapes"
        raise ParseError(f"calls are nested more than {DEEPEST} deep", loc, hint)
    inner, node = _entered(here, fn, given)
    try:
        if isinstance(node, ast.Lambda):
            return evaluate(inner, node.body)
        left = execute(inner, node.body)
        return None if left is None else left.value
    except TileError as error:  # with the calls that led to it, of which three are enough
        what, step = error.what, f"in {_name(fn)}, called from line {loc.line}"
        if what.count("called from line") < 3:
            inside = what.endswith(")") and " (in " in what
            what = f"{what[:-1]}; {step})" if inside else f"{what} ({step})"
        raise type(error)(what, error.loc or loc, error.hint) from None


def _name(fn: FunctionType | Nested) -> str:
    return fn.name if isinstance(fn, Nested) else fn.__name__


def _entered(here: Here, fn: FunctionType | Nested, given: Arguments) -> tuple[Here, Function]:
    """The place inside the function, with its parameters bound."""
    loc = given.loc
    if isinstance(fn, Nested):
        source, node, defaults = fn.frame.source, fn.node, fn.defaults
        outer: Callable[[str], object] = partial(variable, fn.frame)
    else:
        observed.attribute(fn, "__code__")
        try:
            source, node = read(fn, here.draft.texts)
            here.draft.functions.setdefault(fn.__code__, node)
        except ParseError as error:
            raise ParseError(error.what, error.loc or loc, error.hint) from None
        defaults, outer = _defaults(fn, node), around(fn)
    signature = _signature(node, defaults)
    try:
        bound = signature.bind(*given.args, **given.kwargs)
    except TypeError as error:
        hint = f"it takes {_name(fn)}{shown(signature)}"
        raise ParseError(f"{_name(fn)}: {error}", loc, hint) from None
    bound.apply_defaults()
    inner = replace(here, frame=frame(source, node, outer), calls=here.calls + 1)
    for user, value in bound.arguments.items():
        inner.frame.names[user] = Bound(named(here, user, value, loc), loc)
    return inner, node


def frame(source: SourceLines, node: Function, outer: Callable[[str], object]) -> Frame:
    """A function's variables before its first statement."""
    own, loops, live = _names(node)
    return Frame(source, {}, own, loops, outer, live)


@lru_cache(256)  # trees are those of the texts, whatever a kernel is parsed for
def _names(node: Function) -> tuple[frozenset[str], Mapping[str, int], Live]:
    """The names that a function assigns, those that its loops alone do, and who reads them."""
    given = [a.arg for a in parameters(node)]
    body = node.body if isinstance(node, ast.FunctionDef) else []
    return frozenset([*given, *assigned(body)]), loop_variables(body), liveness(node)


def shown(signature: inspect.Signature) -> str:
    """A signature in a message: without annotations."""
    plain = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=plain, return_annotation=signature.empty))


def _defaults(fn: FunctionType, node: Function) -> dict[str, Any]:
    """The defaults that the function has now, by parameter."""
    positional, keyword = observed.whole_attributes(fn, "__defaults__", "__kwdefaults__")
    names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
    return {**dict(zip(names[::-1], (positional or ())[::-1], strict=False)), **(keyword or {})}


def _signature(node: Function, defaults: Mapping[str, Any]) -> inspect.Signature:
    """The signature of a function as it is written, with the defaults that it has."""
    given, kind = node.args, inspect.Parameter
    kinds = (
        (kind.POSITIONAL_ONLY, given.posonlyargs),
        (kind.POSITIONAL_OR_KEYWORD, given.args),
        (kind.VAR_POSITIONAL, [given.vararg]),
        (kind.KEYWORD_ONLY, given.kwonlyargs),
        (kind.VAR_KEYWORD, [given.kwarg]),
    )
    return inspect.Signature(
        [
            kind(argument.arg, how, default=defaults.get(argument.arg, kind.empty))
            for how, arguments in kinds
            for argument in arguments
            if argument is not None
        ]
    )


RULES: Rules = {ast.Lambda: lambda_, ast.FunctionDef: def_}
