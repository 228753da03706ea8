"""A load gives what was in memory where it is written, wherever its value waits to be used."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import pytest

import tilelang.language as hl
from tilelang.frontend import memory

from .run import array, run

same = np.testing.assert_array_equal


@dataclass(frozen=True)
class Pair:
    first: object
    second: object


# Each swaps the rows of y, of which one waits somewhere while the other is stored over it.


def assigned_at_once(y):
    for t in hl.tile(6):
        y[0, t], y[1, t] = y[1, t], y[0, t]


def in_a_comprehension(y):
    for t in hl.tile(6):
        y[0, t], y[1, t] = [y[1 - i, t] for i in range(2)]


def appended(y):
    for t in hl.tile(6):
        kept = []
        kept.append(y[0, t])
        y[0, t] = y[1, t]
        y[1, t] = kept[0]


def in_an_item(y):
    for t in hl.tile(6):
        kept = {"row": 0.0}
        kept["row"] = y[0, t]
        y[0, t] = y[1, t]
        y[1, t] = kept["row"]


def in_a_tuple_of_tuples(y):
    for t in hl.tile(6):
        kept = ((y[0, t], 1), 2)
        y[0, t] = y[1, t]
        y[1, t] = kept[0][0]


def in_an_object(y):
    for t in hl.tile(6):
        kept = Pair(y[0, t] * 2, 2)
        y[0, t] = y[1, t]
        y[1, t] = kept.first / kept.second


def in_an_object_twice(y):
    for t in hl.tile(6):
        kept = Pair(y[0, t], 0)
        y[0, t] = y[1, t]
        y[1, t] = 0
        y[1, t] = kept.first + kept.second * kept.first


def in_a_loop_over_values(y):
    for t in hl.tile(6):
        for i, row in enumerate((y[1, t], y[0, t])):
            y[i, t] = row


def in_a_default(y):
    for t in hl.tile(6):
        kept = lambda row=y[0, t]: row  # noqa: E731
        y[0, t] = y[1, t]
        y[1, t] = kept()


def in_a_partial(y):
    for t in hl.tile(6):
        kept = functools.partial(hl.maximum, y[0, t])
        y[0, t] = y[1, t]
        y[1, t] = kept(-100.0)


def used_in_a_loop(y):
    for t in hl.tile(6):
        kept = Pair(y[0, t], 1)
        for i in hl.grid(2):
            y[0, t] = y[1, t]
            if i == 1:
                y[1, t] = kept.first


def under_a_condition(y):
    for t in hl.tile(6):
        kept = Pair(y[0, t], 1)
        if t.begin >= 0:
            y[0, t] = y[1, t]
            y[1, t] = kept.first


SWAPS = (
    assigned_at_once,
    in_a_comprehension,
    appended,
    in_an_item,
    in_a_tuple_of_tuples,
    in_an_object,
    in_an_object_twice,
    in_a_loop_over_values,
    in_a_default,
    in_a_partial,
    used_in_a_loop,
    under_a_condition,
)


@pytest.mark.parametrize("kernel", SWAPS, ids=lambda fn: fn.__name__)
def test_a_value_that_waits_is_not_read_again(kernel):
    y = array(2, 6)
    expected = y[::-1].copy()
    run(kernel, y)
    same(y, expected)


@pytest.mark.parametrize("kernel", SWAPS, ids=lambda fn: fn.__name__)
def test_planted_it_is_read_where_it_is_used(kernel, monkeypatch):
    monkeypatch.setattr(memory, "loaded", lambda here, load, loc: load)
    y = array(2, 6)
    expected = y[::-1].copy()
    run(kernel, y)
    with pytest.raises(AssertionError):
        same(y, expected)


def test_one_value_for_two_stores():
    def kernel(y):
        for t in hl.tile(6):
            y[0, t] = y[1, t] = y[0, t] + 1

    y = array(2, 6)
    expected = np.stack([y[0] + 1, y[0] + 1])
    run(kernel, y)
    same(y, expected)


def test_positions_are_read_where_they_are_written():
    def kernel(x, index):
        y = hl.zeros([6])
        for t in hl.tile(6):
            kept = Pair(index[0], index[t])
            index[t] = index[t] * 0
            y[t] = x[kept.first, kept.second]
        return y

    x, index = array(4, 6), np.int32([3, 1, 5, 0, 2, 4])
    expected = x[3, index]
    same(run(kernel, x, index, blocks={"t": 6}), expected)
