"""python -m tests.gpu.legality --count 500 --seed S: does every config that is planned fit?

Draws configs over all examples, their cases and the GPU architectures until `count` were accepted
by `plan`; Triton and ptxas must take every one, with the shared memory that the architecture has.
Says too how well the plan's estimate of it agrees.  Answers are kept between runs
(tests/compile_cache.py).  Needs triton and no GPU; nothing is run.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import tilelang as tile
from tests.compile_cache import CUDA, CachedWorker
from tests.subjects import SUBJECTS, Subject
from tilelang.aot import CudaCompiled, compile_lowered
from tilelang.codegen.triton.target import Target

ARCHITECTURES = (80, 89, 90, 100)
BLOCKS = (16, 16, 32, 32, 64, 64, 128, 256)
RARE: dict[str, tuple[Any, ...]] = {
    "persistent": (True, 64),
    "indexing": ("pointer", "descriptor"),
    "worklist": ("search", "table"),
    "l2_group": (1, 4, 16),
    "precision": ("tf32", "tf32x3"),
    "split": (1, 2, 5, 16),
    "max_registers": (64, 128, 168, 255),
}
TIMEOUT = 60.0  # seconds; large blocks of products of float32 take minutes, and fit or do not
CLOSE, LITTLE = 0.05, 8 * 1024  # how far off the estimate may be: a share, or bytes


@dataclass(frozen=True)
class Draw:
    """One way to ask for a kernel."""

    subject: Subject
    case: tuple[Any, ...]
    arch: int
    config: tile.Config

    def __str__(self) -> str:
        shapes = ", ".join(str(getattr(a, "shape", a)) for a in self.case)
        dtype = getattr(self.case[0], "dtype", "")
        return f"{self.subject} {dtype} {shapes} sm{self.arch} {self.config.to_json()}"


@dataclass(frozen=True)
class Verdict:
    """What became of a draw.

    outcome  "fits", "refused", "slow" (no answer in TIMEOUT seconds) or "WRONG"
    why      what is refused, or wrong
    shared   (estimated, needed) bytes of each launch
    """

    draw: Draw
    outcome: str
    why: str = ""
    shared: tuple[tuple[int, int], ...] = ()


def draws(seed: int, subjects: Sequence[Subject]) -> Iterator[Draw]:
    """Random configs without end."""
    rng = random.Random(seed)
    while True:
        subject, arch = rng.choice(subjects), rng.choice(ARCHITECTURES)
        case = rng.choice(subject.cases)
        try:
            default = subject.kernel.default_config(*case, target=f"cuda:sm{arch}")
        except tile.PlanError:  # a dtype that the architecture lacks, or no memory for it
            continue
        yield Draw(subject, case, arch, config(rng, default))


def config(rng: random.Random, default: tile.Config) -> tile.Config:
    """Blocks of any size, and every other field now and then."""
    blocks = {n: b if rng.random() < 0.4 else rng.choice(BLOCKS) for n, b in default.blocks}
    return tile.Config(
        blocks,
        warps=rng.choice((2, 4, 4, 8, 8, 16)) if rng.random() < 0.5 else None,
        stages=rng.choice((1, 2, 3, 4, 5)) if rng.random() < 0.5 else None,
        **{name: rng.choice(values) for name, values in RARE.items() if rng.random() < 0.1},
    )


def judge(draw: Draw, worker: CachedWorker) -> Verdict:
    """Plans, and compiles what is planned."""
    target = f"cuda:sm{draw.arch}"
    try:
        lowered = draw.subject.kernel.lower(*draw.case, config=draw.config, target=target)
    except tile.PlanError as error:
        return Verdict(draw, "refused", error.what.splitlines()[0])
    try:
        made = compile_lowered(lowered, timeout=TIMEOUT, worker=worker)
    except tile.CompileError as error:
        what = error.what.splitlines()[0]
        return Verdict(draw, "slow" if "was not compiled within" in what else "WRONG", what)
    assert isinstance(made, CudaCompiled)
    pairs = list(zip(lowered.plan.launches, made.programs, strict=True))
    many = [p for one, p in pairs if p.registers > Target.of(target).registers_of(one.warps)]
    if many:
        return Verdict(draw, "WRONG", f"{many[0].registers} registers: no launch has so many")
    return Verdict(draw, "fits", shared=tuple((one.shared, p.shared) for one, p in pairs))


def close(said: int, needed: int) -> bool:
    """Whether an estimate is as near as it is meant to be; without products nothing is."""
    return not said or abs(said - needed) <= max(CLOSE * needed, LITTLE)


def report(found: Sequence[Verdict]) -> list[str]:
    """What does not fit, how often nothing else was planned, and how good the estimates are."""
    lines = [f"WRONG {v.draw}\n      {v.why}" for v in found if v.outcome == "WRONG"]
    estimates = [(v, s, n) for v in found for s, n in v.shared if s]
    off = [(v, s, n) for v, s, n in estimates if not close(s, n)]
    lines += [f"estimated {s:,} bytes, needs {n:,}: {v.draw}" for v, s, n in off]
    counts = Counter(v.outcome for v in found)
    lines.append(", ".join(f"{n} {outcome}" for outcome, n in counts.most_common()))
    lines.append(
        f"{len(estimates) - len(off)} of {len(estimates)} estimates of shared memory agree"
    )
    return lines


def main(argv: Sequence[str]) -> int:
    """0 if everything that is planned fits."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.legality")
    parser.add_argument("--count", type=int, default=500, help="configs that fit (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="examples whose names contain this")
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore")
    start, found, accepted = time.perf_counter(), list[Verdict](), 0
    with CachedWorker(compiler=CUDA) as worker:
        for draw in draws(options.seed, [s for s in SUBJECTS if options.only in s.name]):
            verdict = judge(draw, worker)
            found.append(verdict)
            accepted += verdict.outcome != "refused"
            if verdict.outcome == "WRONG" or not all(close(s, n) for s, n in verdict.shared):
                print(*report([verdict])[:-2], sep="\n", flush=True)
            if accepted >= options.count:
                break
    print("\n".join(report(found)))
    print(f"seed {options.seed}, {time.perf_counter() - start:.0f} s")
    return int(any(v.outcome == "WRONG" for v in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
