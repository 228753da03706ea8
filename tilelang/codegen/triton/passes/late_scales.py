"""Late scales: values of which a maximum is taken are scaled behind it, and where they are read.

    s = dot(q, k) * 0.5           s = dot(q, k)
    s = where(seen, s, -inf)  ->  s = where(seen, s, -inf)
    m = maximum(m, max(s))        m = maximum(m, max(s) * 0.5)
    p = exp2(s - m)               p = exp2(s * 0.5 - m)

A product and a difference are one instruction, so that one of every element is saved.  A product
with a positive number, rounded, keeps the order of what is multiplied: the greatest of products is
the product of the greatest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from tilelang.ir import (
    Apply,
    Assign,
    Const,
    Expr,
    KernelIR,
    Stmt,
    Var,
    map_children,
    map_index,
    statements,
)
from tilelang.ir.traversal import map_body, map_stmt

EXTREMES = ("max", "min")
TINIEST = 2.0**-126  # the least number of which float32 has all bits


def late_scales(ir: KernelIR) -> KernelIR:
    """The kernel with such scales where they cost least."""
    run = _Late({}, {})
    for stmt in statements(ir.body):
        if isinstance(stmt, Assign):
            run.define(stmt)
    while True:
        before, run.ordered = len(run.roots), set()
        body = map_body(ir.body, lambda stmt: (run.statement(stmt),))
        run.drop({root for root in run.roots.values() if root not in run.ordered})
        if len(run.roots) == before:
            return replace(ir, body=body) if run.roots else ir


@dataclass
class _Late:
    """What may be scaled late: names that nothing else reads; the others go while it runs.

    factors  what the first value of each chain of choices is scaled by
    roots    name -> the first of its chain
    ordered  chains of which a greatest or a least is taken
    """

    factors: dict[str, Const]
    roots: dict[str, str]
    ordered: set[str] = field(default_factory=set)

    def define(self, stmt: Assign) -> None:
        match stmt.value:
            case Apply("where", (_, Var(name), Const(other))) if math.isinf(other):
                if name in self.roots:
                    self.roots[stmt.name] = self.roots[name]
            case value:
                factor = _factor(value)
                if factor is not None and value.type.shape and value.type.dtype == "float32":
                    self.roots[stmt.name], self.factors[stmt.name] = stmt.name, factor

    def drop(self, roots: set[str]) -> None:
        """Whole chains: what one of them is, all are."""
        self.roots = {n: root for n, root in self.roots.items() if root not in roots}

    def statement(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, Assign) and stmt.name in self.roots:
            return replace(stmt, value=self.unscaled(stmt.value))
        return map_stmt(stmt, self.plain, lambda entry: map_index(entry, self.plain))

    def unscaled(self, expr: Expr) -> Expr:
        """A value of a chain before it is scaled."""
        match expr:
            case Apply("where", (mask, chosen, other)):
                return replace(expr, args=(self.plain(mask), self.unscaled(chosen), other))
            case Apply("mul", (value, Const()) | (Const(), value)):
                return self.plain(value)
            case _:
                return expr  # the name before it in its chain

    def plain(self, expr: Expr) -> Expr:
        """The same value, of what is scaled here."""
        match expr:
            case Apply(op, (Var(name),)) if op in EXTREMES and name in self.roots:
                self.ordered.add(self.roots[name])
                return self.scaled(expr, name)
            case Apply("sub", (Var(name) as value, other)) if name in self.roots:
                return replace(expr, args=(self.scaled(value, name), self.plain(other)))
            case Var(name) if name in self.roots:
                self.drop({self.roots[name]})
                return expr
            case _:
                return map_children(expr, self.plain)

    def scaled(self, value: Expr, name: str) -> Expr:
        return Apply("mul", (value, self.factors[self.roots[name]]), value.type)


def _factor(value: Expr) -> Const | None:
    """The positive number that a value is scaled by; what a mask puts there instead is infinite."""
    match value:
        case Apply("mul", (_, Const(by) as factor) | (Const(by) as factor, _)):
            return factor if TINIEST <= by < math.inf else None
        case Apply("where", (_, chosen, Const(other))) if math.isinf(other):
            return _factor(chosen)
        case _:
            return None
