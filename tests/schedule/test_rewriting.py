"""What is held is what is walked and what is rewritten: every expression of every physical type.

Each type is built from its own annotations, with a name wherever it may hold an expression, so that
a field that is new cannot be forgotten.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from tilelang import ir
from tilelang.codegen.pallas.plan import axis, physical, rewriting
from tilelang.codegen.pallas.plan.physical import PExpr
from tilelang.errors import Loc
from tilelang.ir import Apply, Type, Var

INT = Type((), "int32")
OLD, NEW = Var("old", INT), Var("new", INT)
PLAIN: dict[Any, Any] = {
    Type: INT, str: "x", int: 1, bool: False, Loc: Loc("kernel.py", 1, 0, 1, ""),
    axis.Mask: axis.Mask("k", "store"), Any: OLD,  # a Read, of a module that imports its own
}  # fmt: skip
SELECT = (physical.All(), physical.Part(0, 8), physical.Row(OLD), physical.Step("k", 8, OLD))
STMT = physical.Bind("a", OLD, None, "a")
EXPRS = [c for c in get_args(physical.PExpr) if c not in get_args(ir.Expr)]
STMTS = list(get_args(physical.PStmt))


def sample(hint: Any) -> Any:
    """A value of an annotated type; OLD for an expression."""
    if hint in PLAIN:
        return PLAIN[hint]
    if hint in (physical.PExpr, ir.Expr):
        return OLD
    options, kind = get_args(hint), get_origin(hint)
    match kind:
        case types.UnionType if {type(s) for s in SELECT} == set(options):
            return SELECT
        case types.UnionType if set(options) == set(STMTS):
            return STMT
        case types.UnionType | _ if kind in (types.UnionType, Union) and type(None) in options:
            rest = [o for o in options if o is not type(None)]
            return OLD if set(rest) >= set(get_args(ir.Expr)) else sample(rest[0])
        case _ if kind is Literal:
            return options[0]
        case _ if kind is tuple and options[-1] is not Ellipsis:
            return tuple(map(sample, options))
        case _ if kind is tuple:
            found = sample(options[0])
            return found if isinstance(found, tuple) else (found,)
        case _:
            return built(hint)


def built(kind: Any) -> Any:
    """An instance of a dataclass that holds all it can."""
    assert is_dataclass(kind), f"no sample of {kind}: say in this test how one is made"
    hints = get_type_hints(kind)
    return kind(**{f.name: sample(hints[f.name]) for f in fields(kind)})


def held(node: Any) -> Iterator[Any]:
    """Every name that is found in the fields of a value, at any depth."""
    if isinstance(node, Var):
        yield node
    elif isinstance(node, tuple):
        for item in node:
            yield from held(item)
    elif is_dataclass(node):
        for field in fields(node):
            yield from held(getattr(node, field.name))


def renamed(expr: PExpr) -> PExpr:
    return NEW if expr == OLD else expr


def test_every_operand_of_an_expression():
    for kind in EXPRS:
        expr = built(kind)
        own = sum(e == OLD for e in held(expr))
        assert sum(e == OLD for e in physical.walk_physical(expr)) == own, kind
        changed = rewriting.rewritten(expr, renamed)
        assert set(held(changed)) == ({NEW} if own else set()), kind


def test_every_expression_of_a_statement():
    for kind in STMTS:
        stmt = built(kind)
        own = sum(e == OLD for e in held(stmt))
        assert own and sum(e == OLD for e in physical.parts_of(stmt)) == own, kind
        assert set(held(rewriting.rewrite(stmt, renamed))) == {NEW}, kind


def test_what_needs_no_change_stays_as_it_is():
    for kind in STMTS:
        assert rewriting.rewrite(built(kind), lambda expr: expr) == built(kind)


def test_operations_and_bounds_that_are_shared_with_the_ir():
    load = ir.Load("offsets", (ir.At(OLD),), INT)
    expr = Apply("add", (OLD, Apply("neg", (load,), INT)), INT)
    assert list(held(rewriting.rewritten(expr, renamed))) == [NEW, NEW]


def test_most_of_them_hold_something():
    assert sum(any(held(built(kind))) for kind in EXPRS) >= 9 and len(STMTS) == 4
