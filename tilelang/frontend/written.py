"""is_of(fn, node): whether a function was compiled from a piece of text.

The piece is compiled once more, where the same names are around it, and the instructions compared.
"""

from __future__ import annotations
import __future__

import ast
import copy
import dis
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from itertools import accumulate, compress
from types import CodeType, FunctionType
from typing import Any

_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_FLAGS = __future__.annotations.compiler_flag  # the only one left that changes instructions


def is_of(fn: FunctionType, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> bool:
    """Whether the function's code is what the text means.

    Where an import hook rewrites modules, as pytest does with `assert`, the constants and names of
    the rest of the text have to be in the code, and no more than that.
    """
    again = _compiled(fn.__code__, node)
    if again is not None and _same(fn.__code__, again):
        return True
    rest = _compiled(fn.__code__, _Unchecked().visit(copy.deepcopy(node)))
    return _is_rewritten(fn) and rest is not None and _parts(rest) <= _parts(fn.__code__)


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
    return next((c for c in _nested(whole) if c.co_name == code.co_name), None)


def _surrounded(code: CodeType, node: Any) -> ast.Module:
    """The text in a function that has the variables which it takes from around it."""
    names = [name for name in code.co_freevars if name != "__class__"]
    owner = code.co_qualname.split(".")[-2:-1]
    around = f"def around_({', '.join(names)}):\n" if names else "if True:\n"
    in_class = bool(owner) and owner[0] != "<locals>"
    tree = tree_of(around + (f" class {owner[0]}:\n  pass" if in_class else " pass"))
    outer: Any = tree.body[0]
    inner = outer.body[0] if in_class else outer
    inner.body = [ast.Expr(node) if isinstance(node, ast.Lambda) else _undecorated(node)]
    return ast.fix_missing_locations(tree)


def _undecorated(node: Any) -> ast.stmt:
    fields = {name: getattr(node, name) for name in node._fields}
    return ast.copy_location(type(node)(**{**fields, "decorator_list": []}), node)


def _nested(code: CodeType) -> Iterator[CodeType]:
    """The code objects in a code object, outer ones first."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant
            yield from _nested(constant)


def _same(one: CodeType, other: CodeType) -> bool:
    return list(_instructions(one)) == list(_instructions(other))


# The same call is compiled in two ways: as a method, or, where a name was imported at the top of
# the module, as an attribute.
_CALLS = {"LOAD_METHOD": "LOAD_ATTR"}
_OMITTED = ("PUSH_NULL", "CACHE", "NOP", "EXTENDED_ARG")


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
            yield _CALLS.get(each.opname, each.opname), repr(each.argval)


def _is_rewritten(fn: FunctionType) -> bool:
    loader = fn.__globals__.get("__loader__")
    return loader is not None and type(loader) is not SourceFileLoader


def _parts(code: CodeType) -> frozenset[str]:
    """Names and constants of the code and of what is nested in it."""
    codes = (code, *_nested(code))
    constants = (v for c in codes for v in c.co_consts if not isinstance(v, CodeType))
    return frozenset([*(n for c in codes for n in c.co_names), *map(repr, constants)])


def tree_of(text: str) -> ast.Module:
    """The tree of a text.

    Before 3.11.8 and 3.12.2, ast.parse now and then fails for no reason in the text: "AST
    constructor recursion depth mismatch" (https://github.com/python/cpython/issues/106905).
    """
    try:
        return ast.parse(text)
    except SystemError:
        return ast.parse(text)
