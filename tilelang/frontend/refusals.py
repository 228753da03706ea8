"""What is not in the language, and what to write instead."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import Loc, ParseError
from .scope import Here

STATEMENTS: Mapping[type[ast.stmt], tuple[str, str]] = {
    ast.While: ("while", "loop with hl.grid or hl.tile, and mask what is not needed"),
    ast.Try: ("try", "check shapes with assert before the loops"),
    ast.With: ("with", "write its body alone"),
    ast.Global: ("global", "pass values as arguments and return them"),
    ast.Nonlocal: ("nonlocal", "pass values as arguments and return them"),
    ast.Delete: ("del", "leave it out"),
    ast.ClassDef: ("class", "define it outside of the kernel"),
    ast.Match: ("match", "write if, elif and else"),
    ast.Import: ("import", "import at the top of the file"),
    ast.ImportFrom: ("import", "import at the top of the file"),
    ast.AsyncFunctionDef: ("async", "write def instead of async def"),
    ast.AsyncFor: ("async", "write for instead of async for"),
    ast.AsyncWith: ("async", "write its body alone"),
}
if hasattr(ast, "TryStar"):
    STATEMENTS = {**STATEMENTS, ast.TryStar: STATEMENTS[ast.Try]}

EXPRESSIONS: Mapping[type[ast.expr], tuple[str, str]] = {
    ast.Yield: ("yield", "store results to an output"),
    ast.YieldFrom: ("yield", "store results to an output"),
    ast.Await: ("await", "leave it out"),
    ast.Starred: ("* here", "it may stand in calls, tuples, lists and indices"),
}


def _statement(here: Here, node: ast.stmt) -> None:
    word, hint = STATEMENTS[type(node)]
    loc = here.loc(node)
    width = min(len(word), loc.end_col - loc.col)
    place = type(loc)(loc.filename, loc.line, loc.col, loc.col + width, loc.text)
    raise ParseError(f"{word} is not in the language", place, hint)


def _expression(here: Here, node: ast.expr) -> object:
    word, hint = EXPRESSIONS[type(node)]
    raise ParseError(f"{word} is not in the language", here.loc(node), hint)


REFUSED_STATEMENTS: Mapping[type[ast.stmt], Callable[[Here, Any], None]] = dict.fromkeys(
    STATEMENTS, _statement
)
REFUSED_EXPRESSIONS: Mapping[type[ast.expr], Callable[[Here, Any], object]] = dict.fromkeys(
    EXPRESSIONS, _expression
)


# ---------------------------------------------------------------- calls

_ADVICE = {
    "nonzero": "how many there are depends on data; use hl.where or a mask",
    "argwhere": "how many there are depends on data; use hl.where or a mask",
    "unique": "how many there are depends on data; use hl.where or a mask",
    "masked_select": "how many there are depends on data; use hl.where or a mask",
    "cumsum": "carry a running sum from tile to tile, or sum with a triangular mask",
    "cumprod": "carry a running product from tile to tile",
    "prod": "exp of a sum of logarithms, or a loop that carries the product",
    "sort": "sort before the kernel is called",
    "argsort": "sort before the kernel is called",
    "topk": "sort before the kernel is called",
    "scatter": "store at computed positions: y[index] = value",
    "gather": "load rows at computed positions: x[index, :]",
    "take": "load rows at computed positions: x[index, :]",
    "take_along_axis": "load rows at computed positions: x[index, :]",
    "cond": "write an if statement",
    "fori_loop": "write a for loop over hl.grid or hl.tile",
    "while_loop": "write a for loop over hl.grid or hl.tile",
    "scan": "write a for loop over hl.grid or hl.tile",
    "vmap": "write a for loop over hl.grid",
    "map": "write a list comprehension",
    "filter": "write a list comprehension with an if",
    "reduce": "write a for loop",
    "sorted": "sort before the kernel is called",
    "set": "a value of the kernel cannot be compared while compiling",
    "str": "format shapes, dtypes and other host values",
    "repr": "format shapes, dtypes and other host values",
    "hash": "a value of the kernel is not known while compiling",
    "any": "combine conditions with |, or write value.any()",
    "all": "combine conditions with &, or write value.all()",
    "divmod": "write a // b and a % b",
}


def unknown_call(text: str, loc: Loc) -> ParseError:
    """The error for a function that is not in the language and cannot be inlined."""
    hint = _ADVICE.get(text.rpartition(".")[2], _GENERAL)
    return ParseError(f"{text} is not in the language", loc, hint)


_GENERAL = "functions written in Python are inlined; docs/language.md lists the operations"
