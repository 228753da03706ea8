"""Kernels through Triton's real compiler and ptxas, for a GPU that is not there.

    python -m tests.gpu.compiler [NAMES] --dtype bfloat16 --arch 90

Prints registers, stack, shared memory and instructions of the production case of every example;
the exit status is 1 if one spills, or needs more shared memory than the target has.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "1")
os.environ.pop("TRITON_INTERPRET", None)

import triton
import triton.backends.nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import tilelang as tile
from tests.subjects import SUBJECTS, Subject
from tilelang.codegen.triton.plan.types import Launch, Plan
from tilelang.codegen.triton.target import TARGETS

POINTERS = {
    "float32": "*fp32", "bfloat16": "*bf16", "float16": "*fp16", "int32": "*i32", "int16": "*i16",
    "int8": "*i8", "uint8": "*u8", "uint32": "*u32", "bool": "*i1", "float8_e4m3fn": "*fp8e4nv",
    "float8_e5m2": "*fp8e5",
}  # fmt: skip
COUNTED = ("HGMMA", "IGMMA", "QGMMA", "HMMA", "IMMA", "LDGSTS", "UTMALDG", "STL", "LDL")
CUOBJDUMP = Path(triton.backends.nvidia.__file__).parent / "bin" / "cuobjdump"


@dataclass(frozen=True)
class Cubin:
    """What the compiler made of one launch."""

    launch: Launch
    registers: int
    stack: int
    shared: int
    instructions: Mapping[str, int]

    def __str__(self) -> str:
        counts = " ".join(f"{name} {n}" for name, n in self.instructions.items() if n)
        memory = f"shared {self.shared} (said {self.launch.shared})"
        width = f"w{self.launch.warps} s{self.launch.stages}"
        return f"{width} reg {self.registers} stack {self.stack} {memory} {counts}"


def compiled(plan: Plan, module: Any, launch: Launch) -> Cubin:
    """One launch, compiled for the target of its plan."""
    dtypes = {t.name: t.dtype for t in plan.ir.tensors} | {b.name: b.dtype for b in plan.buffers}
    types = {f"{name}_ptr": POINTERS[dtypes[name]] for name in launch.arguments}
    aligned = {(place,): [["tt.divisibility", 16]] for place in range(len(types))}
    source = ASTSource(module[launch.name], types, {}, aligned)
    options = {"num_warps": launch.warps, "num_stages": launch.stages}
    target = GPUTarget("cuda", plan.target.arch, 32)
    made = triton.compile(source, target=target, options=options)
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        usage, code = (_dump(flag, file.name) for flag in ("-res-usage", "-sass"))
    found = re.search(r"REG:(\d+) STACK:(\d+)", usage)
    assert found is not None, usage
    counts = {name: len(re.findall(rf"\b{name}\b", code)) for name in COUNTED}
    return Cubin(launch, int(found[1]), int(found[2]), made.metadata.shared, counts)


def _dump(flag: str, path: str) -> str:
    command = [str(CUOBJDUMP), flag, path]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def cubins(
    kernel: tile.Kernel, args: Sequence[Any], target: str, config: Any = None
) -> list[Cubin]:
    """Every launch of a kernel for these arguments."""
    lowered = kernel.lower(*args, target=target, config=config)
    module = lowered.source.load().__globals__
    return [compiled(lowered.plan, module, one) for one in lowered.plan.launches]


def case(subject: Subject, dtype: str) -> tuple[Any, ...]:
    """The largest arguments of an example in a dtype; production shapes come last."""
    return subject.cases[-2] if dtype == "bfloat16" else subject.cases[-1]


def main(argv: Sequence[str]) -> int:
    """A line per launch."""
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--arch", type=int, default=90)
    options = parser.parse_args(argv)
    warnings.filterwarnings("ignore")
    target, bad = f"cuda:sm{options.arch}", 0
    limit = TARGETS[target].shared
    for subject in SUBJECTS:
        if options.names and subject.name not in options.names:
            continue
        start = time.perf_counter()
        try:
            for found in cubins(subject.kernel, case(subject, options.dtype), target):
                fits = found.stack == 0 and found.shared <= limit
                bad += not fits
                seconds = time.perf_counter() - start
                mark = "" if fits else "  <-"
                print(f"{subject.name:28} {found} {seconds:.1f}s{mark}", flush=True)
        except Exception as error:
            bad += 1
            text = str(error.__cause__ or error)
            print(f"{subject.name:28} FAILED {type(error).__name__}: {text[-300:]!r}", flush=True)
    print(f"{bad} do not fit")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
