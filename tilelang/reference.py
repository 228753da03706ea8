"""evaluate(ir, arrays) -> arrays: runs a kernel tile by tile in NumPy: the oracle.

A tile is exactly its valid positions: there is no padding and nothing to mask.  Values have the
precision of their dtypes.  With a seed, the iterations of the given parallel axes run in shuffled
order; if that changes the result, they were not parallel.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from .errors import CallError, Loc, RaggedValueError
from .ir import (
    Along,
    Apply,
    Assign,
    At,
    Axis,
    Const,
    Dim,
    Expr,
    Gather,
    GridIndex,
    Index,
    KernelIR,
    Load,
    Loop,
    Scalar,
    Span,
    Stmt,
    Store,
    Tensor,
    TileIndex,
    TileScalar,
    Var,
)
from .language.dtypes import is_float, to_numpy
from .language.evaluate import compute

Array = np.ndarray
DEFAULT_BLOCK = 128
GARBAGE = 0x5A  # every byte of integers in memory that was never written


@dataclass(frozen=True)
class Tile:
    """What one iteration covers: positions begin to end - 1.  Of a grid axis, one position."""

    begin: int
    end: int
    id: int
    count: int
    block_size: int


@dataclass(frozen=True)
class Run:
    """One evaluation.

    memory     input and output tensors, written in place
    positions  of a view: for each element, its position in `source` when that is laid out flat
    shuffle    draws the order of the iterations of `parallel` axes, if there is one
    """

    ir: KernelIR
    memory: dict[str, Array]
    positions: Mapping[str, Array]
    roots: Mapping[str, str]
    blocks: Mapping[str, int]
    parallel: frozenset[str]
    shuffle: np.random.Generator | None


@dataclass(frozen=True)
class Frame:
    """What is known at one point of the execution: values by name and the tile of each axis."""

    values: dict[str, Array]
    tiles: Mapping[str, Tile]
    done: dict[int, Array] = field(default_factory=dict)  # by id, within one statement


def evaluate(
    ir: KernelIR,
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
    memory = {t.name: _initial(t, arrays) for t in ir.tensors if t.role != "view"}
    positions, roots = _views(ir)
    shuffle = None if seed is None else np.random.default_rng(seed)
    run = Run(ir, memory, positions, roots, blocks or {}, frozenset(parallel), shuffle)
    with np.errstate(all="ignore"):
        _block(run, ir.body, Frame({}, {}))
    return {t.name: _result(run, t) for t in ir.tensors if _is_result(ir, t)}


# ---------------------------------------------------------------- memory


def _initial(tensor: Tensor, arrays: Mapping[str, Array]) -> Array:
    if tensor.role == "output":
        return _filled(tensor)
    if tensor.name not in arrays:
        raise CallError(f"{tensor.name} is missing", tensor.loc)
    array = np.asarray(arrays[tensor.name])
    if array.shape != tensor.shape or array.dtype.name != tensor.dtype:
        raise CallError(
            f"{tensor.name} is {array.dtype.name}{list(array.shape)}, "
            f"the kernel was parsed for {tensor.dtype}{list(tensor.shape)}",
            tensor.loc,
        )
    return _narrowed(tensor, array) if tensor.dtype == "int64" else array.copy()


def _narrowed(tensor: Tensor, array: Array) -> Array:
    """int64 as int32; a value that does not fit is an error."""
    limits = np.iinfo(np.int32)
    outside = (array < limits.min) | (array > limits.max)
    if outside.any():
        where = tuple(int(i) for i in np.argwhere(outside)[0])
        what = f"{tensor.name}{list(where)} is {int(array[where])}, which does not fit int32"
        raise RaggedValueError(what, tensor.loc)
    return array.astype(np.int32, order="C")


def _filled(tensor: Tensor) -> Array:
    dtype = to_numpy(tensor.dtype)
    if tensor.fill is not None:
        return np.full(tensor.shape, tensor.fill, dtype)
    if is_float(tensor.dtype):
        return np.full(tensor.shape, math.nan, dtype)
    count = math.prod(tensor.shape) * dtype.itemsize
    if tensor.dtype == "bool":
        return np.ones(tensor.shape, dtype)
    return np.full(count, GARBAGE, np.uint8).view(dtype).reshape(tensor.shape)


def _views(ir: KernelIR) -> tuple[dict[str, Array], dict[str, str]]:
    """Of each view: where its elements are in its root tensor, and which tensor that is."""
    positions: dict[str, Array] = {}
    roots: dict[str, str] = {}
    for tensor in ir.tensors:
        if tensor.view is None:
            continue
        source = ir.tensor(tensor.view.source)
        flat = np.arange(math.prod(source.shape)).reshape(source.shape)
        below = positions.get(source.name, flat)
        arg = tensor.view.arg
        moved = below.transpose(arg) if tensor.view.how == "permute" else below.reshape(arg)
        positions[tensor.name] = moved
        roots[tensor.name] = roots.get(source.name, source.name)
    return positions, roots


def _is_result(ir: KernelIR, tensor: Tensor) -> bool:
    return tensor.role == "output" or tensor.mutated or tensor.name in ir.returns


def _result(run: Run, tensor: Tensor) -> Array:
    if tensor.role == "view":
        values = run.memory[run.roots[tensor.name]].reshape(-1)[run.positions[tensor.name]]
    else:
        values = run.memory[tensor.name]
    return values.astype(to_numpy(tensor.dtype), copy=False)


# ---------------------------------------------------------------- statements


def _block(run: Run, body: tuple[Stmt, ...], frame: Frame) -> None:
    """Runs statements in order, adding the values that they name to the frame."""
    for stmt in body:
        match stmt:
            case Assign(name, value):
                frame.values[name] = _value(run, value, _fresh(frame))
            case Store():
                _store(run, stmt, _fresh(frame))
            case Loop():
                _loop(run, stmt, frame)


def _fresh(frame: Frame) -> Frame:
    """The frame for one statement, within which an expression is evaluated once."""
    return Frame(frame.values, frame.tiles)


def _loop(run: Run, loop: Loop, frame: Frame) -> None:
    outer = _fresh(frame)
    state = {c.name: _value(run, c.init, outer) for c in loop.carries}
    for tile in _iterations(run, run.ir.axis(loop.axis), outer):
        inner = Frame({**frame.values, **state}, {**frame.tiles, loop.axis: tile})
        _block(run, loop.body, inner)
        last = _fresh(inner)
        state = {c.name: _value(run, c.next, last) for c in loop.carries}
    frame.values.update({c.out: state[c.name] for c in loop.carries})


def _iterations(run: Run, axis: Axis, frame: Frame) -> list[Tile]:
    """The tiles or indices of an axis, in the order in which they run."""
    begin, end = (int(_value(run, e, frame)) for e in (axis.begin, axis.end))
    if axis.max_extent is not None and end - begin > axis.max_extent:
        what = f"{axis.user} runs from {begin} to {end}: more than its max_extent {axis.max_extent}"
        raise RaggedValueError(what, axis.loc)
    block = 1 if axis.kind == "grid" else _block_size(run, axis)
    starts = range(begin, end, block)
    tiles = [Tile(s, min(s + block, end), i, len(starts), block) for i, s in enumerate(starts)]
    if run.shuffle is not None and axis.name in run.parallel:
        run.shuffle.shuffle(tiles)
    return tiles


def _block_size(run: Run, axis: Axis) -> int:
    if isinstance(axis.block, int):
        return axis.block
    given = (run.blocks.get(n) for n in (axis.name, axis.block, axis.user) if n is not None)
    chosen, bounds = next((b for b in given if b is not None), None), run.ir.block_size(axis)
    if bounds is None:
        return DEFAULT_BLOCK if chosen is None else chosen
    if chosen is not None and not bounds.holds(chosen):
        raise CallError(
            f"a block of {chosen} for {bounds.name}, which goes from {bounds}", bounds.loc
        )
    return bounds.nearest(chosen or DEFAULT_BLOCK)


# ---------------------------------------------------------------- values


def _value(run: Run, expr: Expr, frame: Frame) -> Array:
    """What an expression is worth; a shared subexpression is evaluated once."""
    known = frame.done.get(id(expr))
    if known is None:
        known = frame.done[id(expr)] = np.asarray(_computed(run, expr, frame))
    return known


def _computed(run: Run, expr: Expr, frame: Frame) -> Array:
    match expr:
        case Const(value):
            return np.asarray(value).astype(to_numpy(expr.type.dtype))
        case Var(name):
            return frame.values[name]
        case GridIndex(axis):
            return np.asarray(frame.tiles[axis].begin, np.int32)
        case TileIndex(axis):
            return _covered(frame.tiles[axis]).astype(np.int32)
        case TileScalar(axis, what):
            return np.asarray(getattr(frame.tiles[axis], what), np.int32)
        case Load():
            return _load(run, expr, frame)
        case Apply(op, args):
            operands = tuple(_value(run, a, frame) for a in args)
            shape = _lengths(expr.type.shape, frame)
            return compute(op, operands, expr.type.dtype, shape, expr.attrs)


def _covered(tile: Tile) -> Array:
    return np.arange(tile.begin, tile.end)


def _lengths(shape: Iterable[Dim], frame: Frame) -> tuple[int, ...]:
    """A shape in numbers: along an axis, as many as the tile has positions."""
    return tuple(len(_covered(frame.tiles[d])) if isinstance(d, str) else d for d in shape)


# ---------------------------------------------------------------- loads and stores


def _load(run: Run, load: Load, frame: Frame) -> Array:
    at = _positions(run, load.tensor, load.index, frame)
    shape = np.broadcast_shapes(*(p.shape for p in at))
    mask = None if load.mask is None else np.broadcast_to(_value(run, load.mask, frame), shape)
    mask = _where_it_is(run, load, at, mask)
    at = _inside(run, load.tensor, at, mask, load.loc, "reads")
    if run.ir.tensor(load.tensor).role == "view":
        flat = run.memory[run.roots[load.tensor]].reshape(-1)
        found = _take(flat, (_take(run.positions[load.tensor], at, 0),), 0)
    else:
        found = _take(run.memory[load.tensor], at, 0)
    dtype = to_numpy(load.type.dtype)
    if mask is None:
        return found.astype(dtype, copy=False)
    return np.where(mask, found, np.asarray(load.other).astype(dtype)).astype(dtype, copy=False)


def _take(array: Array, at: tuple[Array, ...], empty: Scalar) -> Array:
    """Elements by position; of an array without any, `empty` (all lanes are masked then)."""
    if array.size == 0:
        shape = np.broadcast_shapes(*(p.shape for p in at))
        return np.full(shape, empty, array.dtype)
    return np.asarray(array[at])


def _store(run: Run, store: Store, frame: Frame) -> None:
    at = _positions(run, store.tensor, store.index, frame)
    shape = np.broadcast_shapes(*(p.shape for p in at))
    value = np.broadcast_to(_value(run, store.value, frame), shape)
    mask = np.ones(shape, np.bool_)
    if store.mask is not None:
        mask = np.broadcast_to(_value(run, store.mask, frame), shape)
    inside = _where_it_is(run, store, at, mask)
    mask = mask if inside is None else inside
    at = _inside(run, store.tensor, at, mask, store.loc, "writes")
    if run.ir.tensor(store.tensor).role == "view":
        at = (_take(run.positions[store.tensor], at, 0),)
        target = run.memory[run.roots[store.tensor]].reshape(-1)
    else:
        target = run.memory[store.tensor]
    lanes = tuple(np.broadcast_to(p, shape) for p in at)
    row = next((i for i in _kept(store.index) if isinstance(i, Gather)), None)
    if store.combine is None or row is None:
        _assign(target, lanes, mask, value)
    else:
        along = _kept(store.index).index(row)
        _combine(target, lanes, mask, _addend(run, store, frame, shape), store.combine, along)


def _assign(target: Array, lanes: tuple[Array, ...], mask: Array, value: Array) -> None:
    places = tuple(p[mask] for p in lanes)
    target[places or mask] = value[mask].astype(target.dtype)  # a scalar has no positions


def _kept(index: tuple[Index, ...]) -> list[Index]:
    """One entry per dimension of the value."""
    return [i for i in index if not isinstance(i, At)]


def _addend(run: Run, store: Store, frame: Frame, shape: tuple[int, ...]) -> Array:
    """What an atomic update combines the old value with."""
    assert isinstance(store.value, Apply)
    return np.broadcast_to(_value(run, store.value.args[1], frame), shape)


def _combine(
    target: Array, lanes: tuple[Array, ...], mask: Array, addend: Array, op: str, along: int
) -> None:
    """Row by row of the dimension `along`, in which one place may be picked several times."""
    for row in range(mask.shape[along]):
        here = mask.take(row, along)
        places = tuple(p.take(row, along)[here] for p in lanes)
        new = addend.take(row, along)[here]
        target[places] = compute(op, (target[places], new), target.dtype.name, (), ())


def _positions(run: Run, tensor: str, index: tuple[Index, ...], frame: Frame) -> tuple[Array, ...]:
    """One array of positions per tensor dimension; together they broadcast to the value's shape."""
    rank = sum(not isinstance(i, At) for i in index)
    out: list[Array] = []
    place = 0
    for entry in index:
        one = _along(run, entry, frame)
        if not isinstance(entry, At):
            place += 1
            one = one.reshape(-1, *(1,) * (rank - place))
        out.append(one)
    return tuple(out)


def _along(run: Run, entry: Index, frame: Frame) -> Array:
    match entry:
        case At(expr) | Gather(expr):
            return _value(run, expr, frame).astype(np.int64)
        case Span(start, stop):
            return np.arange(start, stop)
        case Along(axis, offset):
            moved = 0 if offset is None else int(_value(run, offset, frame))
            return _covered(frame.tiles[axis]) + moved


def _where_it_is(
    run: Run, access: Load | Store, at: tuple[Array, ...], mask: Array | None
) -> Array | None:
    """The mask without lanes that a moved tile has outside of the tensor."""
    sizes = run.ir.tensor(access.tensor).shape
    for entry, positions, size in zip(access.index, at, sizes, strict=True):
        if isinstance(entry, Along) and entry.offset is not None:
            inside = (positions >= 0) & (positions < size)
            mask = inside if mask is None else mask & inside
    return mask


def _inside(
    run: Run,
    tensor: str,
    at: tuple[Array, ...],
    mask: Array | None,
    loc: Loc | None,
    verb: str,
) -> tuple[Array, ...]:
    """The positions, clipped; one outside of the tensor is an error unless it is masked."""
    sizes = run.ir.tensor(tensor).shape
    for dim, (positions, size) in enumerate(zip(at, sizes, strict=True)):
        outside = (positions < 0) | (positions >= size)
        wrong = outside if mask is None else outside & mask
        if wrong.any():
            first = int(np.broadcast_to(positions, wrong.shape)[wrong][0])
            what = f"{verb} {tensor} at {first} of dimension {dim}, whose length is {size}"
            raise RaggedValueError(f"the kernel {what}", loc)
    return tuple(np.clip(p, 0, max(n - 1, 0)) for p, n in zip(at, sizes, strict=True))
