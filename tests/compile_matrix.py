"""python -m tests.compile_matrix --write docs/compile-matrix.md: every example for every TPU.

Every case of every example is compiled by the real compiler for four generations with its default
config.  The page says for each whether it compiles, how much vector memory the plan predicted and
the compiler needed, and how many whole arrays XLA moves around the kernel.  Results are kept
between runs (tests/compile_cache.py).  Needs libtpu and no TPU; nothing is run.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import tilelang as tile
from tests.compile_cache import CachedWorker
from tests.subjects import SUBJECTS, Subject
from tests.vmem import LEAST, needed
from tilelang.aot import compile_lowered

GENERATIONS = ("v5e", "v5p", "v6e", "7x")
MEASURED = "v6e"  # whose vector memory is asked for: that takes a few compiles each

TITLE = "# Every example, compiled for every TPU"
MADE = (
    "Made by `make compile-matrix`: {count} programs, which are {cases} cases of {examples} "
    "examples for {targets}; {failed}. The compiler is libtpu {libtpu} with JAX {jax}, ahead of "
    "time: no TPU was used, and nothing was run."
)
COLUMNS = (
    "The columns of generations say whether the default config compiles: `ok`, with the number of "
    "whole arrays that XLA copies or casts around the kernel if there are any (`2 moved`). "
    "*predicted* is the vector memory of the largest launch on {measured} as the plan sums it up, "
    "*needed* the least with which the compiler takes the kernel there, to 2 %; small arrays that "
    "XLA keeps in vector memory by itself are not in it. {memory}"
)


@dataclass(frozen=True)
class Cell:
    """One case for one generation: what is wrong, "" if it compiles; arrays moved around it."""

    problem: str
    moved: int = 0

    def __str__(self) -> str:
        if self.problem:
            return f"**fails**: {self.problem}"
        return f"ok, {self.moved} moved" if self.moved else "ok"


@dataclass(frozen=True)
class Row:
    """One case: its arguments, a cell per generation, bytes of vector memory (0: not known)."""

    example: str
    shapes: str
    cells: tuple[Cell, ...]
    predicted: int
    needed: int

    @property
    def failed(self) -> int:
        return sum(bool(cell.problem) for cell in self.cells)


def rows(subjects: Iterable[Subject], jobs: int) -> list[Row]:
    """A row for every case, `jobs` compilers at a time, an example in each."""
    with ThreadPoolExecutor(jobs) as pool:
        return [row for some in pool.map(_rows_of, subjects) for row in some]


def _rows_of(subject: Subject) -> list[Row]:
    with CachedWorker() as worker:
        return [row(subject, case, worker) for case in subject.cases]


def row(subject: Subject, case: tuple[Any, ...], worker: CachedWorker) -> Row:
    """One case, compiled for every generation."""
    cells = tuple(cell(subject, case, f"tpu:{name}", worker) for name in GENERATIONS)
    predicted, need = _memory(subject, case, worker)
    return Row(subject.name, shown(case), cells, predicted, need)


def cell(subject: Subject, case: tuple[Any, ...], target: str, worker: CachedWorker) -> Cell:
    """The default config for one generation."""
    try:
        lowered = subject.kernel.lower(*case, target=target)
        return Cell("", len(compile_lowered(lowered, worker=worker).copies))
    except tile.TileError as error:
        return Cell(error.what.splitlines()[0])


def _memory(subject: Subject, case: tuple[Any, ...], worker: CachedWorker) -> tuple[int, int]:
    """Bytes as the plan predicts and as the compiler needs; 0 where it does not compile."""
    try:
        lowered = subject.kernel.lower(*case, target=f"tpu:{MEASURED}")
        memory = [launch.memory for launch in lowered.plan.launches]
        most = max((m.limit or lowered.target.vmem_default for m in memory), default=0)
        need = needed(lowered, worker)
        # With little memory the compiler may ask for more than it takes when it has enough.
        return max((m.vmem for m in memory), default=0), need if need <= most else 0
    except tile.TileError:
        return 0, 0


def shown(case: tuple[Any, ...]) -> str:
    """The arguments in short: dtypes, shapes, and static values."""
    return ", ".join(_argument(argument) for argument in case)


def _argument(argument: Any) -> str:
    shape, dtype = getattr(argument, "shape", None), getattr(argument, "dtype", None)
    if shape is None:
        return getattr(argument, "__name__", None) or repr(argument)
    short = {"float32": "f32", "bfloat16": "bf16", "int32": "i32", "int8": "i8"}
    return f"{short.get(str(dtype), dtype)}[{', '.join(map(str, shape))}]"


# ---------------------------------------------------------------- the page


def page(found: Sequence[Row], jax: str, libtpu: str) -> str:
    """The whole page: counts, and a table for each example."""
    examples = list(dict.fromkeys(row.example for row in found))
    failed = sum(row.failed for row in found)
    made = MADE.format(
        count=len(found) * len(GENERATIONS),
        cases=len(found),
        examples=len(examples),
        targets=", ".join(GENERATIONS[:-1]) + f" and {GENERATIONS[-1]}",
        failed=f"{failed} of them do not compile" if failed else "all of them compile",
        libtpu=libtpu,
        jax=jax,
    )
    columns = COLUMNS.format(measured=MEASURED, memory=_accuracy(found))
    head = "\n\n".join((TITLE, textwrap.fill(made, 100), textwrap.fill(columns, 100))) + "\n"
    tables = (_table(name, [row for row in found if row.example == name]) for name in examples)
    return head + "".join(f"\n{table}" for table in tables)


def _accuracy(found: Sequence[Row]) -> str:
    """How far off the prediction is, in a sentence."""
    ratios = [row.needed / row.predicted for row in found if row.predicted and row.needed > LEAST]
    if not ratios:
        return ""
    low = sum(ratio > 1 for ratio in ratios)
    said = f"too low in {low} of {len(ratios)} cases" if low else "never too low"
    return f"The prediction is {said}: {min(ratios):.2f} to {max(ratios):.2f} of it is needed."


def _table(example: str, found: Sequence[Row]) -> str:
    names = ("arguments", *GENERATIONS, "predicted", "needed")
    lines = [f"## {example}", "", _line(names), "|---" * (len(names) - 2) + "|---:|---:|"]
    for row in found:
        least = "at most " if row.needed == LEAST else ""
        memory = (_bytes(row.predicted), least + _bytes(row.needed))
        lines.append(_line((f"`{row.shapes}`", *map(str, row.cells), *memory)))
    return "\n".join(lines) + "\n"


def _line(entries: Iterable[str]) -> str:
    return "| " + " | ".join(entries) + " |"


def _bytes(count: int) -> str:
    return f"{count / 1024**2:.2f} MiB" if count else "-"


def main(argv: Sequence[str]) -> int:
    """Prints the page or writes it; 0 if everything compiles."""
    parser = argparse.ArgumentParser(prog="python -m tests.compile_matrix")
    parser.add_argument("--write", type=Path, help="the file to write the page to")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time (%(default)s)")
    parser.add_argument("--only", default="", help="examples whose names contain this")
    options = parser.parse_args(argv)
    start = time.perf_counter()
    found = rows([s for s in SUBJECTS if options.only in s.name], options.jobs)
    text = page(found, *_versions())
    if options.write is None:
        print(text)
    else:
        options.write.write_text(text, encoding="utf-8")
    failed = sum(row.failed for row in found)
    total = len(found) * len(GENERATIONS)
    print(f"{total - failed} of {total} compile, {time.perf_counter() - start:.0f} s")
    return int(failed > 0)


def _versions() -> tuple[str, str]:
    return version("jax"), version("libtpu")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
