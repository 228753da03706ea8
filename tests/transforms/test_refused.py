"""What has no derived gradient is refused at the author's line, with what to write instead."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.errors import GradientError

X = np.zeros((64, 128), np.float32)
IDS = np.zeros(64, np.int32)


@tile.kernel
def running_maximum(x):
    y = hl.zeros(x.shape, dtype=hl.float32)
    for tn in hl.tile(x.shape[1]):
        m = hl.full([tn], float("-inf"), dtype=hl.float32)
        for i in hl.grid(x.shape[0]):
            m = hl.maximum(m, x[i, tn])
            y[i, tn] = m
    return y


@tile.kernel
def sums_of_the_tile(x):
    """What is carried goes by the tile, whose number no position says: it begins elsewhere."""
    y = hl.zeros(x.shape, dtype=hl.float32)
    for tn in hl.tile(2, x.shape[1] - 3, block_size=16):
        acc = hl.full([], 0.0, dtype=hl.float32)
        for i in hl.grid(x.shape[0]):
            y[i, tn.index + 3] = x[i, tn.index + 3] * acc
            acc = acc + x[i, tn.index + 3].sum(0)
    return y


@tile.kernel
def squared(x):
    y = hl.zeros([x.shape[1]], dtype=hl.float32)
    for tn in hl.tile(x.shape[1]):
        acc = hl.zeros([tn], dtype=hl.float32)
        for i in hl.grid(x.shape[0]):
            acc = acc * acc + x[i, tn]
        y[tn] = acc
    return y


@tile.kernel
def scattered(x, ids):
    y = hl.zeros(x.shape, dtype=hl.float32)
    for tm in hl.tile(x.shape[0]):
        y[ids[tm], :] = x[tm, :]
    return y


@tile.kernel
def sums_of_tiles(x):
    y = hl.zeros(x.shape, dtype=hl.float32)
    for tm in hl.tile(x.shape[0]):
        y[tm.id, :] = x[tm, :].sum(0)
    return y


@tile.kernel
def in_place(x):
    for tm in hl.tile(x.shape[0]):
        x[tm, :] = x[tm, :] * 2.0


@tile.kernel
def unscaled(x):
    y = hl.zeros([x.shape[0]], dtype=hl.float32)
    for tm in hl.tile(x.shape[0]):
        m = hl.full([tm], float("-inf"), dtype=hl.float32)
        total = hl.zeros([tm], dtype=hl.float32)
        for tn in hl.tile(x.shape[1], block_size=16):
            new = hl.maximum(m, x[tm, tn].amax(1))
            total = total + hl.exp(x[tm, tn] - new[:, None]).sum(1)
            m = new
        y[tm] = total
    return y


@tile.kernel
def off_by_one(x):
    y = hl.zeros([x.shape[0]], dtype=hl.float32)
    for tm in hl.tile(x.shape[0]):
        m = hl.full([tm], float("-inf"), dtype=hl.float32)
        total = hl.zeros([tm], dtype=hl.float32)
        for tn in hl.tile(x.shape[1], block_size=16):
            new = hl.maximum(m, x[tm, tn].amax(1))
            total = total * hl.exp(m - new) + hl.exp(x[tm, tn] - new[:, None]).sum(1) + 1.0
            m = new
        y[tm] = total
    return y


@tile.kernel
def doubled(x):
    y = hl.zeros([x.shape[0]], dtype=hl.float32)
    for tm in hl.tile(x.shape[0]):
        m = hl.full([tm], float("-inf"), dtype=hl.float32)
        total = hl.zeros([tm], dtype=hl.float32)
        for tn in hl.tile(x.shape[1], block_size=16):
            new = hl.maximum(m, x[tm, tn].amax(1))
            total = total * (2.0 * hl.exp(m - new)) + hl.exp(x[tm, tn] - new[:, None]).sum(1)
            m = new
        y[tm] = total
    return y


@tile.kernel
def stored_twice(x):
    y = hl.zeros([x.shape[1]], dtype=hl.float32)
    for i in hl.grid(x.shape[0]):
        y[:] = x[i, :]
    return y


@tile.kernel
def numbers_of_moved_tiles(x):
    """Tiles that are cut in x, one row on, may begin twice in one block of 16."""
    y = hl.zeros([8, x.shape[1]], dtype=hl.float32)
    for tm in hl.tile(1, x.shape[0] - 1, block_size=8):
        y[tm.begin // 8, :] = x[tm + 1, :].sum(0)
    return y


@tile.kernel
def numbers_of_pairs(x):
    y = hl.zeros([8, x.shape[1]], dtype=hl.float32)
    for tm in hl.tile(1, x.shape[0] - 1, block_size=8):
        y[tm.begin // 16, :] = x[tm, :].sum(0)
    return y


ONCE = "it was not proved that every element of y is stored once"
REFUSED = [
    (running_maximum, (X,), "what is stored depends on the iterations before", "y[i, tn] = m"),
    (sums_of_the_tile, (X,), "the loop changes acc, and no array holds", "acc = acc + x"),
    (squared, (X,), "the loop over i changes acc in a way that is no sum", "acc = acc * acc"),
    (scattered, (X, IDS), "y is stored to at rows that may be the same", "y[ids[tm], :] ="),
    (sums_of_tiles, (X,), "what is stored depends on tm.id, and so on the block", "y[tm.id, :] ="),
    (unscaled, (X,), "the loop over tn changes total in a way that is no sum", "total = total +"),
    (doubled, (X,), "the loop over tn changes total in a way that is no sum", "total = total *"),
    (stored_twice, (X,), ONCE, "y[:] ="),
    (numbers_of_moved_tiles, (X,), ONCE, "y[tm.begin // 8, :] ="),
    (numbers_of_pairs, (X,), ONCE, "y[tm.begin // 16, :] ="),
    (off_by_one, (X,), "the loop over tn changes total in a way that is no sum", "total = total *"),
]


@pytest.mark.parametrize(
    ("kernel", "arguments", "what", "line"), REFUSED, ids=lambda v: getattr(v, "__name__", "")
)
def test_refused(kernel, arguments, what, line):
    with pytest.raises(GradientError) as caught:
        kernel.grad_source(*arguments)
    error, name = caught.value, kernel.__name__
    assert error.what.startswith(f"the gradient of kernel {name} cannot be derived: {what}")
    assert error.loc is not None and error.loc.text.strip().startswith(line)
    assert f"@{name}.vjp" in error.hint


def test_the_whole_text():
    with pytest.raises(GradientError) as caught:
        squared.grad_source(X)
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "the gradient of kernel squared cannot be derived: "
        "the loop over i changes acc in a way that is no sum"
    )
    assert lines[2:] == [
        "    acc = acc * acc + x[i, tn]",
        "    ^^^^^^^^^^^^^^^^^^^^^^^^^^",
        "  hint: write the backward yourself, a function of (saved, d_y) that returns "
        '{"x": ...}, and register it with @squared.vjp',
    ]


def test_what_changes_an_argument_has_no_gradient_that_could_be_written():
    with pytest.raises(GradientError) as caught:
        in_place.grad_source(X)
    error = caught.value
    assert error.what == "in_place stores to its argument x, which has no gradient then"
    assert error.loc is not None and error.loc.text.strip() == "x[tm, :] = x[tm, :] * 2.0"
    assert error.hint == "store to a new output, hl.empty_like(x), and return it"
