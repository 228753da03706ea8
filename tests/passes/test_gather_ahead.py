"""gather_ahead: rows that an index array picks are put together before the launch."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests.passes.becomes import becomes, stays
from tests.schedule.written import Writing, mul
from tilelang.codegen.pallas.passes.gather_ahead import gather_ahead
from tilelang.codegen.pallas.target import Target
from tilelang.ir import Gather, KernelIR
from tilelang.reference import evaluate

WHOLE = slice(None)
V6E = Target.of("tpu:v6e")
ahead = partial(gather_ahead, asked="ahead", target=V6E)
by_default = partial(gather_ahead, asked=None, target=V6E)


def picked(slots: int = 3, copied: bool = False, twice: bool = False) -> KernelIR:
    """y[t] = x[slot[t, 1]] * 2, or without the 2"""
    k = Writing()
    k.input("slot", 64, slots, dtype="int32")
    k.input("x", 40, 128)
    k.output("y", 64, 128)
    with k.tile("t", 0, 64):
        found = k.load("x", Gather(k.load("slot", "t", 1)), WHOLE)
        k.store("y", "t", WHOLE, value=found if copied else mul(found, 2.0))
        if twice:
            other = k.load("x", Gather(k.load("slot", "t", 2)), WHOLE)
            k.store("y", "t", WHOLE, value=mul(other, 3.0))
    return k.ir()


def numbers(length: int, count: int = 64) -> KernelIR:
    """y[t] = x[ids[t]]"""
    k = Writing()
    k.input("ids", count, dtype="int32")
    k.input("x", length)
    k.output("y", count)
    with k.tile("t", 0, count):
        k.store("y", "t", value=k.load("x", Gather(k.load("ids", "t"))))
    return k.ir()


def stored(into: str) -> KernelIR:
    """x or its index changes where rows are picked."""
    k = Writing()
    k.input("ids", 64, dtype="int32", mutated=into == "ids")
    k.output("x", 64, 128)
    k.output("y", 64, 128)
    with k.tile("t", 0, 64):
        k.store("y", "t", WHOLE, value=mul(k.load("x", Gather(k.load("ids", "t")), WHOLE), 2.0))
        if into == "x":
            k.store("x", "t", WHOLE, value=k.load("y", "t", WHOLE))
        else:
            k.store("ids", "t", value=k.load("ids", "t"))
    return k.ir()


def test_rows_are_a_view_with_single_positions_first():
    before = picked()
    becomes(
        before,
        ahead,
        """
        for t in tile(64):
            y[t, 0:128] = x[rows(slot[t, 1]), 0:128] * 2.0
        """,
        """
        for t in tile(64):
            y[t, 0:128] = x_picked[1, t, 0:128] * 2.0
        """,
    )
    assert "x_picked: float32[3, 64, 128] = x.take(slot, 0, 1, 0)" in str(ahead(before))


def test_rows_of_one_index_array_are_one_view():
    views = [t.name for t in ahead(picked(twice=True)).tensors if t.role == "view"]
    assert views == ["x_picked"]


@pytest.mark.parametrize("into", ["x", "ids"])
def test_what_the_nest_changes_is_picked_inside(into: str):
    stays(stored(into), ahead)


def test_an_index_that_is_looked_up_is_read_inside():
    k = Writing()
    k.input("ids", 64, 8, dtype="int32")
    k.input("which", 1, dtype="int32")
    k.input("x", 40, 128)
    k.output("y", 64, 128)
    with k.tile("t", 0, 64):
        place = Gather(k.load("ids", "t", k.load("which", 0)))
        k.store("y", "t", WHOLE, value=mul(k.load("x", place, WHOLE), 2.0))
    stays(k.ir(), ahead)


@pytest.mark.parametrize(("slots", "copied"), [(3, False), (8, True)])
def test_few_rows_and_copies_are_left_alone_by_default(slots: int, copied: bool):
    stays(picked(slots, copied), by_default)


def test_many_rows_are_put_together_by_default():
    assert by_default(picked(8)) == ahead(picked(8))


def test_nothing_is_where_it_was_not_asked_for():
    stays(picked(8), partial(gather_ahead, asked="inside", target=V6E))


def test_the_meaning_stays():
    rng = np.random.default_rng(0)
    slot = rng.integers(-3, 50, (64, 3)).astype(np.int32)  # some are no row
    arrays = {"slot": slot, "x": rng.standard_normal((40, 128), np.float32)}
    found = evaluate(ahead(picked()), arrays)["y"]
    np.testing.assert_array_equal(found, arrays["x"][slot[:, 1].clip(0, 39)] * 2)


def test_numbers_that_have_no_room_in_scalar_memory():
    becomes(
        numbers(1 << 20),
        by_default,
        """
        for t in tile(64):
            y[t] = x[rows(ids[t])]
        """,
        """
        for t in tile(64):
            y[t] = x_picked[t]
        """,
    )
    stays(numbers(1 << 10), by_default)
    assert "x_picked" in str(ahead(numbers(1 << 10)))


def test_many_numbers_are_put_together_by_default():
    assert by_default(numbers(1 << 10, 512)) == ahead(numbers(1 << 10, 512))
