"""is_of(fn, node): whether a function was compiled from a piece of text.

The piece is compiled once more, where the same names are around it, and the instructions compared.
"""

from __future__ import annotations
import __future__

import ast
import dis
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from types import CodeType, FunctionType
from typing import Any

_JUMPS = frozenset((*dis.hasjrel, *dis.hasjabs))
_FLAGS = __future__.annotations.compiler_flag  # the only one left that changes instructions


def is_of(fn: FunctionType, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> bool:
    """Whether the function's code is what the text means.

    Where an import hook rewrites modules, as pytest does for `assert`, the text's constants and
    names have to be in the code, and no more than that.
    """
    mine = fn.__code__
    try:
        tree = _surrounded(mine, node)
        whole = compile(tree, mine.co_filename, "exec", mine.co_flags & _FLAGS, dont_inherit=True)
    except (SyntaxError, ValueError):
        return False
    again = next((c for c in _nested(whole) if c.co_name == mine.co_name), None)
    if again is None:
        return False
    return _same(mine, again) or (_is_rewritten(fn) and _parts(again) <= _parts(mine))


def _surrounded(code: CodeType, node: Any) -> ast.Module:
    """The text in a function that has the variables which it takes from around it."""
    names = [name for name in code.co_freevars if name != "__class__"]
    owner = code.co_qualname.split(".")[-2:-1]
    around = f"def around_({', '.join(names)}):\n" if names else "if True:\n"
    in_class = bool(owner) and owner[0] != "<locals>"
    tree = ast.parse(around + (f" class {owner[0]}:\n  pass" if in_class else " pass"))
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
    found = [i for i in dis.get_instructions(code) if i.opname not in _OMITTED]
    numbers = {instruction.offset: number for number, instruction in enumerate(found)}
    for each in found:
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
