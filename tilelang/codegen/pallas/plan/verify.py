"""verify(plan): everything that the text of a plan will read is defined where it is read.

What defines: a grid dimension, a column of the step table, a loop inside the step, an assignment
before; windows, scratch and scalars of the launch.  A plan that fails here is a fault of this
package, never of the kernel, and would be a NameError in the generated source.  No window may leave
its array either, which no interpreter would see.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import assert_never

from tilelang import ir
from tilelang.errors import InternalError, Loc
from tilelang.ir import integers

from . import physical
from .axis import AxisPlan, Range
from .clamps import bounds
from .moved import BEGIN, FIRST_ROW, STOP_ROW
from .physical import FIRST, SLOT, PExpr, PStmt, Select
from .reads import made_of
from .shapes import broadcasts, held_as, holds, shows
from .steps import conditions
from .steps.names import AWAY, CORE, COUNT, LATER, PHASE, ROW, STEP, TILE, seen
from .types import BACK, GONE, HERE, HIGH, LOW, REACH, Column, Launch, Plan, Section, Table
from .windows import types as windows
from .windows.flowing import tiles


@dataclass(frozen=True)
class Reader:
    """What may be read at one place: axes that have a number, names, and blocks of windows.

    what, loc  what reads there, and the author's line, for a message
    """

    launch: Launch
    axes: frozenset[str]
    names: frozenset[str] = frozenset()
    refs: frozenset[str] = frozenset()
    what: str = ""
    loc: Loc | None = None

    def plus(self, axes: Iterable[str] = (), names: Iterable[str] = ()) -> Reader:
        return replace(self, axes=self.axes.union(axes), names=self.names.union(names))

    def of(self, what: str, loc: Loc | None) -> Reader:
        return replace(self, what=what, loc=loc)

    def needs(self, what: str, found: bool) -> None:
        self.must(f"reads {what} where nothing defines it", found)

    def must(self, wrong: str, found: bool) -> None:
        _must(self.what, wrong, found, self.loc)


def _must(what: str, wrong: str, found: bool, loc: Loc | None) -> None:
    if not found:
        raise InternalError(
            f"internal error: {what} {wrong}",
            loc,
            "this is a fault of the compiler, not of the kernel: please report it",
        )


def verify(plan: Plan) -> Plan:
    """The plan; raises InternalError if some text of it would read what nothing defines."""
    _fixed_blocks(plan)
    _arrays(plan)
    for launch in plan.launches:
        single = (a.name for a in launch.axes if a.place == "single" and a.block is not None)
        start = Reader(launch, frozenset(single))
        _table(start)
        here = _step(start)
        tracks = launch.table.tracks if launch.table is not None else ()
        for window in launch.windows:
            if window.stepped:  # the table holds a tile for it, whatever loop a row is of
                seen = {a for t in tracks if t.name == window.track for a in t.axes}
                _window(here.plus(seen), window)
        for section in launch.sections:
            _section(here, section)
        _beside(here)
        _flow(here)
        _parts(start)
    return plan


def _beside(here: Reader) -> None:
    """Several iterations of a step know how often loops turn; theirs have tiles of their own."""
    many = here.launch.beside
    if many is None:
        return
    counted = here
    for axis in many.ends:
        counted = _lines(counted, axis)
    _exprs(counted.of("how often loops turn", here.launch.loc), many.turns)
    _body(replace(here, launch=here.launch.with_axes(many.short)), many.body)


def _flow(here: Reader) -> None:
    """Pieces are whole tiles of every loop that uses them, and steps know which they use."""
    launch, flow = here.launch, here.launch.flow
    if flow is not None:
        known = here.plus(names=[v.name for v in (HERE, GONE, REACH, BACK, LOW, HIGH)])
        step = flow.step.exprs if flow.step is not None else ()
        _exprs(known.of("what a step waits for", launch.loc), *step)
        for turn in flow.turns:
            inside = known.plus([turn.axis])
            _exprs(inside.of("what a turn waits for", launch.axis(turn.axis).loc), *turn.exprs)
    ordered = launch.form == "grid" and all(d.semantics == "arbitrary" for d in launch.dims)
    for window in (w for w in launch.windows if w.held):
        all_of = here.of(f"all of {window.array}", launch.loc)
        all_of.must("is held where other cores would have their own", ordered)
    for window in (w for w in launch.windows if w.flows):
        own = here.of(f"a piece of {window.array}", launch.loc)
        pieces = flow is not None and flow.rows * flow.pieces == window.shape[0]
        own.must("is no part of its rows", pieces)
        around = {d.axis for d in launch.dims[:-1]}
        own.must("is of other columns in some step of its flow", window.axes <= around)
        sizes = (launch.axis(t.axis).size if t is not None else 0 for t in tiles(launch, window))
        whole = flow is not None and all(size and flow.rows % size == 0 for size in sizes)
        own.must("is no number of whole tiles", whole)


def _parts(here: Reader) -> None:
    """No block of an output is in the rows of two cores, and no loop that runs in order."""
    launch, table, parts = here.launch, here.launch.table, here.launch.parts
    if isinstance(parts, str):
        return
    rows = here.of("a part of the table", launch.loc)
    around = [d.extent for d in launch.dims[: [d.axis for d in launch.dims].index(None)]]
    whole = table is not None and table.steps == "table" and set(around) <= {1}
    rows.must("is not all that a core does", whole and launch.cores > 1)
    columns = table.outer if table is not None else ()
    kinds = [launch.axis(c.axis).kind != "parallel" for c in columns]
    apart = {c.axis for c in columns[: [*kinds, True].index(True)]}
    turns = dict(parts.turns)
    for window in launch.outputs:
        own, told = here.of(f"a block of {window.array}", launch.loc), turns.get(window.ref, ())
        own.must("may be written by two cores", bool(told) and {*told} <= {*window.numbers})
        by = [integers.axes(number.expr) for number in told]
        own.must("goes on from one part to the next", all(axes and axes <= apart for axes in by))
    counted = rows.plus(names=[COUNT.name])
    _exprs(counted.plus(names=[CORE.name]), parts.share)
    _exprs(counted.plus(names=[STEP.name]), parts.later)
    _exprs(counted.plus(names=[STEP.name, LATER.name]), parts.on)


def _arrays(plan: Plan) -> None:
    """A name is one array in one form, whichever launch passes it."""
    forms = {array.name: array for array in reversed(plan.arrays)}
    for array in plan.arrays:
        one = forms[array.name] == array
        _must(f"array {array.name}", "has two forms", one, plan.ir.tensor(array.source).loc)


def _fixed_blocks(plan: Plan) -> None:
    """What the author gave as block_size is the block: numbers of tiles mean it.

    A range that it covers is one tile, of whole registers.
    """
    blocks = dict(plan.blocks)
    for axis in plan.ir.axes:
        if axis.fixed is not None and axis.name in blocks:
            size, block = plan.problem.extent(axis.name), blocks[axis.name]
            kept = block == axis.fixed or size <= min(block, axis.fixed)
            wrong = f"has blocks of {block}, not of {axis.fixed}"
            _must(f"the loop of {axis.user}", wrong, kept, axis.loc)


def _table(here: Reader) -> None:
    """The loops that make the table run before the first step: they know columns only."""
    table = here.launch.table
    if table is None:
        return
    listed = rows = here  # what is known behind the lines of loops in a row
    for column in table.columns:
        axis = here.launch.axis(column.axis)
        made = _column(here, table, column, axis)
        rows = rows.plus(names=made.names)
        listed = listed.plus(names=_listed(here, column, axis).names)
        if column.phase is None:
            here = here.plus([column.axis])
    for column in table.phases:
        own = rows.of("a loop in a row", here.launch.axis(column.axis).loc)
        _exprs(replace(own, axes=here.axes), column.capped, *column.stays)
        waits = column.listed.stays if column.listed is not None else ()
        _exprs(replace(listed.of("a track", own.loc), axes=here.axes), *waits)
    noting = here.plus(names=[COUNT.name]).of("what rows note", here.launch.loc)
    for name, expr in table.noted:
        _exprs(noting, expr)
        noting = noting.plus(names=[name])
    phase = here.plus(names=[PHASE.name, TILE.name, AWAY.name]).of("a track", here.launch.loc)
    _exprs(phase, *(track.listed for track in table.tracks))
    _around(here, table)


def _column(here: Reader, table: Table, column: Column, axis: AxisPlan) -> Reader:
    """What one loop visits; what is defined behind its lines."""
    own = _lines(here, axis, column.range).of(f"where {axis.user} begins or stops", axis.loc)
    ends = column.range
    _exprs(own, ends.first, ends.stop, ends.live, column.stand_in)
    counted = column.cursor or column.visit != "cover"  # tiles behind the last range
    here.of("the table", axis.loc).needs(
        f"the number of tiles of {axis.user} that have a row", counted
    )
    visits, tail = column.visits, column.tail  # they know the rows so far
    assert visits is not None
    below = (seen(column.axis).name,) if column.cursor else ()
    first = column.phase is None and column.axis == table.columns[0].axis  # no rows so far
    counting = here.plus(names=below if first else (COUNT.name, *below))
    own = _lines(counting, axis, visits).of(f"what of {axis.user} has a row", axis.loc)
    _exprs(own, visits.first, visits.stop, visits.live, column.risen)
    _exprs(own.plus([axis.name]), column.row)
    if tail is not None:
        behind = here.plus(names=(COUNT.name, *below))
        behind = behind.of(f"the tiles of {axis.user} behind the last range", axis.loc)
        _exprs(behind, tail.first, tail.stop, *tail.around, *tail.at)
    return own


def _listed(here: Reader, column: Column, axis: AxisPlan) -> Reader:
    """What XLA computes of a column of a work list; what is defined behind that."""
    listed = column.listed
    if listed is None:
        return here
    here = here.plus(names=[ROW.name, COUNT.name])
    rest = () if listed.rest is None else (listed.rest,)
    own = _lines(here, axis, Range((*listed.lines, *rest))).of(f"the list of {axis.user}", axis.loc)
    _exprs(own, listed.first, listed.count, listed.left)
    return own


def _around(here: Reader, table: Table) -> None:
    """What steps know of the table besides their row."""
    here = here.of("a row of the table", here.launch.loc)
    _exprs(here.plus(names=[COUNT.name]), table.length)
    step = here.plus(names=[COUNT.name, STEP.name])
    _exprs(step, table.before, table.after)
    _exprs(here.plus(table.recorded), *(shown for _, shown in table.shown))
    if table.steps == "rectangle":
        step = here.plus(names=[COUNT.name])  # which step it is
    for line in table.lines:
        _exprs(step, line.value)
        step = step.plus([] if line.part else [line.axis], [line.name.name])
    _exprs(step, table.live)


def _lines(here: Reader, axis: AxisPlan, found: Range | None = None) -> Reader:
    """What is defined behind the lines of a range."""
    for line in (found or axis.range).lines:
        _exprs(here.of(f"the range of {axis.user}", axis.loc), line.value)
        here = here.plus(names=[line.name.name])
    return here


def _step(here: Reader) -> Reader:
    """What is defined in every step; tiles of loops in a row are, in the rows of that loop."""
    launch = here.launch
    dims = [d.axis for d in launch.dims if d.axis is not None]
    columns = launch.table.outer if launch.table is not None else ()
    here = here.plus([*dims, *(c.axis for c in columns)])
    for axis in map(launch.axis, dims):
        _exprs(here.of(f"the first tile of {axis.user}", axis.loc), axis.base)
    for column in columns:
        if column.rows is not None:
            own = here.of(f"the rows of {column.axis}", launch.axis(column.axis).loc)
            _exprs(own, column.rows.first, column.rows.count)
    open_ = (w.ref for w in launch.windows if w.stream is None)
    counted = (STEP.name,) if any(d.axis is None for d in launch.dims) else ()
    return replace(here.plus(names=counted), refs=frozenset(open_))


def _window(here: Reader, window: windows.Window) -> None:
    here = here.of(f"the window of {window.array}", here.launch.loc)
    for dim, size, number in zip(window.dims, window.shape, window.numbers, strict=True):
        _exprs(here, number.expr)
        match dim:
            case windows.ByTile(axis, block):
                if not isinstance(number.expr, ir.Const):  # else it shows the one that there is
                    _axis(here, axis)
                if here.launch.axis(axis).base is None:  # fixed ranges are asked when found
                    _inside(here, number, -(-size // block))
            case windows.ByRow(axis):
                _axis(here, axis)
            case windows.ByBlock(expr, block) | windows.Edge(number=expr, block=block):
                here.must("shows another block than was chosen", number.expr == expr)
                _inside(here, number, -(-size // block))
            case windows.Between(axis, shift, first, stop, tile):
                _axis(here, axis)
                _exprs(here, shift, first, stop)
                _inside(here, number, -(-size // tile))
                _inside(here, windows.Number(stop), -(-size // windows.SHORT) + 1)
            case windows.ByIndex(expr):
                _exprs(here, expr)
            case windows.Packed(expr, rows):
                _exprs(here, expr if rows < size else None)
            case windows.Whole() | windows.Fetched():  # the step has all of it
                pass
            case _:
                assert_never(dim)


def _inside(here: Reader, number: windows.Number, blocks: int) -> None:
    low, high = bounds(number.expr, {a.name: a for a in here.launch.axes})
    here.needs(f"block {low} to {high} of {blocks}", low >= 0 and high < max(blocks, 1))


def _section(here: Reader, section: Section) -> None:
    table = here.launch.table
    columns = table.columns if table is not None else ()
    for condition in section.conditions:
        if isinstance(condition, conditions.InPhase):
            here = here.plus([c.axis for c in columns if c.phase == condition.phase])
    every = here.plus([c.axis for c in columns])  # a condition compares columns of rows
    for condition in section.conditions:
        own = isinstance(condition, conditions.Runs | conditions.Clear | conditions.Back)
        inside = here if own else every
        for axis in _compared(condition):
            _axis(inside.of("a condition", here.launch.axis(axis).loc), axis)
        _exprs(inside.of("a condition", here.launch.loc), *_conditional(here.launch, condition))
    _body(here, section.body)


def _compared(condition: conditions.Condition) -> tuple[str, ...]:
    match condition:
        case conditions.AtDim(axis) | conditions.RowStarts(axis) | conditions.Runs(axis):
            return (axis,)
        case conditions.Turns(numbers, axis):
            found = {a for n in numbers for a in integers.axes(n.expr)}
            return (*sorted(found), *((axis,) if axis is not None else ()))
        case conditions.Ends(outer, inner):
            return (*outer, *inner)
        case conditions.Enters(outer):
            return outer
        case conditions.InPhase() | conditions.Clear() | conditions.Back():
            return ()
        case _:
            assert_never(condition)


def _conditional(launch: Launch, condition: conditions.Condition) -> tuple[ir.Expr, ...]:
    """The expressions that a condition is printed with."""
    match condition:
        case conditions.Turns(numbers):
            return tuple(n.expr for n in numbers)
        case conditions.RowStarts(_, number):
            return (number.expr,)
        case conditions.Runs(axis):
            return (launch.axis(axis).tile.runs,)
        case conditions.Clear(tests) | conditions.Back(_, tests):
            return tests
        case _:
            return ()


def _body(here: Reader, body: tuple[PStmt, ...]) -> Reader:
    """Checks the statements of one scope; what is defined behind them."""
    for stmt in body:
        match stmt:
            case physical.Bind():
                _values(_moving(here, stmt).of(stmt.user or stmt.name, stmt.loc), stmt)
                here = here.plus(names=[stmt.name])
            case physical.Keep():
                _values(here.of("a value that is kept", stmt.loc), stmt)
                _piece(here, stmt)
                own = here.of("a value", stmt.loc)
                _scratch(own, stmt.name)
                own.must(f"has another shape than {stmt.name}", holds(here.launch, stmt))
                own.must(f"has another dtype than {stmt.name}", held_as(here.launch, stmt))
            case physical.Write():
                own = _moving(here, stmt).of(f"a store to {stmt.ref}", stmt.loc)
                _block(own, stmt.ref, stmt.select)
                _exprs(own, *physical.exprs_of(stmt))
            case physical.Inner():
                here = here.plus(names=_inner(here, stmt))
            case _:
                assert_never(stmt)
    return here


def _values(here: Reader, stmt: physical.Bind | physical.Keep) -> None:
    """Rows that are put together are a local's whole value, and no local is itself."""
    bound = stmt if isinstance(stmt, physical.Bind) else None
    takes = [e for e in physical.parts_of(stmt) if isinstance(e, physical.TakeRows)]
    here.must("puts rows together within", all(bound and e is bound.value for e in takes))
    here.must("is itself", bound is None or bound.value != ir.Var(bound.name, bound.value.type))
    _exprs(here, *physical.exprs_of(stmt))


def _moving(here: Reader, stmt: physical.Bind | physical.Write) -> Reader:
    """Rows that are copied some at a time have numbers among those."""
    takes = isinstance(stmt, physical.Bind) and isinstance(stmt.value, physical.TakeRows)
    puts = isinstance(stmt, physical.Write) and stmt.rows is not None
    if isinstance(stmt, physical.Write) and isinstance(stmt.value, physical.MovedRows):
        return here.plus(names=[BEGIN.name, FIRST_ROW.name, STOP_ROW.name])
    return here.plus(names=[FIRST.name, SLOT.name] if takes or puts else ())


def _inner(here: Reader, loop: physical.Inner) -> list[str]:
    """Checks a loop inside the step; the names that it leaves."""
    axis = here.launch.axis(loop.axis)
    own = _lines(here, axis).of(f"where {axis.user} begins or stops", axis.loc)
    _exprs(own, axis.range.first, axis.range.stop, axis.range.live, axis.range.count)
    for carry in loop.carries:
        _exprs(here.of(carry.user, loop.loc), carry.init)
    known = [e.name.name for e in axis.range.lines if axis.near is not None]
    inside = here.plus([loop.axis], [*(c.name for c in loop.carries), *known])
    if loop.form == "pipeline":
        streamed = [w for w in here.launch.windows if w.stream == loop.axis]
        inside = replace(inside, refs=inside.refs.union(w.ref for w in streamed))
        for window in streamed:
            _window(inside, window)
    end = _body(inside, loop.body)
    for carry in loop.carries:
        _exprs(end.of(carry.user, loop.loc), carry.next)
    return [c.out for c in loop.carries]


def _exprs(here: Reader, *exprs: PExpr | None) -> None:
    for expr in exprs:
        for part in physical.walk_physical(expr) if expr is not None else ():
            _part(here, part)
            here.must("has operands of shapes that do not meet", broadcasts(here.launch, part))


def _part(here: Reader, part: PExpr) -> None:
    for inside in made_of(here.launch, part):
        _exprs(here, inside)
    match part:
        case ir.Var(name):
            here.needs(f"the value {name}", name in here.names)
        case ir.GridIndex(axis):
            here.needs(f"the number of {axis}", axis in here.axes)
        case ir.TileScalar(axis) | ir.TileIndex(axis):
            _axis(here, axis)
        case physical.InRange(mask):
            _axis(here, mask.axis)
        case physical.Lane(axis) if axis is not None:
            _axis(here, axis)
        case physical.Recorded(column):
            table = here.launch.table
            found = table is not None and column in table.recorded
            here.needs(f"what rows hold of {column}", found)
        case physical.Kept(name):
            _scratch(here, name)
            here.must(f"is read as another dtype than {name} has", held_as(here.launch, part))
            _piece(here, part)
        case ir.Load(tensor) | physical.ScalarRead(tensor):
            here.needs(f"the numbers of {tensor}", tensor in here.launch.scalars)
            _exprs(here, *(ir.children(part) if isinstance(part, ir.Load) else ()))
        case physical.Read(ref, select):
            _block(here, ref, select)
            here.must(f"has another shape than what it reads of {ref}", shows(here.launch, part))
        case physical.MovedRows(name=name) | physical.RowsFrom(name=name):
            _scratch(here, name)
        case physical.TakeRows(ref):
            if ref:  # numbers of scalar memory are put together without one
                _block(here, ref, ())
            _scratch(here, part.rows)
        case _:
            pass


def _axis(here: Reader, name: str) -> None:
    """The number of a tile, and what the ends of its range are made of."""
    axis = here.launch.axis(name)
    here.needs(f"the tile of {axis.user} ({name})", name in here.axes)
    for expr in axis.made_of:
        for part in ir.walk(expr):
            if isinstance(part, ir.GridIndex | ir.TileIndex | ir.TileScalar):
                needed = f"the number of {part.axis}, which {name} needs,"
                here.needs(needed, part.axis in here.axes)


def _block(here: Reader, ref: str, select: tuple[Select, ...]) -> None:
    """A window's block, and what is meant of it."""
    here.needs(f"the block {ref}", ref in here.refs)
    for part in select:
        if isinstance(part, physical.Row):
            _exprs(here, part.expr)
        elif isinstance(part, physical.Step):
            _exprs(here, part.number)
            if part.axis:
                _axis(here, part.axis)
                axis = here.launch.axis(part.axis)
                _exprs(here, axis.tile.origin if axis.near is not None else None)


def _piece(here: Reader, value: physical.Kept | physical.Keep) -> None:
    """Which rows are meant of a value in scratch memory."""
    if value.part is not None:
        _axis(here, value.part.axis)


def _scratch(here: Reader, name: str) -> None:
    here.needs(f"scratch memory for {name}", any(s.name == name for s in here.launch.scratch))
