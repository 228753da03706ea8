"""Rows: the part of the step table that loops in a row fill, one loop after the other.

A row holds the number of its loop, and for every track the tile that its windows see.  Where the
loop is not one of a track's, the track stays where no block has to be copied.
"""

from __future__ import annotations

from tilelang.codegen.pallas.plan.types import Column, Table, Track
from tilelang.codegen.writer import Atom, Call, Node, infix

from .block import Block
from .expressions import Printer
from .names import Names
from .ranges import Shared, loop_range, outer_indices, seen_name

Range = tuple[Node, Node]


def print_add(printer: Printer, block: Block, table: Table) -> None:
    """`def add_phase(g, phase, tm, n)`: appends one row."""
    names = printer.names
    phase, tracks = names.word("phase"), [names.axes[t.name] for t in table.tracks]
    outer = outer_indices(printer, table)
    block.raw(f"def add_{phase}({', '.join([*outer, phase, *tracks, names.step])}):")
    inner = Block(block.indent + 4)
    for column in table.outer:
        inner.raw(f"{names.columns[column.axis]}[{names.step}] = {names.axes[column.axis]}")
    inner.raw(f"{names.columns[phase]}[{names.step}] = {phase}")
    for track in table.tracks:
        inner.raw(f"{names.columns[track.name]}[{names.step}] = {names.axes[track.name]}")
    inner.raw(f"return {names.step} + 1")
    block.lines += [*inner.lines, ""]


def print_loops(printer: Printer, block: Block, table: Table, counter: str) -> None:
    """The loops in a row of one iteration around, each after the other; they move `counter`."""
    ranges: list[Range] = []
    shared: Shared = {}
    for column in table.phases:
        first, stop = loop_range(printer, block, table, column, counter, shared)
        index = printer.names.axes[column.axis]
        ranges.append((block.named(f"{index}_first", first), block.named(f"{index}_stop", stop)))
    waiting: dict[str, tuple[int, ...]] = {}
    for position, column in enumerate(table.phases):
        first, stop = ranges[position]
        stays: list[str | None] = []
        for track in table.tracks:
            later = _later(table, track, position)
            if later is not None and waiting.get(track.name) != later:
                _print_stay(printer, block, table, track, ranges, later, counter)
                waiting[track.name] = later
            stays.append(None if later is None else f"{printer.names.axes[track.name]}_at")
        if table.capped:
            room = infix("-", Atom(str(table.rows)), Atom(counter))
            stop = Call("jnp.minimum", (stop, infix("+", first, room)))
        call = _add(printer, table, column, outer_indices(printer, table), stays)
        block.put(counter, Call("jax.lax.fori_loop", (first, stop, call, Atom(counter))))
    for column, (_, stop) in zip(table.phases, ranges, strict=True):
        if column.cursor:
            seen = seen_name(printer, table, column)
            block.put(seen, Call("jnp.maximum", (Atom(seen), stop)))


def _add(
    printer: Printer, table: Table, column: Column, outer: list[str], stays: list[str | None]
) -> Node:
    """`lambda tm, n: add_phase(g, 0, tm, tm_1_at, n)`"""
    names, index = printer.names, printer.names.axes[column.axis]
    step, phase = names.step, str(column.phase)
    args = [*outer, phase, *(s or index for s in stays), step]
    return Atom(f"lambda {index}, {step}: add_{names.word('phase')}({', '.join(args)})")


def _later(table: Table, track: Track, position: int) -> tuple[int, ...] | None:
    """The track's own loops behind the loop at a position; None if that is its own."""
    own = tuple(i for i, c in enumerate(table.phases) if c.axis in track.axes)
    return None if position in own else tuple(i for i in own if i > position)


def _print_stay(
    printer: Printer,
    block: Block,
    table: Table,
    track: Track,
    ranges: list[Range],
    later: tuple[int, ...],
    counter: str,
) -> None:
    """Where a track is in the rows of loops that are none of its own."""
    wait: Node = before_row(printer.names, track.name, counter)
    for position in reversed(later):
        column, (first, stop) = table.phases[position], ranges[position]
        sure = column.visit in ("at_least_one", "sweep")
        sure = sure or printer.launch.axis(column.axis).tiles is not None
        wait = first if sure else Call("jnp.where", (infix(">", stop, first), first, wait))
    block.put(f"{printer.names.axes[track.name]}_at", wait)


def before_row(names: Names, track: str, counter: str) -> Node:
    """Where a track is in the row before; 0 if there is none."""
    row = Atom(f"{names.columns[track]}[jnp.maximum({counter} - 1, 0)]")
    return Call("jnp.where", (infix(">", Atom(counter), Atom("0")), row, Atom("0")))


def print_tail(
    printer: Printer, block: Block, table: Table, column: Column, limit: int, outer: list[str]
) -> None:
    """Tiles behind the last range of one loop; the tracks of the others stay."""
    names = printer.names
    stays: list[str | None] = []
    for track in table.tracks:
        if column.axis in track.axes:
            stays.append(None)
            continue
        at = f"{names.axes[track.name]}_at"
        block.put(at, before_row(names, track.name, names.steps))
        stays.append(at)
    seen = Atom(seen_name(printer, table, column))
    call = _add(printer, table, column, outer, stays)
    loop = Call("jax.lax.fori_loop", (seen, Atom(str(limit)), call, Atom(names.steps)))
    block.put(names.steps, loop)
