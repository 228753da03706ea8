"""Axes: the ranges that hl.grid and hl.tile are given, checked, and their static bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from ..errors import Loc, ParseError, TypingError
from ..ir import Axis, Const, Expr
from ..language.build import cast
from ..language.dtypes import is_integer
from ..language.handles import BlockHandle, TensorHandle, TileHandle
from ..language.values import called, number_of
from .containers import counted
from .extents import longest
from .hosting import is_value, static_int
from .scope import Here, integer


@dataclass(frozen=True)
class Range:
    """One dimension of a loop as it was asked for."""

    begin: Expr
    end: Expr
    max_extent: int | None
    block: int | BlockHandle | None


def ranges(loc: Loc, kind: str, given: dict[str, Any]) -> list[Range]:
    """The ranges in hl.tile([b0, b1], [e0, e1], max_extent=[..], block_size=[..])."""
    bounds = given["bounds"]
    if not 1 <= len(bounds) <= 2:
        hint = f"hl.{kind}(end) or hl.{kind}(begin, end); several dimensions are lists"
        raise ParseError(f"hl.{kind} with {len(bounds)} bounds", loc, hint)
    ends = _listed(bounds[-1])
    begins = _listed(bounds[0]) if len(bounds) == 2 else [0] * len(ends)
    many = len(ends)
    if not many:
        raise ParseError(f"hl.{kind} over no dimensions", loc)
    if len(begins) != many:
        raise ParseError(
            f"hl.{kind} with {counted(len(begins), 'begin')} and {counted(many, 'end')}", loc
        )
    extents = _per_axis(loc, "max_extent", given["max_extent"], many)
    blocks = _per_axis(loc, "block_size", given.get("block_size"), many)
    return [
        Range(_bound(loc, b), _bound(loc, e), _extent(loc, x), _block(loc, s))
        for b, e, x, s in zip(begins, ends, extents, blocks, strict=True)
    ]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def _per_axis(loc: Loc, name: str, value: Any, many: int) -> list[Any]:
    if value is None:
        return [None] * many
    values = _listed(value)
    if len(values) != many:
        raise ParseError(f"{name} has {len(values)} entries for {many} dimensions", loc)
    return values


def _bound(loc: Loc, value: Any) -> Expr:
    """A bound: a whole number that is known now, or an integer scalar of the kernel."""
    value = number_of(value, loc)
    match value:
        case TileHandle(_, user):
            hint = f"{user}.begin and {user}.end are its bounds"
            raise ParseError(f"tile {user} is used as the bound of a loop", loc, hint)
        case TensorHandle(tensor):
            hint = f"{tensor.name}[0] is an element of it, {tensor.name}.shape[0] a length"
            raise ParseError(f"the tensor {tensor.name} is used as the bound of a loop", loc, hint)
    if not is_value(value) or isinstance(value, Const):
        number = value.value if isinstance(value, Const) else value
        return integer(static_int(loc, number, "the bound of a loop"))
    if value.type.rank or not is_integer(value.type.dtype):
        hint = "a bound is an integer: one element of a tensor of offsets, for example"
        raise TypingError(f"the bound of a loop is {called(value)}", loc, hint)
    return cast(value, "int32", loc)


def _extent(loc: Loc, value: Any) -> int | None:
    if value is None:
        return None
    number = static_int(loc, value, "max_extent")
    if number < 0:
        raise ParseError(f"max_extent is {number}", loc, "it is 0 or more")
    return number


def _block(loc: Loc, value: Any) -> int | BlockHandle | None:
    if value is None or isinstance(value, BlockHandle):
        return value
    number = static_int(loc, value, "block_size")
    if number < 1:
        raise ParseError(f"block_size is {number}", loc, "it is 1 or more")
    return number


# ---------------------------------------------------------------- axes


def declare(here: Here, kind: str, user: str, asked: Range, loc: Loc) -> Axis:
    """An axis whose max_extent may still be unknown, while its loop is evaluated."""
    user = user if user.strip("_") else {"grid": "i", "tile": "t"}[kind]
    name = here.draft.unique(user)
    extent = asked.max_extent
    if isinstance(asked.begin, Const) and isinstance(asked.end, Const):
        extent = _static_extent(user, kind, asked, loc)
    block = asked.block.name if isinstance(asked.block, BlockHandle) else asked.block
    if kind == "tile" and block is None:
        block = name
    form: Literal["grid", "tile"] = "grid" if kind == "grid" else "tile"
    axis = Axis(name, form, asked.begin, asked.end, extent, block, loc, user)
    here.draft.axes[name] = axis
    return axis


def _static_extent(user: str, kind: str, asked: Range, loc: Loc) -> int:
    assert isinstance(asked.begin, Const) and isinstance(asked.end, Const)
    begin, end = int(asked.begin.value), int(asked.end.value)
    if end < begin:
        hint = "the end of a range is not before its begin"
        raise ParseError(f"{user} runs from {begin} down to {end}", loc, hint)
    if asked.max_extent is not None and asked.max_extent < end - begin:
        what = f"max_extent={asked.max_extent} is less than the extent {end - begin} of {user}"
        raise ParseError(what, loc, "leave it out: the extent is known")
    return end - begin if asked.max_extent is None else asked.max_extent


def finish(here: Here, name: str) -> None:
    """Sets the bound of a data-dependent extent: the length of what the axis indexes."""
    axis = here.draft.axes[name]
    if axis.max_extent is not None:
        return
    extent = here.draft.extents.get(name)
    if extent is None or name in here.draft.moved:  # a moved tile may leave what it indexes
        extent = max(
            (e for e in (extent, longest(here.draft, axis)) if e is not None), default=None
        )
    if extent is None:
        what = f"missing max_extent: the extent of {axis.user} depends on data"
        hint = f"it indexes no dimension that would bound it: hl.{axis.kind}(..., max_extent=...)"
        raise ParseError(what, axis.loc, hint)
    here.draft.axes[name] = replace(axis, max_extent=extent)
