"""Atomic updates, and rows that an index picks: what they mean, tile by tile."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilelang.language as hl
from tilelang.ir import Gather, Load, Store, statements

from .run import array, parsed, run

same = np.testing.assert_array_equal
IDX = np.int32([5, 0, 2, 2, 1, 5, 5])


def stores(fn, *args):
    return [s for s in statements(parsed(fn, *args).body) if isinstance(s, Store)]


def test_every_iteration_adds_to_the_same_elements():
    def kernel(x):
        y = hl.zeros([x.shape[1]])
        for tm, tn in hl.tile(x.shape):
            hl.atomic_add(y, [tn], x[tm, tn].sum(0))
        return y

    x = array(13, 10)
    same(run(kernel, x), x.sum(0))


@pytest.mark.parametrize(("name", "meaning"), [("max", np.max), ("min", np.min)])
def test_extremes(name, meaning):
    def kernel(x, update, start):
        y = hl.full([x.shape[1]], start)
        for tm, tn in hl.tile(x.shape):
            value = x[tm, tn].amax(0) if start < 0 else x[tm, tn].amin(0)
            update(y, [tn], value)
        return y

    x, update = array(13, 10), getattr(hl, f"atomic_{name}")
    start = -100.0 if name == "max" else 100.0
    same(run(kernel, x, update, start), meaning(x, axis=0))


def test_an_update_says_how_it_combines():
    def kernel(x):
        y = hl.zeros([x.shape[1]])
        for tm, tn in hl.tile(x.shape):
            hl.atomic_add(y, [tn], x[tm, tn].sum(0), sem="relaxed")
        return y

    (store,) = stores(kernel, array(4, 4))
    assert store.combine == "add"
    assert store.value.op == "add" and store.value.args[0].index == store.index


def test_the_old_value_is_read_only_where_the_mask_holds():
    def kernel(x, y):
        for t in hl.tile(x.shape[0]):
            hl.atomic_add(y, [t.index + 3], x[t], mask=t.index < 4)

    x, y = array(9), array(7, seed=1)
    want = y.copy()
    want[3:] += x[:4]
    run(kernel, x, y)
    same(y, want)


def test_an_update_under_a_condition():
    def kernel(x, flags, y):
        for i in hl.grid(x.shape[0]):
            if flags[i] > 0:
                hl.atomic_add(y, [0, slice(None)], x[i, :])

    x, flags, y = array(9, 4), np.arange(9, dtype=np.int32) % 2, np.zeros((1, 4), np.float32)
    run(kernel, x, flags, y)
    same(y[0], x[1::2].sum(0))


def test_an_update_is_rounded_like_a_sum_in_the_dtype_of_the_tensor():
    def kernel(x):
        y = hl.ones([1], dtype=hl.bfloat16)
        for i in hl.grid(x.shape[0]):
            hl.atomic_add(y, [0], x[i])
        return y

    x = np.full(7, 0.003, np.float32)
    want = ml_dtypes.bfloat16(1)
    for value in x:
        want = ml_dtypes.bfloat16(np.float32(want) + np.float32(ml_dtypes.bfloat16(value)))
    assert run(kernel, x)[0] == want


# ---------------------------------------------------------------- rows picked by an index


@pytest.mark.parametrize("block", [1, 3, 7])
def test_rows_that_are_picked_several_times_are_all_added(block):
    def kernel(x, idx):
        y = hl.zeros([6, x.shape[1]])
        for tm in hl.tile(idx.shape[0]):
            hl.atomic_add(y, [idx[tm], slice(None)], x[tm, :])
        return y

    x, want = array(7, 4), np.zeros((6, 4), np.float32)
    np.add.at(want, IDX, x)
    same(run(kernel, x, IDX, blocks={"tm": block}), want)


def test_masked_rows_are_not_added():
    def kernel(x, idx):
        y = hl.zeros([x.shape[1], 6])
        for tm in hl.tile(idx.shape[0]):
            rows = idx[tm]
            hl.atomic_add(y, [slice(None), rows], x[tm, :].T, mask=(rows != 5)[None, :])
        return y

    x, want = array(7, 4), np.zeros((6, 4), np.float32)
    np.add.at(want, IDX[IDX != 5], x[IDX != 5])
    same(run(kernel, x, IDX), want.T)


def test_the_last_of_several_rows_stays():
    def kernel(x, idx):
        y = hl.zeros([6, x.shape[1]])
        for tm in hl.tile(idx.shape[0]):
            y[idx[tm], :] = x[tm, :]
        return y

    x, want = array(7, 4), np.zeros((6, 4), np.float32)
    for row, to in enumerate(IDX):
        want[to] = x[row]
    same(run(kernel, x, IDX), want)


def test_picked_rows_are_loaded_by_a_statement_of_their_own():
    def kernel(x, idx):
        y = hl.zeros([idx.shape[0], x.shape[1]])
        z = hl.zeros([idx.shape[0], 1, x.shape[1]])
        for tm in hl.tile(idx.shape[0]):
            y[tm, :] = x[idx[tm], :] * 2 + x[idx[tm], :].sum(1)[:, None]
            rows = x[idx[tm], None, :]
            z[tm, :, :] = rows
        return y, z

    x = array(6, 4)
    y, z = run(kernel, x, IDX)
    same(y, x[IDX] * 2 + x[IDX].sum(1)[:, None])
    same(z[:, 0], x[IDX])
    named = [s for s in statements(parsed(kernel, x, IDX).body) if isinstance(s, Store) is False]
    picked = [s.value for s in named if isinstance(getattr(s, "value", None), Load)]
    assert sum(any(isinstance(i, Gather) for i in load.index) for load in picked) == 3
