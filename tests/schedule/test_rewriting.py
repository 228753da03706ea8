"""What is walked is what is rewritten: of every physical expression and statement, all operands."""

from __future__ import annotations

from tilelang.codegen.pallas.plan import physical
from tilelang.codegen.pallas.plan.physical import PExpr, PStmt, Row
from tilelang.errors import Loc
from tilelang.ir import Apply, Type, Var

LOC = Loc("kernel.py", 1, 0, 1, "")
INT = Type((), "int32")
OLD, NEW = Var("old", INT), Var("new", INT)
ROWS = (physical.All(), Row(OLD))

EXPRS: dict[str, PExpr] = {
    "name": OLD,
    "operation": Apply("add", (OLD, Apply("neg", (OLD,), INT)), INT),
    "number of an array": physical.ScalarRead("offsets", (OLD,), INT),
    "block": physical.Read("x_ref", ROWS, INT),
    "rows": physical.TakeRows("x_ref", OLD, 0, ROWS, "rows", False, 1, 8, INT, "float32"),
}
STMTS: dict[str, PStmt] = {
    "local": physical.Bind("a", OLD, LOC, "a"),
    "scratch": physical.Keep("a", OLD, LOC),
    "store": physical.Write("y_ref", ROWS, OLD, LOC),
    "loop": physical.Inner(
        "k",
        "fori_loop",
        (physical.InnerCarry("acc", OLD, OLD, "acc_out", "acc"),),
        (physical.Bind("a", OLD, LOC, "a"),),
        LOC,
    ),
}


def renamed(expr: PExpr) -> PExpr:
    return NEW if expr == OLD else expr


def renames_all(before: list[PExpr], after: list[PExpr], what: str) -> None:
    assert OLD in before and OLD not in after, what
    assert after.count(NEW) == before.count(OLD) and len(after) == len(before), what


def test_every_operand_of_an_expression() -> None:
    for what, expr in EXPRS.items():
        changed = physical.rewritten(expr, renamed)
        renames_all(list(physical.walk_physical(expr)), list(physical.walk_physical(changed)), what)


def test_every_expression_of_a_statement() -> None:
    for what, stmt in STMTS.items():
        changed = physical.rewrite(stmt, renamed)
        renames_all(list(physical.parts_of(stmt)), list(physical.parts_of(changed)), what)


def test_what_needs_no_change_stays_as_it_is() -> None:
    for stmt in STMTS.values():
        assert physical.rewrite(stmt, lambda expr: expr) == stmt
