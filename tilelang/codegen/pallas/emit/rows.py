"""Rows: the part of the step table that loops in a row fill, one loop after the other.

A row holds the number of its loop, and for every track the tile that its windows see.  Where the
loop is not one of a track's, the track stays where no block has to be copied.
"""

from __future__ import annotations

from tilelang.codegen.pallas.plan import types as plan
from tilelang.codegen.writer import Atom, Call, Node
from tilelang.ir import Expr

from .block import Block
from .expressions import Printer
from .ranges import Shared, outer_indices, seen_name, visiting


def print_add(printer: Printer, block: Block, table: plan.Table) -> None:
    """`def add_phase(g, phase, tm, n)`: appends one row."""
    names, phase = printer.names, printer.names.word("phase")
    outer, tracks = outer_indices(printer, table), [names.axes[t.name] for t in table.tracks]
    params = ", ".join([*outer, phase, *tracks, names.step])
    inner = block.inside(f"def add_{phase}({params}):")
    for column, value in names.columns.items():
        inner.raw(f"{value}[{names.step}] = {names.axes.get(column, column)}")
    inner.raw(f"return {names.step} + 1")
    block.raw("")


def print_loops(printer: Printer, block: Block, table: plan.Table, counter: str) -> None:
    """The loops in a row of one iteration around, each after the other; they move `counter`."""
    names, shared = printer.names, Shared()
    scopes = [visiting(printer, block, table, c, counter, shared) for c in table.phases]
    known = printer.scope()
    for scope in scopes:
        known.locals |= scope.locals
    waiting: dict[str, Expr] = {}
    for column, scope in zip(table.phases, scopes, strict=True):
        at: list[str] = []
        for track, stay in zip(table.tracks, column.stays, strict=True):
            index = names.axes[track.name]
            at.append(names.axes[column.axis] if stay is None else f"{index}_at")
            if stay is not None and waiting.get(track.name) != stay:
                block.put(f"{index}_at", known.node(stay))
                waiting[track.name] = stay
        assert column.visits is not None
        stop = scope.node(column.capped or column.visits.stop)
        outer = outer_indices(printer, table)
        _print_loop(
            printer, block, column, (scope.node(column.visits.first), stop), outer, at, counter
        )
    for column, scope in zip(table.phases, scopes, strict=True):
        if column.risen is not None:
            block.put(seen_name(printer, table, column), scope.node(column.risen))


def _print_loop(
    printer: Printer,
    block: Block,
    column: plan.Column,
    bounds: tuple[Node, Node],
    outer: list[str],
    at: list[str],
    counter: str,
) -> None:
    """`n = fori_loop(first, stop, lambda tm, n: add_phase(g, 0, tm, tm_1_at, n), n)`"""
    names, index = printer.names, printer.names.axes[column.axis]
    args = ", ".join([*outer, str(column.phase), *at, names.step])
    call = Atom(f"lambda {index}, {names.step}: add_{names.word('phase')}({args})")
    block.put(counter, Call("jax.lax.fori_loop", (*bounds, call, Atom(counter))))


def print_tail(
    printer: Printer,
    block: Block,
    table: plan.Table,
    column: plan.Column,
    tail: plan.Tail,
    outer: list[str],
) -> None:
    """Tiles behind the last range of one loop; the tracks of the others stay.

    `printer` knows the number of rows and the cursor.
    """
    names, at = printer.names, list[str]()
    for track, stay in zip(table.tracks, tail.at, strict=True):
        at.append(names.axes[column.axis] if stay is None else f"{names.axes[track.name]}_at")
        if stay is not None:
            block.put(at[-1], printer.node(stay))
    bounds = printer.node(tail.first), printer.node(tail.stop)
    _print_loop(printer, block, column, bounds, outer, at, names.steps)
