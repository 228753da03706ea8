"""Scalars of a kernel as sympy expressions."""

from __future__ import annotations

import pytest
import sympy

from tests.analysis import kernels
from tests.analysis.build import INT, Draft, add, carry, end, g, let, load, mul, op, store, sub, var
from tilelang.analysis.symbols import (
    edge,
    opaque,
    position,
    scope,
    symbolic,
    table,
    written,
)
from tilelang.ir import Along, Apply, Const, Load, Type

G = position("g")
offsets = table("offsets")


def to_sympy(expr, ir):
    return symbolic(expr, scope(ir))


def kernel(*body, carries=()):
    d = Draft(offsets=(5,), n=(4,), y=(64,), x=(64,))
    return d.kernel(d.grid("g", 0, 4, *body, carries=carries))


@pytest.mark.parametrize(
    ("expr", "expected"),
    [
        (add(mul(g, 3), 1), 3 * G + 1),
        (load("offsets", add(g, 1)), offsets(G + 1)),
        (op("minimum", load("offsets", g), end("g")), sympy.Min(offsets(G), edge("g", "end"))),
        (op("maximum", g, 2), sympy.Max(G, 2)),
        (op("floordiv", op("floordiv", g, 2), 3), sympy.floor(G / 6)),
        (op("mod", g, 4), sympy.Mod(G, 4)),
        (op("shift_left", g, 3), 8 * G),
        (op("shift_right", g, 1), sympy.floor(G / 2)),
        (op("where", op("gt", g, 1, dtype="bool"), g, 0), sympy.Piecewise((G, G > 1), (0, True))),
        (
            op("cast", op("lt", g, 2, dtype="bool"), dtype="int32"),
            sympy.Piecewise((1, G < 2), (0, True)),
        ),
        (op("logical_not", op("lt", g, 2, dtype="bool"), dtype="bool"), G >= 2),
        (Const(True, Type((), "bool")), sympy.true),
    ],
)
def test_meaning(expr, expected):
    assert to_sympy(expr, kernel()) == expected


@pytest.mark.parametrize(
    "expr",
    [
        op("floordiv", g, 0),
        op("mod", g, load("n", 0)),
        op("bitwise_and", g, 1),
        add(op("cast", g, dtype="uint8"), op("cast", g, dtype="uint8")),
        op("cast", load("x", 0, dtype="float32"), dtype="int32"),
        Load("n", (), INT, mask=op("gt", g, 1, dtype="bool")),
        op("max", load("n", Along("g")), shape=(), axis=0, keepdim=False),
        op("add", op("gt", g, 1, dtype="bool"), op("gt", g, 2, dtype="bool"), dtype="bool"),
    ],
    ids=str,
)
def test_what_is_not_exact_is_unknown(expr):
    """An unknown is a new symbol each time, so that nothing can be concluded from equality."""
    ir = kernel()
    assert to_sympy(expr, ir).atoms(sympy.Dummy)


def test_names_stand_for_their_definitions():
    start = var("start", INT)
    ir = kernel(
        let("start", load("offsets", g)), let("size", sub(load("offsets", add(g, 1)), start))
    )
    assert to_sympy(add(start, var("size", INT)), ir) == offsets(G + 1)


def test_a_carry_is_unknown_and_varies_with_its_loop():
    ir = kernel(carries=[carry("n", Const(0, INT), add(var("n", INT), 1))])
    known = scope(ir)
    assert symbolic(var("n", INT), known) == opaque("n")
    assert known.varies[opaque("n")] == ("g",)
    assert known.varies[opaque("n_out")] == ()


def test_a_load_from_a_stored_tensor_is_unknown_and_its_name_is_one_value():
    ir = kernel(let("first", load("n", 0)), store("n", 0, value=Const(1, INT)))
    assert to_sympy(load("n", 0), ir) != to_sympy(load("n", 0), ir)
    assert to_sympy(var("first", INT), ir) == opaque("first")


def test_written_as_the_author_would():
    ir = kernels.jagged_attention()
    known = scope(ir)
    last = symbolic(ir.axis("tk").end, known)
    assert written(last, known) == "min(offsets[g + 1], tq.end)"
    assert written(sympy.floor(opaque("n") / 2), known) == "floor(n/2)"


def test_unknown_ops_on_scalars_do_not_raise():
    odd = Apply("isnan", (load("x", 0, dtype="float32"),), Type((), "bool"))
    assert isinstance(to_sympy(op("where", odd, g, 0), kernel()), sympy.Piecewise)
