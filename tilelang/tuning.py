"""tune(kernel, cases) -> Tuned: tries configs, the best estimates first, and keeps the best.

candidates   Kernel.configs, after the default; for GPUs, which have no estimate, those that are
             most like the best one that was found so far
a trial      run on every case, and compared with the default's results; then timed:
             by the model (Kernel.predict: nothing runs on a TPU), or on the device that is here;
             for GPUs it is compiled first, and what spills more than the default is not run
kept         trials that ended by themselves, on disk, so that tuning goes on where it was stopped
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import itertools
import json
import pickle
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from .aot import Gone, Worker
from .aot.cuda import COMMAND as COMPILER
from .api import Kernel
from .autotune import lock as locks
from .autotune import model, proof
from .autotune.asked import check_asked, check_case, check_choice
from .autotune.benches import Bench, GpuBench, bench_of, spills
from .autotune.handed import load, save
from .autotune.model import store
from .autotune.progress import shown
from .autotune.trials import NOISE, OBJECTIVES, SETTLED, Trial, Tuned
from .errors import CallError, CompileError, PlanError
from .ir import TensorSpec
from .language.dtypes import to_numpy
from .runtime.given import Given, given_of
from .runtime.lowering import Lowered, Target, target_of
from .runtime.signature import bind
from .schedule.candidate import Candidate
from .schedule.config import Config

TRIALS, LOOKED = 20, 100  # configs, if no budget is given, and if only seconds are
SLOWER = 1.02  # of the default's time: a choice that takes longer does not hold any more


@dataclass(frozen=True)
class Ask:
    """What is asked of every trial."""

    kernel: Kernel
    cases: tuple[Given, ...]
    checks: tuple[Given, ...]
    bench: Bench
    by: str
    objective: str
    timeout: float
    folder: Path
    scratch: Path

    @property
    def target(self) -> Target:
        return self.bench.target

    def lowered(self, given: Given, config: Config | None) -> Lowered:
        return self.kernel.lower(**given.values, config=config, target=self.target)

    @functools.cached_property
    def default(self) -> Config:
        return self.kernel.default_config(**self.cases[0].values, target=self.target)

    def arrays(self, given: Given) -> list[np.ndarray]:
        """The values of all tensors, as the bench takes them."""
        return [self.bench.argument(name, array) for name, array in _arrays(given).items()]

    @functools.cached_property
    def versions(self) -> dict[str, str]:
        """Of the packages that figures depend on, and of the device."""
        return {**_versions(self.bench.packages), **self.bench.facts()}

    @functools.cached_property
    def default_spills(self) -> int:
        """What the default keeps in local memory of a GPU: others may as much."""
        plans = [self.lowered(given, self.default) for given in self.cases]
        with Worker(COMPILER) as worker:
            return spills(plans, self.timeout, worker)

    @functools.cached_property
    def files(self) -> tuple[str, ...]:
        """The arguments of the checks, written out."""
        paths = [self.scratch / f"case_{n}" for n in range(len(self.checks))]
        for path, given in zip(paths, self.checks, strict=True):
            save(path, self.arrays(given))
        return tuple(map(str, paths))

    @functools.cached_property
    def data(self) -> str:
        """A digest of all arguments."""
        found = hashlib.sha256()
        for given in (*self.cases, *self.checks):
            for array in self.arrays(given):
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
    command: Sequence[str] | None = None,
) -> Tuned:
    """Finds a config for the calls that `cases` are examples of.

    cases      tuples of arguments of one class of shapes; arrays of numbers may be `tile.spec`
    trials     how many configs are tried, the default among them; 20 if no budget is given
    budget     seconds after which no trial is begun; with it results depend on the machine
    by         "model": predicted time on a TPU, which need not be here; "device": measured here,
               on a TPU or a GPU of that target
    objective  "mean" or "worst" over the cases
    checks     smaller cases that trials are compared with the default on, instead of `cases`
    timeout    seconds for one process of one trial
    check      only the config in `lock` is tried; CallError if it does not hold any more

    Every trial runs in processes of its own.  What crashes, hangs, is refused or gives other
    results than the default is in `Tuned.trials`, and is never chosen.
    """
    check_choice("by", by, ("model", "device"))
    check_choice("objective", objective, tuple(OBJECTIVES))
    check_asked(kernel, cases, trials)
    goal = target_of(target or "tpu:v6e")
    every = tuple(_bound(kernel, case) for case in cases)
    subject, source = _subject(kernel, every, goal)
    entry = _entry(subject, source, lock) if check else None
    most = TRIALS if trials is None and budget is None else trials
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        compared = tuple(_bound(kernel, c) for c in checks) if checks else every
        ask = Ask(
            kernel, every, compared, bench_of(goal, by, command, scratch), by, objective,
            timeout, folder or store.folder().with_name("tuned"), scratch,
        )  # fmt: skip
        found = _tried(ask, entry, most, budget, progress)
        tuned = Tuned(subject, source, by, objective, found, ask.versions)
    if not tuned.ranked:
        raise CallError(
            f"no config of {subject} could be tried:\n"
            + "\n".join(f"  {trial.end}: {trial.why}" for trial in found)
        )
    if check:
        _require_held(tuned, lock)
    return tuned


# ------------------------------------------------------------ what is tried


def _listed(
    ask: Ask, entry: locks.LockEntry | None, most: int | None, found: Sequence[Trial]
) -> Iterator[Candidate]:
    """The default first; then the best estimates, or only the one in a lock file.

    `found` grows meanwhile: it has the trials of what was listed before.
    """
    if entry is not None:
        yield Candidate(ask.default, None, 0)
        if entry.config != ask.default:
            yield Candidate(entry.config, None, 0)
        return
    if isinstance(ask.bench, GpuBench):
        yield from _climbing(ask, found)
        return
    listed = ask.kernel.configs(**ask.cases[0].values, target=ask.target)
    looked = list(itertools.islice(listed, LOOKED if most is None else most))
    first = next((c for c in looked if c.config == ask.default), Candidate(ask.default, None, 0))
    yield first
    yield from (c for c in looked if c.config != ask.default)


def _climbing(ask: Ask, found: Sequence[Trial]) -> Iterator[Candidate]:
    """Where nothing estimates: what is most like the best of those that were found so far."""
    time_of, seen = OBJECTIVES[ask.objective], set[Config]()
    centre, least, like = ask.default, inf, _like(ask, ask.default)
    while True:
        good = (t for t in found if t.end == "good")
        best = min(good, key=lambda t: time_of(t.seconds), default=None)
        if best is not None and NOISE["device"] * time_of(best.seconds) < least:
            least = time_of(best.seconds)
            if best.config != centre:
                centre, like = best.config, _like(ask, best.config)
        candidate = next((c for c in like if c.config not in seen), None)
        if candidate is None:
            return
        seen.add(candidate.config)
        yield candidate


def _like(ask: Ask, config: Config) -> Iterator[Candidate]:
    return ask.kernel.configs(**ask.cases[0].values, target=ask.target, near=config)


def _entry(subject: locks.Subject, source: str, lock: str | Path) -> locks.LockEntry:
    """The entry that is to hold; CallError if there is none, or of another kernel."""
    found = locks.read(lock).entries.get(subject)
    if isinstance(found, locks.LockEntry) and found.source == source:
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
    entry: locks.LockEntry | None,
    most: int | None,
    budget: float | None,
    progress: bool | None,
) -> tuple[Trial, ...]:
    """The trials, in order, until the budget is spent; the default is tried whatever it is."""
    ends = None if budget is None else time.monotonic() + budget
    found: list[Trial] = []
    with shown(most, progress) as show:
        for candidate in itertools.islice(_listed(ask, entry, most, found), most):
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
        "tuned": ask.versions,
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
    if refused := _spilling(ask, candidate, plans):
        return refused
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


def _spilling(ask: Ask, candidate: Candidate, plans: Sequence[Lowered]) -> Trial | None:
    """How a config for a GPU ends that does not compile, or spills more than the default does."""
    if not isinstance(ask.bench, GpuBench) or candidate.config == ask.default:
        return None
    may, began = ask.default_spills, time.monotonic()
    with Worker(COMPILER) as worker:
        try:
            spilled = spills(plans, ask.timeout, worker)
        except CompileError as error:
            return _not_compiled(ask, candidate, error, worker, began)
    if spilled <= may:
        return None
    why = f"registers do not hold {spilled} bytes per thread, {may} with the default"
    return Trial(candidate, "refused", why=why)


def _not_compiled(
    ask: Ask, candidate: Candidate, error: CompileError, worker: Worker, began: float
) -> Trial:
    """A trial whose compiler refused, hung or died."""
    if worker.alive:
        return Trial(candidate, "refused", why=error.what)
    hung = time.monotonic() - began >= ask.timeout
    return Trial(candidate, "hung" if hung else "crashed", why=error.what)


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
    request = {**ask.bench.request(lowered), "cases": cases, "results": results}
    candidate = Candidate(lowered.config, None, 0)
    with ask.bench.started() as worker:
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
            return _not_compiled(ask, candidate, error, compiler.worker, began)
    return Trial(candidate, "good", tuple(seconds[number] for number in range(len(plans))))


# ------------------------------------------------------------ arguments


def _bound(kernel: Kernel, case: Any) -> Given:
    """The arguments of a case: a tuple, or a mapping of names."""
    check_case(case)
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


def _arrays(given: Given) -> dict[str, np.ndarray]:
    """The values of all tensors; those of shapes are drawn, the same ones every time."""
    known = Given(given.values, {n: d for n, d in given.tensors.items() if d.home != "shape"})
    arrays, rng = known.arrays(), np.random.default_rng(0)

    def drawn(spec: TensorSpec) -> np.ndarray:
        return (rng.standard_normal(spec.shape, np.float32) * 0.5).astype(to_numpy(spec.dtype))

    return {n: arrays[n] if n in arrays else drawn(t.spec) for n, t in given.tensors.items()}


# ------------------------------------------------------------ versions


@functools.cache
def _versions(packages: Sequence[str]) -> dict[str, str]:
    """Of what the figures depend on."""
    found = {}
    for name in packages:
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
