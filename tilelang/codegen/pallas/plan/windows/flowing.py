"""flowing(launch, ...) -> the launch whose whole arrays come, and go, in pieces of their rows.

    for g in grid(G):                               x  |======|======|......|......|
        for t in tile(offsets[g], offsets[g + 1]):        here    g     on the way
            y[t] = f(x[t])                          y  |------|......|......|......|
                                                        gone    g     later

Every step has whole arrays, of which loops inside of it see the rows of a range.  A grid would copy
them before its first step and behind its last one, and nothing would be computed meanwhile.  Here a
step waits for pieces up to the end of its range, and pieces in front of it go.  Ranges rise; where
they do not, because nobody checked, pieces that had gone are waited for and go again.

Around these steps there may be others, which have all rows of other columns: each of them is a flow
of its own, in the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import reduce

from tilelang import ir
from tilelang.codegen.pallas.target import Target, padded_bytes
from tilelang.errors import Loc
from tilelang.ir import Apply, Expr, integers
from tilelang.ir.integers import INT
from tilelang.language.dtypes import itemsize
from tilelang.schedule.config import Config
from tilelang.schedule.refusal import Refused, Rule

from ..axis import AxisPlan
from ..beside import Beside
from ..flow import BACK, GONE, HERE, HIGH, LOW, REACH, Again, ByStep, Comes, Flow, Goes, Turn
from ..physical import Inner, PStmt, Read, Select, Step, TakeRows, Tiles, Write, flat, parts_of
from ..types import Dim, Launch, Plan
from .near_ranges import near_ranges
from .types import ByTile, Whole, Window, WindowDim

WORTH = 1 << 20  # bytes of arrays: less comes about as fast at once
NEAR = 8 << 20  # bytes with which tiles near their range pay: layer norm of 1 MiB 5.7 us, not 4.7
HELD = 16  # of the bytes that flow, the part that others may take which are held
PIECE, MOST = 1 << 18, 32  # bytes of a piece that a copy is worth, and how many there are at most


def flowing(launch: Launch, target: Target, config: Config) -> Launch:
    """The launch in that form where it is asked for, or is legal and worth it.

    Raises Refused where it is asked for and not possible.
    """
    asked = config.windows == "flowing"
    if not asked and (config.windows is not None or target.interpreted):
        return launch
    given, alone = launch, _one_step(launch)
    if not alone and target.cores == 1:
        launch = _in_order(launch, launch.dims[-1:])
    found = tuple(_flowing_windows(launch, alone)) if alone or _steps_in_order(launch) else ()
    used = [a for w in found for a in _axes(launch, w, alone)]
    rows = _piece(found, used, target)
    if not found or rows is None:
        return _refused(asked, given, launch.loc)
    refs = frozenset(w.ref for w in found)
    size = sum(_row_bytes(w) * w.shape[0] for w in found)
    if not alone:
        launch = _held(launch, refs, size, target)
    # copies of others would wait behind all pieces
    others = any(w.axes for w in launch.windows if w.ref not in refs)
    if not asked and (others or size < WORTH):
        return given
    if not alone and (asked or size >= NEAR):
        launch = near_ranges(launch, used, refs, math.lcm(*_registers(found, target)))
    pieces = found[0].shape[0] // rows
    flow = Flow(rows, pieces, None, _turns(launch, found, rows)) if alone else None
    windows = tuple(replace(w, flows=w.ref in refs) for w in launch.windows)
    return replace(launch, windows=windows, flow=flow or by_step(launch, used, rows, pieces))


def _in_order(launch: Launch, dims: tuple[Dim, ...]) -> Launch:
    """The launch in which one core runs the steps of these dimensions one after another."""
    ordered = (replace(d, semantics="arbitrary") if d in dims else d for d in launch.dims)
    return replace(launch, dims=tuple(ordered))


def _held(launch: Launch, flows: frozenset[str], size: int, target: Target) -> Launch:
    """The launch with all of its other arrays in vector memory, where those are small.

    A block that a step copies waits behind all pieces on their way.  Of cores each has its own.
    """
    others = [w for w in launch.windows if w.ref not in flows and w.axes]
    if not others or (target.cores > 1 and any(d.semantics != "arbitrary" for d in launch.dims)):
        return launch
    held = sum(padded_bytes(w.padded, w.dtype, target) for w in others)
    if held > max(WORTH, size // HELD) or not all(_may_be_held(w, target) for w in others):
        return launch
    refs = {w.ref for w in others}
    windows = tuple(replace(w, held=w.ref in refs) for w in launch.windows)
    return replace(_in_order(launch, launch.dims), windows=windows)


def _may_be_held(window: Window, target: Target) -> bool:
    """Whether a step may see its block of what has not moved: whole registers of lanes.

    What an output held before has to be where it is, and a pipeline of its own has its blocks.
    """
    own = window.stepped and window.turned is None and window.track is None
    if not own or window.existing is not None or window.back or window.exact:
        return False
    last = window.block[-1]
    aligned = last is not None and last % target.tile(1, itemsize(window.dtype)) == 0
    return aligned or last == window.padded[-1]


def by_step(
    launch: Launch, used: Iterable[AxisPlan], rows: int, pieces: int, many: Beside | None = None
) -> Flow:
    """Every step waits for what its loops use, and lets go what lies before the next one's.

    `many`: the iterations that a step has, where those are several.
    """
    axes = (*launch.axes, *(many.short if many is not None else ()))
    over = max((a.size - a.near for a in axes if a.near is not None), default=0)
    ends = dict.fromkeys((a.begin, a.end) for a in used)
    begin = reduce(lambda a, b: Apply("minimum", (a, b), INT), dict.fromkeys(b for b, _ in ends))
    end = reduce(lambda a, b: Apply("maximum", (a, b), INT), dict.fromkeys(e for _, e in ends))
    own = () if many is None else (begin, end)
    begin, end = (begin, end) if many is None else (LOW, HIGH)
    last, first = (integers.clamped(e, rows * pieces + 1) for e in (end, begin))
    read = integers.minimum(integers.add(last, integers.const(over)), rows * pieces)
    again = Again(
        back=Tiles(first, rows),
        again=_is("lt", BACK, GONE),
        early=_is("lt", begin, _times(GONE, rows)),
    )
    behind = Apply("add", (read if over else last, integers.const(rows - 1)), INT)
    comes = _comes(end, behind, rows, over)
    return Flow(rows, pieces, ByStep(comes, _goes(end, last, rows), again, own))


def _turns(launch: Launch, found: Iterable[Window], rows: int) -> tuple[Turn, ...]:
    """Each turn waits for its own tile, and that of the loop that stores it lets it go."""
    turns: dict[str, Turn] = {}
    for window in found:
        for axis in _axes(launch, window, alone=True):
            old = turns.get(axis.name, Turn(axis.name, None, None))
            end, behind = (
                integers.add(axis.tile.origin, integers.const(n))
                for n in (axis.size, axis.size + rows - 1)
            )
            if window.output:
                turns[axis.name] = replace(old, goes=_goes(end, end, rows))
            else:
                turns[axis.name] = replace(old, comes=_comes(end, behind, rows))
    return tuple(turns.values())


def _comes(end: Expr, behind: Expr, rows: int, over: int = 0) -> Comes:
    """What is waited for where rows up to `end` are used, which may lie anywhere.

    behind  the last row that the last piece of these may have, inside of the array
    over    rows behind `end` that their last tiles may read
    """
    return Comes(
        lacks=_is("gt", end, integers.sub(_times(HERE, rows), integers.const(over))),
        reach=Tiles(behind, rows),
        here=Apply("maximum", (HERE, REACH), INT),
    )


def _goes(end: Expr, inside: Expr, rows: int) -> Goes:
    """What goes where rows up to `end` are done; `inside` is the same, inside of the array."""
    return Goes(
        passed=_is("ge", end, _times(Apply("add", (GONE, integers.const(1)), INT), rows)),
        left=Tiles(inside, rows),
        gone=Apply("maximum", (GONE, REACH), INT),
    )


def _is(op: str, a: Expr, b: Expr) -> Apply:
    return Apply(op, (a, b), ir.Type((), "bool"))


def _times(a: Expr, by: int) -> Apply:
    return Apply("mul", (a, integers.const(by)), INT)


def at_once(plan: Plan) -> Plan:
    """The plan whose steps wait for no pieces.  Forms are compared so: what estimates of long
    bodies lack, the copies in front of them made up for."""
    launches = (
        replace(each, flow=None, windows=tuple(replace(w, flows=False) for w in each.windows))
        if each.flow is not None and each.flow.step is not None
        else each
        for each in plan.launches
    )
    return replace(plan, launches=tuple(launches))


def _refused(asked: bool, launch: Launch, loc: Loc | None) -> Launch:
    if not asked:
        return launch
    raise Refused(
        Rule.FORM,
        "windows='flowing', but no array is whole in every step and only used by loops inside of "
        "it over ranges that rise from step to step",
        loc,
        "use loop_type='fori_loop', with blocks that divide the rows, or leave windows out",
    )


# ---------------------------------------------------------------- legality


def _steps_in_order(launch: Launch) -> bool:
    """Whether the steps are those of one loop, one after another on one core, under any others."""
    if launch.form != "grid" or launch.prefetches or launch.cores > 1 or not launch.dims:
        return False
    known = len(launch.grid) == len(launch.dims) and all(a.base is None for a in launch.grid)
    return known and launch.dims[-1].semantics == "arbitrary"


def _one_step(launch: Launch) -> bool:
    """Whether there is nothing but one step, which has whole arrays."""
    alone = launch.form == "grid" and not launch.prefetches and launch.table is None
    return alone and all(d.extent == 1 for d in launch.dims)


def _flowing_windows(launch: Launch, alone: bool) -> Iterator[Window]:
    """The windows of as many rows as the first one has that can come, or go, in pieces."""
    rows: int | None = None
    for window in launch.windows:
        same = rows in (None, window.shape[0])
        if same and _has_all_rows(window, launch) and _axes(launch, window, alone):
            rows = window.shape[0]
            yield window


def _has_all_rows(window: Window, launch: Launch) -> bool:
    """Whether a step has all rows of the array, as they are: all of them, or some columns."""
    if not window.stepped or window.turned is not None:
        return False
    if window.init == "existing" or window.back or window.passed or len(window.shape) < 2:
        return False
    around = {d.axis for d in launch.dims[:-1]}
    columns = zip(window.dims[1:], window.shape[1:], strict=True)
    cut = all(isinstance(d, Whole) or _is_cut(d, size, around) for d, size in columns)
    same = len(window.shown) == len(window.shape) == sum(map(bool, window.block))
    all_rows = isinstance(window.dims[0], Whole) and window.shown[0] == window.shape[0]
    return cut and same and all_rows and window.shape == (window.whole or window.shape)


def _is_cut(dim: WindowDim, size: int, around: Collection[str | None]) -> bool:
    """Whether whole blocks of a dimension are those of a loop around the steps."""
    return isinstance(dim, ByTile) and {dim.axis, *dim.over} <= {*around} and size % dim.block == 0


def _axes(launch: Launch, window: Window, alone: bool) -> list[AxisPlan]:
    """The loops inside of a step that use the window; none, if anything else does."""
    steps = list(tiles(launch, window))
    axes = [launch.axis(s.axis) for s in dict.fromkeys(steps) if s is not None]
    if None in steps or not all(map(_is_plain, axes)):
        return []
    if not alone:
        return axes if all(_rises(a, launch.dims[-1].axis or "") for a in axes) else []
    turns = all(_turning(launch, a.name) for a in axes)
    once = not window.output or [a.name for a in axes] == [a.name for a in _once(launch, axes)]
    return axes if turns and once else []


def _turning(launch: Launch, axis: str) -> bool:
    """Whether turns of that loop are counted by the chip, so that a turn can wait."""
    stmts = (s for section in launch.sections for s in flat(section.body))
    return all(s.form == "fori_loop" for s in stmts if isinstance(s, Inner) and s.axis == axis)


def _once(launch: Launch, axes: list[AxisPlan]) -> list[AxisPlan]:
    """The only loop, if it runs once: in no other one, and whatever the step is."""
    runs = [s for section in launch.sections if not section.conditions for s in section.body]
    loops = [s.axis for s in runs if isinstance(s, Inner)]
    return axes if len(axes) == 1 and loops.count(axes[0].name) == 1 else []


def tiles(launch: Launch, window: Window) -> Iterator[Step | None]:
    """What of the window every use means, along its rows; None of a use that is no tile of rows."""
    return (s for section in launch.sections for s in _tiles(section.body, window.ref))


def _tiles(body: tuple[PStmt, ...], ref: str) -> Iterator[Step | None]:
    for stmt in flat(body):
        if isinstance(stmt, Write) and stmt.ref == ref:
            yield None if stmt.rows is not None else _tile(stmt.select)
    for part in (p for stmt in body for p in parts_of(stmt)):
        if isinstance(part, Read) and part.ref == ref:
            yield _tile(part.select)
        elif isinstance(part, TakeRows) and part.ref == ref:
            yield None


def _tile(select: tuple[Select, ...]) -> Step | None:
    first = select[0]
    return first if isinstance(first, Step) and first.number is None else None


def _is_plain(axis: AxisPlan) -> bool:
    """Whether it is a loop inside of the step over tiles that are blocks of arrays."""
    plain = axis.shift is None and axis.base is None and axis.length is None
    return axis.place == "inner" and axis.block is not None and plain


def _rises(axis: AxisPlan, dim: str) -> bool:
    """Whether the loop's ranges rise from step to step, by numbers that are there before it."""
    known = all(_is_known(e, dim) for end in (axis.begin, axis.end) for e in ir.walk(end))
    return known and dim in axis.rises


def _is_known(expr: Expr, dim: str) -> bool:
    match expr:
        case ir.GridIndex(name):
            return name == dim
        case ir.Const() | ir.Apply() | ir.Load():
            return True
        case _:
            return False


# ---------------------------------------------------------------- sizes


def _piece(found: Iterable[Window], axes: Iterable[AxisPlan], target: Target) -> int | None:
    """Rows of a piece: whole tiles of all loops, and of registers; None if none divide the rows."""
    windows = tuple(found)
    if not windows:
        return None
    least = math.lcm(*(a.size for a in axes), *_registers(windows, target))
    rows, widest = windows[0].shape[0], max(map(_row_bytes, windows))
    sizes = [n for n in range(least, rows // 2 + 1, least) if rows % n == 0 and rows // n <= MOST]
    return next((n for n in sizes if n * widest >= PIECE), min(sizes, default=None))


def _registers(windows: Iterable[Window], target: Target) -> list[int]:
    """Rows that a register holds, of arrays whose rows lie in registers."""
    return [target.tile(2, itemsize(w.dtype)) for w in windows if len(w.shape) == 2]


def _row_bytes(window: Window) -> int:
    return math.prod(window.shown[1:]) * itemsize(window.dtype)
