"""Keep inside: positions that were not proved to lie in their arrays are clamped, stores masked.

    x[i - 1, :]             ->  x[clip(i - 1, 0, 5), :]
    y[index[m], :] = v      ->  y[clip(index[m], 0, 5), :] = v   where 0 <= index[m] < 6

From here on every scalar position lies in its array, whatever memory holds; nobody else asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .. import ir
from ..analysis.facts import Facts
from ..ir.integers import clamped, compare
from ..ir.traversal import map_body, map_range, map_stmt
from ..language.build import binary

BOOL = ir.Type((), "bool")


def keep_inside(kernel: ir.KernelIR, facts: Facts) -> ir.KernelIR:
    """The kernel with every scalar position inside of its array."""
    run = _Pass(kernel, facts, {})
    axes = tuple(map_range(a, run.read) for a in kernel.axes)
    return replace(kernel, axes=axes, body=map_body(kernel.body, run.statement))


@dataclass(frozen=True)
class _Pass:
    """One run over a kernel; a node that several places share stays one node."""

    kernel: ir.KernelIR
    facts: Facts
    done: dict[int, ir.Expr]

    def statement(self, stmt: ir.Stmt) -> ir.Body:
        made = map_stmt(stmt, self.read)
        if isinstance(stmt, ir.Store) and isinstance(made, ir.Store):
            mask = made.mask
            for inside in self.conditions(stmt):
                mask = inside if mask is None else binary("logical_and", inside, mask, stmt.loc)
            made = replace(made, index=self.index(stmt.tensor, stmt.index), mask=mask)
        return (made,)

    def read(self, expr: ir.Expr) -> ir.Expr:
        """An expression with the positions of its loads in range."""
        if id(expr) not in self.done:
            inner = ir.map_children(expr, self.read)
            if isinstance(expr, ir.Load) and isinstance(inner, ir.Load):
                inner = replace(inner, index=self.index(expr.tensor, expr.index))
            self.done[id(expr)] = inner
        return self.done[id(expr)]

    def index(self, tensor: str, index: tuple[ir.Index, ...]) -> tuple[ir.Index, ...]:
        sizes = self.kernel.tensor(tensor).shape
        return tuple(self.entry(e, size) for e, size in zip(index, sizes, strict=True))

    def entry(self, entry: ir.Index, size: int) -> ir.Index:
        if isinstance(entry, ir.At) and self.leaves(entry.expr, size):
            return ir.At(clamped(self.read(entry.expr), size))
        return ir.map_index(entry, self.read)

    def conditions(self, store: ir.Store) -> Iterator[ir.Expr]:
        """What must hold for a store to be done, last dimension first."""
        sizes = self.kernel.tensor(store.tensor).shape
        for entry, size in reversed(tuple(zip(store.index, sizes, strict=True))):
            if isinstance(entry, ir.At) and self.leaves(entry.expr, size):
                place = self.read(entry.expr)
                low, high = compare("ge", place, 0), compare("lt", place, size)
                yield ir.Apply("logical_and", (low, high), BOOL)

    def leaves(self, expr: ir.Expr, size: int) -> bool:
        """Whether a position may leave a dimension that has any."""
        return bool(size) and not self.facts.stays_inside(expr, size)
