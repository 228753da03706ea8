"""lambda and nested def: functions whose variables are those around them when they are called."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import ParseError
from .naming import bind
from .scope import Here, Left, Nested, evaluate


def lambda_(here: Here, node: ast.Lambda) -> object:
    return _nested(here, "<lambda>", node)


def def_(here: Here, node: ast.FunctionDef) -> None:
    if node.decorator_list:
        loc = here.loc(node.decorator_list[0])
        raise ParseError("a decorator in a kernel", loc, "leave it out, or define it outside")
    bind(here, node.name, _nested(here, node.name, node), here.loc(node))


def _nested(here: Here, name: str, node: ast.FunctionDef | ast.Lambda) -> Nested:
    """The function with its defaults, which are evaluated now."""
    given = node.args
    positional = [*given.posonlyargs, *given.args]
    having = positional[len(positional) - len(given.defaults) :]
    defaults = {a.arg: evaluate(here, d) for a, d in zip(having, given.defaults, strict=True)}
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        if default is not None:
            defaults[argument.arg] = evaluate(here, default)
    return Nested(name, node, here.frame, defaults)


EXPRESSIONS: Mapping[type[ast.expr], Callable[[Here, Any], object]] = {ast.Lambda: lambda_}
STATEMENTS: Mapping[type[ast.stmt], Callable[[Here, Any], Left | None]] = {ast.FunctionDef: def_}
