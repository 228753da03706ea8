"""launching(plan, programs, arrays) -> Flat: the launches of a plan, with nothing left to decide.

Triton's own way to launch looks at every argument again; here a call compares the pointers' low
bits and launches what was compiled.  What is compiled is also on disk, in Triton's cache: a second
process does not compile again.  No call waits for the device, so it may be captured in a graph.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...codegen.source import Source
from ...codegen.triton.plan.types import Buffer, Launch, Plan
from ...errors import CallError
from .. import bridge
from ..written import Flat
from .compiler import compiled
from .loaded import Loaded, loaded
from .signature import signature_of

ALIGNED = 15  # the low bits of a pointer that is a multiple of 16 bytes


@dataclass(frozen=True)
class Launchable:
    """One @triton.jit function and how it is launched.

    signature  Triton's type of each argument
    places     which of all arrays the arguments are: operands first, then what the host makes
    device     of all of them
    compiled   which arguments are not aligned -> what is compiled for that
    """

    function: Any
    launch: Launch
    signature: tuple[str, ...]
    places: tuple[int, ...]
    device: Any
    compiled: dict[tuple[bool, ...], Loaded] = field(default_factory=dict)

    def run(self, stream: int, arrays: Sequence[Any]) -> None:
        """Launches where some are not aligned; those that descriptors tell of are copied."""
        boxed = {one.tensor for one in self.launch.descriptors}
        tensors = [arrays[place] for place in self.places]
        told = [
            t.clone() if name in boxed and t.data_ptr() & ALIGNED else t
            for name, t in zip(self.launch.arguments, tensors, strict=True)
        ]
        pointers = [t.data_ptr() for t in told]
        unaligned = tuple(bool(pointer & ALIGNED) for pointer in pointers)
        self.loaded(unaligned if any(unaligned) else ()).run(stream, *pointers)

    def loaded(self, unaligned: tuple[bool, ...] = ()) -> Loaded:
        """What is compiled for arguments of which these are not aligned."""
        if unaligned not in self.compiled:
            self.compiled[unaligned] = self._load(unaligned)
        return self.compiled[unaligned]

    def _load(self, unaligned: Sequence[bool]) -> Loaded:
        made = compiled(
            self.function,
            self.signature,
            [n for n in range(len(self.places)) if not unaligned or not unaligned[n]],
            driver().get_current_target(),
            warps=self.launch.warps,
            stages=self.launch.stages,
            max_registers=self.launch.max_registers,
        )
        return loaded(made, self.launch.programs, self.device, len(self.places))


def programs_of(plan: Plan, source: Source, device: Any) -> list[Launchable]:
    """The launches of a plan."""
    module, names = source.load().__globals__, arrays_of(plan)

    def program(launch: Launch) -> Launchable:
        places = tuple(names.index(name) for name in launch.arguments)
        signature = tuple(signature_of(plan, launch))
        return Launchable(module[launch.name], launch, signature, places, device)

    return list(map(program, plan.launches))


def arrays_of(plan: Plan) -> list[str]:
    """All arrays by name: operands first, then what the host makes."""
    inputs = [t.name for t in plan.ir.tensors if t.role == "input"]
    return [*inputs, *(buffer.name for buffer in plan.buffers)]


def launching(
    plan: Plan, programs: Sequence[Launchable], device: Any, arrays: Sequence[str]
) -> Flat:
    """Lines that make what the host makes, and launch; `arrays` are variables of all arrays."""
    first = len(arrays) - len(plan.buffers)  # what torch makes is aligned
    makes = [f"{n} = {_make(b)}" for n, b in zip(arrays[first:], plan.buffers, strict=True)]
    used = sorted({place for program in programs for place in program.places})
    pointers = {place: f"{arrays[place]}at" for place in used}
    reads = [f"{pointers[place]} = {arrays[place]}.data_ptr()" for place in used]
    each = [
        program.loaded().lines(n, [pointers[place] for place in program.places])
        for n, program in enumerate(programs)
    ]
    launches = [line for launch in each for line in launch.lines]
    given = [pointers[place] for place in used if place < first]
    if given:
        launches = [
            f"if ({' | '.join(given)}) & {ALIGNED} or not ({' and '.join(given)}):",
            f"    _rarely(_stream, [{', '.join(arrays)}])",
            "else:",
            *(f"    {line}" for line in launches),
        ]
    names = {name: value for launch in each for name, value in launch.names.items()}
    names |= _makers(plan.buffers, device)
    names["_rarely"] = partial(_rarely, programs, arrays_of(plan))
    names["_stream_of"] = driver().get_current_stream
    stream = f"_stream = _stream_of({device.index or 0})"
    return Flat((), (*makes, *reads, stream, *launches), names)


def _rarely(
    programs: Sequence[Launchable], names: Sequence[str], stream: int, arrays: Sequence[Any]
) -> None:
    """Launches where a pointer is not aligned, or there is none: of an empty array, of a fake."""
    for name, array in zip(names, arrays, strict=True):
        if array.numel() and not array.data_ptr():
            raise CallError(f"{name} has no memory to read", hint="pass a plain tensor")
    for program in programs:
        program.run(stream, arrays)


def _make(buffer: Buffer) -> str:
    """The quickest way of torch's to make an array."""
    rest = f"dtype=_{buffer.dtype}, device=_device)"
    if buffer.fill is None:
        return f"_empty({buffer.shape}, {_strides(buffer.shape)}, {rest}"
    if buffer.fill == 0:
        return f"_zeros({buffer.shape}, {rest}"
    return f"_full({buffer.shape}, _fill_{buffer.name}, {rest}"


def _strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Those of rows one after another."""
    if not shape:
        return ()
    rest = _strides(shape[1:])
    return (rest[0] * max(shape[1], 1) if rest else 1, *rest)


def _makers(buffers: Sequence[Buffer], device: Any) -> dict[str, Any]:
    torch = bridge.torch()
    dtypes = {f"_{b.dtype}": getattr(torch, b.dtype) for b in buffers}
    fills = {f"_fill_{b.name}": b.fill for b in buffers}
    made = {"_empty": torch.empty_strided, "_zeros": torch.zeros, "_full": torch.full}
    return {**made, **dtypes, **fills, "_device": device}


def driver() -> Any:
    """Triton's driver."""
    return importlib.import_module("triton.runtime").driver.active
