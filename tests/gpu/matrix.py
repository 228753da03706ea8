"""python -m tests.gpu.matrix --write docs/gpu-matrix.md: every example for every GPU architecture.

The production case of every example, in bfloat16 and float32, or in integers and floats of 8 bits
where it has such operands, goes with its default config through Triton and ptxas.  A cell is good
if nothing spills, shared memory suffices, products are those of the architecture, and copies do
not wait.  Answers are kept between runs (tests/compile_cache.py).
Needs triton and no GPU; nothing is run.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import tilelang as tile
from tests.compile_cache import CUDA, CachedWorker, Compiler
from tests.gpu.compiler import FLOAT8, case, dtypes_of
from tests.subjects import SUBJECTS, Subject
from tilelang.aot import Assembled, CudaCompiled, Worker, compile_lowered
from tilelang.codegen.triton.plan.steps import every_step, exprs
from tilelang.codegen.triton.plan.types import Launch
from tilelang.codegen.triton.target import Target
from tilelang.ir import Apply, walk

ARCHITECTURES = (80, 89, 90, 100)
DTYPES = ("bfloat16", "float32", "int8", *FLOAT8)
NOT_ASKED = "not asked"
NO_SUCH = "does not compute in it"  # as a refusal says of an architecture and a dtype
TIMEOUT = 300.0  # seconds for one example
PRODUCTS = {  # architecture -> instructions that multiply matrices without keeping warps waiting
    90: ("HGMMA", "IGMMA", "QGMMA"),
    100: ("UTCHMMA", "UTCIMMA", "UTCQMMA"),
}
WARPS = ("HMMA", "IMMA", "QMMA")  # the same of warps, on every architecture
COPIES = ("LDGSTS", "UTMALDG")
# Bytes of stack of defaults that an H100 took less time for than for the first guess, which spills
# nothing (plan/hopper.py): 1851 us instead of 2962, 352 instead of 513.
QUICKER = {("paged_attention", "bfloat16", 90): 56, ("sliding_window_attention", "float32", 90): 8}
LEAST = 64  # rows of a result from which on products are asynchronous

TITLE = "# Every example, compiled for every GPU architecture"
MADE = (
    "Made by `make gpu-matrix`: the production case of {examples} examples in {dtypes} for "
    "{targets}, each with its default config; {failed}. The compiler is Triton {triton} with its "
    "own ptxas, ahead of time: no GPU was used, and nothing was run."
)
COLUMNS = (
    "A cell has registers per thread, KiB of shared memory with the plan's estimate behind it "
    "where the two differ, and what multiplies matrices and copies without waiting, counted in "
    "the code. Several launches are separated by a slash. **stack** are bytes per thread that "
    "registers did not hold: as it should be only where an H100 took less time for it than for "
    "what the other rules choose, which spills nothing."
)


@dataclass(frozen=True)
class Cell:
    """One case for one architecture: what its launches became; `problem`: why there are none.

    stack  bytes of it that a launch may have
    """

    arch: int
    launches: tuple[Launch, ...]
    programs: tuple[Assembled, ...]
    problem: str = ""
    stack: int = 0

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong; nothing if it is as it should be."""
        if self.problem:
            return () if self.problem == NOT_ASKED or self.refused else (self.problem,)
        pairs = zip(self.launches, self.programs, strict=True)
        every = (_faults(self.arch, self.stack, one, made) for one, made in pairs)
        return tuple(fault for found in every for fault in found)

    @property
    def refused(self) -> bool:
        """Whether the architecture does not compute in the dtype, as the author is told."""
        return self.problem.endswith(NO_SUCH)

    def __str__(self) -> str:
        if self.problem == NOT_ASKED or self.refused:
            return self.problem
        if self.problem:
            return f"**fails**: {self.problem}"
        pairs = zip(self.launches, self.programs, strict=True)
        return " / ".join(_shown(one, made) for one, made in pairs)


@dataclass(frozen=True)
class Row:
    """One example in one dtype."""

    example: str
    dtype: str
    cells: tuple[Cell, ...]


def _faults(arch: int, stack: int, launch: Launch, made: Assembled) -> Iterator[str]:
    if made.stack > stack:
        yield f"{made.name}: stack {made.stack}"
    dots = products(launch)
    wanted, able = PRODUCTS.get(arch, WARPS), Target.of(f"cuda:sm{arch}").asynchronous
    large = [d for d in dots if launch.width(d.type.shape[-2]) >= LEAST]
    asked = [d for d in large if arch not in PRODUCTS or d.args[0].type.dtype in able]
    if asked and not counted(made, wanted):
        yield f"{made.name}: none of {', '.join(wanted)}"
    if dots and launch.stages > 1 and not counted(made, COPIES):
        yield f"{made.name}: copies wait"


def products(launch: Launch) -> list[Apply]:
    """A launch's matrix products."""
    values = (e for s in every_step(launch.body) for x in exprs(s) for e in walk(x))
    return [e for e in values if isinstance(e, Apply) and e.op == "multiply"]


def counted(made: Assembled, names: Iterable[str]) -> int:
    """How many of these instructions the code has."""
    return sum(made.instructions.get(name, 0) for name in names)


def _shown(launch: Launch, made: Assembled) -> str:
    parts = [f"{made.registers}"]
    if made.stack:
        parts.append(f"**stack {made.stack}**")
    if made.shared or launch.shared:
        said = "" if launch.shared == made.shared else f" ({_kib(launch.shared)})"
        parts.append(f"{_kib(made.shared)} K{said}")
    names = [n for own in (*PRODUCTS.values(), WARPS, COPIES) for n in own]
    parts += [f"{n} {made.instructions[n]}" for n in names if made.instructions.get(n)]
    return ", ".join(parts)


def _kib(count: int) -> str:
    return f"{count / 1024:.1f}".removesuffix(".0")


def _nobody() -> Worker:
    raise tile.CompileError(NOT_ASKED)


KEPT = replace(CUDA, start=_nobody)  # answers that are kept, and no others


def rows(
    subjects: Iterable[Subject], dtypes: Sequence[str], archs: Sequence[int], compiler: Compiler
) -> list[Row]:
    """A row for every example and dtype; what is wrong is said as it is found."""
    found: list[Row] = []
    with CachedWorker(compiler=compiler) as worker:
        for subject in subjects:
            for dtype in (d for d in dtypes if d in dtypes_of(subject)):
                cells = []
                for arch in archs:
                    cells.append(cell(subject, dtype, arch, worker))
                    for fault in cells[-1].faults:
                        print(f"{subject.name} {dtype} sm{arch}: {fault}", flush=True)
                found.append(Row(subject.name, dtype, tuple(cells)))
    return found


def cell(subject: Subject, dtype: str, arch: int, worker: CachedWorker) -> Cell:
    """The default config of one case for one architecture."""
    try:
        lowered = subject.kernel.lower(*case(subject, dtype), target=f"cuda:sm{arch}")
        made = compile_lowered(lowered, timeout=TIMEOUT, worker=worker)
    except tile.TileError as error:
        return Cell(arch, (), (), error.what.splitlines()[0])
    assert isinstance(made, CudaCompiled)
    stack = QUICKER.get((subject.name, dtype, arch), 0)
    return Cell(arch, lowered.plan.launches, made.programs, stack=stack)


# ---------------------------------------------------------------- the page


def page(found: Sequence[Row], archs: Sequence[int], triton: str) -> str:
    """The whole page: counts, and a table for each dtype."""
    every = [c for row in found for c in row.cells]
    refused, left = sum(c.refused for c in every), sum(c.problem == NOT_ASKED for c in every)
    bad, total = sum(bool(c.faults) for c in every), len(every) - refused - left
    dtypes = [d for d in DTYPES if any(row.dtype == d for row in found)]
    made = MADE.format(
        examples=len({row.example for row in found}),
        dtypes=" and ".join([", ".join(dtypes[:-1]), dtypes[-1]] if dtypes[1:] else dtypes),
        targets=", ".join(f"sm_{a}" for a in archs),
        failed=(f"{bad} of {total} are not as they should be" if bad else f"all {total} are right")
        + (f"; {refused} are refused in words" if refused else "")
        + (f"; {left} were not asked" if left else ""),
        triton=triton,
    )
    lines = [TITLE, "", textwrap.fill(made, 100), "", textwrap.fill(COLUMNS, 100)]
    for dtype in dtypes:
        names = ["example", *(f"sm_{a}" for a in archs)]
        lines += ["", f"## {dtype}", "", f"| {' | '.join(names)} |", "|---" * len(names) + "|"]
        for row in found:
            if row.dtype == dtype:
                lines.append(f"| {row.example} | {' | '.join(map(str, row.cells))} |")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str]) -> int:
    """Prints the page or writes it; 0 if every cell is as it should be."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.matrix")
    parser.add_argument("names", nargs="*", help="examples; all if none is given")
    parser.add_argument("--write", type=Path, help="the file to write the page to")
    parser.add_argument("--dtypes", nargs="*", default=DTYPES)
    parser.add_argument("--kept", action="store_true", help="only answers that are on disk")
    parser.add_argument("--archs", nargs="*", type=int, default=ARCHITECTURES)
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore")
    start = time.perf_counter()
    chosen = [s for s in SUBJECTS if not options.names or s.name in options.names]
    found = rows(chosen, options.dtypes, options.archs, KEPT if options.kept else CUDA)
    text = page(found, options.archs, version("triton"))
    if options.write is None:
        print(text)
    else:
        options.write.write_text(text, encoding="utf-8")
    cells = [c for row in found for c in row.cells if c.problem != NOT_ASKED]
    bad = sum(bool(c.faults) for c in cells)
    print(
        f"{len(cells) - bad} of {len(cells)} as they should be, {time.perf_counter() - start:.0f} s"
    )
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
