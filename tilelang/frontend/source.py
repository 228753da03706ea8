"""read(fn) -> (Source, node): the syntax tree of a Python function, and where its nodes stand."""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import CodeType, FunctionType

from ..errors import Loc, ParseError

Function = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True)
class Source:
    """Lines of a file, the first of which has number `first`."""

    filename: str
    first: int
    lines: tuple[str, ...]

    def loc(self, node: ast.AST, last: ast.AST | None = None) -> Loc:
        """Where a node stands, or the range from it to the end of `last`; its first line only."""
        line, start = node.lineno, node.col_offset  # type: ignore[attr-defined]
        stop = node if last is None else last
        end_line, end = stop.end_lineno, stop.end_col_offset  # type: ignore[attr-defined]
        text = self._text(line)
        end_col = _column(text, end) if end_line == line else len(text)
        return Loc(self.filename, line, _column(text, start), end_col, text)

    def first_line(self, node: ast.AST) -> Loc:
        """A statement's first line up to its colon."""
        whole = self.loc(node)
        return replace(whole, end_col=len(whole.text.rstrip()))

    def _text(self, line: int) -> str:
        place = line - self.first
        return self.lines[place].rstrip("\n") if 0 <= place < len(self.lines) else ""


def _column(text: str, offset: int) -> int:
    """A column in characters, given one in bytes of UTF-8."""
    return len(text.encode()[:offset].decode(errors="ignore"))


def parameters(node: Function) -> list[ast.arg]:
    """The parameters of a function, in order."""
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    many = [a for a in (given.vararg, given.kwarg) if a is not None]
    return [*plain, *given.kwonlyargs, *many]


def read(fn: FunctionType) -> tuple[Source, Function]:
    """The function's source; ParseError if it has none, as in the interactive interpreter."""
    if fn.__name__ == "<lambda>":
        return _read_lambda(fn)
    try:
        lines, first = inspect.getsourcelines(fn)
    except (OSError, TypeError):
        raise _unavailable(fn) from None
    source = Source(_filename(fn), first, tuple(lines))
    nested = lines[0][:1].isspace()  # under a header of its own it parses as it stands
    try:
        tree = _parsed(("if True:\n" if nested else "") + "".join(lines))
    except SyntaxError:
        raise _changed(fn) from None
    ast.increment_lineno(tree, first - 1 - nested)
    found = next((n for n in ast.walk(tree) if isinstance(n, _FUNCTIONS)), None)
    if found is None or found.name != fn.__name__:
        raise _changed(fn)
    if isinstance(found, ast.AsyncFunctionDef):
        hint = "write def instead of async def"
        raise ParseError("an async function is not in the language", source.loc(found), hint)
    return source, found


def _parsed(text: str) -> ast.Module:
    """The tree of a text.

    Before 3.11.8 and 3.12.2, ast.parse now and then fails for no reason in the text: "AST
    constructor recursion depth mismatch" (https://github.com/python/cpython/issues/106905).
    """
    try:
        return ast.parse(text)
    except SystemError:
        return ast.parse(text)


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _filename(fn: FunctionType) -> str:
    return inspect.getsourcefile(fn) or fn.__code__.co_filename


def _unavailable(fn: FunctionType) -> ParseError:
    return ParseError(
        f"the source of {fn.__name__} is not available",
        hint="define it in a file: code typed into an interpreter or passed to exec has no source",
    )


def _changed(fn: FunctionType) -> ParseError:
    where = f"{_filename(fn)}, line {fn.__code__.co_firstlineno}"
    hint = f"the file may have changed since it was imported: {where}"
    return ParseError(f"the source of {fn.__name__} is not found where it was", hint=hint)


# ---------------------------------------------------------------- lambdas


def _read_lambda(fn: FunctionType) -> tuple[Source, Function]:
    """A lambda is found in the tree of its whole file, since its lines need not parse alone."""
    filename = _filename(fn)
    lines = linecache.getlines(filename, fn.__globals__)
    try:
        tree = _parsed("".join(lines))
    except SyntaxError:
        raise _changed(fn) from None
    found = next(_lambdas(tree, fn.__code__), None)
    if found is None:
        raise _changed(fn) if lines else _unavailable(fn)
    return Source(filename, 1, tuple(lines)), found


def _lambdas(tree: ast.AST, code: CodeType) -> Iterator[ast.Lambda]:
    """Lambdas that start where the code does and hold all of its instructions."""
    places = [(p[0], p[2]) for p in code.co_positions() if p[0] and p[2] and p[1] and p[3]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno:
            body = node.body
            start = (body.lineno, body.col_offset)
            end = (body.end_lineno or 0, body.end_col_offset or 0)
            if all(start <= place <= end for place in places):
                yield node
