"""Intervals, what follows from a loop running, and bounds of expressions."""

from __future__ import annotations

import pytest
import sympy

from tests.analysis import kernels
from tests.analysis.build import Draft, add, g, load, mul, op, store
from tilelang.analysis.ranges import (
    Interval,
    depends,
    extent,
    extreme,
    knowledge,
    nonempty,
    ranges,
    sorted_tables,
    within_tile,
)
from tilelang.analysis.symbols import edge, position, scope, table
from tilelang.ir import Span

G, TM = position("g"), position("tm")
offsets = table("offsets")


def of(ir):
    return ranges(ir, scope(ir))


def loop(first, last):
    d = Draft(offsets=(5,), n=(4,), y=(64, 48))
    return of(d.kernel(d.grid("g", 0, 4, d.tile("tm", first, last, store("y", "tm", Span(0, 48))))))


def test_interval():
    known = of(kernels.grouped_gemm())
    assert known.intervals["tm"] == Interval(offsets(G), offsets(G + 1))
    assert known.sorted == {("offsets", 0)}
    assert known.around["tn"] == ("g", "tm")


def test_tables_of_a_range():
    assert set(sorted_tables(Interval(offsets(G), offsets(G + 1)))) == {("offsets", 0)}
    assert set(sorted_tables(Interval(sympy.S.Zero, offsets(G + 1) - offsets(G)))) == {
        ("offsets", 0)
    }
    assert set(sorted_tables(Interval(offsets(2, G), offsets(2, G + 1)))) == {("offsets", 1)}
    assert not set(sorted_tables(Interval(offsets(G), offsets(G + 2))))
    assert not set(sorted_tables(Interval(offsets(G), table("ends")(G + 1))))
    narrowed = Interval(sympy.Max(offsets(G), 3), sympy.Min(offsets(G + 1), 7))
    assert set(sorted_tables(narrowed)) == {("offsets", 0)}


def test_limits_and_conditions_do_not_make_a_tensor_sorted():
    first, second = table("n")(G), table("n")(G + 1)
    assert not set(sorted_tables(Interval(sympy.S.Zero, sympy.Min(first, second))))
    assert not set(sorted_tables(Interval(sympy.S.Zero, first + second)))
    assert not set(sorted_tables(Interval(second, first)))
    chosen = sympy.Piecewise((TM, first < second), (0, True))
    assert not set(sorted_tables(Interval(sympy.S.Zero, chosen)))
    assert not set(sorted_tables(Interval(offsets(first), offsets(second))))


@pytest.mark.parametrize(
    ("first", "last", "runs"),
    [
        (0, 4, True),
        (0, 0, False),
        (4, 2, False),
        (mul(g, 16), add(mul(g, 16), 16), True),
        (0, add(g, 1), True),
        (0, g, False),
        (load("offsets", g), load("offsets", add(g, 1)), False),
        (load("n", g), add(load("n", g), 1), True),
        (load("n", g), op("maximum", add(load("n", g), 1), 7), True),
        (load("n", g), op("minimum", add(load("n", g), 1), 7), False),
    ],
)
def test_nonempty(first, last, runs):
    assert nonempty("tm", loop(first, last)) is runs


def test_nonempty_through_the_loops_around():
    assert nonempty("tk", of(kernels.jagged_attention()))
    assert nonempty("tk", of(kernels.sliding_window()))
    assert not nonempty("tm", of(kernels.conditional_range()))


@pytest.mark.parametrize(
    ("first", "last", "length"),
    [(0, 4, 4), (4, 2, 0), (mul(g, 16), add(mul(g, 16), 16), 16), (0, g, None)],
)
def test_extent(first, last, length):
    assert extent("tm", loop(first, last)) == length


def test_depends_on_the_axes_around():
    assert depends("tk", of(kernels.jagged_attention())) == ("g", "tq")
    assert depends("tn", of(kernels.grouped_gemm())) == ()


@pytest.mark.parametrize(
    ("expr", "low", "high"),
    [
        (TM, offsets(G), offsets(G + 1) - 1),
        (2 * TM + 1, 2 * offsets(G) + 1, 2 * offsets(G + 1) - 1),
        (-TM, 1 - offsets(G + 1), -offsets(G)),
        (TM + G, offsets(G) + G, offsets(G + 1) + G - 1),
        (edge("tm", "begin"), offsets(G), offsets(G + 1) - 1),
        (edge("tm", "end"), offsets(G) + 1, offsets(G + 1)),
        (edge("tm", "id"), 0, sympy.oo),
        (sympy.Min(TM, 9), sympy.Min(offsets(G), 9), sympy.Min(offsets(G + 1) - 1, 9)),
        (sympy.Mod(TM, 8), 0, 7),
        (TM * G, -sympy.oo, sympy.oo),
        (table("perm")(TM), -sympy.oo, sympy.oo),
        (offsets(TM), offsets(offsets(G)), offsets(offsets(G + 1) - 1)),
        (
            sympy.Piecewise((TM, G > 1), (3, True)),
            sympy.Min(3, offsets(G)),
            sympy.Max(3, offsets(G + 1) - 1),
        ),
        (G, G, G),
    ],
)
def test_bounds_over_an_inner_loop(expr, low, high):
    known = of(kernels.grouped_gemm())
    assert extreme(expr, False, ["tm"], known) == low
    assert extreme(expr, True, ["tm"], known) == high


def test_bounds_over_a_tile():
    assert within_tile(TM + G, "tm", True) == edge("tm", "end") - 1 + G
    assert within_tile(3 - TM, "tm", True) == 3 - edge("tm", "begin")
    assert within_tile(TM * TM, "tm", True) is None
    assert within_tile(sympy.Min(TM, 3), "tm", True) is None


def test_a_loop_that_runs_has_positions():
    known = of(kernels.jagged_attention())
    facts = knowledge(("tq",), known).facts
    assert edge("tq", "end") - edge("tq", "begin") - 1 in facts
