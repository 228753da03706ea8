"""Unaligned: tiles of arrays that lie at another position than the tile that a step is at.

    for t in hl.tile(L): out[b, t, :] = x[offsets[b] + t.index, :]

The tiles of t are blocks of `out`.  The rows of x begin anywhere, and a block of an array does not,
so a step sees the two blocks of x that they lie in:

    x       |. . . a b c|d e f g h i|        offsets[b] % 6 is 3
    chosen  |d e f a b c|                    from the first block where the lane is 3 or more
    turned  |a b c d e f|                    and turned by as much

Rows of neighbours in lanes that belong to no position of the range are masked like those of a tile
that a range cuts.

Each block is copied for two tiles then.  A pipeline over a table of steps can copy the rows that a
tile has, in whole register tiles, and put them in place by way of scratch memory, in which any row
can be the first that is read:

    cut     |a b c d e f .|              between multiples of a register's rows
    placed  |a b c d e f|                from the row where the tile begins, or would begin

Of an array that is read a few positions in front of the tile, or behind it, a step sees the tile's
own block, as those see it that read it in place, and the register tiles next to it:

    x[t - 1]    |. . . c|d e f g|        the edge of the block before, and the tile's own
    around      |d e f g|. . . c|
    turned      |c d e f|g . . .|
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilelang.codegen.pallas.plan.body.layouts import apply
from tilelang.codegen.pallas.plan.physical import scalar
from tilelang.codegen.pallas.plan.steps.names import STEP
from tilelang.codegen.pallas.plan.types import (
    SHORT,
    AxisPlan,
    Between,
    Edge,
    Head,
    Iota,
    Named,
    PExpr,
    Recorded,
    Roll,
    RowsFrom,
    Window,
)
from tilelang.codegen.pallas.target import Target
from tilelang.errors import Loc
from tilelang.ir import Along, Apply, Const, Expr, Index, KernelIR, Load, Type, integers
from tilelang.language.dtypes import itemsize, wide_of
from tilelang.schedule.config import Config
from tilelang.schedule.refusal import Refused, Rule

PARTS = (0, 1)  # the block that a moved tile begins in, and the one behind it


def shift(axis: AxisPlan, offset: Expr | None) -> Expr | None:
    """How far an array's tile lies behind the tile that a step is at; None if they are the same."""
    far = integers.sub(offset or integers.const(0), axis.shift or integers.const(0))
    return None if integers.value_of(far) == 0 else far


def moved_along(
    axes: Mapping[str, AxisPlan], index: tuple[Index, ...], loc: Loc | None = None
) -> Along | None:
    """The entry of an index whose tile is moved; Refused if there are several."""
    found = [e for e in index if isinstance(e, Along) and shift(axes[e.axis], e.offset) is not None]
    if len(found) > 1:
        names = " and ".join(axes[e.axis].user for e in found)
        raise Refused(
            Rule.FORM,
            f"an array is read at other positions than those of the tiles {names} in two "
            "dimensions at once",
            loc,
            f"count {names} from 0, hl.tile(end - begin, max_extent=...), and add begin where rows "
            "are read; or read one of them in a loop of single positions, hl.grid, or pad it",
        )
    return found[0] if found else None


def rounded(axis: AxisPlan, place: int, dtype: str, target: Target) -> int:
    """How long the blocks are that a moved tile lies in: they fill whole register tiles.

    A tile that is the whole dimension of another array need not.  `place` counts dimensions from
    the last.
    """
    need = target.tile(place, itemsize(dtype))
    return -(-axis.size // need) * need


def start(axis: AxisPlan, shift: Expr, block: int) -> tuple[Expr, Expr]:
    """Where a moved tile begins: the number of a block, and positions from its begin on.

    Blocks as long as a tile are counted like tiles; the positions may be more than a block has.
    """
    if block == axis.block:
        return axis.number, shift
    return integers.const(0), integers.add(integers.mul(axis.number, axis.size), shift)


def block_number(axis: AxisPlan, shift: Expr, part: int, block: int, size: int) -> Expr:
    """The number of a block that a moved tile lies in, in a dimension of `size` positions."""
    if size <= block:
        return integers.const(0)
    number, rest = start(axis, shift, block)
    total = integers.add(integers.add(number, integers.floordiv(rest, block)), integers.const(part))
    return integers.clamped(total, -(-size // block))


def edge(axis: AxisPlan, shift: Expr, tile: int, size: int) -> Edge | None:
    """What a moved tile has of another block, where it is less than a block; None where it is not.

    tile  positions of a register tile along the dimension, which has `size`
    """
    by = integers.value_of(shift)
    if by is None or axis.base is not None or axis.length is not None or size <= axis.size:
        return None
    block = -(-abs(by) // tile) * tile
    return next_to(axis, block, by > 0, size) if has_edge(axis, block) else None


def edge_of(windows: Iterable[Window]) -> Edge | None:
    """What a moved tile has of the block beside its own, of the windows that it lies in."""
    dims = (dim for window in windows for dim in window.dims)
    return next((dim for dim in dims if isinstance(dim, Edge)), None)


def has_edge(axis: AxisPlan, block: int) -> bool:
    """Whether tiles are several blocks of so many positions."""
    return axis.size > block and axis.size % block == 0


def next_to(axis: AxisPlan, block: int, after: bool, size: int) -> Edge:
    """The `block` positions in front of a tile, or behind it."""
    first = integers.mul(axis.number, axis.size // block)
    number = integers.add(first, integers.const(axis.size // block if after else -1))
    return Edge(axis.name, integers.clamped(number, -(-size // block)), block, after)


def cut_rows(axis: AxisPlan, shift: Expr, tile: int, size: int) -> Between:
    """The rows that a moved tile has of an array of `size` rows.

    They are no more than a tile, and the rest of the register tiles that the first and the last one
    lie in.  All of the last SHORT rows are there, whatever the length of the array is.
    """
    origin = axis.tile.origin
    begin = integers.maximum(axis.begin, origin)
    end = integers.minimum(axis.end, integers.add(origin, integers.const(axis.size)))
    first = integers.clamped(integers.add(begin, shift), size)
    last = integers.clamped(integers.add(end, shift), size + 1)
    stop = integers.floordiv(integers.add(last, integers.const(SHORT - 1)), SHORT)
    first = integers.floordiv(first, tile)
    return Between(axis.name, shift, first, stop, tile, axis.size + tile)


def placed(held: PExpr, there: PExpr, axis: AxisPlan, window: Window, load: Load) -> PExpr:
    """A tile of the rows that were cut, which begins at row `there` of the array, or before it."""
    (first, _), _ = window.noted
    before = integers.mul(scalar(Recorded(first, STEP)), window.cut.tile)
    start = integers.sub(scalar(there), before)
    # rows that count are less than a tile from the first one that was cut, on either side
    start = integers.minimum(integers.maximum(start, -axis.size), window.cut.tile)
    name = f"{window.ref.removesuffix('_ref')}.cut"
    return Named(RowsFrom(held, start, name, load.type), f"{load.tensor}_moved")


def check_cuts(ir: KernelIR, config: Config, windows: Iterable[Window]) -> None:
    """Refused where such copies are asked for, and no array has a tile for them."""
    if config.windows == "cut" and not any(window.noted for window in windows):
        raise Refused(
            Rule.FORM,
            f"windows='cut', but {ir.name} reads no rows of a matrix at other positions than those "
            "of its tiles, in a pipeline over a table of steps",
            ir.loc,
            "leave windows out, or steps and loop_type",
        )


def joined(
    first: PExpr, second: PExpr, rest: PExpr, dim: int, axis: AxisPlan, block: int, name: str
) -> PExpr:
    """A moved tile of the two blocks that it lies in, along dimension `dim` of both.

    rest  as in start
    name  of the array, for the lines that the value takes
    """
    kind, wide = first.type, wide_of(first.type.dtype)
    by, back = _turns(rest, block), _turns(_negative(rest), block)
    shape = tuple(d if i == dim else 1 for i, d in enumerate(kind.shape))
    lane = Iota(dim, Type(shape, "int32"))
    here = apply("ge", (lane, by), shape, "bool")
    # registers that hold several rows to a lane cannot be turned, and a single row not be chosen
    blocks = tuple(
        apply("cast", (e,), kind.shape, wide) if kind.dtype != wide else e for e in (first, second)
    )
    value: PExpr = blocks[0]
    if first != second:
        chosen = apply("where", (here, *blocks), kind.shape, wide, masks=(("blocks", name),))
        value = Named(chosen, f"{name}_blocks")
    value = Roll(value, back, dim, Type(kind.shape, wide))
    tile = tuple(axis.name if i == dim else d for i, d in enumerate(kind.shape))
    if block != axis.block:
        value = Head(value, dim, Type(tile, wide))
    if kind.dtype != wide:
        value = apply("cast", (value,), tile, kind.dtype)
    return Named(value, f"{name}_moved")


def with_edge(own: PExpr, beside: PExpr, by: int, dim: int, axis: AxisPlan, name: str) -> PExpr:
    """A tile that is moved by so many positions, of its own block and of the edge beside that.

    Behind the block the edge also lies in front of it, where positions are counted round.
    """
    kind, wide = own.type, wide_of(own.type.dtype)
    narrow = kind.dtype != wide
    parts = tuple(apply("cast", (e,), e.type.shape, wide) if narrow else e for e in (own, beside))
    length = axis.size + int(beside.type.shape[dim])
    shape = tuple(length if i == dim else d for i, d in enumerate(kind.shape))
    around = Named(apply("concat", parts, shape, wide, (("axis", dim),)), f"{name}_around")
    turned = Roll(around, integers.const(-by % length), dim, around.type)
    value: PExpr = Head(turned, dim, Type(kind.shape, wide))
    return Named(
        apply("cast", (value,), kind.shape, kind.dtype) if narrow else value, f"{name}_moved"
    )


def _turns(rest: PExpr, block: int) -> PExpr:
    """rest % block"""
    if isinstance(rest, Const):
        return integers.const(int(rest.value) % block)
    return apply("mod", (rest, integers.const(block)), (), "int32")


def _negative(rest: PExpr) -> PExpr:
    match rest:
        case Const(value):
            return integers.const(-int(value))
        case Apply("neg", (inner,)):
            return inner
        case Apply("sub", (left, right)) if integers.value_of(left) == 0:
            return right
        case Apply("sub", (left, right)):
            return apply("sub", (right, left), (), "int32")
        case _:
            return apply("neg", (rest,), (), "int32")
