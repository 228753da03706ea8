"""python -m tilelang.aot.cuda_worker: compiles generated modules for GPUs, without a GPU.

Reads requests from stdin and writes answers to stdout, a line of JSON each, until stdin ends.

request  text, entry     the generated module and its host function
         arch            90 for sm_90
         launches        name, signature, warps, stages, max_registers of each @triton.jit function
         serialize       whether the answer has the PTX
answer   programs        name, registers, stack, shared, columns, warps, instructions, scratch, ptx
                         of each
         seconds, warnings
         or error, line: what was raised, and the line of the module that it is about
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
import types
import warnings
from collections.abc import Mapping
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

os.environ.pop("TRITON_INTERPRET", None)  # read when triton is imported; nothing compiles with it

import triton.backends.nvidia
from triton.backends.compiler import GPUTarget

from ..runtime.cuda.compiler import compiled
from .serving import failing_line, serve, text_of

TOOLS = Path(triton.backends.nvidia.__file__).parent / "bin"
COUNTED = (
    "HGMMA", "IGMMA", "QGMMA", "UTCHMMA", "UTCIMMA", "UTCQMMA", "HMMA", "IMMA", "QMMA",
    "LDGSTS", "UTMALDG", "LDL", "STL",
)  # fmt: skip


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Compiles one module; whatever is raised is an answer too."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{request['entry']}.py"
        path.write_text(request["text"], encoding="utf-8")
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("default")
                module, start = _loaded(path), time.perf_counter()
                made = [_program(module, launch, request) for launch in request["launches"]]
                seconds = round(time.perf_counter() - start, 3)
        except Exception as error:
            return {"error": text_of(error), "line": failing_line(error, str(path))}
    said = [f"{w.category.__name__}: {w.message}" for w in caught]
    return {"programs": made, "seconds": seconds, "warnings": said}


def _loaded(path: Path) -> types.ModuleType:
    """The module, from a file, because Triton reads the text of its functions.

    It names torch in annotations and in its host function, which is not called here: where torch is
    not installed an empty module stands in.
    """
    if "torch" not in sys.modules and find_spec("torch") is None:  # a stand-in has no spec
        stand_in = types.ModuleType("torch")
        stand_in.__dict__["Tensor"] = object
        sys.modules["torch"] = stand_in
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _program(
    module: types.ModuleType, launch: Mapping[str, Any], request: Mapping[str, Any]
) -> dict[str, Any]:
    made = compiled(
        getattr(module, launch["name"]),
        launch["signature"],
        range(len(launch["signature"])),
        GPUTarget("cuda", request["arch"], 32),
        warps=launch["warps"],
        stages=launch["stages"],
        max_registers=launch["max_registers"],
    )
    registers, stack, counts = _used(made.asm["cubin"])
    return {
        "name": launch["name"],
        "registers": registers,
        "stack": stack,
        "shared": made.metadata.shared,
        "columns": made.metadata.tmem_size or 0,
        "warps": made.metadata.num_warps,
        "instructions": counts,
        "scratch": made.metadata.global_scratch_size,
        "ptx": made.asm["ptx"] if request["serialize"] else "",
    }


def _used(cubin: bytes) -> tuple[int, int, dict[str, int]]:
    """Registers, stack bytes, and how often the code has each instruction of COUNTED."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        use, code = _dumped("-res-usage", file.name), _dumped("-sass", file.name)
    found = re.search(r"REG:(\d+) STACK:(\d+)", use)
    assert found is not None, "cuobjdump always says"
    counts = {name: len(re.findall(rf"\b{name}\b", code)) for name in COUNTED}
    return int(found[1]), int(found[2]), counts


def _dumped(flag: str, path: str) -> str:
    command = [str(TOOLS / "cuobjdump"), flag, path]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    serve(answer)
