"""A share of the matrix that `make citizens` prints."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.citizens.__main__ import page
from tests.citizens.matrix import CELLS, Cell, Row, answered, row, wrong
from tests.citizens.question import question
from tests.subjects import SUBJECTS
from tests.tiers import share
from tilelang.errors import TileError

# Every cell of small examples in every tier; of each other example some, which take turns.
ALWAYS = ("jagged_sum", "layer_norm")
FEW = 2


def _turn(number: int) -> list[str]:
    names = list(CELLS)
    return [names[(number * FEW + n) % len(names)] for n in range(FEW)]


@pytest.mark.parametrize("subject", share([s for s in SUBJECTS if s.name in ALWAYS], 2))
def test_every_cell(subject):
    found = row(subject, list(CELLS))
    assert wrong([found]) == []
    assert [c.name for c in found.cells if c.verdict == "refused"] == ["jax jvp"]


@pytest.mark.parametrize("number", share(range(len(SUBJECTS)), 18, 5, "thorough"))
def test_some_cells(number):
    assert wrong([row(SUBJECTS[number], _turn(number))]) == []


def test_what_is_wrong_is_said():
    """A result, a gradient and an error of somebody else are neither right nor refused."""
    asked = question(next(s for s in SUBJECTS if s.name == "jagged_sum"))
    (one, other), (first, second) = asked.results, asked.gradients
    other_results = replace(asked, results=(tuple(r + 1 for r in one), other))
    other_gradients = replace(asked, gradients=(tuple(g + 1 for g in first), second))
    assert answered("jax jit", other_results).words == "0: error 1.0e+00, allowed 2.2e-04"
    assert answered("jax grad", other_gradients).verdict == "WRONG"
    found = answered("jax jit", replace(asked, kernel=None))
    assert (found.verdict, found.words[:11]) == ("WRONG", "TypeError: ")
    assert answered("jax jit", replace(asked, kernel=_at_fault)).verdict == "WRONG"


def _at_fault(*arguments):
    raise TileError("internal error: a name is missing")


def test_the_page():
    cells = (
        Cell("jax jit", "right"),
        Cell("jax grad", "none", "no argument has a gradient"),
        Cell("jax jvp", "refused", "kernel own has no derivative\n  hint: none"),
        Cell("torch backward", "WRONG", "0: error 1"),
    )
    text = page([Row("own", cells)])
    assert "| own | x | - | [1] |" in text
    assert "| own | **WRONG** |" in text
    assert "1. kernel NAME has no derivative\n" in text
