"""Positions that grow with each step that is written out, of a search by halves."""

from __future__ import annotations

import numpy as np
import pytest
import sympy

import tilelang as tile
import tilelang.language as hl
from tilelang.analysis import symbols
from tilelang.codegen.pallas import long_positions
from tilelang.errors import PlanError
from tilelang.frontend import TensorSpec, parse

OFFSETS = np.array([0, 7, 7, 20, 31, 40], np.int32)
V = np.arange(5, dtype=np.float32)
WANT = np.repeat(V, np.diff(OFFSETS))


@tile.kernel
def searched(v, o, steps: hl.constexpr):
    """y[r] = v[g] of the group that r is in."""
    y = hl.empty([40], dtype=v.dtype)
    for r in hl.grid(40):
        lo = 0
        hi = o.shape[0] - 1
        for _ in range(steps):
            mid = (lo + hi) // 2
            if o[mid] <= r:
                lo = mid
            else:
                hi = mid
        y[r] = v[lo]
    return y


@tile.kernel
def searched_in_a_loop(v, o, steps: hl.constexpr):
    """What the message says to write."""
    y = hl.empty([40], dtype=v.dtype)
    for r in hl.grid(40):
        lo = 0
        hi = o.shape[0] - 1
        for _ in hl.grid(steps):
            mid = (lo + hi) // 2
            if o[mid] <= r:
                lo = mid
            else:
                hi = mid
        y[r] = v[lo]
    return y


def test_a_few_steps_are_written_out():
    np.testing.assert_array_equal(searched(V, OFFSETS, 3), WANT)


@pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])
def test_many_steps_are_a_loop(target):
    with pytest.raises(PlanError, match=r"a position is 1\d,\d{3} operations long") as caught:
        searched.lower(V, OFFSETS, 12, target=target)
    assert caught.value.loc is not None and caught.value.loc.text.strip() == "if o[mid] <= r:"
    assert "for _ in hl.grid(steps)" in caught.value.hint
    np.testing.assert_array_equal(searched_in_a_loop(V, OFFSETS, 12, target=target), WANT)


def test_gpus_name_every_step():
    text = str(searched.source(V, OFFSETS, 12, target="cuda:sm90"))
    assert text.count("tl.load(o") == 12


def parsed(steps):
    given = {"v": TensorSpec((5,), "float32"), "o": TensorSpec((6,), "int32")}
    return parse(searched.__wrapped__, {**given, "steps": steps})


def test_no_proof_multiplies_choices_out():
    found = symbols.scope(parsed(12)).values.values()
    most = max(len(each.atoms(sympy.Piecewise)) for each in found)
    assert 0 < most <= symbols.CHOICES + 1


def test_planted_names_that_count_as_one(monkeypatch):
    with pytest.raises(PlanError):
        long_positions.refuse_long(parsed(12))
    monkeypatch.setattr(long_positions, "definitions", lambda body: {})
    long_positions.refuse_long(parsed(12))
