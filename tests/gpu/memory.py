"""watched() -> what programs in Triton's interpreter do to memory that no GPU would forgive.

    with watched(seed) as faults:
        host(*tensors)

The programs of a launch run in a random order.  A fault is an access outside of the arrays of the
launch; two lanes of a store with different values for one element; a program that reads or writes
what another one of the same launch writes; and a value that threads of one program pass through
memory without a barrier between.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.gpu import interpreter as mended  # isort: skip  (before anything imports Triton)
import numpy as np
import triton.language as tl
from triton.runtime import interpreter

assert mended.TARGET
NOBODY, SEVERAL = -1, -2
Builder = interpreter.InterpreterBuilder
native = interpreter._interpreter


@dataclass
class Array:
    """One argument of a launch, and who did what to each of its elements."""

    name: str
    begin: int
    size: int
    itemsize: int

    def __post_init__(self) -> None:
        self.reader = np.full(self.size, NOBODY)
        self.writer = np.full(self.size, NOBODY)
        self.updater = np.full(self.size, NOBODY)
        self.read_at = np.full((self.size, 2), NOBODY)  # number of the barrier, lane
        self.written_at = np.full((self.size, 2), NOBODY)
        self.updated_at = np.full(self.size, NOBODY)


@dataclass
class Watch:
    """One launch while it runs."""

    faults: list[str]
    order: random.Random
    arrays: list[Array] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    program: int = 0
    barriers: int = 0

    def launch(self, names: Sequence[str], tensors: Sequence[Any]) -> None:
        self.arrays = [
            Array(name, t.data_ptr(), t.numel(), t.element_size())
            for name, t in zip(names, tensors, strict=True)
            if hasattr(t, "data_ptr")
        ]

    def fault(self, what: str, array: Array, at: np.ndarray) -> None:
        said = f"{array.name}: {what}: element {int(at[0])} in program {self.program}"
        self.faults.append(said)

    def found(self, ptrs: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, list[tuple]]:
        """The mask where it names elements; for each array its elements and their lanes."""
        addresses, live = np.asarray(ptrs, np.int64).ravel(), np.array(mask, bool).ravel()
        known, parts = np.zeros_like(live), []
        for array in self.arrays:
            at, rest = np.divmod(addresses - array.begin, array.itemsize)
            own = live & (at >= 0) & (at < array.size) & (rest == 0)
            if own.any() and not (own & known).any():
                lanes = np.flatnonzero(own)
                parts.append((array, at[lanes], lanes * 31 + len(live)))
            known |= own
        if (live & ~known).any():
            distance = min(
                (int(addresses[live & ~known][0] - a.begin) // a.itemsize, a.name)
                for a in self.arrays
            )
            self.faults.append(f"outside of every array: {distance} in program {self.program}")
        return (live & known).reshape(np.shape(mask)), parts

    def load(self, ptrs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        live, parts = self.found(ptrs, mask)
        for array, at, lanes in parts:
            for other, what in ((array.writer, "reads what"), (array.updater, "reads what")):
                bad = (other[at] != NOBODY) & (other[at] != self.program)
                if bad.any():
                    self.fault(f"{what} another program writes", array, at[bad])
            late = (array.writer[at] == self.program) & (array.written_at[at, 0] == self.barriers)
            late |= (array.updater[at] == self.program) & (array.updated_at[at] == self.barriers)
            if late.any():
                self.fault("no barrier between store and load", array, at[late])
            array.reader[at] = np.where(
                np.isin(array.reader[at], (NOBODY, self.program)), self.program, SEVERAL
            )
            array.read_at[at] = np.stack([np.full_like(at, self.barriers), lanes], 1)
        return live

    def store(self, ptrs: np.ndarray, values: np.ndarray, mask: np.ndarray) -> np.ndarray:
        live, parts = self.found(ptrs, mask)
        flat = np.broadcast_to(values, live.shape)[live] if parts else values
        if len(parts) == 1:
            self.twice(parts[0][0], parts[0][1], flat)
        for array, at, lanes in parts:
            for other, what in (
                (array.writer, "writes what another program writes"),
                (array.updater, "writes what another program updates"),
                (array.reader, "writes what another program reads"),
            ):
                bad = (other[at] != NOBODY) & (other[at] != self.program)
                if bad.any():
                    self.fault(what, array, at[bad])
            for who, when, what in (
                (array.writer, array.written_at, "no barrier between two stores"),
                (array.reader, array.read_at, "no barrier between load and store"),
            ):
                same = (who[at] == self.program) & (when[at, 0] == self.barriers)
                same &= when[at, 1] != lanes
                if same.any():
                    self.fault(what, array, at[same])
            same = (array.updater[at] == self.program) & (array.updated_at[at] == self.barriers)
            if same.any():
                self.fault("no barrier between update and store", array, at[same])
            array.writer[at] = self.program
            array.written_at[at] = np.stack([np.full_like(at, self.barriers), lanes], 1)
        return live

    def twice(self, array: Array, at: np.ndarray, values: np.ndarray) -> None:
        order = np.argsort(at, kind="stable")
        at, bits = at[order], np.ascontiguousarray(values.ravel()[order])
        bits = bits.view(f"u{bits.itemsize}") if bits.dtype.kind == "f" else bits
        bad = (at[1:] == at[:-1]) & (bits[1:] != bits[:-1])
        if bad.any():
            self.fault("two lanes store different values", array, at[1:][bad])

    def update(self, ptrs: np.ndarray, mask: np.ndarray) -> np.ndarray:
        live, parts = self.found(ptrs, mask)
        for array, at, _ in parts:
            for other in (array.writer, array.reader):
                bad = (other[at] != NOBODY) & (other[at] != self.program)
                if bad.any():
                    self.fault("updates what another program reads or writes", array, at[bad])
            for who, when in ((array.writer, array.written_at), (array.reader, array.read_at)):
                late = (who[at] == self.program) & (when[at, 0] == self.barriers)
                if late.any():
                    self.fault("no barrier before an update", array, at[late])
            array.updater[at] = self.program
            array.updated_at[at] = self.barriers
        return live


_NOW: list[Watch] = []


def _load(self: Any, ptrs: Any, mask: Any, other: Any, *options: Any, **more: Any) -> Any:
    if _NOW:
        held = mask if isinstance(mask, np.ndarray) else mask.data  # a box's is no handle
        mask = interpreter.TensorHandle(_NOW[-1].load(ptrs.data, held), tl.int1)
    return _masked_load(self, ptrs, mask, other, *options, **more)


def _store(self: Any, ptrs: Any, value: Any, mask: Any, *options: Any) -> Any:
    if _NOW:
        live = _NOW[-1].store(ptrs.data, value.data, mask.data)
        mask = interpreter.TensorHandle(live, mask.dtype)
    return _masked_store(self, ptrs, value, mask, *options)


def _update(self: Any, op: Any, ptr: Any, value: Any, mask: Any, *options: Any) -> Any:
    if _NOW:
        live = _NOW[-1].update(ptr.data, mask.data)
        mask = interpreter.TensorHandle(live, mask.dtype)
    return _atomic_rmw(self, op, ptr, value, mask, *options)


def _barrier(self: Any) -> None:
    if _NOW:
        _NOW[-1].barriers += 1


def _set_grid_dim(self: Any, nx: int, ny: int, nz: int) -> None:
    _grid_dim(self, nx, ny, nz)
    if _NOW:
        _NOW[-1].numbers = list(range(nx))
        _NOW[-1].order.shuffle(_NOW[-1].numbers)


def _set_grid_idx(self: Any, x: int, y: int, z: int) -> None:
    if _NOW:
        x = _NOW[-1].program = _NOW[-1].numbers[x]
        _NOW[-1].barriers += 1
    _grid_idx(self, x, y, z)


def _launch(self: Any, *args: Any, **options: Any) -> Any:
    if _NOW:
        _NOW[-1].launch(self.arg_names, args)
    return _call(self, *args, **options)


_masked_load, _masked_store = Builder.create_masked_load, Builder.create_masked_store
_atomic_rmw, _grid_dim, _grid_idx = (
    Builder.create_atomic_rmw,
    Builder.set_grid_dim,
    Builder.set_grid_idx,
)
_call = interpreter.GridExecutor.__call__
Builder.create_masked_load, Builder.create_masked_store = _load, _store
Builder.create_atomic_rmw, Builder.create_barrier = _update, _barrier
Builder.set_grid_dim, Builder.set_grid_idx = _set_grid_dim, _set_grid_idx
interpreter.GridExecutor.__call__ = _launch


@contextlib.contextmanager
def watched(seed: int) -> Iterator[list[str]]:
    """Every fault of the launches inside."""
    watch = Watch([], random.Random(seed))
    _NOW.append(watch)
    try:
        yield watch.faults
    finally:
        _NOW.pop()
