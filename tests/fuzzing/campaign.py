"""Many random kernels, each under several configs: what failed, and how much was refused."""

from __future__ import annotations

import argparse
import gc
import itertools
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context

import jax

import tilelang as tile
from tests.fuzzing import gradients
from tests.fuzzing.compose import compose, means_something, seeds_of
from tests.fuzzing.corpus import Entry, keep
from tests.fuzzing.counted import open_numbers
from tests.fuzzing.elsewhere import try_bucket, try_mesh, try_passes, try_symbols
from tests.fuzzing.program import Let, Load, Loop, Program, Store, Swap, Update, parts
from tests.fuzzing.shrink import smaller
from tests.fuzzing.strict import try_strict
from tests.fuzzing.text import source
from tests.fuzzing.trial import (
    OK,
    Outcome,
    _specs,
    block_names,
    failure,
    loaded,
    try_batched,
    try_compiler,
    try_configs,
    try_kernel,
    try_reference,
    try_text,
    try_wild,
)
from tests.fuzzing.wording import foreign
from tests.xla import compile_cheaply
from tilelang.aot import GENERATIONS
from tilelang.schedule.config import LOOP_TYPES

Run = Callable[[Program], Outcome]
BAD = ("wrong", "crash", "reference", "accepted", "uncompiled")
LAYOUTS = 6  # for each config
BATCH = 3  # calls that a batch of them is compared with
REFERENCE_BLOCKS = (1, 5, 16, 64)
ELSEWHERE = {
    "bucket": try_bucket,
    "symbols": try_symbols,
    "mesh": try_mesh,
    "passes": try_passes,
}
BLOCKS = (8, 16, 32, 64)  # one of them for each loop type, all of them over the loop types
ODD = (3, 5, 7, 12)  # that no register divides: legal where a CPU interprets


@dataclass(frozen=True)
class Plan:
    """What to do with every kernel.

    configs  how many loop types besides the default config, each in one block size
    tpu      whether the TPU compiler must take it
    strict   whether it is run in the strict interpreter, too, which is slow
    trials   how many smaller kernels to try for each failure
    """

    configs: int = 8
    tpu: bool = False
    strict: bool = False
    trials: int = 150


@dataclass(frozen=True)
class Trial:
    """What one kernel did when run one way; `smallest` still fails and is the smallest found.

    cases  calls that were compared
    """

    seed: int
    way: str
    outcome: Outcome
    smallest: Program | None = None
    cases: int = 0

    @property
    def entry(self) -> Entry | None:
        """What the corpus keeps of a failure."""
        if self.smallest is None or self.way.startswith("tpu"):
            return None
        way = self.way.removeprefix("Config(").removesuffix(")")
        seeds = tuple(1000 * self.seed + n for n in range(LAYOUTS))
        failed = f"{self.outcome.kind}: {self.outcome.detail}"
        return Entry(self.smallest, "" if way == "default" else way, seeds, failed)

    def __str__(self) -> str:
        text = f"seed {self.seed}, {self.way}: {self.outcome.kind.upper()} {self.outcome.detail}"
        return f"{text}\n\n{source(self.smallest)}" if self.smallest else text


def explore(seed: int, plan: Plan) -> list[Trial]:
    """Everything that the plan says, for the kernel of one seed."""
    program, shown = compose(seed).program, set()
    found = []
    with loaded(program):
        for way, outcome, run, cases in _tried(program, seed, plan):
            outcome = _worded(program, outcome)
            new = outcome.kind in BAD and outcome.label not in shown
            shown |= {outcome.label}
            small = _smallest(program, run, outcome, plan.trials) if new and plan.trials else None
            found.append(Trial(seed, way, outcome, small, cases if outcome == OK else 0))
    jax.clear_caches()
    return found


def _worded(program: Program, outcome: Outcome) -> Outcome:
    """A refusal in words that are not the author's is a fault, too."""
    names = foreign(outcome.detail, program) if outcome.kind == "refused" else ()
    said = f"{', '.join(sorted(names))}: names that nobody wrote, in: {outcome.detail}"
    return replace(outcome, kind="crash", detail=said) if names else outcome


def _tried(program: Program, seed: int, plan: Plan) -> Iterator[tuple[str, Outcome, Run, int]]:
    """Each way to run a kernel: its name, what came of it, how to do that again, and its cases."""
    seeds = [1000 * seed + n for n in range(LAYOUTS)]
    blocks = REFERENCE_BLOCKS
    reference = partial(try_reference, seeds=seeds[:2], blocks=blocks)
    yield "reference", reference(program), reference, 2 * len(blocks)
    configs = [None, *_configs(program, random.Random(seed), plan.configs)]
    for config, outcome in zip(configs, try_configs(program, configs, seeds), strict=True):
        again = partial(try_kernel, config=config, seeds=seeds)
        yield str(config or "default"), outcome, again, len(seeds)
    target = f"tpu:{GENERATIONS[seed % len(GENERATIONS)]}"
    printed = partial(try_text, target=target)
    yield "text", printed(program), printed, 0
    if open_numbers(program):  # whose results are those of their blocks: others choose their own
        return
    wrong = partial(try_wild, config=None, seeds=seeds[:3])
    yield "wild", wrong(program), wrong, 3
    together = partial(try_batched, seeds=seeds[:BATCH])
    yield "batched", together(program), together, BATCH
    for way, ask in ELSEWHERE.items():
        again = partial(ask, seeds=seeds[:BATCH])
        yield way, again(program), again, BATCH
    if plan.strict:
        config = next((c for c in configs if c and c.windows == "cut"), configs[-1])
        strictly = partial(try_strict, config=config, seeds=seeds[:2])
        yield f"strict {config}", strictly(program), strictly, 4
    if plan.tpu:
        compiled = partial(try_compiler, target=target)
        yield target, compiled(program), compiled, 1


def _configs(program: Program, rng: random.Random, count: int) -> Iterator[tile.Config]:
    """Small blocks in every loop type, some with another form of the steps."""
    tiles = block_names(program)
    forms: list[dict[str, str]] = [{"loop_type": name} for name in LOOP_TYPES]
    forms += [{"loop_type": "outer_pipeline", "steps": "rectangle"}, {"windows": "exact"}]
    if count and tiles:  # by a choice of its own, so that the others are what they were
        yield tile.Config(dict.fromkeys(tiles, random.Random(source(program)).choice(ODD)))
    sizes = rng.sample(BLOCKS, len(BLOCKS)) * 2
    chosen = rng.sample(list(zip(forms, sizes, strict=True)), min(count, len(forms)))
    for form, size in chosen:
        yield tile.Config(dict.fromkeys(tiles, size), **form)
    for windows in _FORMS if count and tiles else ():
        yield from _legal(program, list(_FORMS[windows](program, tiles)), rng)
    if count:  # refused unless rows of a table, or a loop, are such as cores may share
        yield tile.Config(
            dict.fromkeys(tiles, rng.choice(BLOCKS)), loop_type="outer_pipeline", cores=2
        )
    grids = sorted(a.loop for a in program.axes if a.kind == "grid")
    if grids and count:  # refused unless the loop is parallel and short
        yield tile.Config(dict.fromkeys(tiles, rng.choice(BLOCKS)), within=[rng.choice(grids)])
        blocks = {**dict.fromkeys(tiles, rng.choice(BLOCKS)), rng.choice(grids): 2}
        yield tile.Config(blocks)  # refused unless it is a loop over groups of rows
    yield from _turns(program, tiles, rng, count)
    yield from _moving(program, tiles, rng, count)


def _legal(
    program: Program, configs: list[tile.Config], rng: random.Random
) -> Iterator[tile.Config]:
    """One of these that is no refusal; none if all are."""
    with loaded(program) as kernel:
        for config in rng.sample(configs, len(configs)):
            try:
                kernel.lower(*_specs(program), config=config)
            except Exception as error:  # as in a call
                if failure(error).kind == "refused":
                    continue
            yield config
            return


def _cut(program: Program, tiles: Sequence[str]) -> Iterator[tile.Config]:
    """Legal where rows of a matrix lie at other positions than tiles, which are more rows."""
    heads = [[a.loop] for a in program.axes if a.kind == "grid" and not a.offsets]
    for block, within in itertools.product((8, 16, 32), (None, [], *heads)):
        blocks = dict.fromkeys(tiles, block)
        yield tile.Config(blocks, loop_type="outer_pipeline", windows="cut", within=within)


def _flowing(program: Program, tiles: Sequence[str]) -> Iterator[tile.Config]:
    """Legal where blocks divide the rows of loops inside of a step, of one group or of all."""
    grids = {a.loop: program.turns(a) for a in program.axes if a.kind == "grid"}
    for block, groups in itertools.product((8, 16), ({}, *({n: s} for n, s in grids.items()))):
        blocks = {**dict.fromkeys(tiles, block), **groups}
        yield tile.Config(blocks, loop_type="fori_loop", windows="flowing")


def _pieces(program: Program, tiles: Sequence[str]) -> Iterator[tile.Config]:
    """Legal where something is made of each row of a product, in whole pieces."""
    return (tile.Config(dict.fromkeys(tiles, 16), pieces=rows) for rows in (4, 6, 8))


def _tiled(program: Program, tiles: Sequence[str]) -> Iterator[tile.Config]:
    """Legal where all iterations of a loop compute alike with rows of their own."""
    around = {a.of for a in program.axes}
    rows = [a for a in program.axes if a.kind == "grid" and a.name not in around]
    for block, axis in itertools.product((8, 16), rows):
        for own in (block, program.turns(axis)):
            yield tile.Config({**dict.fromkeys(tiles, block), axis.loop: own})


# which few programs have
_FORMS = {"cut": _cut, "flowing": _flowing, "pieces": _pieces, "tiled": _tiled}


def _moving(
    program: Program, tiles: Sequence[str], rng: random.Random, count: int
) -> Iterator[tile.Config]:
    """Blocks of groups, of each loop over groups that does nothing but to store rows."""
    for loop in (p for p in program.body if isinstance(p, Loop) and count):
        rows = loop.body[0]
        if isinstance(rows, Loop) and len(loop.body) == 1 and _copies(rows):
            name = program.axis(loop.axis).loop
            for groups in rng.sample((1, 3, 4, 8, 16), 3):
                yield tile.Config({**dict.fromkeys(tiles, rng.choice(BLOCKS)), name: groups})


def _copies(loop: Loop) -> bool:
    match loop.body:
        case (Store(value=Load()),):
            return True
        case _:
            return False


def _turns(
    program: Program, tiles: Sequence[str], rng: random.Random, count: int
) -> Iterator[tile.Config]:
    """Several turns in one of each loop that only carries values, in any type of loop."""
    for loop in (p for p in parts(program.body) if isinstance(p, Loop) and count):
        plain = all(isinstance(s, Let | Update | Swap) for s in loop.body)
        if (axis := program.axis(loop.axis)).kind == "grid" and plain:
            blocks = dict.fromkeys(tiles, rng.choice(BLOCKS))
            for own, form in ((2, None), (rng.choice((3, 4, 8)), rng.choice(LOOP_TYPES))):
                yield tile.Config({**blocks, axis.loop: own}, loop_type=form)


def replayed(entry: Entry) -> Outcome:
    """What a program of the corpus does today."""
    match entry.way:
        case "reference":
            return try_reference(entry.program, entry.seeds[:2], REFERENCE_BLOCKS)
        case "wild":
            return try_wild(entry.program, None, entry.seeds)
        case "batched":
            return try_batched(entry.program, entry.seeds[:BATCH])
        case "text":
            return try_text(entry.program, f"tpu:{GENERATIONS[0]}")
        case "bucket" | "symbols" | "mesh" | "passes":
            return ELSEWHERE[entry.way](entry.program, entry.seeds[:BATCH])
    return try_kernel(entry.program, entry.config, entry.seeds)


def _smallest(program: Program, run: Run, outcome: Outcome, trials: int) -> Program:
    """A smaller kernel that fails in the same way."""

    def fails(candidate: Program) -> bool:
        return means_something(candidate) and run(candidate).label == outcome.label

    return smaller(program, fails, trials)


def campaign(seeds: Sequence[int], plan: Plan, jobs: int) -> Iterator[list[Trial]]:
    """The trials of every seed, in order."""
    if jobs == 1:
        yield from map(partial(explore, plan=plan), seeds)
        return
    context = get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_for_many) as pool:
        yield from pool.map(partial(explore, plan=plan), seeds)


def _for_many() -> None:
    """Cheap compiles that are not kept on disk, since no random kernel is compiled twice.

    What is there now stays: looking through it again and again is a sixth of all tracing.
    """
    compile_cheaply()
    jax.config.update("jax_enable_compilation_cache", False)
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def main(argv: Sequence[str]) -> int:
    """Prints every failure as it is found and the counts at the end; 1 if anything failed."""
    options = _options(argv)
    _for_many()
    plan = Plan(options.configs, options.tpu, options.strict, options.trials)
    seeds = seeds_of(options.seed, options.count, options.having)
    if options.what == "gradients":
        return gradients.campaign(seeds)
    trials: list[Trial] = []
    start = time.perf_counter()
    for number, found in enumerate(campaign(seeds, plan, options.jobs), 1):
        trials += found
        for trial in found:
            if trial.outcome.kind in BAD:
                print(f"{trial}\n", flush=True)
            if options.keep and trial.entry is not None:
                print(f"kept in {keep(trial.entry)}\n", flush=True)
        if number % 50 == 0:
            print(f"{number} kernels, {time.perf_counter() - start:.0f} s", flush=True)
    print("\n".join(summary(trials)))
    print(f"seeds {seeds[0]} to {seeds[-1]}, {time.perf_counter() - start:.0f} s")
    return int(any(t.outcome.kind in BAD for t in trials))


def summary(trials: Sequence[Trial]) -> list[str]:
    """How many of what, and why kernels were refused."""
    kinds = Counter(t.outcome.kind for t in trials)
    kernels = len({t.seed for t in trials})
    lines = [f"{kernels} kernels, {len(trials)} trials: {kinds['ok']} right"]
    lines[0] += "".join(f", {kinds[k]} {k}" for k in (*BAD, "refused"))
    lines[0] += f"; {sum(t.cases for t in trials)} cases"
    for name, among in (("default config", True), ("other configs", False)):
        own = [t for t in trials if t.way not in ("reference", "wild", "batched", "text")]
        own = [t for t in own if (t.way == "default") == among and t.outcome.kind != "same"]
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
    parser.add_argument("what", choices=["kernels", "gradients"])
    parser.add_argument("--count", type=int, default=100, help="kernels (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first (default %(default)s)")
    parser.add_argument("--having", default="", help="only programs with this change, e.g. viewed")
    parser.add_argument("--configs", type=int, default=8, help="besides the default (%(default)s)")
    parser.add_argument("--trials", type=int, default=150, help="for making a failure smaller")
    parser.add_argument("--keep", action="store_true", help="add failures to the corpus")
    parser.add_argument("--jobs", type=int, default=1, help="processes (default %(default)s)")
    parser.add_argument("--strict", action="store_true", help="in the strict interpreter, too")
    parser.add_argument("--tpu", action="store_true", help="compile each for a TPU generation, too")
    return parser.parse_args(argv)
