"""tune(kernel, cases) -> Tuned: tries configs, the best estimates first, and keeps the best.

candidates   Kernel.configs, after the default
a trial      run on every case, and compared with the default's results; then timed:
             by the model (Kernel.predict: nothing runs on a TPU), or on the device that is here
kept         trials that ended by themselves, on disk, so that tuning goes on where it was stopped
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import itertools
import json
import pickle
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .aot import Gone, Worker
from .api import Kernel
from .autotune import lock as locks
from .autotune import model, proof
from .autotune.handed import load, save
from .autotune.model import store
from .autotune.progress import shown
from .autotune.trials import OBJECTIVES, SETTLED, Trial, Tuned
from .codegen.pallas.target import Target
from .errors import CallError, CompileError, PlanError
from .language.dtypes import to_numpy
from .runtime.bridge import narrowed
from .runtime.given import Given, given_of
from .runtime.lowering import Lowered, target_of
from .runtime.signature import bind
from .schedule.candidate import Candidate
from .schedule.config import Config

COMMAND = (sys.executable, "-P", "-m", "tilelang.autotune.worker")
PACKAGES = ("raggedtile", "jax", "jaxlib", "libtpu")
TRIALS, LOOKED = 20, 100  # configs, if no budget is given, and if only seconds are
ROUNDS = 10  # that a device is timed
SLOWER = 1.02  # of the default's time: a choice that takes longer does not hold any more


@dataclass(frozen=True)
class Ask:
    """What is asked of every trial."""

    kernel: Kernel
    cases: tuple[Given, ...]
    checks: tuple[Given, ...]
    target: Target
    by: str
    timeout: float
    folder: Path
    command: Sequence[str]
    scratch: Path

    def lowered(self, given: Given, config: Config | None) -> Lowered:
        return self.kernel.lower(**given.values, config=config, target=self.target)

    @functools.cached_property
    def default(self) -> Config:
        return self.kernel.default_config(**self.cases[0].values, target=self.target)

    @functools.cached_property
    def files(self) -> tuple[str, ...]:
        """The arguments of the checks, written out."""
        paths = [self.scratch / f"case_{n}" for n in range(len(self.checks))]
        for path, given in zip(paths, self.checks, strict=True):
            save(path, _arrays(given))
        return tuple(map(str, paths))

    @functools.cached_property
    def data(self) -> str:
        """A digest of all arguments."""
        found = hashlib.sha256()
        for given in (*self.cases, *self.checks):
            for array in _arrays(given):
                found.update(f"{array.dtype}{array.shape}".encode() + array.tobytes())
        return found.hexdigest()

    @functools.cached_property
    def expected(self) -> tuple[list[np.ndarray], ...]:
        """What the default config gives in every check; CallError if it cannot be run."""
        outcome = _run(self, self.default, "default")
        if isinstance(outcome, Trial):
            raise CallError(
                f"the default config of {self.kernel.signature.kernel} {outcome.end} where "
                f"trials are compared with it: {outcome.why}",
                hint="give smaller arguments to compare with, checks=[...], or a longer timeout=",
            )
        return outcome[0]


def tune(
    kernel: Kernel,
    cases: Sequence[Any],
    *,
    target: str | Target | None = None,
    trials: int | None = None,
    budget: float | None = None,
    by: str = "model",
    objective: str = "mean",
    checks: Sequence[Any] | None = None,
    timeout: float = 120.0,
    check: bool = False,
    lock: str | Path = locks.NAME,
    folder: Path | None = None,
    progress: bool | None = None,
    command: Sequence[str] = COMMAND,
) -> Tuned:
    """Finds a config for the calls that `cases` are examples of.

    cases      tuples of arguments of one class of shapes; arrays of numbers may be `tile.spec`
    trials     how many configs are tried, the default among them; 20 if no budget is given
    budget     seconds after which no trial is begun; with it results depend on the machine
    by         "model": predicted time on a TPU, which need not be here; "device": measured here
    objective  "mean" or "worst" over the cases
    checks     smaller cases that trials are compared with the default on, instead of `cases`
    timeout    seconds for one process of one trial
    check      only the config in `lock` is tried; CallError if it does not hold any more

    Every trial runs in processes of its own.  What crashes, hangs, is refused or gives other
    results than the default is in `Tuned.trials`, and is never chosen.
    """
    _check_choice("by", by, ("model", "device"))
    _check_choice("objective", objective, tuple(OBJECTIVES))
    goal = target_of(target or "tpu:v6e")
    if not isinstance(goal, Target) or (by == "model" and goal.name == "cpu"):
        raise CallError(
            f"nothing predicts times for {goal}" if by == "model" else f"{goal} cannot be timed",
            hint="tune for a TPU by='model'; Kernel.configs lists the configs of every target",
        )
    every = tuple(_bound(kernel, case) for case in cases)
    subject, source = _subject(kernel, every, goal)
    entry = _entry(subject, source, lock) if check else None
    most = TRIALS if trials is None and budget is None else trials
    with tempfile.TemporaryDirectory() as scratch:
        ask = Ask(
            kernel, every, tuple(_bound(kernel, c) for c in checks) if checks else every, goal, by,
            timeout, folder or store.folder().with_name("tuned"), command, Path(scratch),
        )  # fmt: skip
        found = _tried(ask, _listed(ask, entry, most), most, budget, progress)
    tuned = Tuned(subject, source, by, objective, found, _versions())
    if not tuned.ranked:
        raise CallError(
            f"no config of {subject} could be tried:\n"
            + "\n".join(f"  {trial.end}: {trial.why}" for trial in found)
        )
    if check:
        _require_held(tuned, lock)
    return tuned


# ------------------------------------------------------------ what is tried


def _listed(ask: Ask, entry: locks.Entry | None, most: int | None) -> Iterator[Candidate]:
    """The default first; then the best estimates, or only the one in a lock file."""
    if entry is not None:
        yield Candidate(ask.default, None, 0)
        if entry.config != ask.default:
            yield Candidate(entry.config, None, 0)
        return
    listed = ask.kernel.configs(**ask.cases[0].values, target=ask.target)
    found = list(itertools.islice(listed, LOOKED if most is None else most))
    first = next((c for c in found if c.config == ask.default), Candidate(ask.default, None, 0))
    yield first
    yield from (c for c in found if c.config != ask.default)


def _entry(subject: locks.Subject, source: str, lock: str | Path) -> locks.Entry:
    """The entry that is to hold; CallError if there is none, or of another kernel."""
    found = locks.read(lock).entries.get(subject)
    if isinstance(found, locks.Entry) and found.source == source:
        return found
    why = "has no entry" if found is None else "was made for another text of the kernel"
    if isinstance(found, locks.Broken):
        why = f"cannot be used: {found.why}"
    raise CallError(f"{lock}: {subject} {why}", hint="tune it again")


def _require_held(tuned: Tuned, lock: str | Path) -> None:
    """CallError if what the lock file says is refused, wrong, or slower than the default."""
    held = tuned.trials[-1]
    if held.end != "good":
        raise CallError(
            f"{lock}: the config for {tuned.subject} {held.end}: {held.why}", hint="tune it again"
        )
    if tuned.default.end == "good" and tuned.time(held) > SLOWER * tuned.time(tuned.default):
        slower = tuned.time(held) / tuned.time(tuned.default)
        raise CallError(
            f"{lock}: the config for {tuned.subject} takes {slower:.2f} times as long as the "
            "default",
            hint="tune it again",
        )


def _tried(
    ask: Ask,
    listed: Iterator[Candidate],
    most: int | None,
    budget: float | None,
    progress: bool | None,
) -> tuple[Trial, ...]:
    """The trials, in order, until the budget is spent; the default is tried whatever it is."""
    ends = None if budget is None else time.monotonic() + budget
    found: list[Trial] = []
    with shown(most, progress) as show:
        for candidate in itertools.islice(listed, most):
            if found and ends is not None and time.monotonic() > ends:
                break
            found.append(_trial(ask, candidate))
            show(found[-1])
    return tuple(found)


# ------------------------------------------------------------ one trial


class _Unsettled(Exception):
    """A trial that may end in another way on another day: it is not kept."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        super().__init__(trial.why)


def _trial(ask: Ask, candidate: Candidate) -> Trial:
    """A trial, or what is kept of it."""
    try:
        plans = [ask.lowered(given, candidate.config) for given in ask.cases]
        first = [ask.lowered(given, candidate.config) for given in ask.checks]
        compared = [ask.lowered(given, ask.default) for given in ask.checks]
    except PlanError as refused:
        return Trial(candidate, "refused", why=str(refused))
    question = {
        "tuned": _versions(),
        "code": _code(),
        "by": ask.by,
        "target": ask.target.name,
        "data": ask.data,
        "sources": [low.source.digest for low in (*plans, *first, *compared)],
    }

    def make() -> dict[str, Any]:
        trial = _made(ask, candidate, plans)
        if trial.end not in SETTLED:
            raise _Unsettled(trial)
        return {"end": trial.end, "seconds": list(trial.seconds), "why": trial.why}

    try:
        key = json.dumps(question, sort_keys=True)
        found = store.kept(key, make, ask.folder, ask.timeout)
    except _Unsettled as unsettled:
        return unsettled.trial
    return Trial(candidate, found["end"], tuple(found["seconds"]), found["why"])


def _made(ask: Ask, candidate: Candidate, plans: Sequence[Lowered]) -> Trial:
    """Runs a config, compares, and times it."""
    expected = ask.expected
    outcome = _run(ask, candidate.config, "trial")
    if isinstance(outcome, Trial):
        return Trial(candidate, outcome.end, why=outcome.why)
    results, seconds = outcome
    ir = plans[0].ir
    for number, (want, have) in enumerate(zip(expected, results, strict=True)):
        said = proof.wrong(want, have, proof.left_open(ir), proof.inexact(ir))
        if said:
            return Trial(candidate, "wrong", why=f"case {number}: {said}")
    if ask.by == "device":
        return Trial(candidate, "good", tuple(seconds))
    return _predicted(ask, candidate, plans)


def _run(
    ask: Ask, config: Config, name: str
) -> tuple[tuple[list[np.ndarray], ...], list[float]] | Trial:
    """The results of every check and how long each took, from processes; or how one ended."""
    at = [ask.scratch / f"{name}_{number}" for number in range(len(ask.checks))]
    seconds = dict[int, float]()
    for lowered, numbers in _alike([ask.lowered(given, config) for given in ask.checks]):
        for number in numbers:
            at[number].unlink(missing_ok=True)
        files = [ask.files[number] for number in numbers]
        answer = _asked(ask, lowered, files, [str(at[number]) for number in numbers])
        if isinstance(answer, Trial):
            return answer
        seconds.update(zip(numbers, answer, strict=True))
    try:
        results = tuple(load(path) for path in at)
    except (OSError, ValueError, EOFError, pickle.UnpicklingError) as error:
        end = Candidate(config, None, 0)
        return Trial(end, "crashed", why=f"it left half a result ({error})")
    return results, [seconds[number] for number in range(len(at))]


def _alike(plans: Sequence[Lowered]) -> list[tuple[Lowered, list[int]]]:
    """Cases that one program runs."""
    found: dict[str, tuple[Lowered, list[int]]] = {}
    for number, lowered in enumerate(plans):
        found.setdefault(lowered.source.text, (lowered, []))[1].append(number)
    return list(found.values())


def _asked(
    ask: Ask, lowered: Lowered, cases: Sequence[str], results: Sequence[str]
) -> list[float] | Trial:
    target = ask.target
    request = {
        "text": lowered.source.text,
        "entry": lowered.source.entry,
        "kind": target.device_kind,
        "cores": target.cores,
        "interpret": ask.by == "model" or target.name == "cpu",
        "cases": cases,
        "results": results,
        "rounds": ROUNDS if ask.by == "device" else 0,
    }
    candidate = Candidate(lowered.config, None, 0)
    with Worker(ask.command, pretend=ask.by == "model") as worker:
        try:
            answer = worker.ask(request, ask.timeout)
        except Gone as ended:
            return _gone(candidate, ended, ask.timeout)
    if "error" in answer:
        return Trial(candidate, "refused", why=answer["error"])
    return answer["seconds"]


def _gone(candidate: Candidate, ended: Gone, timeout: float) -> Trial:
    if ended.code is None:
        return Trial(candidate, "hung", why=f"no answer in {timeout:g} seconds")
    last = ended.said.splitlines()[-1:] or [""]
    return Trial(candidate, "crashed", why=f"its process ended with {ended.code}: {last[0]}")


def _predicted(ask: Ask, candidate: Candidate, plans: Sequence[Lowered]) -> Trial:
    """Times by the model, from one compiler process."""
    seconds, began = dict[int, float](), time.monotonic()
    with model.Compiler.started() as compiler:
        try:
            for lowered, numbers in _alike(plans):
                integers = [ask.cases[number].integers() for number in numbers]
                values = {n: [each[n] for each in integers] for n in model.steering(lowered)}
                found = model.predict(lowered, {}, values, timeout=ask.timeout, compiler=compiler)
                if found.notes:
                    return Trial(candidate, "unresolved", why="; ".join(found.notes))
                runs = found.runs * (len(numbers) // len(found.runs))
                seconds.update({n: run.seconds for n, run in zip(numbers, runs, strict=True)})
        except CompileError as error:
            if compiler.worker.alive:
                return Trial(candidate, "refused", why=error.what)
            hung = time.monotonic() - began >= ask.timeout
            return Trial(candidate, "hung" if hung else "crashed", why=error.what)
    return Trial(candidate, "good", tuple(seconds[number] for number in range(len(plans))))


# ------------------------------------------------------------ arguments


def _bound(kernel: Kernel, case: Any) -> Given:
    """The arguments of a case: a tuple, or a mapping of names."""
    args, kwargs = ((), case) if isinstance(case, Mapping) else (tuple(case), {})
    values = bind(kernel.signature, args, kwargs)
    given = given_of(dict(zip(kernel.signature.names, values, strict=True)))
    for name, tensor in given.tensors.items():
        if tensor.home == "shape" and "int" in tensor.spec.dtype:
            raise CallError(
                f"{name} is a shape without data, and integers steer a kernel",
                hint="give an array in every case: how long it takes depends on it",
            )
    return given


def _subject(kernel: Kernel, cases: Sequence[Given], goal: Target) -> tuple[locks.Subject, str]:
    """What the choice is for; CallError if the cases are of several classes of shapes."""
    found = {kernel.subject(**given.values, target=goal): None for given in cases}
    if len(found) != 1:
        what = "; ".join(subject.arguments for subject, _ in found) or "there are no cases"
        raise CallError(
            f"cases of one choice have shapes of one class: {what}",
            hint="tune each class by itself",
        )
    return next(iter(found))


def _arrays(given: Given) -> list[np.ndarray]:
    """The values of all tensors; those of shapes are drawn, the same ones every time."""
    known = Given(given.values, {n: d for n, d in given.tensors.items() if d.home != "shape"})
    arrays, rng = known.arrays(), np.random.default_rng(0)
    found = []
    for name, tensor in given.tensors.items():
        if name in arrays:
            array = arrays[name]
            found.append(narrowed(name, array) if array.dtype == np.int64 else array)
        else:
            drawn = rng.standard_normal(tensor.spec.shape, np.float32) * 0.5
            found.append(drawn.astype(to_numpy(tensor.spec.dtype)))
    return found


# ------------------------------------------------------------ versions


@functools.cache
def _versions() -> dict[str, str]:
    """Of what the figures depend on."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@functools.cache
def _code() -> str:
    """A digest of what trials are made and compared with."""
    at = Path(__file__).parent
    files = [Path(__file__), *sorted((at / "autotune").rglob("*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def _check_choice(name: str, value: str, legal: tuple[str, ...]) -> None:
    if value not in legal:
        raise CallError(f"{name}={value!r} is not known", hint=f"use one of {', '.join(legal)}")
