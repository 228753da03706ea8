"""Many random kernels, each under several configs: what failed, and how much was refused."""

from __future__ import annotations

import argparse
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context

import jax

import tilelang as tile
from tests.fuzzing.draw import draw
from tests.fuzzing.inputs import case
from tests.fuzzing.program import Program, loops
from tests.fuzzing.shrink import smaller
from tests.fuzzing.text import source
from tests.fuzzing.trial import (
    Outcome,
    block_names,
    try_compiler,
    try_kernel,
    try_reference,
)
from tilelang.aot import GENERATIONS
from tilelang.schedule.config import LOOP_TYPES, STEPS

Run = Callable[[Program], Outcome]
BAD = ("wrong", "crash", "reference", "uncompiled")
STATIC = ("grid", "unroll")  # loop types that no ragged loop can have
LAYOUTS = 6  # for each config


@dataclass(frozen=True)
class Plan:
    """What to do with every kernel: how many configs besides the default, and whether the TPU
    compiler must take it; how many smaller kernels to try for each failure."""

    configs: int = 2
    tpu: bool = False
    trials: int = 150


@dataclass(frozen=True)
class Trial:
    """What one kernel did when run one way; `smallest` is the source of one that still fails."""

    seed: int
    way: str
    outcome: Outcome
    smallest: str = ""

    def __str__(self) -> str:
        text = f"seed {self.seed}, {self.way}: {self.outcome.kind.upper()} {self.outcome.detail}"
        return f"{text}\n\n{self.smallest}" if self.smallest else text


def explore(seed: int, plan: Plan) -> list[Trial]:
    """Everything that the plan says, for the kernel of one seed."""
    program, shown = draw(seed), set()
    found = []
    for way, run in _ways(program, seed, plan):
        outcome = run(program)
        new = outcome.kind in BAD and outcome.label not in shown
        shown |= {outcome.label}
        smallest = _smallest(program, run, outcome, plan.trials) if new and plan.trials else ""
        found.append(Trial(seed, way, outcome, smallest))
    jax.clear_caches()
    return found


def _ways(program: Program, seed: int, plan: Plan) -> Iterator[tuple[str, Run]]:
    """What to do with a kernel, by name."""
    rng, seeds = random.Random(seed), [1000 * seed + n for n in range(LAYOUTS)]
    yield "reference", partial(_reference, seed=seeds[0])
    for config in (None, *_configs(program, rng, plan.configs)):
        yield str(config or "default"), partial(try_kernel, config=config, seeds=seeds)
    if plan.tpu:
        target = f"tpu:{GENERATIONS[seed % len(GENERATIONS)]}"
        yield target, partial(try_compiler, target=target)


def _reference(program: Program, seed: int) -> Outcome:
    return try_reference(program, seed, 1 + seed % 23)


def _configs(program: Program, rng: random.Random, count: int) -> Iterator[tile.Config]:
    """Other configs: small blocks, with a loop type or a form of the steps."""
    open_loops, tiles = loops(program), block_names(program)
    ragged = any(a.offsets for a in program.axes if a.name in open_loops)
    kinds = [name for name in LOOP_TYPES if not ragged or name not in STATIC]
    forms = [{}, *({"loop_type": name} for name in kinds)]
    forms += [{"loop_type": "outer_pipeline", "steps": s} for s in STEPS] if ragged else []
    for form in rng.sample(forms, min(count, len(forms))):
        yield tile.Config({name: rng.choice((8, 16, 16, 32)) for name in tiles}, **form)


def _smallest(program: Program, run: Run, outcome: Outcome, trials: int) -> str:
    """The source of a smaller kernel that fails in the same way."""

    def fails(candidate: Program) -> bool:
        return means_something(candidate) and run(candidate).label == outcome.label

    return source(smaller(program, fails, trials))


def means_something(program: Program) -> bool:
    """Whether a program can be printed and evaluated: one that was made smaller may not be."""
    try:
        source(program)
        case(program, 0)
    except (ValueError, KeyError, IndexError):
        return False
    return True


def campaign(seeds: Sequence[int], plan: Plan, jobs: int) -> Iterator[list[Trial]]:
    """The trials of every seed, in order."""
    if jobs == 1:
        yield from map(partial(explore, plan=plan), seeds)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(partial(explore, plan=plan), seeds)


def main(argv: Sequence[str]) -> int:
    """Prints every failure as it is found and the counts at the end; 1 if anything failed."""
    options = _options(argv)
    plan = Plan(options.configs, options.tpu, options.trials)
    seeds = range(options.seed, options.seed + options.count)
    trials: list[Trial] = []
    start = time.perf_counter()
    for number, found in enumerate(campaign(seeds, plan, options.jobs), 1):
        trials += found
        for trial in found:
            if trial.outcome.kind in BAD:
                print(f"{trial}\n", flush=True)
        if number % 50 == 0:
            print(f"{number} kernels, {time.perf_counter() - start:.0f} s", flush=True)
    print("\n".join(summary(trials)))
    print(f"seeds {seeds.start} to {seeds.stop - 1}, {time.perf_counter() - start:.0f} s")
    return int(any(t.outcome.kind in BAD for t in trials))


def summary(trials: Sequence[Trial]) -> list[str]:
    """How many of what, and why kernels were refused."""
    kinds = Counter(t.outcome.kind for t in trials)
    kernels = len({t.seed for t in trials})
    lines = [f"{kernels} kernels, {len(trials)} trials: {kinds['ok']} right"]
    lines[0] += "".join(f", {kinds[k]} {k}" for k in (*BAD, "refused"))
    for name, among in (("default config", True), ("other configs", False)):
        own = [t for t in trials if t.way != "reference" and (t.way == "default") == among]
        refused = [t for t in own if t.outcome.kind == "refused"]
        lines.append(f"refused under the {name}: {len(refused)} of {len(own)}")
        reasons = Counter(_general(t.outcome.detail) for t in refused)
        example = {_general(t.outcome.detail): t.seed for t in refused}
        lines += [f"  {n:5} {why} (seed {example[why]})" for why, n in reasons.most_common(12)]
    return lines


def _general(detail: str) -> str:
    """A reason without the names of tensors and the numbers in it."""
    return re.sub(r"\b([a-z]+_?)?\d+\b", lambda found: (found[1] or "") + "*", detail)


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzzing")
    parser.add_argument("what", choices=["kernels"])
    parser.add_argument("--count", type=int, default=100, help="kernels (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first (default %(default)s)")
    parser.add_argument("--configs", type=int, default=2, help="besides the default (%(default)s)")
    parser.add_argument("--trials", type=int, default=150, help="for making a failure smaller")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default %(default)s)")
    parser.add_argument("--tpu", action="store_true", help="compile each for a TPU generation, too")
    return parser.parse_args(argv)
