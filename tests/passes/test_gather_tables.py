"""gather_tables: what selects pick from a table, as one load at positions that are a block."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.passes.becomes import becomes, floats, ir_of, stays
from tilelang.codegen.triton.passes.gather_tables import FEW, gather_tables
from tilelang.reference import evaluate

gather_tables_file = sys.modules[gather_tables.__module__]
PLACES = np.array([[-7, 0, 1], [2, 4, 900]], np.int32)


@tile.kernel
def biased(x, bias, places):
    y = hl.zeros(x.shape, dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :] + bias[1, places[t, :]]
    return y


@tile.kernel
def changed(bias, places):
    """The table is stored to between two looks."""
    y = hl.zeros([2, 3], dtype=hl.float32)
    for t in hl.tile(2):
        bias[0] = 1.0
        y[t, :] = bias[places[t, :]]
    return y, bias


@tile.kernel
def by_hand(x, bias):
    """Selects that skip a number of the table."""
    y = hl.zeros(x.shape, dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        at = hl.where(x[t, :] >= 1, bias[1], bias[0])
        for n in hl.static_range(3, 9):
            at = hl.where(x[t, :] >= n, bias[n], at)
        y[t, :] = at
    return y


def args(entries, dtype=np.float32):
    return floats(2, 3), floats(2, entries).astype(dtype), PLACES


BEFORE = """
    for t in tile(2):
        bias_place: int32[t, 3] = places[t, 0:3]
        bias_at: float32[t, 3] = where(bias_place >= 1, bias[1, 1], full(bias[1, 0], [t, 3], float32))
        bias_at_1: float32[t, 3] = where(bias_place >= 2, bias[1, 2], bias_at)
        bias_at_2: float32[t, 3] = where(bias_place >= 3, bias[1, 3], bias_at_1)
        bias_at_3: float32[t, 3] = where(bias_place >= 4, bias[1, 4], bias_at_2)
        y[t, 0:3] = x[t, 0:3] + bias_at_3
    """
AFTER = """
    for t in tile(2):
        bias_place: int32[t, 3] = places[t, 0:3]
        bias_at_3: float32[t, 3] = bias[1, rows(minimum(maximum(bias_place, 0), 4))]
        y[t, 0:3] = x[t, 0:3] + bias_at_3
    """


def test_a_long_table_is_one_load():
    becomes(ir_of(biased, *args(FEW + 1)), gather_tables, BEFORE, AFTER)


def test_a_few_selects_stay():
    stays(ir_of(biased, *args(FEW)), gather_tables)


def test_a_table_that_is_stored_to_stays():
    stays(ir_of(changed, floats(9), PLACES), gather_tables)


def test_other_selects_stay():
    stays(ir_of(by_hand, PLACES, floats(9)), gather_tables)


def right(dtype=np.float32):
    ir, given = ir_of(biased, *args(9, dtype)), args(9, dtype)
    arrays = dict(zip(("x", "bias", "places"), given, strict=True))
    wanted, found = evaluate(ir, arrays)["y"], evaluate(gather_tables(ir), arrays)["y"]
    return np.array_equal(wanted, found)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.int32])
def test_it_means_the_same(dtype):
    assert right(dtype)


@pytest.mark.parametrize("moved", [{"last": 7}, {"first": 1}, {"dim": 0}], ids=str)
def test_planted(moved, monkeypatch):
    """Clamped to other numbers, or along the other dimension, of which it has 9 too."""
    loaded = gather_tables_file._loaded
    monkeypatch.setattr(
        gather_tables_file, "_loaded", lambda found: loaded(replace(found, **moved))
    )
    ir = ir_of(biased, floats(2, 3), floats(9, 9), PLACES)
    arrays = {"x": floats(2, 3), "bias": floats(9, 9), "places": PLACES}
    assert not np.array_equal(evaluate(ir, arrays)["y"], evaluate(gather_tables(ir), arrays)["y"])
