"""Statements that are not in the language, and what to write instead."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import replace

from ..errors import ParseError
from .scope import Here, Rules

REFUSED: Mapping[type[ast.AST], tuple[str, str]] = {
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
