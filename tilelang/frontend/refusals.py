"""What is not in the language, and what to write instead."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

from ..errors import Loc, ParseError
from .scope import Here, Rules

REFUSED: Mapping[type[ast.AST], tuple[str, str]] = {
    ast.While: ("while", "loop with hl.grid or hl.tile, and mask what is not needed"),
    ast.Try: ("try", "check shapes with assert before the loops"),
    ast.TryStar: ("try", "check shapes with assert before the loops"),
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
    ast.Yield: ("yield", "store results to an output"),
    ast.YieldFrom: ("yield", "store results to an output"),
    ast.Await: ("await", "leave it out"),
    ast.Starred: ("* here", "it may stand in calls, tuples, lists and indices"),
}


def _refuse(here: Here, node: ast.AST) -> None:
    word, hint = REFUSED[type(node)]
    loc = here.loc(node)
    if isinstance(node, ast.stmt):  # its keyword is what is wrong
        loc = replace(loc, end_col=min(loc.col + len(word), loc.end_col))
    raise ParseError(f"{word} is not in the language", loc, hint)


RULES: Rules = dict.fromkeys(REFUSED, _refuse)


# ---------------------------------------------------------------- calls

_UNCOUNTED = "how many there are depends on data; use hl.where or a mask"
_BEFORE = "sort before the kernel is called"
_ROWS = "load rows at computed positions: x[index, :]"
_LOOP = "write a for loop over hl.grid or hl.tile"
_HOST = "format shapes, dtypes and other host values"
_ADVICE = {
    "nonzero": _UNCOUNTED,
    "argwhere": _UNCOUNTED,
    "unique": _UNCOUNTED,
    "masked_select": _UNCOUNTED,
    "cumsum": "carry a running sum from tile to tile, or sum with a triangular mask",
    "cumprod": "carry a running product from tile to tile",
    "prod": "exp of a sum of logarithms, or a loop that carries the product",
    "sort": _BEFORE,
    "argsort": _BEFORE,
    "topk": _BEFORE,
    "sorted": _BEFORE,
    "scatter": "store at computed positions: y[index] = value",
    "gather": _ROWS,
    "take": _ROWS,
    "take_along_axis": _ROWS,
    "cond": "write an if statement",
    "fori_loop": _LOOP,
    "while_loop": _LOOP,
    "scan": _LOOP,
    "vmap": "write a for loop over hl.grid",
    "map": "write a list comprehension",
    "filter": "write a list comprehension with an if",
    "reduce": "write a for loop",
    "set": "a value of the kernel cannot be compared while compiling",
    "str": _HOST,
    "repr": _HOST,
    "hash": "a value of the kernel is not known while compiling",
    "any": "combine conditions with |, or write value.any()",
    "all": "combine conditions with &, or write value.all()",
    "divmod": "write a // b and a % b",
}
_GENERAL = "functions written in Python are inlined; docs/language.md lists the operations"


def unknown_call(text: str, loc: Loc) -> ParseError:
    """The error for a function that is not in the language and cannot be inlined."""
    hint = _ADVICE.get(text.rpartition(".")[2], _GENERAL)
    return ParseError(f"{text} is not in the language", loc, hint)
