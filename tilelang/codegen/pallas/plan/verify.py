"""verify(plan): everything that the text of a plan will read is defined where it is read.

What defines: a grid dimension, a column of the step table, a loop inside the step, an assignment
before; windows, scratch and scalars of the launch.  A plan that fails here is a fault of this
package, never of the kernel, and would be a NameError in the generated source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import assert_never

from tilelang.errors import InternalError, Loc
from tilelang.ir import (
    Expr,
    GridIndex,
    Load,
    TileIndex,
    TileScalar,
    Var,
    children,
    integers,
    walk,
)

from .physical import walk_physical
from .steps.loops import COUNT, seen
from .types import (
    AtDim,
    AxisPlan,
    Bind,
    ByBlock,
    ByIndex,
    ByRow,
    ByTile,
    Column,
    Condition,
    Ends,
    Enters,
    Fetched,
    Inner,
    InPhase,
    InRange,
    Keep,
    Kept,
    Lane,
    Launch,
    Packed,
    PExpr,
    Plan,
    PStmt,
    Range,
    Read,
    Row,
    RowStarts,
    Runs,
    ScalarRead,
    Section,
    Select,
    Step,
    TakeRows,
    Turns,
    Whole,
    Window,
    Write,
)


@dataclass(frozen=True)
class Defined:
    """What may be read at one place: axes that have a number, names, and blocks of windows."""

    launch: Launch
    axes: frozenset[str]
    names: frozenset[str] = frozenset()
    refs: frozenset[str] = frozenset()

    def plus(self, axes: Iterable[str] = (), names: Iterable[str] = ()) -> Defined:
        return replace(self, axes=self.axes.union(axes), names=self.names.union(names))


def verify(plan: Plan) -> Plan:
    """The plan; raises InternalError if some text of it would read what nothing defines."""
    for launch in plan.launches:
        single = [a.name for a in launch.axes if a.place == "single" and a.block is not None]
        _table(Defined(launch, frozenset(single)))
        here = _step(Defined(launch, frozenset(single)))
        for window in launch.windows:
            if window.stream is None:
                _window(here.plus(_tracked(launch, window)), window)
        for section in launch.sections:
            _section(here, section)
    return plan


def _table(here: Defined) -> None:
    """The loops that make the table run before the first step: they know columns only."""
    table = here.launch.table
    for column in table.columns if table is not None else ():
        axis = here.launch.axis(column.axis)
        own = _lines(here, axis)
        ends = (column.range.first, column.range.stop, column.range.live, column.stand_in)
        for expr in ends:
            _expr(own, expr, axis.loc, f"where {axis.user} begins or stops")
        _cursor(column, axis)
        _visits(here, column, axis)
        if column.phase is None:
            here = here.plus([column.axis])


def _cursor(column: Column, axis: AxisPlan) -> None:
    """Tiles behind the last range are those from the cursor on."""
    what = f"the number of tiles of {axis.user} that have a row"
    _need(column.cursor or column.visit != "cover", what, axis.loc, "the table")


def _visits(here: Defined, column: Column, axis: AxisPlan) -> None:
    """What the loop visits that makes the table knows the rows so far, too."""
    table, visits = here.launch.table, column.visits
    assert table is not None and visits is not None
    cursors = [seen(c.axis).name for c in table.columns if c.cursor]
    own = _lines(here.plus(names=[COUNT.name, *cursors]), axis, visits)
    for expr in (visits.first, visits.stop):
        _expr(own, expr, axis.loc, f"what of {axis.user} has a row")


def _lines(here: Defined, axis: AxisPlan, found: Range | None = None) -> Defined:
    """What is defined behind the lines of a range."""
    for line in (found or axis.range).lines:
        _expr(here, line.value, axis.loc, f"the range of {axis.user}")
        here = here.plus(names=[line.name.name])
    return here


def _step(here: Defined) -> Defined:
    """What is defined in every step; tiles of loops in a row are, in the rows of that loop."""
    launch, table = here.launch, here.launch.table
    dims = [d.axis for d in launch.dims if d.axis is not None]
    columns = () if table is None else table.outer
    here = here.plus([*dims, *(c.axis for c in columns)])
    for name in dims:
        axis = launch.axis(name)
        _expr(here, axis.base, axis.loc, f"the first tile of {axis.user}")
    return replace(here, refs=frozenset(w.ref for w in launch.windows if _open(w, None)))


def _open(window: Window, stream: str | None) -> bool:
    """Whether the block of a window is there: in the whole step, or in a pipeline inside it."""
    return window.far or window.stream == stream


def _tracked(launch: Launch, window: Window) -> set[str]:
    """Loops in a row whose tile the table holds for a window, whatever loop a row is of."""
    tracks = launch.table.tracks if launch.table is not None else ()
    return {a for track in tracks if track.name == window.track for a in track.axes}


# ---------------------------------------------------------------- windows


def _window(here: Defined, window: Window) -> None:
    loc, what = here.launch.loc, f"the window of {window.array}"
    for dim, size in zip(window.dims, window.shape, strict=True):
        match dim:
            case ByTile(axis) | ByRow(axis):
                _axis(here, axis, loc, what)
            case ByBlock(expr) | ByIndex(expr):
                _expr(here, expr, loc, what)
            case Packed(expr, rows) if rows < size:
                _expr(here, expr, loc, what)
            case Packed() | Whole() | Fetched():  # the step has all of it
                pass
            case _:
                assert_never(dim)


# ---------------------------------------------------------------- sections


def _section(here: Defined, section: Section) -> None:
    table = here.launch.table
    columns = () if table is None else table.columns
    for condition in section.conditions:
        if isinstance(condition, InPhase):
            here = here.plus([c.axis for c in columns if c.phase == condition.phase])
    every = here.plus([c.axis for c in columns])  # a condition compares columns of rows
    for condition in section.conditions:
        for axis in _compared(condition):
            plan, inside = here.launch.axis(axis), here if isinstance(condition, Runs) else every
            _axis(inside, axis, plan.loc, "a condition")
    _body(here, section.body)


def _compared(condition: Condition) -> tuple[str, ...]:
    match condition:
        case AtDim(axis) | RowStarts(axis) | Runs(axis):
            return (axis,)
        case Turns(numbers, axis):
            found = {a for n in numbers for a in integers.axes(n.expr)}
            return (*sorted(found), *((axis,) if axis is not None else ()))
        case Ends(outer, inner):
            return (*outer, *inner)
        case Enters(outer):
            return outer
        case InPhase():
            return ()
        case _:
            assert_never(condition)


def _body(here: Defined, body: tuple[PStmt, ...]) -> Defined:
    """Checks the statements of one scope; what is defined behind them."""
    for stmt in body:
        match stmt:
            case Bind():
                _expr(here, stmt.value, stmt.loc, stmt.user or stmt.name)
                here = here.plus(names=[stmt.name])
            case Keep():
                for expr in (stmt.value, *stmt.at):
                    _expr(here, expr, stmt.loc, "a value that is kept")
                _scratch(here, stmt.name, stmt.loc)
            case Write():
                _write(here, stmt)
            case Inner():
                here = here.plus(names=_inner(here, stmt))
            case _:
                assert_never(stmt)
    return here


def _write(here: Defined, write: Write) -> None:
    what = f"a store to {write.ref}"
    _ref(here, write.ref, write.loc, what)
    _select(here, write.select, write.loc, what)
    rows = () if write.rows is None else (write.rows.place, write.rows.live)
    for expr in (write.value, *rows):
        _expr(here, expr, write.loc, what)


def _inner(here: Defined, loop: Inner) -> list[str]:
    """Checks a loop inside the step; the names that it leaves."""
    axis = here.launch.axis(loop.axis)
    own = _lines(here, axis)
    for expr in (axis.range.first, axis.range.stop, axis.range.live):
        _expr(own, expr, axis.loc, f"where {axis.user} begins or stops")
    for carry in loop.carries:
        _expr(here, carry.init, loop.loc, carry.user or carry.name)
    inside = here.plus([loop.axis], [c.name for c in loop.carries])
    if loop.form == "pipeline":
        windows = [w for w in here.launch.windows if w.stream == loop.axis]
        inside = replace(inside, refs=inside.refs.union(w.ref for w in windows))
        for window in windows:
            _window(inside, window)
    end = _body(inside, loop.body)
    for carry in loop.carries:
        _expr(end, carry.next, loop.loc, carry.user or carry.name)
    return [c.out for c in loop.carries]


# ---------------------------------------------------------------- expressions


def _expr(here: Defined, expr: PExpr | None, loc: Loc | None, what: str) -> None:
    for part in walk_physical(expr) if expr is not None else ():
        _part(here, part, loc, what)


def _part(here: Defined, part: PExpr, loc: Loc | None, what: str) -> None:
    match part:
        case Var(name):
            _need(name in here.names, f"the value {name}", loc, what)
        case GridIndex(axis):
            _need(axis in here.axes, f"the number of {axis}", loc, what)
        case TileScalar(axis) | TileIndex(axis):
            _axis(here, axis, loc, what)
        case InRange(mask):
            _axis(here, mask.axis, loc, what)
        case Lane(axis) if axis is not None:
            _axis(here, axis, loc, what)
        case Kept(name):
            _scratch(here, name, loc)
        case Load(tensor) | ScalarRead(tensor):
            _need(tensor in here.launch.scalars, f"the numbers of {tensor}", loc, what)
            for inside in children(part) if isinstance(part, Load) else ():
                _expr(here, inside, loc, what)
        case Read(ref):
            _ref(here, ref, loc, what)
            _select(here, part.select, loc, what)
        case TakeRows():
            if part.ref:
                _ref(here, part.ref, loc, what)
            _scratch(here, part.rows, loc)
        case _:
            pass


def _axis(here: Defined, name: str, loc: Loc | None, what: str) -> None:
    """The number of a tile, and what the ends of its range are made of."""
    axis = here.launch.axis(name)
    _need(name in here.axes, f"the tile of {axis.user} ({name})", loc, what)
    for expr in (axis.begin, axis.end, axis.shift):
        for part in _indices(expr):
            _need(part in here.axes, f"the number of {part}, which {name} needs,", loc, what)


def _indices(expr: Expr | None) -> Iterator[str]:
    for part in walk(expr) if expr is not None else ():
        if isinstance(part, GridIndex | TileIndex | TileScalar):
            yield part.axis


def _select(here: Defined, select: tuple[Select, ...], loc: Loc | None, what: str) -> None:
    for part in select:
        match part:
            case Row(expr):
                _expr(here, expr, loc, what)
            case Step(axis, number=number):
                _axis(here, axis, loc, what)
                _expr(here, number, loc, what)
            case _:
                pass


def _ref(here: Defined, ref: str, loc: Loc | None, what: str) -> None:
    _need(ref in here.refs, f"the block {ref}", loc, what)


def _scratch(here: Defined, name: str, loc: Loc | None) -> None:
    found = any(s.name == name for s in here.launch.scratch)
    _need(found, f"scratch memory for {name}", loc, "a value")


def _need(found: bool, what: str, loc: Loc | None, by: str) -> None:
    if not found:
        raise InternalError(
            f"internal error: {by} reads {what} where nothing defines it",
            loc,
            "this is a fault of the compiler, not of the kernel: please report it",
        )
