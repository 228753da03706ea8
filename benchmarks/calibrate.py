"""How far the estimate is from schedules that were compiled once, and constants that fit them best.

    python -m benchmarks.calibrate [--chip v6e] [--fit]

benchmarks/schedules.json has what libtpu's final schedules take without their copies; the estimate
of the same blocks is compared with that.  --fit looks for better constants of
`codegen/pallas/plan/estimate/costs.py` by turns, each a little up or down, and prints them.  Fitted
and compared on the same cases: the figures say how well the form fits, not how it does on others.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace

import tilelang as tile
from benchmarks.production import CASES, Schedule, schedules
from tilelang.codegen.pallas.plan.estimate import costs, seconds
from tilelang.codegen.pallas.plan.types import Plan

KEPT = ("alu", "special", "rows")  # slots of a bundle, and what no case has
SMALLEST = {"grid": 60.0, "others": 0.03}
ROUNDS = 40


@dataclass(frozen=True)
class Sample:
    """A plan that was compiled once: seconds of its kernels' work by the compiler's schedule."""

    schedule: Schedule
    plan: Plan
    compute: float

    def estimated(self) -> float:
        """The same by the constants that hold now."""
        return seconds.estimate(self.plan, CASES[self.schedule.case].values).compute


def samples(chip: str) -> Iterator[Sample]:
    """What was compiled for a chip, planned as it is today."""
    for schedule in schedules():
        if schedule.chip != chip:
            continue
        case, config = CASES[schedule.case], tile.Config(dict(schedule.blocks), pieces=0)
        lowered = case.kernel.lower(*case.arguments, target=f"tpu:{chip}", config=config)
        if len(lowered.plan.launches) == len(schedule.compute):
            yield Sample(schedule, lowered.plan, sum(schedule.compute) * 1e-6)


def error(found: Sequence[Sample]) -> float:
    """The mean of how wrong each one is, as a power of e; very wrong ones count no more."""
    return statistics.fmean(min(abs(math.log(s.estimated() / s.compute)), 0.6) for s in found)


def fitted(chip: str, found: Sequence[Sample]) -> costs.Costs:
    """Constants of a chip with less error than its own."""
    best, least = costs.COSTS[chip], error(found)
    free = [f.name for f in fields(best) if f.name not in KEPT]
    step = {name: max(getattr(best, name) * 0.3, 0.1) for name in free}
    for _ in range(ROUNDS):
        for name in free:
            for sign in (1, -1):
                value = max(SMALLEST.get(name, 0.0), getattr(best, name) + sign * step[name])
                tried = replace(best, **{name: round(value, 4)})
                with constants(chip, tried):
                    now = error(found)
                if now < least - 1e-6:
                    best, least = tried, now
                    break
            else:
                step[name] *= 0.6
        if all(step[name] < 0.01 * max(getattr(best, name), 0.05) for name in free):
            break
    return best


@contextmanager
def constants(chip: str, new: costs.Costs) -> Iterator[None]:
    """The estimate uses these inside."""
    old = seconds.COSTS
    seconds.COSTS = {**old, chip: new}
    try:
        yield
    finally:
        seconds.COSTS = old


def report(chip: str, found: Sequence[Sample]) -> list[str]:
    """A line for each sample, worst first, and how far they are in the middle."""
    ratios = [(s.estimated() / s.compute, s.schedule) for s in found]
    ratios.sort(key=lambda r: -abs(math.log(r[0])))
    far = statistics.median(abs(math.log(r)) for r, _ in ratios)
    lines = [f"  {r:5.2f}  {s.case}  {dict(s.blocks)}" for r, s in ratios]
    return [
        f"{chip}: {len(found)} schedules, a factor of {math.exp(far):.2f} in the middle",
        *lines,
    ]


def main(given: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--chip", action="append", help="v5e, v6e (default: both)")
    parser.add_argument("--fit", action="store_true", help="look for better constants")
    options = parser.parse_args(given)
    for chip in options.chip or ("v5e", "v6e"):
        found = list(samples(chip))
        print("\n".join(report(chip, found)))
        if options.fit:
            new = fitted(chip, found)
            with constants(chip, new):
                print(f"fitted: {error(found):.3f}; before: ", end="")
            print(f"{error(found):.3f}\n{asdict(new)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
