"""Physical: values of any rank -> arrays of rank 2 or more, the shapes that vector registers like.

What the shapes of values are here: see layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tilelang.codegen.pallas.plan.physical import physical_children
from tilelang.codegen.pallas.plan.types import (
    Head,
    InRange,
    Iota,
    Mask,
    Named,
    Packed,
    PExpr,
    Read,
    Roll,
    Row,
    ScalarRead,
    Select,
    Step,
    TakeRows,
)
from tilelang.codegen.pallas.plan.windows.choose import Arrays, as_array, moved_block, selects
from tilelang.codegen.pallas.plan.windows.turned import turned
from tilelang.codegen.pallas.plan.windows.unaligned import PARTS, joined, moved_along, shift, start
from tilelang.errors import Loc
from tilelang.ir import (
    Along,
    Apply,
    At,
    Const,
    Dim,
    Expr,
    Gather,
    GridIndex,
    Load,
    TileIndex,
    TileScalar,
    Type,
    Var,
    walk,
)
from tilelang.language.op import OPS
from tilelang.schedule.refusal import Refused, Rule

from .layouts import Layout, Value, apply, laid_out, physical_shape, relayout

NONE: Mapping[str, Dim] = MappingProxyType({})


@dataclass(frozen=True)
class KeptValue:
    """A carry in scratch memory: its name and physical type, and what the author calls it."""

    name: str
    type: Type
    user: str


@dataclass
class Scope:
    """Names in scope: their layout, or the free expression that stands for them.

    `locs` says where each was assigned, `kept` collects what scratch memory must hold.
    """

    arrays: Arrays
    names: dict[str, Value] = field(default_factory=dict)
    free: dict[str, Expr] = field(default_factory=dict)
    locs: dict[str, Loc] = field(default_factory=dict)
    kept: list[KeptValue] = field(default_factory=list)


def lower(scope: Scope, expr: Expr, want: Layout | None = None) -> Value:
    """The physical form of an expression, in layout `want` if that is given."""
    value = _lower(scope, expr, want)
    return value if want is None else relayout(value, want)


def natural(scope: Scope, expr: Expr) -> Layout:
    """The layout that an expression has by itself."""
    return _lower(scope, expr, None).layout


def _typed(expr: Apply, args: tuple[PExpr, ...], shape: tuple[Dim, ...], **attrs: object) -> Apply:
    merged = {**dict(expr.attrs), **attrs}
    return apply(expr.op, args, shape, expr.type.dtype, tuple(merged.items()), expr.loc)


def _lower(scope: Scope, expr: Expr, want: Layout | None) -> Value:
    match expr:
        case Const() | GridIndex() | TileScalar():
            return Value(expr, "scalar", ())
        case Var(name) if name in scope.free:
            return _lower(scope, scope.free[name], want)
        case Var(name):
            return scope.names[name]
        case Load():
            return _load(scope, expr)
        case TileIndex():
            return _made(expr, want)
        case Apply("in_range"):
            mask = Mask(str(expr.attr("axis")), "reduction")
            return _made(InRange(mask, expr.type), want)
        case Apply("arange"):
            return _made(expr, want)
        case Apply("full"):
            return _full(scope, expr, want)
        case Apply(op):
            return _RULES.get(op, _elementwise)(scope, expr, want)
    raise AssertionError(expr)


def _made(expr: TileIndex | InRange | Apply, want: Layout | None) -> Value:
    """Indices and masks: rank 1, made in the layout that is wanted."""
    shape = expr.type.shape
    if want not in ("row", "column"):
        return Value(expr, "free", shape)
    made = replace(expr.type, shape=physical_shape(shape, want))
    return Value(replace(expr, type=made), want, shape)


def _full(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    args = tuple(lower(scope, a).expr for a in expr.args)
    shape = expr.type.shape
    if len(shape) == 1 and want not in ("row", "column"):
        return Value(_typed(expr, args, shape), "free", shape)
    layout: Layout = "plain" if len(shape) > 1 else want or "row"
    if not shape:
        layout = "scalar"
    return Value(_typed(expr, args, physical_shape(shape, layout)), layout, shape)


# ---------------------------------------------------------------- loads


def _load(scope: Scope, load: Load) -> Value:
    arrays = scope.arrays
    if load.tensor in arrays.scalars:
        index = tuple(_position(scope, entry) for entry in load.index)
        if any(isinstance(entry, Along) for entry in load.index):
            raise Refused(
                Rule.FORM,
                f"{load.tensor} picks rows of another array, so it cannot also be used as a value",
                load.loc,
            )
        return Value(ScalarRead(load.tensor, index, load.type), "scalar", ())
    if any(isinstance(entry, Gather) for entry in load.index):
        raise Refused(
            Rule.FORM,
            f"rows of {load.tensor} picked by an index tile cannot be loaded in this position",
            load.loc,
            "load them in a statement of their own: rows = table[index, :]",
        )
    entry = moved_along(arrays.axes, load.index, load.loc)
    value = _block(scope, load) if entry is None else _moved(scope, load, entry)
    return value if load.mask is None else _masked(scope, load, value)


def _block(scope: Scope, load: Load, part: int = 0, held: Mapping[str, Dim] = NONE) -> Value:
    """One block of an array; `held` gives the lengths of those that are longer than a tile."""
    arrays = scope.arrays
    window = arrays.find(load.tensor, load.index, part)
    chosen = _lower_rows(scope, selects(arrays, window, load.index, load.tensor, part))
    if window.turned is not None:
        chosen = turned(window, chosen, load.loc)
    read = Read(window.ref, chosen, load.type, window.turned is not None)
    return _picked(scope, load, read, held)


def _moved(scope: Scope, load: Load, entry: Along) -> Value:
    """A tile that lies in two blocks, which may be longer than the tile is."""
    arrays, axis = scope.arrays, scope.arrays.axes[entry.axis]
    far, block = shift(axis, entry.offset), moved_block(arrays, load.tensor, load.index, entry)
    assert far is not None
    longer = {axis.name: block} if block != axis.block else NONE
    kind = tuple(longer.get(d, d) for d in load.type.shape)  # type: ignore[call-overload]
    whole = replace(load, type=Type(kind, load.type.dtype))
    first, second = (_block(scope, whole, part, longer) for part in PARTS)
    dim = 1 if first.layout == "row" else load.type.shape.index(axis.name)
    _, rest = start(axis, far, block)
    by = lower(scope, rest).expr
    value = joined(first.expr, second.expr, by, dim, axis, block, load.tensor)
    return Value(value, first.layout, load.type.shape)


def _lower_rows(scope: Scope, chosen: tuple[Select, ...]) -> tuple[Select, ...]:
    def lowered(select: Select) -> Select:
        match select:
            case Row(expr):
                return Row(lower(scope, expr).expr)  # type: ignore[arg-type]
            case Step(_, _, number) if number is not None:
                return replace(select, number=lower(scope, number).expr)  # type: ignore[arg-type]
            case _:
                return select

    return tuple(map(lowered, chosen))


def _position(scope: Scope, entry: object) -> PExpr:
    if isinstance(entry, At):
        return lower(scope, entry.expr).expr
    if isinstance(entry, Along):
        return Const(0, Type((), "int32"))
    raise AssertionError(entry)


def _picked(scope: Scope, load: Load, read: Read, held: Mapping[str, Dim]) -> Value:
    """Reads the block and picks the single positions of packed dimensions from it."""
    window = scope.arrays.find(load.tensor, load.index)
    entries = as_array(scope.arrays.hosts[load.tensor], load.index)
    shape: list[Dim] = []
    picks: list[tuple[int, Packed]] = []
    for entry, dim, size in zip(entries, window.dims, window.shape, strict=True):
        match entry, dim:
            case At(expr), Packed():
                picks.append((len(shape), replace(dim, expr=expr)))
                shape.append(dim.rows)
            case At(), _:
                continue
            case Along(axis), _:
                shape.append(held.get(axis, axis))
            case _, _:
                stop = getattr(entry, "stop", size)
                shape.append(stop - getattr(entry, "start", 0))
    value: PExpr = replace(read, type=Type(tuple(shape), load.type.dtype))
    for position, packed in picks:
        value = pick(scope, value, position, packed, f"{load.tensor}_{_row_name(packed)}")
    shape = [1 if i in [p for p, _ in picks] else d for i, d in enumerate(shape)]
    return laid_out(value, load.type, tuple(shape))


def pick(scope: Scope, value: PExpr, position: int, packed: Packed, label: str) -> PExpr:
    """The one row of a packed block that is meant: a masked sum, exact and blind to NaN."""
    shape, dtype = value.type.shape, value.type.dtype
    chosen = row_mask(scope, shape, position, packed)
    zero = Const(0, Type((), dtype), weak=True)
    masked = apply("where", (chosen, value, zero), shape, dtype)
    out = tuple(1 if i == position else d for i, d in enumerate(shape))
    if packed.rows == 1:
        return value
    attrs = (("axis", position), ("keepdim", True))
    return Named(apply("sum", (masked,), out, dtype, attrs), label)


def row_mask(scope: Scope, shape: tuple[Dim, ...], position: int, packed: Packed) -> Named:
    """True in the row of a packed block that the index names."""
    row = lower(scope, packed.expr).expr
    if not packed.whole:
        row = apply("mod", (row, Const(packed.rows, Type((), "int32"))), (), "int32")
    ones = tuple(packed.rows if i == position else 1 for i in range(len(shape)))
    iota = Iota(position, Type(ones, "int32"))
    return Named(apply("eq", (iota, row), ones, "bool"), f"{_row_name(packed)}_row")


def _row_name(packed: Packed) -> str:
    """The axis that picks the row, for the name of the mask."""
    axes = [e.axis for e in walk(packed.expr) if isinstance(e, GridIndex)]
    return axes[0] if axes else "picked"


def _masked(scope: Scope, load: Load, value: Value) -> Value:
    assert load.mask is not None
    other = Const(load.other, Type((), load.type.dtype), weak=True)
    whole = Apply("where", (load.mask, Var("\0load", load.type), other), load.type, (), load.loc)
    scope.names["\0load"] = value
    return _elementwise(scope, whole, None)


# ---------------------------------------------------------------- operations


def _elementwise(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    rank = expr.type.rank
    values = [_lower(scope, a, None) for a in expr.args]
    layout = _common(values, rank, want)
    if layout == "free":
        return Value(expr, "free", expr.type.shape)
    pairs = zip(expr.args, values, strict=True)
    lowered = [_as_operand(scope, a, v, layout, rank) for a, v in pairs]
    shape = physical_shape(expr.type.shape, layout)
    return Value(_typed(expr, tuple(v.expr for v in lowered), shape), layout, expr.type.shape)


def _common(values: list[Value], rank: int, want: Layout | None) -> Layout:
    if rank == 0:
        return "unit" if any(v.layout == "unit" for v in values) else "scalar"
    same: list[Layout] = [v.layout for v in values if len(v.logical) == rank and v.layout != "free"]
    if rank >= 2:
        return "column" if same and all(s == "column" for s in same) else "plain"
    if want in ("row", "column"):
        return want if not same else (want if want in same else same[0])
    return same[0] if same else "free"


def _as_operand(scope: Scope, arg: Expr, value: Value, layout: Layout, rank: int) -> Value:
    """An operand in the layout that broadcasts against a result of `rank` in `layout`."""
    own = len(value.logical)
    if own == 0:
        return value
    if own == rank:
        return lower(scope, arg, layout)
    if layout == "column":
        return lower(scope, arg, "column")
    return lower(scope, arg, "row" if own == 1 else "plain")


def _reduce(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    (arg,) = expr.args
    value = _settled(scope, arg, "row")
    axis, keep = int(expr.attr("axis")), bool(expr.attr("keepdim"))  # type: ignore[call-overload]
    rank = len(value.logical)
    shape = expr.type.shape
    if rank == 1:
        at = 1 if value.layout == "row" else 0
        out: Layout = "unit" if not keep else value.layout
        return Value(_typed(expr, (value.expr,), (1, 1), axis=at, keepdim=True), out, shape)
    if value.layout == "column":
        result = physical_shape(shape, "column")
        return Value(_typed(expr, (value.expr,), result, axis=axis, keepdim=keep), "column", shape)
    if keep:
        return Value(_typed(expr, (value.expr,), shape, axis=axis, keepdim=True), "plain", shape)
    if axis == rank - 1:
        result = physical_shape(shape, "column")
        return Value(_typed(expr, (value.expr,), result, axis=axis, keepdim=True), "column", shape)
    if rank == 2:
        result = physical_shape(shape, "row")
        return Value(_typed(expr, (value.expr,), result, axis=0, keepdim=True), "row", shape)
    return Value(_typed(expr, (value.expr,), shape, axis=axis, keepdim=False), "plain", shape)


def _settled(scope: Scope, arg: Expr, default: Layout) -> Value:
    """The value in its own layout, or in `default` if it has none."""
    value = _lower(scope, arg, None)
    return lower(scope, arg, default) if value.layout == "free" else value


def _plain(scope: Scope, arg: Expr) -> Value:
    value = _settled(scope, arg, "row")
    return relayout(value, "plain") if len(value.logical) >= 2 else value


def _expand_dims(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    (arg,) = expr.args
    axis, shape = int(expr.attr("axis")), expr.type.shape  # type: ignore[call-overload]
    rank = arg.type.rank
    if rank == 0:
        value = lower(scope, arg)
        return Value(value.expr, "row" if value.layout == "unit" else value.layout, shape)
    if rank == 1:
        value = lower(scope, arg, "row" if axis == 0 else "column")
        return Value(value.expr, "plain", shape)
    value = _lower(scope, arg, None)
    if value.layout == "column" and axis == rank:
        return Value(value.expr, "plain", shape)
    result = physical_shape(shape, value.layout)
    return Value(_typed(expr, (value.expr,), result), value.layout, shape)


def _squeeze(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    (arg,) = expr.args
    axis, shape, rank = int(expr.attr("axis")), expr.type.shape, arg.type.rank  # type: ignore[call-overload]
    value = _settled(scope, arg, "row")
    if rank == 1:
        return Value(value.expr, "unit", shape)
    if axis == rank - 1 and value.layout == "plain":
        return Value(value.expr, "column", shape)
    if rank == 2 and axis == 0 and value.layout == "plain":
        return Value(value.expr, "row", shape)
    value = relayout(value, "plain")
    if rank == 2:
        return Value(value.expr, "column" if axis == 1 else "row", shape)
    return Value(_typed(expr, (value.expr,), shape), "plain", shape)


def _transpose(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    (arg,) = expr.args
    value = _plain(scope, arg)
    if arg.type.rank < 2:
        return value
    return Value(_typed(expr, (value.expr,), expr.type.shape), "plain", expr.type.shape)


def _reshaped(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    """reshape and broadcast: to the natural physical shape of the result."""
    (arg,) = expr.args
    shape = expr.type.shape
    layout: Layout = "plain" if len(shape) >= 2 else ("row" if shape else "unit")
    if expr.op == "broadcast" and len(shape) == 1 and want in ("row", "column"):
        layout = want
    value = _settled(scope, arg, "row")
    if expr.op == "broadcast" and len(value.logical) == 1:
        value = lower(scope, arg, layout if len(shape) == 1 else "row")
    elif len(value.logical) >= 2:
        value = relayout(value, "plain")
    result = physical_shape(shape, layout)
    return Value(_typed(expr, (value.expr,), result), layout, shape)


def _concat(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    values = [_plain(scope, a) for a in expr.args]
    shape = expr.type.shape
    if len(shape) == 1:
        rows = tuple(relayout(v, "row").expr for v in values)
        return Value(_typed(expr, rows, (1, *shape), axis=1), "row", shape)
    return Value(_typed(expr, tuple(v.expr for v in values), shape), "plain", shape)


def _dot(scope: Scope, expr: Apply, want: Layout | None) -> Value:
    a, b = expr.args
    contract: tuple[int, int] = expr.attr("contract")  # type: ignore[assignment]
    left = lower(scope, a, "row") if a.type.rank == 1 else _plain(scope, a)
    right = lower(scope, b, "column") if b.type.rank == 1 else _plain(scope, b)
    pair = (1 if a.type.rank == 1 else contract[0], 0 if b.type.rank == 1 else contract[1])
    if a.type.rank == b.type.rank == 2:
        left, pair = _untransposed(left, pair, 0)
        right, pair = _untransposed(right, pair, 1)
    layout: Layout = "plain"
    if a.type.rank == 1:
        layout = "unit" if b.type.rank == 1 else "row"
    elif b.type.rank == 1:
        layout = "column"
    shape = physical_shape(expr.type.shape, layout)
    return Value(
        _typed(expr, (left.expr, right.expr), shape, contract=pair), layout, expr.type.shape
    )


def _untransposed(value: Value, pair: tuple[int, int], side: int) -> tuple[Value, tuple[int, int]]:
    """A transposed operand, as the matrix itself with the other dimension contracted."""
    expr = value.expr
    if not (isinstance(expr, Apply) and expr.op == "transpose" and expr.attr("perm") == (1, 0)):
        return value, pair
    inner = Value(expr.args[0], "plain", expr.args[0].type.shape)
    flipped = (1 - pair[0], pair[1]) if side == 0 else (pair[0], 1 - pair[1])
    return inner, flipped


_RULES: dict[str, Callable[[Scope, Apply, Layout | None], Value]] = {
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
    "transpose": _transpose,
    "reshape": _reshaped,
    "broadcast": _reshaped,
    "concat": _concat,
    "dot": _dot,
    **dict.fromkeys(("sum", "max", "min", "argmax", "argmin", "any", "all"), _reduce),
}


def is_costly(expr: PExpr) -> bool:
    """Whether computing the expression again costs more than keeping it."""
    match expr:
        case TakeRows():
            return True
        case Apply(op) if op in OPS and OPS[op].cost == "costly":
            return True
        case Apply() | Roll() | Head() | Named():
            return any(is_costly(e) for e in physical_children(expr))
        case _:
            return False
