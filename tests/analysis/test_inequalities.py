"""The prover: what it can show, what it uses, and what it must not show."""

from __future__ import annotations

import pytest
import sympy
from sympy import Max, Min, Mod, Piecewise, floor

from tilelang.analysis.inequalities import Knowledge, linear, prove

a, b, c, n = sympy.symbols("a b c n", integer=True)
T, U = (sympy.Function(name, integer=True) for name in "TU")
SORTED = frozenset({("T", 0)})


def proves(smaller, larger, *facts, tables=frozenset()):
    return prove(sympy.sympify(smaller), sympy.sympify(larger), Knowledge(facts, tables))


@pytest.mark.parametrize(
    ("smaller", "larger", "facts"),
    [
        (3, 3, ()),
        (a, a + 1, ()),
        (a, c, (b - a, c - b)),
        (2 * a, 2 * c, (b - a, c - b)),
        (a + 1, c, (b - a, c - b - 1)),
        (Min(a, b), a, ()),
        (a, Max(a, b), ()),
        (Max(a, b), c, (c - a, c - b)),
        (c, Min(a, b), (a - c, b - c)),
        (Min(a, b), Max(a, b), ()),
        (Piecewise((a, n > 0), (b, True)), c, (c - a, c - b)),
        (floor(a / 2), floor(b / 2), (b - a,)),
        (2 * floor(a / 2), a, ()),
        (a, 2 * floor(a / 2) + 1, ()),
        (Mod(a, 4), 3, ()),
        (0, Mod(a, 4), ()),
        (4 * a + 4, 4 * b, (b - a - 1,)),
    ],
)
def test_true(smaller, larger, facts):
    assert proves(smaller, larger, *facts) == frozenset()


@pytest.mark.parametrize(
    ("smaller", "larger", "facts"),
    [
        (4, 3, ()),
        (a, b, ()),
        (a, b, (a - b,)),
        (a + 1, c, (b - a, c - b)),
        (a, Min(a, b), ()),
        (Max(a, b), a, ()),
        (Piecewise((a, n > 0), (b, True)), a, ()),
        (floor(a / 2) + 1, floor(b / 2), (b - a - 1,)),
        (Mod(a, 4), 2, ()),
        (a * n, b * n, (b - a,)),
        (T(a), T(b), (b - a,)),
        (a, sympy.oo, ()),
        (-sympy.oo, sympy.oo, ()),
        (a, sympy.nan, ()),
    ],
)
def test_not_proved(smaller, larger, facts):
    assert proves(smaller, larger, *facts) is None


def test_sorted_tensors_are_named():
    assert proves(T(a + 1), T(b), b - a - 1, tables=SORTED) == {"T"}
    assert proves(T(a), T(a), tables=SORTED) == frozenset()


def test_only_the_index_that_is_sorted_counts():
    assert proves(T(n, a), T(n, b), b - a, tables=frozenset({("T", 1)})) == {"T"}
    assert proves(T(n, a), T(n, b), b - a, tables=SORTED) is None
    assert proves(T(n, a), T(n + 1, b), b - a, tables=frozenset({("T", 1)})) is None
    assert proves(T(b), T(a), b - a, tables=SORTED) is None
    assert proves(T(a), U(b), b - a, tables=SORTED) is None


def test_sorted_tensors_within_sorted_tensors():
    both = frozenset({("T", 0), ("U", 0)})
    assert proves(T(U(a + 1)), T(U(b)), b - a - 1, tables=both) == {"T", "U"}
    assert proves(T(U(a + 1)), T(U(b)), b - a - 1, tables=SORTED) is None


def test_an_atom_that_a_fact_brings_in_meets_a_sorted_one():
    facts = (T(a + 1) - n, b - a - 1)
    assert proves(n, T(b), *facts, tables=SORTED) == {"T"}


def test_linear_forms():
    assert linear(2 * a - a / 2 + 3) == {a: sympy.Rational(3, 2), sympy.S.One: 3}
    assert linear(a + sympy.oo) is None
