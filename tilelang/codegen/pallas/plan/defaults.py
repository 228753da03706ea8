"""Defaults: a config that is legal by construction, and good without tuning.

Blocks start from sizes that keep the matrix unit busy and are halved until the memory model says
that everything fits; a dimension that is shorter than its block is taken whole.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tilelang.analysis.facts import AxisFact
from tilelang.codegen.pallas.target import Target
from tilelang.ir import Axis
from tilelang.schedule.config import Config
from tilelang.schedule.fixed_ranges import fixed_range
from tilelang.schedule.problem import Problem

from .blocks import multiple, whole

# Sizes from hand-tuned kernels of the same shape: 128 x 512 for grouped GEMM and 256 x 512 for
# attention were at or near the best of the published tables for v5e and v6e.  A contracted
# dimension is best taken whole: the block of weights then stays while a group's rows go by.
ROWS_PARALLEL, ROWS_SPARSE, ROWS_ORDERED = 256, 128, 512
ROWS_LEAST = 128  # the matrix unit's side; fewer rows leave it idle
LANES_PARALLEL, LANES_ORDERED = 512, 2048  # the tables' columns; the most that is whole: a guess
# For that, other blocks shrink to LANES_LEAST, and up to LONGEST_PRODUCT: guesses.
LANES_LEAST, LONGEST_PRODUCT = 256, 8192
# Vectors have one row to a block: a step that takes 512 elements is all overhead.
LANES_VECTOR = 32768


def start_sizes(problem: Problem, target: Target, together: bool) -> dict[str, int]:
    """The first guess for every tile axis, before memory is looked at.

    `together`: a step runs all iterations of a loop, so that few rows of each are rows enough.
    """
    found: dict[str, int] = {}
    for axis in problem.ir.axes:
        if axis.kind == "tile":
            found[axis.name] = axis.fixed or _start(problem, target, axis, found, together)
    for names in problem.alike:
        found |= dict.fromkeys(names, min(found[n] for n in names))
    for names in problem.registered:
        found |= _together(problem, target, {n: found[n] for n in names})
    return found


def least_of_author(problem: Problem, target: Target, blocks: Mapping[str, int]) -> dict[str, int]:
    """How small blocks may become that the author fixed or registered: a fixed one stays."""
    found = {n: b for n, b in blocks.items() if problem.axis(n).fixed is not None}
    for names in problem.registered:
        bounds = problem.bounds(names[0])
        need = max(multiple(problem, n, target) for n in names)
        least = 1 if bounds is None else bounds.least
        found |= dict.fromkeys(names, -(-least // need) * need)
    return found


def _together(problem: Problem, target: Target, wanted: Mapping[str, int]) -> dict[str, int]:
    """One block for several loops, within the author's bounds; shorter dimensions are whole."""
    bounds = problem.bounds(next(iter(wanted)))
    assert bounds is not None
    lengths = {n: max(problem.extent(n), 1) for n in wanted}
    cut = [n for n in wanted if bounds.nearest(wanted[n]) < lengths[n]]
    if not cut:
        return lengths
    need = max(multiple(problem, n, target) for n in cut)
    block = max(bounds.nearest(min(wanted[n] for n in cut)) // need, 1) * need
    if block < bounds.least:
        block += need
    return {n: min(bounds.nearest(block), lengths[n]) for n in wanted}


def following(problem: Problem, target: Target, config: Config) -> dict[str, int]:
    """The guess, with the block that a config chooses for an axis also for those that are alike."""
    found = start_sizes(problem, target, bool(config.within))
    for names in problem.alike:
        chosen = {config.block(str(problem.axis(n).block)) for n in names} - {None}
        for name in names if len(chosen) == 1 else ():
            block = _clamped(max(b or 1 for b in chosen), problem.extent(name), 1)
            legal = block % multiple(problem, name, target) == 0 or target.interpreted
            if legal and _in_bounds(problem, name, block):
                found[name] = block
    return found


def _in_bounds(problem: Problem, name: str, block: int) -> bool:
    bounds = problem.bounds(name)
    return bounds is None or bounds.holds(block)


def _start(
    problem: Problem, target: Target, axis: Axis, outer: Mapping[str, int], together: bool
) -> int:
    size, fact = problem.extent(axis.name), problem.fact(axis.name)
    fixed = fixed_range(problem, axis, outer)  # a range of fixed length, wherever it begins
    want = _wanted(problem, fact, fact.ragged and fixed is None)
    need = multiple(problem, axis.name, target)
    if fixed is not None:
        for block in range(min(want, fixed.length) // need * need, 0, -need):
            if fixed.divisible(block):
                return block
    rises = problem.rises(axis.name)
    groups = problem.axis(rises[-1]) if rises else None
    if groups is not None and groups.kind == "grid" and groups.static is not None:
        # at most twice the mean range, if the shapes tell it: short ranges waste long tiles
        begin, end = groups.static
        mean = max(size // max(end - begin, 1), 1)
        least = need if together else ROWS_LEAST
        want = min(want, max(least, 1 << (2 * mean - 1).bit_length()))
    return _clamped(want, size, need)


def _wanted(problem: Problem, fact: AxisFact, ragged: bool) -> int:
    """The block of an axis that is long enough and has neighbours that leave it memory."""
    name, ordered = fact.name, fact.kind == "ordered"
    uses = problem.uses(name)
    if any(use.place == 1 for use in uses):
        if not ragged and all(len(problem.ir.tensor(u.tensor).shape) == 1 for u in uses):
            return LANES_VECTOR
        return LANES_ORDERED if ordered and not ragged else LANES_PARALLEL
    if ordered:
        return ROWS_ORDERED
    inside = any(
        name in f.depends or (f.ragged and f.kind == "ordered") for f in problem.facts.axes
    )
    return ROWS_SPARSE if ragged and not inside else ROWS_PARALLEL


def whole_products(
    problem: Problem, sizes: Mapping[str, int], legal: Mapping[str, int], target: Target
) -> tuple[dict[str, int], dict[str, int]] | None:
    """The blocks with contracted dimensions whole, and how small each block may become then.

    The block of weights then stays while the rows of a group go by, where it would else be fetched
    again for every tile of rows.  None if no such dimension is cut.
    """
    cut = {}
    for name, size in sizes.items():
        fixed = fixed_range(problem, problem.axis(name), sizes)
        length = whole(problem, problem.axis(name), target) if fixed is None else fixed.length
        aligned = fixed is None or length % legal[name] == 0
        shorter = size < length <= LONGEST_PRODUCT and _open(problem, name)
        static = fixed is not None or not problem.fact(name).ragged
        lanes = name in problem.contracted and any(u.place == 1 for u in problem.uses(name))
        if aligned and shorter and static and lanes:
            cut[name] = length
    if not cut:
        return None
    least = {n: cut.get(n, max(legal[n], min(LANES_LEAST, s))) for n, s in sizes.items()}
    return {**sizes, **cut}, least


def _open(problem: Problem, name: str) -> bool:
    """Whether the author says nothing of the blocks of an axis."""
    return problem.bounds(name) is None and problem.axis(name).fixed is None


def _clamped(want: int, size: int, need: int) -> int:
    """The wanted block, no longer than the dimension, and a legal multiple."""
    return max(size, 1) if size <= want else max(want // need, 1) * need


def shrink(
    sizes: Mapping[str, int],
    legal: Mapping[str, int],
    weights: Mapping[str, int],
    alike: tuple[tuple[str, ...], ...] = (),
) -> dict[str, int] | None:
    """The blocks with the heaviest one halved; None if every block is at its smallest.

    Axes that are alike shrink together, as long as all of them can.
    """
    able = [n for n, b in sizes.items() if b > legal[n] and b // 2 >= 1]
    if not able:
        return None
    name = max(able, key=lambda n: (weights[n], n))
    half = -(-sizes[name] // 2)
    together = next((names for names in alike if name in names), (name,))
    need = max(legal[n] for n in together)
    if sizes[name] <= need:
        together, need = (name,), legal[name]
    smaller = max(-(-half // need) * need, need)
    return {**sizes, **{n: min(smaller, sizes[n]) for n in together}}


def grow(
    problem: Problem, sizes: Mapping[str, int], axes: Collection[str], target: Target
) -> dict[str, int] | None:
    """The blocks with those of `axes` doubled, up to the dimension; None if none can grow.

    What the author fixed or bounded, and what is a dimension already, stays.
    """
    able = [n for n in axes if n in sizes and problem.axis(n).fixed is None]
    able += [n for names in problem.registered if not set(names).isdisjoint(able) for n in names]
    free = [n for n in dict.fromkeys(able) if _in_bounds(problem, n, 2 * sizes[n])]
    longer = {n: min(2 * sizes[n], whole(problem, problem.axis(n), target)) for n in free}
    grown = {n: b for n, b in longer.items() if b > sizes[n]}
    return {**sizes, **grown} if grown else None
