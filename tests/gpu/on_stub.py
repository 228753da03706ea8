"""python -m tests.gpu.on_stub: calls kernels as on a GPU, down to the driver call, without one.

Triton's own driver code runs against tests/gpu/libcuda.c.  Tensors of the CPU stand for those of
the GPU: nothing reads them.  Prints what it saw, a line of JSON.
"""

from __future__ import annotations

import ctypes
import json
import linecache
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
    from tilelang.runtime.cuda import execution, loaded, programs

    compiled: list[Any] = []
    load_one = programs.Launchable._load
    programs.Launchable._load = lambda self, unaligned: (
        compiled.append(list(unaligned)) or load_one(self, unaligned)
    )
    execution.place_of = lambda *_: torch.device("cpu")

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
    call(torch._neg_view(x), w, offsets)  # its memory holds the numbers with the other sign
    seen["negated"] = stub.last_argument(0) != x.data_ptr()
    seen["without memory"] = refused(lambda: call(torch._to_functional_tensor(x), w, offsets))
    given: list[Any] = []
    empty = torch.empty_strided
    torch.empty_strided = lambda *how, **more: given.append(empty(*how, **more)) or given[-1]
    described: Callable[..., Any] = lambda *tensors: grouped_gemm(  # noqa: E731
        *tensors, target="cuda:sm90", config=tile.Config(indexing="descriptor")
    )
    described(x, w, offsets)
    seen["scratch"] = [made.numel() for made in given if made.dtype == torch.int8]
    seen["descriptor of x"] = stub.last_argument(0) == x.data_ptr()
    before = len(compiled)
    described(moved, w, offsets)
    seen["moved"] = [stub.last_argument(0) % 16, stub.last_argument(0) != moved.data_ptr()]
    seen["compiled for moved"] = len(compiled) - before
    torch.empty_strided = empty
    quiet = tile.kernel(grouped_gemm.__wrapped__, checks=False, **asked)  # as with them on a GPU
    for _ in range(2):
        quiet(x, w, offsets)
    functions = entered(lambda: quiet(x, w, offsets))
    seen["entered"] = [name for name in functions if name.startswith("tilelang")]
    (entry,) = quiet._entries.values()
    (later,) = entry.later.values()
    seen["later"] = "".join(linecache.getlines(later.__code__.co_filename))
    if "--time" in sys.argv:
        seen["times"] = times(quiet, (x, w, offsets))
    seen["forms"] = forms(stub, compiled, quiet, (w, offsets))
    loaded.DIRECT = "another"  # as with a Triton whose functions may take other things
    for indexing in ("pointer", "descriptor"):
        other = tile.kernel(grouped_gemm.__wrapped__, target="cuda:sm90", checks=False)
        other(x, w, offsets, config=tile.Config(indexing=indexing))
        seen[f"other Triton, {indexing}"] = [
            stub.last_argument(0) == x.data_ptr(),
            stub.last_grid(),
        ]
    print(json.dumps(seen))


def forms(
    stub: Any, compiled: Sequence[Any], kernel: Any, rest: Sequence[Any]
) -> dict[str, list[Any]]:
    """Of each form of x: launches, whether its own memory was read, and what was compiled for it.

    Twice, because the second call runs what the first one wrote.
    """
    import numpy as np

    from tests.gpu.arguments import FORMS, expanded, pointer

    found: dict[str, list[Any]] = {}
    ones = np.ones((256, 128), np.float32)
    values = {name: form.make(ones, "cpu") for name, form in FORMS.items()}
    values["one row"] = expanded(ones[0], 256, "cpu")
    for name, value in values.items():
        for nth in ("first", "later"):
            launches, before = stub.last_count(), len(compiled)
            kernel(value, *rest)
            at = stub.last_argument(0)
            found[f"{name}, {nth}"] = [
                stub.last_count() - launches, at == pointer(value), at % 16 == 0, compiled[before:]
            ]  # fmt: skip
    return found


def refused(call: Callable[[], Any]) -> str:
    """What a call says that is refused."""
    try:
        call()
    except Exception as error:
        return str(error).splitlines()[0]
    return ""


def times(kernel: Any, tensors: Sequence[Any]) -> dict[str, Any]:
    """Microseconds of a whole call, of the bare launch, and of what makes the output."""
    import torch
    import triton

    import tilelang as tile
    from tilelang.runtime.cuda import programs

    memory = torch.empty(1 << 16, dtype=torch.int8)
    triton.set_allocator(lambda *_: memory)
    made: list[Any] = []
    compile_one = programs.compiled
    programs.compiled = lambda *how, **more: made.append(compile_one(*how, **more)) or made[-1]
    found: dict[str, Any] = {}
    for indexing in ("pointer", "descriptor"):
        own = tile.kernel(
            kernel.__wrapped__, checks=False, target="cuda:sm90",
            config=tile.Config(indexing=indexing),
        )  # fmt: skip
        for _ in range(3):
            y = own(*tensors)
        code = made[-1]
        run, given = code.run, [t.data_ptr() for t in (*tensors, y)]
        form = (0, code.function, code.packed_metadata, None, None, None)
        rows: dict[str, Callable[[], Any]] = {
            "call": lambda own=own: own(*tensors),
            "launch": lambda run=run, form=form, given=given: run(8, 1, 1, *form, *given),
            "output": lambda: torch.zeros((256, 64), dtype=torch.float32),
        }
        found[indexing] = microseconds(rows)
    return found


def microseconds(rows: dict[str, Callable[[], Any]], calls: int = 500) -> dict[str, float]:
    """The best of many runs of each, in turn, so that a busy moment hits all of them alike."""
    best = dict.fromkeys(rows, float("inf"))
    for _ in range(40):
        for name, function in rows.items():
            start = time.perf_counter()
            for _ in range(calls):
                function()
            best[name] = min(best[name], time.perf_counter() - start)
    return {name: round(seconds / calls * 1e6, 2) for name, seconds in best.items()}


if __name__ == "__main__":
    main()
