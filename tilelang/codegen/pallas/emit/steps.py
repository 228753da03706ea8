"""Steps: the scalar loops that write the step table, or the arithmetic of the rectangle."""

from __future__ import annotations

from tilelang.codegen.pallas.plan import types as plan
from tilelang.codegen.pallas.plan.steps.names import CORE, COUNT, LATER, STEP, seen
from tilelang.codegen.writer import Atom, Call, Group, Node, filled, flat, inner

from . import rows
from .block import Block
from .expressions import Printer
from .names import PART_WORDS
from .ranges import print_lines, seen_name, visiting


def print_table(printer: Printer, block: Block, table: plan.Table) -> None:
    """One function per column, inner ones first, then the loop over the outermost column."""
    _print_comment(printer, block, table)
    if table.phases:
        rows.print_add(printer, block, table)
    for position in reversed(range(len(table.outer))):
        _print_add(printer, block, table, position)
    if table.outer:
        count = sum(c.cursor for c in table.columns)
        start = f"({', '.join(['jnp.int32(0)'] * (1 + count))})" if count else "jnp.int32(0)"
        _print_loop(printer, block, table, 0, start)
    else:
        block.raw(f"{printer.names.steps} = jnp.int32(0)")
        rows.print_loops(printer, block, table, printer.names.steps)
    for column in _covers(table):
        _print_tail(printer, block, table, column)


def _print_comment(printer: Printer, block: Block, table: plan.Table) -> None:
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
        index, cursor = names.axes[column.axis], seen_name(printer, table, column)
        block.raw(f"# A {index} of no range gets one too, so that its outputs are defined;")
        block.raw(f"# every {index} below `{cursor}` has a row already.")
    for track in table.tracks:
        loops = [names.axes[c.axis] for c in table.phases if c.axis not in track.axes]
        if loops:
            index = names.axes[track.name]
            block.raw(
                f"# In rows of {' and '.join(loops)}, {index} is where it is next, or was last."
            )


def _covers(table: plan.Table) -> list[plan.Column]:
    """Columns whose tiles behind the last range get rows, too."""
    return [c for c in table.columns if c.tail is not None]


def _params(printer: Printer, table: plan.Table, count: int) -> list[str]:
    return [printer.names.axes[c.axis] for c in table.columns[:count]]


def _cursors(printer: Printer, table: plan.Table, position: int) -> list[str]:
    """What the loops from this position on carry besides the number of rows."""
    return [seen_name(printer, table, c) for c in table.columns[position:] if c.cursor]


def _print_add(printer: Printer, block: Block, table: plan.Table, position: int) -> None:
    """`def add_tm(g, tm, n)`: appends the steps of one iteration of this column."""
    names, index = printer.names, printer.names.axes[table.columns[position].axis]
    cursors = _cursors(printer, table, position + 1)
    state = names.word("state") if cursors else names.step
    params = ", ".join([*_params(printer, table, position), index, state])
    inner = block.inside(f"def add_{index}({params}):")
    if position + 1 == len(table.columns):
        for each in table.columns:
            inner.raw(f"{names.columns[each.axis]}[{names.step}] = {names.axes[each.axis]}")
        scope = printer.scope()
        scope.locals[COUNT.name] = names.step
        for name, value in table.noted:
            column = names.columns[name]
            scope.locals[name] = column.removesuffix("_of")
            inner.put(scope.locals[name], scope.node(value))
            inner.raw(f"{column}[{names.step}] = {scope.locals[name]}")
        inner.raw(f"return {names.step} + 1")
    elif position + 1 == len(table.outer):
        carried = ", ".join([names.step, *cursors])
        if cursors:
            inner.raw(f"{carried} = {state}")
        rows.print_loops(printer, inner, table, names.step)
        inner.raw(f"return {carried}")
    else:
        _print_loop(printer, inner, table, position + 1, state)
    block.raw("")


def _print_loop(
    printer: Printer, block: Block, table: plan.Table, position: int, state: str
) -> None:
    """The loop over one column, from the state before it to the state after it."""
    column, names = table.columns[position], printer.names
    index = names.axes[column.axis]
    inner = _cursors(printer, table, position + 1)
    counter, cursor = names.step, seen_name(printer, table, column)
    if column.cursor:
        block.raw(f"{', '.join([counter, cursor, *inner])} = {state}")
        state = f"({', '.join([counter, *inner])})" if inner else counter
    visits = column.visits
    assert visits is not None
    scope = visiting(printer, block, table, column, counter if position else None)
    stop = scope.node(visits.stop)
    outer = _params(printer, table, position)
    call = f"add_{index}"
    if outer or column.row is not None:
        carried = names.word("state") if inner else counter
        own = index if column.row is None else scope.text(column.row)
        args = ", ".join([*outer, own, carried])
        call = f"lambda {index}, {carried}: add_{index}({args})"
    bounds = scope.node(visits.first), stop
    loop = Call("jax.lax.fori_loop", (*bounds, Atom(call), Atom(state)))
    if column.cursor:
        block.put(", ".join([counter, *inner]), loop)
        assert column.risen is not None
        block.raw(f"return {', '.join([counter, scope.text(column.risen), *inner])}")
    elif position:
        block.put("return", loop, " ")
    else:  # the number of steps, and the cursors that rows behind the last range need
        cursors = [c for c in table.columns if c.cursor]
        kept = [seen_name(printer, table, c) if c.visit == "cover" else "_" for c in cursors]
        block.put(", ".join([names.steps, *kept]), loop)


def _print_tail(printer: Printer, block: Block, table: plan.Table, column: plan.Column) -> None:
    """Tiles after the last range: they get steps too, so that their outputs are initialised."""
    names, index, tail = printer.names, printer.names.axes[column.axis], column.tail
    assert tail is not None
    scope, last = printer.scope(), list[str]()
    scope.locals |= {
        COUNT.name: names.steps,
        seen(column.axis).name: seen_name(printer, table, column),
    }
    for outer, at in zip(table.outer, tail.around, strict=False):
        last.append(flat(block.named(f"{names.axes[outer.axis]}_stop", scope.node(at))))
    if column.phase is not None:
        rows.print_tail(scope, block, table, column, tail, last)
        return
    each = f"lambda {index}, {names.step}: add_{index}({', '.join([*last, index, names.step])})"
    bounds = scope.node(tail.first), scope.node(tail.stop)
    loop = Call("jax.lax.fori_loop", (*bounds, Atom(each), Atom(names.steps)))
    block.put(names.steps, loop)


# ---------------------------------------------------------------- parts of cores


PART = """
# Each core has a part of the rows, which begins where a block of {arrays} does.
def {inside}({n}):
    @later
    @on

def {part}({core}):
    @share
    return jax.lax.while_loop({inside}, lambda {n}: {n} + 1, {share})

{first} = {part}(pl.program_id(0))
{steps} = {part}(pl.program_id(0) + 1) - {first}

def {move}({n}, _):
    @moves
    return 0

jax.lax.fori_loop(0, {steps}, {move}, 0)
"""


def print_part(printer: Printer, block: Block, parts: plan.Parts) -> None:
    """Where the rows of a core begin; those of this one are moved to the front."""
    names, launch, scope = printer.names, printer.launch, printer.scope()
    words = {word: names.word(word) for word in (*PART_WORDS, "n", "steps")}
    words["arrays"] = " and ".join(launch.window(ref).array for ref, _ in parts.turns)
    scope.locals |= {STEP.name: names.step, COUNT.name: names.steps}
    scope.locals |= {CORE.name: words["core"], LATER.name: words["row"]}
    place = f"{words['first']} + {names.step}"
    moves = [f"{column}[{names.step}] = {column}[{place}]" for column in names.columns.values()]
    depth = block.indent + 4
    lines = filled(
        PART,
        words,
        later=inner(words["row"], scope.node(parts.later), depth),
        on=inner("return", scope.node(parts.on), depth, " "),
        share=inner(words["share"], scope.node(parts.share), depth),
        moves=moves,
    )
    block.lines += ["", *(" " * block.indent + line if line else "" for line in lines)]


# ---------------------------------------------------------------- the rectangle


def asked_ends(launch: plan.Launch) -> list[tuple[str, str]]:
    """The ends of ranges that conditions of a rectangle's steps ask for, in order of columns."""
    conditions = [c for s in launch.sections for c in s.conditions if isinstance(c, plan.Ends)]
    asked = {(axis, c.end) for c in conditions for axis in c.inner}
    columns = launch.table.columns if launch.table else ()
    return [(c.axis, end) for c in columns for end in ("first", "last") if (c.axis, end) in asked]


def print_rectangle(printer: Printer, block: Block, table: plan.Table) -> None:
    """`def at(n)`: whether the step stands for anything, and its tiles; the ends that are read."""
    names = printer.names
    columns = [names.axes[c.axis] for c in table.columns]
    most = " x ".join(str(c.most) for c in table.columns)
    block.raw(f"# Rectangle of steps ({', '.join(columns)}), {most}; dead steps move no data.")
    inner = block.inside(f"def {names.word('at')}({names.step}):")
    scope = printer.scope()
    scope.locals[COUNT.name] = names.step
    scope = print_lines(scope, inner, table.lines)
    assert table.live is not None
    visits = {c.axis: c.visits for c in table.columns}
    ends: list[Node] = []
    for axis, end in asked_ends(printer.launch):
        found = visits[axis]
        assert found is not None
        ends.append(scope.node(found.first if end == "first" else found.stop))
    live = inner.named(names.word("live"), scope.node(table.live))
    parts = [live, Group(tuple(map(Atom, columns))), *([Group(tuple(ends))] if ends else [])]
    inner.raw(f"return {', '.join(map(flat, parts))}")
    block.raw("")
