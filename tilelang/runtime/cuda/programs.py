"""runner(plan, source, device): the generated launches, with nothing left to decide in a call.

Triton's own way to launch looks at every argument again; here a call compares the pointers' low
bits and launches what was compiled.  What is compiled is also on disk, in Triton's cache: a second
process does not compile again.  No call waits for the device, so it may be captured in a graph.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ...codegen.source import Source
from ...codegen.triton.plan.types import Buffer, Launch, Plan
from .. import bridge
from .compiler import compiled
from .device import interprets
from .signature import signature_of

ALIGNED = 15  # the low bits of a pointer that is a multiple of 16 bytes
Views = Sequence[tuple[str, tuple[int, ...]]]
Run = Callable[[list[Any]], list[Any]]  # it may put what it makes behind the operands


@dataclass(frozen=True)
class Program:
    """One @triton.jit function and how it is launched.

    signature  Triton's type of each argument
    places     which of all arrays the arguments are: operands first, then what the host makes
    device     of all of them
    compiled   which arguments are not aligned -> a function of (stream, pointers) that launches
    """

    function: Any
    launch: Launch
    signature: tuple[str, ...]
    places: tuple[int, ...]
    device: Any
    compiled: dict[tuple[bool, ...], Callable[[int, Sequence[int]], None]] = field(
        default_factory=dict
    )

    def run(self, stream: int, arrays: Sequence[Any]) -> None:
        """Launches on a stream; numbers are what the driver takes, and Triton asks nothing of."""
        pointers, bits = [], 0
        for place in self.places:
            pointer = arrays[place].data_ptr()
            pointers.append(pointer)
            bits |= pointer
        if bits & ALIGNED:
            self._run_unaligned(stream, [arrays[place] for place in self.places])
        else:
            (self.compiled.get(()) or self._launcher(()))(stream, pointers)

    def _run_unaligned(self, stream: int, tensors: Sequence[Any]) -> None:
        """Launches where some are not aligned; those that descriptors tell of are copied."""
        boxed = {one.tensor for one in self.launch.descriptors}
        told = [
            t.clone() if name in boxed and t.data_ptr() & ALIGNED else t
            for name, t in zip(self.launch.arguments, tensors, strict=True)
        ]
        pointers = [t.data_ptr() for t in told]
        unaligned = tuple(bool(pointer & ALIGNED) for pointer in pointers)
        self._launcher(unaligned if any(unaligned) else ())(stream, pointers)

    def _launcher(self, unaligned: tuple[bool, ...]) -> Callable[[int, Sequence[int]], None]:
        if unaligned not in self.compiled:
            self.compiled[unaligned] = self._compile(unaligned)
        return self.compiled[unaligned]

    def _compile(self, unaligned: Sequence[bool]) -> Callable[[int, Sequence[int]], None]:
        made = compiled(
            self.function,
            self.signature,
            [n for n in range(len(self.places)) if not unaligned or not unaligned[n]],
            _driver().get_current_target(),
            warps=self.launch.warps,
            stages=self.launch.stages,
            max_registers=self.launch.max_registers,
        )
        set_allocator = importlib.import_module("triton").set_allocator
        run, programs = made.run, self.launch.programs  # `run` loads the code: `function` is there
        function, packed = made.function, made.packed_metadata
        scratch = made.metadata.global_scratch_size > 0

        def launch(stream: int, pointers: Sequence[int]) -> None:
            if scratch:
                set_allocator(partial(_scratch, self.device))
            # grid, stream, code, metadata, no hooks, arguments
            run(programs, 1, 1, stream, function, packed, None, None, None, *pointers)

        return launch


def runner(plan: Plan, source: Source, device: Any) -> Run:
    """Operands, contiguous and on the device -> what the plan returns."""
    if interprets():
        return _interpreted(plan, source)
    module = source.load().__globals__
    inputs = [t.name for t in plan.ir.tensors if t.role == "input"]
    names = [*inputs, *(buffer.name for buffer in plan.buffers)]
    programs = [
        _program(plan, launch, module[launch.name], names, device) for launch in plan.launches
    ]
    makers = [_maker(buffer, device) for buffer in plan.buffers]
    results = [(names.index(result.name), result.views) for result in plan.results]
    driver, index = _driver(), device.index or 0

    def run(arrays: list[Any]) -> list[Any]:
        before = driver.get_current_device()
        if before != index:
            driver.set_current_device(index)
        try:
            for make in makers:
                arrays.append(make())
            stream = driver.get_current_stream(index)
            for program in programs:
                program.run(stream, arrays)
        finally:
            if before != index:
                driver.set_current_device(before)
        return [viewed(arrays[at], views) if views else arrays[at] for at, views in results]

    return run


def viewed(array: Any, views: Views) -> Any:
    """The view of an array that the author returned."""
    for how, sizes in views:
        array = array.reshape(sizes) if how == "reshape" else array.permute(sizes)
    return array


def _program(
    plan: Plan, launch: Launch, function: Any, names: Sequence[str], device: Any
) -> Program:
    places = tuple(names.index(name) for name in launch.arguments)
    return Program(function, launch, tuple(signature_of(plan, launch)), places, device)


def _interpreted(plan: Plan, source: Source) -> Run:
    """The host function of the module itself: Triton's interpreter is behind its kernels."""
    host, structure = source.load(), plan.ir.structure

    def run(operands: list[Any]) -> list[Any]:
        results: Any = host(*operands)
        if structure == "none":
            return []
        return [results] if structure == "single" else list(results)

    return run


def _maker(buffer: Buffer, device: Any) -> Callable[[], Any]:
    torch = bridge.torch()
    dtype = getattr(torch, buffer.dtype)
    if buffer.fill is None:
        return partial(torch.empty, buffer.shape, dtype=dtype, device=device)
    if buffer.fill == 0:
        return partial(torch.zeros, buffer.shape, dtype=dtype, device=device)
    return partial(torch.full, buffer.shape, buffer.fill, dtype=dtype, device=device)


def _scratch(device: Any, size: int, alignment: int, stream: int | None) -> Any:
    """Memory that Triton writes descriptors to, in the order of torch's current stream."""
    torch = bridge.torch()
    return torch.empty(size, dtype=torch.int8, device=device)


def _driver() -> Any:
    return importlib.import_module("triton.runtime").driver.active
