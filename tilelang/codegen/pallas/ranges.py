"""Ranges: the first and the last tile of a loop, as scalar arithmetic that no offsets break."""

from __future__ import annotations

from ...ir import Apply, Const, Expr, Type
from ...schedule import scalars
from ...schedule.plan import AxisPlan, Column, Table
from ..writer import Atom, Call, Node, infix
from .expressions import Printer
from .statements import Block

Edges = dict[tuple[Expr, Expr, int], tuple[Node, Node]]


def outer_indices(printer: Printer, table: Table) -> list[str]:
    """The printed indices of the columns whose loops nest."""
    return [printer.names.axes[c.axis] for c in table.outer]


def seen_name(printer: Printer, table: Table, column: Column) -> str:
    """The cursor of a column: every tile below it has a row already."""
    if column.phase is None:
        return printer.names.word("seen")
    return f"{printer.names.axes[column.axis]}_seen"


def loop_range(
    printer: Printer,
    block: Block,
    table: Table,
    column: Column,
    counter: str,
    known: Edges | None = None,
) -> tuple[Node, Node]:
    """First and stop of the loop that visits one column, with the lines they need.

    `counter` holds how many rows there are so far, `known` the edges of ranges that have lines.
    """
    axis = printer.launch.axis(column.axis)
    if column.visit == "sweep":
        return Atom("0"), Atom(str(axis.limit))
    if axis.tiles is not None:
        return Atom(str(axis.first)), Atom(str(axis.first + axis.tiles))
    index, seen = printer.names.axes[column.axis], Atom(seen_name(printer, table, column))
    if axis.block is None:
        return _index_range(printer, block, table, column, axis, index)
    known = {} if known is None else known
    key = (axis.begin, axis.end, axis.limit * axis.block)
    if key not in known:
        known[key] = edges(printer, block, axis, index)
    begin, end = known[key]
    first = named(block, f"{index}_first", div(begin, axis.block))
    stop: Node = ceil_div(end, axis.block)
    live = _with_outer(printer, table, column, infix(">", end, begin))
    if column.visit == "cover":
        stop = Call("jnp.where", (live, stop, seen))
        stop = named(block, f"{index}_stop", stop)
        again = infix("&", live, infix("<", first, seen))
        again = Call("jnp.where", (again, infix("-", seen, Atom("1")), seen))
        return named(block, f"{index}_start", again), stop
    if not column.certain:
        stop = Call("jnp.where", (live, stop, first))
    if column.visit == "at_least_one":
        first = Call("jnp.minimum", (first, Atom(str(axis.limit - 1))))
        first = named(block, f"{index}_first", _or_stay(printer, table, column, first, counter))
        stop = Call("jnp.maximum", (stop, infix("+", first, Atom("1"))))
    if column.cursor:
        behind = infix("-", seen, Atom("1"))
        first = named(block, f"{index}_first", Call("jnp.maximum", (first, behind)))
    if table.capped and column is table.columns[-1] and column.phase is None:
        room = infix("-", Atom(str(table.rows)), Atom(counter))
        stop = Call("jnp.minimum", (stop, infix("+", first, room)))
    return first, named(block, f"{index}_stop", stop)


def _with_outer(printer: Printer, table: Table, column: Column, live: Node) -> Node:
    """Nothing runs further in under a step that stands for an empty range."""
    for axis in standing(printer, table, column):
        live = infix("&", live, printer.runs(axis))
    return live


def _or_stay(printer: Printer, table: Table, column: Column, first: Node, counter: str) -> Node:
    """Under a step that stands for an empty range, the tile of the step before: none goes back."""
    outer = standing(printer, table, column)
    if not outer or table.steps == "rectangle":
        return first
    names = printer.names
    real: Node = infix("==", Atom(counter), Atom("0"))
    runs = printer.runs(outer[0])
    for axis in outer[1:]:
        runs = infix("&", runs, printer.runs(axis))
    held = names.columns[column.axis if column.phase is None else table.track(column.axis).name]
    before = Atom(f"{held}[jnp.maximum({counter} - 1, 0)]")
    return Call("jnp.where", (infix("|", real, runs), first, before))


def standing(printer: Printer, table: Table, column: Column) -> list[AxisPlan]:
    """The axes around a column that may be at a step which stands for an empty range."""
    around = table.outer if column.phase is not None else table.columns
    around = around[: table.columns.index(column)]
    axes = [printer.launch.axis(c.axis) for c in around if c.visit == "at_least_one"]
    return [axis for axis in axes if not axis.nonempty]


def _index_range(
    printer: Printer, block: Block, table: Table, column: Column, axis: AxisPlan, index: str
) -> tuple[Node, Node]:
    """The range of an `hl.grid` read from memory, kept inside the arrays that it indexes."""
    zero, last = Atom("0"), Atom(str(axis.limit - 1))
    begin = printer.node(axis.begin)
    first = named(block, f"{index}_first", Call("jnp.clip", (begin, zero, last)))
    bound = infix("+", first, Atom(str(max(column.most, 0))))
    limit = Const(axis.limit, Type((), "int32"))
    end = printer.node(Apply("minimum", (axis.end, limit), Type((), "int32")))
    stop: Node = Call("jnp.minimum", (end, bound))
    if not column.certain:
        live = _with_outer(printer, table, column, infix(">", end, begin))
        stop = Call("jnp.where", (live, stop, first))
    if column.visit == "at_least_one":
        stop = Call("jnp.maximum", (stop, infix("+", first, Atom("1"))))
    return first, named(block, f"{index}_stop", stop)


def edges(printer: Printer, block: Block, axis: AxisPlan, index: str) -> tuple[Node, Node]:
    """The range, kept inside the array whatever the offsets say."""
    low = scalars.value_of(axis.begin)
    begin: Node = (
        Atom(str(low))
        if low is not None
        else Call("jnp.maximum", (printer.node(axis.begin), Atom("0")))
    )
    size = axis.limit * (axis.block or 1)
    limit = Const(size, Type((), "int32"))
    end = printer.node(Apply("minimum", (axis.end, limit), Type((), "int32")))
    if low is None:
        begin = named(block, f"{index}_begin", begin)
    return begin, named(block, f"{index}_end", end)


def named(block: Block, name: str, node: Node) -> Node:
    if isinstance(node, Atom):
        return node
    block.put(name, node)
    return Atom(name)


def div(node: Node, block: int) -> Node:
    if isinstance(node, Atom) and node.text.isdigit():
        return Atom(str(int(node.text) // block))
    return Call("jax.lax.div", (node, Atom(str(block)))) if block > 1 else node


def ceil_div(node: Node, block: int) -> Node:
    if block == 1:
        return node
    return Call("jax.lax.div", (infix("+", node, Atom(str(block - 1))), Atom(str(block))))
