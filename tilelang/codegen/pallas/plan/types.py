"""Plan: every choice made for one kernel, checked to be legal.  Data only.

A Launch is one `pallas_call`: a grid of dims, some of which may be one table of steps; windows
that say which block of each array a step sees; sections of the body with the condition under which
each runs; and the scratch that carries values from step to step.  An emitter prints a Plan and
decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from tilelang.codegen.pallas.passes.diagonals import LANES as LANES
from tilelang.codegen.pallas.passes.diagonals import ROWS as ROWS
from tilelang.codegen.pallas.passes.diagonals import SIDE as SIDE
from tilelang.codegen.pallas.plan.steps.conditions import AtDim as AtDim
from tilelang.codegen.pallas.plan.steps.conditions import Back as Back
from tilelang.codegen.pallas.plan.steps.conditions import Clear as Clear
from tilelang.codegen.pallas.plan.steps.conditions import Condition as Condition
from tilelang.codegen.pallas.plan.steps.conditions import Ends as Ends
from tilelang.codegen.pallas.plan.steps.conditions import Enters as Enters
from tilelang.codegen.pallas.plan.steps.conditions import InPhase as InPhase
from tilelang.codegen.pallas.plan.steps.conditions import RowStarts as RowStarts
from tilelang.codegen.pallas.plan.steps.conditions import Runs as Runs
from tilelang.codegen.pallas.plan.steps.conditions import Turns as Turns
from tilelang.codegen.pallas.plan.windows.types import SHORT as SHORT
from tilelang.codegen.pallas.plan.windows.types import Between as Between
from tilelang.codegen.pallas.plan.windows.types import ByIndex as ByIndex
from tilelang.codegen.pallas.plan.windows.types import ByRow as ByRow
from tilelang.codegen.pallas.plan.windows.types import ByTile as ByTile
from tilelang.codegen.pallas.plan.windows.types import Edge as Edge
from tilelang.codegen.pallas.plan.windows.types import Fetched as Fetched
from tilelang.codegen.pallas.plan.windows.types import HostArray
from tilelang.codegen.pallas.plan.windows.types import Number as Number
from tilelang.codegen.pallas.plan.windows.types import Packed as Packed
from tilelang.codegen.pallas.plan.windows.types import Whole as Whole
from tilelang.codegen.pallas.plan.windows.types import Window as Window
from tilelang.codegen.pallas.plan.windows.types import WindowDim as WindowDim
from tilelang.codegen.pallas.plan.windows.types import extent_of as extent_of
from tilelang.codegen.pallas.target import Target
from tilelang.errors import Loc
from tilelang.ir import Expr, KernelIR
from tilelang.ir.text import expression
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem

from .axis import AxisPlan as AxisPlan
from .axis import LeftOut, Range
from .axis import Line as Line
from .axis import Mask as Mask
from .axis import Place as Place
from .beside import LATER as LATER
from .beside import Beside as Beside
from .flow import BACK as BACK
from .flow import GONE as GONE
from .flow import HERE as HERE
from .flow import HIGH as HIGH
from .flow import LOW as LOW
from .flow import REACH as REACH
from .flow import Comes as Comes
from .flow import Flow as Flow
from .flow import Goes as Goes
from .lives import Life, lives
from .masks import masks
from .moved import BEGIN as BEGIN
from .moved import FIRST_ROW as FIRST_ROW
from .moved import STOP_ROW as STOP_ROW
from .moved import MovedRows as MovedRows
from .parts import Parts as Parts
from .physical import All as All
from .physical import Bind as Bind
from .physical import Diagonals as Diagonals
from .physical import GroupSum as GroupSum
from .physical import Head as Head
from .physical import Inner as Inner
from .physical import InRange as InRange
from .physical import Iota as Iota
from .physical import Keep as Keep
from .physical import Kept as Kept
from .physical import Lane as Lane
from .physical import LaneGather as LaneGather
from .physical import Named as Named
from .physical import OverRows as OverRows
from .physical import Part as Part
from .physical import PExpr as PExpr
from .physical import PStmt as PStmt
from .physical import PutRows as PutRows
from .physical import Read as Read
from .physical import Recorded as Recorded
from .physical import Repeat as Repeat
from .physical import Rest as Rest
from .physical import Roll as Roll
from .physical import Row as Row
from .physical import RowsFrom as RowsFrom
from .physical import ScalarRead as ScalarRead
from .physical import Select as Select
from .physical import Step as Step
from .physical import TakeRows as TakeRows
from .physical import Tiles as Tiles
from .physical import Write as Write
from .scratch import Scratch as Scratch
from .scratch import in_scratch as in_scratch

MODULE_NAMES = frozenset({"jax", "jnp", "pl", "pltpu", "interpret"})  # of the generated source
Form = Literal["grid", "pipeline"]
Visit = Literal["live", "at_least_one", "cover", "sweep"]


@dataclass(frozen=True)
class Section:
    """Statements that run in the steps where every condition holds.

    title   the window whose block it prepares
    always  it runs in steps that stand for nothing, too, since it prepares what later steps see
    """

    conditions: tuple[Condition, ...]
    body: tuple[PStmt, ...]
    title: str = ""
    always: bool = False

    @cached_property
    def lives(self) -> tuple[Life, ...]:
        """How long its values are needed: the same for all blocks that a search looks at."""
        return lives(self.body)


@dataclass(frozen=True)
class Dim:
    """One grid dimension: a static axis, or the step table (axis None)."""

    axis: str | None
    extent: int | None
    semantics: Literal["parallel", "arbitrary"]


@dataclass(frozen=True)
class Rows:
    """The rows that a step has of an axis whose tiles begin where its range does."""

    first: Expr
    count: Expr


@dataclass(frozen=True)
class Tail:
    """Tiles behind the last range of a column, which have rows of the table too.

    around  where the columns around are in those: any index that exists will do
    at      of a loop in a row, where each track is; None: at the tile itself
    """

    first: Expr
    stop: Expr
    around: tuple[Expr, ...]
    at: tuple[Expr | None, ...] = ()


@dataclass(frozen=True)
class Listed:
    """What a work list has of a column: numbers of all rows of the columns before at once.

    first, count  the first tile (or index) of every row's range, and how many it has
    rows          how many rows the list can need with this column, at most
    rest, left    the first tile behind the last range and how many follow, if those are listed
    stays         of a loop in a row, where each track is in its rows; -1: where it was
    """

    lines: tuple[Line, ...]
    first: Expr
    count: Expr
    rows: int
    rest: Line | None
    left: Expr
    stays: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class Column:
    """One axis of the step table.

    range   tile numbers or indices of its loop: expressions over earlier columns
    visit   "live": tiles of the range; "at_least_one": one step even if the range is empty;
            "cover": also the tiles that no range touches, so that their outputs are initialised;
            "sweep": every tile of the dimension, for every iteration of the columns before
    cursor  tiles are visited in rising order over the whole table (ranges are disjoint)
    back    of those that cover, whether tiles below the cursor come again: ranges may overlap
    certain the range is never empty in any step that the table asks for
    most    static bound on the steps of one iteration of the columns before it
    phase   its number among loops in a row: their steps follow each other, they do not nest
    stand_in  where the step of an empty range is, if that needs one
    visits  of this range, what the loop visits that makes the table: over the rows so far
    capped  of a loop in a row, where it stops if the table may be full
    stays   of a loop in a row, where each track is in its rows; None: at the loop's own tile
    risen   the cursor behind the loop
    tail    tiles behind the last range, if those have rows too
    listed  what a work list has of it, where XLA makes that
    rows    the rows that a step has, of an axis that is cut where its range begins
    row     what a row of the table has of it, where that is not the index of its loop
    """

    axis: str
    visit: Visit
    range: Range
    cursor: bool
    certain: bool
    most: int
    phase: int | None = None
    back: bool = False
    stand_in: Expr | None = None
    visits: Range | None = None
    capped: Expr | None = None
    stays: tuple[Expr | None, ...] = ()
    risen: Expr | None = None
    tail: Tail | None = None
    listed: Listed | None = None
    rows: Rows | None = None
    row: Expr | None = None


@dataclass(frozen=True)
class Track:
    """What the step table holds of loops in a row: the tile that the windows of some of them see.

    A row of one of `axes` is at that loop's tile.  A row of another loop moves no data: it is at
    the first tile that one of `axes` has next in the same iteration of the loops around, or, if
    none has any, where the row before is.

    listed  the tile of a row of a work list, before those that wait have one; None: the row's own
    """

    name: str
    axes: tuple[str, ...]
    listed: Expr | None = None


@dataclass(frozen=True)
class Table:
    """The step table: columns from outer to inner, and how many rows it can need at most.

    The last columns may be loops in a row.  Then a row holds the number of its loop and `tracks`
    instead of their tiles.

    `capped`: offsets that break the rules could ask for more rows, so the builder stops at `rows`.
    `sure`: it has a row, whatever the ranges are.
    `lines`: of the rectangle, where a step is.
    `live`: whether a step stands for anything, where that is not sure.
    `length`: how many steps a grid over a work list has.
    `before`, `after`: the rows beside a step's own, where conditions ask for them.
    `shown`: of a work list that may be empty, the block that the only step shows all the same.
    `noted`: what else a row holds: numbers that steps, and those around them, would compute anew.
    """

    columns: tuple[Column, ...]
    rows: int
    capped: bool
    steps: Literal["table", "rectangle"]
    sure: bool = True
    tracks: tuple[Track, ...] = ()
    lines: tuple[Line, ...] = ()
    live: Expr | None = None
    length: Expr | None = None
    before: Expr | None = None
    after: Expr | None = None
    shown: tuple[tuple[str, Expr], ...] = ()
    noted: tuple[tuple[str, Expr], ...] = ()

    @property
    def outer(self) -> tuple[Column, ...]:
        """The columns whose loops nest."""
        return tuple(c for c in self.columns if c.phase is None)

    @property
    def phases(self) -> tuple[Column, ...]:
        """The loops in a row."""
        return tuple(c for c in self.columns if c.phase is not None)

    @property
    def width(self) -> int:
        """Numbers in a row."""
        return len(self.outer) + (1 + len(self.tracks) if self.tracks else 0) + len(self.noted)

    @property
    def recorded(self) -> frozenset[str]:
        """What a row holds, besides the number of its loop."""
        noted = (name for name, _ in self.noted)
        return frozenset((*(c.axis for c in self.outer), *(t.name for t in self.tracks), *noted))

    def phases_of(self, track: Track) -> list[int]:
        """Which of the loops in a row have tiles of a track."""
        return [i for i, c in enumerate(self.phases) if c.axis in track.axes]

    def track(self, axis: str) -> Track:
        """Where the tile of a loop is found in the loop's own rows."""
        found = [t for t in self.tracks if axis in t.axes]
        return min(found, key=lambda t: len(t.axes))


@dataclass(frozen=True)
class Memory:
    """Predicted bytes: every block times its buffers, scratch, temporaries, and scalar memory."""

    parts: tuple[tuple[str, int], ...]
    vmem: int
    smem: int
    limit: int | None  # what `vmem_limit_bytes` asks for; None leaves the default


@dataclass(frozen=True)
class Launch:
    """One `pallas_call`.

    prefetches  scalars are there before the first step, which takes a grid spec
    moving      axes of grid dimensions; those whose first tile depends on others behind these
    flow        how those windows come and go that are whole arrays, where a step waits for parts
    beside      how many iterations of the last dimension are one step, and their body
    parts       how cores share the rows of the table; why one has all of them; "" for no table
    """

    name: str
    form: Form
    axes: tuple[AxisPlan, ...]
    dims: tuple[Dim, ...]
    table: Table | None
    scalars: tuple[str, ...]
    windows: tuple[Window, ...]
    scratch: tuple[Scratch, ...]
    sections: tuple[Section, ...]
    memory: Memory
    cores: int
    loc: Loc
    prefetches: bool
    moving: tuple[str, ...]
    flow: Flow | None = None
    beside: Beside | None = None
    parts: Parts | str = ""

    def axis(self, name: str) -> AxisPlan:
        return next(a for a in self.axes if a.name == name)

    @property
    def grid(self) -> list[AxisPlan]:
        """The axes of the grid dimensions that are loops."""
        return [self.axis(d.axis) for d in self.dims if d.axis is not None]

    def window(self, ref: str) -> Window:
        return next(w for w in self.windows if w.ref == ref)

    def with_axes(self, changed: Iterable[AxisPlan]) -> Launch:
        """The launch with these in the place of the axes of their names."""
        own = {a.name: a for a in changed}
        return replace(self, axes=tuple(own.get(a.name, a) for a in self.axes))

    def together(self, axis: str | None) -> int:
        """How many iterations of a grid dimension one step has."""
        many = self.beside
        return many.count if many is not None and many.axis == axis else 1

    @property
    def worklist(self) -> bool:
        """Whether XLA builds the step table, for a grid that prefetches it."""
        return self.form == "grid" and self.table is not None

    @property
    def only_step(self) -> bool:
        """Whether a grid has one step, in which a window shows a part of its array.

        A `pallas_call` without a grid has arrays as a whole.
        """
        alone = self.form == "grid" and not self.dims and not self.prefetches
        return alone and not all(w.shows_all or not w.stepped for w in self.windows)

    @property
    def outputs(self) -> tuple[Window, ...]:
        return tuple(w for w in self.windows if w.output)

    @property
    def inputs(self) -> tuple[Window, ...]:
        return tuple(w for w in self.windows if not w.output)


@dataclass(frozen=True)
class Plan:
    """The whole kernel: one launch per top-level loop.

    problem the kernel and its facts, with what was found of them
    why     of blocks that an estimate chose: what they would take, and the next best
    groups  blocks of the author's `hl.grid` loops, where those have any
    """

    problem: Problem = field(compare=False, repr=False)
    config: Config
    target: Target
    arrays: tuple[HostArray, ...]
    launches: tuple[Launch, ...]
    blocks: tuple[tuple[str, int], ...] = field(default=())
    why: tuple[str, ...] = field(default=(), compare=False)
    groups: tuple[tuple[str, int], ...] = ()

    @property
    def ir(self) -> KernelIR:
        return self.problem.ir

    def array(self, name: str) -> HostArray:
        return next(a for a in self.arrays if a.name == name)

    @property
    def varying(self) -> bool:
        """Whether copies are as long as memory says, which Pallas's TPU interpreter alone has."""
        return any(w.exact for launch in self.launches for w in launch.windows)

    def __str__(self) -> str:
        return "\n".join([*self.why, *(_launch_text(launch) for launch in self.launches)])


def _columns_text(table: Table) -> str:
    nested = [f"{c.axis} ({c.visit})" for c in table.outer]
    in_a_row = " then ".join(f"{c.axis} ({c.visit})" for c in table.phases)
    return ", ".join([*nested, in_a_row] if in_a_row else nested)


WHY = {
    "reduction": "other lanes would be counted",
    "store": "other lanes stay as they are",
    "user": "the author leaves the others out",
    "array": "what lies outside of the array is no data",
    "row": "the block holds other rows too",
    "blocks": "a tile lies in two of its blocks",
    "turn": "a step may have turns behind the last one",
    "group": "a group meets its own rows only",
    "picked": "rows that the array does not have, or that are left out, are not stored",
}


def _mask_text(launch: Launch, mask: Mask | LeftOut, loc: Loc | None) -> str:
    """Why a mask is there, and of which line of the author's."""
    where = "" if loc is None else f" in line {loc.line}"
    why = f"{mask.reason}{where}, {WHY[mask.reason]}"
    if isinstance(mask, LeftOut):
        return f"  masks {mask.array}: {why}"
    sides = " & ".join(f"{s.op} {expression(s.bound)}" for s in launch.axis(mask.axis).tile.sides)
    return f"  masks {mask.axis} {sides}: {why}"


def _scratch_text(scratch: Scratch) -> str:
    why = f": {scratch.why}" if scratch.why else ""
    return f"  keeps {scratch.name}: {scratch.dtype}{list(scratch.shape)}{why}"


def _cores_text(launch: Launch) -> str:
    """How cores share the rows of the table, or why one has all of them."""
    if isinstance(launch.parts, str):
        return f"  on one core: {launch.parts}"
    arrays = " and ".join(launch.window(ref).array for ref, _ in launch.parts.turns)
    return f"  {launch.cores} cores: each has a part of the steps, which begins a block of {arrays}"


def _launch_text(launch: Launch) -> str:
    each = [f"{d.axis or 'steps'}={d.extent or 'table'} {d.semantics}" for d in launch.dims]
    lines = [f"launch {launch.name}: {launch.form} over ({', '.join(each)})"]
    if launch.table is not None:
        columns = _columns_text(launch.table)
        lines.append(f"  {launch.table.steps}: {columns}; at most {launch.table.rows} steps")
    lines += [_cores_text(launch)] if launch.parts else []
    for axis in launch.axes:
        block = f" block {axis.block}" if axis.block is not None else ""
        mask = ", masked" if axis.partial else ""
        lines.append(f"  axis {axis.name}: {axis.kind}, {axis.place}{block}{mask}: {axis.why}")
    for window in launch.windows:
        arrow = "writes" if window.output else "reads "
        init = f", first visit: {window.init}" if window.output else ""
        init += f", read back where {window.again} goes back" if window.again else ""
        init += ", all of it held" if window.held else ""
        shape = ", ".join("-" if b is None else str(b) for b in window.block)
        lines.append(f"  {arrow} {window.array} {list(window.shape)} in blocks ({shape}){init}")
    body = [stmt for section in launch.sections for stmt in section.body]
    lines += dict.fromkeys(_mask_text(launch, *found) for stmt in body for found in masks(stmt))
    conditions = (c for section in launch.sections for c in section.conditions)
    lines += dict.fromkeys(f"  {c}" for c in conditions if isinstance(c, Clear) and c.clear)
    lines += [_scratch_text(scratch) for scratch in launch.scratch]
    if launch.flow is not None:
        names = ", ".join(w.array for w in launch.windows if w.flows)
        pieces = f"{launch.flow.pieces} pieces of {launch.flow.rows} rows"
        who = "steps compute" if launch.flow.step is not None else "loops of the step turn"
        lines.append(f"  {names}: in {pieces}, which come and go while {who}")
    if launch.beside is not None:
        many, (tile, *_) = launch.beside, (a.size for a in launch.beside.short)
        fits = f"tiles of {tile} hold all that one of them goes through"
        lines.append(f"  {many.count} of {many.axis} in a step, without loops where {fits}")
    lines += [f"  memory {part}: {size:,} B" for part, size in launch.memory.parts]
    limit = launch.memory.limit
    asked = "" if limit is None else f"; asks for {limit:,} B"
    lines.append(f"  memory: VMEM {launch.memory.vmem:,} B, SMEM {launch.memory.smem:,} B{asked}")
    return "\n".join(lines)
