"""Writes docs/defaults.md: the default config of every example against others, by predicted time.

    python -m benchmarks.defaults [--chip v6e] [--only matmul] [--size small] [--configs 40]
                                  [--rows FILE]

With --rows, rows are added to a file as they come, and the page is of all that are in it: those of
earlier runs too, of a case the last one.  So it can be made in pieces, and of what was done so far.

Every time is `Kernel.predict`'s: libtpu's final schedule, executed; no TPU is used.  Half of the
others are those of which the estimate thinks best, half are drawn from the next hundred.  Answers
are kept, so that a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import tilelang as tile
from benchmarks.steered import Values, values_of
from tests.subjects import SUBJECTS, Subject
from tilelang.autotune import model
from tilelang.autotune.trials import config_text

CHIPS = ("v5e", "v5p", "v6e", "7x")
SIZES = {"small": 0, "odd": 2, "production": 4}  # which of an example's cases, in bfloat16
CLOSE, BAD = 1.10, 1.25
TIMEOUT = 120.0
PAGE = Path(__file__).resolve().parent.parent / "docs" / "defaults.md"
HEAD = """# Default configs, against others

Nobody tunes: the default is what users get. Here it is compared with other legal configs by
[`Kernel.predict`](predict.md), the compiler's final schedule, executed. **No TPU was used.** Groups
have lengths that differ up to twenty times, which the default does not know; half of the others are
those of which the estimate thinks best, half are drawn from the next hundred. `size` is one of an
example's three: small and aligned, odd, production.

`python -m benchmarks.defaults {asked}` makes this page
(libtpu {libtpu}, {day}): {count} cases,
{configs} configs in all. A default is within 10 % of the best of its case in **{close:.0%}** (the
aim is 95 %), more than 25 % behind in {bad} (the aim is 0); the worst takes {worst:.2f} times as
long, the median {median:.2f}.

{chips}

## Those that are more than 10 % behind

| example | size | chip | default | | best | | ratio | of |
|---|---|---|---|---|---|---|---|---|
"""
TAIL = """
`of` counts the configs that were compared, the default among them; a config that the compiler
refuses, or does not finish in {timeout:.0f} seconds, or whose time has scalars that could not be
resolved, is none of them.
"""


@dataclass(frozen=True)
class Tried:
    """Microseconds of a config."""

    us: float
    config: tile.Config

    def __str__(self) -> str:
        return f"{self.us:.1f} | {config_text(self.config)}"


@dataclass(frozen=True)
class Row:
    """A case: the default's time, and the best of all, the default among them."""

    example: str
    size: str
    chip: str
    default: Tried
    best: Tried
    count: int

    @property
    def ratio(self) -> float:
        return self.default.us / self.best.us

    def to_json(self) -> str:
        tried = ((t.us, json.loads(t.config.to_json())) for t in (self.default, self.best))
        return json.dumps([self.example, self.size, self.chip, *tried, self.count])

    def __str__(self) -> str:
        cells = (self.example, self.size, self.chip, self.default, self.best)
        return f"| {' | '.join(map(str, cells))} | {self.ratio:.2f} | {self.count} |"


def read(text: str) -> list[Row]:
    """The rows of a file that has one in a line."""
    found = []
    for line in text.splitlines():
        example, size, chip, *tried, count = json.loads(line)
        default, best = (Tried(us, tile.Config(**kept)) for us, kept in tried)
        found.append(Row(example, size, chip, default, best, count))
    return found


def last(found: Sequence[Row]) -> list[Row]:
    """Of every case the last row."""
    return list({(row.example, row.size, row.chip): row for row in found}.values())


def rows(chips: Sequence[str], sizes: Sequence[str], only: str, configs: int) -> Iterator[Row]:
    """One for each example, size and chip whose default has a time."""
    for size, subject, chip in itertools.product(sizes, SUBJECTS, chips):
        if only in subject.name:
            found = row(subject, size, chip, configs)
            if found is None:
                print(f"{subject.name}, {size}, {chip}: the default has no time", file=sys.stderr)
            else:
                yield found


def row(subject: Subject, size: str, chip: str, configs: int) -> Row | None:
    case, target = subject.cases[SIZES[size]], f"tpu:{chip}"
    values, times = values_of(subject, case), list[Tried]()
    with model.Compiler.started() as compiler:
        default = subject.kernel.default_config(*case, target=target)
        for config in (default, *others(subject, case, target, default, configs - 1)):
            if not compiler.worker.alive:
                break
            us = predicted(subject, case, target, config, values, compiler)
            if us is not None:
                times.append(Tried(us, config))
            elif not times:
                return None
    return Row(subject.name, size, chip, times[0], min(times, key=lambda t: t.us), len(times))


def others(
    subject: Subject, case: tuple[Any, ...], target: str, default: tile.Config, count: int
) -> list[tile.Config]:
    """Half are the best by the estimate, half are drawn from those that follow."""
    listed = subject.kernel.configs(*case, target=target)
    found = [c.config for c in itertools.islice(listed, count + 100) if c.config != default]
    best, rest = found[: -(-count // 2)], found[-(-count // 2) :]
    drawn = random.Random(f"{subject.name} {target}").sample(rest, min(count // 2, len(rest)))
    return [*best, *drawn]


def predicted(
    subject: Subject,
    case: tuple[Any, ...],
    target: str,
    config: tile.Config,
    values: Values,
    compiler: model.Compiler,
) -> float | None:
    """Microseconds; None where there is no time to rely on."""
    try:
        lowered = subject.kernel.lower(*case, target=target, config=config)
        asked = {name: values[name] for name in model.steering(lowered)}
        found = model.predict(lowered, {}, asked, timeout=TIMEOUT, compiler=compiler)
    except tile.TileError as error:
        print(f"{subject.name}, {target}, {config_text(config)}: {error.what}", file=sys.stderr)
        return None
    return None if found.notes else found.seconds * 1e6


def page(found: Sequence[Row], asked: str) -> str:
    ratios = [row.ratio for row in found]
    head = HEAD.format(
        asked=asked,
        libtpu=version("libtpu"),
        day=date.today().isoformat(),
        count=len(found),
        configs=sum(row.count for row in found),
        close=share(found),
        bad=sum(ratio > BAD for ratio in ratios),
        worst=max(ratios, default=1.0),
        median=statistics.median(ratios) if ratios else 1.0,
        chips=by_chip(found),
    )
    behind = sorted((r for r in found if r.ratio > CLOSE), key=lambda r: -r.ratio)
    return head + "".join(f"{row}\n" for row in behind) + TAIL.format(timeout=TIMEOUT)


def share(found: Sequence[Row]) -> float:
    """The part of them whose default is close to the best."""
    return sum(row.ratio <= CLOSE for row in found) / max(len(found), 1)


def by_chip(found: Sequence[Row]) -> str:
    """A line for each chip and size: cases, within 10 %, the worst."""
    lines = ["| chip | size | cases | within 10 % | worst |", "|---|---|---|---|---|"]
    key = lambda row: (row.chip, row.size)  # noqa: E731
    for (chip, size), group in itertools.groupby(sorted(found, key=key), key):
        some = list(group)
        worst = max(row.ratio for row in some)
        lines.append(f"| {chip} | {size} | {len(some)} | {share(some):.0%} | {worst:.2f} |")
    return "\n".join(lines)


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--chip", action="append", choices=CHIPS, help="default: all")
    parser.add_argument("--size", action="append", choices=tuple(SIZES), help="default: all")
    parser.add_argument("--only", default="", help="examples whose names contain this")
    parser.add_argument("--configs", type=int, default=40, help="of each case (40)")
    parser.add_argument("--rows", type=Path, help="a file of rows that are kept")
    options = parser.parse_args(given)
    kept = options.rows and options.rows.exists()
    found = read(options.rows.read_text(encoding="utf-8")) if kept else []
    asked = rows(options.chip or CHIPS, options.size or tuple(SIZES), options.only, options.configs)
    for row in asked:
        print(row, flush=True)
        found.append(row)
        if options.rows:
            with options.rows.open("a", encoding="utf-8") as file:
                file.write(row.to_json() + "\n")
    PAGE.write_text(page(last(found), " ".join(given)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
