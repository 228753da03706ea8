"""Keep inside: positions that were not proved to lie in their arrays are clamped, stores masked.

    x[i - 1, :]             ->  x[clip(i - 1, 0, 5), :]
    y[index[m], :] = v      ->  y[clip(index[m], 0, 5), :] = v   where 0 <= index[m] < 6

From here on every scalar position lies in its array, whatever memory holds; nobody else asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..analysis.facts import Facts
from ..ir import (
    Apply,
    At,
    Const,
    Expr,
    Index,
    KernelIR,
    Load,
    Stmt,
    Store,
    Type,
    map_children,
    map_index,
)
from ..ir.integers import INT, clamped
from ..ir.traversal import map_body, map_range, map_stmt
from ..language.build import binary

BOOL = Type((), "bool")


def keep_inside(ir: KernelIR, facts: Facts) -> KernelIR:
    """The kernel with every scalar position inside of its array."""
    run = _Pass(ir, facts, {})
    axes = tuple(map_range(a, run.read) for a in ir.axes)
    return replace(ir, axes=axes, body=map_body(ir.body, run.statement))


@dataclass(frozen=True)
class _Pass:
    """One run over a kernel; a node that several places share stays one node."""

    ir: KernelIR
    facts: Facts
    done: dict[int, Expr]

    def statement(self, stmt: Stmt) -> tuple[Stmt, ...]:
        made = map_stmt(stmt, self.read)
        if isinstance(stmt, Store) and isinstance(made, Store):
            mask = made.mask
            for inside in self.conditions(stmt):
                mask = inside if mask is None else binary("logical_and", inside, mask, stmt.loc)
            made = replace(made, index=self.index(stmt.tensor, stmt.index), mask=mask)
        return (made,)

    def read(self, expr: Expr) -> Expr:
        """An expression with the positions of its loads in range."""
        if id(expr) not in self.done:
            inner = map_children(expr, self.read)
            if isinstance(expr, Load) and isinstance(inner, Load):
                inner = replace(inner, index=self.index(expr.tensor, expr.index))
            self.done[id(expr)] = inner
        return self.done[id(expr)]

    def index(self, tensor: str, index: tuple[Index, ...]) -> tuple[Index, ...]:
        sizes = self.ir.tensor(tensor).shape
        return tuple(self.entry(e, size) for e, size in zip(index, sizes, strict=True))

    def entry(self, entry: Index, size: int) -> Index:
        if isinstance(entry, At) and self.leaves(entry.expr, size):
            return At(clamped(self.read(entry.expr), size))
        return map_index(entry, self.read)

    def conditions(self, store: Store) -> Iterator[Expr]:
        """What must hold for a store to be done, last dimension first."""
        sizes = self.ir.tensor(store.tensor).shape
        for entry, size in reversed(tuple(zip(store.index, sizes, strict=True))):
            if isinstance(entry, At) and self.leaves(entry.expr, size):
                place = self.read(entry.expr)
                low, high = _compare("ge", place, 0), _compare("lt", place, size)
                yield Apply("logical_and", (low, high), BOOL)

    def leaves(self, expr: Expr, size: int) -> bool:
        """Whether a position may leave a dimension that has any."""
        return bool(size) and not self.facts.stays_inside(expr, size)


def _compare(op: str, expr: Expr, number: int) -> Expr:
    return Apply(op, (expr, Const(number, INT)), BOOL)
