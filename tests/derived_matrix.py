"""python -m tests.derived_matrix --write docs/derived-matrix.md: every gradient for every TPU.

The kernels that are derived of each example, at its first case, compiled by the real compiler for
four generations with their default configs.  Results are kept between runs.  Needs libtpu and no
TPU; nothing is run.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import tilelang as tile
from tests.compile_cache import CachedWorker
from tests.compile_matrix import GENERATIONS, Cell
from tests.subjects import SUBJECTS, Subject
from tilelang.aot import compile_lowered
from tilelang.errors import GradientError
from tilelang.language.dtypes import is_float
from tilelang.runtime.lowering import target_of
from tilelang.runtime.parsed import FORWARD, Remembered
from tilelang.runtime.signature import bind

TITLE = "# Every derived gradient, compiled for every TPU"
MADE = (
    "Made by `make derived-matrix`: the kernels that are derived of {examples} examples, {count} "
    "programs for {targets}; {failed}. The compiler is libtpu {libtpu}, ahead of time: no TPU was "
    "used, and nothing was run. `saving` is the example itself where it also stores what its "
    "backward needs; `ok, 1 moved` has an array that XLA copies or casts around the kernel, such "
    "as a bfloat16 vector."
)


@dataclass(frozen=True)
class Row:
    """One derived kernel of an example: a cell per generation."""

    example: str
    part: str
    cells: tuple[Cell, ...]

    def __str__(self) -> str:
        return f"| {' | '.join([self.example, self.part, *map(str, self.cells)])} |"


def parts(subject: Subject) -> Iterator[tuple[str, Remembered]]:
    """What is derived of the first case of an example, by what it is for; GradientError if not."""
    kernel = subject.kernel
    known = kernel._parsed(kernel._given(bind(kernel.signature, subject.cases[0], {})))
    floats = (t.name for t in known.ir.tensors if t.role == "input" and is_float(t.dtype))
    wanted = frozenset(floats)
    for n in range(FORWARD, len(known.derivative(wanted).launches)):
        part = known.part(wanted, n)
        if part is not known:
            yield ("saving" if n == FORWARD else ", ".join(part.ir.returns)), part


def rows(subject: Subject, worker: CachedWorker) -> Iterator[Row]:
    """A row for each derived kernel."""
    try:
        for name, part in parts(subject):
            cells = (cell(subject, part, f"tpu:{g}", worker) for g in GENERATIONS)
            yield Row(subject.name, name, tuple(cells))
    except GradientError as error:
        yield Row(subject.name, f"refused: {error.what}", ())


def cell(subject: Subject, part: Remembered, target: str, worker: CachedWorker) -> Cell:
    """One kernel with its default config for one generation."""
    try:
        lowered = subject.kernel._planned(part, None, target_of(target))
        return Cell("", len(compile_lowered(lowered, worker=worker).copies))
    except tile.TileError as error:
        return Cell(error.what.splitlines()[0])


def page(found: Sequence[Row]) -> str:
    """The whole page."""
    failed = sum(bool(c.problem) for row in found for c in row.cells)
    made = MADE.format(
        examples=len({row.example for row in found if row.cells}),
        count=sum(len(row.cells) for row in found),
        targets=", ".join(GENERATIONS),
        failed=f"{failed} of them do not compile" if failed else "all of them compile",
        libtpu=version("libtpu"),
    )
    head = (
        f"| example | gradient | {' | '.join(GENERATIONS)} |\n|---|---|{'---|' * len(GENERATIONS)}"
    )
    return (
        "\n\n".join([TITLE, textwrap.fill(made, 100), "\n".join([head, *map(str, found)])]) + "\n"
    )


def main(argv: Sequence[str]) -> int:
    """Prints the page or writes it; 0 if everything compiles."""
    parser = argparse.ArgumentParser(prog="python -m tests.derived_matrix")
    parser.add_argument("--write", type=Path, help="the file to write the page to")
    parser.add_argument("--only", default="", help="examples whose names contain this")
    options = parser.parse_args(argv)
    with CachedWorker() as worker:
        found = [row for s in SUBJECTS if options.only in s.name for row in rows(s, worker)]
    if options.write is None:
        print(page(found))
    else:
        options.write.write_text(page(found), encoding="utf-8")
    return int(any(c.problem for row in found for c in row.cells))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
