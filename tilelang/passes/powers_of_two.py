"""Powers of two: exponentials of values that are scaled by a number become powers of two.

    s = dot(q, k) * 0.5; m = maximum(m, s); p = exp(s - m)
        ->  s = dot(q, k) * 0.72135; m = maximum(m, s); p = exp2(s - m)

Chips compute powers of two, and multiply by log2(e) for every exponential.  Here that factor is
part of one that is there: no value gets a multiplication.  Values between the two are in units of
log(2): sums, differences, maxima and choices are scaled as what they are made of, -inf, inf and NaN
are what they were.  It is done where nothing else reads those values.  What is divided by a number
is multiplied by log2(e) over it: s = dot(q, k) / sqrt(D) is scaled, too.

Rounding: the scaled factor is rounded once, as the other was, and the product of `exp` with log2(e)
and its rounding are saved.  Values over 2.35e38, which is the greatest float32 by log2(e), become
inf; a constant as large is left alone, and all that it meets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from .. import ir
from ..ir.traversal import map_body, map_children, map_index, map_stmt
from ..language.op import OPS

LOG2_E = math.log2(math.e)
GREATEST = 3.4028234663852886e38 / LOG2_E  # float32's, before it is scaled
# Scaled if all operands are; of a choice, the first one is a mask.
SCALED = {name for name, op in OPS.items() if op.linear} - {"cast"}  # which would round others
SCALED |= {"maximum", "minimum", "max", "min", "full"}


def powers_of_two(kernel: ir.KernelIR) -> ir.KernelIR:
    """The kernel with powers of two in place of exponentials whose scale it folds log2(e) into."""
    if not any(map(_is_exp, ir.every_expr(kernel.body))):
        return kernel
    names = _scaled(kernel)
    run = _Scaling(set(names))
    body = map_body(kernel.body, lambda stmt: (run.statement(stmt),))
    assert run.names == names, "a value that is read as it was is scaled"
    return replace(kernel, body=body) if run.folded else kernel


def _is_exp(expr: ir.Expr) -> bool:
    return isinstance(expr, ir.Apply) and expr.op == "exp" and expr.type.dtype == "float32"


def _scaled(kernel: ir.KernelIR) -> set[str]:
    """The most names that can all be scaled: what is read elsewhere, and what has none, go."""
    every = tuple(ir.statements(kernel.body))
    carries = tuple(c for s in every if isinstance(s, ir.Loop) for c in s.carries)
    named = {s.name: s.value for s in every if isinstance(s, ir.Assign)}
    named |= {name: c.init for c in carries for name in (c.name, c.out)}
    names, before = {n for n, value in named.items() if value.type.dtype == "float32"}, -1
    while len(names) != before:
        before = len(names)
        for stmt in (*every, *reversed(every)):
            _Scaling(names).statement(stmt)
        for carry in carries:
            if not {carry.name, carry.out} <= names:
                names -= {carry.name, carry.out}
    return names


class _NotScaled(Exception):
    """A value that would need a multiplication of its own."""


@dataclass
class _Scaling:
    """One run over a kernel, in which `names` are scaled; those that cannot be go.

    folded  factors that took log2(e)
    """

    names: set[str]
    folded: int = 0

    def statement(self, stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.Assign(name):
                return replace(stmt, value=self.defined(name, stmt.value))
            case ir.Loop():
                return replace(stmt, carries=tuple(map(self.carry, stmt.carries)))
            case _:
                return map_stmt(stmt, self.plain, lambda entry: map_index(entry, self.plain))

    def carry(self, carry: ir.Carry) -> ir.Carry:
        init, after = (self.defined(carry.name, e) for e in (carry.init, carry.next))
        return replace(carry, init=init, next=after)

    def defined(self, name: str, value: ir.Expr) -> ir.Expr:
        """The value of a name, scaled where the name is."""
        made = self.tried(value) if name in self.names else None
        if made is None:
            self.names.discard(name)
        return self.plain(value) if made is None else made

    def plain(self, expr: ir.Expr) -> ir.Expr:
        """The same value, of scaled ones where exponentials read them."""
        match expr:
            case ir.Var(name):
                self.names.discard(name)
                return expr
            case ir.Apply("exp", (power,)) if _is_exp(expr):
                made = self.tried(power)
                if made is not None:
                    return replace(expr, op="exp2", args=(made,))
                return map_children(expr, self.plain)
            case _:
                return map_children(expr, self.plain)

    def tried(self, expr: ir.Expr) -> ir.Expr | None:
        """The value times log2(e), if there is one without a multiplication that was not there."""
        before = self.folded
        try:
            return self.scaled(expr)
        except _NotScaled:
            self.folded = before
            return None

    def scaled(self, expr: ir.Expr) -> ir.Expr:
        if expr.type.dtype != "float32":
            raise _NotScaled
        match expr:
            case ir.Const(value):
                return replace(expr, value=_times(value))
            case ir.Var(name) if name in self.names:
                return expr
            case ir.Apply("full", ()):
                attrs = dict(expr.attrs)
                attrs["value"] = _times(attrs["value"])
                return replace(expr, attrs=tuple(attrs.items()))
            case ir.Apply("where", (mask, yes, no)):
                return replace(expr, args=(self.plain(mask), self.scaled(yes), self.scaled(no)))
            case ir.Apply("mul", (value, ir.Const() as factor)):
                return replace(expr, args=(self.plain(value), self.fold(factor)))
            case ir.Apply("mul", (ir.Const() as factor, value)):
                return replace(expr, args=(self.fold(factor), self.plain(value)))
            case ir.Apply("div", (value, ir.Const() as by)):
                factor = replace(by, value=_inverse(by.value))
                return replace(expr, op="mul", args=(self.plain(value), self.fold(factor)))
            case ir.Apply(op, args) if op in SCALED:
                return replace(expr, args=tuple(map(self.scaled, args)))
            case _:
                raise _NotScaled

    def fold(self, factor: ir.Const) -> ir.Expr:
        made = self.scaled(factor)
        self.folded += 1
        return made


def _inverse(value: object) -> float:
    """One over a constant, if float32 has all bits of it."""
    if not isinstance(value, int | float) or not 2.0**-126 <= abs(value) <= 2.0**126:
        raise _NotScaled
    return 1 / value


def _times(value: object) -> float:
    """A constant times log2(e)."""
    if not isinstance(value, int | float) or (abs(value) > GREATEST and math.isfinite(value)):
        raise _NotScaled
    return value * LOG2_E
