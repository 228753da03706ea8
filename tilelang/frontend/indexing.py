"""Subscripts: x[tm, k, :] reads memory, y[tm] = v writes it, v[:, None] adds a dimension.

entries(here, handle, items, ...) -> one ir.Index per dimension, and the shape of the block
"""

from __future__ import annotations

import ast
import operator
from dataclasses import dataclass
from typing import Any

from ..errors import Loc, ParseError
from ..ir import (
    Along,
    At,
    Dim,
    Expr,
    Gather,
    Index,
    Load,
    Span,
    Tensor,
    TileScalar,
    Var,
    walk,
)
from ..language.dtypes import is_float
from ..language.handles import BlockHandle, TensorHandle, TileHandle
from ..language.shapes import expand_dims
from ..language.values import as_expr, number_of
from .affine import grid_axis, moved, offset_of
from .containers import counted
from .hosting import is_value, really
from .ranges import check_along
from .scope import Here, evaluate, integer
from .tensors import current, root
from .unrolled import iterated


@dataclass(frozen=True)
class Place:
    """What a subscript says: the index, the shape of the block, and where None puts new dims."""

    index: tuple[Index, ...]
    shape: tuple[Dim, ...]
    added: tuple[int, ...]


def items(here: Here, node: ast.expr) -> list[tuple[Any, Loc]]:
    """The entries of a subscript with their places in the source; tuples of tiles are spread."""
    nodes = node.elts if isinstance(node, ast.Tuple) else [node]
    found: list[tuple[Any, Loc]] = []
    for part in nodes:
        starred = isinstance(part, ast.Starred)
        value = evaluate(here, part.value if isinstance(part, ast.Starred) else part)
        several = (
            iterated(here.loc(part), value) if starred or isinstance(value, tuple) else (value,)
        )
        found += [(v, here.loc(part)) for v in several]
    return found


def place(
    here: Here, handle: TensorHandle, entries: list[tuple[Any, Loc]], loc: Loc, masked: bool
) -> Place:
    """The index that the entries spell; `masked` positions may lie outside of the tensor."""
    tensor = current(here, handle)
    given = _spelled_out(tensor, entries, loc)
    index: list[Index] = []
    shape: list[Dim] = []
    added: list[int] = []
    for value, at in given:
        if value is None:
            added.append(len(shape) + len(added))
            continue
        entry, dims = _entry(here, tensor, len(index), value, at, masked)
        index.append(entry)
        shape += dims
    _one_gather(index, loc)
    return Place(tuple(index), tuple(shape), tuple(added))


def _spelled_out(tensor: Tensor, entries: list[tuple[Any, Loc]], loc: Loc) -> list[tuple[Any, Loc]]:
    """The entries with ... replaced by full slices: one for each dimension, besides None."""
    rank, dots = len(tensor.shape), [i for i, (v, _) in enumerate(entries) if v is ...]
    used = sum(v is not None and v is not ... for v, _ in entries)
    if len(dots) > 1:
        raise ParseError("... stands twice in an index", entries[dots[1]][1])
    if dots and used <= rank:
        at = dots[0]
        full: list[tuple[Any, Loc]] = [(slice(None), entries[at][1])] * (rank - used)
        return [*entries[:at], *full, *entries[at + 1 :]]
    if used != rank:
        what = f"{tensor.name} has {counted(rank, 'dimension')} and is indexed with {used}"
        written = [at.text[at.col : at.end_col] for _, at in entries]
        shown = ", ".join([*written, *[":"] * (rank - used)])
        hint = f"take the rest whole: {tensor.name}[{shown}]" if used < rank else ""
        raise ParseError(what, loc, hint)
    return entries


# ---------------------------------------------------------------- one entry


def _entry(
    here: Here, tensor: Tensor, dim: int, value: Any, loc: Loc, masked: bool
) -> tuple[Index, list[Dim]]:
    size, value = tensor.shape[dim], number_of(value, loc)
    match value:
        case TileHandle(axis):
            check_along(here, tensor, dim, axis, None, True, masked, loc)
            return Along(axis), [axis]
        case slice():
            span = _span(value, size, loc)
            return span, [span.stop - span.start]
        case BlockHandle(name):
            raise ParseError(f"block size {name} is used as an index", loc, "index with the tile")
        case TensorHandle():
            return _whole_index(value, loc)
        case bool() | str() | float() | list():
            raise _not_an_index(value, loc)
    if is_value(value):
        return _computed(here, tensor, dim, value, loc, masked)
    if not hasattr(value, "__index__"):
        raise _not_an_index(value, loc)
    return At(integer(_wrapped(tensor, dim, really(loc, operator.index, value), loc))), []


def _computed(
    here: Here, tensor: Tensor, dim: int, value: Expr, loc: Loc, masked: bool
) -> tuple[Index, list[Dim]]:
    _check_index_type(tensor, value, loc)
    if not value.type.rank:
        if (found := grid_axis(here.draft, value)) is not None:
            here.draft.bound_extent(found, tensor.shape[dim], masked or here.condition is not None)
        return At(value), []
    if (found := moved(here.draft, value, loc)) is not None:
        axis, offset = offset_of(found)
        if isinstance(value, Var):
            _read_again(here, offset, loc)
        check_along(here, tensor, dim, axis, offset, False, masked, loc)
        return Along(axis, offset), [axis]
    return Gather(value), list(value.type.shape)


def _read_again(here: Here, offset: Expr | None, loc: Loc) -> None:
    """rows = starts[g] + t.index; x[rows]: the offset is evaluated where it is used."""
    for part in walk(offset) if offset is not None else ():
        if isinstance(part, Load):
            here.draft.again.append((root(here, part.tensor).name, loc))


def _check_index_type(tensor: Tensor, value: Expr, loc: Loc) -> None:
    dtype = value.type.dtype
    if dtype == "bool":
        load = f"hl.load({tensor.name}, [tile], mask=...)"
        hint = f"how many there are depends on data; {load} leaves some out"
        raise ParseError(f"{tensor.name} is indexed with a mask", loc, hint)
    if is_float(dtype):
        hint = "indices are integers: x.to(hl.int32)"
        raise ParseError(f"{tensor.name} is indexed with a {dtype} value", loc, hint)
    if value.type.rank > 1:
        hint = "an index has one dimension: load one row of it at a time"
        raise ParseError(f"{tensor.name} is indexed with a value of type {value.type}", loc, hint)


def _whole_index(handle: TensorHandle, loc: Loc) -> Any:
    name = handle.tensor.name
    hint = f"index with a part of it: {name}[tile]"
    raise ParseError(f"the whole tensor {name} is used as an index", loc, hint)


def _not_an_index(value: object, loc: Loc) -> ParseError:
    shown = f"the list {value!r}" if isinstance(value, list) else repr(value)
    hint = "an index is an int, a tile, a slice, None, or an integer value"
    return ParseError(f"{shown} is used as an index", loc, hint)


def _wrapped(tensor: Tensor, dim: int, number: int, loc: Loc) -> int:
    """A static index, counted from the end if it is negative."""
    size = tensor.shape[dim]
    if not -size <= number < size:
        what = f"index {number} is out of range for dimension {dim} of {tensor.name}"
        raise ParseError(f"{what}, which is {size} long", loc)
    return number % size


def _span(value: slice, size: int, loc: Loc) -> Span:
    """A static slice, cut to the dimension as Python cuts it."""
    parts = (value.start, value.stop, value.step)
    for part in parts:
        if is_value(part) or isinstance(part, TileHandle):
            tile = isinstance(part, TileScalar) and part.what == "begin"
            hint = (
                "index with the tile" if tile else "loop with hl.tile(begin, end) and index with it"
            )
            raise ParseError("a slice has bounds that depend on data", loc, hint)
    if value.step not in (None, 1):
        hint = "load every element and pick those that are needed, or reshape the tensor first"
        raise ParseError(f"a slice has a step of {value.step}", loc, hint)
    start, stop, _ = really(loc, slice.indices, value, size)
    return Span(start, max(stop, start))


def _one_gather(index: list[Index], loc: Loc) -> None:
    if sum(isinstance(i, Gather) for i in index) > 1:
        hint = "reshape the tensor so that one index picks the rows"
        raise ParseError("two dimensions are indexed with computed positions", loc, hint)


# ---------------------------------------------------------------- values


def of_value(value: Expr, entries: list[tuple[Any, Loc]], loc: Loc) -> Expr:
    """v[:, None]: a value of the kernel has no other subscripts."""
    used = sum(v is not None and v is not ... for v, _ in entries)
    place, added = 0, value
    for entry, at in entries:
        if entry is None:
            added = expand_dims(added, place, loc)
            place += 1
        elif entry is ...:
            place += value.type.rank - used
        elif isinstance(entry, slice) and entry == slice(None):
            place += 1
        else:
            hint = "load the part from memory; of a value, v[:, None] adds a dimension"
            raise ParseError("a value of the kernel is indexed", at, hint)
    if used > value.type.rank:
        what = f"a value of type {value.type} is indexed with {used}"
        raise ParseError(what, loc)
    return as_expr(added, loc)
