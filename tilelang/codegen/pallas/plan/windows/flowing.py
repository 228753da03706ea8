"""flowing(launch, ...) -> the launch whose whole arrays come, and go, in pieces of their rows.

    for g in grid(G):                               x  |======|======|......|......|
        for t in tile(offsets[g], offsets[g + 1]):        here    g     on the way
            y[t] = f(x[t])                          y  |------|......|......|......|
                                                        gone    g     later

Every step has whole arrays, of which loops inside of it see the rows of a range.  A grid would copy
them before its first step and behind its last one, and nothing would be computed meanwhile.  Here a
step waits for pieces up to the end of its range, and pieces in front of it go.  Ranges rise; where
they do not, because nobody checked, pieces that had gone are waited for and go again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import reduce

from tilelang import ir
from tilelang.codegen.pallas.target import Target
from tilelang.errors import Loc
from tilelang.ir import Apply, Expr, integers
from tilelang.ir.integers import INT
from tilelang.language.dtypes import itemsize
from tilelang.schedule.config import Config
from tilelang.schedule.refusal import Refused, Rule

from ..axis import AxisPlan
from ..physical import PStmt, Read, Select, Step, TakeRows, Tiles, Write, flat, parts_of
from ..types import BACK, GONE, HERE, REACH, Flow, Launch, Plan
from .near_ranges import near_ranges
from .types import Whole, Window

WORTH = 1 << 20  # bytes of arrays: less comes about as fast at once
NEAR = 8 << 20  # bytes with which tiles near their range pay: layer norm of 1 MiB 5.7 us, not 4.7
PIECE, MOST = 1 << 18, 32  # bytes of a piece that a copy is worth, and how many there are at most


def flowing(launch: Launch, target: Target, config: Config) -> Launch:
    """The launch in that form where it is asked for, or is legal and worth it.

    Raises Refused where it is asked for and not possible.
    """
    asked = config.windows == "flowing"
    if not asked and (config.windows is not None or target.name == "cpu"):
        return launch
    found = tuple(_flowing_windows(launch)) if _steps_in_order(launch) else ()
    used = [a for w in found for a in _axes(launch, w)]
    rows = _piece(found, used, target)
    if not found or rows is None:
        return _refused(asked, launch, launch.loc)
    refs = frozenset(w.ref for w in found)
    size = sum(_row_bytes(w) * w.shape[0] for w in found)
    others = any(w.axes for w in launch.windows)  # their copies would wait behind all pieces
    if not asked and (others or size < WORTH):
        return launch
    if asked or size >= NEAR:
        launch = near_ranges(launch, used, refs, math.lcm(*_registers(found, target)))
    over = max((a.size - a.near for a in launch.axes if a.near is not None), default=0)
    ends = dict.fromkeys((a.begin, a.end) for a in used)
    begin = reduce(lambda a, b: Apply("minimum", (a, b), INT), dict.fromkeys(b for b, _ in ends))
    end = reduce(lambda a, b: Apply("maximum", (a, b), INT), dict.fromkeys(e for _, e in ends))
    flow = _flow(rows, found[0].shape[0] // rows, begin, end, over)
    windows = tuple(replace(w, flows=w.ref in refs) for w in launch.windows)
    return replace(launch, windows=windows, flow=flow)


def _flow(rows: int, pieces: int, begin: Expr, end: Expr, over: int) -> Flow:
    """What steps compute that use the rows from `begin` on, which may lie anywhere.

    over  rows behind `end` that their last tiles may read
    """
    last, first = (integers.clamped(e, rows * pieces + 1) for e in (end, begin))
    read = integers.minimum(integers.add(last, integers.const(over)), rows * pieces)
    behind = Apply("add", (read if over else last, integers.const(rows - 1)), INT)
    return Flow(
        rows=rows,
        pieces=pieces,
        lacks=_is("gt", end, integers.sub(_times(HERE, rows), integers.const(over))),
        reach=Tiles(behind, rows),
        back=Tiles(first, rows),
        again=_is("lt", BACK, GONE),
        early=_is("lt", begin, _times(GONE, rows)),
        passed=_is("ge", end, _times(Apply("add", (GONE, integers.const(1)), INT), rows)),
        left=Tiles(last, rows),
        here=Apply("maximum", (HERE, REACH), INT),
        gone=Apply("maximum", (GONE, REACH), INT),
    )


def _is(op: str, a: Expr, b: Expr) -> Apply:
    return Apply(op, (a, b), ir.Type((), "bool"))


def _times(a: Expr, by: int) -> Apply:
    return Apply("mul", (a, integers.const(by)), INT)


def at_once(plan: Plan) -> Plan:
    """The plan without pieces.  Forms are compared so: what estimates of long bodies lack, the
    copies in front of them made up for."""
    launches = (
        replace(each, flow=None, windows=tuple(replace(w, flows=False) for w in each.windows))
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
    """Whether the steps are those of one loop, one after another on one core."""
    if launch.form != "grid" or launch.prefetches or launch.cores > 1 or len(launch.dims) != 1:
        return False
    axis, semantics = launch.dims[0].axis, launch.dims[0].semantics
    return axis is not None and semantics == "arbitrary" and launch.axis(axis).base is None


def _flowing_windows(launch: Launch) -> Iterator[Window]:
    """The windows of as many rows as the first one has that can come, or go, in pieces."""
    rows: int | None = None
    for window in launch.windows:
        if _is_whole(window) and rows in (None, window.shape[0]) and _axes(launch, window):
            rows = window.shape[0]
            yield window


def _is_whole(window: Window) -> bool:
    """Whether a step has all of the array, as it is."""
    if not window.stepped or window.turned is not None:
        return False
    if window.init == "existing" or window.back or window.passed or len(window.shape) < 2:
        return False
    whole = all(isinstance(d, Whole) for d in window.dims)
    return whole and window.shown == window.shape == (window.whole or window.shape)


def _axes(launch: Launch, window: Window) -> list[AxisPlan]:
    """The loops inside of a step that use the window; none, if anything else does."""
    steps = list(tiles(launch, window))
    axes = [launch.axis(s.axis) for s in steps if s is not None]
    every = len(axes) == len(steps) and all(_rises(a, launch.dims[0].axis or "") for a in axes)
    return axes if every else []


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


def _rises(axis: AxisPlan, dim: str) -> bool:
    """Whether the loop's ranges rise from step to step, by numbers that are there before it."""
    known = all(_is_known(e, dim) for end in (axis.begin, axis.end) for e in ir.walk(end))
    plain = axis.shift is None and axis.base is None and axis.length is None
    return (
        axis.place == "inner" and axis.block is not None and plain and known and (dim in axis.rises)
    )


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
    return math.prod(window.shape[1:]) * itemsize(window.dtype)
