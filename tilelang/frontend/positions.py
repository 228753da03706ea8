"""What an index covers: a tile shifted by a scalar, its limits, and whether it stays inside.

start + t.index     ("t", start)         a slice of memory, not a gather
t.index - 1 + k     ("t", k - 1)
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from .. import ir
from ..errors import Loc, ParseError
from ..ir.integers import Linear, anything, axes, const, linear
from ..ir.intervals import ANYTHING, Interval, interval
from ..language.build import binary, unary
from ..language.handles import TileHandle
from .scope import Draft, Here

Shifted = tuple[str, ir.Expr | None]


def shifted(draft: Draft, expr: ir.Expr, loc: Loc) -> Shifted | None:
    """The tile and how far it is shifted (None: not at all); None for any other expression."""
    match expr:
        case ir.TileIndex(axis):
            return axis, None
        case ir.Var(name) if name in draft.definitions:
            return shifted(draft, draft.definitions[name], loc)
        case ir.Apply("add", (left, right)):
            if not right.type.rank:
                return _further(shifted(draft, left, loc), "add", right, loc)
            return (
                None if left.type.rank else _further(shifted(draft, right, loc), "add", left, loc)
            )
        case ir.Apply("sub", (left, right)) if not right.type.rank:
            return _further(shifted(draft, left, loc), "sub", right, loc)
        case _:
            return None


def _further(base: Shifted | None, op: str, by: ir.Expr, loc: Loc) -> Shifted | None:
    """Shifted once more; numbers as indices have them, their sum, and no offset instead of zero.

    t.index - 3 + k with k = 1 is t - 2: of what is not known nobody says that it leaves an array.
    """
    if base is None:
        return None
    axis, offset = base
    if isinstance(offset, ir.Const) and isinstance(by, ir.Const):
        by = const(int(offset.value) + (int(by.value) if op == "add" else -int(by.value)))
    elif offset is not None:
        by = binary(op, offset, by, loc)
    elif op == "sub":
        by = unary("neg", by, loc)
    if isinstance(by, ir.Const):
        return axis, const(int(by.value)) if by.value else None
    return axis, by


def grid_step(draft: Draft, expr: ir.Expr) -> tuple[str, int, bool] | None:
    """The grid axis that a position counts, by how many a turn, and whether from elsewhere.

    g + k       g, 1      offsets[g + 1] - 1 - i    i, -1      8 * a + b    b, 1: of two the inner

    None where another part may change from turn to turn: what is carried, or said inside.
    """

    def leaf(part: ir.Expr) -> Linear | None:
        match part:
            case ir.Var(name):
                known = draft.definitions.get(name)
                return None if known is None else linear(known, leaf)
            case _:
                return anything(part)

    terms, rest = linear(expr, leaf) or ({}, 0)
    order = {name: i for i, name in enumerate(draft.axes)}
    grids = [part for part in terms if isinstance(part, ir.GridIndex)]
    if not grids:
        return None
    found = max(grids, key=lambda part: order[part.axis])
    others = [part for part in terms if part is not found]
    if not all(_before(draft, part, order, found.axis) for part in others):
        return None
    return found.axis, terms[found], bool(rest or others)


def _before(draft: Draft, expr: ir.Expr, order: Mapping[str, int], axis: str) -> bool:
    """Whether the loop over the axis finds the value ready: of axes around it, and of memory."""
    along = {e.axis for load in ir.loads(expr) for e in load.index if isinstance(e, ir.Along)}
    if any(order[other] >= order[axis] for other in axes(expr) | along):
        return False
    known = (draft.definitions.get(name) for name in ir.read_by((expr,)))
    return all(value is not None and _before(draft, value, order, axis) for value in known)


# ---------------------------------------------------------------- limits


def longest(draft: Draft, axis: ir.Axis) -> int | None:
    """The largest extent of the axis in any iteration of the loops around it, if one is known.

    for tq in hl.tile(L): for tk in hl.tile(0, tq.end)     at most L long, whatever tk indexes
    """
    length = limits(draft, axis.end)[1] - limits(draft, axis.begin)[0]
    return None if length == ANYTHING[1] else max(int(length), 0)


def limits(draft: Draft, expr: ir.Expr) -> Interval:
    """What a scalar cannot be below and above, where the loops around it run."""

    @cache
    def leaf(part: ir.Expr) -> Interval:
        match part:
            case ir.Var(name) if name in draft.definitions:
                return interval(draft.definitions[name], leaf)
            case ir.GridIndex(name) | ir.TileScalar(name, "begin" | "end"):
                axis = draft.axes[name]
                begin, end = interval(axis.begin, leaf), interval(axis.end, leaf)
                last = end[1] if part == ir.TileScalar(name, "end") else end[1] - 1
                return begin[0], max(last, begin[0])
            case _:
                return ANYTHING

    return interval(expr, leaf)


def inside(draft: Draft, tensor: ir.Tensor, index: tuple[ir.Index, ...]) -> bool:
    """Whether every position is known to be in the tensor, whatever an `if` around it says."""
    return all(_inside(draft, size, i) for size, i in zip(tensor.shape, index, strict=True))


def _inside(draft: Draft, size: int, index: ir.Index) -> bool:
    match index:
        case ir.Span() | ir.At(ir.Const()):
            return True  # checked when they were made
        case ir.Along(axis, None):
            static = draft.axes[axis].static  # ragged ranges are checked before each launch
            return static is None or (static[0] >= 0 and static[1] <= size)
        case ir.At(expr):
            low, high = limits(draft, expr)
            return low >= 0 and high < size
        case _:
            return False


# ---------------------------------------------------------------- checks


def bound_extent(here: Here, axis: str, size: int, masked: bool) -> None:
    """An axis indexes a dimension of that length; behind a mask it may leave it."""
    if not masked:
        extents = here.draft.extents if here.condition is None else here.draft.perhaps
        extents[axis] = min(extents.get(axis, size), size)


def check_along(
    here: Here, tensor: ir.Tensor, dim: int, index: ir.Along, whole: bool, masked: bool, loc: Loc
) -> None:
    """Refuses a tile that certainly leaves the dimension; `whole`: indexed by the tile itself.

    A tile over [0, n) belongs to one length: used on dimensions of two, it is taken for a mistake.
    An index that spells positions out, t.index, may be a part of any longer dimension.
    """
    draft, name, offset, size = here.draft, index.axis, index.offset, tensor.shape[dim]
    bound_extent(here, name, size, masked)
    if offset is not None:
        draft.shifted.setdefault(name, loc)
    static, user = draft.axes[name].static, draft.axes[name].user
    certain = offset is None or isinstance(offset, ir.Const)
    guarded = masked or here.condition is not None
    if static is None or static[0] == static[1] or not certain or guarded:
        return
    begin, end = static
    by = int(offset.value) if isinstance(offset, ir.Const) else 0
    what = f"dimension {dim} of {tensor.name}"
    if begin + by < 0 or end + by > size:
        text = f"tile {user} runs over [{begin}, {end}) and indexes {what}, which is {size} long"
        if not by:
            raise ParseError(text, loc, f"loop over that dimension: hl.tile({size})")
        hint = f"hl.load({tensor.name}, [tile, ...], mask=...) leaves some out"
        raise ParseError(f"{text}, at positions moved by {by}", loc, hint)
    known, first = size, what
    if whole and not begin:
        known, first = draft.indexed.setdefault(name, (size, what))
    if known != size:
        text = (
            f"tile {user} indexes {what}, which is {size} long, and {first}, which is {known} long"
        )
        hint = f"if only a part of the longer one is meant, index it with {user}.index"
        raise ParseError(text, loc, hint)


def check_numbered(here: Here, tile: TileHandle, name: str, loc: Loc) -> None:
    """Refuses to number tiles that are not counted from 0: where they are cut is left open."""
    begin, user = here.draft.axes[tile.axis].begin, tile.user
    if not isinstance(begin, ir.Const) or begin.value:
        hint = (
            f"{user}.begin == begin tells the first tile and {user}.index - begin counts "
            f"positions; tiles of hl.tile(0, end) have numbers"
        )
        raise ParseError(f"{user}.{name} in a range that does not begin at 0", loc, hint)
    here.draft.numbered.setdefault(tile.axis, (f"{user}.{name}", loc))


def check_unshifted(draft: Draft) -> None:
    """Refuses to shift tiles that are numbered: they are cut where the memory is."""
    for axis, (what, loc) in draft.numbered.items():
        if axis in draft.shifted:
            user, line = draft.axes[axis].user, draft.shifted[axis].line
            hint = f"{user}.index counts positions, and {user}.begin == 0 tells the first tile"
            text = f"{what} of a tile that line {line} moves to other positions"
            raise ParseError(text, loc, hint)
