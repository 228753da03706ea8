"""python -m tests.fuzz --layouts N --seed S: random ragged layouts against float64, in bulk.

A program is a kernel with a dtype, shapes and a config.  It is compiled once and then runs on many
layouts, drawn from the strata of `tests.ragged` in turn.  Rows in no group hold NaN and Inf.  Every
result must keep the error policy of `tests.numerics`, and rows in no group must be exactly zero.
Prints the number of layouts and of wrong ones per program; the exit status is 1 if any is wrong.

`programs()` is what there is to run: every ragged example in every dtype, over several shapes and
configs.  A config that an example cannot honour is left out, except for the default one and for
small blocks: those must run.  `--programs K` runs a sample of them, drawn by the seed.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np

import tilelang as tile
from tests import checks
from tests.ragged import Space, draw_layouts
from tests.subjects import JAGGED, Subject

SHOWN = 5  # wrong layouts per program that are printed

# Rows and groups, odd ones among them; `block` is the small block of most examples.
SPACES = (
    Space(rows=96, groups=6, block=16),
    Space(rows=77, groups=9, block=16),
    Space(rows=33, groups=2, block=16),
    Space(rows=130, groups=17, block=32),
    Space(rows=64, groups=1, block=16),
)

# Name -> the config for an example, None for the default one; the first two must be possible.
CONFIGS: Mapping[str, Callable[[Subject], tile.Config | None]] = {
    "default": lambda subject: None,
    "small": lambda subject: tile.Config(subject.blocks),
    "table": lambda subject: _piped(subject, steps="table"),
    "rectangle": lambda subject: _piped(subject, steps="rectangle"),
    "fori_loop": lambda subject: tile.Config(subject.blocks, loop_type="fori_loop"),
    "emit_pipeline": lambda subject: tile.Config(subject.blocks, loop_type="emit_pipeline"),
    "worklist": lambda subject: tile.Config(subject.blocks, loop_type="worklist"),
    "three buffers": lambda subject: _piped(subject, buffers=3),
    "one buffer": lambda subject: _piped(subject, buffers=1),
    "within": lambda subject: tile.Config(subject.blocks, within=subject.within),
    "pieces": lambda subject: tile.Config(subject.blocks, pieces=8),
    "half blocks": lambda subject: tile.Config(_scaled(subject, 0.5)),
    "double blocks": lambda subject: tile.Config(_scaled(subject, 2)),
}
MUST = ("default", "small")


def _piped(subject: Subject, **choices: Any) -> tile.Config:
    return tile.Config(subject.blocks, loop_type="outer_pipeline", **choices)


def _scaled(subject: Subject, factor: float) -> dict[str, int]:
    return {name: max(int(size * factor), 1) for name, size in subject.blocks.items()}


@dataclass(frozen=True)
class Program:
    """One compiled kernel; `form` names its config."""

    subject: Subject
    dtype: str
    space: Space
    form: str

    @property
    def config(self) -> tile.Config | None:
        return CONFIGS[self.form](self.subject)

    def __str__(self) -> str:
        shape = f"{self.space.rows} rows, {self.space.groups} groups"
        return f"{self.subject.name:<28} {self.dtype:<9} {shape:<20} {self.form}"


@dataclass(frozen=True)
class Outcome:
    """What one program did: layouts run, which were wrong and how, seconds; `refused` is why a
    config is left out."""

    layouts: int
    wrong: tuple[str, ...]
    seconds: float
    refused: str = ""


def programs() -> list[Program]:
    """Every ragged example in every dtype and config; the shapes take turns."""
    return [
        Program(subject, dtype, SPACES[(number + place) % len(SPACES)], form)
        for subject in JAGGED
        for number, dtype in enumerate(subject.dtypes)
        for place, form in enumerate(CONFIGS)
        if form != "within" or subject.within
    ]


def sample(count: int, seed: int, only: str = "") -> list[int]:
    """Places in `programs()`: all if `count` is 0, else so many, drawn by the seed."""
    able = [n for n, p in enumerate(programs()) if only in p.subject.name]
    if not count or count >= len(able):
        return able
    return sorted(random.Random(seed).sample(able, count))


# ---------------------------------------------------------------- one program


def run(program: Program, count: int, seed: int) -> Outcome:
    """Runs `count` layouts; a program that does not compile counts all of them as wrong."""
    start = time.perf_counter()
    subject, space = program.subject, program.space
    arrays = subject.arrays(program.dtype, seed=seed, rows=space.rows, groups=space.groups)
    layouts = draw_layouts(space, count, seed)
    try:
        wrong = checks.every_layout(subject, _compiled(program), arrays, layouts, program.dtype)
    except tile.PlanError as error:
        if program.form not in MUST:
            return Outcome(0, (), 0, error.what.splitlines()[0])
        wrong = [str(error)] * count
    except Exception as error:  # one program must not end the others
        wrong = [f"{type(error).__name__}: {error}"[:500]] * count
    return Outcome(count, tuple(wrong), time.perf_counter() - start)


def _compiled(program: Program) -> checks.Call:
    """The kernel under `jax.jit`, where it is compiled once and offsets are not looked at."""
    subject = program.subject

    @jax.jit
    def kernel(*given: jax.Array) -> Any:
        return subject.kernel(*given, *subject.static, config=program.config)

    def call(*arguments: Any) -> Any:
        tensors = [a for a in arguments if isinstance(a, np.ndarray)]
        return jax.tree.map(np.asarray, kernel(*map(jnp.asarray, tensors)))

    return call


# ---------------------------------------------------------------- all of them


def _run_place(job: tuple[int, int], seed: int) -> Outcome:
    """`run` for the program at a place of `programs()`: what another process can be told."""
    place, count = job
    outcome = run(programs()[place], count, seed + place)
    jax.clear_caches()
    return outcome


def run_all(jobs: Sequence[tuple[int, int]], seed: int, workers: int) -> Iterator[Outcome]:
    """The outcome of every (place, layouts), in order."""
    if workers == 1:
        yield from map(partial(_run_place, seed=seed), jobs)
        return
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from pool.map(partial(_run_place, seed=seed), jobs)


def main(argv: Sequence[str]) -> int:
    """Runs every program, or a sample; 0 if nothing was wrong."""
    options = _options(argv)
    every, places = programs(), sample(options.programs, options.seed, options.only)
    jobs = [
        (place, len(range(number, options.layouts, len(places))))
        for number, place in enumerate(places)
    ]
    outcomes: list[Outcome] = []
    start = time.perf_counter()
    for place, outcome in zip(places, run_all(jobs, options.seed, options.workers)):
        outcomes.append(outcome)
        print(_line(every[place], outcome), flush=True)
        for text in outcome.wrong[:SHOWN]:
            print(f"    WRONG {text}")
    ran = [o for o in outcomes if not o.refused]
    total, wrong = sum(o.layouts for o in ran), sum(len(o.wrong) for o in ran)
    print(
        f"{total} layouts, {len(ran)} programs, seed {options.seed}: {wrong} wrong; "
        f"{len(outcomes) - len(ran)} configs left out; {time.perf_counter() - start:.0f} s"
    )
    return 1 if wrong else 0


def _line(program: Program, outcome: Outcome) -> str:
    if outcome.refused:
        return f"{program!s:<76} left out: {outcome.refused}"
    return (
        f"{program!s:<76} {outcome.layouts:5} layouts {len(outcome.wrong):5} wrong "
        f"{outcome.seconds:7.1f} s"
    )


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--layouts", type=int, default=5000, help="in all (default %(default)s)")
    parser.add_argument("--programs", type=int, default=0, help="a sample of so many (0: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kernels whose names contain this")
    parser.add_argument("--workers", type=int, default=1, help="processes (default %(default)s)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
