"""python -m tests.bodies --count 200 --seed S: do random bodies compile, and mean what they say?

Every body is lowered for a TPU generation, drawn too, and compiled by the real compiler: what the
language allows and a plan takes must compile.  `--values` runs each in the interpreter besides, as
for that generation and as on a CPU, against `Kernel.reference`.  Needs libtpu and no TPU.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import ml_dtypes  # noqa: F401 (names of dtypes)
import numpy as np

import tilelang as tile
from tests.bodies.draw import Body, drawn
from tests.bodies.text import Sizes, arguments, text
from tests.compile_cache import CachedWorker
from tilelang.aot import compile_lowered
from tilelang.errors import InternalError

GENERATIONS = ("v5e", "v5p", "v6e", "7x")
TOGETHER = 100  # kernels that one process of the compiler takes, whose memory grows with each
SIZES = (Sizes(), Sizes(), Sizes(columns=100), Sizes(40, 256, 3, 4))


@dataclass(frozen=True)
class Verdict:
    """What became of a body: "ok", "refused", "uncompiled", "wrong" or "crash", and why."""

    kind: str
    body: Body
    generation: str
    detail: str = ""
    source: str = ""


@contextmanager
def loaded(source: str) -> Iterator[tile.Kernel]:
    """The kernel of a module, from a file, because its text is read there."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "body.py"
        path.write_text(source, encoding="utf-8")
        spec = importlib.util.spec_from_file_location("drawn_body", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["drawn_body"] = module
        spec.loader.exec_module(module)
        yield module.kernel


def judged(
    body: Body, generation: str, sizes: Sizes, worker: CachedWorker, values: bool = False
) -> Verdict:
    """What the compiler says of one body, and the interpreter if `values`."""
    source, given = text(body, sizes), list(arguments(body, sizes).values())
    target = f"tpu:{generation}"

    def verdict(kind: str, detail: str = "") -> Verdict:
        return Verdict(kind, body, generation, detail, source)

    with loaded(source) as kernel:
        try:
            lowered = kernel.lower(*given, target=target)
        except InternalError as error:
            return verdict("crash", error.what)
        except tile.TileError as error:
            return verdict("refused", error.what)
        except Exception as error:  # a fault of ours
            return verdict("crash", f"{type(error).__name__}: {error}"[:300])
        try:
            compile_lowered(lowered, worker=worker)
        except tile.CompileError as error:
            return verdict("uncompiled", f"{error.what}\n{(error.raw or '')[:600]}")
        for where in (target, "cpu") if values else ():
            if wrong := difference(kernel, given, where):
                return verdict("wrong", f"{where}: {wrong}")
    return verdict("ok")


def difference(kernel: tile.Kernel, given: list[np.ndarray], target: str) -> str:
    """Where the interpreter's result is not that of the reference; "" if it is everywhere."""
    exact = np.asarray(kernel.reference(*given)).astype(np.float64)
    made = np.asarray(kernel(*given, target=target)).astype(np.float64)
    same = np.isclose(made, exact, rtol=0.02, atol=0.02, equal_nan=True)
    if same.all():
        return ""
    at = tuple(int(i) for i in np.argwhere(~same)[0])
    return f"{(~same).sum()} of {same.size}: at {at} {made[at]}, not {exact[at]}"


def campaign(seed: int, count: int, values: bool, only: str = "") -> list[Verdict]:
    """Verdicts on `count` bodies that were not refused."""
    rng, found, taken = random.Random(seed), [], 0
    while taken < count:
        with CachedWorker() as worker:
            while taken < count and worker.compiled < TOGETHER:
                body, generation, sizes = drawn(rng), rng.choice(GENERATIONS), rng.choice(SIZES)
                if only and only != body.frame:
                    continue
                found.append(judged(body, generation, sizes, worker, values))
                taken += found[-1].kind != "refused"
                if found[-1].kind not in ("ok", "refused"):
                    print(shown(found[-1]), flush=True)
    return found


def shown(verdict: Verdict) -> str:
    """A body that does not compile, or is wrong, and why."""
    return f"{verdict.kind.upper()} {verdict.generation}\n{verdict.source}{verdict.detail}\n"


def report(verdicts: Sequence[Verdict]) -> list[str]:
    """How many were taken, and why the rest was refused."""
    refused = Counter(v.detail.splitlines()[0][:90] for v in verdicts if v.kind == "refused")
    lines = [f"  {number:5} refused: {reason}" for reason, number in refused.most_common(12)]
    counts = Counter(v.kind for v in verdicts)
    return [*lines, ", ".join(f"{number} {kind}" for kind, number in counts.most_common())]


def main(argv: Sequence[str]) -> int:
    """0 if every body that is taken compiles, and means what it says."""
    parser = argparse.ArgumentParser(prog="python -m tests.bodies")
    parser.add_argument("--count", type=int, default=200, help="bodies taken (%(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--values", action="store_true", help="run them in the interpreter, too")
    parser.add_argument("--only", default="", help="one frame: tile, grid, fold, inner ...")
    options = parser.parse_args(argv)
    start = time.perf_counter()
    verdicts = campaign(options.seed, options.count, options.values, options.only)
    print("\n".join(report(verdicts)))
    print(f"seed {options.seed}, {time.perf_counter() - start:.0f} s")
    return int(any(v.kind not in ("ok", "refused") for v in verdicts))
