"""Picked: rows that an index array picks -> where the array lies, and how one row of it is named.

    table[idx[tm] // 2, :]   ->   row i of the tile is row `idx[tm * block + i] // 2` of the table

Indices lie in scalar memory, so every row is named by a scalar expression of its lane.  A small
array is a block in vector memory; a large one stays where it is, and its rows are copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilelang.codegen.pallas.plan.known import at_most, both, bounds
from tilelang.codegen.pallas.plan.physical import scalar
from tilelang.codegen.pallas.plan.types import (
    AxisPlan,
    ByIndex,
    ByTile,
    Fetched,
    Lane,
    Whole,
    WindowDim,
)
from tilelang.codegen.pallas.target import SHARE, STORED_SHARE, Target, padded_bytes, whole_lanes
from tilelang.errors import Loc
from tilelang.ir import (
    Along,
    Apply,
    At,
    Const,
    Expr,
    Gather,
    GridIndex,
    Index,
    KernelIR,
    Load,
    Span,
    TileIndex,
    TileScalar,
    Type,
    integers,
    map_children,
)
from tilelang.ir.integers import INT, clamped
from tilelang.language.dtypes import itemsize
from tilelang.language.op import OPS
from tilelang.schedule.refusal import Refused, Rule

from .types import extent_of

# ---------------------------------------------------------------- where the array lies


def picked_dims(
    near: tuple[WindowDim, ...],
    far: tuple[WindowDim, ...],
    index: tuple[Index, ...],
    shape: tuple[int, ...],
    dtype: str,
    target: Target,
    stored: bool,
) -> tuple[WindowDim, ...]:
    """How an array whose rows are picked is cut: as a block (`near`), or row by row (`far`).

    A block of an array that is `stored` to may be larger: rows that lie far away are copied in
    turns, and rows of narrow types with those beside them, both ways.
    """
    at = next(d for d, entry in enumerate(index) if isinstance(entry, Gather))
    tile = target.rows(itemsize(dtype)) if len(near) - at == 2 else 1
    rounded = tile if tile > target.sublanes else 1  # a row of 32-bit values is read alone
    unit = {target.sublanes: 1, 2 * target.sublanes: target.sublanes}.get(tile, tile)
    # an array in HBM has tiles of 8 rows for 16-bit types, too
    block = (*near[:at], Whole(-(-shape[at] // rounded) * rounded), *near[at + 1 :])
    single = (*far[:at], Fetched(unit), *far[at + 1 :])
    held = tuple(b for b in (extent_of(d) for d in block) if b is not None)
    share = STORED_SHARE if stored else SHARE
    small = 2 * padded_bytes(held, dtype, target) <= target.vmem_default // share
    parts = _parts_can_move(index, at, shape, stored, target)
    if small or not parts or not _can_copy(single, at, shape, target):
        return block
    return single


def _parts_can_move(
    index: tuple[Index, ...], at: int, shape: tuple[int, ...], stored: bool, target: Target
) -> bool:
    """Whether a static part of rows can be copied: of their last dimension, in whole tiles.

    More than the part may be read, but not stored.
    """
    for d, entry in enumerate(index):
        if isinstance(entry, Span) and d != at and (entry.start, entry.stop) != (0, shape[d]):
            cut = whole_lanes(entry, shape[d], target)
            if d != len(index) - 1 or (stored and cut != (entry.start, entry.stop)):
                return False
    return True


def _can_copy(dims: tuple[WindowDim, ...], at: int, shape: tuple[int, ...], target: Target) -> bool:
    """Whether rows can be copied on their own: copies take whole register tiles of the array."""
    if len(dims) - at < 2 or shape[at] < 4 * target.sublanes:
        return False
    for d, dim in enumerate(dims):
        if isinstance(dim, ByTile) and shape[d] % dim.block:
            return False
        if d != at and not isinstance(dim, ByTile | ByIndex | Whole):
            return False
        if isinstance(dim, Whole) and dim.block != shape[d]:
            return False
    return True


# ---------------------------------------------------------------- one row


def lane_of(
    ir: KernelIR,
    axes: Mapping[str, AxisPlan],
    known: frozenset[str] | tuple[str, ...],
    expr: Expr,
    loc: Loc | None,
) -> Expr:
    """The value of a rank-1 integer expression at one lane of its tile, as a scalar expression.

    `known` are the tensors in scalar memory.
    """

    def lane(part: Expr) -> Expr:
        return lane_of(ir, axes, known, part, loc)

    match expr:
        case Const() | GridIndex() | TileScalar():
            return expr
        case TileIndex(axis):
            shift = axes[axis].shift
            position = lane_position(axis)
            return position if shift is None else integers.sub(position, shift)
        case Apply("add", (TileIndex(axis), offset)) if offset == axes[axis].shift:
            return lane_position(axis)
        case Load() if expr.tensor in known:
            shape = ir.tensor(expr.tensor).shape
            pairs = zip(expr.index, shape, strict=True)
            index = tuple(At(_place(axes, entry, size, lane)) for entry, size in pairs)
            value: Expr = Load(expr.tensor, index, _scalar(expr.type), loc=expr.loc)
            if expr.mask is None:
                return value
            other = Const(expr.other, _scalar(expr.type))
            return Apply("where", (lane(expr.mask), value, other), _scalar(expr.type))
        case Apply("in_range"):
            axis = str(expr.attr("axis"))
            sides = lane_in_range(axes[axis])
            return both(sides, axes) or sides[1]
        case Apply("arange"):
            step = Const(int(expr.attr("step", 1)), INT)  # type: ignore[call-overload]
            start = Const(int(expr.attr("start", 0)), INT)  # type: ignore[call-overload]
            scaled = Apply("mul", (lane_position(None), step), INT)
            return integers.add(scaled, start)
        case Apply("broadcast" | "expand_dims", (value,)):
            return lane(value)
        case Apply("full") if not expr.args:
            return Const(expr.attr("value"), _scalar(expr.type))  # type: ignore[arg-type]
        case Apply(op) if op in OPS and OPS[op].kind == "elementwise":
            return replace(map_children(expr, lane), type=_scalar(expr.type))
    raise Refused(
        Rule.FORM,
        "rows can be picked by integers that are loaded, constant or computed from those, and the "
        "index has more in it",
        getattr(expr, "loc", None) or loc,
        "store the indices to a tensor in a loop of their own before this one",
    )


def lane_position(axis: str | None) -> Expr:
    """The position of a lane along an axis; without one, the number of the lane."""
    return scalar(Lane(axis))


def _scalar(value: Type) -> Type:
    return Type((), "int32" if value.dtype == "int64" else value.dtype)


def lane_in_range(axis: AxisPlan) -> tuple[Expr, Expr]:
    """Whether a lane lies in the range of its loop."""
    position = lane_position(axis.name)
    high = Apply("lt", (position, axis.end), Type((), "bool"))
    low = Apply("ge", (position, axis.begin), Type((), "bool"))
    return low, high


def compare(op: str, expr: Expr, number: int) -> Expr:
    """A comparison of a scalar with a constant."""
    return Apply(op, (expr, Const(number, INT)), Type((), "bool"))


def _place(axes: Mapping[str, AxisPlan], entry: Index, size: int, lane: object) -> Expr:
    """The position in an index array, which is never outside of it."""
    match entry:
        case Along(axis):
            return at_most(lane_position(axis), size - 1, axes)
        case Span(start):
            return integers.add(lane_position(None), Const(start, INT))
        case At(expr) | Gather(expr):
            inner = lane(expr)  # type: ignore[operator]
            low, high = bounds(inner, axes)
            inside = isinstance(inner, Const | GridIndex) or (low >= 0 and high < size)
            return inner if inside else clamped(inner, size)
    raise AssertionError(entry)
