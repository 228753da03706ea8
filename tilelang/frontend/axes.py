"""Axes: the ranges that hl.grid and hl.tile are given, checked, and their static bounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from ..errors import Loc, ParseError, TypingError
from ..ir import Axis, Const, Expr, Load
from ..ir.integers import const, value_of
from ..language.build import cast
from ..language.dtypes import is_integer
from ..language.handles import BlockHandle, TensorHandle, TileHandle
from ..language.values import called, number_of
from .hosting import counted, is_value, static_int
from .positions import longest
from .scope import Here, as_written


@dataclass(frozen=True)
class AskedRange:
    """One dimension of a loop as it was asked for."""

    begin: Expr
    end: Expr
    max_extent: int | None
    block: int | BlockHandle | None


# What a third bound is meant for, as range has one.
_THIRD = {
    "grid": "hl.grid has no step: in hl.grid(count) the index is begin + i * step",
    "tile": "a length of tiles is a keyword: hl.tile(begin, end, block_size=...)",
}


def ranges(loc: Loc, kind: str, given: dict[str, Any]) -> list[AskedRange]:
    """The ranges in hl.tile([b0, b1], [e0, e1], max_extent=[..], block_size=[..])."""
    bounds = given["bounds"]
    if not 1 <= len(bounds) <= 2:
        hint = f"hl.{kind}(end) or hl.{kind}(begin, end); several dimensions are lists"
        if len(bounds) == 3:
            hint = _THIRD[kind]
        raise ParseError(f"hl.{kind} with {len(bounds)} bounds", loc, hint)
    ends = _listed(bounds[-1])
    begins = _listed(bounds[0]) if len(bounds) == 2 else [0] * len(ends)
    many = len(ends)
    if not many:
        raise ParseError(f"hl.{kind} over no dimensions", loc)
    if len(begins) != many:
        what = f"hl.{kind} with {counted(len(begins), 'begin')} and {counted(many, 'end')}"
        raise ParseError(what, loc)
    options = []
    for name, least in (("max_extent", 0), ("block_size", 1)):
        value = given.get(name)
        values = [None] * many if value is None else _listed(value)
        if len(values) != many:
            what = f"{name} has {counted(len(values), 'value')} for {many} dimensions"
            raise ParseError(what, loc, f"give one for each, or None: {name}=[..., None]")
        options.append([_option(loc, name, least, v) for v in values])
    bounds = [[_bound(loc, b) for b in side] for side in (begins, ends)]
    return [AskedRange(*dimension) for dimension in zip(*bounds, *options, strict=True)]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def _option(loc: Loc, name: str, least: int, value: Any) -> Any:
    """A max_extent or a block_size."""
    if value is None or (name == "block_size" and isinstance(value, BlockHandle)):
        return value
    number = static_int(loc, value, name)
    if number < least:
        raise ParseError(f"{name} is {number}", loc, f"it is {least} or more")
    return number


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
        case _:
            if not is_value(value) or isinstance(value, Const):
                number = value.value if isinstance(value, Const) else value
                return const(static_int(loc, number, "the bound of a loop"))
            if value.type.rank or not is_integer(value.type.dtype):
                hint = "a bound is an integer: one element of a tensor of offsets, for example"
                if isinstance(value, Load) and not value.type.rank:
                    hint = f"a bound is an integer: pass {value.tensor} as int32 or int64"
                raise TypingError(f"the bound of a loop is {called(value)}", loc, hint)
            return cast(value, "int32", loc)


# ---------------------------------------------------------------- axes


def declare(
    here: Here, kind: Literal["grid", "tile"], user: str, asked: AskedRange, loc: Loc
) -> Axis:
    """An axis whose max_extent may still be unknown, while its loop is evaluated."""
    user = user if user.strip("_") else {"grid": "i", "tile": "t"}[kind]
    name = here.draft.unique(user)
    extent = asked.max_extent
    first, last = value_of(asked.begin), value_of(asked.end)
    if first is not None and last is not None:
        if last < first:
            hint = "the end of a range is not before its begin"
            if kind == "tile" and last > 0:
                hint += f"; blocks of {last} are hl.tile({first}, block_size={last})"
            raise ParseError(f"{user} runs from {first} down to {last}", loc, hint)
        if extent is not None and extent < last - first:
            what = f"max_extent={extent} is less than the extent {last - first} of {user}"
            raise ParseError(what, loc, "leave it out: the extent is known")
        extent = last - first if extent is None else extent
    block = _block(here, asked.block)
    if kind == "tile" and block is None:
        block = name
    begin, end = as_written(here, asked.begin), as_written(here, asked.end)
    axis = Axis(name, kind, begin, end, extent, block, loc, user)
    here.draft.axes[name] = axis
    return axis


def _block(here: Here, asked: int | BlockHandle | None) -> int | str | None:
    """What the author fixed, or the name by which the config chooses."""
    if not isinstance(asked, BlockHandle):
        return asked
    bounds = here.draft.blocks[asked.name]
    return bounds.least if bounds.least == bounds.most else bounds.name


def finish(here: Here, name: str) -> None:
    """Sets the bound of a data-dependent extent: the length of what the axis indexes."""
    axis = here.draft.axes[name]
    if axis.max_extent is not None:
        return
    extent = here.draft.extents.get(name)
    if extent is None or name in here.draft.shifted:  # a shifted tile may leave what it indexes
        found = (extent, longest(here.draft, axis))
        extent = max((e for e in found if e is not None), default=None)
    if extent is None:
        what = f"missing max_extent: the extent of {axis.user} is not known while compiling"
        hint = f"it indexes no dimension that would bound it: hl.{axis.kind}(..., max_extent=...)"
        raise ParseError(what, axis.loc, hint)
    here.draft.axes[name] = replace(axis, max_extent=extent)
