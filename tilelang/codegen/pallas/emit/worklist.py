"""Work list: the step table as a few array operations of XLA, for a grid of `pallas_call`.

Every column expands the rows so far: a row of the columns before becomes `count` rows, whose tiles
begin at `first`.  An entry's rows are found by searching the running sums of the counts.
"""

from __future__ import annotations

from tilelang.codegen.pallas.plan.reads import varies
from tilelang.codegen.pallas.plan.steps.loops import standing
from tilelang.codegen.pallas.plan.types import AxisPlan, Column, Launch, Table, Track
from tilelang.codegen.writer import Atom, Call, Group, Keyword, Node, flat, infix

from .block import Block
from .expressions import Printer
from .ranges import outer_indices, print_lines

EXPAND = [
    "def expand(first: jax.Array, count: jax.Array, rows: int) -> tuple[jax.Array, ...]:",
    '    """For each row its entry and its tile; entry i has count[i] rows.  And how many rows."""',
    "    first, count = jnp.broadcast_arrays(first, count)",
    "    ends = jnp.cumsum(count)",
    "    row = jnp.arange(rows)",
    "    entry = jnp.searchsorted(ends, row, side='right').astype(jnp.int32)".replace("'", '"'),
    "    entry = jnp.minimum(entry, len(count) - 1)",
    "    return entry, first[entry] + row - (ends - count)[entry], jnp.minimum(ends[-1], rows)",
]


HELD = [
    "def held(tile: jax.Array) -> jax.Array:",
    '    """Where a tile is -1, that of the row before; 0 if there is none."""',
    "    last = jax.lax.cummax(jnp.where(tile >= 0, jnp.arange(len(tile)), -1))",
    "    return jnp.where(last >= 0, tile[last], 0)",
]


def list_name(launch: Launch) -> str:
    """The function that builds the work list of a launch."""
    return launch.name.removesuffix("_kernel") + "_steps"


def print_worklist(printer: Printer, launch: Launch) -> list[str]:
    """The lines of `def <kernel>_steps(scalars)`: the columns of the list, then its length."""
    table, names = launch.table, printer.names
    assert table is not None
    columns = [names.axes.get(key, key) for key in names.columns]
    params = ", ".join(f"{s}: jax.Array" for s in launch.scalars)
    block = Block(4)
    block.raw(f'"""The work list: rows ({", ".join(columns)}), and how many there are."""')
    for position in range(len(table.outer)):
        _print_column(printer, block, table, position)
    if table.phases:
        _print_phases(printer, block, table)
    if not table.sure:  # the grid has a step all the same, and it must show some block
        last = table.columns[-1].axis
        moved = [(t.name, t.axes) for t in table.tracks] or [(last, (last,))]
        for name, axes in moved:
            most = min(printer.launch.axis(a).limit for a in axes) - 1
            block.raw(f"{names.axes[name]} = jnp.clip({names.axes[name]}, 0, {most})")
    block.raw(f"return {', '.join(columns)}, {names.steps}.reshape((1,))")
    return [f"def {list_name(launch)}({params}) -> tuple[jax.Array, ...]:", *block.lines]


def _print_column(printer: Printer, block: Block, table: Table, position: int) -> None:
    """One more column: its index for every row, and those of the columns before it."""
    names, column = printer.names, table.columns[position]
    axis, index = printer.launch.axis(column.axis), names.axes[column.axis]
    if position == 0 and axis.tiles is not None:
        start = f" + {axis.first}" if axis.first else ""
        block.raw(f"{index} = jnp.arange({axis.tiles}, dtype=jnp.int32){start}")
        block.raw(f"{names.steps} = jnp.int32({axis.tiles})")
        return
    outer = [names.axes[c.axis] for c in table.columns[:position]]
    first, count = _row_ranges(printer, block, table, column, outer)
    if column.visit == "cover":
        count = block.named(f"{index}_count", count)
        first, count = _with_tail(block, axis, index, outer, first, count)
    most = _rows(table, printer, position)
    entry = f"{index}_entry"
    made = Call("expand", (first, count, Atom(str(most))))
    block.put(f"{entry}, {index}, {names.steps}", made)
    if outer:
        picked = ", ".join(f"{name}[{entry}]" for name in outer)
        block.raw(f"{', '.join(outer)} = {picked}")


def _print_phases(printer: Printer, block: Block, table: Table) -> None:
    """Loops in a row: an entry for each of them in every row of the columns before."""
    names, outer = printer.names, outer_indices(printer, table)
    phase, count = names.word("phase"), len(table.phases)
    ranges = [_phase_range(printer, block, table, column) for column in table.phases]
    if any(c.visit == "cover" for c in table.phases):
        block.raw("# one more entry each: tiles behind the last range, of loops that need those")
        ranges = [
            _with_rest(block, printer.launch.axis(c.axis), names.axes[c.axis], c, *found)
            for c, found in zip(table.phases, ranges, strict=True)
        ]
        for name in outer:
            block.raw(f"{name} = jnp.append({name}, {name}[-1])")
    block.raw("# entries of one row follow each other, in the order of the loops")
    firsts, counts = (_beside([r[i] for r in ranges]) for i in (0, 1))
    made = Call("expand", (firsts, counts, Atom(str(table.rows))))
    entry, tile = f"{phase}_entry", f"{phase}_tile"
    block.put(f"{entry}, {tile}, {names.steps}", made)
    block.raw(f"{phase} = jax.lax.rem({entry}, {count})")
    for track in table.tracks:
        _print_track(printer, block, table, track, ranges)
    if outer:
        picked = ", ".join(f"{name}[jax.lax.div({entry}, {count})]" for name in outer)
        block.put(", ".join(outer), Atom(picked))


def _phase_range(printer: Printer, block: Block, table: Table, column: Column) -> tuple[Node, Node]:
    """The first tile of one loop in a row, and how many it has, for every row so far."""
    axis, index = printer.launch.axis(column.axis), printer.names.axes[column.axis]
    outer = outer_indices(printer, table)
    first, count = _row_ranges(printer, block, table, column, outer)
    ends_differ = axis.tiles is None and varies(printer.launch, axis.end)
    if outer and ends_differ and not (varies(printer.launch, axis.begin) or _follows(column)):
        first = _everywhere(first, outer)  # only the end differs from row to row
    return block.named(f"{index}_first", first), block.named(f"{index}_count", count)


def _with_rest(
    block: Block, axis: AxisPlan, index: str, column: Column, first: Node, count: Node
) -> tuple[Node, Node]:
    """One more entry: the tiles behind the last range, or none."""
    rest = left = Atom("0")
    if column.visit == "cover":
        rest = block.named(f"{index}_rest", Call("jnp.max", (Atom(f"{index}_stop"),)))
        left = infix("-", Atom(str(axis.limit)), rest)
    block.put(flat(first), Call("jnp.append", (first, rest)))
    block.put(flat(count), Call("jnp.append", (count, left)))
    return first, count


def _beside(nodes: list[Node]) -> Node:
    stacked = Call("jnp.stack", (Group(tuple(nodes), "[]"), Keyword("axis", Atom("1"))))
    return Call("reshape", (Atom("-1"),), of=stacked)


def _print_track(
    printer: Printer,
    block: Block,
    table: Table,
    track: Track,
    ranges: list[tuple[Node, Node]],
) -> None:
    """The tile of a track: its loop's, else the next one, else that of the row before."""
    phase = printer.names.word("phase")
    own = [i for i, c in enumerate(table.phases) if c.axis in track.axes]
    tile, target = Atom(f"{phase}_tile"), printer.names.axes[track.name]
    if len(own) == len(table.phases):
        block.put(target, tile)
        return
    waits: list[Node] = []
    for position in range(len(table.phases)):
        wait: Node = Call("jnp.full_like", (ranges[position][0], Atom("-1")))
        for later in reversed([i for i in own if i > position and position not in own]):
            first, count = ranges[later]
            wait = Call("jnp.where", (infix(">", count, Atom("0")), first, wait))
        waits.append(wait)
    block.put(f"{target}_at", _beside(waits))
    mine: Node = infix("==", Atom(phase), Atom(str(own[0])))
    for other in own[1:]:
        mine = infix("|", mine, infix("==", Atom(phase), Atom(str(other))))
    known = Call("jnp.where", (mine, tile, Atom(f"{target}_at[{phase}_entry]")))
    block.put(target, Call("held", (known,)))


def _row_ranges(
    printer: Printer, block: Block, table: Table, column: Column, outer: list[str]
) -> tuple[Node, Node]:
    """The first tile of a column's range, and how many it has, for every row of `outer`."""
    axis, index = printer.launch.axis(column.axis), printer.names.axes[column.axis]
    block.raw(f"# every range of {index}, and the rows that its tiles are")
    first, count = _range(printer, block, table, column, axis, len(outer))
    first, count = _per_row(printer, axis, column, outer, first, count)
    always = column.range.live is None or column.visit == "at_least_one"
    if always and _spare(printer, table, len(outer)):
        count = Call("jnp.where", (_real(printer, table), count, Atom("0")))
    return first, count


def _spare(printer: Printer, table: Table, position: int) -> bool:
    """Whether the columns before may leave rows of the list unused: their ranges are data."""
    return any(printer.launch.axis(c.axis).tiles is None for c in table.columns[:position])


def _real(printer: Printer, table: Table) -> Node:
    """Which rows so far stand for something: those before the last one that is needed."""
    rows = Call("len", (Atom(printer.names.axes[table.columns[0].axis]),))
    return infix("<", Call("jnp.arange", (rows,)), Atom(printer.names.steps))


def _rows(table: Table, printer: Printer, position: int) -> int:
    """How many rows the list can need once this column is there."""
    if position + 1 == len(table.columns):
        return table.rows
    total = 1
    for column in table.columns[: position + 1]:
        axis = printer.launch.axis(column.axis)
        total *= axis.limit if column.visit == "sweep" else column.most
        if column.visit == "cover":
            total += axis.limit
    return min(total, table.rows)


def _range(
    printer: Printer,
    block: Block,
    table: Table,
    column: Column,
    axis: AxisPlan,
    position: int,
) -> tuple[Node, Node]:
    """The first tile of every row's range, and how many there are."""
    index, found = printer.names.axes[column.axis], column.range
    shape = f"{printer.names.axes[table.columns[0].axis]}.shape" if position else "()"
    scope = print_lines(printer, block, found.lines)
    first, stop = scope.node(found.first), scope.node(found.stop)
    if found.live is None:
        count = axis.limit if column.visit == "sweep" else axis.tiles
        return _full(shape, first), _full(shape, Atom(str(count)))
    live, most = scope.node(found.live), axis.limit if axis.block is not None else column.most
    for outer in standing(table, column, {a.name: a for a in printer.launch.axes}):
        live = infix("&", live, printer.node(outer.tile.runs))
    if _spare(printer, table, position):
        live = infix("&", live, _real(printer, table))
    live = block.named(f"{index}_live", live)
    if _follows(column):
        stop = block.named(f"{index}_stop", Call("jnp.where", (live, stop, Atom("0"))))
        first = _behind(block, column, index, first, stop, live)
        if column.visit == "cover":
            stop = Call("jnp.where", (live, stop, Atom(f"{index}_seen")))
    count: Node = Call("jnp.clip", (infix("-", stop, first), Atom("0"), Atom(str(most))))
    count = count if column.visit == "cover" else Call("jnp.where", (live, count, Atom("0")))
    if column.stand_in is not None:
        first = block.named(f"{index}_first", scope.node(column.stand_in))
        count = Call("jnp.maximum", (count, Atom("1")))
    return first, count


def _per_row(
    printer: Printer, axis: AxisPlan, column: Column, outer: list[str], first: Node, count: Node
) -> tuple[Node, Node]:
    """One range for every row of the columns before, where it does not depend on them."""
    if not outer:
        return _one(first), _one(count)
    arrays = column.visit == "sweep" or axis.tiles is not None
    launch = printer.launch
    if arrays or varies(launch, axis.begin) or varies(launch, axis.end):
        return first, count
    return _everywhere(first, outer), _everywhere(count, outer)


def _everywhere(node: Node, outer: list[str]) -> Node:
    return Call("jnp.broadcast_to", (node, Atom(f"{outer[0]}.shape")))


def _follows(column: Column) -> bool:
    """Whether a range's first tile depends on the ranges before it."""
    return column.visit == "cover" or column.cursor


def _one(node: Node) -> Node:
    return Call("jnp.reshape", (node, Atom("(1,)")))


def _full(shape: str, value: Node) -> Node:
    return Call("jnp.full", (Atom(shape), value, Atom("jnp.int32")))


def _behind(block: Block, column: Column, index: str, first: Node, stop: Node, live: Node) -> Node:
    """Tiles rise over the whole list: every range begins where the ones before it ended."""
    seen = f"{index}_seen"
    block.raw(f"# tiles below {seen} have a row already; only the last one may be shared")
    block.raw(f"{seen} = jnp.maximum(jax.lax.cummax({flat(stop)}), 0)")
    block.raw(f"{seen} = jnp.concatenate([jnp.zeros(1, jnp.int32), {seen}[:-1]])")
    before = infix("-", Atom(seen), Atom("1"))
    if column.visit == "cover":
        again = infix("&", live, infix("<", first, Atom(seen)))
        first = Call("jnp.where", (again, before, Atom(seen)))
    else:
        first = Call("jnp.maximum", (first, before))
    return block.named(f"{index}_start", first)


def _with_tail(
    block: Block, axis: AxisPlan, index: str, outer: list[str], first: Node, count: Node
) -> tuple[Node, Node]:
    """Tiles behind the last range, as one more entry."""
    rest = f"{index}_rest"
    block.raw(f"# one more entry: the {index} behind the last range")
    block.raw(f"{rest} = jnp.max({index}_stop)")
    for name in outer:
        block.raw(f"{name} = jnp.append({name}, {name}[-1])")
    left = infix("-", Atom(str(axis.limit)), Atom(rest))
    return Call("jnp.append", (first, Atom(rest))), Call("jnp.append", (count, left))
