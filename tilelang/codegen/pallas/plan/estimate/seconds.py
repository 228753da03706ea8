"""estimate(plan, arrays) -> Estimate: how long it takes, and what that is made of.

While a step computes, the blocks of the next one come and those of the one before go:

    steps     compute  ----  ------  ----        seconds = the longer of both, step by step,
              copies   --------  --  --------              + the first fetch + the last write
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from tilelang.codegen.pallas.chips import CHIPS, Chip
from tilelang.codegen.pallas.plan.parts import Parts as CoreParts
from tilelang.codegen.pallas.plan.physical import Inner, PStmt, flat
from tilelang.codegen.pallas.plan.types import Beside, Flow, Launch, Plan, Window
from tilelang.codegen.pallas.plan.windows.types import SHORT, Between, ByRow, ByTile, extent_of
from tilelang.codegen.pallas.target import Target
from tilelang.language.dtypes import itemsize

from . import near
from .costs import ASKED, COSTS, DEEP, GROUP, RECTANGLE, ROW, Costs
from .numbers import Numbers, value
from .steps import Steps, differs, listed, with_lines
from .work import BESIDE, TERMS, Core, Parts, Work, add, registers, work

FOLLOWED = 1024  # steps, one by one; the others are like them


@dataclass(frozen=True)
class Estimate:
    """Seconds of a launch, or of all launches of a plan.

    compute, traffic  what its work and its bytes would take alone
    steps             of all launches
    bytes             read and written
    length            instructions of the largest program, about
    terms             what the work is, in the order of TERMS
    """

    seconds: float
    compute: float
    traffic: float
    steps: float
    bytes: float
    length: float
    terms: tuple[float, ...]

    def plus(self, other: Estimate) -> Estimate:
        """One launch after another."""
        return Estimate(
            self.seconds + other.seconds,
            self.compute + other.compute,
            self.traffic + other.traffic,
            self.steps + other.steps,
            self.bytes + other.bytes,
            max(self.length, other.length),
            tuple(a + b for a, b in zip(self.terms, other.terms, strict=True)),
        )


NOTHING = Estimate(0, 0, 0, 0, 0, 0, (0.0,) * len(TERMS))


def generation(target: Target) -> str | None:
    """Whose times are estimated; None for the CPU, which no chip is."""
    name = target.name.removeprefix("tpu:")
    return name if name in CHIPS else None


def estimate(plan: Plan, arrays: Numbers) -> Estimate:
    """The estimate of a plan for a TPU; `arrays` are integers that steer it, as in `typical`."""
    found = NOTHING
    for launch in plan.launches:
        found = found.plus(of_launch(launch, plan.target, arrays))
    return found


def of_launch(
    launch: Launch, target: Target, arrays: Numbers, parts: Parts | None = None
) -> Estimate:
    """One launch, whatever the others are; `parts` is kept by who asks of it with other blocks."""
    name = target.name.removeprefix("tpu:")
    chip, costs, steps = CHIPS[name], COSTS[name], listed(launch, arrays)
    core = Core({a.name: a for a in launch.axes}, chip, {} if parts is None else parts)
    done = _work(launch, steps, core)
    cycles = _cycles(done, costs, launch) + _waits_for_pipes(done, launch, steps, chip)
    if launch.beside is not None:
        cycles = _several(launch, launch.beside, steps, core, costs, cycles)
    compute, copied = cycles / chip.clock, _copied(launch, steps)
    share = _share(launch, steps, target.cores)
    there = near.bytes_near(launch, target)
    flowing = [w for w in launch.windows if w.flows]
    around = math.prod(d.extent or 1 for d in launch.dims[:-1])  # each with a flow of its own
    flows = around * sum(float(np.mean(_size(w, steps))) for w in flowing)
    if there is None:
        body = (
            _piped(compute, copied, chip, _ahead(launch), launch.form == "grid")
            * steps.times
            * share
        )
        if launch.flow is not None and launch.flow.step is None:
            goes = sum(float(np.mean(_size(w, steps))) for w in flowing if w.output)
            shares = _shares(launch, steps, core, costs)
            body = _turning(body, shares, (flows - goes, goes), launch.flow, chip)
        else:
            copies = flows / chip.bandwidth * share
            body = _flowing(body, copies, launch.flow, steps.count * steps.times / around)
        ends = copied.last / chip.bandwidth + chip.write
    else:
        compute = compute - (near.saved(launch, costs) / chip.clock if steps.count == 1 else 0)
        body = float(compute.sum()) * steps.times * share
        ends = there / chip.bandwidth + chip.read + chip.write
    table = _table(launch, steps, arrays) / chip.clock
    moved = copied.total * steps.times + flows
    terms = tuple(float(t.sum()) * steps.times for t in done)
    return Estimate(
        body + ends + table,
        float(compute.sum()) * steps.times * share,
        moved / chip.bandwidth * share,
        steps.count * steps.times,
        moved,
        _length(launch, core),
        terms,
    )


# ---------------------------------------------------------------- compute


def _work(launch: Launch, steps: Steps, core: Core) -> tuple[np.ndarray, ...]:
    """What is done in every step, term by term."""
    trips, nothing = _trips(launch, steps), np.zeros(steps.count)
    found: dict[str, np.ndarray] = {}
    for section in launch.sections:
        done = work(section.body, core, trips)
        if section.title:  # the first visit of a block fills it
            window = launch.window(section.title)
            add(done, {"memory": registers(window.shown, window.dtype)})
        runs = steps.runs(section.conditions)
        for term, amount in done.items():
            if amount:
                found[term] = found.get(term, nothing) + amount * runs
    return tuple(found.get(term, nothing) for term in TERMS)


def _length(launch: Launch, core: Core) -> float:
    """Instructions of every section, loops turned once: what libtpu takes to compile it goes by.

    A push of 8 rows through 256 lanes of a matrix unit, or through 4 units of 128, counts as eight.
    """
    once, done = defaultdict[str, float](lambda: 1.0), Work()
    for section in launch.sections:
        add(done, work(section.body, core, once))
    units = core.chip.units
    pushes = done.get("matrix", 0) * units.matrix / units.multiply * units.results**2 / 4
    others = ("alu", "special", "memory", "spills", "lanes")
    return 8 * pushes + sum(done.get(term, 0) for term in others)


def _trips(launch: Launch, steps: Steps) -> dict[str, float]:
    """How often each loop inside the step turns, on average."""
    stmts = (s for section in launch.sections for s in flat(section.body))
    found = {}
    for axis in {s.axis for s in stmts if isinstance(s, Inner)}:
        plan = launch.axis(axis)
        at = with_lines(plan.range, steps.at)
        first, stop = (value(e, at) for e in (plan.range.first, plan.range.stop))
        if plan.tiles is not None:
            found[axis] = float(plan.tiles)
        elif first is None or stop is None:
            most = -(-(plan.max_extent or plan.limit) // plan.size)
            found[axis] = min(most, plan.limit) / 2
        else:
            found[axis] = float(np.mean(np.maximum(stop - first, 0)))
    return found


def _cycles(done: tuple[np.ndarray, ...], costs: Costs, launch: Launch) -> np.ndarray:
    """Units work side by side: the slowest one counts, and a part of the others."""
    at = dict(zip(TERMS, done, strict=True))
    lanes, columns = costs.lanes, costs.columns
    if not (at["matrix"].any() or any(a.kind == "ordered" and a.tiles != 1 for a in launch.axes)):
        lanes, columns = costs.reduced, costs.numbers  # rows wait for nothing but themselves
    units = np.stack(
        [
            at["matrix"] + costs.sums * at["sums"],
            costs.alu * at["alu"],
            costs.special * at["special"],
            costs.memory * at["memory"] + costs.spills * at["spills"],
            lanes * at["lanes"] + costs.rotated * at["rotated"] + columns * at["columns"],
        ]
    )
    slowest = units.max(axis=0)
    beside = costs.others * (units.sum(axis=0) - slowest)
    waits = costs.turns * at["turns"] + costs.rows * at["rows"] + costs.chain * at["chain"]
    waits += DEEP * at["deep"] * (at["matrix"] == 0) + costs.pipeline * at["piped"]
    moved = (w.stepped and bool(w.axes) and not w.flows for w in launch.windows)
    waits += costs.window * sum(moved)
    return (costs.pipeline if launch.form == "pipeline" else costs.grid) + slowest + beside + waits


def _several(
    launch: Launch, many: Beside, steps: Steps, core: Core, costs: Costs, alone: np.ndarray
) -> np.ndarray:
    """Cycles of iterations of which a step has several, where it takes `alone` cycles with loops.

    Without loops each waits a part as long for what it makes.
    """
    short = Core({**core.axes, **{a.name: a for a in many.short}}, core.chip, core.parts)
    once = defaultdict[str, float](lambda: 1.0)
    done = work(many.body, short, once)
    done |= {"turns": 0.0, "chain": done.get("chain", 0) / min(many.count, BESIDE)}
    step = costs.pipeline if launch.form == "pipeline" else costs.grid
    straight = (
        float(_cycles(tuple(np.array([done.get(t, 0.0)]) for t in TERMS), costs, launch)[0]) - step
    )
    return np.where(together(many, steps), step / many.count + straight, alone + ASKED)


def together(many: Beside, steps: Steps) -> np.ndarray:
    """The iterations that run without loops: short tiles hold what all of their step go through."""
    fits = np.ones(steps.count, bool)
    for axis in many.short:
        at = with_lines(axis.range, steps.at)
        stop = value(axis.range.stop, replace(at, axes={**at.axes, axis.name: axis}))
        fits &= np.zeros(steps.count, bool) if stop is None else np.asarray(stop) <= 1
    whole = -(-steps.count // many.count) * many.count
    every = np.pad(fits, (0, whole - steps.count), constant_values=True)
    return np.repeat(every.reshape(-1, many.count).all(axis=1), many.count)[: steps.count]


def _waits_for_pipes(
    done: tuple[np.ndarray, ...], launch: Launch, steps: Steps, chip: Chip
) -> np.ndarray:
    """Cycles in which a pipeline inside of a step has its first blocks read, and its last written.

    Nothing else goes on meanwhile.
    """
    streams = [w for w in launch.windows if w.stream is not None]
    first = sum(float(np.mean(_size(w, steps))) for w in streams) / chip.bandwidth
    first += chip.read * any(not w.output for w in streams)
    first += chip.write * any(w.output for w in streams)
    each = max(len({w.stream for w in streams}), 1)
    return done[TERMS.index("pipes")] * (first / each * chip.clock)


def _share(launch: Launch, steps: Steps, cores: int) -> float:
    """The part of the steps that the busier core has."""
    if isinstance(launch.parts, CoreParts):
        begins = differs(steps.row, steps.count)
        for window in launch.outputs:
            begins &= steps.moves(window)
        ends = _parts(begins, launch.cores)
        return float(np.diff(ends).max()) / max(steps.count, 1)
    used = cores if launch.form == "grid" else launch.cores
    extents = [
        d.extent or 1 for d in launch.dims if d.semantics == "parallel" and (d.extent or 1) > 1
    ]
    if used < 2 or not extents:
        return 1
    first = next(iter(extents))
    return -(-first // used) / first


def _parts(begins: np.ndarray, cores: int) -> list[int]:
    """Where the part of each core begins, and the last one ends."""
    found, count = [0], len(begins)
    for core in range(1, cores):
        behind = np.flatnonzero(begins[core * count // cores :])
        found.append(core * count // cores + int(behind[0]) if len(behind) else count)
    return [*found, count]


def _table(launch: Launch, steps: Steps, arrays: Numbers) -> float:
    """Cycles in which the table of steps is made; those of a rectangle find out where they are."""
    if launch.table is None or steps.rows is None:
        return 0
    if launch.table.steps == "rectangle":
        return RECTANGLE * launch.table.rows * steps.count * steps.times / max(steps.rows.count, 1)
    outer = launch.table.outer
    nested = len(outer) > 1 or launch.table.phases
    groups = sum(column.most for column in outer[:1]) if nested else 0
    # rows of other parts than the first one are moved to the front
    moved = 1 - 1 / launch.cores if isinstance(launch.parts, CoreParts) else 0
    return GROUP * groups + ROW * steps.rows.count * (1 + moved)


# ---------------------------------------------------------------- copies


@dataclass(frozen=True)
class Copied:
    """Bytes that every step reads and writes, and those of pipelines inside of it."""

    read: np.ndarray
    written: np.ndarray
    inside: np.ndarray

    @property
    def total(self) -> float:
        return float(self.read.sum() + self.written.sum() + self.inside.sum())

    @property
    def last(self) -> float:
        return float(self.written[-1]) if len(self.written) else 0


def _copied(launch: Launch, steps: Steps) -> Copied:
    count = steps.count
    found = Copied(np.zeros(count), np.zeros(count), np.zeros(count))
    trips = _trips(launch, steps)
    for window in launch.windows:
        if window.far or window.flows:
            continue
        size = _size(window, steps)
        if window.stream is not None:
            np.add(found.inside, size * trips.get(window.stream, 1), out=found.inside)
        elif window.output:
            np.add(found.written, size * np.append(steps.moves(window)[1:], True), found.written)
        else:
            np.add(found.read, size * steps.moves(window), out=found.read)
    return found


def _ahead(launch: Launch) -> int:
    """How many steps before its own a block is asked for: one fewer than it has buffers."""
    moved = (w for w in launch.windows if w.axes and not w.output and not w.far)
    return max(min(((w.buffers or 2) + w.early for w in moved), default=2) - 1, 1)


def _piped(
    compute: np.ndarray, copied: Copied, chip: Chip, ahead: int = 1, lands: bool = True
) -> float:
    """Seconds of the steps.  When a step ends, the blocks of the next but one are asked for, or
    those of the next but `ahead`:

        step i  |       | ...waits... | compute |
                | read of step i + 1: latency, then bytes |

    Copies share the bandwidth.  Behind a step that writes a block, the next one of a grid begins
    when the write before has landed, which small ones wait for; a pipeline inside of a kernel waits
    behind every step for what the one before wrote.  The steps behind the first ones take what
    these do.
    """
    least = np.maximum(compute, (copied.read + copied.written) / chip.bandwidth)
    inside = copied.inside / chip.bandwidth
    least, compute = np.maximum(least, inside), np.maximum(compute, inside)
    begin = slice(0, FOLLOWED)
    read, written = (b[begin] / chip.bandwidth for b in (copied.read, copied.written))
    coming = [*read.tolist(), *[0.0] * ahead]
    arrives = list[float](chip.read + np.cumsum(coming[:ahead]))
    free = arrives[-1]
    ended = landed = before = 0.0
    each = zip(compute[begin].tolist(), coming[ahead:], written.tolist(), strict=True)
    for step, (took, comes, goes) in enumerate(each):  # without max(): a tenth of all planning
        begins = ended if ended > before else before
        if comes:
            asked = begins + chip.read
            free = (free if free > asked else asked) + comes
        arrives.append(free if comes else arrives[-1])
        there = arrives[step]
        ended = (begins if begins > there else there) + took
        if goes or not lands:
            before = landed
        if goes:
            free = (free if free > ended else ended) + goes
            lands_alone = ended + chip.write
            landed = (lands_alone if lands_alone > landed else landed) + goes
    first = float(least[begin].sum())
    return ended * (float(least.sum()) / first if first else 1)


def _flowing(body: float, copies: float, flow: Flow | None, steps: float) -> float:
    """Seconds of steps beside copies in pieces: both wait for the first piece, or the last step."""
    if flow is None:
        return body
    parts = min(flow.pieces, max(steps, 1))
    return max(body, copies) + min(body, copies) / parts


def _shares(launch: Launch, steps: Steps, core: Core, costs: Costs) -> tuple[float, float]:
    """The parts of the work in the first loop that waits for pieces, and in the one behind which
    they go; all of it, where these are the same."""
    trips, flow = _trips(launch, steps), launch.flow
    turns = flow.turns if flow is not None else ()

    def cycles(stmts: Iterable[PStmt]) -> float:
        done = work(stmts, core, trips)
        return float(_cycles(tuple(np.array([done.get(t, 0.0)]) for t in TERMS), costs, launch)[0])

    body = [stmt for section in launch.sections for stmt in section.body]
    every, loops = cycles(body), [s for s in flat(body) if isinstance(s, Inner)]
    own = {s.axis: cycles((s,)) / every for s in loops}
    first = next((own[t.axis] for t in turns if t.comes is not None), 0.0)
    return min(first, 1.0), min(next((own[t.axis] for t in turns if t.goes is not None), 0.0), 1.0)


def _turning(
    body: float, shares: tuple[float, float], moved: tuple[float, float], flow: Flow, chip: Chip
) -> float:
    """Seconds of a step whose first loop waits for pieces that come, and behind whose last one
    they go.  A copy that is longer than its loop is waited for; so is one piece of each."""
    found = body
    for share, size in zip(shares, moved, strict=True):
        copy = size / chip.bandwidth
        found += max(copy - share * body, copy / flow.pieces)
    return found


def _size(window: Window, steps: Steps) -> np.ndarray | float:
    """Bytes of the block in every step: what lies behind the end of the array is not copied.

    The only row of an array has each number in a word of its own.
    """
    if window.held:
        return float(math.prod(window.shape) * itemsize(window.dtype))
    alone = len(window.shape) > 1 and window.shape[-2] == 1
    size: np.ndarray | float = float(max(itemsize(window.dtype), 4 if alone else 0))
    for place, (dim, length) in enumerate(zip(window.dims, window.shape, strict=True)):
        extent = extent_of(dim)
        if extent is None:
            continue
        last = place == len(window.dims) - 1
        match dim:
            case ByTile(_, block, over) if not over and length % block and not last:
                shown = value(window.numbers[place].expr, steps.at)
                whole = 0 if shown is None else shown
                size = size * np.clip(length - whole * block, 0, block)
            case ByTile(_, block, ()) if last and length % block:
                shown = value(window.numbers[place].expr, steps.at)
                whole = 0 if shown is None else shown
                size = size * np.clip(_lanes(length) - whole * block, 0, block)
            case ByRow():
                size = size * extent / 2
            case Between():
                shown = value(dim.count, steps.at)
                size = size * (extent / 2 if shown is None else SHORT * shown)
            case _:
                size = size * (_lanes(extent) if last else extent)
    return size


def _lanes(length: int) -> int:
    """Arrays lie in whole register tiles."""
    return -(-length // 128) * 128
