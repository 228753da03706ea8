"""Every example through Triton's real compiler and ptxas, for a GPU that is not there.

    python -m tests.gpu.compiler [NAMES] --dtype bfloat16 --arch 90

Prints registers, stack, shared memory and instructions of the production case of every example;
the exit status is 1 if one spills, or needs more shared memory than the target has.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from collections.abc import Sequence
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from tests.subjects import SUBJECTS, Subject
from tilelang import spec
from tilelang.aot import Assembled, CudaCompiled, Worker, compile_lowered, worker_for

FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
INTEGERS = ("quantized_matmul",)  # examples that add up in int32: 8 bits, and no floats
TIMEOUT = 600.0  # seconds for one example; "ieee" products of float32 may take minutes


def compiled(
    subject: Subject, dtype: str, target: str, worker: Worker
) -> list[tuple[Assembled, int]]:
    """Every launch of an example, and the shared memory that its plan said."""
    lowered = subject.kernel.lower(*case(subject, dtype), target=target)
    made = compile_lowered(lowered, timeout=TIMEOUT, worker=worker)
    assert isinstance(made, CudaCompiled)
    said = [launch.shared for launch in lowered.plan.launches]
    return list(zip(made.programs, said, strict=True))


def case(subject: Subject, dtype: str) -> tuple[Any, ...]:
    """The largest arguments of an example in a dtype; production shapes come last.

    What is of 8 bits is int8 in the case of bfloat16, or another dtype of 8 bits.
    """
    if dtype not in ("int8", *FLOAT8):
        return subject.cases[-2] if dtype == "bfloat16" else subject.cases[-1]
    return tuple(spec(a.shape, dtype) if _is(a, "int8") else a for a in subject.cases[-2])


def dtypes_of(subject: Subject) -> tuple[str, ...]:
    """What an example is compiled in: its floats, or 8 bits where those are its arguments."""
    given = subject.cases[-2]
    own = ("int8",) if _is(given[0], "int8") else ("bfloat16", "float32")
    floats = subject.name not in INTEGERS and any(_is(a, "int8") for a in given)
    return own + (FLOAT8 if floats else ())


def _is(argument: Any, dtype: str) -> bool:
    return getattr(argument, "dtype", None) == dtype


def main(argv: Sequence[str]) -> int:
    """A line per launch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--arch", type=int, default=90)
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore")
    target, bad = f"cuda:sm{options.arch}", 0
    worker = worker_for(target)
    for subject in SUBJECTS:
        if options.names and subject.name not in options.names:
            continue
        if not worker.alive:
            worker = worker_for(target)
        try:
            for program, said in compiled(subject, options.dtype, target, worker):
                bad += program.stack > 0
                mark = "  <-" if program.stack else ""
                print(f"{subject.name:28} {program} (said {said}){mark}", flush=True)
        except Exception as error:
            bad += 1
            text = str(error.__cause__ or error)
            print(f"{subject.name:28} FAILED {type(error).__name__}: {text[-300:]!r}", flush=True)
    worker.close()
    print(f"{bad} do not fit")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
