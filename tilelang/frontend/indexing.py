"""Subscripts: x[tm, k, :] reads memory, y[tm] = v writes it, v[:, None] adds a dimension.

place(here, handle, entries, ...) -> one ir.Index per dimension, and the shape of the block
"""

from __future__ import annotations

import ast
import operator
from dataclasses import dataclass
from typing import Any

from .. import ir
from ..errors import Loc, ParseError
from ..ir.integers import const
from ..language.build import cast
from ..language.dtypes import is_float
from ..language.handles import BlockHandle, TensorHandle, TileHandle
from ..language.shapes import expand_dims, narrow, squeeze
from ..language.values import as_expr, number_of
from .hosting import counted, is_value, iterated, really
from .positions import bound_extent, check_along, grid_step, shifted
from .scope import Here, evaluate
from .tensors import current

Entries = list[tuple[Any, Loc]]  # what stands in a subscript, and where


@dataclass(frozen=True)
class Place:
    """What a subscript says: the index, the shape of the block, and where None puts new dims."""

    index: tuple[ir.Index, ...]
    shape: tuple[ir.Dim, ...]
    added: tuple[int, ...]


def items(here: Here, node: ast.expr) -> Entries:
    """The entries of a subscript with their places in the source; tuples of tiles are spread."""
    found: Entries = []
    for part in node.elts if isinstance(node, ast.Tuple) else [node]:
        starred, loc = isinstance(part, ast.Starred), here.loc(part)
        value = evaluate(here, part.value if isinstance(part, ast.Starred) else part)
        many = starred or isinstance(value, tuple)
        found += [(v, loc) for v in (iterated(loc, value) if many else (value,))]
    return found


def place(here: Here, handle: TensorHandle, entries: Entries, loc: Loc, masked: bool) -> Place:
    """The index that the entries spell; `masked` positions may lie outside of the tensor."""
    tensor = current(here, handle)
    index: list[ir.Index] = []
    shape: list[ir.Dim] = []
    added: list[int] = []
    for value, at in _spelled_out(tensor, entries, loc):
        if value is None:
            added.append(len(shape) + len(added))
            continue
        entry, dims = _entry(here, tensor, len(index), value, at, masked)
        index.append(entry)
        shape += dims
    if sum(isinstance(i, ir.Gather) for i in index) > 1:
        flat, columns = f"{tensor.name}.reshape(-1)", tensor.shape[-1]
        hint = f"one number for each pair is flat[rows * {columns} + columns], of flat = {flat}"
        if len(tensor.shape) > 2 or not all(isinstance(i, ir.Gather) for i in index):
            hint = "reshape the tensor so that one index picks the rows"
        raise ParseError("two dimensions are indexed with computed positions", loc, hint)
    return Place(tuple(index), tuple(shape), tuple(added))


def _spelled_out(tensor: ir.Tensor, entries: Entries, loc: Loc) -> Entries:
    """The entries with ... replaced by full slices: one for each dimension, besides None."""
    rank, dots = len(tensor.shape), [i for i, (v, _) in enumerate(entries) if v is ...]
    if rank == 0 and [v for v, _ in entries] == [()]:  # hl.atomic_add(y, [()], v), as in y[()]
        return []
    used = sum(v is not None and v is not ... for v, _ in entries)
    if len(dots) > 1:
        raise ParseError("... stands twice in an index", entries[dots[1]][1])
    if dots and used <= rank:
        at = dots[0]
        full: Entries = [(slice(None), entries[at][1])] * (rank - used)
        return [*entries[:at], *full, *entries[at + 1 :]]
    if used != rank:
        what = f"{tensor.name} has {counted(rank, 'dimension')} and is indexed with {used}"
        written = [at.text[at.col : at.end_col] for _, at in entries]
        shown = ", ".join([*written, *[":"] * (rank - used)])
        hint = f"take the rest whole: {tensor.name}[{shown}]"
        if any(at == loc for _, at in entries):  # of a call: which part they are is not known
            hint = "give one for each, in a list: slice(None) takes a whole dimension"
        raise ParseError(what, loc, hint if used < rank else "")
    return entries


# ---------------------------------------------------------------- one entry


def _entry(
    here: Here, tensor: ir.Tensor, dim: int, value: Any, loc: Loc, masked: bool
) -> tuple[ir.Index, list[ir.Dim]]:
    size, value = tensor.shape[dim], number_of(value, loc)
    match value:
        case TileHandle(axis):
            index = ir.Along(axis)
            check_along(here, tensor, dim, index, True, masked, loc)
            return index, [axis]
        case slice():
            span = _span(value, size, loc)
            return span, [span.stop - span.start]
        case BlockHandle(name):
            raise ParseError(f"block size {name} is used as an index", loc, "index with the tile")
        case TensorHandle(whole):
            hint = f"index with a part of it: {whole.name}[tile]"
            raise ParseError(f"the whole tensor {whole.name} is used as an index", loc, hint)
        case _:
            pass  # a value, or a number
    if is_value(value):
        return _computed(here, tensor, dim, value, loc, masked)
    if isinstance(value, bool | str | float | list) or not hasattr(value, "__index__"):
        shown = f"the list {value!r}" if isinstance(value, list) else repr(value)
        hint = "an index is an int, a tile, a slice, None, or an integer value"
        raise ParseError(f"{shown} is used as an index", loc, hint)
    number = int(really(loc, operator.index, value))
    if not -size <= number < size:
        what = f"index {number} is out of range for dimension {dim} of {tensor.name}"
        raise ParseError(f"{what}, which is {size} long", loc)
    return ir.At(const(number % size)), []


def _computed(
    here: Here, tensor: ir.Tensor, dim: int, value: ir.Expr, loc: Loc, masked: bool
) -> tuple[ir.Index, list[ir.Dim]]:
    _check_index_type(tensor, value, loc)
    draft, value = here.draft, cast(value, "int32", loc)
    if not value.type.rank:
        if (grid := grid_step(draft, value)) is not None:
            axis, by, moved = grid
            bound_extent(here, axis, -(-tensor.shape[dim] // abs(by)), masked)
            if moved:
                draft.shifted.setdefault(axis, loc)
        return ir.At(value), []
    if (found := shifted(draft, value, loc)) is None:
        return ir.Gather(value), list(value.type.shape)
    index = ir.Along(*found)
    if isinstance(value, ir.Var) and index.offset is not None:
        # rows = starts[g] + t.index; x[rows]: the offset is evaluated where it is used
        loads = (e for e in ir.walk(index.offset) if isinstance(e, ir.Load))
        draft.again.extend((draft.root(load.tensor).name, loc) for load in loads)
    check_along(here, tensor, dim, index, False, masked, loc)
    return index, [index.axis]


def _check_index_type(tensor: ir.Tensor, value: ir.Expr, loc: Loc) -> None:
    dtype = value.type.dtype
    if dtype == "bool":
        load = f"hl.load({tensor.name}, [tile], mask=...), or hl.store,"
        hint = f"how many there are depends on data; {load} leaves some out"
        raise ParseError(f"{tensor.name} is indexed with a mask", loc, hint)
    if is_float(dtype):
        hint = "indices are integers: index.to(hl.int32)"
        raise ParseError(f"{tensor.name} is indexed with a {dtype} value", loc, hint)
    if value.type.rank > 1:
        hint = "an index has one dimension: load one row of it at a time"
        raise ParseError(f"{tensor.name} is indexed with a value of type {value.type}", loc, hint)


def _span(value: slice, size: int, loc: Loc, otherwise: str = "") -> ir.Span:
    """A static slice, cut to the dimension as Python cuts it."""
    for part in (value.start, value.stop, value.step):
        if is_value(part) or isinstance(part, TileHandle):
            hint = (
                "loop with hl.tile(begin, end) and index with it; of a length that is known, begin "
                "+ hl.arange(length), or x.reshape(..., length, ...)[i] before the loops"
            )
            if isinstance(part, ir.TileScalar) and part.what == "begin":
                hint = "index with the tile"
            what = "a slice has bounds that are not known while compiling"
            raise ParseError(what, loc, otherwise or hint)
    if value.step not in (None, 1):
        hint = "load every element and pick those that are needed, or reshape the tensor first"
        raise ParseError(f"a slice has a step of {value.step}", loc, hint)
    start, stop, _ = really(loc, slice.indices, value, size)
    return ir.Span(start, max(stop, start))


# ---------------------------------------------------------------- values


def of_value(value: ir.Expr, entries: Entries, loc: Loc) -> ir.Expr:
    """v[:, None], v[:, 8:16], v[0] of length 1: what subscripts values of the kernel have."""
    used = sum(v is not None and v is not ... for v, _ in entries)
    if used > value.type.rank:
        raise ParseError(f"a value of type {value.type} is indexed with {used}", loc)
    at, added = 0, value
    for entry, there in entries:
        if entry is None:
            added = expand_dims(added, at, loc)
            at += 1
        elif entry is ...:
            at += value.type.rank - used
        elif isinstance(entry, slice):
            added = added if entry == slice(None) else _part(as_expr(added, loc), at, entry, there)
            at += 1
        elif type(entry) is int and entry in (0, -1) and added.type.shape[at : at + 1] == (1,):
            added = squeeze(added, at, loc)
        else:
            hint = "of a value, v[:, 8:16] is a part, v[:, None] adds a dimension, v[0] drops one "
            hint += "of length 1, and sums under a mask pick elements"
            raise ParseError("a value of the kernel is indexed", there, hint)
    return as_expr(added, loc)


def _part(value: ir.Expr, dim: int, part: slice, loc: Loc) -> ir.Expr:
    """v[:, 8:16]: a part of a static dimension, cut to it as Python cuts it."""
    size = value.type.shape[dim]
    if isinstance(size, str):
        return narrow(value, dim, 0, 0, loc)  # which says why there is none
    hint = "bounds of a part of a value are static: mask what is not meant, with hl.arange of its "
    span = _span(part, size, loc, f"{hint}length")
    return narrow(value, dim, span.start, span.stop, loc)
