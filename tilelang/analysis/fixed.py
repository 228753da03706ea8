"""fixed_facts(ir) -> tiles whose length is part of what the kernel means: whose place is, too.

for t in hl.tile(offsets[g], offsets[g + 1], block_size=8):
    y[t, :] = x[t, :] - x[t, :].mean(0)     of 8 rows from offsets[g] on, and of no other 8
    part[t.begin, :] = x[t, :].sum(0)       nor stored elsewhere
    y[t, :] = 2 * x[t, :]                   whatever rows a tile has

They are those that would be refused if the block were the config's, and those that say where
something is stored or read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..ir import Along, Axis, Index, KernelIR, TileScalar, index_exprs, integers
from .carries import definitions
from .facts import Facts, FixedFact
from .stores import is_cut, sources
from .uses import references


def fixed_facts(ir: KernelIR, free: Facts) -> tuple[FixedFact, ...]:
    """One for each tile axis of a fixed block that something goes by; `free` is of `freed(ir)`."""
    named = {f.axis: f for f in (*_named(ir), *_seen(free))}
    return tuple(f for name, f in named.items() if _is_fixed(ir.axis(name)))


def freed(ir: KernelIR) -> KernelIR | None:
    """The kernel in which the config chooses what the author fixed.

    None where he fixed nothing, or all tiles are blocks of arrays as they are of ranges.
    """
    fixed = {a.name for a in ir.axes if _is_fixed(a)}
    if not any(_elsewhere(ir.axis(name), ir) for name in fixed):
        return None
    axes = tuple(replace(a, block=a.name) if a.name in fixed else a for a in ir.axes)
    return replace(ir, axes=axes)


def _is_fixed(axis: Axis) -> bool:
    """Whether there would be several tiles of another block."""
    return axis.fixed is not None and is_cut(replace(axis, block=axis.name))


def _elsewhere(axis: Axis, ir: KernelIR) -> bool:
    """Whether its first tile may begin elsewhere than at a multiple of the block in an array."""
    at_multiple = integers.is_multiple(axis.begin, axis.fixed or 1)
    indexed = (e for site in references(ir.body) for e in site.index)
    return not at_multiple or any(_moves(e, axis.name) for e in indexed)


def _moves(entry: Index, axis: str) -> bool:
    return isinstance(entry, Along) and entry.axis == axis and entry.offset is not None


def _named(ir: KernelIR) -> Iterator[FixedFact]:
    """Tiles that a position is computed from."""
    defined = definitions(ir)
    for site in references(ir.body):
        exprs = [e for entry in site.index for e in index_exprs(entry)]
        for expr in sources(exprs, ir, defined):
            if isinstance(expr, TileScalar) and expr.what != "block_size":
                yield FixedFact(expr.axis, f"where {site.tensor} is indexed", site.loc)


def _seen(facts: Facts) -> Iterator[FixedFact]:
    """Tiles that results go by."""
    for store in facts.stores:
        for axis in {*store.varies, *store.cut, *store.squares, *store.tiles}:
            yield FixedFact(axis, store.tensor, store.loc)
    for fold in facts.folds:
        yield FixedFact(fold.axis, fold.into, fold.loc)
    for lag in facts.lags:
        yield FixedFact(lag.axis, lag.into, lag.loc)
    for order in facts.orders:
        yield FixedFact(order.axis, order.tensor, order.loc)
