"""read(fn) -> (Source, node): the syntax tree of a Python function, and where its nodes stand."""

from __future__ import annotations

import ast
import inspect
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType, FunctionType

from ..errors import Loc, ParseError
from ..texts import Texts, lines
from .written import is_of, tree_of

Function = ast.FunctionDef | ast.Lambda
Async = ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """Lines of a file, the first of which has number `first`."""

    filename: str
    first: int
    lines: tuple[str, ...]

    def loc(self, node: ast.AST, last: ast.AST | None = None) -> Loc:
        """Where a node stands, or the range from it to the end of `last`; its first line only."""
        # Of ast.AST only some kinds stand in the text; those that are asked for do.
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


def read(fn: FunctionType, texts: Texts) -> tuple[Source, Function]:
    """The function's source, from the text that it was compiled from.

    ParseError if it has none, as in the interactive interpreter, or if the file is another one now.
    """
    known = texts.get(fn.__code__.co_filename)
    found = None if known is None else _read(fn, known)
    if found is None:
        now = lines(fn)
        if not now:
            raise _unavailable(fn)
        found = _read(fn, now)
    if found is None:
        raise _changed(fn)
    source, node = found
    if isinstance(node, ast.AsyncFunctionDef):
        hint = "write def instead of async def"
        raise ParseError("an async function is not in the language", source.loc(node), hint)
    return source, node


def _read(fn: FunctionType, text: Sequence[str]) -> tuple[Source, Function | Async] | None:
    """The function in the lines of a file; None if it is not what they say there."""
    found = (_lambda if fn.__code__.co_name == "<lambda>" else _def)(fn, text)
    return found if found is not None and is_of(fn, found[1]) else None


def _def(fn: FunctionType, text: Sequence[str]) -> tuple[Source, Function | Async] | None:
    first = fn.__code__.co_firstlineno
    try:
        block = inspect.getblock(text[first - 1 :])
        nested = "".join(block)[:1].isspace()  # under a header of its own it parses as it stands
        tree = tree_of(("if True:\n" if nested else "") + "".join(block))
    except (SyntaxError, tokenize.TokenError):
        return None
    ast.increment_lineno(tree, first - 1 - nested)
    found = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | Async)), None)
    if found is None or found.name != fn.__code__.co_name:
        return None
    return Source(_filename(fn), first, tuple(block)), found


def _filename(fn: FunctionType) -> str:
    return inspect.getsourcefile(fn) or fn.__code__.co_filename


def _unavailable(fn: FunctionType) -> ParseError:
    return ParseError(
        f"the source of {fn.__name__} is not available",
        hint="define it in a file: code typed into an interpreter or passed to exec has no source",
    )


def _changed(fn: FunctionType) -> ParseError:
    where = f"{_filename(fn)}, line {fn.__code__.co_firstlineno}"
    hint = f"the file was changed after it was imported ({where}): reload it"
    return ParseError(f"the source of {fn.__name__} is not found where it was", hint=hint)


# ---------------------------------------------------------------- lambdas


def _lambda(fn: FunctionType, text: Sequence[str]) -> tuple[Source, Function] | None:
    """A lambda is found in the tree of its whole file, since its lines need not parse alone."""
    try:
        tree = tree_of("".join(text))
    except SyntaxError:
        return None
    found = next(_lambdas(tree, fn.__code__), None)
    return None if found is None else (Source(_filename(fn), 1, tuple(text)), found)


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
