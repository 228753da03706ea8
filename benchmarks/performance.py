"""Writes docs/performance.md: our defaults beside the experts' kernels and XLA, by predicted time.

    python -m benchmarks.performance [--chip v6e] [--only flash] [--check | --page]

Every time is that of libtpu's final schedule, executed; no TPU is used.  Each is kept in
benchmarks/performance.json as it comes, with the digest of what was asked: a run asks what this
tree asks otherwise, and one that was stopped goes on.  All that the page says is made of what is
kept; a time that is older than the tree has a dagger there.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from importlib.metadata import version
from itertools import product
from pathlib import Path

from benchmarks import timed
from benchmarks.matches import MATCHES
from benchmarks.timed import KEPT, Asking, Row, Time
from tilelang.codegen.pallas.chips import CHIPS as MADE

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
CHIPS = ("v6e", "v5e", "v5p", "7x")
MEAN, FAMILY = 0.75, 1.05  # of the best expert: all cases, any family
HARDLY = 0.01  # of a time: waits that no comparison rests on
HEAD = """# How fast, against the experts' kernels

Microseconds of whole programs by one tool, [`Kernel.predict`](predict.md): the final schedule of
libtpu {libtpu}, executed, what XLA does around the kernels included. **No TPU was used.** Ours are
the default configs, without tuning; the experts' are the kernels that ship with JAX {jax}, at the
block sizes in the table (for megablox the quicker of those that were tried, for the others the only
ones), and what XLA makes of the plain expression. `limit` is what no schedule can beat: every
argument and result moved once, or the products at the chip's peak. A time with a star has scalars
that could not be resolved, and is not to be relied on; one with a dagger was asked of an earlier
tree, and `make performance` asks it again. What XLA moves into vector memory runs beside the
kernels in between; in front of the first one it is waited for, and would not be where the program
before leaves time for it. What to trust of such times is said in [predict.md](predict.md).

The targets: at most 0.85 of the best expert for decoding and flash attention, 0.9 for the mixture
of experts, 1.0 for grouped products, 1.05 for dense ones and everything else; kernels of rows
within 1.05 of the limit, jagged sums, means and conversions within 1.2 (groups of 256 rows) and 2
(16 rows), softmax and layer norm of groups within 1.6 and 4.

`make performance` makes this page of benchmarks/performance.json, every sentence with a figure
included, and asks only what the tree asks otherwise than what is kept there: {fresh} on this page
had to be asked again when it was made.

## All generations

{summary} Ours to the best expert's, in the geometric mean of each family:

"""
TABLE = """
| case | ours | blocks | best expert | | ours / expert | limit | ours / limit | target | met |
|---|---|---|---|---|---|---|---|---|---|
"""
# What times do not say: what the forms of these cases lack, where they miss their target.
LACKS: Mapping[str, str] = {
    "flash_attention causal": "tiles on the diagonal are computed whole",
    "jagged_softmax": "a step waits for the maximum of a group before its sum, and up to 16 short "
    "groups side by side in a step hide only a part of it where arrays move quickly",
}


def page(found: Sequence[Row]) -> str:
    """All of it, of what is kept."""
    times = [t for row in found for t in (row.ours, *row.experts)]
    old = sum(t.old for t in times)
    fresh = f"{old} of {len(times)} times" if old else "no time"
    head = HEAD.format(
        libtpu=version("libtpu"),
        jax=version("jax"),
        fresh=fresh,
        summary=_summary(found),
    )
    return head + _families(found) + "".join(_section(c, _of(found, c)) for c in CHIPS)


def _of(found: Iterable[Row], chip: str) -> list[Row]:
    return [row for row in found if row.chip == chip]


def _mean(found: Iterable[Row]) -> float | None:
    """The geometric mean of what they take of the best experts' times; None of no rows."""
    logs = [math.log(row.ratio) for row in found if row.ratio is not None]
    return math.exp(sum(logs) / len(logs)) if logs else None


def _summary(found: Sequence[Row]) -> str:
    """What is won and lost, in words."""
    met = sum(row.met is True for row in found)
    text = f"{met} of {sum(row.met is not None for row in found)} targets are met."
    mean, ratios = _mean(found), [row.ratio for row in found if row.ratio is not None]
    if mean is None:
        return text
    missed = f", missed by {mean / MEAN - 1:.0%}" if mean > MEAN else ""
    return (
        f"{text} Against the best expert: {mean:.2f} of its time in the geometric mean of "
        f"{len(ratios)} cases (target {MEAN}{missed}), quicker in {sum(r < 1 for r in ratios)}."
    )


def _families(found: Sequence[Row]) -> str:
    """A family's rows together, on each chip and on all."""
    families = dict.fromkeys(row.match.family for row in found if row.ratio is not None)
    lines = [f"| family | {' | '.join(CHIPS)} | all |", f"|---|{'---|' * (len(CHIPS) + 1)}"]
    for family in families:
        some = [row for row in found if row.match.family == family]
        means = [*(_mean(_of(some, chip)) for chip in CHIPS), _mean(some)]
        lines.append(f"| {family} | {' | '.join(map(_over, means))} |")
    return "".join(f"{line}\n" for line in lines)


def _over(mean: float | None) -> str:
    if mean is None:
        return "-"
    return f"{mean:.2f}" if mean <= FAMILY else f"**{mean:.2f}** (over {FAMILY})"


def _section(chip: str, found: Sequence[Row]) -> str:
    """A chip's table, with what is won and lost said in words."""
    lost = sorted((r for r in found if (r.ratio or 0) >= 1), key=lambda r: -(r.ratio or 0))
    slower = "; ".join(f"{row.name} ({row.ratio:.2f})" for row in lost)
    parts = (
        f"\n## {chip}\n\n{_summary(found)}{f' Slower: {slower}.' if slower else ''}\n{TABLE}",
        *(f"{_line(row)}\n" for row in found),
        _listed("Targets that are missed", map(_missed, found)),
        _listed("Waits for what XLA moves", map(_waited, found)),
        _listed("Experts without a time", map(_refused, found)),
    )
    return "".join(parts)


def _line(row: Row) -> str:
    them = ("-", "", "-")
    if row.expert is not None:
        them = (str(row.expert), row.expert.name, f"{row.ratio:.2f}")
    met = {None: "-", True: "yes", False: f"{(row.reached or 0) / row.match.most:.2f}x of it"}
    cells = (
        row.name,
        str(row.ours),
        row.ours.name,
        *them,
        f"{row.ours.limit:.1f}",
        f"{row.ours.us / row.ours.limit:.2f}",
        f"{row.match.most:.2f}{' of the limit' if row.match.limit else ''}",
        met[row.met],
    )
    return f"| {' | '.join(cells)} |"


def _listed(title: str, lines: Iterable[str]) -> str:
    some = [f"* {line}\n" for line in lines if line]
    return f"\n{title}:\n\n{''.join(some)}" if some else ""


def _missed(row: Row) -> str:
    """By how much a row misses its target, and where its time goes; "" for one that meets it."""
    if row.met is not False:
        return ""
    behind = (row.reached or 0) / row.match.most - 1
    said = [f"{row.name}, by {behind:.1%}: {_spent(row.ours) or 'its schedule was not kept'}"]
    if not row.match.limit and row.expert is not None and (theirs := _spent(row.expert)):
        said.append(f"of the expert's, {theirs}")
    if row.ours.compute and row.ours.cores < MADE[row.chip].cores:
        said.append("one core does all, and the limit counts all")
    return "; ".join(said + [text for start, text in LACKS.items() if row.name.startswith(start)])


def _spent(found: Time) -> str:
    """Where a time goes, by its schedule; "" where nothing of that was kept."""
    if not found.compute:
        return ""
    matrix = f" (matrix units {found.matrix:.0%} of the time)" if found.matrix else ""
    copies = max(found.us - found.compute - found.fetched, 0.0)
    return (
        f"{found.compute:.1f} of {found.us:.1f} us are work{matrix}, {copies:.1f} waits for "
        f"copies, whose bytes alone take {found.traffic:.1f}"
    )


def _waited(row: Row) -> str:
    """What would be left without waits for what XLA moves, where a comparison rests on them."""
    if row.expert is None or row.expert.fetched < HARDLY * row.expert.us:
        return ""
    alone = (row.ours.us - row.ours.fetched) / (row.expert.us - row.expert.fetched)
    return (
        f"{row.name}: {row.expert.fetched / row.expert.us:.0%} of the expert's time, "
        f"{row.ours.fetched / row.ours.us:.0%} of ours; without them ours would take {alone:.2f}"
    )


def _refused(row: Row) -> str:
    why = dict.fromkeys(f"{t.name}: {t.refused}" for t in row.experts if t.refused)
    return f"{row.name}: {'; '.join(why)}" if why else ""


# ------------------------------------------------------------ asking


def renewed(
    found: Mapping[tuple[str, str], Row], chips: Sequence[str], only: str, asking: Asking | None
) -> Iterator[Row]:
    """The chosen rows, as this tree has them; marked, and not asked, without `asking`."""
    for chip, name in product(chips, MATCHES):
        if only in name:
            row = timed.timed(found.get((chip, name)), name, chip, asking)
            if row is not None:
                yield row


def ordered(found: Mapping[tuple[str, str], Row]) -> list[Row]:
    return [found[key] for key in product(CHIPS, MATCHES) if key in found]


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--chip", action="append", choices=CHIPS, help="default: all")
    parser.add_argument("--only", default="", help="asks cases whose names contain this")
    parser.add_argument("--check", action="store_true", help="asks nothing; marks what is older")
    parser.add_argument("--page", action="store_true", help="only makes the page of what is kept")
    options = parser.parse_args(given)
    kept = timed.read(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else []
    found = {(row.chip, row.name): row for row in kept}
    chips = () if options.page else options.chip or CHIPS
    with nullcontext() if options.check else closing(Asking()) as asking:
        for row in renewed(dict(found), chips, options.only, asking):
            print(row.chip, _line(row), flush=True)
            found[row.chip, row.name] = row
            timed.keep(ordered(found))
    PAGE.write_text(page(ordered(found)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
