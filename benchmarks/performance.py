"""Writes docs/performance.md: our defaults beside the experts' kernels and XLA, by predicted time.

    python -m benchmarks.performance [--chip v6e] [--only flash]

Every time is that of libtpu's final schedule, executed; no TPU is used.  Answers are kept on disk:
a second run takes seconds, and asks anew only what has changed.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from itertools import product
from pathlib import Path

import tilelang as tile
from benchmarks import experts
from benchmarks.matches import MATCHES, Match

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
TIMEOUT = 300.0  # seconds for one answer
CHIPS = ("v6e", "v5e", "v5p", "7x")
HEAD = """# How fast, against the experts' kernels

Microseconds of whole programs by one tool, [`Kernel.predict`](predict.md): the final schedule of
libtpu {libtpu}, executed, what XLA does around the kernels included. **No TPU was used.** Ours are
the default configs, without tuning; the experts' are the kernels that ship with JAX {jax}, at the
block sizes in the table (for megablox the quicker of those that were tried, for the others the only
ones), and what XLA makes of the plain expression. `limit` is what no schedule can beat: every
argument and result moved once, or the products at the chip's peak. A time with a star has scalars
that could not be resolved, and is not to be relied on. What XLA moves into vector memory runs
beside the kernels in between; in front of the first one it is waited for, and would not be where
the program before leaves time for it: that is 13 and 7 % of XLA's two products, of which ours would
then take 1.08, and miss their target. What to trust of such times is said in
[predict.md](predict.md).

The targets: at most 0.85 of the best expert for decoding and flash attention, 0.9 for the mixture
of experts, 1.0 for grouped products, 1.05 for dense ones and everything else; kernels of rows
within 1.05 of the limit, jagged sums, means and conversions within 1.2 (groups of 256 rows) and 2
(16 rows), softmax and layer norm of groups within 1.6 and 4.

`make performance` writes this page again ({day}); a second run takes minutes, because what a
compiler refuses is asked again. megablox does not compile for v5e at these block sizes (too much
vector memory, or the compiler ends), and its times for v5p are not to be relied on.
"""
# Of families that miss their target: what the experts' kernels or prototypes have, and ours do not.
WHY: Mapping[str, str] = {
    "moe": "rows are gathered and combined by XLA, in float32 between the two launches",
    "flash": "tiles on the diagonal are computed whole",
    "rows": "cross_entropy on v5p: its work takes longer than its copies",
    "jagged rows": (
        "softmax of groups: a step waits for the maximum of a group before its sum, and up to 16 "
        "short groups side by side in a step hide only a part of it where arrays move quickly. On "
        "v5p layer norm runs on one of the two cores, and the limit counts both"
    ),
}
TABLE = """
| case | ours | blocks | best expert | | ours / expert | limit | ours / limit | target | met |
|---|---|---|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Time:
    """Microseconds of a whole program; `doubt` where scalars of it could not be resolved."""

    us: float
    limit: float
    name: str
    doubt: bool = False

    def __str__(self) -> str:
        return f"{self.us:.1f}{'*' if self.doubt else ''}"


@dataclass(frozen=True)
class Row:
    """One case on one chip; no expert where none answers."""

    name: str
    match: Match
    ours: Time
    expert: Time | None

    @property
    def ratio(self) -> float | None:
        """Ours to the best expert's."""
        return None if self.expert is None else self.ours.us / self.expert.us

    @property
    def reached(self) -> float | None:
        """What the target is about."""
        return self.ours.us / self.ours.limit if self.match.limit else self.ratio

    @property
    def met(self) -> bool | None:
        return None if self.reached is None else self.reached <= self.match.most

    def __str__(self) -> str:
        them = ("-", "", "-")
        if self.expert is not None:
            them = (str(self.expert), self.expert.name, f"{self.ratio:.2f}")
        target = f"{self.match.most:.2f}{' of the limit' if self.match.limit else ''}"
        met = {None: "-", True: "yes", False: f"{(self.reached or 0) / self.match.most:.2f}x of it"}
        cells = (
            self.name,
            str(self.ours),
            self.ours.name,
            *them,
            f"{self.ours.limit:.1f}",
            f"{self.ours.us / self.ours.limit:.2f}",
            target,
            met[self.met],
        )
        return f"| {' | '.join(cells)} |"


def rows(chips: Sequence[str], only: str) -> Iterator[tuple[str, Row]]:
    """One for each case and chip; one that our compiler or libtpu refuses is told, and left out."""
    for chip, (name, match) in product(chips, MATCHES.items()):
        if only in name and (mine := ours(name, match, chip)) is not None:
            others = [t for t in (theirs(e, chip) for e in match.experts) if t is not None]
            best = min(others, key=lambda t: (t.doubt, t.us), default=None)
            yield chip, Row(name, match, mine, best)


def ours(name: str, match: Match, chip: str) -> Time | None:
    """The default config's time."""
    case = match.case
    try:
        found = case.kernel.predict(
            *case.arguments, target=f"tpu:{chip}", values=case.values, timeout=TIMEOUT
        )
    except tile.TileError as error:
        print(f"{name}, {chip}: {error}", file=sys.stderr)
        return None
    chosen = [f"{axis}={size}" for axis, size in sorted(found.config.blocks)]
    chosen += [f"within={','.join(found.config.within)}"] if found.config.within else []
    if found.notes:
        print(f"{name}, {chip}: {dict(found.notes)}", file=sys.stderr)
    return Time(found.seconds * 1e6, found.limit * 1e6, ", ".join(chosen), bool(found.notes))


def theirs(expert: experts.Expert, chip: str) -> Time | None:
    """An expert's time; None, and a line, where there is none."""
    found = experts.predicted(expert, chip, TIMEOUT)
    if found.run is None:
        print(f"{expert.name}, {chip}: {found.error}", file=sys.stderr)
        return None
    if found.notes:
        print(f"{expert.name}, {chip}: {dict(found.notes)}", file=sys.stderr)
    return Time(found.run.seconds * 1e6, found.run.limit * 1e6, expert.name, bool(found.notes))


def page(found: Mapping[str, Sequence[Row]]) -> str:
    head = HEAD.format(libtpu=version("libtpu"), jax=version("jax"), day=date.today().isoformat())
    return head + "".join(_section(chip, rows) for chip, rows in found.items())


def _section(chip: str, found: Sequence[Row]) -> str:
    """A chip's table, with what is won and lost said in words."""
    compared = [row for row in found if row.ratio is not None]
    text = f"\n## {chip}\n\n{_sum(found)}"
    if compared:
        mean = math.exp(sum(math.log(row.ratio or 1) for row in compared) / len(compared))
        won = [row for row in compared if (row.ratio or 1) < 1]
        lost = sorted((r for r in compared if r not in won), key=lambda r: -(r.ratio or 1))
        text += (
            f" Against the best expert: {mean:.2f} of its time in the geometric mean of "
            f"{len(compared)} cases (target 0.75), quicker in {len(won)}."
        )
        if lost:
            named = "; ".join(f"{row.name} ({row.ratio:.2f})" for row in lost)
            text += f" Slower: {named}."
    missed = dict.fromkeys(row.match.family for row in found if row.met is False)
    lacks = "".join(f"* {family}: {WHY[family]}\n" for family in missed if family in WHY)
    table = TABLE + "".join(f"{row}\n" for row in found)
    return f"{text}\n{table}" + (
        f"\nWhat those that miss their target lack:\n\n{lacks}" if lacks else ""
    )


def _sum(found: Sequence[Row]) -> str:
    met = sum(row.met is True for row in found)
    return f"{met} of {sum(row.met is not None for row in found)} targets are met."


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--chip", action="append", help=f"default: {', '.join(CHIPS)}")
    parser.add_argument("--only", default="", help="cases whose names contain this; writes no page")
    options = parser.parse_args(given)
    found: dict[str, list[Row]] = {}
    for chip, row in rows(options.chip or CHIPS, options.only):
        print(chip, row, flush=True)
        found.setdefault(chip, []).append(row)
    if not options.only:
        PAGE.write_text(page(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
