"""Ranges: the lines that say where a loop begins and stops, as the plan has it."""

from __future__ import annotations

from tilelang.codegen.pallas.plan.axis import line_name
from tilelang.codegen.pallas.plan.types import AxisPlan, Column, Range, Table
from tilelang.codegen.writer import Atom, Call, Node, flat, infix
from tilelang.ir import Expr

from .block import Block, flush
from .expressions import Printer

Shared = dict[Expr, Node]


def outer_indices(printer: Printer, table: Table) -> list[str]:
    """The printed indices of the columns whose loops nest."""
    return [printer.names.axes[c.axis] for c in table.outer]


def seen_name(printer: Printer, table: Table, column: Column) -> str:
    """The cursor of a column: every tile below it has a row already."""
    if column.phase is None and sum(c.cursor for c in table.outer) == 1:
        return printer.names.word("seen")
    return f"{printer.names.axes[column.axis]}_seen"


def range_lines(
    printer: Printer, block: Block, axis: str, found: Range, shared: Shared | None = None
) -> Printer:
    """Prints the lines of a range.  The printer that is returned knows their names.

    `shared` has the begins and ends of other ranges whose lines are there.
    """
    scope, index = printer.scope(), printer.names.axes[axis]
    shared = {} if shared is None else shared
    for part, expr in found.lines:
        node = shared.get(expr)
        if node is None:
            node = scope.node(expr)
            flush(scope, block)
            node = named(block, f"{index}_{part}", node)
            if part != "first":
                shared[expr] = node
        scope.locals[line_name(axis, part).name] = flat(node)
    return scope


def loop_range(
    printer: Printer,
    block: Block,
    table: Table,
    column: Column,
    counter: str,
    shared: Shared | None = None,
) -> tuple[Node, Node]:
    """First and stop of the loop that visits one column, with the lines they need.

    `counter` holds how many rows there are so far.
    """
    axis, found = printer.launch.axis(column.axis), column.range
    scope = range_lines(printer, block, column.axis, found, shared)
    first, stop = scope.node(found.first), scope.node(found.stop)
    if found.live is None:
        return first, stop
    index, seen = printer.names.axes[column.axis], Atom(seen_name(printer, table, column))
    live = scope.node(found.live)
    if column.visit == "cover":
        live = _with_outer(printer, block, table, column, live)
        stop = named(block, f"{index}_stop", Call("jnp.where", (live, stop, seen)))
        again = infix("&", live, infix("<", first, seen))
        again = Call("jnp.where", (again, infix("-", seen, Atom("1")), seen))
        return named(block, f"{index}_start", again), stop
    if not column.certain:
        live = _with_outer(printer, block, table, column, live)
    if column.stand_in is not None:
        first = scope.node(column.stand_in)
        if axis.block is not None and axis.length is None:
            first = _or_stay(printer, block, table, column, first, counter)
        least = scope.node(column.least) if isinstance(first, Atom) else None
        first = named(block, f"{index}_first", first)
        stop = stop if column.certain else Call("jnp.where", (live, stop, first))
        stop = Call("jnp.maximum", (stop, least or infix("+", first, Atom("1"))))
    elif not column.certain:
        stop = Call("jnp.where", (live, stop, first))
    if column.cursor:
        behind = infix("-", seen, Atom("1"))
        first = named(block, f"{index}_first", Call("jnp.maximum", (first, behind)))
    if table.capped and column is table.columns[-1] and column.phase is None:
        room = infix("-", Atom(str(table.rows)), Atom(counter))
        last = room if first == Atom("0") else infix("+", first, room)
        stop = Call("jnp.minimum", (stop, last))
    return first, named(block, f"{index}_stop", stop)


def _with_outer(printer: Printer, block: Block, table: Table, column: Column, live: Node) -> Node:
    """Nothing runs further in under a step that stands for an empty range or an untouched tile."""
    for runs in _runs(printer, block, table, column):
        live = infix("&", live, runs)
    return live


def _runs(printer: Printer, block: Block, table: Table, column: Column) -> list[Node]:
    """Whether each step around a column stands for something, with the lines that name these."""
    found: list[Node] = []
    for axis in standing(printer, table, column):
        name = f"{printer.names.axes[axis.name]}_runs"
        if name not in block.defined:
            block.put(name, printer.runs(axis))
        found.append(Atom(name))
    return found


def _or_stay(
    printer: Printer, block: Block, table: Table, column: Column, first: Node, counter: str
) -> Node:
    """Under a step that stands for nothing, the tile of the step before: none goes back."""
    outer = [] if table.steps == "rectangle" else _runs(printer, block, table, column)
    if not outer:
        return first
    names = printer.names
    real: Node = infix("==", Atom(counter), Atom("0"))
    runs = outer[0]
    for other in outer[1:]:
        runs = infix("&", runs, other)
    held = names.columns[column.axis if column.phase is None else table.track(column.axis).name]
    before = Atom(f"{held}[jnp.maximum({counter} - 1, 0)]")
    return Call("jnp.where", (infix("|", real, runs), first, before))


def standing(printer: Printer, table: Table, column: Column) -> list[AxisPlan]:
    """The axes around a column that may be at a step which stands for an empty range, or for a
    tile that no range touches."""
    around = table.outer if column.phase is not None else table.columns
    around = around[: table.columns.index(column)]
    pairs = [(c, printer.launch.axis(c.axis)) for c in around]
    helping = ("cover", "sweep")
    return [
        axis
        for c, axis in pairs
        if c.visit in helping or (c.visit == "at_least_one" and not axis.nonempty)
    ]


def named(block: Block, name: str, node: Node) -> Node:
    if isinstance(node, Atom):
        return node
    block.put(name, node)
    return Atom(name)
