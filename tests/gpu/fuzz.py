"""python -m tests.gpu.fuzz --count N --seed S: random kernels in Triton's interpreter, or on a GPU.

The random kernels of tests/fuzzing, under the default config and a few others, on adversarial
layouts, compared with a float64 evaluation that does not know the compiler, and on wrong offsets
and indices with `Kernel.reference`.  `memory.watched` looks on.

The interpreter takes milliseconds for each statement that it runs: programs and blocks that would
run too many are made smaller and larger, and what takes longer than `--limit` seconds is cut off
and counted.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import math
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from tests.gpu import machine  # isort: skip  (before anything imports Triton)
import numpy as np

import tilelang as tile
from tests.fuzzing.campaign import _general, _smallest
from tests.fuzzing.compose import compose, means_something, seeds_of
from tests.fuzzing.counted import cut, open_numbers
from tests.fuzzing.inputs import Case, case, wild
from tests.fuzzing.program import Axis, If, Loop, Program, Statement
from tests.fuzzing.shrink import sized
from tests.fuzzing.text import source
from tests.fuzzing.trial import (
    OK,
    Outcome,
    _outcome,
    _specs,
    difference,
    failure,
    loaded,
    specified,
)

BLOCKS = (1, 4, 5, 8, 12, 16, 32)
PERSISTENT = (None, None, 1, 3, True)
TARGETS = (machine.TARGET, "cuda:sm100")  # where loops read what does not move, and before them
# Fields of a config that some programs have no place for, and how they are refused.
NO_PLACE = (
    ("split", "split="), ("worklist", "no loop of"), ("indexing", "in boxes"),
)  # fmt: skip
MOST_RUNS = 200  # of statements, in one call


class CutOff(BaseException):
    """A program has had its time; not an Exception, which trials take for the kernel's."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises CutOff after so many seconds of this process's own time."""

    def cut(*_: Any) -> None:
        raise CutOff(f"after {seconds:g} s")

    before = signal.signal(signal.SIGPROF, cut)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def runs(program: Program, blocks: dict[str, int]) -> int:
    """How many statements one call runs, at most; a tile without a block is taken in one piece."""

    def trips(axis: Axis) -> int:
        if axis.kind == "grid":
            return program.turns(axis)
        groups = program.axis(axis.of).size if axis.offsets and axis.of else 0
        own = [block for name, block in blocks.items() if _axis(program, name) == axis]
        return math.ceil(axis.size / min(own, default=axis.size)) + groups

    def inside(body: tuple[Statement, ...]) -> int:
        return sum(1 + more(s) for s in body)

    def more(statement: Statement) -> int:
        match statement:
            case Loop(axis, body):
                return trips(program.axis(axis)) * inside(body)
            case If():
                return inside(statement.body) + inside(statement.other)
            case _:
                return 0

    return inside(program.body)


def _axis(program: Program, name: str) -> Axis | None:
    """The axis of a block: loops over one axis are called t, t_1, t_2."""
    stem = name.rpartition("_")[0] or name
    return next((a for a in program.axes if a.name in (name, stem)), None)


def light(program: Program) -> Program:
    """The program with shorter grids, where it would run too many statements in one piece."""
    while runs(program, {}) > MOST_RUNS:
        found = next(_shorter(program), None)
        if found is None:
            return program
        program = found
    return program


def _shorter(program: Program) -> Iterator[Program]:
    """The program with one grid halved, the longest first; only those that mean something."""
    for place, axis in sorted(enumerate(program.axes), key=lambda a: -a[1].size):
        if axis.offsets or axis.length or axis.kind != "grid" or axis.size < 4:
            continue
        half = replace(axis, size=axis.size // 2)
        axes = (*program.axes[:place], half, *program.axes[place + 1 :])
        found = sized(replace(program, axes=axes))
        if means_something(found):
            yield found


def _light_blocks(program: Program, blocks: dict[str, int]) -> dict[str, int]:
    """Blocks that are doubled, the smallest first, until a call runs few enough statements."""
    sizes = {name: axis.size for name in blocks if (axis := _axis(program, name))}
    while runs(program, blocks) > MOST_RUNS:
        able = [n for n, block in blocks.items() if block < sizes.get(n, 0)]
        if not able:
            return blocks
        name = min(able, key=lambda n: blocks[n])
        blocks = {**blocks, name: blocks[name] * 2}
    return blocks


def configs(program: Program, rng: random.Random, count: int) -> Iterator[tile.Config | None]:
    """The default, then random blocks with a worklist of each form, persistent or not."""
    yield None
    try:
        with loaded(program) as kernel:
            chosen = kernel.default_config(*_specs(program), target=machine.TARGET)
    except tile.TileError:
        return
    ragged = any(a.offsets or a.length or a.until for a in program.axes)
    for _ in range(count):
        blocks = {name: rng.choice(BLOCKS) for name, _ in chosen.blocks}
        yield tile.Config(
            _light_blocks(program, blocks),
            persistent=rng.choice(PERSISTENT),
            worklist=rng.choice((None, "search", "table")) if ragged else None,
            l2_group=rng.choice((None, 1, 2, 3)),
            split=rng.choice((None, None, 2, 3)),
            indexing=rng.choice((None, "descriptor")),
        )


def run(kernel: tile.Kernel, program: Program, config: Any, target: str) -> Any:
    """The host function of the generated module; what a kernel has no place for is not asked."""
    while True:
        try:
            lowered = kernel.lower(*_specs(program), config=config, target=target)
            return machine.host(lowered.source)
        except tile.PlanError as error:
            found = [n for n, r in NO_PLACE if r in error.what and config and getattr(config, n)]
            if not found:
                raise
            config = replace(config, **{found[0]: None})


@functools.lru_cache(16)
def cases_of(program: Program, seeds: Sequence[int]) -> tuple[tuple[int, Case], ...]:
    """The calls of these seeds that reach outside of no array: those are not checked here."""
    cases = [(s, case(program, s)) for s in seeds]
    return tuple((s, c) for s, c in cases if not c.illegal)


def try_gpu(
    program: Program,
    config: tile.Config | None,
    seeds: Sequence[int],
    target: str = machine.TARGET,
) -> Outcome:
    """The first thing that is wrong over these arguments."""
    with loaded(program) as kernel:
        try:
            known = config or kernel.default_config(*_specs(program), target=target)
            host = run(kernel, program, config, target)
        except Exception as error:
            return failure(error)
        cases = cases_of(cut(program, dict(known.blocks)), tuple(seeds))
        for seed, given in cases:
            found = _once(program, host, given, seed)
            if found != OK:
                return found
    return OK


def _once(program: Program, host: Any, given: Case, seed: int) -> Outcome:
    if given.depends:
        return Outcome("accepted", f"the result depends on the blocks; {given.layout}", seed)
    values = [np.array(a) for a in given.arguments.values()]
    (made, found), faults = _watched(host, values, seed)
    if found != OK:
        return found
    if faults:
        return Outcome("memory", f"{faults[0]}; {given.layout}", seed)
    for tensor, result in zip(program.results, made, strict=True):
        problem = difference(tensor, np.asarray(result), given.results[tensor.name])
        if problem:
            return Outcome("wrong", f"{tensor.name}: {problem}; {given.layout}", seed)
    return OK


def _watched(host: Any, values: list[np.ndarray], seed: int) -> tuple[Any, list[str]]:
    with machine.watched(seed) as faults:
        return _outcome(host, values), faults


def try_wild(
    program: Program,
    config: tile.Config | None,
    seeds: Sequence[int],
    target: str = machine.TARGET,
) -> Outcome:
    """Whether wrong offsets and indices, unchecked, touch nothing outside of the arrays."""
    with loaded(program) as kernel:
        try:
            host = run(kernel, program, config, target)
        except Exception as error:
            return failure(error)
        for seed in seeds:
            drawn = wild(program, seed)
            if drawn is None or open_numbers(program):
                return Outcome("same")
            arguments, words = drawn
            values = list(arguments.values())
            (made, found), faults = _watched(host, [v.copy() for v in values], seed)
            if found != OK:
                return Outcome(found.kind, f"{found.detail}; {words}", seed)
            outside = [f for f in faults if f.startswith("outside")]
            if outside:
                return Outcome("memory", f"{outside[0]}; {words}", seed)
            expected, refusal = _outcome(kernel.reference, [v.copy() for v in values])
            if refusal != OK:
                continue
            for tensor, result, exact in zip(program.results, made, expected, strict=False):
                known = specified(tensor, np.asarray(exact))
                problem = difference(tensor, np.asarray(result), known)
                if problem:
                    return Outcome(
                        "wrong", f"not as reference: {tensor.name}: {problem}; {words}", seed
                    )
    return OK


@dataclass
class Tally:
    """What came of the programs so far; `refused` counts by reason, `seeds` has one for each."""

    kinds: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    seeds: dict[str, int] = field(default_factory=dict)
    cases: int = 0
    bad: int = 0
    cut_off: list[int] = field(default_factory=list)

    def add(self, seed: int, word: str, outcome: Outcome, cases: int) -> None:
        self.kinds[f"{word} {outcome.kind}".strip()] += 1
        self.cases += cases if outcome == OK else 0
        self.bad += outcome.kind not in ("ok", "same", "refused")
        if outcome.kind == "refused":
            reason = _general(outcome.detail)
            self.refused[reason] += 1
            self.seeds.setdefault(reason, seed)

    def __str__(self) -> str:
        kinds = ", ".join(f"{n} {kind}" for kind, n in self.kinds.most_common())
        lines = [f"{self.cases} cases right, {self.bad} trials wrong; trials: {kinds}"]
        lines += [f"  cut off: seeds {self.cut_off}"] if self.cut_off else []
        counted = self.refused.most_common()
        lines += [f"  {n:5} {why} (seed {self.seeds[why]})" for why, n in counted]
        return "\n".join(lines)


def explore(seed: int, options: argparse.Namespace, tally: Tally) -> None:
    """The program of one seed in every way; prints each kind of failure once, made smaller."""
    program, rng, shown = light(compose(seed).program), random.Random(seed), set()
    seeds = [1000 * seed + n for n in range(options.layouts)]
    chosen = list(configs(program, rng, options.configs))
    targets = [random.Random(f"{seed} {n}").choice(TARGETS) for n in range(len(chosen))]
    pairs = list(zip(chosen, targets, strict=True))
    ways = [(t, c, partial(try_gpu, config=c, seeds=seeds, target=t)) for c, t in pairs]
    config, target = pairs[-1]
    attempt = partial(try_wild, config=config, seeds=seeds, target=target)
    ways += [(f"wild {target}", config, attempt)]
    for word, config, attempt in ways:
        outcome = attempt(program)
        tally.add(seed, word, outcome, len(seeds))
        if outcome.kind in ("ok", "same", "refused") or outcome.label in shown:
            continue
        shown.add(outcome.label)
        way = "default" if config is None else config.to_json()
        print(f"seed {seed} {word} {way}: {outcome.kind.upper()} {outcome.detail}", flush=True)
        if options.trials:
            print(source(_smallest(program, attempt, outcome, options.trials)), flush=True)


def main(argv: Sequence[str]) -> int:
    """Prints every failure as it is found and the counts at the end; 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.fuzz")
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--having", default="", help="only programs with this change, e.g. viewed")
    parser.add_argument("--configs", type=int, default=2, help="besides the default")
    parser.add_argument("--layouts", type=int, default=3, help="for each config")
    parser.add_argument("--limit", type=float, default=60, help="seconds for each program")
    parser.add_argument("--trials", type=int, default=0, help="for making a failure smaller")
    options = parser.parse_args(argv)
    start, tally = time.perf_counter(), Tally()
    for number, seed in enumerate(seeds_of(options.seed, options.count, options.having), 1):
        try:
            with time_limit(options.limit):
                explore(seed, options, tally)
        except CutOff as cut:
            tally.kinds["cut off"] += 1
            tally.cut_off.append(seed)
            print(f"seed {seed}: cut off {cut}", flush=True)
        if number % 10 == 0:
            print(f"{number} programs, {time.perf_counter() - start:.0f} s: {tally}", flush=True)
    print(f"{options.count} programs from seed {options.seed}: {tally}")
    return int(tally.bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
