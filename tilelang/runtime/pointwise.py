"""term(expr, ahead) -> Term | None: an integer expression as a NumPy function of the tensors.

A term is evaluated at many points at once; a point says where every axis stands (`hl.grid` index or
position in a tile's range), and a value is one number per point or one number for all of them.
None stands for what cannot be known before the launch: floats, carried values, data that the kernel
writes, and the begin and end of tiles, which depend on the blocks, except of `KnownAhead.tiles`.

Names are written out before (`written_out`); what operations mean is `language.evaluate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from ..ir import (
    Along,
    Apply,
    Axis,
    Const,
    Expr,
    GridIndex,
    Index,
    KernelIR,
    Load,
    Span,
    Tensor,
    TileIndex,
    TileScalar,
    definitions,
    index_exprs,
    inlined,
    map_range,
)
from ..ir.integers import INT, add, const, floordiv, minimum, mul, sub
from ..language import dtypes
from ..language.evaluate import compute
from ..language.op import ELEMENTWISE, REDUCTIONS, kind_of

Arrays = Mapping[str, np.ndarray]
Points = Mapping[str, Any]  # axis -> one int per point, or one int for all
Run = Callable[[Arrays, Points], Any]

WIDE = "int64"  # sums of int32 offsets are exact in it
INTEGERS = (WIDE, *dtypes.INTEGERS)


@dataclass(frozen=True)
class Term:
    """A compiled expression.

    constant  its value if that needs no tensor
    plain     it takes numbers that are there and computes nothing: no warning of NumPy's to silence
    """

    run: Run
    constant: Any = None
    plain: bool = False


@dataclass(frozen=True)
class KnownAhead:
    """What is known ahead of a call.

    points  of axes whose places no tensor changes
    tiles   how many positions a tile has, of tile axes where that is known: so are its edges
    lanes   values are vectors, whose lanes stand along a dimension before that of the points
    """

    ir: KernelIR
    points: Points = field(default_factory=dict)
    tiles: Mapping[str, int] = field(default_factory=dict)
    lanes: bool = False


def written_out(ir: KernelIR) -> KernelIR:
    """The kernel with no named values in what its loops run over."""
    values = definitions(ir.body)
    return replace(ir, axes=tuple(map_range(a, lambda e: inlined(e, values)) for a in ir.axes))


def term(expr: Expr, ahead: KnownAhead) -> Term | None:
    """The expression as a function of tensors and points; None if it cannot be known."""
    match expr:
        case Const(value):
            return None if isinstance(value, float) else _constant(value)
        case GridIndex(axis) | TileIndex(axis):
            if axis in ahead.points:
                return _constant(ahead.points[axis])
            return Term(lambda arrays, points: points[axis])
        case TileScalar(axis, "begin" | "end" as what) if axis in ahead.tiles:
            begin, end = tile_edges(ahead.ir.axis(axis), ahead.tiles[axis])
            return term(begin if what == "begin" else end, ahead)
        case Load():
            return _load(expr, ahead)
        case Apply("cast", (arg,)) if expr.type.dtype in INTEGERS:
            return term(arg, ahead)
        case Apply("arange") if ahead.lanes:
            size, start, step = expr.type.shape[0], expr.attr("start", 0), expr.attr("step", 1)
            return _lanes(start, start + size * step, step) if isinstance(size, int) else None
        case Apply(op) if op in REDUCTIONS:
            return _reduced(expr, ahead)
        case Apply():
            return _apply(expr, ahead)
        case _:
            return None


def tile_edges(axis: Axis, block: int) -> tuple[Expr, Expr]:
    """Where the tile of a position begins and ends: tiles are cut from where the range begins."""
    index = TileIndex(axis.name, INT)
    if block == 1:
        return index, add(index, const(1))
    begin = add(axis.begin, mul(floordiv(sub(index, axis.begin), block), block))
    return begin, minimum(add(begin, const(block)), axis.end)


def _constant(value: Any) -> Term:
    return Term(lambda arrays, points: value, value, plain=True)


def _every(found: Iterable[Term | None]) -> list[Term] | None:
    """The terms, if none is missing."""
    terms = list(found)
    known = [t for t in terms if t is not None]
    return known if len(known) == len(terms) else None


def _joined(fn: Callable[..., Any], parts: list[Term]) -> Term:
    """fn of the parts, computed now when all of them are constants."""
    if all(p.constant is not None for p in parts):
        return _constant(fn(*(p.constant for p in parts)))
    return Term(lambda arrays, points: fn(*[p.run(arrays, points) for p in parts]))


def _apply(expr: Apply, ahead: KnownAhead) -> Term | None:
    if kind_of(expr.op) == "other":  # a device's own
        return None
    args = _every(term(a, ahead) for a in expr.args)
    exact = expr.op in ELEMENTWISE and expr.op != "pow"  # NumPy's raises if negative
    if args is None or not exact or expr.type.dtype not in (*INTEGERS, "bool"):
        return None
    dtype = "bool" if expr.type.dtype == "bool" else WIDE

    def meaning(*values: Any) -> np.ndarray:
        wide = tuple(np.asarray(v, np.int64) for v in values)
        return compute(expr.op, wide, dtype, (), expr.attrs)

    return _joined(meaning, args)


def _lanes(start: int, stop: int, step: int = 1) -> Term:
    return _constant(np.arange(start, stop, step)[:, None])


def _reduced(expr: Apply, ahead: KnownAhead) -> Term | None:
    """A number that is made of all lanes of a vector of known length, of whole numbers."""
    (size, *others), dtype = expr.args[0].type.shape, expr.type.dtype
    if others or expr.type.rank or not isinstance(size, int) or size == 0:
        return None
    vector = term(expr.args[0], replace(ahead, lanes=True))
    if vector is None or dtype not in (*INTEGERS, "bool"):
        return None

    def meaning(values: Any) -> np.ndarray:
        wide = np.asarray(values, np.int64)
        every = np.broadcast_to(wide, np.broadcast_shapes(wide.shape, (size, 1)))
        found = compute(expr.op, (every,), "bool" if dtype == "bool" else WIDE, (), expr.attrs)
        return found[0] if found.shape == (1,) else found

    return _joined(meaning, [vector])


def _load(load: Load, ahead: KnownAhead) -> Term | None:
    ir = ahead.ir
    indices = _every(_place(entry, ahead) for entry in load.index)
    if indices is None or not readable(load.tensor, ir):
        return None
    if load.type.dtype not in (*INTEGERS, "bool"):
        return None
    tensor = ir.tensor(load.tensor)
    value = _taken(_source(tensor, ir), indices, tensor.shape)
    if load.mask is None:
        return value
    mask = term(load.mask, ahead)
    return None if mask is None else _joined(np.where, [mask, value, _constant(load.other)])


def _place(entry: Index, ahead: KnownAhead) -> Term | None:
    if isinstance(entry, Span):
        return _lanes(entry.start, entry.stop) if ahead.lanes else None
    place = position(entry)
    return None if place is None else term(place, ahead)


def _taken(source: Callable[[Arrays], np.ndarray], indices: list[Term], shape: tuple) -> Term:
    """source[indices], each index clipped to the dimension: `checks` says if one was outside."""
    if 0 in shape:
        return _constant(0)
    if len(indices) == 1 and indices[0].constant is not None:
        where = _as_slice(np.clip(indices[0].constant, 0, shape[0] - 1))
        return Term(lambda arrays, points: source(arrays)[where], plain=True)

    def take(arrays: Arrays, points: Points) -> Any:
        at = [np.clip(i.run(arrays, points), 0, n - 1) for i, n in zip(indices, shape, strict=True)]
        return source(arrays)[tuple(at)]

    return Term(take)


def _source(tensor: Tensor, ir: KernelIR) -> Callable[[Arrays], np.ndarray]:
    return itemgetter(tensor.name) if tensor.view is None else partial(array, tensor.name, ir)


def _as_slice(where: np.ndarray) -> Any:
    """Indices that count up by one as a slice, which makes a view."""
    if where.ndim == 1 and len(where) and (np.diff(where) == 1).all():
        return slice(int(where[0]), int(where[-1]) + 1)
    return where


def position(index: Index) -> Expr | None:
    """The position that one entry of an index picks at each point; None for a slice."""
    if isinstance(index, Along):
        place = TileIndex(index.axis, INT)
        return place if index.offset is None else add(place, index.offset)
    return next(iter(index_exprs(index)), None)


def readable(name: str, ir: KernelIR) -> bool:
    """Whether a tensor holds what was passed: the kernel does not write it."""
    held = ir.tensor(ir.root(name))
    return held.role == "input" and not held.mutated


def array(name: str, ir: KernelIR, arrays: Arrays) -> np.ndarray:
    """A tensor's values, through the views that it may be."""
    view = None if name in arrays else ir.tensor(name).view
    if view is None:
        return arrays[name]
    source = array(view.source, ir, arrays)
    return source.reshape(view.arg) if view.how == "reshape" else source.transpose(view.arg)
