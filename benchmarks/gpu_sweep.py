"""Times the default config of every example beside others, on the GPU at hand.

    python -m benchmarks.gpu_sweep [NAMES] [--dtype bfloat16] [--write benchmarks/h100.json]

What the rules of default configs rest on (tilelang/codegen/triton/plan/hopper.py).  Processes
compile beside each other, and time one at a time: medians of calls that find the L2 cache
overwritten, the least of two rounds that are apart.  What a config computes is compared with what
the default does.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from queue import Empty
from tempfile import gettempdir
from typing import Any

import torch
import triton
from filelock import FileLock

import tilelang as tile
from benchmarks.steered import values_of
from tests.subjects import SUBJECTS, Subject
from tilelang.runtime.cuda.device import target_of

CONFIGS, MILLISECONDS, WORKERS, KEPT = 24, 20, 12, 12
WRONG = 2e-2  # relative difference of two configs' results
LOCK = Path(gettempdir()) / "tilelang-gpu-sweep.lock"
GOAL = 1.1  # how much longer than the quickest a default may take before it is marked


@dataclass(frozen=True)
class Timed:
    """One config of one case: microseconds, and how far its result is from the default's."""

    case: str
    config: str
    us: float
    error: float = 0.0
    default: bool = False


def arguments(subject: Subject, case: tuple[Any, ...]) -> list[Any]:
    """An example's arguments on the GPU: integers that steer it as they are, all else drawn."""
    steering = values_of(subject, case)
    made = []
    for name, one in zip(
        subject.kernel.signature.names, case, strict=False
    ):  # others have defaults
        if not hasattr(one, "shape"):
            made.append(one)
        elif name in steering:
            made.append(torch.tensor(steering[name], dtype=torch.int32, device="cuda"))
        elif str(one.dtype) == "int8":
            made.append(torch.randint(-99, 99, one.shape, dtype=torch.int8, device="cuda"))
        else:
            drawn = torch.randn(one.shape, device="cuda")
            made.append(drawn.to(getattr(torch, str(one.dtype))))
    return made


def configs(subject: Subject, case: tuple[Any, ...], target: str) -> Iterator[tile.Config]:
    """The default, then what is most like it."""
    found = subject.kernel.configs(*case, target=target)
    yield from (one.config for one in itertools.islice(found, CONFIGS))


def timed(subject: Subject, dtype: str, until: float) -> Iterator[Timed]:
    """All configs of a case, as far as there is time, the quickest ones once more."""
    case = subject.cases[-2 if dtype == "bfloat16" else -1]
    given, exact = arguments(subject, case), None
    first: dict[tile.Config, Timed] = {}
    for config in configs(subject, case, target_of(torch.device("cuda", 0)).name):
        if time.time() > until:
            return
        result = _first(subject.kernel(*given, config=config))  # compiled before the lock is taken
        exact = result if exact is None else exact
        error = float((result - exact).norm() / exact.norm())
        if error > WRONG:
            raise AssertionError(f"{subject.name} {dtype}: {config} is {error:.1e} off")
        told = config.to_json(), _us(subject, given, config), error, not first
        first[config] = Timed(f"{subject.name} {dtype}", *told)
        yield first[config]
    least = min(one.us for one in first.values())
    for config, one in first.items():
        if (one.us < 1.3 * least or one.default) and time.time() < until:
            again = _us(subject, given, config)
            yield Timed(one.case, one.config, again, one.error, one.default)


def _first(result: Any) -> torch.Tensor:
    return (result[0] if isinstance(result, tuple) else result).float()


def _us(subject: Subject, given: Sequence[Any], config: tile.Config) -> float:
    def call() -> Any:
        return subject.kernel(*given, config=config)

    with FileLock(LOCK):
        return triton.testing.do_bench(call, 4, MILLISECONDS, return_mode="median") * 1e3


def _work(waiting: Any, found: Any, until: float) -> None:
    """Takes one case after another; what fails is told in its place."""
    named = {s.name: s for s in SUBJECTS}
    while time.time() < until:
        try:
            name, dtype = waiting.get(timeout=1)
        except Empty:
            break
        try:
            for one in timed(named[name], dtype, until):
                found.put(one)
        except Exception as problem:
            found.put(f"{name} {dtype}: {type(problem).__name__}: {problem}"[:300])
        torch.cuda.empty_cache()
    found.put(None)


def sweep(cases: Sequence[tuple[str, str]], seconds: float) -> tuple[list[Timed], list[str]]:
    """Times, the least of each config, and what failed."""
    context = multiprocessing.get_context("spawn")
    waiting, found, until = context.Queue(), context.Queue(), time.time() + seconds
    for case in cases:
        waiting.put(case)
    workers = [
        context.Process(target=_work, args=(waiting, found, until), daemon=True)
        for _ in range(min(WORKERS, len(cases)))
    ]
    for worker in workers:
        worker.start()
    best: dict[tuple[str, str], Timed] = {}
    failed, ended = list[str](), 0
    while ended < len(workers) and time.time() < until + 30:
        try:
            one = found.get(timeout=1)
        except Empty:
            continue
        if one is None:
            ended += 1
        elif isinstance(one, str):
            failed.append(one)
        else:
            key = one.case, one.config
            best[key] = min(one, best.get(key, one), key=lambda t: t.us)
    return list(best.values()), failed


def record(found: Sequence[Timed]) -> dict[str, Any]:
    """What is kept: of each case the default and the quickest, with what they were taken by."""
    times: dict[str, Any] = {}
    for case, own in itertools.groupby(
        sorted(found, key=lambda t: (t.case, t.us)), lambda t: t.case
    ):
        ranked = list(own)
        kept = [t for n, t in enumerate(ranked) if n < KEPT or t.default]
        default = next((t.config for t in ranked if t.default), "")
        times[case] = {"default": default, "us": {t.config: round(t.us, 1) for t in kept}}
    return {
        "card": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "date": date.today().isoformat(),
        "times": times,
    }


def line(case: str, told: Mapping[str, Any]) -> str:
    """One case: its default beside the quickest."""
    us, default = told["us"], told["us"].get(told["default"])
    quickest = min(us, key=us.__getitem__)
    if default is None:
        return f"{case:36} the default was not timed"
    mark = "  <-" if default > GOAL * us[quickest] else ""
    return f"{case:36} {default:9.1f} us, least {us[quickest]:9.1f} by {quickest}{mark}"


def main(given: Sequence[str]) -> int:
    """1 where a config failed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_sweep")
    parser.add_argument("names", nargs="*", help="examples; all of them")
    parser.add_argument("--dtype", action="append", choices=("bfloat16", "float32"))
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args(given)
    if not torch.cuda.is_available():
        print("torch sees no GPU here")
        return 1
    names = options.names or [s.name for s in SUBJECTS]
    cases = list(itertools.product(names, options.dtype or ["bfloat16"]))
    found, failed = sweep(cases, options.seconds)
    told = record(found)
    for case, one in told["times"].items():
        print(line(case, one))
    for problem in failed:
        print(problem)
    if options.write:
        options.write.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
