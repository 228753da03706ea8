"""Names, constants, operators, conditional expressions and text."""

from __future__ import annotations

import ast
import operator as python
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import Loc, ParseError
from ..ir import Expr, TileIndex, Type
from ..language.build import unary as unary_op
from ..language.build import where
from ..language.calls import operator
from ..language.handles import TileHandle
from ..language.values import number_of
from . import observed
from .hosting import (
    HANDLES,
    computed,
    condition,
    holds_value,
    is_value,
    on_device,
    really,
    truth,
    under,
)
from .scope import Here, Rules, bind, evaluate, lookup, settled, variable

Operators = Mapping[type[ast.AST], tuple[str, Callable[..., Any]]]
BINARY: Operators = {
    ast.Add: ("+", python.add),
    ast.Sub: ("-", python.sub),
    ast.Mult: ("*", python.mul),
    ast.Div: ("/", python.truediv),
    ast.FloorDiv: ("//", python.floordiv),
    ast.Mod: ("%", python.mod),
    ast.Pow: ("**", python.pow),
    ast.MatMult: ("@", python.matmul),
    ast.BitAnd: ("&", python.and_),
    ast.BitOr: ("|", python.or_),
    ast.BitXor: ("^", python.xor),
    ast.LShift: ("<<", python.lshift),
    ast.RShift: (">>", python.rshift),
}
UNARY: Operators = {
    ast.USub: ("-x", python.neg),
    ast.UAdd: ("+x", python.pos),
    ast.Invert: ("~", python.invert),
}
COMPARE: Operators = {
    ast.Eq: ("==", python.eq),
    ast.NotEq: ("!=", python.ne),
    ast.Lt: ("<", python.lt),
    ast.LtE: ("<=", python.le),
    ast.Gt: (">", python.gt),
    ast.GtE: (">=", python.ge),
}


def constant(here: Here, node: ast.Constant) -> object:
    return node.value


# ---------------------------------------------------------------- operators


def binary(here: Here, node: ast.BinOp) -> object:
    left, right = evaluate(here, node.left), evaluate(here, node.right)
    return operate(here.loc(node), node.op, left, right)


def operate(loc: Loc, op: ast.operator, left: Any, right: Any) -> Any:
    """left op right: on host values what Python says, else an op of the language."""
    symbol, host = BINARY[type(op)]
    left, right = number_of(left, loc), number_of(right, loc)
    if isinstance(left, TileHandle) or isinstance(right, TileHandle):
        left, right = _positions(loc, symbol, left, right)
    if computed(left) or computed(right):
        return settled(operator(symbol)(loc, left, right))
    return really(loc, host, observed.whole(left), observed.whole(right))


def _positions(loc: Loc, symbol: str, left: Any, right: Any) -> tuple[Any, Any]:
    """tile + k and tile - k are positions; no other arithmetic has a meaning for a tile."""
    tile, other = (left, right) if isinstance(left, TileHandle) else (right, left)
    scalar = is_value(other) and not other.type.rank and "int" in other.type.dtype
    whole = isinstance(other, int) and not isinstance(other, bool)
    if not (scalar or whole) or not (symbol == "+" or (symbol == "-" and tile is left)):
        hint = f"{tile.user}.index is its positions, {tile.user}.begin the first of them"
        raise ParseError(f"tile {tile.user} is used in arithmetic", loc, hint)
    positions = TileIndex(tile.axis, Type((tile.axis,), "int32"))
    return (positions, right) if tile is left else (left, positions)


def unary(here: Here, node: ast.UnaryOp) -> object:
    value, loc = evaluate(here, node.operand), here.loc(node)
    if isinstance(node.op, ast.Not):
        answer = truth(loc, value, "not")
        return (not answer) if isinstance(answer, bool) else settled(operator("not")(loc, answer))
    symbol, host = UNARY[type(node.op)]
    return settled(operator(symbol)(loc, value)) if computed(value) else really(loc, host, value)


def boolean(here: Here, node: ast.BoolOp) -> object:
    """`and`, `or`: host values decide at once, as in Python; scalars are combined.

    The right one is evaluated only if it matters.
    """
    word, loc = "and" if isinstance(node.op, ast.And) else "or", here.loc(node)
    value = evaluate(here, node.values[0])
    for other in node.values[1:]:
        answer = _either(loc, value, word)
        if not isinstance(answer, bool):
            needed = answer if word == "and" else unary_op("logical_not", answer, loc)
            right = evaluate(under(here, needed, loc), other)
            value = settled(operator(word)(loc, answer, _either(here.loc(other), right, word)))
        elif answer is (word == "and"):
            value = evaluate(here, other)
        else:
            return value
    return value


def _either(loc: Loc, value: Any, word: str) -> Any:
    if is_value(value) and value.type.rank:
        sign = "&" if word == "and" else "|"
        hint = f"{sign} combines elements: (a > 0) {sign} (b > 0)"
        raise ParseError(f"`{word}` of a value of type {value.type}", loc, hint)
    return truth(loc, value, f"`{word}`")


def compare(here: Here, node: ast.Compare) -> object:
    """a < b < c is a < b and b < c."""
    left, loc = evaluate(here, node.left), here.loc(node)
    answer: Any = True
    for op, place in zip(node.ops, node.comparators, strict=True):
        right = evaluate(here, place)
        now = _compared(loc, op, left, right)
        answer = settled(operator("and")(loc, answer, now)) if is_value(answer) else now
        if not is_value(answer) and len(node.ops) > 1 and not really(loc, bool, answer):
            return answer
        left = right
    return answer


def _compared(loc: Loc, op: ast.cmpop, left: Any, right: Any) -> Any:
    if isinstance(op, ast.Is | ast.IsNot):
        return really(loc, python.is_, left, right) is isinstance(op, ast.Is)
    if isinstance(op, ast.In | ast.NotIn):
        if holds_value(left) or holds_value(right) or isinstance(right, HANDLES):
            hint = "compare with each: (a == 0) | (a == 1)"
            raise ParseError("`in` on values that are not known while compiling", loc, hint)
        return really(loc, python.contains, right, left) is isinstance(op, ast.In)
    symbol, host = COMPARE[type(op)]
    if isinstance(left, TileHandle) or isinstance(right, TileHandle):
        user = left.user if isinstance(left, TileHandle) else right.user
        raise ParseError(f"tile {user} is compared", loc, f"compare its positions: {user}.index")
    if computed(left) or computed(right):
        return settled(operator(symbol)(loc, left, right))
    if holds_value(left) or holds_value(right):
        raise ParseError("sequences that hold values are compared", loc, "compare item by item")
    return really(loc, host, left, right)


def conditional(here: Here, node: ast.IfExp) -> object:
    """a if c else b: one of them, or a select when c is loaded from a tensor."""
    answer = condition(here.loc(node.test), evaluate(here, node.test), "`if ... else`")
    if isinstance(answer, bool):
        return evaluate(here, node.body if answer else node.orelse)
    loc = here.loc(node)
    first = evaluate(under(here, answer, loc), node.body)
    opposite: Expr = unary_op("logical_not", answer, loc)
    second = evaluate(under(here, opposite, loc), node.orelse)
    return settled(where(answer, first, second, loc))


def walrus(here: Here, node: ast.NamedExpr) -> object:
    if node.target.id not in here.frame.own:
        hint = "assign it in a statement of its own"
        raise ParseError(":= in a comprehension or a lambda", here.loc(node), hint)
    bind(here, node.target.id, evaluate(here, node.value), here.loc(node))
    return variable(here.frame, node.target.id)


# ---------------------------------------------------------------- text


def text(here: Here, node: ast.JoinedStr) -> object:
    return "".join(str(evaluate(here, part)) for part in node.values)


def formatted(here: Here, node: ast.FormattedValue) -> object:
    value, loc = evaluate(here, node.value), here.loc(node.value)
    if on_device(value):
        hint = "format shapes, dtypes and other host values"
        raise ParseError("an f-string shows a value of the kernel", loc, hint)
    convert = {115: str, 114: repr, 97: ascii}.get(node.conversion)
    spec = "" if node.format_spec is None else str(evaluate(here, node.format_spec))
    return really(loc, format, value if convert is None else really(loc, convert, value), spec)


RULES: Rules = {
    ast.Constant: constant,
    ast.Name: lookup,
    ast.BinOp: binary,
    ast.UnaryOp: unary,
    ast.BoolOp: boolean,
    ast.Compare: compare,
    ast.IfExp: conditional,
    ast.NamedExpr: walrus,
    ast.JoinedStr: text,
    ast.FormattedValue: formatted,
}
