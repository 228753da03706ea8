"""explicit_casts: every op computes in a dtype that Triton computes in, and means the same."""

from __future__ import annotations

from functools import partial

import pytest

from tests.passes.becomes import becomes
from tests.schedule.written import Writing, add, positions
from tilelang.codegen.triton.passes.explicit_casts import explicit_casts
from tilelang.ir import Expr, KernelIR
from tilelang.language import build


def binary(op: str, a: Expr | float, b: Expr | float) -> Expr:
    return build.binary(op, a, b, None)


def unary(op: str, x: Expr) -> Expr:
    return build.unary(op, x, None)


def cast(x: Expr, dtype: str) -> Expr:
    return build.cast(x, dtype, None)


def kernel(value, result: str, *dtypes: str) -> KernelIR:
    """y[t] = value(x[t], ...) with inputs of these dtypes."""
    k = Writing()
    names = ("x", "z")[: len(dtypes)]
    for name, dtype in zip(names, dtypes, strict=True):
        k.input(name, 64, dtype=dtype)
    k.output("y", 64, dtype=result)
    with k.tile("t", 0, 64):
        k.store("y", "t", value=value(*(k.load(n, "t") for n in names)))
    return k.ir()


def reduced(op: str, dtype: str, result: str) -> KernelIR:
    k = Writing()
    k.input("x", 64, 32, dtype=dtype)
    k.output("y", 64, dtype=result)
    with k.tile("t", 0, 64):
        rows = k.load("x", "t", slice(None))
        k.store("y", "t", value=build.reduce(op, rows, 1, False, None))
    return k.ir()


# name -> kernel, y[t] before, y[t] after
CASES = {
    "16-bit floats compute in float32": (
        kernel(add, "bfloat16", "bfloat16", "bfloat16"),
        "x[t] + z[t]",
        "cast(cast(x[t], float32) + cast(z[t], float32), bfloat16)",
    ),
    "float32 stays": (kernel(add, "float32", "float32", "float32"), "x[t] + z[t]", "x[t] + z[t]"),
    "integers become 16-bit floats in two steps": (
        kernel(lambda x: cast(x, "bfloat16"), "bfloat16", "int16"),
        "cast(x[t], bfloat16)",
        "cast(cast(x[t], float32), bfloat16)",
    ),
    "those of 8 bits in one": (
        kernel(lambda x: cast(x, "bfloat16"), "bfloat16", "int8"),
        "cast(x[t], bfloat16)",
        "cast(x[t], bfloat16)",
    ),
    "but not 8-bit floats": (
        kernel(lambda x: cast(x, "float8_e5m2"), "float8_e5m2", "int8"),
        "cast(x[t], float8_e5m2)",
        "cast(cast(x[t], float32), float8_e5m2)",
    ),
    "truth of a 16-bit float": (
        kernel(lambda x: cast(x, "bool"), "bool", "float16"),
        "cast(x[t], bool)",
        "cast(x[t], float32) != 0.0",
    ),
    "integers of any sign are divided down": (
        kernel(lambda x: binary("floordiv", x, 4), "int32", "int32"),
        "x[t] // 4",
        "x[t] // 4",
    ),
    "integers that are not negative are divided by the hardware": (
        kernel(
            lambda x: add(binary("floordiv", positions("t"), 4), binary("mod", positions("t"), 4)),
            "int32",
            "int32",
        ),
        "t.index // 4 + t.index % 4",
        "quotient(t.index, 4) + remainder(t.index, 4)",
    ),
    "integers divided are floats": (
        kernel(partial(binary, "div"), "float32", "int32", "int32"),
        "cast(x[t], float32) / cast(z[t], float32)",
        "cast(x[t], float32) / cast(z[t], float32)",
    ),
    "floats are divided down": (
        kernel(partial(binary, "floordiv"), "float32", "float32", "float32"),
        "x[t] // z[t]",
        "floor(x[t] / z[t])",
    ),
    "a whole power": (
        kernel(lambda x: binary("pow", x, 3), "float32", "float32"),
        "pow(x[t], 3)",
        "power(x[t], 3, bits=2)",
    ),
    "a negative whole power": (
        kernel(lambda x: binary("pow", x, -2), "float32", "float32"),
        "pow(x[t], -2)",
        "1.0 / power(x[t], 2, bits=2)",
    ),
    "a power of integers": (
        kernel(partial(binary, "pow"), "int32", "int32", "int32"),
        "pow(x[t], z[t])",
        "power(x[t], z[t], bits=31)",
    ),
    "a power of a number": (
        kernel(lambda x: binary("pow", 2, x), "int32", "int32"),
        "pow(2, x[t])",
        "power(2, x[t], bits=31)",
    ),
    "a power of floats": (
        kernel(partial(binary, "pow"), "float32", "float32", "float32"),
        "pow(x[t], z[t])",
        "pow(x[t], z[t])",
    ),
    "relu": (
        kernel(partial(unary, "relu"), "float32", "float32"),
        "relu(x[t])",
        "maximum(x[t], 0.0)",
    ),
    "isfinite": (
        kernel(partial(unary, "isfinite"), "bool", "float32"),
        "isfinite(x[t])",
        "abs(x[t]) < inf",
    ),
    "isnan": (kernel(partial(unary, "isnan"), "bool", "float32"), "isnan(x[t])", "x[t] != x[t]"),
    "any is the largest of 0 and 1": (
        reduced("any", "bool", "bool"),
        "any(x[t, 0:32], axis=1)",
        "max(cast(x[t, 0:32], int32), axis=1) != 0",
    ),
    "extremes of 16-bit floats": (
        reduced("max", "bfloat16", "bfloat16"),
        "max(x[t, 0:32], axis=1)",
        "cast(max(cast(x[t, 0:32], float32), axis=1), bfloat16)",
    ),
    "extremes of small integers, which Triton makes int32": (
        reduced("min", "int8", "int8"),
        "min(x[t, 0:32], axis=1)",
        "cast(min(cast(x[t, 0:32], int32), axis=1), int8)",
    ),
    "where the largest 16-bit float is": (
        reduced("argmax", "bfloat16", "int32"),
        "argmax(x[t, 0:32], axis=1)",
        "argmax(cast(x[t, 0:32], float32), axis=1)",
    ),
    "sums of small integers": (
        reduced("sum", "int8", "int32"),
        "sum(cast(x[t, 0:32], int32), axis=1)",
        "sum(cast(x[t, 0:32], int32), axis=1)",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_an_op_becomes(name):
    ir, before, after = CASES[name]
    texts = (f"for t in tile(64):\n    y[t] = {value}\n" for value in (before, after))
    becomes(ir, explicit_casts, *texts)


def test_ranges_are_divided_by_the_hardware_too():
    k = Writing()
    k.output("y", 64)
    with k.grid("g", 0, 4) as g, k.tile("t", binary("floordiv", g, 2), 32, 64):
        k.store("y", "t", value=cast(positions("t"), "float32"))
    becomes(
        k.ir(),
        explicit_casts,
        """
        for g in grid(4):
            for t in tile(g // 2, 32, max_extent=64):
                y[t] = cast(t.index, float32)
        """,
        """
        for g in grid(4):
            for t in tile(quotient(g, 2), 32, max_extent=64):
                y[t] = cast(t.index, float32)
        """,
    )
