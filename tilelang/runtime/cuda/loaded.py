"""loaded(made, programs, device) -> Loaded: compiled code on the device, and how to launch it.

Triton puts a function of Python's around the one that it writes to launch.  Where that has the form
that is known here, it is called by itself.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from .. import bridge
from ..written import Flat, function

# What Triton 3.6 says that the written function takes: three numbers of programs, stream, code, two
# flags, memory for scratch and for profiles, metadata of the code and of the launch, two hooks.
DIRECT = "iiiKKppOOOOOO"


@dataclass(frozen=True, eq=False)
class Loaded:
    """A compiled function on the device.

    lines  (number, pointers) -> what launches it on `_stream`
    run    the same as a function of the stream and the pointers
    """

    lines: Callable[[int, Sequence[str]], Flat]
    run: Callable[..., None]


def loaded(made: Any, programs: int, device: Any, count: int) -> Loaded:
    """Triton's CompiledKernel of `count` pointers, launched as so many programs."""
    run = made.run  # this loads the code: only then `function` is there
    form = getattr(sys.modules[type(run).__module__], "_BASE_ARGS_FORMAT", None)
    known = form == DIRECT and not made.metadata.profile_scratch_size
    lines = partial(_directly if known else _by_triton, made, programs, device)
    pointers = [f"p{n}" for n in range(count)]
    return Loaded(lines, function("launch", ["_stream", *pointers], lines(0, pointers)))


def _directly(made: Any, programs: int, device: Any, n: int, pointers: Sequence[str]) -> Flat:
    """By the function that Triton wrote."""
    run, torch, scratch = made.run, bridge.torch(), "None"
    size = programs * made.metadata.num_ctas * made.metadata.global_scratch_size
    names, lines = {f"_launch_{n}": run.launch, **_code(made, n)}, []
    if size:
        lines = [f"_scratch_{n} = _empty(({size},), (1,), dtype=_bytes, device=_device)"]
        names |= {"_empty": torch.empty_strided, "_bytes": torch.int8, "_device": device}
        scratch = f"_scratch_{n}.data_ptr()"
    flags = f"{bool(run.launch_cooperative_grid)}, {bool(run.launch_pdl)}"
    rest = f"{flags}, {scratch}, None, _packed_{n}, None, None, None, {', '.join(pointers)}"
    lines.append(f"_launch_{n}({programs}, 1, 1, _stream, _code_{n}, {rest})")
    return Flat((), tuple(lines), names)


def _by_triton(made: Any, programs: int, device: Any, n: int, pointers: Sequence[str]) -> Flat:
    """By what Triton puts around it, which asks an allocator for scratch memory."""
    names, lines = {f"_run_{n}": made.run, **_code(made, n)}, []
    if made.metadata.global_scratch_size:
        triton = importlib.import_module("triton")
        names |= {"_set_allocator": triton.set_allocator, "_scratch": partial(_scratch, device)}
        lines = ["_set_allocator(_scratch)"]
    rest = f"_code_{n}, _packed_{n}, None, None, None, {', '.join(pointers)}"  # no hooks
    lines.append(f"_run_{n}({programs}, 1, 1, _stream, {rest})")
    return Flat((), tuple(lines), names)


def _code(made: Any, n: int) -> dict[str, Any]:
    return {f"_code_{n}": made.function, f"_packed_{n}": made.packed_metadata}


def _scratch(device: Any, size: int, alignment: int, stream: int | None) -> Any:
    """Memory that Triton writes descriptors to, in the order of torch's current stream."""
    torch = bridge.torch()
    return torch.empty(size, dtype=torch.int8, device=device)
