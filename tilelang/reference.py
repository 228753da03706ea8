"""evaluate(kernel, arrays) -> arrays: runs a kernel tile by tile in NumPy: the oracle.

A tile is exactly its valid positions: there is no padding and nothing to mask.  Values have the
precision of their dtypes.  With a seed, the iterations of the given parallel axes run in shuffled
order; if that changes the result, they were not parallel.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import assert_never

import numpy as np

from . import ir
from .errors import CallError, RaggedValueError
from .language.dtypes import is_float, to_numpy
from .language.evaluate import compute
from .language.moment import Covered, Moment

Array = np.ndarray
DEFAULT_BLOCK = 128
GARBAGE = 0x5A  # every byte of integers in memory that was never written


@dataclass(frozen=True)
class Run:
    """One evaluation.

    memory     input and output tensors, written in place
    positions  of a view: for each element, its position in `source` when that is laid out flat
    shuffle    draws the order of the iterations of `parallel` axes, if there is one
    """

    kernel: ir.KernelIR
    memory: dict[str, Array]
    positions: Mapping[str, Array]
    roots: Mapping[str, str]
    blocks: Mapping[str, int]
    parallel: frozenset[str]
    shuffle: np.random.Generator | None

    def load(self, load: ir.Load, moment: Moment) -> Array:
        """What memory holds, and `other` in lanes that are left out."""
        at, mask = _access(self, load, moment, "reads")
        found = _take(*_in_memory(self, load.tensor, at))
        dtype = to_numpy(load.type.dtype)
        return np.where(mask, found, np.asarray(load.other).astype(dtype)).astype(dtype, copy=False)

    def dtype(self, name: str) -> str:
        """Its own."""
        return name


def evaluate(
    kernel: ir.KernelIR,
    arrays: Mapping[str, Array],
    *,
    seed: int | None = None,
    blocks: Mapping[str, int] | None = None,
    parallel: Collection[str] = (),
) -> dict[str, Array]:
    """The outputs, the mutated inputs and the returned views of a kernel, by tensor name.

    `arrays` holds the input tensors by name.  `blocks` gives block sizes by axis or config entry;
    others are the author's, or 128.  Raises CallError for arrays that do not fit the kernel and
    RaggedValueError for an index outside of its tensor or an extent over its max_extent.
    """
    memory = {t.name: _initial(t, arrays) for t in kernel.tensors if t.role != "view"}
    positions, roots = _views(kernel, memory)
    shuffle = None if seed is None else np.random.default_rng(seed)
    run = Run(kernel, memory, positions, roots, blocks or {}, frozenset(parallel), shuffle)
    with np.errstate(all="ignore"):
        _block(run, kernel.body, Moment(run))
    results = {t.name for t in kernel.tensors if t.role == "output" or t.mutated}
    results.update(kernel.returns)
    return {t.name: _result(run, t) for t in kernel.tensors if t.name in results}


# ---------------------------------------------------------------- memory


def _initial(tensor: ir.Tensor, arrays: Mapping[str, Array]) -> Array:
    if tensor.role == "output":
        return _filled(tensor)
    if tensor.name not in arrays:
        raise CallError(f"{tensor.name} is missing", tensor.loc)
    array = np.asarray(arrays[tensor.name])
    if array.shape != tensor.shape or array.dtype.name != tensor.dtype:
        what = f"{tensor.name} is {array.dtype.name}{list(array.shape)}"
        parsed = f"the kernel was parsed for {tensor.dtype}{list(tensor.shape)}"
        raise CallError(f"{what}, {parsed}", tensor.loc)
    return _narrowed(tensor, array) if tensor.dtype == "int64" else array.copy()


def _narrowed(tensor: ir.Tensor, array: Array) -> Array:
    """int64 as int32; a value that does not fit is an error."""
    limits = np.iinfo(np.int32)
    outside = (array < limits.min) | (array > limits.max)
    if outside.any():
        where = tuple(int(i) for i in np.argwhere(outside)[0])
        what = f"{tensor.name}{list(where)} is {int(array[where])}, which does not fit int32"
        raise RaggedValueError(what, tensor.loc)
    return array.astype(np.int32, order="C")


def _filled(tensor: ir.Tensor) -> Array:
    dtype = to_numpy(tensor.dtype)
    if tensor.fill is not None:
        return np.full(tensor.shape, tensor.fill, dtype)
    if is_float(tensor.dtype):
        return np.full(tensor.shape, math.nan, dtype)
    count = math.prod(tensor.shape) * dtype.itemsize
    if tensor.dtype == "bool":
        return np.ones(tensor.shape, dtype)
    return np.full(count, GARBAGE, np.uint8).view(dtype).reshape(tensor.shape)


def _views(
    kernel: ir.KernelIR, memory: Mapping[str, Array]
) -> tuple[dict[str, Array], dict[str, str]]:
    """Of each view: where its elements are in its root tensor, and which tensor that is."""
    positions: dict[str, Array] = {}
    roots: dict[str, str] = {}
    for tensor in kernel.tensors:
        if tensor.view is None:
            continue
        source = kernel.tensor(tensor.view.source)
        flat = np.arange(math.prod(source.shape)).reshape(source.shape)
        below = positions.get(source.name, flat)
        arg = tensor.view.arg
        match tensor.view.how:
            case "permute":
                moved = below.transpose(arg)
            case "reshape":
                moved = below.reshape(arg)
            case "take":
                index = tensor.view.index
                picks = memory[roots.get(index, index)]
                picks = picks.reshape(-1)[positions[index]] if index in positions else picks
                moved = below.take(picks.transpose(arg[1:]), axis=arg[0], mode="clip")
            case "slice" | "spans" | "cast" | "ends":
                raise AssertionError(f"{tensor.name} is no view of an author's")
            case never:
                assert_never(never)
        positions[tensor.name] = moved
        roots[tensor.name] = roots.get(source.name, source.name)
    return positions, roots


def _result(run: Run, tensor: ir.Tensor) -> Array:
    root = run.roots.get(tensor.name)
    values = run.memory[root or tensor.name]
    if root is not None:
        values = values.reshape(-1)[run.positions[tensor.name]]
    return values.astype(to_numpy(tensor.dtype), copy=False)


# ---------------------------------------------------------------- statements


def _block(run: Run, body: ir.Body, frame: Moment) -> None:
    """Runs statements in order, adding the values that they name to the frame."""
    for stmt in body:
        match stmt:
            case ir.Assign(name, value):
                frame.values[name] = frame.next().value(value)
            case ir.Store():
                _store(run, stmt, frame.next())
            case ir.Loop():
                _loop(run, stmt, frame)
            case _:
                assert_never(stmt)


def _loop(run: Run, loop: ir.Loop, frame: Moment) -> None:
    outer = frame.next()
    state = {c.name: outer.value(c.init) for c in loop.carries}
    for tile in _iterations(run, run.kernel.axis(loop.axis), outer):
        inner = frame.inside(loop.axis, tile, state)
        _block(run, loop.body, inner)
        last = inner.next()
        state = {c.name: last.value(c.next) for c in loop.carries}
    frame.values.update({c.out: state[c.name] for c in loop.carries})


def _iterations(run: Run, axis: ir.Axis, frame: Moment) -> list[Covered]:
    """The tiles or indices of an axis, in the order in which they run."""
    begin, end = (int(frame.value(e)) for e in (axis.begin, axis.end))
    if axis.max_extent is not None and end - begin > axis.max_extent:
        what = f"{axis.user} runs from {begin} to {end}: more than its max_extent {axis.max_extent}"
        raise RaggedValueError(what, axis.loc)
    block = 1 if axis.kind == "grid" else _block_size(run, axis)
    starts = range(begin, end, block)
    tiles = [Covered(s, min(s + block, end), i, len(starts), block) for i, s in enumerate(starts)]
    if run.shuffle is not None and axis.name in run.parallel:
        run.shuffle.shuffle(tiles)
    return tiles


def _block_size(run: Run, axis: ir.Axis) -> int:
    if axis.fixed is not None:
        return axis.fixed
    given = (run.blocks.get(n) for n in (axis.name, axis.block, axis.user) if isinstance(n, str))
    chosen, bounds = next((b for b in given if b is not None), None), run.kernel.block_size(axis)
    if bounds is None:
        return DEFAULT_BLOCK if chosen is None else chosen
    if chosen is not None and not bounds.holds(chosen):
        what = f"a block of {chosen} for {bounds.name}, which goes from {bounds}"
        raise CallError(what, bounds.loc)
    return bounds.nearest(chosen or DEFAULT_BLOCK)


# ---------------------------------------------------------------- loads and stores


def _take(array: Array, at: tuple[Array, ...]) -> Array:
    """Elements by position; of an array without any, 0 (all lanes are masked then)."""
    if array.size == 0:
        return np.zeros(np.broadcast_shapes(*(p.shape for p in at)), array.dtype)
    return np.asarray(array[at])


def _in_memory(run: Run, tensor: str, at: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
    """The array that holds a tensor, and the positions in it: of a view, in its root, flat."""
    if tensor not in run.roots:
        return run.memory[tensor], at
    return run.memory[run.roots[tensor]].reshape(-1), (_take(run.positions[tensor], at),)


def _store(run: Run, store: ir.Store, frame: Moment) -> None:
    stored = frame.value(store.value)
    at, mask = _access(run, store, frame, "writes")
    target, at = _in_memory(run, store.tensor, at)
    lanes = tuple(np.broadcast_to(p, mask.shape) for p in at)
    kept = [i for i in store.index if not isinstance(i, ir.At)]  # one for each dimension
    row = next((dim for dim, i in enumerate(kept) if isinstance(i, ir.Gather)), None)
    if store.combine is not None and row is not None:
        addend = np.broadcast_to(frame.value(store.operands[1]), mask.shape)
        _combine(target, lanes, mask, addend, store.combine, row)
        return
    value = np.broadcast_to(stored, mask.shape)
    places = tuple(p[mask] for p in lanes)
    target[places or mask] = value[mask].astype(target.dtype)  # a scalar has no positions


def _combine(
    target: Array, lanes: tuple[Array, ...], mask: Array, addend: Array, op: str, along: int
) -> None:
    """Row by row of the dimension `along`, in which one place may be picked several times."""
    for row in range(mask.shape[along]):
        here = mask.take(row, along)
        places = tuple(p.take(row, along)[here] for p in lanes)
        new = addend.take(row, along)[here]
        target[places] = compute(op, (target[places], new), target.dtype.name, (), ())


def _access(
    run: Run, access: ir.Load | ir.Store, frame: Moment, verb: str
) -> tuple[tuple[Array, ...], Array]:
    """Where an access goes, clipped, and its mask; lanes that leave the tensor are errors.

    Lanes that a moved tile has outside of the tensor are not: they are masked.
    """
    sizes = run.kernel.tensor(access.tensor).shape
    at = frame.positions(access.index)
    shape = np.broadcast_shapes(*(p.shape for p in at))
    given = np.True_ if access.mask is None else frame.value(access.mask)
    mask = np.broadcast_to(given, shape)
    outside = [(p < 0) | (p >= size) for p, size in zip(at, sizes, strict=True)]
    for entry, out in zip(access.index, outside):
        if isinstance(entry, ir.Along) and entry.offset is not None:
            mask = mask & ~out
    for dim, out in enumerate(outside):
        wrong = out & mask
        if wrong.any():
            first = int(np.broadcast_to(at[dim], shape)[wrong][0])
            place = f"{access.tensor} at {first} of dimension {dim}, whose length is {sizes[dim]}"
            raise RaggedValueError(f"the kernel {verb} {place}", access.loc)
    return tuple(np.clip(p, 0, max(n - 1, 0)) for p, n in zip(at, sizes)), mask
