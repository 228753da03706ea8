"""Work list: the step table as a few array operations of XLA, for a grid of `pallas_call`.

Every column expands the rows so far: a row of the columns before becomes `count` rows, whose tiles
begin at `first`.  An entry's rows are found by searching the running sums of the counts.
"""

from __future__ import annotations

from tilelang.codegen.pallas.plan import types as plan
from tilelang.codegen.pallas.plan.reads import varies
from tilelang.codegen.pallas.plan.steps.loops import standing
from tilelang.codegen.writer import Atom, Call, Group, Keyword, Node, flat, infix, signature

from .block import Block
from .expressions import ONE, ZERO, Printer, all_of, any_of
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
    if not table.sure:  # the grid has a step all the same, and it must show some block
        last = table.columns[-1].axis
        for name, axes in [(t.name, t.axes) for t in table.tracks] or [(last, (last,))]:
            most = min(launch.axis(a).limit for a in axes) - 1
            block.raw(f"{names.axes[name]} = jnp.clip({names.axes[name]}, 0, {most})")
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
    first, count = _row_ranges(printer, block, table, column, outer)
    if column.visit == "cover":
        count = block.named(f"{index}_count", count)
        block.raw(f"# one more entry: the {index} behind the last range")
        block.raw(f"{index}_rest = jnp.max({index}_stop)")
        _repeat_last(block, outer)
        first = _append(first, Atom(f"{index}_rest"))
        count = _append(count, infix("-", Atom(str(axis.limit)), Atom(f"{index}_rest")))
    entry = f"{index}_entry"
    most = Atom(str(_rows(table, printer, position)))
    block.put(f"{entry}, {index}, {names.steps}", Call("expand", (first, count, most)))
    if outer:
        block.raw(f"{', '.join(outer)} = {', '.join(f'{name}[{entry}]' for name in outer)}")


def _print_phases(printer: Printer, block: Block, table: plan.Table) -> None:
    """Loops in a row: an entry for each of them in every row of the columns before."""
    names, outer = printer.names, outer_indices(printer, table)
    phase, count = names.word("phase"), len(table.phases)
    ranges = [_phase_range(printer, block, table, column) for column in table.phases]
    if any(c.visit == "cover" for c in table.phases):
        block.raw("# one more entry each: tiles behind the last range, of loops that need those")
        for column, (first, many) in zip(table.phases, ranges, strict=True):
            index, rest, left = names.axes[column.axis], ZERO, ZERO
            if column.visit == "cover":
                rest = block.named(f"{index}_rest", Call("jnp.max", (Atom(f"{index}_stop"),)))
                left = infix("-", Atom(str(printer.launch.axis(column.axis).limit)), rest)
            block.put(flat(first), _append(first, rest))
            block.put(flat(many), _append(many, left))
        _repeat_last(block, outer)
    block.raw("# entries of one row follow each other, in the order of the loops")
    firsts, counts = (_beside([r[i] for r in ranges]) for i in (0, 1))
    entry = f"{phase}_entry"
    made = Call("expand", (firsts, counts, Atom(str(table.rows))))
    block.put(f"{entry}, {phase}_tile, {names.steps}", made)
    block.raw(f"{phase} = jax.lax.rem({entry}, {count})")
    for track in table.tracks:
        _print_track(printer, block, table, track, ranges)
    if outer:
        picked = ", ".join(f"{name}[jax.lax.div({entry}, {count})]" for name in outer)
        block.put(", ".join(outer), Atom(picked))


def _repeat_last(block: Block, outer: list[str]) -> None:
    """The columns before of one more entry."""
    for name in outer:
        block.raw(f"{name} = jnp.append({name}, {name}[-1])")


def _append(nodes: Node, last: Node) -> Node:
    return Call("jnp.append", (nodes, last))


def _phase_range(printer: Printer, block: Block, table: plan.Table, column: plan.Column) -> Pair:
    """The first tile of one loop in a row, and how many it has, for every row so far."""
    launch, axis = printer.launch, printer.launch.axis(column.axis)
    index, outer = printer.names.axes[column.axis], outer_indices(printer, table)
    first, count = _row_ranges(printer, block, table, column, outer)
    ends_differ = axis.tiles is None and varies(launch, axis.end)
    if outer and ends_differ and not (varies(launch, axis.begin) or _follows(column)):
        first = _everywhere(first, outer)  # only the end differs from row to row
    return block.named(f"{index}_first", first), block.named(f"{index}_count", count)


def _beside(nodes: list[Node]) -> Node:
    stacked = Call("jnp.stack", (Group(tuple(nodes), "[]"), Keyword("axis", ONE)))
    return Call("reshape", (Atom("-1"),), of=stacked)


def _print_track(
    printer: Printer, block: Block, table: plan.Table, track: plan.Track, ranges: list[Pair]
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
            wait = Call("jnp.where", (infix(">", count, ZERO), first, wait))
        waits.append(wait)
    block.put(f"{target}_at", _beside(waits))
    mine = any_of([infix("==", Atom(phase), Atom(str(i))) for i in own])
    known = Call("jnp.where", (mine, tile, Atom(f"{target}_at[{phase}_entry]")))
    block.put(target, Call("held", (known,)))


def _row_ranges(
    printer: Printer, block: Block, table: plan.Table, column: plan.Column, outer: list[str]
) -> Pair:
    """The first tile of a column's range, and how many it has, for every row of `outer`."""
    launch, axis = printer.launch, printer.launch.axis(column.axis)
    block.raw(f"# every range of {printer.names.axes[axis.name]}, and the rows that its tiles are")
    first, count = _range(printer, block, table, column, len(outer))
    arrays = column.visit == "sweep" or axis.tiles is not None
    if not outer:
        first, count = (Call("jnp.reshape", (node, Atom("(1,)"))) for node in (first, count))
    elif not (arrays or varies(launch, axis.begin) or varies(launch, axis.end)):
        first, count = _everywhere(first, outer), _everywhere(count, outer)
    always = column.range.live is None or column.visit == "at_least_one"
    if always and _spare(printer, table, len(outer)):
        count = Call("jnp.where", (_real(printer, table), count, ZERO))
    return first, count


def _everywhere(node: Node, outer: list[str]) -> Node:
    return Call("jnp.broadcast_to", (node, Atom(f"{outer[0]}.shape")))


def _spare(printer: Printer, table: plan.Table, position: int) -> bool:
    """Whether the columns before may leave rows of the list unused: their ranges are data."""
    return any(printer.launch.axis(c.axis).tiles is None for c in table.columns[:position])


def _real(printer: Printer, table: plan.Table) -> Node:
    """Which rows so far stand for something: those before the last one that is needed."""
    rows = Call("len", (Atom(printer.names.axes[table.columns[0].axis]),))
    return infix("<", Call("jnp.arange", (rows,)), Atom(printer.names.steps))


def _rows(table: plan.Table, printer: Printer, position: int) -> int:
    """How many rows the list can need once this column is there."""
    if position + 1 == len(table.columns):
        return table.rows
    total = 1
    for column in table.columns[: position + 1]:
        limit = printer.launch.axis(column.axis).limit
        total *= limit if column.visit == "sweep" else column.most
        total += limit if column.visit == "cover" else 0
    return min(total, table.rows)


def _range(
    printer: Printer, block: Block, table: plan.Table, column: plan.Column, position: int
) -> Pair:
    """The first tile of every row's range, and how many there are."""
    axis, index, found = (
        printer.launch.axis(column.axis),
        printer.names.axes[column.axis],
        column.range,
    )
    scope = print_lines(printer, block, found.lines)
    first, stop = scope.node(found.first), scope.node(found.stop)
    if found.live is None:
        shape = Atom(f"{printer.names.axes[table.columns[0].axis]}.shape" if position else "()")
        count = Atom(str(axis.limit if column.visit == "sweep" else axis.tiles))
        int32 = Atom("jnp.int32")
        return Call("jnp.full", (shape, first, int32)), Call("jnp.full", (shape, count, int32))
    axes = {a.name: a for a in printer.launch.axes}
    tests = [found.live, *(outer.tile.runs for outer in standing(table, column, axes))]
    real = [_real(printer, table)] if _spare(printer, table, position) else []
    live = block.named(f"{index}_live", all_of([*map(scope.node, tests), *real]))
    if _follows(column):
        stop = block.named(f"{index}_stop", Call("jnp.where", (live, stop, ZERO)))
        first = _behind(block, column, index, first, stop, live)
        if column.visit == "cover":
            stop = Call("jnp.where", (live, stop, Atom(f"{index}_seen")))
    most = Atom(str(axis.limit if axis.block is not None else column.most))
    some: Node = Call("jnp.clip", (infix("-", stop, first), ZERO, most))
    some = some if column.visit == "cover" else Call("jnp.where", (live, some, ZERO))
    if column.stand_in is not None:
        first = block.named(f"{index}_first", scope.node(column.stand_in))
        some = Call("jnp.maximum", (some, ONE))
    return first, some


def _follows(column: plan.Column) -> bool:
    """Whether a range's first tile depends on the ranges before it."""
    return column.visit == "cover" or column.cursor


def _behind(
    block: Block, column: plan.Column, index: str, first: Node, stop: Node, live: Node
) -> Node:
    """Tiles rise over the whole list: every range begins where the ones before it ended."""
    seen = f"{index}_seen"
    block.raw(f"# tiles below {seen} have a row already; only the last one may be shared")
    block.raw(f"{seen} = jnp.maximum(jax.lax.cummax({flat(stop)}), 0)")
    block.raw(f"{seen} = jnp.concatenate([jnp.zeros(1, jnp.int32), {seen}[:-1]])")
    before = infix("-", Atom(seen), ONE)
    if column.visit == "cover":
        again = infix("&", live, infix("<", first, Atom(seen)))
        first = Call("jnp.where", (again, before, Atom(seen)))
    else:
        first = Call("jnp.maximum", (first, before))
    return block.named(f"{index}_start", first)
