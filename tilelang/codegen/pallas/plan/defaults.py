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
from tilelang.schedule.fixed_ranges import span
from tilelang.schedule.problem import Problem

from .blocks import multiple

# Sizes from hand-tuned kernels of the same shape: 128 x 512 for grouped GEMM and 256 x 512 for
# attention were at or near the best of the published tables for v5e and v6e.  A contracted
# dimension is best taken whole: the block of weights then stays while a group's rows go by.
ROWS_PARALLEL, ROWS_SPARSE, ROWS_ORDERED = 256, 128, 512
ROWS_LEAST = 128
LANES_PARALLEL, LANES_ORDERED = 512, 2048
LANES_LEAST, LONGEST_PRODUCT = 256, 8192
# Vectors have one row to a block: a step that takes 512 elements is all overhead.
LANES_VECTOR = 32768


def start_sizes(problem: Problem, target: Target) -> dict[str, int]:
    """The first guess for every tile axis, before memory is looked at."""
    found: dict[str, int] = {}
    for axis in problem.ir.axes:
        if axis.kind == "tile":
            fixed = axis.block if isinstance(axis.block, int) else None
            found[axis.name] = fixed or _start(problem, target, axis, found)
    for names in problem.alike:
        found |= dict.fromkeys(names, min(found[n] for n in names))
    for names in problem.registered:
        found |= _together(problem, target, {n: found[n] for n in names})
    return found


def least_registered(problem: Problem, target: Target) -> dict[str, int]:
    """How small the blocks of such loops may become."""
    found = {}
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


def following(
    problem: Problem, target: Target, config: Config, guess: Mapping[str, int]
) -> dict[str, int]:
    """The guess, with the block that a config chooses for an axis also for those that are alike."""
    found = dict(guess)
    for names in problem.alike:
        chosen = {config.block(str(problem.axis(n).block)) for n in names} - {None}
        for name in names if len(chosen) == 1 else ():
            block = clamp(max(b or 1 for b in chosen), problem.extent(name), 1)
            bounds = problem.bounds(name)
            if bounds is not None and not bounds.holds(block):
                continue
            if block % multiple(problem, name, target) == 0 or target.name == "cpu":
                found[name] = block
    return found


def _start(problem: Problem, target: Target, axis: Axis, outer: Mapping[str, int]) -> int:
    size, fact = problem.extent(axis.name), problem.fact(axis.name)
    moving = span(problem, axis, outer)
    ragged = fact.ragged and moving is None
    inner_ragged = any(axis.name in f.depends or _nested(f) for f in problem.facts.axes)
    found = problem.uses(axis.name)
    lanes = any(u.place == 1 for u in found)
    vectors = all(len(problem.ir.tensor(u.tensor).shape) == 1 for u in found)
    if lanes and vectors and not ragged:
        want = LANES_VECTOR
    elif lanes and not ragged and fact.kind == "ordered":
        want = LANES_ORDERED
    elif lanes:
        want = LANES_PARALLEL
    elif fact.kind == "ordered":
        want = ROWS_ORDERED
    elif ragged and not inner_ragged:
        want = ROWS_SPARSE
    else:
        want = ROWS_PARALLEL
    need = multiple(problem, axis.name, target)
    if moving is not None:
        for block in range(min(want, moving.length) // need * need, 0, -need):
            if moving.divisible(block):
                return block
    return clamp(_typical(problem, fact, size, want), size, need)


def whole_products(
    problem: Problem, sizes: Mapping[str, int], legal: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]] | None:
    """The blocks with contracted dimensions whole, and how small each block may become then.

    The block of weights then stays while the rows of a group go by, where it would else be fetched
    again for every tile of rows.  None if no such dimension is cut.
    """
    cut = {}
    for name, size in sizes.items():
        moving = span(problem, problem.axis(name), sizes)
        whole = problem.extent(name) if moving is None else moving.length
        aligned = moving is None or whole % legal[name] == 0
        shorter = size < whole <= LONGEST_PRODUCT and problem.bounds(name) is None
        if aligned and shorter and _contracted(problem, name, moving is not None):
            cut[name] = whole
    if not cut:
        return None
    least = {n: cut.get(n, max(legal[n], min(LANES_LEAST, s))) for n, s in sizes.items()}
    return {**sizes, **cut}, least


def _contracted(problem: Problem, name: str, moving: bool) -> bool:
    """Whether products are summed along a static axis that is the lanes of an operand.

    `moving`: its range moves with outer indices, and that is all that is ragged about it.
    """
    lanes = any(u.place == 1 for u in problem.uses(name))
    return lanes and name in problem.contracted and (moving or not problem.fact(name).ragged)


def _typical(problem: Problem, fact: AxisFact, size: int, want: int) -> int:
    """No longer than twice the mean range, if the shapes tell it: short ranges waste long tiles."""
    outer = problem.axis(fact.rises[-1]) if fact.rises else None
    if outer is None or outer.kind != "grid" or outer.static is None:
        return want
    begin, end = outer.static
    mean = max(size // max(end - begin, 1), 1)
    return min(want, max(ROWS_LEAST, 1 << (2 * mean - 1).bit_length()))


def _nested(fact: AxisFact) -> bool:
    return fact.ragged and fact.kind == "ordered"


def clamp(want: int, size: int, need: int) -> int:
    """The wanted block, no longer than the dimension, and a legal multiple."""
    if size <= want:
        return max(size, 1)
    return max(want // need, 1) * need


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
    problem: Problem, sizes: Mapping[str, int], axes: Collection[str]
) -> dict[str, int] | None:
    """The blocks with those of `axes` doubled, up to the dimension; None if none can grow.

    What the author fixed or bounded, and what is a dimension already, stays.
    """
    able = [n for n in axes if n in sizes and not isinstance(problem.axis(n).block, int)]
    able += [n for names in problem.registered if not set(names).isdisjoint(able) for n in names]
    free = [n for n in dict.fromkeys(able) if _may_be(problem, n, 2 * sizes[n])]
    longer = {n: min(2 * sizes[n], max(problem.extent(n), 1)) for n in free}
    grown = {n: b for n, b in longer.items() if b > sizes[n]}
    return {**sizes, **grown} if grown else None


def _may_be(problem: Problem, name: str, block: int) -> bool:
    bounds = problem.bounds(name)
    return bounds is None or bounds.holds(block)
