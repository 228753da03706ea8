"""Select numbers: single numbers are loaded without a mask, and chosen after that.

    hl.load(scale, [g], mask=g < 3, other=7)   ->   where(g < 3, scale[g], 7)

Positions were clamped before, so that reading is safe whatever the mask says; scalar memory has no
masked loads.  A mask that an enclosing `where` states already is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from .. import ir
from ..ir.traversal import loads, map_body, map_children, map_index, map_range, map_stmt


def select_numbers(kernel: ir.KernelIR) -> ir.KernelIR:
    """The kernel in which no load of a single number has a mask."""
    run = _Selecting({})
    axes = tuple(map_range(axis, run.read) for axis in kernel.axes)
    body = map_body(kernel.body, lambda stmt: (run.statement(stmt),))
    return replace(kernel, axes=axes, body=body)


Stated = frozenset[ir.Expr]  # what holds wherever a value is used


@dataclass(frozen=True)
class _Selecting:
    """One run over a kernel; what has no such load stays as it is, and shared where it was."""

    done: dict[tuple[int, Stated], ir.Expr]

    def read(self, expr: ir.Expr, stated: Stated = frozenset()) -> ir.Expr:
        asked = _asked(expr)
        if not asked:
            return expr
        key = id(expr), stated & asked
        if key not in self.done:
            self.done[key] = self._rewritten(expr, stated & asked)
        return self.done[key]

    def statement(self, stmt: ir.Stmt) -> ir.Stmt:
        """What a store's mask states holds where its positions matter."""
        mask = stmt.mask if isinstance(stmt, ir.Store) else None
        place = partial(self.read, stated=_stated(mask))
        return map_stmt(stmt, self.read, lambda entry: map_index(entry, place))

    def _rewritten(self, expr: ir.Expr, stated: Stated) -> ir.Expr:
        match expr:
            case ir.Apply("where", (condition, yes, no)):
                under = stated.union(ir.conjuncts(condition))
                args = self.read(condition, stated), self.read(yes, under), self.read(no, stated)
                return replace(expr, args=args)
            case ir.Load(mask=mask) if mask is not None and not expr.type.shape:
                return self._selected(expr, mask, stated)
            case ir.Load(mask=mask) if mask is not None:
                under = partial(self.read, stated=stated | _stated(mask))
                block = map_children(replace(expr, mask=None), under)
                return replace(block, mask=self.read(mask, stated))
            case _:
                return map_children(expr, partial(self.read, stated=stated))

    def _selected(self, load: ir.Load, mask: ir.Expr, stated: Stated) -> ir.Expr:
        needed = _stated(mask)
        under = partial(self.read, stated=stated | needed)
        number = map_children(replace(load, mask=None), under)
        if needed <= stated:
            return number
        args = (self.read(mask, stated), number, ir.Const(load.other, load.type))
        return ir.Apply("where", args, load.type, (), load.loc, (("user", load.tensor),))


def _asked(expr: ir.Expr) -> Stated:
    """What the masks of the numbers in it state."""
    masks = (e.mask for e in loads(expr) if not e.type.shape)
    return frozenset().union(*map(_stated, masks))


def _stated(mask: ir.Expr | None) -> Stated:
    return frozenset() if mask is None else frozenset(ir.conjuncts(mask))
