"""timed(name, match, chip, known): our default config and the experts' kernels, by predicted time.

What is kept of a time has the digest of its question: source, compiler, target and the offsets.
A time whose digest is still that of this tree is not asked again, and what a compiler refuses is
kept too.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import tilelang as tile
from benchmarks import experts
from benchmarks.matches import MATCHES, Match
from tilelang.autotune import model
from tilelang.autotune.model import ProgramRun
from tilelang.codegen.pallas.plan.types import Plan
from tilelang.runtime.lowering import Lowered

KEPT = Path(__file__).with_name("performance.json")
TIMEOUT = 600.0  # seconds for one answer
ABSURD = 1000  # times the physical limit: trips of a loop whose count is unknown, not work


@dataclass(frozen=True)
class Time:
    """Microseconds of a whole program; of one that no compiler takes, why (`refused`).

    name     our blocks, or who
    digest   of the question, "" if it was not kept
    doubt    whether scalars could not be resolved
    compute  that its kernels work, and wait for units; without copies
    traffic  that their bytes take at the chip's bandwidth
    fetched  that they wait for what XLA moves
    matrix   the share of the time in which matrix units multiply
    cores    that no launch of ours leaves idle
    old      whether this tree asks another question
    """

    name: str
    digest: str
    us: float = 0.0
    limit: float = 0.0
    doubt: bool = False
    compute: float = 0.0
    traffic: float = 0.0
    fetched: float = 0.0
    matrix: float = 0.0
    cores: int = 1
    refused: str = ""
    old: bool = False

    def __str__(self) -> str:
        return f"{self.us:.1f}{'*' if self.doubt else ''}{'†' if self.old else ''}"


@dataclass(frozen=True)
class Row:
    """One case on one chip."""

    name: str
    chip: str
    ours: Time
    experts: tuple[Time, ...] = ()

    @property
    def match(self) -> Match:
        return MATCHES[self.name]

    @property
    def expert(self) -> Time | None:
        """The quickest, those that can be relied on first; None where none answers."""
        answers = (t for t in self.experts if not t.refused)
        return min(answers, key=lambda t: (t.doubt, t.us), default=None)

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


@dataclass
class Asking:
    """A compiler that answers one question after the other, and is made anew when it has ended."""

    _stack: ExitStack = field(default_factory=ExitStack)
    _compiler: model.Compiler | None = None

    def compiler(self) -> model.Compiler:
        if self._compiler is None or not self._compiler.worker.alive:
            self.close()
            self._compiler = self._stack.enter_context(model.Compiler.started())
        return self._compiler

    def close(self) -> None:
        self._stack.close()
        self._compiler = None


def timed(row: Row | None, name: str, chip: str, asking: Asking | None) -> Row | None:
    """A row of this tree: what is known of it already, and the rest asked.

    Without `asking` nothing is: what this tree would ask otherwise is `old`.  None where ours
    never had a time.
    """
    match = MATCHES[name]
    known = {} if row is None else {t.name: t for t in row.experts}
    others = (_theirs(known.get(e.name), e, chip, asking) for e in match.experts)
    mine = _ours(None if row is None else row.ours, match, chip, asking)
    if mine is None:
        return None
    return Row(name, chip, mine, tuple(t for t in others if t is not None))


def _ours(known: Time | None, match: Match, chip: str, asking: Asking | None) -> Time | None:
    case = match.case
    lowered = case.kernel.lower(*case.arguments, target=f"tpu:{chip}")
    digest = model.digest(model.question_of(lowered, {}, case.values))
    if (found := _known(known, digest, asking)) is not None or asking is None:
        return found
    try:
        prediction = model.predict(
            lowered, {}, case.values, timeout=TIMEOUT, compiler=asking.compiler()
        )
    except tile.TileError as error:
        print(f"{lowered.ir.name}, {chip}: {error}", file=sys.stderr)
        return None if known is None else replace(known, old=True)
    if prediction.notes:
        print(f"{lowered.ir.name}, {chip}: {dict(prediction.notes)}", file=sys.stderr)
    (run,) = prediction.runs
    return replace(
        _time(run, _chosen(prediction.config), digest, bool(prediction.notes)),
        cores=_cores(lowered),
    )


def _theirs(
    known: Time | None, expert: experts.Expert, chip: str, asking: Asking | None
) -> Time | None:
    question = experts.question(expert, chip)
    digest = model.digest(question)
    if (found := _known(known, digest, asking)) is not None or asking is None:
        return found
    answer = experts.predicted(expert, question, TIMEOUT, asking.compiler)
    if answer.run is None:
        return Time(expert.name, digest, refused=answer.error)
    if answer.notes:
        print(f"{expert.name}, {chip}: {dict(answer.notes)}", file=sys.stderr)
    return _believed(_time(answer.run, expert.name, digest, bool(answer.notes)))


def _believed(time: Time) -> Time:
    """A time, or none where what was not resolved made it of another order than what it does."""
    if time.doubt and time.us > ABSURD * time.limit:
        return Time(time.name, time.digest, refused="numbers that steer it could not be resolved")
    return time


def _known(known: Time | None, digest: str, asking: Asking | None) -> Time | None:
    """What is kept, if it answers this question, or if nothing may be asked."""
    if known is None or (asking is not None and known.digest != digest):
        return None
    return replace(known, old=known.digest != digest)


def _time(run: ProgramRun, name: str, digest: str, doubt: bool) -> Time:
    busy = sum(k.matrix * k.seconds for k in run.kernels)
    compute, traffic = (sum(getattr(k, n) for k in run.kernels) for n in ("compute", "traffic"))
    return Time(
        name,
        digest,
        us=round(run.seconds * 1e6, 1),
        limit=round(run.limit * 1e6, 1),
        doubt=doubt,
        compute=round(compute * 1e6, 1),
        traffic=round(traffic * 1e6, 1),
        fetched=round(run.fetched * 1e6, 1),
        matrix=round(busy / run.seconds, 2),
    )


def _chosen(config: tile.Config) -> str:
    chosen = [f"{axis}={size}" for axis, size in sorted(config.blocks)]
    return ", ".join([*chosen, *([f"within={','.join(config.within)}"] if config.within else [])])


def _cores(lowered: Lowered) -> int:
    """That all launches use; XLA shares the grids of those that say nothing."""
    plan = lowered.plan
    assert isinstance(plan, Plan)
    every = plan.target.cores
    return min((every if n.form == "grid" else n.cores for n in plan.launches), default=1)


# ------------------------------------------------------------ on disk


def read(text: str) -> list[Row]:
    """The rows of a file that has one in a line."""
    found = []
    for line in text.splitlines():
        name, chip, ours, *others = json.loads(line)
        found.append(Row(name, chip, Time(**ours), tuple(Time(**other) for other in others)))
    return found


def written(rows: Iterable[Row]) -> str:
    """The lines of a file; of a time what is not as it mostly is."""
    return "".join(
        json.dumps([r.name, r.chip, *map(_kept, (r.ours, *r.experts))], ensure_ascii=False) + "\n"
        for r in rows
    )


def _kept(time: Time) -> dict[str, Any]:
    usual = asdict(Time("", ""))
    return {n: v for n, v in asdict(time).items() if n in ("name", "digest", "us") or v != usual[n]}


def keep(rows: Iterable[Row], at: Path = KEPT) -> None:
    """All of them or nothing, so that a run that is stopped goes on."""
    part = at.with_suffix(".part")
    part.write_text(written(rows), encoding="utf-8")
    os.replace(part, at)
