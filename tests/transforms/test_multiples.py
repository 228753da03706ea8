"""Factors that a sum may be multiplied with in parts: neither 0 nor infinite in their own dtype."""

from __future__ import annotations

import pytest

from tilelang.ir import Apply, Const, Type, Var
from tilelang.transforms.multiples import is_multiple


def number(value, dtype="float32"):
    return Const(value, Type((), dtype))


def apply(op, *args, dtype="float32"):
    return Apply(op, args, Type((), dtype))


TOTAL = Var("total", Type((), "float32"))
ROWS = Var("rows", Type((), "int32"))
COUNT = apply("maximum", ROWS, number(1, "int32"), dtype="int32")

FACTORS = {
    "a half": (number(0.5), True),
    "nothing": (number(0.0), False),
    "more than float32 holds": (number(1e60), False),
    "less than float32 holds": (number(1e-60), False),
    "rows, at least one": (apply("cast", COUNT), True),
    "rows": (apply("cast", ROWS), False),
    "rows, as float16": (apply("cast", COUNT, dtype="float16"), False),
    "rows, as bfloat16": (apply("cast", COUNT, dtype="bfloat16"), True),
    "rows, as int8": (apply("cast", apply("cast", COUNT, dtype="int8")), False),
    "a product": (apply("mul", number(1e30), apply("cast", COUNT)), False),
    "an infinite product": (apply("mul", number(1e30), number(1e30)), False),
    "a product that is 0": (apply("mul", number(1e-30), number(1e-30)), False),
    "a quotient": (apply("div", number(1.0), apply("cast", COUNT)), True),
    "an infinite quotient": (apply("div", number(1e30), number(1e-30)), False),
    "a part, as a whole number": (apply("cast", number(0.3), dtype="int32"), False),
}


@pytest.mark.parametrize("name", FACTORS)
def test_factors(name):
    factor, finite = FACTORS[name]
    for op in ("mul", "div"):
        scaled = apply(op, TOTAL, factor)
        assert is_multiple(scaled, {"total"}, lambda e: e == TOTAL) == finite
