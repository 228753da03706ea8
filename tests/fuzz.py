"""python -m tests.fuzz --layouts N --seed S: random ragged layouts against float64, in bulk.

A program is a kernel with a dtype, shapes and a config.  It is compiled once and then runs on many
layouts, drawn from the strata of `tests.ragged` in turn.  Rows in no group hold NaN and Inf.  Every
result must keep the error policy of `tests.numerics`, and rows in no group must be exactly zero.
Prints the number of layouts and of wrong ones per program; the exit status is 1 if any is wrong.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Program:
    """One compiled kernel: `steps` is None where the config is the default one."""

    subject: Subject
    dtype: str
    space: Space
    steps: str | None

    @property
    def config(self) -> tile.Config | None:
        if self.steps is None:
            return None
        return tile.Config(self.subject.blocks, loop_type="outer_pipeline", steps=self.steps)

    def __str__(self) -> str:
        shape = f"{self.space.rows} rows, {self.space.groups} groups"
        return f"{self.subject.name:<24} {self.dtype:<9} {shape:<20} {self.steps or 'default'}"


@dataclass(frozen=True)
class Outcome:
    """What one program did: layouts run, which were wrong and how, seconds."""

    layouts: int
    wrong: tuple[str, ...]
    seconds: float


SPACES = (Space(rows=96, groups=6, block=16), Space(rows=77, groups=9, block=16))


def programs() -> list[Program]:
    """Every jagged kernel in its dtypes with live steps; in float32 the other forms as well."""
    found = []
    for subject in JAGGED:
        for number, dtype in enumerate(subject.dtypes):
            found.append(Program(subject, dtype, SPACES[number % 2], "table"))
        found.append(Program(subject, "float32", SPACES[1], "rectangle"))
        found.append(Program(subject, "float32", SPACES[0], None))
    return found


def run(program: Program, count: int, seed: int) -> Outcome:
    """Runs `count` layouts; a program that does not compile counts all of them as wrong."""
    start = time.perf_counter()
    subject, space = program.subject, program.space
    arrays = subject.arrays(program.dtype, seed=seed, rows=space.rows, groups=space.groups)
    layouts = draw_layouts(space, count, seed)
    try:
        wrong = checks.every_layout(subject, _compiled(program), arrays, layouts, program.dtype)
    except tile.TileError as error:
        wrong = [str(error)] * count
    return Outcome(count, tuple(wrong), time.perf_counter() - start)


def _compiled(program: Program) -> checks.Call:
    """The kernel under `jax.jit`, where it is compiled once and offsets are not looked at."""
    subject = program.subject

    @jax.jit
    def kernel(*given: jax.Array) -> jax.Array:
        return subject.kernel(*given, *subject.static, config=program.config)

    def call(*arguments: Any) -> np.ndarray:
        tensors = [a for a in arguments if isinstance(a, np.ndarray)]
        return np.asarray(kernel(*map(jnp.asarray, tensors)))

    return call


def main(argv: Sequence[str]) -> int:
    """Runs every program; 0 if nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--layouts", type=int, default=5000, help="in all (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="kernels whose names contain this")
    options = parser.parse_args(argv)
    chosen = [p for p in programs() if options.only in p.subject.name]
    total = wrong = 0
    for number, program in enumerate(chosen):
        share = len(range(number, options.layouts, len(chosen)))
        outcome = run(program, share, options.seed + number)
        total, wrong = total + outcome.layouts, wrong + len(outcome.wrong)
        print(
            f"{program!s:<68} {outcome.layouts:5} layouts {len(outcome.wrong):5} wrong "
            f"{outcome.seconds:7.1f} s",
            flush=True,
        )
        for line in outcome.wrong[:SHOWN]:
            print(f"    WRONG {line}")
    print(f"{total} layouts, {len(chosen)} programs, seed {options.seed}: {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
