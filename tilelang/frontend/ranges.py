"""What dimensions an axis indexes: whether they are long enough, and how long it can become."""

from __future__ import annotations

from ..errors import Loc, ParseError
from ..ir import Along, At, Const, Expr, Index, Span, Tensor
from ..language.handles import TileHandle
from .extents import limits
from .scope import Draft, Here


def check_along(
    here: Here,
    tensor: Tensor,
    dim: int,
    axis: str,
    offset: Expr | None,
    whole: bool,
    masked: bool,
    loc: Loc,
) -> None:
    """Refuses a tile that certainly leaves the dimension; `whole`: indexed by the tile itself.

    A tile over [0, n) belongs to one length: used on dimensions of two, it is taken for a mistake.
    An index that spells positions out, t.index, may be a part of any longer dimension.
    """
    size = tensor.shape[dim]
    guarded = masked or here.condition is not None
    here.draft.bound_extent(axis, size, guarded)
    if offset is not None:
        here.draft.moved.setdefault(axis, loc)
    static = here.draft.axes[axis].static
    by = int(offset.value) if isinstance(offset, Const) else 0
    certain = offset is None or isinstance(offset, Const)
    if static is None or static[0] == static[1] or not certain or guarded:
        return
    first, last = static[0] + by, static[1] + by
    if first < 0 or last > size:
        raise _outside(here, tensor, dim, axis, by, loc)
    if whole and static[0] == 0:
        _one_length(here, tensor, dim, axis, loc)


def _outside(here: Here, tensor: Tensor, dim: int, axis: str, by: int, loc: Loc) -> ParseError:
    user = here.draft.axes[axis].user
    begin, end = here.draft.axes[axis].static or (0, 0)
    what = (
        f"tile {user} runs over [{begin}, {end}) and indexes dimension {dim} of {tensor.name}, "
        f"which is {tensor.shape[dim]} long"
    )
    if not by:
        return ParseError(what, loc, f"loop over that dimension: hl.tile({tensor.shape[dim]})")
    hint = f"hl.load({tensor.name}, [tile, ...], mask=...) leaves some out"
    return ParseError(f"{what}, at positions moved by {by}", loc, hint)


def _one_length(here: Here, tensor: Tensor, dim: int, axis: str, loc: Loc) -> None:
    size, what = tensor.shape[dim], f"dimension {dim} of {tensor.name}"
    known, first = here.draft.indexed.setdefault(axis, (size, what))
    if known == size:
        return
    user = here.draft.axes[axis].user
    raise ParseError(
        f"tile {user} indexes {what}, which is {size} long, and {first}, which is {known} long",
        loc,
        f"if only a part of the longer one is meant, index it with {user}.index",
    )


def check_numbered(here: Here, tile: TileHandle, name: str, loc: Loc) -> None:
    """Refuses to number tiles that are not counted from 0: where they are cut is left open."""
    begin, user = here.draft.axes[tile.axis].begin, tile.user
    if not isinstance(begin, Const) or begin.value:
        hint = (
            f"{user}.begin == begin tells the first tile and {user}.index - begin counts "
            f"positions; tiles of hl.tile(0, end) have numbers"
        )
        raise ParseError(f"{user}.{name} in a range that does not begin at 0", loc, hint)
    here.draft.numbered.setdefault(tile.axis, (f"{user}.{name}", loc))


def check_unmoved(draft: Draft) -> None:
    """Refuses to move tiles that are numbered: they are cut where the memory is."""
    for axis, (what, loc) in draft.numbered.items():
        if axis in draft.moved:
            user, line = draft.axes[axis].user, draft.moved[axis].line
            hint = f"{user}.index counts positions, and {user}.begin == 0 tells the first tile"
            moved = f"{what} of a tile that line {line} moves to other positions"
            raise ParseError(moved, loc, hint)


def inside(draft: Draft, tensor: Tensor, index: tuple[Index, ...]) -> bool:
    """Whether every position is known to be in the tensor, whatever an `if` around it says."""
    return all(_inside(draft, size, i) for size, i in zip(tensor.shape, index, strict=True))


def _inside(draft: Draft, size: int, index: Index) -> bool:
    match index:
        case Span() | At(Const()):
            return True  # checked when they were made
        case Along(axis, None):
            static = draft.axes[axis].static  # ragged ranges are checked before each launch
            return static is None or (static[0] >= 0 and static[1] <= size)
        case At(expr):
            low, high = limits(draft, expr)
            return low >= 0 and high < size
    return False
