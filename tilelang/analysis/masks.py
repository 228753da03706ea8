"""fills(expr, partial, definitions) -> Expr: neutral values where a tile holds foreign data.

A tile may hold positions outside of its range: the rows of a neighbour, or memory never written.
Elementwise work on them is harmless; a reduction or a product that sums over them is not.

    sum(x, rows of tm)     ->  sum(where(in_range(tm), x, 0))
    dot(x[tm, tk], w[tk])  ->  dot(where(in_range(tk), x, 0), where(in_range(tk), w, 0))

Both operands of a product are filled, because 0 * NaN is NaN.  What the foreign lanes of a value
hold is its pad state; a fill that would change nothing is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from math import isnan
from typing import assert_never

import numpy as np

from ..ir import (
    Apply,
    Const,
    Dim,
    Expr,
    GridIndex,
    Load,
    Scalar,
    TileIndex,
    TileScalar,
    Type,
    Var,
    map_children,
)
from ..ir.lanes import trailing
from ..language.dtypes import is_float, is_narrow, to_numpy
from ..language.op import OPS, kind_of, neutral

SMALL = 128  # a float below this becomes the same integer everywhere, whatever its width
NEEDS_SMALL = ("floordiv", "mod", "pow", "shift_left", "shift_right")

# ---------------------------------------------------------------- pad states


@dataclass(frozen=True)
class Foreign:
    """The lanes outside of the axis's range may hold anything, NaN included."""


@dataclass(frozen=True)
class Known:
    """Every lane outside of the axis's range holds this value."""

    value: Scalar


@dataclass(frozen=True)
class Absent:
    """The value does not vary along the axis; `value` is what it is, if that is a constant."""

    value: Scalar | None = None


PadState = Foreign | Known | Absent
Definitions = Mapping[str, Expr]
# What the foreign lanes of a load hold: the answer of a back end, None where nothing is known.
Reads = Callable[[Load], Scalar | None]


def unknown(load: Load) -> Scalar | None:
    """Blocks of arrays hold whatever lies there."""
    return None


def masked_reads(load: Load) -> Scalar | None:
    """Every lane that is not in range is left out, and holds `other`."""
    return load.other


@dataclass(frozen=True)
class _Pads:
    """Definitions of Vars in statement order, and the states found so far by (name, axis)."""

    definitions: Definitions
    reads: Reads = unknown
    found: dict[tuple[str, str], PadState] = field(default_factory=dict)


def pad_state(expr: Expr, axis: str, definitions: Definitions) -> PadState:
    """What the lanes of `expr` outside of the range of `axis` hold.

    `definitions` gives the values of Vars in statement order; of other Vars, carries among them,
    nothing is known.
    """
    return _state(expr, axis, _Pads(definitions))


def _state(expr: Expr, axis: str, pads: _Pads) -> PadState:
    match expr:
        case Const(value):
            return Absent(value)
        case Var(name):
            return _named(expr, name, axis, pads)
        case GridIndex() | TileScalar() | TileIndex():
            return _settled(expr.type, axis, None)
        case Load():  # one value for all lanes is no matter of lanes that are left out
            outside = pads.reads(expr) if axis in expr.type.shape else None
            return _settled(expr.type, axis, outside)
        case Apply():
            return _settled(expr.type, axis, _value(expr, axis, pads))
        case _:
            assert_never(expr)


def _named(expr: Var, name: str, axis: str, pads: _Pads) -> PadState:
    if name not in pads.definitions:
        return _settled(expr.type, axis, None)
    if (name, axis) not in pads.found:
        for earlier, value in pads.definitions.items():  # in order: a long chain is not recursion
            if (earlier, axis) not in pads.found:
                pads.found[earlier, axis] = _state(value, axis, pads)
            if earlier == name:
                break
    return pads.found[name, axis]


def _settled(form: Type, axis: str, value: Scalar | None) -> PadState:
    """The state of a value whose foreign lanes all hold `value`; None if that is not known."""
    if axis not in form.shape:
        return Absent(value)
    return Foreign() if value is None else Known(value)


def value_of(state: PadState) -> Scalar | None:
    """What the foreign lanes hold, if it is one known value."""
    return None if isinstance(state, Foreign) else state.value


def _value(expr: Apply, axis: str, pads: _Pads) -> Scalar | None:
    """The value of every foreign lane of an op's result, or None."""
    if expr.op == "in_range":
        return False if expr.attr("axis") == axis else None
    held = tuple(value_of(_state(a, axis, pads)) for a in expr.args)
    match kind_of(expr.op):
        case "elementwise":
            return _elementwise(expr, held)
        case "reduce":
            return _reduced(expr, axis, held[0])
        case "contract":
            whole = axis in expr.type.shape and not is_float(expr.type.dtype)
            return 0 if whole and any(h is not None and h == 0 for h in held) else None
        case "shape":
            return held[0] if all(h is not None and h == held[0] for h in held) else None
        case "create":
            return _created(expr, held)
        case _:
            return None


def _created(expr: Apply, held: tuple[Scalar | None, ...]) -> Scalar | None:
    if expr.op != "full":
        return None
    value = expr.attr("value") if not held else held[0]
    return value if isinstance(value, bool | int | float) else None


def _elementwise(expr: Apply, held: tuple[Scalar | None, ...]) -> Scalar | None:
    """The op on known values; where the rest does not matter, on those that decide."""
    if expr.op == "where":
        return _selected(*held)
    if _absorbs(expr, held):
        return expr.op == "logical_or" if expr.type.dtype == "bool" else 0
    known = tuple(h for h in held if h is not None)
    return _evaluated(expr, known) if len(known) == len(held) else None


def _selected(condition: Scalar | None, a: Scalar | None, b: Scalar | None) -> Scalar | None:
    if condition is None:
        return a if a is not None and b is not None and a == b else None
    return a if condition else b


def _absorbs(expr: Apply, held: tuple[Scalar | None, ...]) -> bool:
    """Whether one operand decides the result; 0 * x does so only where x cannot be NaN."""
    match expr.op:
        case "logical_and":
            return any(h is False for h in held)
        case "logical_or":
            return any(h is True for h in held)
        case "mul" | "bitwise_and":
            zero = any(h is not None and h == 0 for h in held)
            return zero and not is_float(expr.type.dtype)
        case _:
            return False


def _evaluated(expr: Apply, values: tuple[Scalar, ...]) -> Scalar | None:
    """The op's NumPy meaning; None for NaN, which equals nothing, and where devices may differ."""
    if not _defined(expr, values):
        return None
    operands = [_widened(v, a.type.dtype) for v, a in zip(values, expr.args, strict=True)]
    with np.errstate(all="ignore"):
        if expr.op == "cast":
            result = operands[0]
        else:
            result = np.asarray(OPS[expr.op].reference(*operands, **dict(expr.attrs)))
        return _scalar(result.astype(to_numpy(expr.type.dtype)), expr.type.dtype)


def _widened(value: Scalar, dtype: str) -> np.ndarray:
    """The value rounded to its dtype; narrow floats are computed with in float32."""
    rounded = np.asarray(value).astype(to_numpy(dtype))
    return rounded.astype(np.float32) if is_narrow(dtype) else rounded


def _defined(expr: Apply, values: tuple[Scalar, ...]) -> bool:
    """Whether the op means the same everywhere: no division by 0, no overflow of a cast."""
    source, target = expr.args[0].type.dtype, expr.type.dtype
    if expr.op == "cast" and is_float(source) and not is_float(target) and target != "bool":
        return abs(values[0]) < SMALL and (values[0] >= 0 or not target.startswith("u"))
    if expr.op in NEEDS_SMALL and not is_float(target):
        return 0 < values[1] < 8
    return True


def _scalar(value: np.ndarray, dtype: str) -> Scalar | None:
    if dtype == "bool":
        return bool(value)
    if not is_float(dtype):
        return int(value)
    number = float(value)
    return None if isnan(number) else number


def _reduced(expr: Apply, axis: str, held: Scalar | None) -> Scalar | None:
    """What a reduction along another dimension makes of one value repeated."""
    dim, shape = _reduced_dim(expr), expr.args[0].type.shape
    if held is None or shape[dim] in (axis, 0):
        return None
    if expr.op in ("max", "min", "any", "all"):
        return held
    return held if expr.op == "sum" and held == 0 else None


# ---------------------------------------------------------------- where a fill is needed


@dataclass(frozen=True)
class FillNeed:
    """Operand number `operand` of an op must hold `fill` outside of the range of its dimension."""

    operand: int
    dim: int
    axis: str
    fill: Scalar


def needs(expr: Apply, partial: Collection[str]) -> tuple[FillNeed, ...]:
    """The fills that an op needs along axes whose tiles may be partial."""
    match kind_of(expr.op):
        case "reduce":
            dim = _reduced_dim(expr)
            wanted = [(0, dim, neutral(expr.op, expr.args[0].type.dtype))]
        case "contract":
            wanted = [(side, dim, _zero(expr, side)) for side, dim in enumerate(_contracted(expr))]
        case "other" if expr.op == "group_sum":  # of a back end: rows are summed
            wanted = [(1, 0, _zero(expr, 1))]
        case _:
            wanted = []
    return tuple(
        FillNeed(operand, dim, str(axis), fill)
        for operand, dim, fill in wanted
        if (axis := expr.args[operand].type.shape[dim]) in partial
    )


def _reduced_dim(expr: Apply) -> int:
    dim = expr.attr("axis")
    assert isinstance(dim, int)
    return dim


def _contracted(expr: Apply) -> tuple[int, ...]:
    dims = expr.attr("contract")
    assert isinstance(dims, tuple)
    return dims


def _zero(expr: Apply, operand: int) -> Scalar:
    return 0.0 if is_float(expr.args[operand].type.dtype) else 0


def _satisfied(operand: Expr, need: FillNeed, pads: _Pads) -> bool:
    state = _state(operand, need.axis, pads)
    return isinstance(state, Known) and state.value == need.fill


# ---------------------------------------------------------------- rewriting


def fills(
    expr: Expr, partial: Collection[str], definitions: Definitions, reads: Reads = unknown
) -> Expr:
    """The expression with a neutral fill on each operand that a foreign lane would spoil."""
    return _filled(expr, frozenset(partial), _Pads(definitions, reads))


def _filled(expr: Expr, partial: frozenset[str], pads: _Pads) -> Expr:
    expr = map_children(expr, lambda child: _filled(child, partial, pads))
    if not isinstance(expr, Apply):
        return expr
    args = list(expr.args)
    for need in needs(expr, partial):
        if not _satisfied(args[need.operand], need, pads):
            args[need.operand] = masked(args[need.operand], need, pads.definitions)
    return replace(expr, args=tuple(args))


def masked(operand: Expr, need: FillNeed, definitions: Definitions) -> Expr:
    """where(in_range(axis), operand, fill); a select with the same fill gets one more condition.

    A rounded float is masked before it is rounded, so that `p` and `p.to(bfloat16)` share one mask,
    and a transposed block before it is transposed, so that a product can take it as it lies.
    """
    mask = lane_mask(need.axis, operand.type.rank - 1 - need.dim)
    match operand:
        case Apply("cast", (Var() as exact,)) if (
            _rounds(exact.type.dtype, operand) and not need.fill
        ):
            return replace(operand, args=(masked(exact, need, definitions),))
        case Apply("transpose", (block,)):
            inner = replace(need, dim=_permutation(operand)[need.dim])
            return replace(operand, args=(masked(block, inner, definitions),))
        case Apply("where", (condition, value, other)):
            held = pad_state(other, need.axis, definitions)
            if isinstance(held, Absent) and _same(held.value, need.fill):
                both = Type(broadcast(condition.type.shape, mask.type.shape), "bool")
                mask = Apply("logical_and", (condition, mask), both, (), operand.loc)
                return replace(operand, args=(mask, value, other))
        case _:
            pass  # what is not looked through is masked itself
    fill = Const(need.fill, Type((), operand.type.dtype))
    loc = operand.loc if isinstance(operand, Apply | Load) else None
    return Apply("where", (mask, operand, fill), operand.type, (), loc)


def _same(a: Scalar | None, b: Scalar) -> bool:
    return a is not None and a == b


def _permutation(transpose: Apply) -> tuple[int, ...]:
    order = transpose.attr("perm")
    assert isinstance(order, tuple)
    return order


def _rounds(dtype: str, cast: Expr) -> bool:
    return is_float(dtype) and is_float(cast.type.dtype)


def lane_mask(axis: str, behind: int) -> Expr:
    """The lanes of a tile that lie in its range, with `behind` dimensions of 1 behind."""
    return trailing(Apply("in_range", (), Type((axis,), "bool"), (("axis", axis),)), behind)


def broadcast(a: tuple[Dim, ...], b: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """The shape of an elementwise result; the operands are known to fit."""
    rank = max(len(a), len(b))
    padded = [(1,) * (rank - len(s)) + s for s in (a, b)]
    return tuple(y if x == 1 else x for x, y in zip(*padded))
