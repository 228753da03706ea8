"""read(fn) -> (SourceLines, node): the syntax tree of a Python function, and where its nodes stand.

is_of(fn, node): whether a function was compiled from a piece of text.  The piece is compiled once
more, where the same names are around it, and the instructions are compared.
"""

from __future__ import annotations
import __future__

import ast
import copy
import dis
import inspect
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import SourceFileLoader
from itertools import accumulate, compress
from types import CodeType, FunctionType
from typing import Any
from weakref import WeakKeyDictionary

from ..errors import Loc, ParseError
from ..texts import Texts, codes, lines
from .jumps import branched

Function = ast.FunctionDef | ast.Lambda
Async = ast.AsyncFunctionDef


# The kinds of nodes that have a place in the text.
STANDS = ast.stmt | ast.expr | ast.arg | ast.keyword | ast.alias | ast.excepthandler | ast.pattern


@dataclass(frozen=True)
class SourceLines:
    """Lines of a file, the first of which has number `first`."""

    filename: str
    first: int
    lines: tuple[str, ...]

    def loc(self, node: ast.AST, last: ast.AST | None = None) -> Loc:
        """Where a node stands, or the range from it to the end of `last`; its first line only."""
        stop = node if last is None else last
        assert isinstance(node, STANDS) and isinstance(stop, STANDS), "it stands in the text"
        line, start = node.lineno, node.col_offset
        end_line, end = stop.end_lineno, stop.end_col_offset
        assert end is not None, "it was parsed, which gives it an end"
        place = line - self.first
        text = self.lines[place].rstrip("\n") if 0 <= place < len(self.lines) else ""
        end_col = _column(text, end) if end_line == line else len(text)
        return Loc(self.filename, line, _column(text, start), end_col, text)

    def first_line(self, node: ast.AST) -> Loc:
        """A statement's first line up to its colon."""
        whole = self.loc(node)
        return replace(whole, end_col=len(whole.text.rstrip()))


def _column(text: str, offset: int) -> int:
    """A column in characters, given one in bytes of UTF-8."""
    return len(text.encode()[:offset].decode(errors="ignore"))


def parameters(node: Function) -> list[ast.arg]:
    """The parameters of a function, in order."""
    given = node.args
    many = [a for a in (given.vararg, given.kwarg) if a is not None]
    return [*given.posonlyargs, *given.args, *given.kwonlyargs, *many]


def read(fn: FunctionType, texts: Texts) -> tuple[SourceLines, Function]:
    """The function's source, from the text that it was compiled from.

    ParseError if it has none, as in the interactive interpreter, or if the file is another one now.
    """
    known = texts.get(fn.__code__.co_filename)
    found = None if known is None else _read(fn, known)
    if found is None:
        now = lines(fn)
        if not now:
            hint = "code typed into an interpreter or passed to exec has no source"
            what = f"the source of {fn.__name__} is not available"
            raise ParseError(what, hint=f"define it in a file: {hint}")
        found = _read(fn, now)
    if found is None:
        where = f"{_filename(fn)}, line {fn.__code__.co_firstlineno}"
        hint = f"the file was changed after it was imported ({where}): reload it"
        raise ParseError(f"the source of {fn.__name__} is not found where it was", hint=hint)
    source, node = found
    if isinstance(node, Async):
        hint = "write def instead of async def"
        raise ParseError("an async function is not in the language", source.loc(node), hint)
    return source, node


def undecorated(node: Function) -> str:
    """The text of a function, formatted anew, without decorators, comments and docstring."""
    if isinstance(node, ast.Lambda):
        return ast.unparse(node)
    body = node.body[ast.get_docstring(node, clean=False) is not None :]
    fields = {name: getattr(node, name) for name in node._fields}
    own = {**fields, "decorator_list": [], "body": body or [ast.Pass()]}
    return ast.unparse(ast.copy_location(ast.FunctionDef(**own), node))


# Code -> the text that it was found in, and where: kernels are parsed anew for other shapes.
_FOUND: WeakKeyDictionary[CodeType, tuple[Sequence[str], Any]] = WeakKeyDictionary()


def _read(fn: FunctionType, text: Sequence[str]) -> tuple[SourceLines, Function | Async] | None:
    """The function in the lines of a file; None if it is not what they say there."""
    known = _FOUND.get(fn.__code__)
    if known is not None and known[0] is text:
        return known[1]
    found = (_lambda if fn.__code__.co_name == "<lambda>" else _def)(fn, text)
    if found is None or not is_of(fn, found[1]):
        return None
    found = found[0], branched(found[1])
    _FOUND[fn.__code__] = text, found
    return found


def _def(fn: FunctionType, text: Sequence[str]) -> tuple[SourceLines, Function | Async] | None:
    first = fn.__code__.co_firstlineno
    try:
        block = inspect.getblock(text[first - 1 :])
        nested = "".join(block)[:1].isspace()  # under a header of its own it parses as it stands
        tree = _tree(("if True:\n" if nested else "") + "".join(block))
    except (SyntaxError, tokenize.TokenError):
        return None
    ast.increment_lineno(tree, first - 1 - nested)
    found = next((n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | Async)), None)
    if found is None or found.name != fn.__code__.co_name:
        return None
    return SourceLines(_filename(fn), first, tuple(block)), found


def _lambda(fn: FunctionType, text: Sequence[str]) -> tuple[SourceLines, Function] | None:
    """A lambda is found in the tree of its whole file, since its lines need not parse alone.

    It starts where the code does, and is the innermost that holds all of its instructions.
    """
    try:
        tree = _tree("".join(text))
    except SyntaxError:
        return None
    code = fn.__code__
    places = [(p[0], p[2]) for p in code.co_positions() if p[0] and p[2] and p[1] and p[3]]
    found = None
    for node in ast.walk(tree):
        if isinstance(node, ast.Lambda) and node.lineno == code.co_firstlineno:
            body = node.body
            start = (body.lineno, body.col_offset)
            end = (body.end_lineno or 0, body.end_col_offset or 0)
            if all(start <= place <= end for place in places):
                found = SourceLines(_filename(fn), 1, tuple(text)), node  # inner ones come later
    return found


def _filename(fn: FunctionType) -> str:
    return inspect.getsourcefile(fn) or fn.__code__.co_filename


def _tree(text: str) -> ast.Module:
    """The tree of a text.

    Before 3.11.8 and 3.12.2, ast.parse now and then fails for no reason in the text: "AST
    constructor recursion depth mismatch" (https://github.com/python/cpython/issues/106905).
    """
    try:
        return ast.parse(text)
    except SystemError:
        return ast.parse(text)


# ---------------------------------------------------------------- text and code

_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_FLAGS = __future__.annotations.compiler_flag  # the only one left that changes instructions
# The same call is compiled in two ways: as a method, or, where a name was imported at the top of
# the module, as an attribute.
_CALLS = {"LOAD_METHOD": "LOAD_ATTR"}
_OMITTED = ("PUSH_NULL", "CACHE", "NOP", "EXTENDED_ARG")


def is_of(fn: FunctionType, node: Function | Async) -> bool:
    """Whether the function's code is what the text means.

    Where an import hook rewrites modules, as pytest does with `assert`, the constants and names of
    the rest of the text have to be in the code, and no more than that.
    """
    again = _compiled(fn.__code__, node)
    if again is not None and list(_instructions(fn.__code__)) == list(_instructions(again)):
        return True
    loader = fn.__globals__.get("__loader__")
    rest = _compiled(fn.__code__, _Unchecked().visit(copy.deepcopy(node)))
    is_rewritten = loader is not None and type(loader) is not SourceFileLoader
    return is_rewritten and rest is not None and _parts(rest) <= _parts(fn.__code__)


class _Unchecked(ast.NodeTransformer):
    """Leaves `assert` out."""

    def visit_Assert(self, node: ast.Assert) -> ast.Pass:
        return ast.copy_location(ast.Pass(), node)


def _compiled(code: CodeType, node: ast.AST) -> CodeType | None:
    """The text, compiled again; None if it is another kind of function."""
    try:
        tree = _surrounded(code, node)
        whole = compile(tree, code.co_filename, "exec", code.co_flags & _FLAGS, dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    return next((c for c in codes(whole) if c.co_name == code.co_name), None)


def _surrounded(code: CodeType, node: Any) -> ast.Module:
    """The text in a function that has the variables which it takes from around it."""
    names = [name for name in code.co_freevars if name != "__class__"]
    owner = code.co_qualname.split(".")[-2:-1]
    around = f"def around_({', '.join(names)}):\n" if names else "if True:\n"
    in_class = bool(owner) and owner[0] != "<locals>"
    tree = _tree(around + (f" class {owner[0]}:\n  pass" if in_class else " pass"))
    outer: Any = tree.body[0]
    inner = outer.body[0] if in_class else outer
    if isinstance(node, ast.Lambda):
        inner.body = [ast.Expr(node)]
    else:
        fields = {name: getattr(node, name) for name in node._fields}
        undecorated = type(node)(**{**fields, "decorator_list": []})
        inner.body = [ast.copy_location(undecorated, node)]
    return ast.fix_missing_locations(tree)


def _instructions(code: CodeType) -> Iterator[tuple[str, object]]:
    """What the code does, however long its instructions are; jumps by the number of their aim."""
    found = list(dis.get_instructions(code))
    kept = [i.opname not in _OMITTED for i in found]
    numbers = dict(zip((i.offset for i in found), accumulate(kept, initial=0), strict=False))
    for each in compress(found, kept):
        if isinstance(each.argval, CodeType):
            yield "CODE", tuple(_instructions(each.argval))
        elif each.opcode in _JUMPS:
            yield each.opname, numbers.get(each.argval)
        else:
            value = repr(each.argval).rpartition("<locals>.")[2]  # a class loads its whole name
            yield _CALLS.get(each.opname, each.opname), value


def _parts(code: CodeType) -> frozenset[str]:
    """Names and constants of the code and of what is nested in it."""
    constants = (v for c in codes(code) for v in c.co_consts if not isinstance(v, CodeType))
    return frozenset([*(n for c in codes(code) for n in c.co_names), *map(repr, constants)])
