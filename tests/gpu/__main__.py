"""python -m tests.gpu [NAMES] --dtype bfloat16 --layouts 4: examples in Triton's interpreter."""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from tests.gpu import interpreter  # isort: skip  (before anything imports Triton)
from tests import checks
from tests.ragged import Space, every_stratum, wild_offsets
from tests.subjects import SUBJECTS, Subject


def problems(subject: Subject, options: argparse.Namespace) -> Iterator[str]:
    """What is wrong with one example; yields "" for every case that is right."""
    more = {k: v for k, v in {"worklist": options.worklist}.items() if v}
    if subject.ragged is None:
        more = {}
    run = interpreter.small(subject, **more, persistent=options.persistent)
    if subject.ragged is None:
        yield checks.right(
            subject, run, subject.arguments(subject.arrays(options.dtype)), options.dtype
        )
        return
    space = Space(options.rows, options.groups, 16)
    arrays = subject.arrays(options.dtype, rows=options.rows, groups=options.groups)
    layouts = every_stratum(subject.ragged.space(space))
    for layout in layouts[:: max(len(layouts) // options.layouts, 1)][: options.layouts]:
        yield "; ".join(checks.every_layout(subject, run, arrays, [layout], options.dtype))
    if options.neighbours:
        yield "; ".join(checks.neighbours(subject, run, arrays, layouts[-2:]))
    if options.wild:
        for name, offsets in wild_offsets(subject.ragged.space(space)).items():
            found = checks.unchecked(subject, run, arrays, offsets)
            yield "; ".join(f"wild {name}: {f}" for f in found)


def main(argv: Sequence[str]) -> int:
    """Prints a line per example; 1 if one is wrong."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--layouts", type=int, default=3)
    parser.add_argument("--rows", type=int, default=45)
    parser.add_argument("--groups", type=int, default=4)
    parser.add_argument("--neighbours", action="store_true")
    parser.add_argument("--wild", action="store_true")
    parser.add_argument("--worklist")
    parser.add_argument("--persistent", type=int)
    parser.add_argument("--trace", action="store_true")
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore")
    cases = wrong = 0
    for subject in SUBJECTS:
        if (
            options.names and subject.name not in options.names
        ) or options.dtype not in subject.dtypes:
            continue
        start, found, count = time.perf_counter(), "", 0
        try:
            for problem in problems(subject, options):
                count += 1
                found = found or problem
        except Exception as error:
            found = f"{type(error).__name__}: {str(error)[-300:]}"
            if options.trace:
                traceback.print_exc()
        cases, wrong = cases + count, wrong + bool(found)
        seconds = time.perf_counter() - start
        print(f"{subject.name:28} {count:3} {seconds:6.1f}s {found[:220] or 'ok'}", flush=True)
    print(f"{cases} cases, {wrong} examples wrong, {options.dtype}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
