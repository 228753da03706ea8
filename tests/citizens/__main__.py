"""python -m tests.citizens [--write PAGE] [--keep FILE] [--only EXAMPLE...] [--cells NAME...]

What users of JAX and torch do with kernels, asked of every example and compared with numbers, on
the CPU in the interpreter, with two devices.  What was answered is kept in a file, where one is
named, and a run that was ended goes on from there; answers about other code are asked again.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

if __name__ == "__main__":  # before JAX is imported
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = (
        "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0 "
        "--xla_llvm_disable_expensive_passes=true"
    )

import jax

from tests.citizens.matrix import CELLS, Cell, Row, row, wrong
from tests.subjects import SUBJECTS

TITLE = "# Every example in every transformation of JAX and torch"
MADE = (
    "Made by `make citizens` with JAX {jax} and torch {torch}, on the CPU in the interpreter, "
    "float32. {right} cells are right (x): results agree with the example's NumPy expression and "
    "gradients with those of an independent JAX expression, to 2e-5 of the largest element, on "
    "two ragged layouts. {refused} are refused, with the words below. {none} do not apply (-): no "
    "argument has a gradient. {wrong}"
)
HOW = (
    "`export` (JAX) is one program for the CPU and a TPU, serialised, read and called on the CPU, "
    "with Mosaic calls counted. `vjp` and `backward` are pulled back twice. `shard_map` gives each "
    "of two devices one call; the meshes split the first even dimension of the first argument over "
    "two devices. `compile` is fullgraph, forward and backward, with the backend aot_eager; "
    "`export` and `make_fx` (torch) hold one node of the kernel and run on other values."
)
MARKS = {"right": "x", "none": "-", "WRONG": "**WRONG**"}


def table(rows: Sequence[Row], framework: str, notes: dict[str, int]) -> Iterator[str]:
    names = [n.partition(" ")[2] for n in CELLS if n.startswith(framework)]
    names = [n for n in names if any(c.name == f"{framework} {n}" for c in rows[0].cells)]
    yield f"| {framework} | {' | '.join(names)} |"
    yield "|---" * (len(names) + 1) + "|"
    for each in rows:
        own = [c for c in each.cells if c.name.startswith(framework)]
        yield f"| {each.example} | {' | '.join(_mark(c, notes) for c in own)} |"


def _mark(cell: Cell, notes: dict[str, int]) -> str:
    """x, or the number of a note: the same words about different kernels are one note."""
    if cell.verdict != "refused":
        return MARKS[cell.verdict]
    words = re.sub(r"(^|which )kernel \w+", r"\1kernel NAME", cell.words.splitlines()[0])
    return f"[{notes.setdefault(words, len(notes) + 1)}]"


def page(rows: Sequence[Row]) -> str:
    """The matrix as Markdown."""
    every = [c.verdict for r in rows for c in r.cells]
    bad = every.count("WRONG")
    made = MADE.format(
        jax=version("jax"), torch=version("torch"), right=every.count("right"),
        refused=every.count("refused"), none=every.count("none"),
        wrong=f"{bad} are wrong." if bad else "There is no other entry.",
    )  # fmt: skip
    notes: dict[str, int] = {}
    tables = [*table(rows, "jax", notes), "", *table(rows, "torch", notes)]
    words = [f"{number}. {text}" for text, number in notes.items()]
    parts = [TITLE, "", *(textwrap.fill(t, 100) + "\n" for t in (made, HOW)), *tables]
    return "\n".join([*parts, "", "## Refused", "", *words, ""])


@functools.cache
def _code() -> str:
    """What the answers depend on: the compiler, the examples, the questions, and the frameworks."""
    root = Path(__file__).resolve().parents[2]
    found = hashlib.sha256(f"{version('jax')} {version('torch')}".encode())
    for folder in ("tilelang", "examples", "tests/citizens"):
        for file in sorted((root / folder).rglob("*.py")):
            found.update(file.read_bytes())
    return found.hexdigest()[:16]


def _kept(file: Path | None) -> list[tuple[str, Cell]]:
    """The answers of runs before this one about the same code, by example."""
    lines = file.read_text("utf-8").splitlines() if file and file.exists() else []
    rows = [tuple(json.loads(line)) for line in lines]
    return [(name, Cell(**cell)) for name, cell, *code in rows if code == [_code()]]


def _keep(file: Path | None, example: str, cells: Sequence[Cell]) -> None:
    if file:
        with file.open("a", encoding="utf-8") as kept:
            lines = (json.dumps([example, asdict(c), _code()]) for c in cells)
            kept.writelines(line + "\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", type=Path)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--cells", nargs="*", default=list(CELLS))
    given = parser.parse_args()
    rows, known = list[Row](), _kept(given.keep)
    for subject in SUBJECTS:
        if given.only and subject.name not in given.only:
            continue
        kept = [c for name, c in known if name == subject.name]
        missing = [n for n in given.cells if n not in {c.name for c in kept}]
        made = row(subject, missing).cells if missing else ()
        answers = {c.name: c for c in (*kept, *made)}
        rows.append(Row(subject.name, tuple(answers[n] for n in given.cells)))
        _keep(given.keep, subject.name, made)
        print(f"{subject.name}: {sum(c.seconds for c in made):.0f} s", flush=True)
        for line in wrong(rows[-1:]):
            print("  ", line, flush=True)
        jax.clear_caches()
    if given.write:
        given.write.write_text(page(rows), encoding="utf-8")
    sys.exit(bool(wrong(rows)))


if __name__ == "__main__":
    main()
