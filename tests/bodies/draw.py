"""drawn(rng) -> Body: a random statement, over operations x dtypes x places.

A place is where a value lies: a number, a row (along the columns of arrays), a column (along the
tile), a block, a side (a number of each head along the tile) or heads (a row of each).  Trees are
small: what a compiler refuses is one operation, or two in a row.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Literal

from tilelang.language.dtypes import is_float, is_float8


def names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


Place = Literal["number", "row", "column", "block", "side", "heads"]
Frame = Literal[
    "tile", "grid", "fold", "inner", "steps", "update", "gather", "scatter", "heads", "weigh"
]
PLACES: tuple[Place, ...] = ("number", "row", "column", "block", "side", "heads")
FLAT: tuple[Place, ...] = ("number", "row", "column", "block")
FLOATS = ("float32", "bfloat16", "float8_e4m3fn", "float8_e5m2")
INTEGERS = ("int32", "uint32", "int16", "int8", "uint8")
DTYPES = (*FLOATS, *INTEGERS, "bool")
OFTEN = ("bfloat16", "bool", "bfloat16", "float32", "int32", "bool")  # besides one of all

UNARY = {
    "float": names(
        "neg abs exp exp2 log log1p log2 sqrt rsqrt sin cos tanh erf sigmoid silu relu softplus"
        " floor ceil round trunc sign"
    ),
    "int": names("neg abs relu sign bitwise_not"),
    "bool": names("logical_not"),
}
BINARY = {
    "float": names("add sub mul div floordiv mod pow minimum maximum"),
    "int": names(
        "add sub mul floordiv mod minimum maximum bitwise_and bitwise_or bitwise_xor"
        " shift_left shift_right"
    ),
    "bool": names("logical_and logical_or logical_xor"),
}
COMPARE = names("eq ne lt le gt ge")
FOLDS = {
    "float": names("sum max min mean"),
    "int": names("sum max min"),
    "bool": names("any all max min"),
}
TESTS = names("isnan isfinite")
UPDATES = names("add max min")
CARRIED = {
    "float": names("add maximum"),
    "int": names("add minimum bitwise_xor"),
    "bool": names("logical_or logical_and logical_xor"),
}
# Place of a result -> of the operands that it can be made of.
MEETS: dict[Place, tuple[tuple[Place, Place], ...]] = {
    "number": (("number", "number"),),
    "row": (("row", "row"), ("row", "number"), ("number", "row")),
    "column": (("column", "column"), ("column", "number"), ("number", "column")),
    "block": (
        ("block", "block"), ("block", "row"), ("block", "column"), ("column", "block"),
        ("row", "block"), ("column", "row"), ("number", "block"), ("block", "number"),
    ),
    "side": (
        ("side", "side"), ("side", "column"), ("column", "side"), ("side", "number"),
        ("number", "side"),
    ),
    "heads": (
        ("heads", "heads"), ("heads", "block"), ("block", "heads"), ("heads", "side"),
        ("side", "heads"), ("side", "block"), ("side", "row"), ("heads", "row"),
        ("column", "heads"), ("heads", "number"),
    ),
}  # fmt: skip
# Place of a result -> of what is folded, and along which dimension.
FOLDED: dict[Place, tuple[tuple[Place, int], ...]] = {
    "number": (("row", 0), ("column", 0)),
    "row": (("block", 0),),
    "column": (("block", 1), ("side", 1)),
    "block": (("heads", 1),),
    "side": (("heads", 2),),
    "heads": (),
}
# Place of a result -> of what is multiplied and summed, with the sum.
PRODUCTS: dict[Place, tuple[tuple[Place, Place, str], ...]] = {
    "number": (),
    "row": (),
    "column": (("block", "block", "td,td->t"), ("side", "side", "th,th->t")),
    "block": (("side", "heads", "th,thd->td"),),
    "side": (("heads", "heads", "thd,thd->th"), ("heads", "block", "thd,td->th")),
    "heads": (("side", "block", "th,td->thd"), ("side", "heads", "th,thd->thd")),
}
PARTS: dict[Place, tuple[str, ...]] = {
    "block": ("turned", "parted", "joined"),
    "side": ("turned", "joined"),
    "heads": ("turned", "parted", "joined", "flat"),
}
# Frame -> where values may lie, and what may be stored or carried.
INSIDE: dict[Frame, tuple[Place, ...]] = {
    "tile": FLAT,
    "grid": ("number", "row"),
    "fold": FLAT,
    "inner": FLAT,
    "steps": ("number", "row"),
    "update": FLAT,
    "gather": FLAT,
    "scatter": FLAT,
    "heads": PLACES,
    "weigh": PLACES,
}
MADE: dict[Frame, tuple[Place, ...]] = {
    "tile": ("column", "block"),
    "grid": ("number", "row"),
    "fold": ("number", "row"),
    "inner": ("number", "column"),
    "steps": ("number", "row"),
    "update": ("number", "row", "column", "block"),
    "gather": ("column", "block"),
    "scatter": ("block",),
    "heads": ("block", "side", "heads"),
    "weigh": ("block", "side", "heads"),
}


@dataclass(frozen=True)
class Value:
    """A value: an operation of others, or an array that is read (`op` is "read", or "lifted")."""

    op: str
    place: Place
    dtype: str
    args: tuple[Value, ...] = ()
    axis: int = 0
    summed: str = ""  # of a product

    def parts(self) -> list[Value]:
        return [self, *(p for a in self.args for p in a.parts())]


@dataclass(frozen=True)
class Body:
    """What a frame does with a value: stores it, carries it, or updates with it (`combine`).

    dtype  of the carry, which may differ from the value's; of what is stored
    fixed  rows of a tile, if the author says how many: a result may go by that
    """

    frame: Frame
    value: Value
    dtype: str
    combine: str = ""
    fixed: int = 0


def kind(dtype: str) -> str:
    return "bool" if dtype == "bool" else "float" if is_float(dtype) else "int"


def drawn(rng: random.Random) -> Body:
    """A random body."""
    frame: Frame = rng.choice(tuple(MADE))
    place, dtype = rng.choice(MADE[frame]), _dtype(rng)
    value = _value(rng, frame, place, dtype, rng.choice((1, 1, 1, 2, 2, 3)))
    return Body(frame, value, dtype, _combine(rng, frame, dtype))


def _combine(rng: random.Random, frame: Frame, dtype: str) -> str:
    match frame:
        case "update":
            return rng.choice(UPDATES)
        case "scatter":
            return rng.choice(("", *UPDATES)) if dtype != "bool" else ""
        case "fold" | "inner" | "steps":
            return rng.choice(CARRIED[kind(dtype)])
        case "weigh":
            return rng.choice(CARRIED[kind(dtype)][:2])  # what sums of tiles are
        case _:
            return ""


def _dtype(rng: random.Random) -> str:
    return rng.choice(OFTEN) if rng.random() < 0.5 else rng.choice(DTYPES)


def _value(rng: random.Random, frame: Frame, place: Place, dtype: str, depth: int) -> Value:
    if depth == 0:
        return Value("read", place, dtype)
    made = rng.choice(
        (_unary, _binary, _binary, _chosen, _tested, _folded, _cast, _shaped, _product)
    )
    found = made(rng, frame, place, dtype, depth - 1)
    return found or _cast(rng, frame, place, dtype, depth - 1)


def _unary(rng: random.Random, frame: Frame, place: Place, dtype: str, rest: int) -> Value | None:
    if is_float8(dtype):
        return None
    op = rng.choice(UNARY[kind(dtype)])
    return Value(op, place, dtype, (_value(rng, frame, place, dtype, rest),))


def _binary(rng: random.Random, frame: Frame, place: Place, dtype: str, rest: int) -> Value | None:
    if is_float8(dtype):
        return None
    op = rng.choice(BINARY[kind(dtype)])
    return Value(op, place, dtype, _pair(rng, frame, place, dtype, rest))


def _pair(
    rng: random.Random, frame: Frame, place: Place, dtype: str, rest: int
) -> tuple[Value, Value]:
    able = [m for m in MEETS[place] if {*m} <= {*INSIDE[frame]}]
    a, b = rng.choice(able)
    return _value(rng, frame, a, dtype, rest), _value(rng, frame, b, dtype, 0)


def _tested(rng: random.Random, frame: Frame, place: Place, dtype: str, rest: int) -> Value | None:
    """A comparison, or a test of floats; of what is no bool, what is chosen by one."""
    if dtype != "bool":
        return None
    of = _dtype(rng)
    if is_float(of) and rng.random() < 0.2:
        return Value(rng.choice(TESTS), place, "bool", (_value(rng, frame, place, of, rest),))
    op = rng.choice(COMPARE if of != "bool" else COMPARE[:2])
    return Value(op, place, "bool", _pair(rng, frame, place, of, rest))


def _chosen(rng: random.Random, frame: Frame, place: Place, dtype: str, rest: int) -> Value:
    a, b = _pair(rng, frame, place, dtype, 0)
    mask = _value(rng, frame, rng.choice((place, a.place)), "bool", rest)
    return Value("where", place, dtype, (mask, a, b))


def _folded(rng: random.Random, frame: Frame, place: Place, dtype: str, rest: int) -> Value | None:
    able = [f for f in FOLDED[place] if f[0] in INSIDE[frame]]
    if not able or is_float8(dtype):
        return None
    of, axis = rng.choice(able)
    if dtype == "int32" and rng.random() < 0.5:
        value = _value(rng, frame, of, _dtype(rng), rest)
        op = rng.choice(("argmax", "argmin"))
        return None if is_float8(value.dtype) else Value(op, place, dtype, (value,), axis)
    op = rng.choice(FOLDS[kind(dtype)])
    folded = Value(op, place, dtype, (_value(rng, frame, of, dtype, rest),), axis)
    widened = {"int8": "int32", "int16": "int32", "uint8": "uint32"}.get(dtype)
    return folded if op != "sum" or widened is None else Value("cast", place, dtype, (folded,))


def _cast(rng: random.Random, frame: Frame, place: Place, dtype: str, rest: int) -> Value:
    value = _value(rng, frame, place, _dtype(rng), rest)
    if dtype.startswith("u") and value.dtype != "bool" and not is_float8(value.dtype):
        value = Value("abs", place, value.dtype, (value,))  # no unsigned number is below 0
    return Value("cast", place, dtype, (value,))


def _shaped(rng: random.Random, frame: Frame, place: Place, dtype: str, rest: int) -> Value | None:
    """The same value in other words: turned twice, in parts; two joined; a lifted number."""
    if place in PARTS:
        op = rng.choice(PARTS[place]) if frame != "inner" else "turned"
        args = [_value(rng, frame, place, dtype, rest)]
        if op == "joined":
            args.append(_value(rng, frame, place, dtype, 0))
        return Value(op, place, dtype, tuple(args))
    if place in ("row", "column"):
        number = _value(rng, frame, "number", dtype, rest)
        return Value("lifted", place, dtype, (number, Value("read", place, dtype)))
    return None


def _product(rng: random.Random, frame: Frame, place: Place, dtype: str, rest: int) -> Value | None:
    """Products of rows, each with one of its own; or a softmax of them."""
    able = [p for p in PRODUCTS[place] if {*p[:2]} <= {*INSIDE[frame]}]
    if not able or frame == "inner" or dtype not in ("float32", "bfloat16"):
        return None
    if place in PARTS and rng.random() < 0.3:
        return Value("softmax", place, dtype, (_value(rng, frame, place, dtype, rest),))
    a, b, summed = rng.choice(able)
    args = (_value(rng, frame, a, dtype, rest), _value(rng, frame, b, dtype, 0))
    return Value("einsum", place, dtype, args, summed=summed)
