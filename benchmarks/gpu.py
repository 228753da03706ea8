"""Writes docs/gpu-performance.md: default configs beside torch's own kernels, on the GPU at hand.

    python -m benchmarks.gpu [--only attention] [--write docs/gpu-performance.md]

A time is the median of calls of which each finds the L2 cache overwritten, which
`triton.testing.do_bench` does, ours and the others' in turn, several rounds in one process.  Beside
each time stands the error, ||y - exact|| / ||exact||, against float32 or float64 on the same GPU.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import torch
import triton

from benchmarks import gpu_cases
from benchmarks.gpu_cases import FAMILIES, Case

ROUNDS, MILLISECONDS = 3, 60
HEAD = """# How fast on a GPU

{card}, driver {driver}; torch {torch}, Triton {triton}, CUDA {cuda}; {day}. Default configs of the
unchanged examples, without tuning, in bfloat16, beside torch's own kernels on the same arguments,
in one process: medians of calls that find the L2 cache overwritten, {rounds} rounds in turn;
`spread` is the largest of our rounds over the smallest. Errors are ||y - exact|| / ||exact||.
`make gpu` runs the tests on the GPU and writes this page again.

A copy of {copied:.0f} MiB on the device moved {copy:.2f} TB/s, bytes read and written; `of copy` is
how much of that a kernel reaches, for what it must read and write at least. `speed` is the time of
the quickest of the others over ours: more than 1 is quicker than they are.

"""
COLUMNS = (
    "case", "ours us", "TFLOP/s", "of copy", "error", "the others", "speed", "spread", "target",
    "met",
)  # fmt: skip
TABLE = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|\n"


@dataclass(frozen=True)
class Row:
    """One case: medians in seconds, errors, and what the others took.

    ours    of each round
    others  name -> seconds and error; the message of one that would not run
    """

    case: Case
    ours: Sequence[float]
    error: float
    others: Mapping[str, tuple[float, float] | str]
    copy: float

    @property
    def seconds(self) -> float:
        return statistics.median(self.ours)

    @property
    def speed(self) -> float | None:
        """How much quicker than the quickest of the others."""
        times = [o[0] for o in self.others.values() if not isinstance(o, str)]
        return min(times) / self.seconds if times else None

    @property
    def of_copy(self) -> float:
        """The bandwidth of what must be moved, to that of a copy."""
        return self.case.bytes / self.seconds / self.copy

    @property
    def met(self) -> bool | None:
        family = FAMILIES[self.case.family]
        if family.least is None:
            return None
        reached = self.of_copy if family.bandwidth else self._against(family.peer)
        return None if reached is None else reached >= family.least

    def _against(self, peer: str) -> float | None:
        found = self.others.get(peer)
        return found[0] / self.seconds if isinstance(found, tuple) else None

    def __str__(self) -> str:
        family = FAMILIES[self.case.family]
        others = [
            f"{name} {o[0] * 1e6:.1f} us ({o[1]:.0e})" if isinstance(o, tuple) else f"{name}: {o}"
            for name, o in self.others.items()
        ]
        unit = "of copy" if family.bandwidth else f"of {family.peer}"
        cells = (
            self.case.name,
            f"{self.seconds * 1e6:.1f}",
            f"{self.case.flops / self.seconds / 1e12:.0f}" if self.case.flops else "",
            f"{self.of_copy:.2f}",
            f"{self.error:.1e}",
            "; ".join(others) or "-",
            "-" if self.speed is None else f"{self.speed:.2f}",
            f"{max(self.ours) / min(self.ours):.2f}",
            "-" if family.least is None else f"{family.least:.2f} {unit}",
            {None: "-", True: "yes", False: "no"}[self.met],
        )
        return f"| {' | '.join(cells)} |"


def seconds(call: Callable[[], Any]) -> float:
    """The median time on the device of a call that finds nothing in the L2 cache."""
    return triton.testing.do_bench(call, 10, MILLISECONDS, return_mode="median") / 1e3


def error(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The relative error of a whole result."""
    return float((found.double() - exact).norm() / exact.double().norm())


def rows(only: str, copy: float) -> Iterator[Row]:
    """Every case, measured; a result that is wrong ends the run."""
    for case in gpu_cases.cases():
        if only in case.name or only == case.family:
            yield measured(case, copy)
            torch.cuda.empty_cache()


def measured(case: Case, copy: float) -> Row:
    """Ours and the others in turn."""
    exact = case.exact()
    wrong = error(case.ours(), exact)
    assert wrong < case.most, f"{case.name}: error {wrong:.1e}"
    others: dict[str, tuple[float, float] | str] = {}
    for name, call in case.others.items():
        try:
            others[name] = (0.0, error(call(), exact))
        except Exception as problem:  # a torch that has no such kernel: said in the table
            others[name] = f"{type(problem).__name__}"
    run = {n: case.others[n] for n, o in others.items() if not isinstance(o, str)}
    mine, times = [], {name: [] for name in run}
    for _ in range(ROUNDS):
        mine.append(seconds(case.ours))
        for name, call in run.items():
            times[name].append(seconds(call))
    told = {
        n: o if isinstance(o, str) else (statistics.median(times[n]), o[1])
        for n, o in others.items()
    }
    return Row(case, mine, wrong, told, copy)


COPIED = 1 << 30  # bytes


def copy_bandwidth() -> float:
    """Bytes read and written in a second by a copy on the device."""
    source = torch.empty(COPIED, dtype=torch.int8, device="cuda").random_(-100, 100)
    target = torch.empty_like(source)
    return 2 * COPIED / seconds(lambda: target.copy_(source))


# ---------------------------------------------------------------- calls


@dataclass(frozen=True)
class Calls:
    """Microseconds of processor time of a later call, and of what it is made of."""

    whole: float
    launch: float
    empty: float

    def __str__(self) -> str:
        return (
            f"A later call of a small grouped GEMM takes {self.whole:.1f} us of the processor's "
            f"time (target 8, best of 20 times 200 calls). Each by itself, Triton's launcher of "
            f"what was compiled takes {self.launch:.1f} us, and `torch.zeros` for the result, a "
            f"launch of torch's own, {self.empty:.1f} us.\n"
        )


def calls() -> Calls:
    """What a call costs before the GPU has it: the queue is never full."""
    kernel, arguments = gpu_cases.small()
    kernel(*arguments)
    shape, dtype = (arguments[0].shape[0], arguments[1].shape[2]), arguments[0].dtype
    return Calls(
        microseconds(lambda: kernel(*arguments)),
        microseconds(gpu_cases.bare_launch(kernel, arguments)),
        microseconds(lambda: torch.zeros(shape, dtype=dtype, device="cuda")),
    )


def microseconds(call: Callable[[], Any], count: int = 200) -> float:
    """Of one call, the best of twenty times so many in a row: the GPU's queue has room for them."""
    found = []
    for _ in range(20):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(count):
            call()
        found.append((time.perf_counter() - start) / count * 1e6)
    torch.cuda.synchronize()
    return min(found)


# ---------------------------------------------------------------- the page


def head(copy: float) -> str:
    smi = torch.cuda.get_device_properties(0)
    return HEAD.format(
        card=smi.name,
        driver=_driver(),
        torch=torch.__version__,
        triton=triton.__version__,
        cuda=torch.version.cuda,
        day=date.today().isoformat(),
        rounds=ROUNDS,
        copied=COPIED / 2**20,
        copy=copy / 1e12,
    )


def _driver() -> str:
    import subprocess

    asked = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(asked, capture_output=True, text=True).stdout.strip() or "unknown"


def main(given: Sequence[str]) -> int:
    """Prints each row as it is measured; 1 where there is no GPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("--only", default="", help="cases whose names contain this, or a family")
    parser.add_argument("--write", type=Path, help="the page; all cases")
    options = parser.parse_args(given)
    if not torch.cuda.is_available():
        print("torch sees no GPU here")
        return 1
    torch.manual_seed(0)
    copy = copy_bandwidth()
    text = head(copy) + TABLE
    print(text, end="", flush=True)
    for row in rows(options.only, copy):
        text += f"{row}\n"
        print(row, flush=True)
    text += f"\n{calls()}"
    print(text.rpartition("\n\n")[2])
    if options.write:
        options.write.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
