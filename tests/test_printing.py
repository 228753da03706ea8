"""What str(ir) prints: every form of the IR, and parentheses only where they are needed."""

from __future__ import annotations

import pytest

from tilelang.errors import Loc
from tilelang.ir import (
    Along,
    Apply,
    Assign,
    At,
    Axis,
    Const,
    Gather,
    GridIndex,
    KernelIR,
    Load,
    Loop,
    Param,
    Span,
    Store,
    Tensor,
    TileIndex,
    TileScalar,
    Type,
    Var,
    View,
)
from tilelang.ir.text import expression

LOC = Loc("kernel.py", 1, 0, 1, "x")
INT, F32, BOOL = Type((), "int32"), Type((), "float32"), Type((), "bool")
A, B, C = (Var(n, INT) for n in "abc")
TM = TileIndex("tm", Type(("tm",), "int32"))


def op(name, *args, kind=INT, **attrs):
    return Apply(name, args, kind, tuple(attrs.items()))


EXPRESSIONS = [
    (op("add", op("mul", A, B), C), "a * b + c"),
    (op("mul", op("add", A, B), C), "(a + b) * c"),
    (op("sub", A, op("sub", B, C)), "a - (b - c)"),
    (op("sub", op("sub", A, B), C), "a - b - c"),
    (op("floordiv", A, op("mod", B, C)), "a // (b % c)"),
    (op("mul", op("neg", A), Const(-2, INT)), "-a * -2"),
    (op("neg", op("add", A, B)), "-(a + b)"),
    (op("lt", op("add", A, B), C, kind=BOOL), "a + b < c"),
    (op("eq", op("lt", A, B), op("lt", B, C), kind=BOOL), "(a < b) == (b < c)"),
    (op("logical_and", op("lt", A, B), op("logical_or", A, B)), "a < b and (a or b)"),
    (op("logical_not", op("eq", A, B)), "not a == b"),
    (op("minimum", A, op("add", B, C)), "minimum(a, b + c)"),
    (op("cast", A, kind=F32), "cast(a, float32)"),
    (op("sum", A, axis=0, keepdim=False), "sum(a, axis=0)"),
    (op("sum", A, axis=0, keepdim=True), "sum(a, axis=0, keepdim=True)"),
    (op("full", kind=Type(("tm", 4), "float32"), value=0.0), "full([tm, 4], float32, value=0.0)"),
    (op("reshape", A, kind=Type((2, "tm"), "int32")), "reshape(a, [2, tm])"),
    (op("arange", kind=Type((4,), "int32"), start=0, step=1), "arange(4)"),
    (op("where", A, B, C), "where(a, b, c)"),
    (TM, "tm.index"),
    (TileScalar("tm", "begin"), "tm.begin"),
    (GridIndex("g"), "g"),
    (Load("x", (At(A), Along("tm"), Span(0, 4)), F32), "x[a, tm, 0:4]"),
    (Load("x", (Along("tm", op("sub", A, B)),), F32), "x[tm + (a - b)]"),
    (
        Load("x", (Gather(TM),), F32, op("lt", A, B), 1.5),
        "load(x[rows(tm.index)], mask=a < b, other=1.5)",
    ),
]


@pytest.mark.parametrize("expr, text", EXPRESSIONS, ids=[t for _, t in EXPRESSIONS])
def test_expression(expr, text):
    assert expression(expr) == text


def _kernel(body, axes, structure="single", returns=("y",)):
    tensors = (
        Tensor("x", (8, 4), "float32", "input", LOC, mutated=True),
        Tensor("y", (8,), "float32", "output", LOC),
        Tensor("z", (8,), "int32", "output", LOC, fill=3),
        Tensor("v", (4, 8), "float32", "view", LOC, view=View("x", "permute", (1, 0))),
    )
    params = (Param("x", "x"), Param("scale", None, 2.0))
    return KernelIR("k", params, tensors, axes, body, returns, structure, LOC)


def test_a_kernel():
    axes = (
        Axis("g", "grid", A, B, 5, None, LOC, "g"),
        Axis("tm", "tile", Const(0, INT), Const(8, INT), 8, "tm", LOC, "tm"),
        Axis("tn", "tile", Const(2, INT), Const(8, INT), 6, 16, LOC, "tn"),
    )
    store = Store("y", (Along("tm"),), Var("b", F32), LOC, op("lt", A, B, kind=BOOL))
    inner = Loop("tm", (Assign("b", Const(1.0, F32), LOC, "b"), store), (), LOC)
    body = (Loop("g", (inner,), (), LOC), Loop("tn", (), (), LOC))
    assert str(_kernel(body, axes)) == (
        "kernel k(x, scale=2.0) -> y\n"
        "  x: float32[8, 4], mutated\n"
        "  y: float32[8], output, empty\n"
        "  z: int32[8], output, filled with 3\n"
        "  v: float32[4, 8] = x.permute(1, 0)\n"
        "\n"
        "for g in grid(a, b, max_extent=5):\n"
        "    for tm in tile(8):\n"
        "        b: float32[] = 1.0\n"
        "        y[tm] = b where a < b\n"
        "\n"
        "for tn in tile(2, 8, block=16):\n"
        "    pass\n"
    )


@pytest.mark.parametrize(
    "structure, returns, text",
    [
        ("none", (), "kernel k(x, scale=2.0)\n"),
        ("tuple", ("y",), "kernel k(x, scale=2.0) -> (y,)\n"),
        ("tuple", ("y", "z"), "kernel k(x, scale=2.0) -> (y, z)\n"),
        ("list", ("y", "z"), "kernel k(x, scale=2.0) -> [y, z]\n"),
    ],
)
def test_what_is_returned(structure, returns, text):
    assert str(_kernel((), (), structure, returns)).startswith(text)
