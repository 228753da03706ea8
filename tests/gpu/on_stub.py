"""python -m tests.gpu.on_stub: calls kernels as on a GPU, down to the driver call, without one.

Triton's own driver code runs against tests/gpu/libcuda.c.  Tensors of the CPU stand for those of
the GPU: nothing reads them.  Prints what it saw, a line of JSON.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


def install() -> Any:
    """The stub, loaded, with Triton's driver on it."""
    folder = Path(tempfile.mkdtemp())
    library = folder / "libcuda.so.1"
    source = FOLDER / "libcuda.c"
    command = ["gcc", "-w", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, source]
    subprocess.run(command, check=True)
    (folder / "libcuda.so").symlink_to(library.name)
    stub = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    stub.last_argument.restype = ctypes.c_uint64
    stub.last_count.restype = ctypes.c_long
    os.environ["TRITON_LIBCUDA_PATH"] = str(folder)
    os.environ.pop("TRITON_INTERPRET", None)

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.driver import CudaDriver, CudaLauncher, CudaUtils

    class Driver(CudaDriver):
        def __init__(self) -> None:  # the parent asks torch.cuda for all of this
            self.utils, self.launcher_cls = CudaUtils(), CudaLauncher
            self.get_device_capability = lambda device=0: (9, 0)
            self.get_current_stream = lambda device=0: 0
            self.get_current_device = lambda: 0
            self.set_current_device = lambda device: None

        def get_current_target(self) -> Any:
            return GPUTarget("cuda", 90, 32)

    triton.runtime.driver.set_active(Driver())
    return stub


def main() -> None:
    """Calls grouped_gemm: aligned, again, and from a pointer that is not aligned."""
    stub = install()
    import torch

    import tilelang as tile
    from examples.jagged.grouped_gemm import grouped_gemm
    from tests.runtime.entered import entered
    from tilelang.runtime.cuda import execution, programs

    compiled: list[Any] = []
    compile_one = programs.Program._compile
    programs.Program._compile = lambda self, unaligned: (
        compiled.append(list(unaligned)) or compile_one(self, unaligned)
    )
    execution.place_of = lambda *_: torch.device("cpu")

    ran: list[Any] = []
    run_one = programs.Program.run

    x, w = torch.zeros(256, 128), torch.zeros(4, 128, 64)
    offsets = torch.tensor([0, 10, 100, 200, 256], dtype=torch.int32)
    asked = {"target": "cuda:sm90", "config": tile.Config(indexing="pointer")}
    call: Callable[..., Any] = lambda *tensors: grouped_gemm(*tensors, **asked)  # noqa: E731
    stub.look_at(4)
    y = call(x, w, offsets)
    (launch,) = grouped_gemm.lower(x, w, offsets, **asked).plan.launches
    every = {"x": x, "w": w, "offsets": offsets, "y": y}
    seen = {
        "arguments": [stub.last_argument(i) for i in range(4)],
        "pointers": [every[name].data_ptr() for name in launch.arguments],
        "grid": [stub.last_grid(), launch.programs],
        "threads": [stub.last_threads(), launch.warps * 32],
    }
    call(x, w, offsets)
    seen["compiled"] = len(compiled)
    call(x, w, torch.tensor([0, 0, 7, 200, 250], dtype=torch.int32))
    seen["other lengths"] = len(compiled)
    moved = torch.zeros(256 * 128 + 1)[1:].view(256, 128)
    call(moved, w, offsets)
    call(moved, w, offsets)
    seen["unaligned"] = compiled[-1]
    seen["in all"] = len(compiled)
    seen["launches"] = stub.last_count()
    turned = torch.zeros(128, 256).T  # not contiguous: a copy is launched on
    call(turned, w, offsets)
    seen["copied"] = stub.last_argument(0) != turned.data_ptr()
    given: list[Any] = []
    fetch = programs._scratch
    programs._scratch = lambda *how: given.append(fetch(*how)) or given[-1]
    described: Callable[..., Any] = lambda *tensors: grouped_gemm(  # noqa: E731
        *tensors, target="cuda:sm90", config=tile.Config(indexing="descriptor")
    )
    described(x, w, offsets)
    seen["scratch"] = [made.numel() for made in given]
    seen["descriptor of x"] = stub.last_argument(0) == x.data_ptr()
    before = len(compiled)
    described(moved, w, offsets)
    seen["moved"] = [stub.last_argument(0) % 16, stub.last_argument(0) != moved.data_ptr()]
    seen["compiled for moved"] = len(compiled) - before
    quiet = tile.kernel(grouped_gemm.__wrapped__, checks=False)  # as with offsets on a GPU
    for _ in range(2):
        quiet(x, w, offsets, **asked)
    functions = entered(lambda: quiet(x, w, offsets, **asked))
    seen["entered"] = [name for name in functions if name.startswith("tilelang.")]
    if "--time" in sys.argv:
        programs.Program.run = lambda self, *how: ran.append((self, *how)) or run_one(self, *how)
        quiet(x, w, offsets, target="cuda:sm90")
        programs.Program.run = run_one
        seen |= times(lambda: quiet(x, w, offsets, target="cuda:sm90"), ran, torch)
    print(json.dumps(seen))


def times(call: Callable[[], Any], ran: Sequence[Any], torch: Any) -> dict[str, float]:
    """Microseconds of a whole call, and of what no caller of Triton can save."""
    program, stream, arrays = ran[-1]
    launch, pointers = program.compiled[()], [arrays[place].data_ptr() for place in program.places]
    return {
        "call": microseconds(call),
        "launch": microseconds(lambda: launch(stream, pointers)),
        "torch.zeros": microseconds(lambda: torch.zeros((256, 64), dtype=torch.float32)),
    }


def microseconds(function: Callable[[], Any], calls: int = 2000) -> float:
    """The best of seven runs, of one call."""
    best = float("inf")
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(calls):
            function()
        best = min(best, time.perf_counter() - start)
    return best / calls * 1e6


if __name__ == "__main__":
    main()
