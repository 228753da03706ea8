"""Steps that wait: loops whose iterations one step should run together.

    for h in hl.grid(32): ... for p in hl.grid(0, pages): scores [16, 128] -> softmax -> product

A product, and what needs its result, take as long as the units take to answer.  One iteration has
nothing else to do meanwhile; all of them together do, as `body/by_phases` writes them.  Blocks that
are looked up, as pages are, can be no larger; but a step may have several.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from tilelang.codegen.pallas.chips import CHIPS
from tilelang.ir.traversal import dots
from tilelang.language.dtypes import itemsize

from .axis import AxisPlan, extents
from .body.by_phases import waits
from .estimate.seconds import generation
from .lives import products
from .physical import PExpr, flat, parts_of
from .types import Launch, Plan, Window
from .windows.turned import MOST

LARGEST = 128 * 256  # numbers in the largest value of a small step: a guess
# A step has blocks of several iterations until copying them takes as long as it waits, about, or
# whatever it copies where its products are larger; the last turn of a loop copies some for nothing,
# so that only long loops have such.  Of pages of 128 keys for 8 heads and one query two are best on
# v5e, and four on the others, by their schedules.
WAITS, TURNS, LONG, SHARED = 1e-6, 4, 4, 4
# Of so few steps, what each of them costs besides its work is a part of the whole: rope of three
# heads of 1,000 positions takes 4.4 us in three steps and 3.5 in one, by v6e's schedules.  Of steps
# with products that is not known: attention takes 0.88 to 1.09 of the time.
FEW = 8
LEAST = 128  # positions of a block, the least that is tried instead of larger ones


def loops_of_small_steps(planned: Plan) -> tuple[str, ...]:
    """What the author calls the innermost parallel loop around steps that wait.

    Only of pipelines over a table: dimensions of a plain grid are what two cores share.  Ranges
    that are read from memory may be short, so that larger blocks would hold little more.
    """
    short = _read_from_memory(planned)
    found = (_innermost(launch) for launch in planned.launches if _waits(launch, short))
    return tuple(dict.fromkeys(name for name in found if name is not None))


def few_steps(planned: Plan) -> tuple[tuple[str, ...], ...]:
    """Parallel loops of a grid of few steps: the innermost one, and all of them."""
    if len(planned.launches) != 1 or planned.launches[0].form != "grid":
        return ()
    (launch,) = planned.launches
    every = tuple(a.user for a in _parallel(launch))
    if not every or not _few(launch) or launch.table is not None or _multiplies(launch):
        return ()
    return ((every[-1],), every) if len(every) > 1 else (every,)


def beside_each_other(planned: Plan) -> str | None:
    """The innermost parallel loop around many steps, of which one could run all iterations.

    What they wait for is hidden then: rope of 32 heads takes 103 us instead of 188, and attention
    0.81 to 0.93 of its time by v6e's schedules.  Scores that a step has whole wait for nothing of
    the step before, and take 0.6 to 0.9 of what smaller ones take with all heads.
    """
    if any(a.place == "within" for launch in planned.launches for a in launch.axes):
        return None
    many = [launch for launch in planned.launches if not _few(launch)]
    if any(_multiplies(launch) and not _goes_on(launch) for launch in many):
        return None
    found = (a for launch in many for a in _parallel(launch)[-1:] if (a.tiles or 0) <= MOST)
    return next((a.user for a in found), None)


def smaller(planned: Plan) -> Iterator[dict[str, int]]:
    """Its blocks with the largest ones halved again and again; whole ones where none multiplies.

    With products they are as large as programs may be long, of one iteration, or the least.
    """
    blocks = dict(planned.blocks)
    largest = max(blocks.values(), default=0)
    if largest <= LEAST or not any(map(_multiplies, planned.launches)):
        yield blocks
    while (largest := 1 << max(largest - 1, 1).bit_length() - 1) >= LEAST:
        blocks = {name: min(size, largest) for name, size in blocks.items()}
        yield blocks


def fewer_rows(planned: Plan) -> dict[str, int] | None:
    """Its blocks with half of the largest one of a parallel loop, where that has several tiles.

    Of ranges that end anywhere a step masks less then.
    """
    every = (a for launch in planned.launches for a in launch.axes if a.kind == "parallel")
    rows = {a.name: a.block for a in every if a.block is not None and a.tiles != 1}
    if max(rows.values(), default=0) < LEAST:
        return None
    return {**dict(planned.blocks), **_with_half(rows)}


def _with_half(blocks: Mapping[str, int]) -> dict[str, int]:
    """Blocks with half of the largest, or of all that are as large."""
    largest = max(blocks.values(), default=0)
    return {name: size // 2 if size == largest else size for name, size in blocks.items()}


def _parallel(launch: Launch) -> list[AxisPlan]:
    """Its grid dimensions that are parallel loops of indices."""
    return [
        a for a in launch.grid if a.block is None and a.kind == "parallel" and (a.tiles or 0) > 1
    ]


def _few(launch: Launch) -> bool:
    return math.prod(d.extent or FEW + 1 for d in launch.dims) <= FEW


def _goes_on(launch: Launch) -> bool:
    """Whether a loop of several tiles, as steps or in one, carries what its products give."""
    return any(a.kind == "ordered" and a.tiles != 1 for a in launch.axes)


def halved(planned: Plan) -> tuple[dict[str, int], ...]:
    """Its blocks, and with half of the largest: a step that is alone has its copies to itself."""
    blocks = dict(planned.blocks)
    return (blocks, _with_half(blocks)) if max(blocks.values(), default=0) > 1 else (blocks,)


def turns_of_small_steps(planned: Plan) -> tuple[str, int] | None:
    """The innermost loop of steps that are small, and how many iterations a step should run."""
    name = generation(planned.target)
    for launch in planned.launches if name is not None else ():
        axis, largest = _innermost_column(launch), _products(launch)
        if name is None or axis is None or not 0 < largest <= SHARED * LARGEST:
            continue
        moved = sum(_bytes(w) for w in launch.inputs if axis.name in w.axes)
        enough = WAITS * CHIPS[name].bandwidth if largest <= LARGEST else math.inf
        count = 1
        while 2 * count * LONG <= (axis.max_extent or 1) and count < TURNS:
            if not 0 < moved * count < enough:
                break
            count *= 2
        if count > 1:
            return axis.name, count
    return None


def _innermost_column(launch: Launch) -> AxisPlan | None:
    """The last column of the table, if it is an ordered loop of indices around no other."""
    table = launch.table
    if table is None or table.steps != "table" or table.phases or not table.outer:
        return None
    axis = launch.axis(table.outer[-1].axis)
    return axis if axis.kind == "ordered" and axis.block is None else None


def _bytes(window: Window) -> int:
    return math.prod(window.shown) * itemsize(window.dtype)


def _read_from_memory(planned: Plan) -> bool:
    """Whether a loop over tiles has a range that is read from memory."""
    problem = planned.problem
    return any(problem.axis(name).kind == "tile" for name in problem.read)


def _waits(launch: Launch, short: bool) -> bool:
    """Whether some operations of a step wait for a product, and steps are or may be small.

    Ranges that may be `short` do where two cores do not share the loop.
    """
    if launch.table is None or launch.form != "pipeline":
        return False
    bodies = [tuple(flat(section.body)) for section in launch.sections]
    small = (short and launch.cores == 1) or _largest(launch, _values(launch)) <= LARGEST
    return small and any(map(waits, bodies))


def _multiplies(launch: Launch) -> bool:
    return any(any(products(stmt)) for section in launch.sections for stmt in section.body)


def _products(launch: Launch) -> int:
    """Numbers in the largest product, of which some heads may share one; 0 if there is none."""
    if launch.table is None or launch.form != "pipeline":
        return 0
    return _largest(launch, list(dots(_values(launch))))


def _values(launch: Launch) -> Iterator[PExpr]:
    stmts = (stmt for section in launch.sections for stmt in section.body)
    return (e for stmt in stmts for e in parts_of(stmt))  # of loops inside, too


def _largest(launch: Launch, values: Iterable[PExpr]) -> int:
    axes = {a.name: a for a in launch.axes}
    return max((math.prod(extents(e.type, axes)) for e in values), default=0)


def _innermost(launch: Launch) -> str | None:
    """The last grid dimension before the table, if it is a loop of few indices."""
    last = launch.grid[-1:]
    return next((a.user for a in _parallel(launch) if [a] == last and (a.tiles or 0) <= MOST), None)
