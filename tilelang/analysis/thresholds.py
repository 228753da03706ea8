"""thresholds(starts, values) -> the numbers at which what is computed becomes something else.

hl.where(t.begin % 64 == 0, 0.0, acc)    64 of positions: no tile but the first begins before it so
x[t, :].sum(0) * 0.001 > 1.0             1000 of floats: what is compared with 1 is a part of them
hl.maximum(t.begin - 200 - 17, 0)        217 of positions
x[t].sum().to(hl.int8)                   128 of integers

A limit is followed from where it stands to what it says something of, whatever is between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..ir import Apply, Const, Expr, Load, TileIndex, TileScalar, Var
from ..language.dtypes import is_float
from ..language.op import OPS

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
BOUNDS = (*COMPARISONS, "maximum", "minimum")  # of which one side may be a limit
BENT = ("abs", "relu", "sign")  # at 0
CURVED = ("tanh", "erf", "sigmoid", "silu", "gelu_tanh", "gelu_erf", "softplus", "sin", "cos")
STEPS = ("floordiv", "mod", "bitwise_and", "bitwise_or", "bitwise_xor")  # again at each multiple
NARROW = {"int8": 1 << 7, "uint8": 1 << 8, "int16": 1 << 15, "uint16": 1 << 16}
By = Callable[[float, float], float]
# What the other operand is where the result is n and one operand is a constant c.
BEFORE: Mapping[str, By] = {
    "add": lambda c, n: n - c,
    "sub": lambda c, n: n + c,
    "mul": lambda c, n: n / c if c else n,
    "div": lambda c, n: n * c,
    "floordiv": lambda c, n: (n + 1) * c,
    "mod": lambda c, n: n + c,
    "shift_right": lambda c, n: (n + 1) * 2.0 ** min(c, 31),
}
INVERSE: Mapping[str, Callable[[float], float]] = {
    "exp": math.log,
    "exp2": math.log2,
    "log": math.exp,
    "log1p": math.expm1,
    "log2": lambda n: 2.0**n,
    "sqrt": lambda n: n * n,
}
COMPARED = 512  # the greatest limit of positions of those that are tried, and of the usual numbers
SEVERAL = 3  # limits of positions, each of which is tried
BEHIND = 2  # positions behind such a limit
LARGE = 1 << 20  # numbers that are tried; a greater one, such as -1e30, is none that is met
NEAR = 8  # of what functions make of numbers near 1, which are tried in any case
MOST = 4096  # limits that are followed, each to one expression
Limit = tuple[Expr, float]


@dataclass(frozen=True)
class Thresholds:
    """How large each kind of number is at some limit; of positions by the axis of their tiles."""

    positions: dict[str, set[float]] = field(default_factory=dict[str, set[float]])
    floats: set[float] = field(default_factory=set[float])
    integers: set[float] = field(default_factory=set[float])

    def scales(self, most: int = COMPARED) -> tuple[float, float]:
        """How large floats, and integers, must be to be more than limits up to `most`, or 1."""
        each = ([2 * n for n in kind if n <= most] for kind in (self.floats, self.integers))
        floats, integers = (max([1.0, *found]) for found in each)
        return floats, integers


def thresholds(starts: Iterable[Limit], values: Mapping[str, Sequence[Expr]]) -> Thresholds:
    """Those that some limits come from; `values` has those of each name."""
    rest = [*starts]
    found, met = Thresholds(), set[tuple[int, float]]()
    while rest and len(met) < MOST:
        expr, number = rest.pop()
        if (id(expr), number) in met or not math.isfinite(number):
            continue
        met.add((id(expr), number))
        match expr:
            case Load(type=kind):
                (found.floats if is_float(kind.dtype) else found.integers).add(abs(number))
            case TileIndex(axis) | TileScalar(axis, "begin" | "end" | "id"):
                found.positions.setdefault(axis, set()).add(abs(number))
            case Var(name):
                rest += [(value, number) for value in values.get(name, ())]
            case Apply():
                rest += _inside(expr, number)
            case _:
                pass
    return found


def greatest(met: Thresholds, bent: Thresholds) -> tuple[float, float]:
    """Scales for all that are met, and for what functions are bent by, if no usual number is so."""
    floats = met.floats | {n for n in bent.floats if n > NEAR}
    return Thresholds(floats=floats, integers=met.integers).scales(LARGE)


def lengths(axis: str, met: Thresholds, ends: Thresholds) -> list[int]:
    """How many positions of a loop are tried: as many as one is compared with, and more than ranges
    inside begin before a tile, or end behind it: of the largest of those numbers.

    Behind such a number two tiles of the smaller cut are in one of the larger cut in any case.
    """
    found = [(met, BEHIND), (ends, 3 * BEHIND)]
    every = ((n, more) for one, more in found for n in one.positions.get(axis, ()))
    return sorted({int(n) + more for n, more in every if 1 <= n <= COMPARED})[-SEVERAL:]


def sharp(parts: Iterable[Expr]) -> Iterator[Limit]:
    """Those at which a part of a value is another one from one number to the next."""
    for part in parts:
        if isinstance(part, Apply):
            yield from _of(part)


def soft(parts: Iterable[Expr]) -> Iterator[Limit]:
    """Those from which on functions are no straight lines: of less, they are their operands."""
    for part in parts:
        if isinstance(part, Apply) and part.op in CURVED:
            yield part.args[0], 1.0


def _of(expr: Apply) -> Iterator[Limit]:
    """Those that an operation has by itself."""
    kind = expr.type.dtype
    if expr.op in BENT:
        yield expr.args[0], 0.0
    elif expr.op == "cast" and kind in NARROW and expr.args[0].type.dtype != kind:
        yield expr.args[0], float(NARROW[kind])
    elif expr.op in BOUNDS:
        left, right = expr.args
        yield from _between(left, right, 0.0, lambda c, _: c)
    elif expr.op in STEPS and (step := _number(expr.args[1])) is not None:
        yield expr.args[0], step
    elif expr.op == "shift_right" and (step := _number(expr.args[1])) is not None:
        yield expr.args[0], 2.0 ** min(step, 31)


def _inside(expr: Apply, number: float) -> Iterator[Limit]:
    """What the operands are where the result is a number."""
    if expr.op in BEFORE:
        left, right = expr.args
        yield from _between(left, right, number, BEFORE[expr.op])
    elif expr.op in INVERSE:
        yield expr.args[0], _before(expr.op, number)
    else:
        yield from ((side, number) for side in expr.args[expr.op == "where" :])


def _between(left: Expr, right: Expr, number: float, by: By) -> Iterator[Limit]:
    """Of two operands, one of which may be a constant; else each may be all of the result."""
    for side, other in ((left, right), (right, left)):
        constant = _number(other)
        yield side, number if constant is None else by(constant, number)


def _number(expr: Expr) -> float | None:
    """A constant, in whatever shape."""
    while isinstance(expr, Apply) and (expr.op in ("cast", "full") or _is_same(expr.op)):
        if not expr.args:
            return float(expr.attr("value"))
        (expr,) = expr.args
    return float(expr.value) if isinstance(expr, Const) else None


def _is_same(op: str) -> bool:
    return op in OPS and OPS[op].same


def _before(op: str, number: float) -> float:
    """What a function of one number was asked for."""
    try:
        return INVERSE[op](number)
    except (ValueError, OverflowError):
        return number
