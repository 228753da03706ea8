"""beside(launch, ...) -> the launch whose steps have several iterations of its last dimension.

    for g in grid(G):                                  step n: g = 8 n
        for t in tile(offsets[g], offsets[g + 1]):     every range fits one tile:
            m = max(m, x[t])                      ->       m_0 = x[t_0], m_1 = x[t_1], ...
        for t in tile(offsets[g], offsets[g + 1]):         y[t_0] = f(x[t_0], m_0), ...
            y[t] = f(x[t], m)                          else: one after another, with loops

A chip runs one bundle after another, and nothing moves over the ends of a loop: one iteration waits
for each of its results, while others could be computed.  Without loops the compiler takes what is
ready of any.  It is legal because what is done, and in which order memory changes, stays the same:
a loop of one turn is its body, and one of none leaves what it carries, and stores nothing, because
the tile's mask holds nowhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce

from tilelang import ir
from tilelang.codegen.pallas.target import Target
from tilelang.ir import Apply, integers
from tilelang.language.dtypes import itemsize

from ..axis import AxisPlan
from ..beside import Beside
from ..lanes import with_tiles
from ..physical import Inner, PStmt, Read, Step, TakeRows, Write, flat, parts_of
from ..steps.conditions import AtDim
from ..steps.ranges import with_ranges
from ..types import Launch, Section
from ..windows.flowing import by_step
from ..windows.near_ranges import near_ranges
from ..windows.types import Whole, Window

HELPERS = frozenset({"turned_once"})  # functions of the generated source


def alone(launch: Launch, target: Target) -> Launch | None:
    """The launch whose loops have tiles near their ranges, if several iterations may be a step."""
    body = _body(launch)
    if body is None or not _in_order(launch):
        return None
    loops = [s for s in body if isinstance(s, Inner)]
    dim = launch.dims[-1].axis or ""
    if not loops or not all(_plain(launch, loop, dim) for loop in loops):
        return None
    places = list(_seen(launch, {s.axis for s in loops}))
    windows = {ref: launch.window(ref) for ref, _ in places}
    if any(place > 0 for _, place in places) or not all(map(_whole_rows, windows.values())):
        return None
    if any(launch.axis(s.axis).near is None for s in loops):
        axes = [launch.axis(s.axis) for s in loops]
        launch = near_ranges(launch, axes, frozenset(windows), _registers(windows, target))
    near = all(launch.axis(s.axis).near is not None for s in loops)
    return launch if near else None


def beside(launch: Launch, count: int, size: int) -> Launch:
    """So many iterations in a step of a launch that is `alone`; tiles of `size` rows then."""
    body, dim = _body(launch), launch.dims[-1]
    assert body is not None and dim.axis is not None
    loops = {s.axis for s in body if isinstance(s, Inner)}
    sized = {a.name: _sized(a, size) if a.name in loops else a for a in launch.axes}
    made = with_tiles(with_ranges(sized))
    once = tuple(replace(s, form="once") if isinstance(s, Inner) else s for s in body)
    short = tuple(made[n] for n in sorted(loops))
    ends = tuple({(a.begin, a.end): a for a in short}.values())
    turns = reduce(
        lambda a, b: Apply("maximum", (a, b), integers.INT), (a.range.stop for a in ends)
    )
    many = Beside(dim.axis, dim.extent or 1, count, short, turns, ends, once)
    flow = launch.flow
    if flow is not None:
        used = [launch.axis(n) for n in sorted(loops)]
        flow = by_step(launch, used, flow.rows, flow.pieces, many)
    return replace(launch, beside=many, flow=flow)


def sizes(launch: Launch) -> Iterator[int]:
    """Rows of tiles that may be enough for most ranges: whole registers, no more than there are."""
    body = _body(launch) or ()
    axes = [launch.axis(s.axis) for s in body if isinstance(s, Inner)]
    least, most = max(a.near or 1 for a in axes), min(a.positions for a in axes)
    tried = {-(-each // least) * least for each in (16, 32, 48, 64, 96, 128)}
    yield from sorted(n for n in tried if n <= most)


def _sized(axis: AxisPlan, size: int) -> AxisPlan:
    return replace(axis, block=size, reach=axis.positions)


# ---------------------------------------------------------------- legality


def _body(launch: Launch) -> tuple[PStmt, ...] | None:
    """The statements of a step, if it has one run of them besides those of first visits."""
    found = [s for s in launch.sections if not s.title]
    if len(found) != 1 or found[0].conditions or not all(map(_at_dim, launch.sections)):
        return None
    plain = all(not isinstance(s, Write) or s.rows is None for s in flat(found[0].body))
    taken = any(isinstance(e, TakeRows) for s in found[0].body for e in parts_of(s))
    return found[0].body if plain and not taken else None


def _at_dim(section: Section) -> bool:
    return all(isinstance(c, AtDim) for c in section.conditions)


def _in_order(launch: Launch) -> bool:
    """Whether the last dimension goes through indices in order, with the same blocks in all."""
    if launch.form != "grid" or launch.table or launch.prefetches or launch.cores > 1:
        return False
    if not launch.dims or launch.scratch or (launch.flow is not None and launch.flow.step is None):
        return False
    dim = launch.dims[-1]
    if dim.axis is None or dim.semantics != "arbitrary" or (dim.extent or 1) < 2:
        return False
    axis = launch.axis(dim.axis)
    plain = axis.block is None and axis.first == 0 and axis.base is None
    still = all(w.stepped and not w.far and dim.axis not in w.axes for w in launch.windows)
    return plain and still and axis.kind == "parallel"


def _plain(launch: Launch, loop: Inner, dim: str) -> bool:
    """Whether a loop goes by what is known when its iteration begins, and holds no other one."""
    axis = launch.axis(loop.axis)
    if loop.form != "fori_loop" or loop.ahead or loop.together > 1:
        return False
    inside = any(isinstance(s, Inner) for s in loop.body)
    parts = [e for end in (axis.begin, axis.end) for e in ir.walk(end)]
    here = ir.GridIndex(dim)
    known = all(isinstance(e, ir.Const | ir.Apply | ir.Load) or e == here for e in parts)
    # a tile of all positions is no part of its arrays, which are read as wholes
    cut = axis.block is not None and axis.block < axis.positions
    return known and axis.ragged and cut and not inside


def _seen(launch: Launch, loops: set[str]) -> Iterator[tuple[str, int]]:
    """The windows of which a tile of these loops is read or written, and in which dimension."""
    for stmt in (s for section in launch.sections for s in flat(section.body)):
        reads = (e for e in parts_of(stmt) if isinstance(e, Read))
        for each in (*reads, *((stmt,) if isinstance(stmt, Write) else ())):
            for place, part in enumerate(each.select):
                if isinstance(part, Step) and part.axis in loops:
                    yield each.ref, place


def _whole_rows(window: Window) -> bool:
    """Whether a step has all rows of the array, which lie in its first dimension."""
    whole = bool(window.dims) and isinstance(window.dims[0], Whole)
    return whole and window.turned is None and window.shown[0] == window.shape[0]


def _registers(windows: dict[str, Window], target: Target) -> int:
    """Rows that registers hold, of arrays whose rows lie in registers."""
    flats = (w for w in windows.values() if len(w.shape) == 2)
    return math.lcm(1, *(target.tile(2, itemsize(w.dtype)) for w in flats))
