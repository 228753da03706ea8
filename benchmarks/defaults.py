"""Writes docs/defaults.md: default blocks against the best of others, by predicted time.

    python -m benchmarks.defaults [--chip v6e] [--only matmul] [--most N]

Every time is `Kernel.predict`'s: libtpu's final schedule, executed; no TPU is used.  The others are
the blocks in benchmarks/schedules.json, the quickest ones of then first, predicted anew.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from itertools import product
from pathlib import Path

import tilelang as tile
from benchmarks.production import CASES, schedules

Tried = tuple[float, Mapping[str, int]]  # microseconds, blocks
PAGE = Path(__file__).resolve().parent.parent / "docs" / "defaults.md"
HEAD = """# Default blocks, against the best of others

Microseconds by [`Kernel.predict`](predict.md): the compiler's final schedule, executed. **No TPU
was used.** The others are blocks that were tried by hand while the constants of the estimate were
fitted, so this page says how well the defaults do on the cases that they were made for; `limit` is
what no schedule can beat. `make defaults` writes the page again.

libtpu {libtpu}, {day}: {close} of {all} defaults are within 10 % of the best that was tried, and
the worst is at {worst:.2f} of it.

| case | chip | default | blocks | best tried | blocks | ratio | limit |
|---|---|---|---|---|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    """The default of a case and the best of all that were tried, the default among them."""

    case: str
    chip: str
    default: Tried
    best: Tried
    limit: float

    @property
    def ratio(self) -> float:
        return self.default[0] / self.best[0]

    def __str__(self) -> str:
        times = [(f"{us:.1f}", shown(blocks)) for us, blocks in (self.default, self.best)]
        cells = [self.case, self.chip, *times[0], *times[1], f"{self.ratio:.2f}"]
        return f"| {' | '.join([*cells, f'{self.limit:.1f}'])} |"


def shown(blocks: Mapping[str, int]) -> str:
    return ", ".join(f"{axis}={size}" for axis, size in sorted(blocks.items()))


def rows(chips: Sequence[str], only: str, most: int) -> Iterator[Row]:
    """One for each case and chip; a default that the compiler does not take in time has none."""
    for name, chip in product(CASES, chips):
        if only in name and (found := row(name, chip, most)) is not None:
            yield found


def row(name: str, chip: str, most: int) -> Row | None:
    case = CASES[name]
    chosen = dict(case.kernel.default_config(*case.arguments, target=f"tpu:{chip}").blocks)
    default = predicted(name, chip, None)
    if default is None:
        return None
    tried: list[Tried] = [(default[0], chosen)]
    known = [s for s in schedules() if (s.case, s.chip) == (name, chip) and s.blocks != chosen]
    for other in sorted(known, key=lambda s: s.us)[:most]:
        found = predicted(name, chip, tile.Config(dict(other.blocks)))
        tried += [] if found is None else [(found[0], other.blocks)]
    return Row(name, chip, tried[0], min(tried, key=lambda t: t[0]), default[1])


def predicted(name: str, chip: str, config: tile.Config | None) -> tuple[float, float] | None:
    """Microseconds of a case, and the limit; None, and a line, where there is no answer."""
    case, target = CASES[name], f"tpu:{chip}"
    try:
        found = case.kernel.predict(
            *case.arguments, target=target, config=config, values=case.values
        )
    except tile.TileError as error:
        print(f"{name}, {chip}, {config}: {error}", file=sys.stderr)
        return None
    return found.seconds * 1e6, found.limit * 1e6


def page(found: Sequence[Row]) -> str:
    close = sum(row.ratio <= 1.1 for row in found)
    head = HEAD.format(
        libtpu=version("libtpu"),
        day=date.today().isoformat(),
        close=close,
        all=len(found),
        worst=max((row.ratio for row in found), default=1.0),
    )
    return head + "".join(f"{row}\n" for row in found)


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--chip", action="append", help="v5e, v6e (default: both)")
    parser.add_argument("--only", default="", help="cases whose names contain this")
    parser.add_argument("--most", type=int, default=3, help="others for each (3)")
    options = parser.parse_args(given)
    found = []
    for row in rows(options.chip or ("v5e", "v6e"), options.only, options.most):
        print(row, flush=True)
        found.append(row)
    PAGE.write_text(page(found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
