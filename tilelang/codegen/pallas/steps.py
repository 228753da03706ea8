"""Steps: the scalar loops that write the step table, or the arithmetic of the rectangle."""

from __future__ import annotations

from ...schedule import known, scalars
from ...schedule.plan import AxisPlan, Column, Table
from ..writer import Atom, Call, Node, flat, infix
from .expressions import Printer, plus
from .names import Names
from .statements import Block


def print_table(printer: Printer, block: Block, table: Table) -> None:
    """One function per column, inner ones first, then the loop over the outermost column."""
    columns = table.columns
    columns_text = ", ".join(printer.names.axes[c.axis] for c in columns)
    live = "live " if all(c.visit == "live" for c in columns) else ""
    block.raw(f"# Step table: one row for every {live}({columns_text}), in the order of the loops.")
    cover = _cover_at(table)
    if cover is not None:
        index = printer.names.axes[columns[cover].axis]
        block.raw(f"# A {index} of no range gets one too, so that its outputs are defined;")
        block.raw(f"# every {index} below `{printer.names.word('seen')}` has a row already.")
    for position in reversed(range(len(columns))):
        _print_add(printer, block, table, position)
    state = _start_state(table)
    block.lines += _loop_lines(printer, block.indent, table, 0, state)
    if cover is not None:
        _print_tail(printer, block, table, cover)


def _start_state(table: Table) -> str:
    return "(jnp.int32(0), jnp.int32(0))" if _cursor_at(table) is not None else "jnp.int32(0)"


def _cursor_at(table: Table) -> int | None:
    return next((i for i, c in enumerate(table.columns) if c.cursor), None)


def _cover_at(table: Table) -> int | None:
    return next((i for i, c in enumerate(table.columns) if c.visit == "cover"), None)


def _params(printer: Printer, table: Table, count: int) -> list[str]:
    return [printer.names.axes[c.axis] for c in table.columns[:count]]


def _has_seen(table: Table, position: int) -> bool:
    """Whether the loop at this position, or one inside it, moves the cursor."""
    at = _cursor_at(table)
    return at is not None and position <= at


def _print_add(printer: Printer, block: Block, table: Table, position: int) -> None:
    """`def add_tm(g, tm, n)`: appends the steps of one iteration of this column."""
    names, column = printer.names, table.columns[position]
    index = names.axes[column.axis]
    state = names.word("state") if _has_seen(table, position + 1) else names.step
    params = ", ".join([*_params(printer, table, position), index, state])
    block.raw(f"def add_{index}({params}):")
    inner = Block(block.indent + 4)
    if position + 1 == len(table.columns):
        for each in table.columns:
            inner.raw(f"{names.columns[each.axis]}[{names.step}] = {names.axes[each.axis]}")
        inner.raw(f"return {names.step} + 1")
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
    own_cursor = column.cursor
    inside_seen = _has_seen(table, position + 1)
    counter = names.step
    if own_cursor:
        block.raw(f"{counter}, {names.word('seen')} = {state}")
    first, stop = _range(printer, block, table, column, axis)
    outer = _params(printer, table, position)
    call = f"add_{index}"
    if outer or axis.length is not None:
        inner_state = names.word("state") if inside_seen else counter
        args = ", ".join([*outer, _visited(axis, index), inner_state])
        call = f"lambda {index}, {inner_state}: add_{index}({args})"
    entry = counter if own_cursor else state
    loop = Call("jax.lax.fori_loop", (first, stop, Atom(call), Atom(entry)))
    if own_cursor:
        block.put(counter, loop)
        block.raw(f"return {counter}, jnp.maximum({names.word('seen')}, {flat(stop)})")
    elif top:
        _assign_top(block, table, loop, names)
    else:
        _return(block, loop)
    return block.lines


def _visited(axis: AxisPlan, index: str) -> str:
    """What the loop over a column passes on: the tile's number, or the row it begins with."""
    if axis.length is None:
        return index
    low = scalars.value_of(axis.begin)
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


def _assign_top(block: Block, table: Table, loop: Node, names: Names) -> None:
    steps = names.steps
    if _cover_at(table) is not None:
        block.put(f"{steps}, {names.word('seen')}", loop)
    elif _cursor_at(table) is not None:
        block.put(f"{steps}, _", loop)
    else:
        block.put(steps, loop)


def _print_tail(printer: Printer, block: Block, table: Table, cover: int) -> None:
    """Tiles after the last range: they get steps too, so that their outputs are initialised."""
    names, column = printer.names, table.columns[cover]
    axis, index = printer.launch.axis(column.axis), names.axes[column.axis]
    last = []
    for outer in table.columns[:cover]:
        high = scalars.value_of(printer.launch.axis(outer.axis).end)
        if high is not None:
            last.append(str(high - 1))
            continue
        stop = f"{names.axes[outer.axis]}_stop"  # any index that exists will do
        row = f"{names.columns[outer.axis]}[jnp.maximum({names.steps} - 1, 0)]"
        block.raw(f"{stop} = jnp.where({names.steps} > 0, {row}, 0)")
        last.append(stop)
    args = ", ".join([*last, index, names.step])
    tail = Atom(f"lambda {index}, {names.step}: add_{index}({args})")
    bounds = Atom(names.word("seen")), Atom(str(axis.limit))
    loop = Call("jax.lax.fori_loop", (*bounds, tail, Atom(names.steps)))
    block.put(names.steps, loop)


def _range(
    printer: Printer, block: Block, table: Table, column: Column, axis: AxisPlan
) -> tuple[Node, Node]:
    """First and stop of the loop that visits one column, with the lines they need."""
    if column.visit == "sweep":
        return Atom("0"), Atom(str(axis.limit))
    if axis.tiles is not None:
        return Atom(str(axis.first)), Atom(str(axis.first + axis.tiles))
    index, seen = printer.names.axes[column.axis], Atom(printer.names.word("seen"))
    if axis.block is None:
        return _index_range(printer, block, table, column, axis, index)
    begin, end = edges(printer, block, axis, index)
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
        first = named(block, f"{index}_first", _or_stay(printer, block, table, column, first))
        stop = Call("jnp.maximum", (stop, plus(first, 1)))
    if column.cursor:
        behind = infix("-", seen, Atom("1"))
        first = named(block, f"{index}_first", Call("jnp.maximum", (first, behind)))
    if table.capped and column is table.columns[-1]:
        room = infix("-", Atom(str(table.rows)), Atom(printer.names.step))
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


def _or_stay(printer: Printer, block: Block, table: Table, column: Column, first: Node) -> Node:
    """Under a step that stands for nothing, the tile of the step before: none goes back."""
    outer = [] if table.steps == "rectangle" else _runs(printer, block, table, column)
    if not outer:
        return first
    names = printer.names
    real: Node = infix("==", Atom(names.step), Atom("0"))
    runs = outer[0]
    for other in outer[1:]:
        runs = infix("&", runs, other)
    before = Atom(f"{names.columns[column.axis]}[jnp.maximum({names.step} - 1, 0)]")
    return Call("jnp.where", (infix("|", real, runs), first, before))


def standing(printer: Printer, table: Table, column: Column) -> list[AxisPlan]:
    """The axes around a column that may be at a step which stands for an empty range, or for a
    tile that no range touches."""
    around = table.columns[: table.columns.index(column)]
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
    limit, fixed = axis.limit, scalars.value_of(begin)
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
    axis = printer.launch.axis(column.axis)
    first, stop = _range(printer, block, table, column, axis)
    if flat(first) != f"{index}_first":
        block.raw(f"{index}_first = {flat(first)}")
    if flat(stop) != f"{index}_stop":
        block.raw(f"{index}_stop = {flat(stop)}")
    if live:  # under a dead outer step, stay where the last live one was
        stay = Call("jnp.where", (Atom(" & ".join(live)), Atom(count), Atom(str(column.most - 1))))
        block.put(f"{index}_step", stay)
        count = f"{index}_step"
    if axis.tiles is not None:
        block.raw(f"{index} = {count} + {axis.first}" if axis.first else f"{index} = {count}")
        return
    block.raw(f"{index}_live = {count} < {index}_stop - {index}_first")
    live.append(f"{index}_live")
    last = f"jnp.maximum({index}_stop - 1, {index}_first)"
    if axis.block is None and column.visit == "live":
        # an empty range stays at the index before it, so that none goes back
        end = flat(printer.node(known.at_most(axis.end, axis.limit, printer.axes)))
        last = f"jnp.maximum({end} - 1, 0)"
    clamp = Call("jnp.minimum", (Atom(f"{index}_first + {count}"), Atom(last)))
    block.put(index, Call("jnp.minimum", (clamp, Atom(str(max(axis.limit - 1, 0))))))
