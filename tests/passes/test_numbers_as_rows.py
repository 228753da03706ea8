"""numbers_as_rows: numbers that are picked and change are rows of one, and nothing else is."""

from __future__ import annotations

import numpy as np

import tilelang as tile
import tilelang.language as hl
from tests.derivatives import parsed
from tests.passes.becomes import becomes, stays
from tilelang.codegen.pallas.passes.numbers_as_rows import numbers_as_rows
from tilelang.ir.verify import verify

ARGUMENTS = tile.spec((32,), "float32"), tile.spec((32,), "int32")


@tile.kernel
def picked(x, index):
    y = hl.zeros([64], dtype=hl.float32)
    for t in hl.tile(32):
        hl.atomic_add(y, [index[t]], x[t])
    return y


@tile.kernel
def in_order(x, index):
    y = hl.zeros([32], dtype=hl.float32)
    for t in hl.tile(32):
        y[t] = x[t] * index[t]
    return y


@tile.kernel
def in_place(x, index):
    for t in hl.tile(32):
        x[index[t]] = 1.0


@tile.kernel
def turned(x, index):
    """What is seen with its dimensions in another order is so of what it was."""
    y = hl.zeros([2, 64], dtype=hl.float32)
    for i in hl.grid(2):
        for t in hl.tile(32):
            y[i, index[t]] = x[t]
    return y.T


@tile.kernel
def in_a_box(x, index):
    y = hl.zeros([64], dtype=hl.float32)
    for t in hl.tile(32):
        y[index[t]] = x[t]
    return y.reshape(8, 8)


def test_a_number_that_an_index_picks_is_a_row() -> None:
    ir = parsed(picked, ARGUMENTS)[0]
    becomes(
        ir,
        numbers_as_rows,
        """
        for t in tile(32):
            y[rows(index[t])] = y[rows(index[t])] + x[t]
        """,
        """
        for t in tile(32):
            y[rows(index[t]), 0:1] = y[rows(index[t]), 0:1] + expand_dims(x[t], axis=1)
        """,
    )
    made = verify(numbers_as_rows(ir))
    assert made.tensor("y").shape == (64, 1)
    assert [made.tensor(name).shape for name in made.returns] == [(64,)]


def test_a_view_in_another_shape_is_one_of_the_rows() -> None:
    x, index = np.arange(32, dtype=np.float32), np.arange(40, 8, -1, dtype=np.int32)
    np.testing.assert_array_equal(np.asarray(in_a_box(x, index)).reshape(64)[index], x)


def test_an_argument_is_given_as_it_was() -> None:
    made = verify(numbers_as_rows(parsed(in_place, ARGUMENTS)[0]))
    assert (made.tensor("x").shape, made.tensor("x").given) == ((32, 1), (32,))


def test_a_view_in_another_order_is_one_of_the_numbers() -> None:
    made = verify(numbers_as_rows(parsed(turned, ARGUMENTS)[0]))
    (result,) = made.returns
    view = made.tensor(result).view
    assert view is not None and (view.how, view.source) == ("permute", "y_numbers")
    x, index = np.arange(32, dtype=np.float32), np.arange(40, 8, -1, dtype=np.int32)
    wanted = np.zeros((64, 2))
    wanted[index] = x[:, None]
    np.testing.assert_array_equal(turned(x, index), wanted)


def test_others_stay() -> None:
    stays(parsed(in_order, ARGUMENTS)[0], numbers_as_rows)
