"""tile_wholes, tile_columns, tile_sums: products of large operands in loops over tiles."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.passes.becomes import becomes, stays
from tilelang.codegen.triton.passes.tile_wholes import tile_wholes
from tilelang.ir import Along, every_expr
from tilelang.ir.traversal import dots
from tilelang.ir.verify import verify
from tilelang.passes import static_lanes
from tilelang.passes.tile_columns import tile_columns
from tilelang.passes.tile_sums import tile_sums
from tilelang.reference import evaluate

X, W = np.zeros((96, 64), np.float32), np.zeros((3, 64, 80), np.float32)
OFFSETS = np.array([0, 40, 40, 96], np.int32)
BLOCKS = {"t": 32, "tn": 32, "tk": 24}
tile_sums_file = sys.modules[tile_sums.__module__]


def every(sum_of):
    return sum_of.op == "dot"


def of_products(ir, lanes):
    found = (lanes.of(dot, dot.type.rank - 1) for dot in dots(every_expr(ir.body)))
    return (columns for columns in found if columns is not None)


def columns(ir):
    return tile_columns(ir, of_products)[0]


def sums(ir):
    return tile_sums(ir, every)


def ir_of(kernel, *args):
    return kernel.lower(*args, target="tpu:v6e").ir


@tile.kernel
def product(x, w, offsets):
    y = hl.zeros([x.shape[0], w.shape[2]], dtype=x.dtype)
    for g in hl.grid(w.shape[0]):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            y[t, :] = hl.maximum(hl.dot(x[t, :], w[g, :, :]), 0.0)
    return y


PRODUCT = """
    for g in grid(3):
        for t in tile(offsets[g], offsets[g + 1], max_extent=96):
            y[t, 0:80] = maximum(dot(x[t, 0:64], w[g, 0:64, 0:80], contract=(1, 0)), 0.0)
    """


def test_a_product_gets_tiles_of_columns():
    becomes(
        ir_of(product, X, W, OFFSETS),
        columns,
        PRODUCT,
        """
        for g in grid(3):
            for t in tile(offsets[g], offsets[g + 1], max_extent=96):
                for tn in tile(80):
                    y[t, tn] = maximum(dot(x[t, 0:64], w[g, 0:64, tn], contract=(1, 0)), 0.0)
        """,
    )


def test_a_product_gets_a_loop_over_what_it_sums():
    becomes(
        ir_of(product, X, W, OFFSETS),
        sums,
        PRODUCT,
        """
        for g in grid(3):
            for t in tile(offsets[g], offsets[g + 1], max_extent=96):
                for tk in tile(64) carrying acc = full([t, 80], float32, value=0.0):
                    next acc = acc + dot(x[t, tk], w[g, tk, 0:80], contract=(1, 0))
                after acc_1 = acc
                y[t, 0:80] = maximum(acc_1, 0.0)
        """,
    )


def test_small_operands_stay_whole():
    stays(ir_of(product, X[:, :32], W[:, :32, :64], OFFSETS), tile_wholes)


def test_large_ones_get_both():
    text = str(tile_wholes(ir_of(product, X, W, OFFSETS)))
    assert "for tn in tile(80):" in text and "for tk in tile(64) carrying" in text


@tile.kernel
def probabilities(x, w):
    """Each row is divided by its own sum: columns go together."""
    y = hl.empty([x.shape[0], w.shape[1]], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        e = hl.exp(hl.dot(x[t, :], w[:, :]))
        y[t, :] = e / e.sum(1)[:, None]
    return y


def test_columns_that_are_summed_stay():
    stays(ir_of(probabilities, X, W[0]), columns)


@tile.kernel
def carried(x, w):
    """Columns of a carry, a factor of each column, and a store of something else before."""
    T, _ = x.shape
    y, z = hl.empty([T, w.shape[2]], dtype=x.dtype), hl.empty([T], dtype=x.dtype)
    for t in hl.tile(T):
        total = hl.zeros([t], dtype=hl.float32)
        acc = hl.zeros([t, w.shape[2]], dtype=hl.float32)
        for g in hl.grid(w.shape[0]):
            total = total + x[t, g]
            acc = acc * 0.5 + hl.dot(x[t, :], w[g, :, :])
        z[t] = total
        y[t, :] = acc + total[:, None]
    return y, z


def test_what_others_read_is_not_made_in_the_loop():
    stays(ir_of(carried, X, W), columns)


@tile.kernel
def carried_alone(x, w):
    T, _ = x.shape
    y = hl.empty([T, w.shape[2]], dtype=x.dtype)
    for t in hl.tile(T):
        s = hl.zeros([t, w.shape[2]], dtype=hl.float32)
        for g in hl.grid(w.shape[0]):
            s = s * 0.5 + hl.dot(x[t, :], w[g, :, :])
        y[t, :] = s
    return y


def test_carries_have_tiles_of_columns_too():
    becomes(
        ir_of(carried_alone, X, W),
        tile_wholes,
        """
        for t in tile(96):
            s: float32[t, 80] = full([t, 80], float32, value=0.0)
            for g in grid(3) carrying s_1 = s:
                s_2: float32[t, 80] = s_1 * 0.5 + dot(x[t, 0:64], w[g, 0:64, 0:80], contract=(1, 0))
                next s_1 = s_2
            after s_3 = s_1
            y[t, 0:80] = s_3
        """,
        """
        for t in tile(96):
            for tn in tile(80):
                s: float32[t, tn] = full([t, tn], float32, value=0.0)
                for g in grid(3) carrying s_1 = s:
                    for tk in tile(64) carrying acc = s_1 * 0.5:
                        next acc = acc + dot(x[t, tk], w[g, tk, tn], contract=(1, 0))
                    after acc_1 = acc
                    s_2: float32[t, tn] = acc_1
                    next s_1 = s_2
                after s_3 = s_1
                y[t, tn] = s_3
        """,
    )


@tile.kernel
def in_place(x, w):
    """What is read again has been stored by another tile of columns."""
    for t in hl.tile(x.shape[0]):
        x[t, :] = hl.dot(x[t, :], w[:, :])
    return x


def test_what_is_stored_is_not_read_in_a_loop():
    stays(ir_of(in_place, X, W[0, :, :64]), tile_wholes)


@tile.kernel
def masked_rows(x, w, n):
    """An operand that is computed from positions."""
    y = hl.empty([x.shape[0], w.shape[1]], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        row = hl.arange(64)
        used = hl.where(row[:, None] < n, w[:, :], 0.0)
        y[t, :] = hl.dot(x[t, :], used)
    return y


def test_operands_are_computed_tile_by_tile():
    text = str(sums(ir_of(masked_rows, X, W[0], np.int32(7))))
    assert "where(expand_dims(tk.index, axis=1) < " in text
    assert (
        "arange" in text.partition("for tk in")[0]
        and "arange" not in text.partition("for tk in")[2]
    )


# ---------------------------------------------------------------- what they mean


@tile.kernel
def parts(x, w, b):
    """Parts of arrays that begin elsewhere, a factor of each column, a turned operand."""
    y = hl.zeros([x.shape[0], 100], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        scaled = hl.dot(x[t, 8:56], w[10:90, 3:51].T) * b[10:90][None, :]
        y[t, 10:90] = scaled + hl.arange(3).sum()
    return y


@tile.kernel
def outer_products(x, w):
    """Each element is of two columns of a product: a tile of them has not all that it is made of."""
    G, _, N = w.shape
    z = hl.zeros([G, N, N], dtype=hl.float32)
    for g in hl.grid(G):
        c = hl.dot(x[g, :, :], w[g, :, :]).sum(0)
        z[g, :, :] = c[:, None] * c[None, :]
    return z


@tile.kernel
def fractions(x, w):
    """Positions that are no whole numbers, and such as are."""
    y = hl.empty([x.shape[0], w.shape[1]], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        by = hl.arange(0.25, 16.25, 0.25, dtype=hl.float32)
        every = hl.arange(3, 131, 2).to(hl.float32)
        y[t, :] = hl.dot(x[t, :], w[:, :] * by[:, None]) + hl.dot(x[t, :] * every[None, :], w[:, :])
    return y


@tile.kernel
def one_after_the_other(x, w, y):
    """Reads what the iteration before has stored, at the same columns."""
    for i in hl.grid(3):
        for t in hl.tile(x.shape[0]):
            y[i + 1, t, :] = hl.dot(x[t, :], w[:, :]) + y[i, t, :]
    return y


MEANT = {
    "product": (product, (96, 64), (3, 64, 80), OFFSETS),
    "carried": (carried, (96, 64), (3, 64, 80)),
    "carried alone": (carried_alone, (96, 64), (3, 64, 80)),
    "probabilities": (probabilities, (96, 64), (64, 80)),
    "masked rows": (masked_rows, (96, 64), (64, 80), np.array(7, np.int32)),
    "outer products": (outer_products, (3, 16, 64), (3, 64, 80)),
    "fractions": (fractions, (96, 64), (64, 80)),
    "one after the other": (one_after_the_other, (96, 64), (64, 80), (4, 96, 80)),
    "parts": (parts, (96, 64), (100, 64), (100,)),
}


def differs(name):
    """How far the kernel with loops is from what was written, by its meaning in NumPy.

    Relative to the largest number of each output: sums in another order differ by what their terms
    round to, and where large terms cancel that is much of what is left.
    """
    kernel, *given = MEANT[name]
    drawn = np.random.default_rng(0)  # its own: the same numbers whichever tests run before
    args = [drawn.standard_normal(a).astype(np.float32) if type(a) is tuple else a for a in given]
    ir = ir_of(kernel, *args)
    arrays = {p.tensor: a for p, a in zip(ir.params, args, strict=True)}
    made = verify(tile_wholes(ir))
    assert made != ir
    wanted, found = (evaluate(k, arrays, blocks=BLOCKS) for k in (ir, made))
    assert wanted.keys() == found.keys()
    return max(float(np.abs(found[n] - wanted[n]).max() / np.abs(wanted[n]).max()) for n in wanted)


@pytest.mark.parametrize("name", MEANT)
def test_loops_mean_what_was_written(name):
    assert differs(name) < 1e-5


def test_a_planted_bug_is_noticed(monkeypatch):
    """Tiles of a part of an array that begin where the array does."""
    monkeypatch.setattr(tile_sums_file, "Along", lambda axis, offset=None: Along(axis))
    assert differs("parts") > 0.1


def test_elements_of_two_columns_would_be_wrong(monkeypatch):
    monkeypatch.setattr(static_lanes.StaticLanes, "_twice", lambda _: ())
    assert differs("outer products") > 0.1


def test_columns_that_are_mixed_would_be_wrong(monkeypatch):
    """Sums over columns that are taken for columns by themselves."""
    ir = ir_of(probabilities, X, W[0])
    monkeypatch.setattr(static_lanes.StaticLanes, "_mix", lambda *_: None)
    with pytest.raises(AssertionError):
        stays(ir, columns)
