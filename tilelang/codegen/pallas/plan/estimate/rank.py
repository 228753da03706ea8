"""best(problem, plan, make) -> Ranking: the blocks that can be chosen, by estimated time.

Blocks are legal multiples times powers of two, and whole dimensions.  One plan whose loops are all
there is made, and resized for other blocks; the search goes to the best neighbour until none is
better, from three starts.  What it finds is planned, and estimated again, before it is believed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import permutations

from tilelang.codegen.pallas.plan import lives
from tilelang.codegen.pallas.plan.blocks import multiple, whole
from tilelang.codegen.pallas.plan.memory import with_margin
from tilelang.codegen.pallas.plan.parts import Parts as CoreParts
from tilelang.codegen.pallas.plan.physical import Inner, TakeRows, flat, parts_of
from tilelang.codegen.pallas.plan.types import Launch, Plan, Write
from tilelang.codegen.pallas.target import Target
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refusal

from .around import around
from .numbers import Numbers
from .offsets import typical
from .resize import resized
from .seconds import NOTHING, Estimate, estimate, generation, of_launch
from .work import Parts

Blocks = Mapping[str, int]
Make = Callable[[Blocks], "Plan | Refusal"]

LEAST = 128  # positions of a block that is no whole dimension, where they may be so few
RAGGED = 4096  # the most of one that is cut where ranges end: how long those are, no shape tells
ROWS = 32  # LEAST of a dimension that is nowhere the last one
BATCH = 1  # LEAST of one that is neither of the last two: more of it is another product, as long
WHOLE = 32768  # the longest dimension that is tried whole
# A program of more instructions gains little by it, and takes half a minute and more to compile:
# for bodies with no product, with one, and with several.  Without products libtpu is quicker: 7 to
# 14 seconds for 65,000.  Where products wait for each other, 512 rows of 4096 scores take 13.
LONGEST = (70_000, 38_000, 40_000)
CLOSE = 1.01  # of the shortest time: the one that needs least memory is taken
SLACK = 1.3  # and copies still take longer than the work, if that takes so much more than estimated
# The rule of thumb stays, unless something is better by more than what the estimate is known to be
# wrong by: for bodies with one product, with none, and with several, which wait for each other.
# Of those that wait, more steps than the thumb's take longer than they are estimated to, and fewer
# take less: by v6e's schedules 256 x 512 scores 1.1 of it, and 512 x 512 0.95.
WORTH, WORTH_ROWS, WORTH_CHAINED, WORTH_STEPS, WORTH_FEWER = 1.02, 1.1, 1.06, 1.25, 1.02
# What is known better: steps that run several heads have the costs of such.  How these are laid out
# goes by blocks, which no resized plan shows: half a block of the best is planned in any case.
WORTH_WITHIN, RESIZED_WITHIN = 1.06, 1.1
TRIED = 3  # plans that are made of the best ones found


@dataclass(frozen=True)
class Choice:
    """Blocks, what they are estimated to take, and the vector memory that they need."""

    blocks: tuple[tuple[str, int], ...]
    estimate: Estimate
    vmem: int


@dataclass(frozen=True)
class Ranking:
    """What was chosen, and the best of the others, best first.

    looked  how many blocks were estimated
    thumb   what the rule of thumb would have taken
    """

    chosen: Choice
    others: tuple[Choice, ...]
    looked: int
    thumb: Choice


def reasons(ranking: Ranking) -> tuple[str, ...]:
    """Why these blocks, and what others would cost: a line each."""
    chosen, thumb = ranking.chosen, ranking.thumb
    found = chosen.estimate
    lines = [
        f"blocks {_sizes_text(chosen)}: {_us(found.seconds)} estimated with typical offsets "
        f"(compute {_us(found.compute)}, copies {_us(found.traffic)}, {found.steps:,.0f} steps), "
        f"of {ranking.looked} that were looked at"
    ]
    if chosen != thumb:
        lines.append(f"  by the rule of thumb, {_sizes_text(thumb)}: {_us(thumb.estimate.seconds)}")
    elif ranking.others and ranking.others[0].estimate.seconds < found.seconds:
        lines.append(
            "  the rule of thumb: what may be better is so by less than the estimate's error"
        )
    for other in ranking.others[:1]:
        lines.append(f"  next best {_sizes_text(other)}: {_us(other.estimate.seconds)}")
    return tuple(lines)


def _sizes_text(choice: Choice) -> str:
    return ", ".join(f"{name}={size}" for name, size in choice.blocks)


def _us(seconds: float) -> str:
    return f"{seconds * 1e6:.4g} us"


def provable(plan: Plan) -> bool:
    """Whether the estimate is known to be right for what steps of this plan do.

    It is not for single rows that are copied, for pipelines inside of steps, unrolled loops and
    work lists: none of them has been fitted.
    """
    if generation(plan.target) is None:
        return False
    for launch in plan.launches:
        if launch.worklist or any(not w.stepped for w in launch.windows):
            return False
        heads = {a.name for a in launch.axes if a.place == "within"}
        for section in launch.sections:
            for stmt in flat(section.body):
                if isinstance(stmt, Write) and stmt.rows is not None:
                    return False
                if isinstance(stmt, Inner) and stmt.form == "unroll" and stmt.axis not in heads:
                    return False
                if any(isinstance(e, TakeRows) for e in parts_of(stmt)):
                    return False
    return True


def best(problem: Problem, plan: Plan, make: Make) -> tuple[Plan, Ranking] | None:
    """The plan that is estimated to be fastest, of those like `plan`, and how it was chosen.

    None where there is nothing to choose.
    """
    search = searched(problem, plan, make)
    if all(len(sizes) == 1 for _, sizes in search.options):
        return None
    arrays = search.arrays
    thumb = Choice(plan.blocks, estimate(plan, arrays), _need(plan.launches))
    found, at = thumb, plan
    unsure, other = (RESIZED_WITHIN, search.halves()) if _within(plan) else (1, [])
    other += _of_parts(plan, search)
    for choice in [*search.ranked()[: TRIED + (unsure > 1)], *other]:
        slower = choice.estimate.seconds > unsure * found.estimate.seconds
        known = dict(choice.blocks) in (dict(plan.blocks), dict(found.blocks))
        if known or (slower and choice not in other):
            continue
        made = make(dict(choice.blocks))
        if isinstance(made, Refusal) or not _fits(made.launches, plan.target):
            continue
        true = Choice(made.blocks, estimate(made, arrays), _need(made.launches))
        more = true.estimate.steps - thumb.estimate.steps
        rows = CLOSE if not products(plan.launches) else 1  # the first one needs less memory
        worth = _worth(plan, more) if found is thumb else rows
        if true.estimate.seconds * worth < found.estimate.seconds:
            found, at = true, made
    others = tuple(c for c in search.ranked() if dict(c.blocks) != dict(found.blocks))
    return at, Ranking(found, others[:3], len(search.seen), thumb)


def _of_parts(plan: Plan, search: Search) -> list[Choice]:
    """Where cores share the rows of a table, the best with no more loops: all that was estimated
    has a loop over every dimension, which they would share instead."""
    if not any(isinstance(launch.parts, CoreParts) for launch in plan.launches):
        return []
    axes = (a for launch in plan.launches for a in launch.axes if a.place == "single")
    once = {a.name: a.block for a in axes if a.block is not None}
    alike = (c for c in search.ranked() if once.items() <= dict(c.blocks).items())
    return [*alike][:1]


def searched(problem: Problem, plan: Plan, make: Make) -> Search:
    """The blocks of plans like `plan`, the promising ones of them estimated."""
    options = _options(problem, plan)
    base = make(_split(options, plan))
    made = base if isinstance(base, Plan) else plan
    counts = tuple(products((launch,)) for launch in made.launches)
    search = Search(made, options, typical(problem), counts)
    for start in (dict(plan.blocks), *_starts(problem, options)):
        search.descend(start)
    return search


def judged(plan: Plan, uneven: bool = False) -> tuple[Estimate | None, int]:
    """What a plan is estimated to take with what XLA does before it, and its vector memory.

    With ranges that are about as long as each other, or uneven ones; no estimate for the CPU.
    """
    need = _need(plan.launches)
    if generation(plan.target) is None:
        return None, need
    found = estimate(plan, typical(plan.problem, uneven))
    return replace(found, seconds=found.seconds + around(plan)), need


def shorter(launches: tuple[Launch, ...], length: float) -> bool:
    """Whether so many instructions are not too many for what the steps of launches do."""
    return _short(products(launches), length)


def _short(multiplied: int, length: float) -> bool:
    return length <= LONGEST[min(multiplied, 2)]


def fits(plan: Plan) -> bool:
    """Whether every launch fits the vector memory that there is."""
    return _fits(plan.launches, plan.target)


def _cautious(choice: Choice) -> float:
    """Seconds, if the work takes longer than it is estimated to."""
    return max(choice.estimate.seconds, SLACK * choice.estimate.compute)


def _worth(plan: Plan, more: float) -> float:
    """By how much something of so many `more` steps must be better to be taken, not the thumb."""
    steps = WORTH_WITHIN if _within(plan) else WORTH_STEPS
    chained = steps if more > 0 else WORTH_FEWER if more < 0 else WORTH_CHAINED
    rows = WORTH_FEWER if more < 0 else WORTH_ROWS
    return (rows, WORTH, chained)[min(products(plan.launches), 2)]


def _within(plan: Plan) -> bool:
    """Whether a step runs all iterations of some loop."""
    return any(axis.place == "within" for launch in plan.launches for axis in launch.axes)


def products(launches: tuple[Launch, ...]) -> int:
    """How many products one body has at most, which wait for each other."""
    bodies = (section.body for launch in launches for section in launch.sections)
    return max((sum(1 for s in body for _ in lives.products(s)) for body in bodies), default=0)


def _need(launches: tuple[Launch, ...]) -> int:
    return max((launch.memory.vmem for launch in launches), default=0)


def _fits(launches: tuple[Launch, ...], target: Target) -> bool:
    return all(with_margin(launch.memory.vmem) <= target.vmem_physical for launch in launches)


# ---------------------------------------------------------------- what there is to choose

Options = tuple[tuple[tuple[str, ...], tuple[int, ...]], ...]
Place = tuple[int, ...]  # which size of every option


def _options(problem: Problem, plan: Plan) -> Options:
    """Loops that have one block, and the sizes it may have."""
    chosen = dict(plan.blocks)
    found: list[tuple[tuple[str, ...], tuple[int, ...]]] = []
    for names in _tied(problem):
        axes = [problem.axis(n) for n in names]
        free = all(isinstance(a.block, str) and problem.bounds(a.name) is None for a in axes)
        if free:
            found.append((names, _sizes(problem, names, plan.target)))
        else:
            found += [((n,), (chosen[n],)) for n in names]
    return tuple(found)


def _tied(problem: Problem) -> list[tuple[str, ...]]:
    """Loops that the author calls the same go over dimensions of one length: so do their blocks."""
    found: dict[object, list[str]] = {}
    for axis in problem.ir.axes:
        if axis.kind == "tile":
            bound = axis.fixed is not None or problem.bounds(axis.name) is not None
            key = axis.user, problem.extent(axis.name), bound
            found.setdefault(key, []).append(axis.name)
    return [tuple(names) for names in found.values()]


def _sizes(problem: Problem, names: tuple[str, ...], target: Target) -> tuple[int, ...]:
    length = max(whole(problem, problem.axis(n), target) for n in names)
    need = max(multiple(problem, n, target) for n in names)
    places = {use.place for n in names for use in problem.uses(n)}
    least = max(need, LEAST if 1 in places else ROWS if 2 in places else BATCH)
    most = RAGGED if any(problem.fact(n).ragged for n in names) else length
    sizes = [least << k for k in range(12) if least << k < length and least << k <= most]
    return tuple(sizes) + ((length,) if length <= WHOLE or not sizes else ())


def _split(options: Options, plan: Plan) -> dict[str, int]:
    """Blocks with which every loop has more than one tile, if it can have."""
    chosen, found = dict(plan.blocks), dict[str, int]()
    for names, sizes in options:
        cut = [s for s in sizes if s < sizes[-1]] or list(sizes)
        near = [s for s in cut if s <= chosen[names[0]]] or cut[:1]
        found |= dict.fromkeys(names, near[-1])
    return found


def _starts(problem: Problem, options: Options) -> Iterator[dict[str, int]]:
    """Contracted dimensions whole and the rest small; and everything large."""
    for most in (2 * LEAST, 8 * LEAST):
        found: dict[str, int] = {}
        for names, sizes in options:
            whole = any(n in problem.contracted for n in names)
            fit = [s for s in sizes if s <= most] or list(sizes[:1])
            found |= dict.fromkeys(names, sizes[-1] if whole else fit[-1])
        yield found


# ---------------------------------------------------------------- the search


@dataclass
class Search:
    """What was estimated so far, for one plan and its launches.

    parts     of values of the plan, which all blocks have in common
    products  of each launch: as many, whatever its blocks
    """

    base: Plan
    options: Options
    arrays: Numbers
    products: tuple[int, ...]
    parts: Parts = field(default_factory=dict)
    seen: dict[Place, Choice | None] = field(default_factory=dict)
    launches: dict[tuple[int, tuple[int, ...]], tuple[Estimate, int] | None] = field(
        default_factory=dict
    )

    def descend(self, start: Blocks) -> None:
        """Goes to the best neighbour until there is none that is better."""
        at = self.nearest(start)
        here = self.look(at)
        while True:
            near = [(n, c) for n in self.neighbours(at) if (c := self.look(n)) is not None]
            if not near:
                return
            place, choice = min(near, key=lambda pair: (pair[1].estimate.seconds, pair[0]))
            if here is not None and choice.estimate.seconds >= here.estimate.seconds:
                return
            at, here = place, choice

    def nearest(self, wanted: Blocks) -> Place:
        """Where blocks are, or those that are most like them."""
        return tuple(
            min(range(len(sizes)), key=lambda i: (abs(sizes[i] - wanted[names[0]]), i))
            for names, sizes in self.options
        )

    def blocks(self, at: Place) -> dict[str, int]:
        """The blocks at a place."""
        chosen = zip(self.options, at, strict=True)
        return {n: sizes[i] for (names, sizes), i in chosen for n in names}

    def neighbours(self, at: Place) -> Iterator[Place]:
        """One block larger or smaller, or one larger and another smaller; whole ones, too."""
        counts = [len(sizes) for _, sizes in self.options]

        def moved(*changes: tuple[int, int]) -> tuple[int, ...]:
            new = list(at)
            for place, to in changes:
                new[place] = min(max(to, 0), counts[place] - 1)
            return tuple(new)

        one = [moved((p, at[p] + d)) for p in range(len(at)) for d in (1, -1)]
        one += [moved((p, counts[p] - 1)) for p in range(len(at))]
        both = [moved((p, at[p] + 1), (q, at[q] - 1)) for p, q in permutations(range(len(at)), 2)]
        yield from (n for n in dict.fromkeys(one + both) if n != at)

    def halves(self) -> list[Choice]:
        """What is like the best so far, with one block smaller."""
        at = self.nearest(dict(ranked[0].blocks)) if (ranked := self.ranked()) else ()
        less = ((*at[:p], i - 1, *at[p + 1 :]) for p, i in enumerate(at) if i > 0)
        return [choice for place in less if (choice := self.look(place)) is not None]

    def look(self, at: Place) -> Choice | None:
        """What blocks would take; None where they do not fit, or are another structure."""
        if at not in self.seen:
            self.seen[at] = self._looked(at)
        return self.seen[at]

    def _looked(self, at: Place) -> Choice | None:
        if generation(self.base.target) is None:
            return None
        blocks = self.blocks(at)
        total, need = NOTHING, 0
        for place, launch in enumerate(self.base.launches):
            own = tuple(blocks[a.name] for a in launch.axes if a.block is not None)
            key = place, own
            if key not in self.launches:
                self.launches[key] = self._launch(place, blocks)
            found = self.launches[key]
            if found is None:
                return None
            total, need = total.plus(found[0]), max(need, found[1])
        return Choice(tuple(sorted(blocks.items())), total, need)

    def _launch(self, place: int, blocks: Blocks) -> tuple[Estimate, int] | None:
        target = self.base.target
        found = resized(self.base, self.base.launches[place], blocks)
        if found is None or not _fits((found,), target):
            return None
        guess = of_launch(found, target, self.arrays, self.parts)
        if not _short(self.products[place], guess.length):
            return None
        return guess, found.memory.vmem

    def ranked(self) -> list[Choice]:
        """Best first; of those that are close to the best, the one that needs least memory."""
        every = sorted(
            (c for c in self.seen.values() if c is not None),
            key=lambda c: (c.estimate.seconds, c.blocks),
        )
        if not every:
            return []
        close = [c for c in every if c.estimate.seconds <= CLOSE * every[0].estimate.seconds]
        least = min(map(_cautious, close))
        close = [c for c in close if _cautious(c) <= CLOSE * least]
        first = min(close, key=lambda c: (c.vmem, c.estimate.seconds, c.blocks))
        return [first, *(c for c in every if c is not first)]
