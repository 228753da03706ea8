"""Physical: values of any rank -> arrays of rank 2 or more, the shapes that vector registers like.

What the shapes of values are here: see layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, assert_never

from tilelang import ir
from tilelang.codegen.pallas.plan import physical
from tilelang.codegen.pallas.plan.axis import AxisPlan, Mask
from tilelang.codegen.pallas.plan.physical import PExpr, Select
from tilelang.codegen.pallas.plan.windows.choose import Arrays, moved_block, selects
from tilelang.codegen.pallas.plan.windows.turned import turned
from tilelang.codegen.pallas.plan.windows.types import (
    ByIndex,
    Edge,
    Entry,
    Packed,
    Window,
    WindowDim,
)
from tilelang.codegen.pallas.plan.windows.unaligned import (
    PARTS,
    edge_of,
    joined,
    moved_along,
    placed,
    shift,
    start,
    with_edge,
)
from tilelang.errors import Loc
from tilelang.ir import Apply, Dim, Type, integers
from tilelang.language.dtypes import wide_of
from tilelang.schedule.refusal import Refused, Rule

from .batches import one_batch
from .layouts import Layout, Value, apply, laid_out, of_copy, permuted, physical_shape, relayout
from .shown import NONE, block_shape, packed_in, rows_read

OF_VECTORS = ("pow",)  # what scalar units have no instruction for, and none are made of others


@dataclass
class Scope:
    """Names in scope: their layout, or the free expression that stands for them.

    `inner` is how loops inside the step run, `phases` are the loops that stand in a row.
    `locs` says where each name was assigned, `kept` collects what scratch memory must hold.
    `layouts` are those of carries, as far as they are known.
    """

    arrays: Arrays
    inner: Literal["fori_loop", "unroll"]
    phases: tuple[str, ...] = ()
    names: dict[str, Value] = field(default_factory=dict)
    free: dict[str, ir.Expr] = field(default_factory=dict)
    locs: dict[str, Loc] = field(default_factory=dict)
    kept: list[physical.Kept] = field(default_factory=list)
    layouts: dict[str, Layout] = field(default_factory=dict)


def lower(scope: Scope, expr: ir.Expr, want: Layout | None = None) -> Value:
    """The physical form of an expression, in layout `want` if that is given."""
    value = _lower(scope, expr, want)
    return value if want is None else relayout(value, want)


def _typed(expr: Apply, args: tuple[PExpr, ...], shape: tuple[Dim, ...], **attrs: object) -> Apply:
    merged = {**dict(expr.attrs), **attrs}
    named = tuple(merged.items())
    return apply(expr.op, args, shape, expr.type.dtype, named, expr.loc, expr.masks)


def _result(expr: Apply, args: Iterable[Value], layout: Layout, **attrs: object) -> Value:
    """The op on operands that are laid out, its own result laid out as `layout`."""
    shape = physical_shape(expr.type.shape, layout)
    return Value(_typed(expr, tuple(a.expr for a in args), shape, **attrs), layout, expr.type.shape)


def _lower(scope: Scope, expr: ir.Expr, want: Layout | None) -> Value:
    match expr:
        case ir.Const() | ir.GridIndex() | ir.TileScalar():
            return Value(expr, "scalar", ())
        case ir.Var(name) if name in scope.free:
            return _lower(scope, scope.free[name], want)
        case ir.Var(name):
            return scope.names[name]
        case ir.Load():
            return _load(scope, expr)
        case ir.TileIndex():
            return _made(expr, want)
        case Apply("in_range"):
            mask = Mask(str(expr.attr("axis")), "reduction")
            return _made(physical.InRange(mask, expr.type), want)
        case Apply("arange"):
            return _made(expr, want)
        case Apply(op):
            return _RULES.get(op, _elementwise)(scope, expr, want)
        case _:
            assert_never(expr)


def _made(expr: ir.TileIndex | physical.InRange | Apply, want: Layout | None) -> Value:
    """Indices and masks: rank 1, made in the layout that is wanted."""
    shape = expr.type.shape
    if want not in ("row", "column"):
        return Value(expr, "free", shape)
    made = replace(expr.type, shape=physical_shape(shape, want))
    return Value(replace(expr, type=made), want, shape)


def _full(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    args = [lower(scope, a) for a in expr.args]
    rank = expr.type.rank
    if rank != 1:
        return _result(expr, args, "plain" if rank else "scalar")
    return _result(expr, args, want if want in ("row", "column") else "free")


# ---------------------------------------------------------------- loads


def _load(scope: Scope, load: ir.Load) -> Value:
    arrays = scope.arrays
    if load.tensor in arrays.scalars:
        if not all(isinstance(entry, ir.At) for entry in load.index):
            raise Refused(
                Rule.FORM,
                f"{load.tensor} says which rows are picked, or stored, so its rows cannot also be "
                "used as values",
                load.loc,
                "store what says so to a tensor in a loop of its own before this one",
            )
        index = tuple(lower(scope, e.expr).expr for e in load.index if isinstance(e, ir.At))
        assert load.mask is None, load
        return Value(physical.ScalarRead(load.tensor, index, load.type), "scalar", ())
    entry = moved_along(arrays.axes, load.index, load.loc)
    value = _block(scope, load) if entry is None else _unaligned(scope, load, entry)
    return value if load.mask is None else _masked(scope, load, load.mask, value)


def _block(scope: Scope, load: ir.Load, part: int = 0, held: Mapping[str, Dim] = NONE) -> Value:
    """One block of an array; `held` gives the lengths of those that are longer than a tile."""
    window = scope.arrays.find(load.tensor, load.index, part)
    chosen = selected(scope, window, load.index, load.tensor, part)
    if window.turned is not None:
        chosen = turned(window, chosen, load.loc)
    shape, packed = block_shape(scope.arrays, load.tensor, load.index, held)
    kind = Type(shape, load.type.dtype)
    copied = window.turned is not None
    value = (of_copy if copied else physical.Read)(window.ref, chosen, kind)
    for position, dim in packed.items():
        if dim.rows > 1:
            value = _one_row(scope, value, position, dim, load.tensor)
    return laid_out(value, load.type, tuple(1 if i in packed else d for i, d in enumerate(shape)))


def _unaligned(scope: Scope, load: ir.Load, entry: ir.Along) -> Value:
    """A tile that lies in two blocks, which may be longer than the tile is, or was cut."""
    arrays, axis = scope.arrays, scope.arrays.axes[entry.axis]
    window = arrays.find(load.tensor, load.index)
    far, block = shift(axis, entry.offset), moved_block(arrays, load.tensor, load.index, entry)
    assert far is not None
    longer = {axis.name: block} if block != axis.block else NONE
    kind = tuple(longer.get(d, d) if isinstance(d, str) else d for d in load.type.shape)
    whole = replace(load, type=Type(kind, load.type.dtype))
    edge = edge_of(arrays.find(load.tensor, load.index, part) for part in PARTS)
    if edge is not None:
        return _beside(scope, load, axis, edge, far)
    first, second = (_block(scope, whole, part, longer) for part in PARTS)
    if window.noted:
        there = lower(scope, integers.add(axis.tile.origin, far)).expr
        value = placed(first.expr, there, axis, window, load)
        return Value(value, "plain", load.type.shape)
    dim = 1 if first.layout == "row" else load.type.shape.index(axis.name)
    _, rest = start(axis, far, block)
    by = lower(scope, rest).expr
    value = joined(first.expr, second.expr, by, dim, axis, block, load.tensor)
    return Value(value, first.layout, load.type.shape)


def _beside(scope: Scope, load: ir.Load, axis: AxisPlan, edge: Edge, far: ir.Expr) -> Value:
    """A tile of which a few positions lie in the block beside its own."""
    by = integers.value_of(far)
    assert by is not None
    shape = tuple(edge.block if d == axis.name else d for d in load.type.shape)
    short = replace(load, type=Type(shape, load.type.dtype))
    beside = _block(scope, short, int(edge.after), {axis.name: edge.block})
    own = _block(scope, load, int(not edge.after))
    dim = 1 if own.layout == "row" else load.type.shape.index(axis.name)
    value = with_edge(own.expr, beside.expr, by, dim, axis, load.tensor)
    return Value(value, own.layout, load.type.shape)


def selected(
    scope: Scope, window: Window, index: tuple[ir.Index, ...], tensor: str, part: int = 0
) -> tuple[Select, ...]:
    """What a reference means of a window's block, its positions physical; `part` as in selects."""

    def position(expr: physical.PExpr) -> physical.PExpr:
        return lower(scope, expr).expr  # type: ignore[arg-type]  # a Select that is still logical

    def lowered(select: Select, entry: Entry, dim: WindowDim, place: int) -> Select:
        match select, entry, dim:
            case physical.Row(expr), _, _:
                return physical.Row(position(expr))
            case physical.Step(_, _, number), _, _ if number is not None:
                return replace(select, number=position(number))
            case physical.All(), ir.At(), _ if (
                packed := packed_in(scope.arrays, entry, dim, place)
            ) is not None and (
                rows := rows_read(scope.arrays, window, packed, place)
            ) < packed.rows:
                here = position(packed.expr)
                return physical.Step("", rows, physical.Tiles(here, rows) if rows > 1 else here)
            case _:
                return select

    entries = scope.arrays.entries(tensor, index)
    shown = [p for p in zip(entries, window.dims, strict=True) if not isinstance(p[1], ByIndex)]
    chosen = selects(scope.arrays, window, index, tensor, part)
    return tuple(
        lowered(select, *pair, len(shown) - d)
        for d, (select, pair) in enumerate(zip(chosen, shown, strict=True))
    )


def _one_row(scope: Scope, value: PExpr, position: int, packed: Packed, tensor: str) -> PExpr:
    """The one row of a packed block that is meant: a masked sum, exact and blind to NaN.

    Of unsigned integers it is that of as many signed ones, of narrow values that of wide ones:
    Mosaic sums up no others, and JAX sums of 8 and 16 bits are of 32.
    """
    shape, dtype = value.type.shape, value.type.dtype
    if dtype not in ("float32", "bfloat16", "int32"):
        wide = apply("cast", (value,), shape, wide_of(dtype))
        row = _one_row(scope, wide, position, packed, tensor)
        return apply("cast", (row,), row.type.shape, dtype)
    zero = ir.Const(0, Type((), dtype), weak=True)
    own, why = row_mask(scope, shape, position, packed), (("row", tensor),)
    masked = apply("where", (own, value, zero), shape, dtype, masks=why)
    out = tuple(1 if i == position else d for i, d in enumerate(shape))
    label = f"{tensor}_{_row_name(packed)}"
    attrs = (("axis", position), ("keepdim", True))
    return physical.Named(apply("sum", (masked,), out, dtype, attrs), label)


def row_mask(scope: Scope, shape: tuple[Dim, ...], position: int, packed: Packed) -> PExpr:
    """True in the row of a packed block that the index names."""
    row = lower(scope, packed.expr).expr
    if not packed.whole:
        row = apply("mod", (row, ir.Const(packed.rows, Type((), "int32"))), (), "int32")
    ones = tuple(packed.rows if i == position else 1 for i in range(len(shape)))
    iota = physical.Iota(position, Type(ones, "int32"))
    return physical.Named(apply("eq", (iota, row), ones, "bool"), f"{_row_name(packed)}_row")


def _row_name(packed: Packed) -> str:
    """The axis that picks the row, for the name of the mask."""
    axes = [e.axis for e in ir.walk(packed.expr) if isinstance(e, ir.GridIndex)]
    return axes[0] if axes else "picked"


def _masked(scope: Scope, load: ir.Load, mask: ir.Expr, value: Value) -> Value:
    """The load, and what the author wants instead where the mask does not hold."""
    rank, own = load.type.rank, _lower(scope, mask, None)
    layout = _common([own, value], rank, None)
    other = ir.Const(load.other, Type((), load.type.dtype), weak=True)
    where = _as_operand(scope, mask, own, layout, rank).expr
    shape = physical_shape(load.type.shape, layout)
    args = (where, relayout(value, layout).expr, other)
    why = (("user", load.tensor),)
    chosen = apply("where", args, shape, load.type.dtype, (), load.loc, why)
    return Value(chosen, layout, load.type.shape)


# ---------------------------------------------------------------- operations


def _elementwise(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    rank = expr.type.rank
    values = [_lower(scope, a, None) for a in expr.args]
    layout = _common(values, rank, want)
    if layout == "free":
        return Value(expr, "free", expr.type.shape)
    if layout == "scalar" and expr.op in OF_VECTORS and not _whole(expr.args[-1]):
        return _result(expr, map(_vector, values), "unit")
    pairs = zip(expr.args, values, strict=True)
    return _result(expr, [_as_operand(scope, a, v, layout, rank) for a, v in pairs], layout)


def _whole(power: ir.Expr) -> bool:
    """Whether a power is so many factors."""
    return isinstance(power, ir.Const) and int(power.value) == power.value


def _vector(number: Value) -> Value:
    """A number as a vector of one."""
    if isinstance(number.expr, ir.Const):
        return number
    kind = Type((1, 1), number.expr.type.dtype)
    return Value(apply("broadcast", (number.expr,), kind.shape, kind.dtype), "unit", ())


def _common(values: list[Value], rank: int, want: Layout | None) -> Layout:
    if rank == 0:
        return "unit" if any(v.layout == "unit" for v in values) else "scalar"
    same: list[Layout] = [v.layout for v in values if len(v.logical) == rank and v.layout != "free"]
    laid: list[Layout] = [layout for layout in same if layout != "scalar"]
    same = laid or same  # a number that is given a dimension fits any
    if rank >= 2:
        return "column" if same and all(s == "column" for s in same) else "plain"
    if want in ("row", "column") and (not same or want in same):
        return want
    return same[0] if same else "free"


def _as_operand(scope: Scope, arg: ir.Expr, value: Value, layout: Layout, rank: int) -> Value:
    """An operand in the layout that broadcasts against a result of `rank` in `layout`.

    It is lowered anew only where it may come out laid out otherwise: expressions are deep.
    """
    own = len(value.logical)
    if own == 0:
        return value
    want: Layout = layout if own == rank or layout == "column" else "row" if own == 1 else "plain"
    if value.layout == want or (value.layout != "free" and own > 1):
        return relayout(value, want)
    return lower(scope, arg, want)


def _reduce(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    value = _settled(scope, expr.args[0])
    axis, keep = int(expr.attr("axis")), bool(expr.attr("keepdim"))
    rank = len(value.logical)
    if rank == 1:
        lanes = 1 if value.layout == "row" else 0
        return _result(expr, [value], value.layout if keep else "unit", axis=lanes, keepdim=True)
    if value.layout == "column":
        return _result(expr, [value], "column", axis=axis, keepdim=keep)
    layout: Layout = "plain"
    if not keep and (axis == rank - 1 or rank == 2):
        layout = "column" if axis == rank - 1 else "row"
    return _result(expr, [value], layout, axis=axis, keepdim=keep or layout != "plain")


def _settled(scope: Scope, arg: ir.Expr) -> Value:
    """The value in its own layout, as a row if it has none."""
    value = _lower(scope, arg, None)
    return lower(scope, arg, "row") if value.layout == "free" else value


def _plain(scope: Scope, arg: ir.Expr) -> Value:
    value = _settled(scope, arg)
    return relayout(value, "plain") if len(value.logical) >= 2 else value


def _expand_dims(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    (arg,) = expr.args
    axis, shape = int(expr.attr("axis")), expr.type.shape
    rank = arg.type.rank
    if rank == 0:
        value = lower(scope, arg)
        return Value(value.expr, "row" if value.layout == "unit" else value.layout, shape)
    if rank == 1:
        return Value(lower(scope, arg, "row" if axis == 0 else "column").expr, "plain", shape)
    value = _lower(scope, arg, None)
    if value.layout == "column" and axis == rank:
        return Value(value.expr, "plain", shape)
    return _result(expr, [value], value.layout)


def _squeeze(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    (arg,) = expr.args
    axis, shape, rank = int(expr.attr("axis")), expr.type.shape, arg.type.rank
    value = _settled(scope, arg)
    if rank == 1:
        return Value(value.expr, "unit", shape)
    if axis == rank - 1 and value.layout == "plain":
        return Value(value.expr, "column", shape)
    value = relayout(value, "plain")
    if rank == 2:
        return Value(value.expr, "column" if axis == 1 else "row", shape)
    return _result(expr, [value], "plain")


def _transpose(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    value = _plain(scope, expr.args[0])
    if expr.type.rank < 2:
        return value
    if expr.type.dtype == "bool":
        return Value(permuted(value.expr, expr.attr("perm")), "plain", expr.type.shape)
    return _result(expr, [value], "plain")


def _reshaped(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    """reshape and broadcast: to the natural physical shape of the result."""
    (arg,), rank = expr.args, expr.type.rank
    layout: Layout = "plain" if rank >= 2 else ("row" if rank else "unit")
    if expr.op == "broadcast" and rank == 1 and want in ("row", "column"):
        layout = want
    value = _plain(scope, arg)
    if expr.op == "broadcast" and len(value.logical) == 1:
        value = lower(scope, arg, layout if rank == 1 else "row")
    return _result(expr, [value], layout)


def _concat(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    values = [_plain(scope, a) for a in expr.args]
    if expr.type.rank == 1:
        return _result(expr, [relayout(v, "row") for v in values], "row", axis=1)
    return _result(expr, values, "plain")


def _narrow(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    value = _plain(scope, expr.args[0])
    if expr.type.rank == 1:
        return _result(expr, [relayout(value, "row")], "row", axis=1)
    return _result(expr, [value], "plain")


def _dot(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    a, b = expr.args
    if len(expr.attr("batch", ((),))[0]) > 1:
        return one_batch(expr, (_plain(scope, a).expr, _plain(scope, b).expr), scope.arrays.axes)
    vectors = (a.type.rank == 1, b.type.rank == 1)
    contract: tuple[int, int] = expr.attr("contract")
    left = lower(scope, a, "row") if vectors[0] else _plain(scope, a)
    right = lower(scope, b, "column") if vectors[1] else _plain(scope, b)
    pair = (1 if vectors[0] else contract[0], 0 if vectors[1] else contract[1])
    if a.type.rank == b.type.rank == 2:
        left, pair = _untransposed(left, pair, 0)
        right, pair = _untransposed(right, pair, 1)
    layout: Layout = "column" if vectors[1] else "plain"
    if vectors[0]:
        layout = "unit" if vectors[1] else "row"
    return _result(expr, [left, right], layout, contract=pair)


def _untransposed(value: Value, pair: tuple[int, int], side: int) -> tuple[Value, tuple[int, int]]:
    """A transposed operand, as the matrix itself with the other dimension contracted."""
    expr = value.expr
    if not (isinstance(expr, Apply) and expr.op == "transpose" and expr.attr("perm") == (1, 0)):
        return value, pair
    inner = Value(expr.args[0], "plain", expr.args[0].type.shape)
    flipped = (1 - pair[0], pair[1]) if side == 0 else (pair[0], 1 - pair[1])
    return inner, flipped


def _group_sum(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    member, rows = (_plain(scope, a).expr for a in expr.args)
    return Value(physical.GroupSum(member, rows, expr.type), "plain", expr.type.shape)


def _diagonals(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    """What it begins with belongs to the first lanes of both tiles."""
    line, first = expr.args
    rows, columns = (_first_lane(scope.arrays.axes[str(axis)]) for axis in expr.type.shape)
    begin = integers.shorter(integers.add(first, integers.sub(columns, rows)))
    made = physical.Diagonals(lower(scope, line, "row").expr, lower(scope, begin).expr, expr.type)
    return Value(made, "plain", expr.type.shape)


def _lane_gather(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    table, place = expr.args
    row = lower(scope, table, "row").expr
    made = physical.LaneGather(row, _plain(scope, place).expr, expr.type)
    return Value(made, "plain", expr.type.shape)


def _first_lane(axis: AxisPlan) -> ir.Expr:
    """The position, as the author counts, of the first lane of a tile."""
    return integers.sub(axis.tile.origin, axis.shift or integers.const(0))


_RULES: dict[str, Callable[[Scope, Apply, Layout | None], Value]] = {
    "full": _full,
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
    "transpose": _transpose,
    "reshape": _reshaped,
    "broadcast": _reshaped,
    "concat": _concat,
    "narrow": _narrow,
    "dot": _dot,
    "group_sum": _group_sum,
    "diagonals": _diagonals,
    "lane_gather": _lane_gather,
    **dict.fromkeys(("sum", "max", "min", "argmax", "argmin", "any", "all"), _reduce),
}
