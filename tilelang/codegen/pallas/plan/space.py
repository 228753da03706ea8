"""space(problem, target) -> Candidate...: every legal config, those that are estimated best first.

The default's form is one of several.  Each has the blocks that the default is chosen from, and its
search goes on from the best to their neighbours.  What is guessed by resizing a plan is planned,
and estimated again, before it is given away:

    guesses   12 us   14 us   15 us
    planned   13 us                      it is given away before 14 us are planned
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from math import inf

from tilelang.codegen.pallas.target import Target
from tilelang.schedule.blocks import named
from tilelang.schedule.candidate import Candidate
from tilelang.schedule.config import LOOP_TYPES, Config
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import allowed

from .estimate import rank
from .forms import Form, formed
from .one_hots import one_hots
from .search import config_of, plan
from .types import Plan

BUFFERS = (3, 4)  # besides two: four are what `in_flight` takes where copies are waited for
UNKNOWN = 1.05  # a guess; more buffers take memory: what is as good without them comes first


@dataclass(frozen=True, order=True)
class _Open:
    """A config that waits, those of the least guess first, then simple ones, then older ones.

    at     which blocks of its form; None for one that only differs from another in its extras
    found  what is known since it was planned
    """

    seconds: float
    extras: int
    number: int
    config: Config = field(compare=False)
    form: int = field(compare=False, default=0)
    at: rank.Place | None = field(compare=False, default=None)
    found: Candidate | None = field(compare=False, default=None)


@dataclass
class _Waiting:
    """Configs that were not given away yet, and what was met so far."""

    problem: Problem
    forms: tuple[tuple[Form, rank.Search], ...]
    heap: list[_Open] = field(default_factory=list)
    places: set[tuple[int, rank.Place]] = field(default_factory=set)
    configs: set[Config] = field(default_factory=set)
    planned: set[object] = field(default_factory=set)
    count: int = 0

    def push(self, seconds: float, extras: int, config: Config, form: int = 0,
             at: rank.Place | None = None) -> None:  # fmt: skip
        self.count += 1
        heapq.heappush(self.heap, _Open(seconds, extras, self.count, config, form, at))

    def visit(self, number: int, at: rank.Place) -> None:
        """Lets blocks of a form wait, once."""
        if (number, at) not in self.places:
            self.places.add((number, at))
            form, search = self.forms[number]
            guess, blocks = search.look(at), named(self.problem.ir, search.blocks(at))
            seconds = inf if guess is None else guess.estimate.seconds
            self.push(seconds, 0, _with(form, blocks), number, at)


def space(problem: Problem, target: Target) -> Iterator[Candidate]:
    """The default is among them; without an estimate, it is the first.

    Raises PlanError where even that is refused.
    """
    problem = one_hots(problem, target)
    default = allowed(plan(problem, Config(), target))
    forms = tuple(_forms(problem, target))
    waiting = _Waiting(problem, tuple((f, _searched(f)) for f in forms))
    waiting.push(-inf, 0, config_of(default))
    for number, (form, search) in enumerate(waiting.forms):
        for at in (*search.seen, search.nearest(dict(form.plan.blocks))):
            waiting.visit(number, at)
    while waiting.heap:
        least = heapq.heappop(waiting.heap)
        if least.found is not None:
            yield least.found
        else:
            _look(waiting, least, target)


def _look(waiting: _Waiting, least: _Open, target: Target) -> None:
    """Plans a config that waits, and lets it wait for its turn by its own estimate."""
    if least.at is not None:
        for near in waiting.forms[least.form][1].neighbours(least.at):
            waiting.visit(least.form, near)
    if least.config in waiting.configs:
        return
    waiting.configs.add(least.config)
    made = _made(waiting.problem, least.config, target)
    if made is None or made.launches in waiting.planned:
        return
    waiting.planned.add(made.launches)
    guess, memory = rank.judged(made)
    seconds = None if guess is None else guess.seconds
    found = Candidate(least.config, seconds, memory, rank.provable(made))
    place = least.seconds if seconds is None else seconds
    heapq.heappush(waiting.heap, replace(least, seconds=place, found=found))
    for config in _more(least.config, made) if not least.extras else ():
        waiting.push(place * UNKNOWN, 1, config)
    for config in _of_groups(least.config, made) if not least.extras else ():
        waiting.push(place, 0, config)


def _forms(problem: Problem, target: Target) -> Iterator[Form]:
    """The ways in which the loops can run, each once; the default's first."""
    ragged = any(fact.ragged for fact in problem.facts.axes)
    loops = [a.name for a in problem.ir.axes if a.kind == "grid"]
    inside = tuple(n for n in loops if problem.fact(n).kind == "parallel")
    withins = (None, (), *((n,) for n in inside), inside) if inside else (None,)
    steps = (None, "rectangle") if ragged else (None,)
    seen = set[object]()
    for within, step, loop_type in product(dict.fromkeys(withins), steps, (None, *LOOP_TYPES)):
        found = formed(problem, Config(loop_type=loop_type, within=within, steps=step), target)
        if isinstance(found, Form) and found.plan.launches not in seen:
            seen.add(found.plan.launches)
            yield found


def _searched(form: Form) -> rank.Search:
    return rank.searched(form.problem, form.plan, form.resized)


def _with(form: Form, blocks: dict[str, int]) -> Config:
    used = form.plan.config
    return Config(blocks, loop_type=used.loop_type, within=used.within, steps=used.steps)


def _made(problem: Problem, config: Config, target: Target) -> Plan | None:
    found = plan(problem, config, target)
    return found if isinstance(found, Plan) and rank.fits(found) else None


def _of_groups(config: Config, made: Plan) -> Iterator[Config]:
    """Half and twice as many groups in a step, and rows of them: no search resizes these."""
    if not made.groups:
        return
    blocks, groups = dict(config.blocks), {made.ir.axis(name).user for name, _ in made.groups}
    rows = {*blocks} - groups - {n for n in blocks if not made.problem.fact(n).ragged}
    for names in (groups & {*blocks}, rows):
        for change in (lambda size: size // 2, lambda size: size * 2):
            sizes = {name: max(change(blocks[name]), 1) for name in names}
            if sizes:
                yield replace(config, blocks=tuple(sorted({**blocks, **sizes}.items())))


def _more(config: Config, made: Plan) -> Iterator[Config]:
    """The same with more blocks in flight, or on one core."""
    yield from (replace(config, buffers=count) for count in BUFFERS)
    if made.target.cores > 1:
        yield replace(config, cores=1)
