"""python -m tests.legality --count 500 --seed S: does every config that is planned compile?

Draws configs over all examples, their cases and the TPU generations until `count` were accepted by
`plan`; the real compiler must take every one.  Of the refused ones, those that a limit refused
(memory, a block that is no multiple) are emitted without the limit and compiled anyway: how many
would have compiled says whether the rules are too strict.  Results are kept between runs
(tests/compile_cache.py).  Needs libtpu and no TPU; nothing is run.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import tilelang as tile
from tests.compile_cache import CachedWorker
from tests.subjects import SUBJECTS, Subject
from tests.vmem import granted
from tilelang.aot import compile_lowered
from tilelang.codegen.pallas.target import Target
from tilelang.runtime.lowering import Lowered
from tilelang.schedule.config import LOOP_TYPES, STEPS, WINDOWS

GENERATIONS = ("v5e", "v5p", "v6e", "7x")
BLOCKS = (8, 16, 32, 64, 128, 128, 128, 256, 256, 512, 512, 1024, 2048)
ODD = (1, 3, 24, 100, 136, 200)  # seldom multiples of what is needed
DEFAULT = tile.Config()  # which must never be refused
ENDLESS = 1 << 40  # bytes


@dataclass(frozen=True)
class Draw:
    """One way to ask for a kernel."""

    subject: Subject
    case: tuple[Any, ...]
    generation: str
    config: tile.Config

    def __str__(self) -> str:
        shapes = ", ".join(str(getattr(a, "shape", a)) for a in self.case)
        dtype = getattr(self.case[0], "dtype", "")
        return f"{self.subject} {dtype} {shapes} {self.generation} {self.config.to_json()}"


@dataclass(frozen=True)
class Verdict:
    """What became of a draw.

    accepted  whether `plan` took it
    reason    why it did not, in the first words of the error
    tried     whether the compiler was asked
    problem   what the compiler, or a fault of ours, says against it; "" if nothing
    """

    draw: Draw
    accepted: bool
    reason: str = ""
    tried: bool = True
    problem: str = ""


def draws(seed: int, subjects: Sequence[Subject] = SUBJECTS) -> Iterator[Draw]:
    """Random configs without end."""
    rng = random.Random(seed)
    while True:
        subject, generation = rng.choice(subjects), rng.choice(GENERATIONS)
        case = rng.choice(subject.cases)
        try:
            default = subject.kernel.default_config(*case, target=f"tpu:{generation}")
        except tile.PlanError:  # `judge` says so
            yield Draw(subject, case, generation, DEFAULT)
        else:
            yield Draw(subject, case, generation, _config(rng, default, subject.within))


def _config(rng: random.Random, default: tile.Config, within: tuple[str, ...]) -> tile.Config:
    """Blocks of any size, mostly powers of two, and every other field now and then."""
    blocks = {
        name: size if rng.random() < 0.3 else rng.choice(BLOCKS if rng.random() < 0.9 else ODD)
        for name, size in default.blocks
    }
    ragged = default.loop_type != "grid"
    return tile.Config(
        blocks,
        loop_type=rng.choice(LOOP_TYPES) if rng.random() < 0.4 else None,
        steps=rng.choice(STEPS) if ragged and rng.random() < 0.2 else None,
        buffers=rng.choice((1, 2, 3, 4)) if rng.random() < 0.3 else None,
        cores=rng.choice((1, 2)) if rng.random() < 0.2 else None,
        within=within if within and rng.random() < 0.5 else None,
        windows=rng.choice(WINDOWS) if ragged and rng.random() < 0.3 else None,
    )


# ---------------------------------------------------------------- one draw


def judge(draw: Draw, worker: CachedWorker) -> Verdict:
    """Plans, and compiles what is planned or what only a limit stood against."""
    target = Target.of(f"tpu:{draw.generation}")
    try:
        lowered = _lowered(draw, target)
    except tile.PlanError as error:
        if draw.config == DEFAULT:
            return Verdict(draw, True, problem=f"the default is refused: {error.what}")
        return _refused(draw, target, error, worker)
    except Exception as error:  # not a reason at the user's line: a fault
        return Verdict(draw, True, problem=f"{type(error).__name__}: {error}"[:300])
    return Verdict(draw, True, problem=_problem(lowered, worker))


def _refused(draw: Draw, target: Target, error: tile.PlanError, worker: CachedWorker) -> Verdict:
    """A refusal, with the compiler's opinion where there is a limit to lift."""
    reason = kind(error.what)
    try:
        lowered = _lowered(draw, lifted(target))
    except Exception:  # it is not the limits
        return Verdict(draw, False, reason, tried=False)
    asked = granted(lowered, target.vmem_physical) if reason == "vector memory" else lowered
    return Verdict(draw, False, reason, problem=_problem(asked, worker))


def lifted(target: Target) -> Target:
    """The target without limits of memory and without shapes that blocks must fit."""
    return replace(
        target, vmem_physical=ENDLESS, vmem_default=ENDLESS, smem=ENDLESS, lanes=1, sublanes=1
    )


def _lowered(draw: Draw, target: Target) -> Lowered:
    return draw.subject.kernel.lower(*draw.case, config=draw.config, target=target)


def _problem(lowered: Lowered, worker: CachedWorker) -> str:
    try:
        compile_lowered(lowered, worker=worker)
    except tile.CompileError as error:
        return error.what.splitlines()[0]
    return ""


def kind(what: str) -> str:
    """A refusal in few words, without names and numbers."""
    known = {
        "bytes of vector memory": "vector memory",
        "cannot be cut from": "block is no multiple",
        "scalar memory": "scalar memory",
        "visited again": "a block is visited again",
        "needs static bounds": "loop_type needs static bounds",
        "loop_type=": "loop_type does not fit",
        "steps=": "steps do not fit",
        "cores": "cores",
    }
    return next((short for words, short in known.items() if words in what), what[:60])


# ---------------------------------------------------------------- many


def judged(seed: int, count: int, jobs: int, subjects: Sequence[Subject]) -> list[Verdict]:
    """Verdicts until `count` draws were accepted, in the order of the draws."""
    source, found = draws(seed, subjects), []
    accepted = 0
    workers = Workers()
    try:
        with ThreadPoolExecutor(jobs) as pool:
            while accepted < count:
                batch = [next(source) for _ in range(min(8 * jobs, 2 * (count - accepted)))]
                found += pool.map(lambda draw: judge(draw, workers.own()), batch)
                accepted = sum(v.accepted for v in found)
    finally:
        workers.close()
    return found


class Workers:
    """A worker for every thread."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._started: list[CachedWorker] = []

    def own(self) -> CachedWorker:
        if not hasattr(self._local, "worker"):
            self._local.worker = CachedWorker()
            self._started.append(self._local.worker)
        return self._local.worker

    def close(self) -> None:
        for worker in self._started:
            worker.close()


def report(verdicts: Sequence[Verdict]) -> list[str]:
    """What was accepted and does not compile, and of the refused ones what does."""
    accepted = [v for v in verdicts if v.accepted]
    wrong = [v for v in accepted if v.problem]
    lines = [f"WRONG {v.draw}\n      {v.problem}" for v in wrong]
    lines.append(f"{len(accepted)} configs accepted: {len(wrong)} do not compile")
    refused = [v for v in verdicts if not v.accepted]
    tried = [v for v in refused if v.tried]
    compile_ = [v for v in tried if not v.problem]
    lines.append(
        f"{len(refused)} configs refused, {len(tried)} compiled all the same without the limit "
        f"that refused them: {len(compile_)} would have compiled"
    )
    for reason, number in Counter(v.reason for v in refused).most_common():
        own = [v for v in tried if v.reason == reason]
        fine = [v for v in own if not v.problem]
        lines.append(f"  {number:5} {reason}: {len(fine)} of {len(own)} tried would compile")
        lines += [f"        e.g. {v.draw}" for v in fine[:1]]
    return lines


def main(argv: Sequence[str]) -> int:
    """0 if everything that is accepted compiles."""
    parser = argparse.ArgumentParser(prog="python -m tests.legality")
    parser.add_argument("--count", type=int, default=500, help="accepted configs (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time (%(default)s)")
    parser.add_argument("--only", default="", help="examples whose names contain this")
    options = parser.parse_args(argv)
    chosen = [s for s in SUBJECTS if options.only in s.name]
    start = time.perf_counter()
    verdicts = judged(options.seed, options.count, options.jobs, chosen)
    print("\n".join(report(verdicts)))
    print(f"seed {options.seed}, {len(chosen)} examples, {time.perf_counter() - start:.0f} s")
    return int(any(v.accepted and v.problem for v in verdicts))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
