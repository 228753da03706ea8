"""Turn late: a value that only products read is turned where they read it.

    a = cast(transpose(x)); dot(a, y)   ->   a = cast(x); dot(transpose(a), y)

A product takes an operand as it lies and sums over either dimension, which costs nothing; a block
that is turned first is a pass through the cross-lane unit.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ..ir import Apply, Assign, Expr, KernelIR, Stmt, Type, Var, exprs_of, statements, walk
from ..ir.traversal import map_body, rewrite_body


def turn_late(ir: KernelIR) -> KernelIR:
    """The kernel in which operands of products have names as they lie."""
    reads, products = Counter[str](), Counter[str]()
    for expr in exprs_of(ir.body, ir.axes):
        for part in walk(expr):
            if isinstance(part, Var):
                reads[part.name] += 1
            if isinstance(part, Apply) and part.op == "dot":
                products.update(a.name for a in part.args if isinstance(a, Var))
    made = [s for s in statements(ir.body) if isinstance(s, Assign)]
    names = Counter(s.name for s in made)
    found = {
        s.name: turned
        for s in made
        if (turned := _turned(s.value)) is not None
        and names[s.name] == 1
        and reads[s.name] == products[s.name]
    }
    if not found:
        return ir

    def named(stmt: Stmt) -> tuple[Stmt, ...]:
        """What it is now: one of these may be computed of another."""
        turned = _turned(stmt.value) if isinstance(stmt, Assign) and stmt.name in found else None
        return (stmt,) if turned is None else (replace(stmt, value=turned.args[0]),)

    def read(expr: Expr) -> Expr | None:
        if not isinstance(expr, Var) or expr.name not in found:
            return None
        turned = found[expr.name]
        return replace(turned, args=(Var(expr.name, turned.args[0].type),))

    return replace(ir, body=map_body(rewrite_body(ir.body, read), named))


def _turned(value: Expr) -> Apply | None:
    """The value as a transposition of something, if it is one."""
    match value:
        case Apply("transpose"):
            return value
        case Apply("cast", (Apply("transpose", (block,)) as turned,)):
            inner = replace(value, args=(block,), type=Type(block.type.shape, value.type.dtype))
            return replace(turned, args=(inner,), type=value.type)
        case _:
            return None
