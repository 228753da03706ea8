"""Trial, Tuned: what was tried, what came of it, and what was chosen."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..schedule.candidate import Candidate
from ..schedule.config import Config
from . import lock
from .model.prediction import duration

NOISE = {"model": 1.0, "device": 1.02}  # how many times as fast as the default is faster
# How a trial ends that would end so again.  "hung" and "crashed" may be the machine's fault.
SETTLED = ("good", "refused", "wrong", "unresolved")
OBJECTIVES: Mapping[str, Callable[[tuple[float, ...]], float]] = {
    "mean": lambda seconds: sum(seconds) / len(seconds),
    "worst": max,
}


@dataclass(frozen=True)
class Trial:
    """One config.

    end      how it ended: one of SETTLED, "hung" or "crashed"; only "good" ones are chosen
    seconds  of each case; () if it is not good
    why      what was wrong, or ""
    """

    candidate: Candidate
    end: str
    seconds: tuple[float, ...] = ()
    why: str = ""

    @property
    def config(self) -> Config:
        return self.candidate.config


@dataclass(frozen=True)
class Tuned:
    """What tuning chose, and everything that it tried; the default is the first trial.

    source     digest of the kernel that was tuned
    by         "model" or "device"
    objective  "mean" or "worst" over the cases
    versions   of the packages that the figures depend on
    """

    subject: lock.Subject
    source: str
    by: str
    objective: str
    trials: tuple[Trial, ...]
    versions: Mapping[str, str]

    @property
    def ranked(self) -> tuple[Trial, ...]:
        """The good trials, best first; of equally good ones the one that needs least memory."""
        good = (trial for trial in self.trials if trial.end == "good")
        key = lambda t: (self.time(t), t.candidate.memory, t.config.to_json())  # noqa: E731
        return tuple(sorted(good, key=key))

    @property
    def default(self) -> Trial:
        return self.trials[0]

    @property
    def best(self) -> Trial:
        """The choice: the default, unless something is better by more than noise."""
        first = self.ranked[0]
        good = self.default.end == "good"
        same = good and self.time(self.default) <= NOISE[self.by] * self.time(first)
        return self.default if same else first

    @property
    def config(self) -> Config:
        return self.best.config

    @property
    def seconds(self) -> float:
        return self.time(self.best)

    @property
    def gain(self) -> float | None:
        """How many times as long as the choice the default takes; None if that failed."""
        return self.time(self.default) / self.seconds if self.default.end == "good" else None

    def time(self, trial: Trial) -> float:
        """Seconds of a good trial by the objective."""
        return OBJECTIVES[self.objective](trial.seconds)

    def entry(self) -> lock.LockEntry:
        """The choice as it stands in a lock file."""
        facts: dict[str, Any] = {
            "by": self.by,
            "objective": self.objective,
            "cases": len(self.best.seconds),
            "trials": len(self.trials),
            "seconds": _figure(self.seconds),
            "default": self._fact(self.default),
            "versions": dict(self.versions),
        }
        others = [t for t in self.ranked if t.config != self.config]
        if others:
            facts["runner-up"] = self._fact(others[0])
        return lock.LockEntry(self.subject, self.source, self.config, facts)

    def _fact(self, trial: Trial) -> dict[str, Any]:
        seconds = _figure(self.time(trial)) if trial.end == "good" else trial.end
        return {"config": json.loads(trial.config.to_json()), "seconds": seconds}

    def save(self, path: str | Path = lock.NAME) -> None:
        """Puts the choice into a lock file, in place of an older one for the same calls."""
        lock.write(path, [self.entry()])

    def __str__(self) -> str:
        """A table of the trials, the choice, the gain, and what was refused, with reasons."""
        count = len(self.best.seconds)
        head = f"{self.subject}: {len(self.trials)} configs by {self.by}, " + (
            f"{self.objective} of {count} cases" if count > 1 else "one case"
        )
        rows = [self._row(trial) for trial in self.ranked]
        widths = [max(len(row[n]) for row in rows) for n in range(2)]
        lines = [f"  {r[0]:>{widths[0]}}  {r[1]:>{widths[1]}}  {r[2]}" for r in rows]
        lines += [f"  {row(trial)}" for trial in self.trials if trial.end != "good"]
        return "\n".join([head, *lines, self._verdict()])

    def _row(self, trial: Trial) -> tuple[str, str, str]:
        guess, memory = trial.candidate.seconds, trial.candidate.memory
        estimated = "no estimate" if guess is None else f"{duration(guess)} estimated"
        if guess is None and memory:
            estimated = f"{memory:,} bytes"
        marks = ["default"] * (trial is self.default) + ["chosen"] * (trial is self.best)
        mark = f"  <- {', '.join(marks)}" if marks else ""
        return duration(self.time(trial)), estimated, f"{config_text(trial.config)}{mark}"

    def _verdict(self) -> str:
        if self.gain is None:
            return f"chosen: {config_text(self.config)}; the default is {self.default.end}"
        if self.best is self.default:
            return "chosen: the default, nothing that was tried is better"
        return f"chosen: {config_text(self.config)}, {self.gain:.2f} times as fast as the default"


def row(trial: Trial) -> str:
    """How a trial ended, in a line."""
    if trial.end == "good":
        return f"{', '.join(map(duration, trial.seconds))}: {config_text(trial.config)}"
    return f"{trial.end}: {config_text(trial.config)}: {_first(trial.why)}"


def config_text(config: Config) -> str:
    data = json.loads(config.to_json())
    blocks = [f"{name}={size}" for name, size in data.pop("blocks", {}).items()]
    return ", ".join([*blocks, *(f"{name}={value}" for name, value in data.items())]) or "{}"


def _first(why: str) -> str:
    line = why.splitlines()[0] if why else ""
    return line if len(line) <= 160 else f"{line[:157]}..."


def _figure(seconds: float) -> float:
    """Four digits: more of them are noise in a diff."""
    return float(f"{seconds:.4g}")
