"""Steps: the scalar loops that write the step table, or the arithmetic of the rectangle."""

from __future__ import annotations

from tilelang.codegen.pallas.plan.types import AxisPlan, Column, Table
from tilelang.codegen.writer import Atom, Call, Node, flat
from tilelang.ir import integers

from . import rows
from .block import Block
from .expressions import Printer
from .ranges import loop_range, seen_name


def print_table(printer: Printer, block: Block, table: Table) -> None:
    """One function per column, inner ones first, then the loop over the outermost column."""
    _print_comment(printer, block, table)
    if table.phases:
        rows.print_add(printer, block, table)
    for position in reversed(range(len(table.outer))):
        _print_add(printer, block, table, position)
    if table.outer:
        state = _start_state(table)
        block.lines += _loop_lines(printer, block.indent, table, 0, state)
    else:
        block.raw(f"{printer.names.steps} = jnp.int32(0)")
        rows.print_loops(printer, block, table, printer.names.steps)
    for column in _covers(table):
        _print_tail(printer, block, table, column)


def _print_comment(printer: Printer, block: Block, table: Table) -> None:
    names, columns = printer.names, table.columns
    live = "live " if all(c.visit == "live" for c in columns) else ""
    shown = [names.axes[c.axis] for c in table.outer]
    if table.phases:
        loops = ", then ".join(names.axes[c.axis] for c in table.phases)
        outer = shown[0] if len(shown) == 1 else f"({', '.join(shown)})"
        every = f"for every {outer}, " if shown else ""
        block.raw(f"# Step table: {every}a row for each tile of {loops}.")
    else:
        text = f"one row for every {live}({', '.join(shown)}), in the order of the loops."
        block.raw(f"# Step table: {text}")
    for column in _covers(table):
        index, seen = names.axes[column.axis], seen_name(printer, table, column)
        block.raw(f"# A {index} of no range gets one too, so that its outputs are defined;")
        block.raw(f"# every {index} below `{seen}` has a row already.")
    for track in table.tracks:
        loops = [c for c in table.phases if c.axis not in track.axes]
        if loops:
            index = names.axes[track.name]
            others = " and ".join(names.axes[c.axis] for c in loops)
            block.raw(f"# In rows of {others}, {index} is where it is next, or was last.")


def _start_state(table: Table) -> str:
    count = sum(c.cursor for c in table.columns)
    return f"({', '.join(['jnp.int32(0)'] * (1 + count))})" if count else "jnp.int32(0)"


def _covers(table: Table) -> list[Column]:
    """Columns whose tiles behind the last range get rows, too."""
    return [c for c in table.columns if c.visit == "cover"]


def _params(printer: Printer, table: Table, count: int) -> list[str]:
    return [printer.names.axes[c.axis] for c in table.columns[:count]]


def _cursors(printer: Printer, table: Table, position: int) -> list[str]:
    """What the loops from this position on carry besides the number of rows."""
    return [seen_name(printer, table, c) for c in table.columns[position:] if c.cursor]


def _print_add(printer: Printer, block: Block, table: Table, position: int) -> None:
    """`def add_tm(g, tm, n)`: appends the steps of one iteration of this column."""
    names, column = printer.names, table.columns[position]
    index = names.axes[column.axis]
    cursors = _cursors(printer, table, position + 1)
    state = names.word("state") if cursors else names.step
    params = ", ".join([*_params(printer, table, position), index, state])
    block.raw(f"def add_{index}({params}):")
    inner = Block(block.indent + 4)
    if position + 1 == len(table.columns):
        for each in table.columns:
            inner.raw(f"{names.columns[each.axis]}[{names.step}] = {names.axes[each.axis]}")
        inner.raw(f"return {names.step} + 1")
    elif position + 1 == len(table.outer):
        carried = ", ".join([names.step, *cursors])
        if state != names.step:
            inner.raw(f"{carried} = {state}")
        rows.print_loops(printer, inner, table, names.step)
        inner.raw(f"return {carried}")
    else:
        inner.lines += _loop_lines(printer, inner.indent, table, position + 1, state)
    block.lines += [*inner.lines, ""]


def _loop_lines(
    printer: Printer, indent: int, table: Table, position: int, state: str
) -> list[str]:
    """The loop over one column, from the state before it to the state after it."""
    column, names = table.columns[position], printer.names
    axis, index = printer.launch.axis(column.axis), names.axes[column.axis]
    block = Block(indent)
    top = position == 0
    inner = _cursors(printer, table, position + 1)
    counter, seen = names.step, seen_name(printer, table, column)
    carried = ", ".join([counter, *inner])
    if column.cursor:
        block.raw(f"{', '.join([counter, seen, *inner])} = {state}")
    first, stop = loop_range(printer, block, table, column, counter)
    outer = _params(printer, table, position)
    call = f"add_{index}"
    if outer or axis.length is not None:
        inner_state = names.word("state") if inner else counter
        args = ", ".join([*outer, _visited(axis, index), inner_state])
        call = f"lambda {index}, {inner_state}: add_{index}({args})"
    entry = (f"({carried})" if inner else counter) if column.cursor else state
    loop = Call("jax.lax.fori_loop", (first, stop, Atom(call), Atom(entry)))
    if column.cursor:
        block.put(carried, loop)
        risen = f"jnp.maximum({seen}, {flat(stop)})"
        block.raw(f"return {', '.join([counter, risen, *inner])}")
    elif top:
        _assign_top(printer, block, table, loop)
    else:
        _return(block, loop)
    return block.lines


def _visited(axis: AxisPlan, index: str) -> str:
    """What the loop over a column passes on: the tile's number, or the row it begins with."""
    if axis.length is None:
        return index
    low = integers.value_of(axis.begin)
    begin = f"{index}_begin" if low is None else str(low)
    return f"{begin} + {index} * {axis.block}"


def _return(block: Block, node: Node) -> None:
    text = flat(node)
    pad = " " * block.indent
    if len(pad) + 7 + len(text) <= 100:
        block.raw(f"return {text}")
        return
    assert isinstance(node, Call)
    block.raw(f"return {node.fn}(")
    block.raw("    " + ", ".join(flat(a) for a in node.args))
    block.raw(")")


def _assign_top(printer: Printer, block: Block, table: Table, loop: Node) -> None:
    """The number of steps, and the cursors that rows behind the last range need."""
    cursors = [
        seen_name(printer, table, c) if c.visit == "cover" else "_"
        for c in table.columns
        if c.cursor
    ]
    block.put(", ".join([printer.names.steps, *cursors]), loop)


def _print_tail(printer: Printer, block: Block, table: Table, column: Column) -> None:
    """Tiles after the last range: they get steps too, so that their outputs are initialised."""
    names = printer.names
    axis, index = printer.launch.axis(column.axis), names.axes[column.axis]
    last = []
    for outer in table.outer[: table.columns.index(column)]:
        high = integers.value_of(printer.launch.axis(outer.axis).end)
        if high is not None:
            last.append(str(high - 1))
            continue
        stop = f"{names.axes[outer.axis]}_stop"  # any index that exists will do
        row = f"{names.columns[outer.axis]}[jnp.maximum({names.steps} - 1, 0)]"
        block.raw(f"{stop} = jnp.where({names.steps} > 0, {row}, 0)")
        last.append(stop)
    if column.phase is not None:
        rows.print_tail(printer, block, table, column, axis.limit, last)
        return
    args = ", ".join([*last, index, names.step])
    tail = Atom(f"lambda {index}, {names.step}: add_{index}({args})")
    bounds = Atom(seen_name(printer, table, column)), Atom(str(axis.limit))
    loop = Call("jax.lax.fori_loop", (*bounds, tail, Atom(names.steps)))
    block.put(names.steps, loop)


# ---------------------------------------------------------------- the rectangle


def print_rectangle(printer: Printer, block: Block, table: Table) -> None:
    """`def at(n)`: the step's columns by division; a dead step repeats the last live tile."""
    names = printer.names
    columns = [names.axes[c.axis] for c in table.columns]
    most = " x ".join(str(c.most) for c in table.columns)
    block.raw(f"# Rectangle of steps ({', '.join(columns)}), {most}; dead steps move no data.")
    block.raw(f"def {names.word('at')}({names.step}):")
    inner = Block(block.indent + 4)
    rest, outer = names.step, names.word("outer_step")
    counts: list[tuple[str, Node]] = []
    for column in reversed(table.columns):
        index = names.axes[column.axis]
        if column is table.columns[0]:
            counts.insert(0, (index, Atom(rest)))
            continue
        inner.raw(f"{index}_step = jax.lax.rem({rest}, {column.most})")
        if rest == names.step:
            inner.raw(f"{outer} = jax.lax.div({rest}, {column.most})")
        else:
            inner.raw(f"{outer} = jax.lax.div({outer}, {column.most})")
        rest = outer
        counts.insert(0, (index, Atom(f"{index}_step")))
    live: list[str] = []
    for column, (index, count) in zip(table.columns, counts, strict=True):
        _rectangle_column(printer, inner, table, column, index, flat(count), live)
    is_live = names.word("live")
    inner.raw(f"{is_live} = {' & '.join(live) if live else 'jnp.bool_(True)'}")
    ends = ", ".join(f"{c}_first, {c}_stop" for c in columns)
    comma = "," if len(columns) == 1 else ""
    inner.raw(f"return {is_live}, ({', '.join(columns)}{comma}), ({ends})")
    block.lines += [*inner.lines, ""]


def _rectangle_column(
    printer: Printer, block: Block, table: Table, column: Column, index: str, count: str,
    live: list[str],
) -> None:  # fmt: skip
    axis, found = printer.launch.axis(column.axis), column.range
    first, stop = loop_range(printer, block, table, column, printer.names.step)
    if flat(first) != f"{index}_first":
        block.raw(f"{index}_first = {flat(first)}")
    if flat(stop) != f"{index}_stop":
        block.raw(f"{index}_stop = {flat(stop)}")
    if live:  # under a dead outer step, stay where the last live one was
        stay = Call("jnp.where", (Atom(" & ".join(live)), Atom(count), Atom(str(column.most - 1))))
        block.put(f"{index}_step", stay)
        count = f"{index}_step"
    if found.live is None:
        block.raw(f"{index} = {count}" + ("" if first == Atom("0") else f" + {flat(first)}"))
        return
    block.raw(f"{index}_live = {count} < {index}_stop - {index}_first")
    live.append(f"{index}_live")
    last = f"jnp.maximum({index}_stop - 1, {index}_first)"
    if found.last is not None and column.visit == "live":
        # an empty range stays at the index before it, so that none goes back
        last = flat(printer.node(found.last))
    clamp = Call("jnp.minimum", (Atom(f"{index}_first + {count}"), Atom(last)))
    block.put(index, Call("jnp.minimum", (clamp, Atom(str(max(axis.limit - 1, 0))))))
