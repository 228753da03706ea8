"""Ranges: the first and the last tile of a loop, as scalar arithmetic that no offsets break."""

from __future__ import annotations

from tilelang.codegen.pallas.plan import known
from tilelang.codegen.pallas.plan.types import AxisPlan, Column, Table
from tilelang.codegen.writer import Atom, Call, Node, infix
from tilelang.ir import Expr, integers

from .expressions import Printer, plus
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
    shared: Edges | None = None,
) -> tuple[Node, Node]:
    """First and stop of the loop that visits one column, with the lines they need.

    `counter` holds how many rows there are so far, `shared` the edges of ranges that have lines.
    """
    axis = printer.launch.axis(column.axis)
    if column.visit == "sweep":
        return Atom("0"), Atom(str(axis.limit))
    if axis.tiles is not None:
        return Atom(str(axis.first)), Atom(str(axis.first + axis.tiles))
    index, seen = printer.names.axes[column.axis], Atom(seen_name(printer, table, column))
    if axis.block is None:
        return _index_range(printer, block, table, column, axis, index)
    shared = {} if shared is None else shared
    key = (axis.begin, axis.end, axis.length or axis.limit * axis.block)
    if key not in shared:
        shared[key] = edges(printer, block, axis, index)
    begin, end = shared[key]
    if axis.length is not None:
        return _from_begin(printer, block, table, column, begin, end)
    first = named(block, f"{index}_first", div(begin, axis.block))
    stop: Node = ceil_div(end, axis.block)
    live = _with_outer(printer, block, table, column, infix(">", end, begin))
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
        stay = _or_stay(printer, block, table, column, first, counter)
        first = named(block, f"{index}_first", stay)
        stop = Call("jnp.maximum", (stop, plus(first, 1)))
    if column.cursor:
        behind = infix("-", seen, Atom("1"))
        first = named(block, f"{index}_first", Call("jnp.maximum", (first, behind)))
    if table.capped and column is table.columns[-1] and column.phase is None:
        room = infix("-", Atom(str(table.rows)), Atom(counter))
        stop = Call("jnp.minimum", (stop, infix("+", first, room)))
    return first, named(block, f"{index}_stop", stop)


def _from_begin(
    printer: Printer, block: Block, table: Table, column: Column, begin: Node, end: Node
) -> tuple[Node, Node]:
    """How many tiles a range has that begin with it."""
    axis = printer.launch.axis(column.axis)
    count = ceil_div(infix("-", end, begin), axis.block or 1)
    if not column.certain:
        live = _with_outer(printer, block, table, column, infix(">", end, begin))
        count = Call("jnp.where", (live, count, Atom("0")))
    if column.visit == "at_least_one":
        count = Call("jnp.maximum", (count, Atom("1")))
    if table.capped and column is table.columns[-1]:
        room = infix("-", Atom(str(table.rows)), Atom(printer.names.step))
        count = Call("jnp.minimum", (count, room))
    return Atom("0"), named(block, f"{printer.names.axes[column.axis]}_stop", count)


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
        if not any(line.strip().startswith(f"{name} = ") for line in block.lines):
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


def _index_range(
    printer: Printer, block: Block, table: Table, column: Column, axis: AxisPlan, index: str
) -> tuple[Node, Node]:
    """The range of an `hl.grid` read from memory, kept inside the arrays that it indexes."""
    axes = printer.axes
    begin = known.at_most(known.at_least(axis.begin, 0, axes), axis.limit - 1, axes)
    first = named(block, f"{index}_first", printer.node(begin))
    limit, fixed = axis.limit, integers.value_of(begin)
    if fixed is not None:
        limit = min(limit, fixed + max(column.most, 0))
    end = known.at_most(axis.end, limit, axes)
    stop = printer.node(end)
    if fixed is None:
        stop = Call("jnp.minimum", (stop, infix("+", first, Atom(str(max(column.most, 0))))))
    if not column.certain:
        live = printer.node(known.more(end, axis.begin, axes))
        stop = Call("jnp.where", (_with_outer(printer, block, table, column, live), stop, first))
    if column.visit == "at_least_one":
        stop = Call("jnp.maximum", (stop, plus(first, 1)))
    return first, named(block, f"{index}_stop", stop)


def edges(printer: Printer, block: Block, axis: AxisPlan, index: str) -> tuple[Node, Node]:
    """The range, kept inside the array whatever the offsets say."""
    begin = printer.node(known.at_least(axis.begin, 0, printer.axes))
    size = axis.length or axis.limit * (axis.block or 1)
    end = printer.node(known.at_most(axis.end, size, printer.axes))
    if not (isinstance(begin, Atom) and begin.text.isdigit()):
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
