"""Work list: the step table as a few array operations of XLA, for a grid of `pallas_call`.

Every column expands the rows so far: a row of the columns before becomes `count` rows, whose tiles
begin at `first`.  An entry's rows are found by searching the running sums of the counts.
"""

from __future__ import annotations

from tilelang.codegen.pallas.plan import types as plan
from tilelang.codegen.pallas.plan.steps.names import AWAY, COUNT, PHASE, ROW, ROWS, TILE, seen
from tilelang.codegen.writer import Atom, Call, Group, Keyword, Node, flat, signature

from .block import Block
from .expressions import ONE, ZERO, Printer
from .ranges import outer_indices, print_lines

EXPAND = '''\
def expand(first: jax.Array, count: jax.Array, rows: int) -> tuple[jax.Array, ...]:
    """For each row its entry and its tile; entry i has count[i] rows.  And how many rows."""
    first, count = jnp.broadcast_arrays(first, count)
    ends = jnp.cumsum(count)
    row = jnp.arange(rows)
    entry = jnp.searchsorted(ends, row, side="right").astype(jnp.int32)
    entry = jnp.minimum(entry, len(count) - 1)
    return entry, first[entry] + row - (ends - count)[entry], jnp.minimum(ends[-1], rows)'''
HELD = '''\
def held(tile: jax.Array) -> jax.Array:
    """Where a tile is -1, that of the row before; 0 if there is none."""
    last = jax.lax.cummax(jnp.where(tile >= 0, jnp.arange(len(tile)), -1))
    return jnp.where(last >= 0, tile[last], 0)'''
Pair = tuple[Node, Node]  # the first tile of every row's range, and how many it has


def list_name(launch: plan.Launch) -> str:
    """The function that builds the work list of a launch."""
    return launch.name.removesuffix("_kernel") + "_steps"


def print_worklist(printer: Printer) -> list[str]:
    """The lines of `def <kernel>_steps(scalars)`: the columns of the list, then its length."""
    launch, names, table = printer.launch, printer.names, printer.launch.table
    assert table is not None
    columns = [names.axes.get(key, key) for key in names.columns]
    params = [f"{s}: jax.Array" for s in launch.scalars]
    block = Block(4)
    block.raw(f'"""The work list: rows ({", ".join(columns)}), and how many there are."""')
    for position in range(len(table.outer)):
        _print_column(printer, block, table, position)
    if table.phases:
        _print_phases(printer, block, table)
    scope = printer.scope()
    for name, shown in table.shown:  # the grid has a step all the same, and it must show some block
        block.put(names.axes[name], scope.node(shown))
    block.raw(f"return {', '.join(columns)}, {names.steps}.reshape((1,))")
    return [*signature(list_name(launch), params, "tuple[jax.Array, ...]"), *block.lines]


def _print_column(printer: Printer, block: Block, table: plan.Table, position: int) -> None:
    """One more column: its index for every row, and those of the columns before it."""
    names, column = printer.names, table.columns[position]
    axis, index = printer.launch.axis(column.axis), names.axes[column.axis]
    if position == 0 and axis.tiles is not None:
        start = f" + {axis.first}" if axis.first else ""
        block.raw(f"{index} = jnp.arange({axis.tiles}, dtype=jnp.int32){start}")
        block.raw(f"{names.steps} = jnp.int32({axis.tiles})")
        return
    outer = [names.axes[c.axis] for c in table.columns[:position]]
    scope, listed = _print_range(printer, block, table, column, outer)
    first, count = scope.node(listed.first), scope.node(listed.count)
    if listed.rest is not None:
        block.raw(f"# one more entry: the {index} behind the last range")
        scope = print_lines(scope, block, (listed.rest,))
        _repeat_last(block, outer)
        first = _append(first, scope.node(listed.rest.name))
        count = _append(count, scope.node(listed.left))
    entry = f"{index}_entry"
    block.put(
        f"{entry}, {index}, {names.steps}", Call("expand", (first, count, Atom(str(listed.rows))))
    )
    if outer:
        block.raw(f"{', '.join(outer)} = {', '.join(f'{name}[{entry}]' for name in outer)}")


def _print_phases(printer: Printer, block: Block, table: plan.Table) -> None:
    """Loops in a row: an entry for each of them in every row of the columns before."""
    names, outer = printer.names, outer_indices(printer, table)
    phase, count = names.word("phase"), len(table.phases)
    known, ranges = printer.scope(), list[Pair]()
    for column in table.phases:
        scope, listed = _print_range(printer, block, table, column, outer)
        ranges.append((scope.node(listed.first), scope.node(listed.count)))
        known.locals |= scope.locals
    if any(c.tail is not None for c in table.phases):
        block.raw("# one more entry each: tiles behind the last range, of loops that need those")
        for column, (first, many) in zip(table.phases, ranges, strict=True):
            listed, rest = _listed(column), ZERO
            if listed.rest is not None:
                known = print_lines(known, block, (listed.rest,))
                rest = known.node(listed.rest.name)
            block.put(flat(first), _append(first, rest))
            block.put(flat(many), _append(many, known.node(listed.left)))
        _repeat_last(block, outer)
    block.raw("# entries of one row follow each other, in the order of the loops")
    firsts, counts = (_beside([r[i] for r in ranges]) for i in (0, 1))
    entry = f"{phase}_entry"
    made = Call("expand", (firsts, counts, Atom(str(table.rows))))
    block.put(f"{entry}, {phase}_tile, {names.steps}", made)
    block.raw(f"{phase} = jax.lax.rem({entry}, {count})")
    known.locals |= {PHASE.name: phase, TILE.name: f"{phase}_tile"}
    for track in table.tracks:
        _print_track(known, block, table, track)
    if outer:
        picked = ", ".join(f"{name}[jax.lax.div({entry}, {count})]" for name in outer)
        block.put(", ".join(outer), Atom(picked))


def _repeat_last(block: Block, outer: list[str]) -> None:
    """The columns before of one more entry."""
    for name in outer:
        block.raw(f"{name} = jnp.append({name}, {name}[-1])")


def _append(nodes: Node, last: Node) -> Node:
    return Call("jnp.append", (nodes, last))


def _beside(nodes: list[Node]) -> Node:
    stacked = Call("jnp.stack", (Group(tuple(nodes), "[]"), Keyword("axis", ONE)))
    return Call("reshape", (Atom("-1"),), of=stacked)


def _print_track(printer: Printer, block: Block, table: plan.Table, track: plan.Track) -> None:
    """The tile of a track: its loop's, else the next one, else that of the row before."""
    target = printer.names.axes[track.name]
    if track.listed is None:
        block.put(target, printer.node(TILE))
        return
    position = table.tracks.index(track)
    waits = [printer.node(_listed(c).stays[position]) for c in table.phases]
    block.put(f"{target}_at", _beside(waits))
    printer.locals[AWAY.name] = f"{target}_at[{printer.names.word('phase')}_entry]"
    block.put(target, Call("held", (printer.node(track.listed),)))


def _listed(column: plan.Column) -> plan.Listed:
    assert column.listed is not None
    return column.listed


def _print_range(
    printer: Printer, block: Block, table: plan.Table, column: plan.Column, outer: list[str]
) -> tuple[Printer, plan.Listed]:
    """The lines of every row's range; the printer that is returned knows their names."""
    names, listed, scope = printer.names, _listed(column), printer.scope()
    index, rows = names.axes[column.axis], names.axes[table.columns[0].axis]
    scope.locals |= {ROW.name: f"jnp.arange(len({rows}))", COUNT.name: names.steps}
    scope.locals[ROWS.name] = f"{rows}.shape" if outer else "()"
    block.raw(f"# every range of {index}, and the rows that its tiles are")
    cursor = seen(column.axis)
    for line in listed.lines:
        if line.name == cursor and cursor.name not in scope.locals:
            block.raw(
                f"# tiles below {index}_seen have a row already; only the last one may be shared"
            )
        scope = print_lines(scope, block, (line,))
    return scope, listed
