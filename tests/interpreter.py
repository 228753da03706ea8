"""python -m tests.interpreter --runs N --seed S: random layouts in Pallas's TPU interpreter.
   python -m tests.interpreter --wild: offsets of no ranges at all, in every loop type.

That interpreter is stricter than the one that calls use: memory is NaN until it is written, an
access outside of a buffer raises, copies are done as late as a wait allows, and copies that race
with a read or a write are found.  Every run is one ragged example on one layout, and must besides
keep the error policy, leave rows in no group zero, and never look at them.

Every ragged example runs with a step table and, where it has loops for that, with inner pipelines,
with a work list, with loops inside the step, with all heads in one step, on blocks that begin where
ranges do, with moved tiles cut from their arrays, with blocks of groups, and in pieces of rows.
The rectangle form is left out: its grid covers every (group, tile), and the interpreter simulates
the steps that do nothing too, so that one run takes as long as tens of others; the masks and copies
that such a step has are those of the table form, and tests/examples/test_tpu_interpreter.py runs it
on a few layouts.

Prints runs and findings per program; the exit status is 1 if there are findings.
"""

from __future__ import annotations

import argparse
import inspect
import itertools
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
from tests import checks
from tests.frameworks import from_jax
from tests.ragged import Layout, Space, draw_layouts, wild_offsets
from tests.subjects import JAGGED, Subject

INTERPRETED = import_module("jax._src.pallas.mosaic.interpret.interpret_pallas_call")
SHOWN = 5  # findings per program that are printed

# Small, because every copy of a step is simulated; odd numbers of rows, so that last tiles are cut.
SPACES = (
    Space(rows=40, groups=4, block=16),
    Space(rows=33, groups=3, block=16),
    Space(rows=23, groups=5, block=16),
    Space(rows=48, groups=2, block=16),
)


def whole_columns(subject: Subject) -> dict[str, int]:
    """The blocks of an example, but for those of its features, which a step has all of."""
    return {name: block for name, block in subject.blocks.items() if name not in ("tf", "tn")}


# Name -> the config for an example; the first one must be possible.
FORMS: Mapping[str, Callable[[Subject], tile.Config]] = {
    "table": lambda s: tile.Config(s.blocks, loop_type="outer_pipeline", steps="table"),
    "worklist": lambda s: tile.Config(s.blocks, loop_type="worklist"),
    "fori_loop": lambda s: tile.Config(s.blocks, loop_type="fori_loop"),
    "emit_pipeline": lambda s: tile.Config(s.blocks, loop_type="emit_pipeline"),
    "within": lambda s: tile.Config(s.blocks, loop_type="outer_pipeline", within=s.within),
    "exact": lambda s: tile.Config(s.blocks, windows="exact"),
    "cut": lambda s: tile.Config(s.blocks, windows="cut"),
    "groups": lambda s: tile.Config(s.blocks_in("groups")),
    "pieces": lambda s: tile.Config(s.blocks, pieces=8),
    "flowing": lambda s: tile.Config(whole_columns(s), loop_type="fori_loop", windows="flowing"),
    "columns": lambda s: tile.Config(
        {**s.blocks, **dict.fromkeys({"tf", "tn"} & s.blocks.keys(), 40)},
        loop_type="fori_loop",
        windows="flowing",
    ),
    "turns": lambda s: tile.Config(
        {**whole_columns(s), **dict.fromkeys(s.groups, 4)}, loop_type="fori_loop", windows="flowing"
    ),
}
MUST = "table"
# Besides these, wild offsets meet steps that do nothing.
WILD: Mapping[str, Callable[[Subject], tile.Config]] = {
    **FORMS,
    "rectangle": lambda s: tile.Config(s.blocks, loop_type="outer_pipeline", steps="rectangle"),
}
WILD_SPACE = Space(rows=23, groups=3, block=16)
# three pieces of whole tiles
OWN = dict.fromkeys(("flowing", "columns", "turns"), Space(rows=48, groups=4, block=16))


@dataclass(frozen=True)
class Program:
    """One example in one form, for layouts of one space."""

    subject: Subject
    form: str
    space: Space

    def __str__(self) -> str:
        shape = f"{self.space.rows} rows, {self.space.groups} groups"
        return f"{self.subject.name:<28} {self.form:<14} {shape:<19}"


@dataclass(frozen=True)
class Outcome:
    """Runs that were made, what they found, and seconds; `refused` is why there is no such form."""

    runs: int
    findings: tuple[str, ...]
    seconds: float
    refused: str = ""


def programs(seed: int) -> list[Program]:
    """Every ragged example in every form; the seed turns which space each one gets."""
    return [
        Program(subject, form, OWN.get(form, SPACES[(number + place + seed) % len(SPACES)]))
        for number, subject in enumerate(JAGGED)
        for place, form in enumerate(FORMS)
        if has(subject, form)
    ]


def has(subject: Subject, form: str) -> bool:
    """Whether an example names what the form needs."""
    needs = {"within": subject.within, "groups": subject.groups, "turns": subject.groups}
    needs["columns"] = {"tf", "tn"} & subject.blocks.keys()
    return form not in needs or bool(needs[form])


# ---------------------------------------------------------------- one program


def run(program: Program, count: int, seed: int) -> Outcome:
    """Runs `count` layouts one by one, so that a finding names its layout."""
    start = time.perf_counter()
    subject, space = program.subject, program.space
    arrays = subject.arrays("float32", seed=seed, rows=space.rows, groups=space.groups)
    call, findings = strict(program, seed), []
    for layout in draw_layouts(space, count, seed):
        try:
            findings += one_run(subject, call, arrays, layout)
        except tile.PlanError as error:
            if program.form != MUST:
                return Outcome(0, (), 0, error.what.splitlines()[0])
            findings.append(f"{layout}: {error}")
    return Outcome(count, tuple(findings), time.perf_counter() - start)


def strict(program: Program, seed: int) -> checks.Call:
    """The kernel in the strict interpreter, compiled once; raises where copies race.

    Ranges that overlap are no layout: what their rows hold is not defined, so that a copy of such
    rows may come before or after another.  Bounds and other rows are checked all the same.
    """
    subject, config = program.subject, WILD[program.form](program.subject)
    kernel = strictly(subject.kernel, seed)

    def call(*arguments: Any) -> Any:
        result = from_jax(kernel, arguments, config=config)
        if races_found() and not any(overlap(np.asarray(a)) for a in arguments):
            raise RuntimeError("copies race with a read or a write")
        return result

    return call


def strictly(kernel: tile.Kernel, seed: int) -> tile.Kernel:
    """The kernel in the strict interpreter, and with no call that is checked."""
    params = pltpu.InterpretParams(
        detect_races=True,
        dma_execution_mode="on_wait",
        out_of_bounds_reads="raise",
        random_seed=seed,
        uninitialized_memory="nan",
    )
    return tile.kernel(inspect.unwrap(kernel), interpret=params, checks=False)


def overlap(offsets: np.ndarray) -> bool:
    """Whether this is a tensor of offsets of which two ranges that are not empty share a row."""
    if offsets.ndim != 1 or offsets.dtype != np.int32:
        return False
    ranges = sorted((a, b) for a, b in itertools.pairwise(offsets.tolist()) if a < b)
    return any(one[1] > other[0] for one, other in itertools.pairwise(ranges))


def races_found() -> bool:
    """Whether copies raced since the interpreter was reset; it has no public name for that."""
    return INTERPRETED.races.races_found


def _cut_results(interpret: Callable[..., Sequence[jax.Array]]) -> Callable[..., Any]:
    """Results as long as their arrays: in JAX 0.10.2 one that aliases an argument comes back as
    long as the blocks that cover it, and the call then does not lower."""

    @wraps(interpret)
    def cut(*args: Any, out_avals: Sequence[Any], **options: Any) -> list[jax.Array]:
        results = interpret(*args, out_avals=out_avals, **options)
        shapes = [a.shape for a in out_avals]
        return [r[tuple(map(slice, s))] for r, s in zip(results, shapes, strict=True)]

    return cut


INTERPRETED.interpret_pallas_call = _cut_results(INTERPRETED.interpret_pallas_call)


def one_run(
    subject: Subject, call: checks.Call, arrays: checks.Arrays, layout: Layout
) -> Sequence[str]:
    """What is wrong with one run; an exception is a finding too, except that of a plan."""
    try:
        return checks.every_layout(subject, call, arrays, [layout], "float32")
    except tile.PlanError:
        raise
    except Exception as error:  # one run must not end the others
        return [f"{layout}: {type(error).__name__}: {error}"[:500]]
    finally:  # memory and races are those of the whole process
        pltpu.reset_tpu_interpret_mode_state()


def one_wild(
    subject: Subject, call: checks.Call, arrays: checks.Arrays, offsets: np.ndarray
) -> Sequence[str]:
    """What is wrong with one call that is not checked: nothing may be touched outside of an array,
    and legal groups are right."""
    try:
        return checks.unchecked(subject, call, arrays, offsets)
    except Exception as error:  # one run must not end the others
        return [f"{offsets.tolist()}: {type(error).__name__}: {error}"[:500]]
    finally:
        pltpu.reset_tpu_interpret_mode_state()


def run_wild(program: Program, seed: int, only: Sequence[str] = ()) -> Outcome:
    """Every kind of wild offsets, or those of these names, on one example in one form."""
    start, space = time.perf_counter(), program.space
    arrays = program.subject.arrays("float32", seed=seed, rows=space.rows, groups=space.groups)
    call, wild = strict(program, seed), wild_offsets(space)
    found = [
        f"{name}: {text}"
        for name in only or wild
        for text in one_wild(program.subject, call, arrays, wild[name])
    ]
    return Outcome(len(only or wild), tuple(found), time.perf_counter() - start)


def run_all_wild(seed: int, name: str = "") -> Iterator[tuple[Program, Outcome]]:
    """Every ragged example in every form that it has."""
    every = (Program(s, f, OWN.get(f, WILD_SPACE)) for s in JAGGED for f in WILD)
    for program in every:
        able = has(program.subject, program.form)
        if able and name in program.subject.name and not refused(program):
            yield program, run_wild(program, seed)
            jax.clear_caches()


# ---------------------------------------------------------------- all of them


def able(seed: int, only: str = "") -> list[Program]:
    """The programs whose form is possible, which planning tells without running anything."""
    return [p for p in programs(seed) if only in p.subject.name and not refused(p)]


def refused(program: Program) -> str:
    """Why an example has no such form; "" if it has, or if it must have it."""
    subject, space = program.subject, program.space
    arrays = subject.arrays("float32", rows=space.rows, groups=space.groups)
    arguments = subject.arguments(arrays, next(draw_layouts(space, 1, 0)))
    try:
        subject.kernel.lower(*arguments, config=WILD[program.form](subject))
    except tile.PlanError as error:
        return "" if program.form == MUST else error.what.splitlines()[0]
    return ""


def run_all(places: Sequence[Program], runs: int, seed: int) -> Iterator[tuple[Program, Outcome]]:
    """The outcome of every program; `runs` are shared out evenly, their sum is exact."""
    for number, program in enumerate(places):
        count = len(range(number, runs, len(places)))
        yield program, run(program, count, seed + number)
        jax.clear_caches()


def main(argv: Sequence[str]) -> int:
    """Runs every program; 0 if nothing was found."""
    options = _options(argv)
    start, total, findings = time.perf_counter(), 0, 0
    if options.wild:
        made = run_all_wild(options.seed, options.only)
    else:
        made = run_all(able(options.seed, options.only), options.runs, options.seed)
    programs_run = 0
    for program, outcome in made:
        programs_run += 1
        total, findings = total + outcome.runs, findings + len(outcome.findings)
        print(_line(program, outcome), flush=True)
        for text in outcome.findings[:SHOWN]:
            print(f"    FOUND {text}", flush=True)
    print(
        f"{total} runs, {programs_run} programs, seed {options.seed}: {findings} findings; "
        f"{time.perf_counter() - start:.0f} s"
    )
    return 1 if findings else 0


def _line(program: Program, outcome: Outcome) -> str:
    return (
        f"{program} {outcome.runs:4} runs {len(outcome.findings):4} findings "
        f"{outcome.seconds:7.1f} s"
    )


def _options(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.interpreter")
    parser.add_argument("--runs", type=int, default=1000, help="in all (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--wild", action="store_true", help="offsets that are no ranges")
    parser.add_argument("--only", default="", help="kernels whose names contain this")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
