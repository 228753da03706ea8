"""Assignments, assert, raise, return and expressions as statements."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..errors import CallError, Loc, ParseError
from ..language.handles import TensorHandle
from . import observed
from .containers import check_mutable, consumed, spread
from .expressions import operate
from .hosting import is_value, kind_of, reading, really, truth
from .indexing import items, place
from .memory import load, store
from .scope import Here, Left, Rules, bind, evaluate, lookup

# Operators that change a list, dict or set, whoever else holds it.
IN_PLACE: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.iadd,
    ast.Mult: operator.imul,
    ast.Sub: operator.isub,
    ast.BitOr: operator.ior,
    ast.BitAnd: operator.iand,
    ast.BitXor: operator.ixor,
}

# ---------------------------------------------------------------- assignment


def assign(here: Here, node: ast.Assign | ast.AnnAssign) -> None:
    if node.value is not None:
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        value = _value(replace(here, whole=node.value), targets[0], node.value)
        for target in targets:
            _to(here, target, value, here.loc(node))


def _value(here: Here, target: ast.expr, value: ast.expr) -> object:
    """The value; a tensor that it makes is called what it is assigned to."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        starred = any(isinstance(part, ast.Starred) for part in [*target.elts, *value.elts])
        if not starred and len(target.elts) == len(value.elts):
            return tuple(_value(here, t, v) for t, v in zip(target.elts, value.elts))
    wish = target.id if isinstance(target, ast.Name) else None
    return evaluate(replace(here, wish=wish), value)


def _to(here: Here, target: ast.expr, value: Any, loc: Loc) -> None:
    match target:
        case ast.Name():
            bind(here, target.id, value, loc)
        case ast.Tuple() | ast.List():
            for part, item in spread(here, target, value):
                _to(here, part, item, loc)
        case ast.Subscript():
            _element(here, target, value, loc)
        case _:
            hint = "assign to a name"
            raise ParseError("an attribute is assigned to", here.loc(target), hint)


def _element(here: Here, target: ast.Subscript, value: Any, loc: Loc) -> None:
    """y[index] = value: a store, or an item of a list that the kernel made."""
    base = evaluate(here, target.value)
    if isinstance(base, TensorHandle):
        entries = items(here, target.slice)
        store(here, base, place(here, base, entries, loc, False), value, loc)
    elif isinstance(base, list | dict):
        check_mutable(here, base, here.loc(target))
        really(here.loc(target), base.__setitem__, evaluate(here, target.slice), value)
    elif is_value(base):
        hint = "make a new value with hl.where(condition, new, old)"
        raise ParseError("an element of a value is assigned to", here.loc(target), hint)
    else:
        hint = "make a new one, or change a list or a dict that the kernel made"
        raise ParseError(f"an item of {kind_of(base)} is assigned to", here.loc(target), hint)


def augmented(here: Here, node: ast.AugAssign) -> None:
    """x += v, and y[index] += v: load, add, store."""
    loc = here.loc(node)
    if isinstance(node.target, ast.Subscript):
        return _element_augmented(here, node, node.target, loc)
    if not isinstance(node.target, ast.Name):
        raise ParseError("an attribute is assigned to", here.loc(node.target), "assign to a name")
    before = lookup(here, ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target))
    value = evaluate(here, node.value)
    if isinstance(before, list | dict | set) and type(node.op) in IN_PLACE:
        check_mutable(here, before, loc)
        value = really(loc, IN_PLACE[type(node.op)], before, consumed(loc, before, value))
    else:
        value = operate(loc, node.op, before, value)
    bind(here, node.target.id, value, loc)


def _element_augmented(here: Here, node: ast.AugAssign, target: ast.Subscript, loc: Loc) -> None:
    base = evaluate(here, target.value)
    if not isinstance(base, TensorHandle | list | dict):
        return _element(here, target, None, loc)  # refused, whatever would be added
    if not isinstance(base, TensorHandle):
        before = reading(loc, observed.item, base, evaluate(here, target.slice))
        value = operate(loc, node.op, before, evaluate(here, node.value))
        return _element(here, target, value, loc)
    entries = items(here, target.slice)
    where = place(here, base, entries, loc, False)
    before = load(here, base, entries, here.loc(target)) if here.loops else 0
    store(here, base, where, operate(loc, node.op, before, evaluate(here, node.value)), loc)


# ---------------------------------------------------------------- checks


def assert_(here: Here, node: ast.Assert) -> None:
    """Host code checks shapes; a failing check is a wrong call."""
    answer = truth(here.loc(node.test), evaluate(here, node.test), "`assert`")
    if not isinstance(answer, bool):
        hint = "only shapes, dtypes and other host values are checked"
        what = "`assert` on a condition that is not known while compiling"
        raise ParseError(what, here.loc(node.test), hint)
    if not answer:
        said = "" if node.msg is None else str(evaluate(here, node.msg))
        raise CallError(said or f"{ast.unparse(node.test)} does not hold", here.loc(node))


def raise_(here: Here, node: ast.Raise) -> None:
    if here.condition is not None:
        hint = "only shapes, dtypes and other host values are checked"
        what = "`raise` under a condition that is not known while compiling"
        raise ParseError(what, here.loc(node), hint)
    value = None if node.exc is None else evaluate(here, node.exc)
    name = value.__name__ if isinstance(value, type) else type(value).__name__
    text = "" if isinstance(value, type) else str(value)
    raise CallError(f"{name}: {text}" if text else name, here.loc(node))


# ---------------------------------------------------------------- the rest


def expression(here: Here, node: ast.Expr) -> None:
    """A call for its effect; docstrings and bare values have none."""
    evaluate(replace(here, wish=None, whole=node.value), node.value)


def pass_(here: Here, node: ast.Pass) -> None:
    return None


def return_(here: Here, node: ast.Return) -> Left:
    inner = replace(here, whole=node.value)
    if not here.calls and not here.loops:
        _check_whole(here, node.value)
    value = None if node.value is None else evaluate(inner, node.value)
    return Left("return", value, here.loc(node))


def _check_whole(here: Here, value: ast.expr | None) -> None:
    """ParseError for y[0] that the kernel itself returns: there is no loop to load it in."""
    for each in value.elts if isinstance(value, ast.Tuple | ast.List) else [value]:
        if isinstance(each, ast.Subscript) and isinstance(each.value, ast.Name):
            base = evaluate(here, each.value)
            if isinstance(base, TensorHandle):
                hint = f"return {each.value.id}, and index what the call gives"
                what = f"a part of {each.value.id} is returned"
                raise ParseError(what, here.loc(each), hint)


def jump(here: Here, node: ast.Break | ast.Continue) -> Left:
    return Left("break" if isinstance(node, ast.Break) else "continue", None, here.loc(node))


RULES: Rules = {
    ast.Assign: assign,
    ast.AnnAssign: assign,
    ast.AugAssign: augmented,
    ast.Assert: assert_,
    ast.Raise: raise_,
    ast.Expr: expression,
    ast.Pass: pass_,
    ast.Return: return_,
    ast.Break: jump,
    ast.Continue: jump,
}
