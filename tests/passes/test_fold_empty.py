"""fold_empty: nothing is read or reduced along a dimension of length zero."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.passes.becomes import becomes, stays
from tests.schedule.written import Writing, add, mul, positions
from tilelang.ir import Gather, KernelIR
from tilelang.language import build
from tilelang.passes.fold_empty import fold_empty
from tilelang.reference import evaluate

WHOLE = slice(None)


def reduced(op: str, size: int) -> KernelIR:
    k = Writing()
    k.input("x", size, 8)
    k.output("y", 8)
    with k.tile("t", 0, 8):
        rows = k.load("x", WHOLE, "t")
        if op in ("any", "all"):
            rows = build.binary("gt", rows, 0.0, None)
        k.store("y", "t", value=build.reduce(op, rows, 0, False, None))
    return k.ir()


NEUTRAL = {
    "sum": ("float32, value=0", ""),
    "any": ("bool, value=False", "@"),
    "all": ("bool, value=True", "@"),
}


@pytest.mark.parametrize("op", NEUTRAL)
def test_a_reduction_of_nothing_is_its_neutral_value(op):
    made, cast = NEUTRAL[op]
    inner = "x[0:0, t] > 0.0" if cast else "x[0:0, t]"
    show = (lambda text: f"cast({text}, float32)") if cast else str
    becomes(
        reduced(op, 0),
        fold_empty,
        f"for t in tile(8):\n    y[t] = {show(f'{op}({inner}, axis=0)')}\n",
        f"for t in tile(8):\n    y[t] = {show(f'full([t], {made})')}\n",
    )


def product(size: int) -> KernelIR:
    k = Writing()
    k.input("x", 8, size)
    k.input("w", size, 128)
    k.output("y", 8, 128)
    with k.tile("t", 0, 8):
        found = build.dot(k.load("x", "t", WHOLE), k.load("w", WHOLE, WHOLE), None, (1, 0))
        k.store("y", "t", WHOLE, value=add(found, 1.0))
    return k.ir()


def test_a_product_over_nothing_is_zero():
    becomes(
        product(0),
        fold_empty,
        """
        for t in tile(8):
            y[t, 0:128] = dot(x[t, 0:0], w[0:0, 0:128], contract=(1, 0)) + 1.0
        """,
        """
        for t in tile(8):
            y[t, 0:128] = full([t, 128], float32, value=0) + 1.0
        """,
    )


@pytest.mark.parametrize("ir", [reduced("sum", 1), product(3)], ids=["sum", "product"])
def test_what_has_elements_stays(ir):
    stays(ir, fold_empty)


def test_empty_arrays_beside_it_change_nothing():
    k = Writing()
    k.input("x", 8)
    k.input("nothing", 0, 8)
    k.output("y", 8)
    with k.tile("t", 0, 8):
        k.store("y", "t", value=mul(k.load("x", "t"), 2.0))
    stays(k.ir(), fold_empty)


def picked(rows: int) -> KernelIR:
    """y[t] = x[ids[t]] where ids[t] >= 0, and -1 for the others"""
    k = Writing()
    k.input("x", rows)
    k.input("ids", 8, dtype="int32")
    k.output("y", 8)
    with k.tile("t", 0, 8):
        place = k.load("ids", "t")
        found = k.load("x", Gather(place), mask=build.binary("ge", place, 0, None))
        k.store("y", "t", value=replace(found, other=-1.0))
    return k.ir()


def test_a_load_of_nothing_is_what_its_author_gave_for_lanes_that_are_not_there():
    becomes(
        picked(0),
        fold_empty,
        """
        for t in tile(8):
            y[t] = load(x[rows(ids[t])], mask=ids[t] >= 0, other=-1.0)
        """,
        """
        for t in tile(8):
            y[t] = full([t], float32, value=-1.0)
        """,
    )
    ids = np.full(8, -1, np.int32)
    arrays = {"x": np.zeros(0, np.float32), "ids": ids}
    assert (evaluate(fold_empty(picked(0)), arrays)["y"] == -1).all()
    assert (evaluate(picked(0), arrays)["y"] == -1).all()
    stays(picked(3), fold_empty)


def beside(rows: int) -> KernelIR:
    """y[t] = x[t] + more[t], which is -1 for what the mask leaves out; x says where tiles are"""
    k = Writing()
    k.input("x", 8)
    k.input("more", rows)
    k.output("y", 8)
    with k.tile("t", 0, 8):
        mask = build.binary("lt", positions("t"), rows, None)
        found = replace(k.load("more", "t", mask=mask), other=-1.0)
        k.store("y", "t", value=add(k.load("x", "t"), found))
    return k.ir()


def test_what_is_read_under_a_mask_beside_an_array_of_the_range_is_not_there():
    becomes(
        beside(0),
        fold_empty,
        """
        for t in tile(8):
            y[t] = x[t] + load(more[t], mask=t.index < 0, other=-1.0)
        """,
        """
        for t in tile(8):
            y[t] = x[t] + full([t], float32, value=-1.0)
        """,
    )
    stays(beside(3), fold_empty)
