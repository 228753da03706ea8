"""Stores through views, and reads of what a loop stores to by them: right where dimensions stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.passes.becomes import again

RNG = np.random.default_rng(0)
X = RNG.integers(-9, 9, (12, 3, 8)).astype(np.float32)
OFFSETS = np.array([2, 2, 7, 12], np.int32)
IDS = np.array([3, 0, 3, 5, 1, 3, 2, 2, 4, 5, 0, 1], np.int32)


@tile.kernel
def transposed(x, offsets):
    """An output, and rows of groups."""
    y = hl.full([8, x.shape[0]], -1.0, dtype=x.dtype)
    v = y.T
    for g in hl.grid(3):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            v[t, :] = x[t, 1, :] * (g + 1)
    return y, v


@tile.kernel
def turned(x, offsets):
    """Three dimensions in an order that is not its own inverse, masked, of which one is picked."""
    y = hl.zeros([8, x.shape[0], 3], dtype=x.dtype)
    v = y.permute(1, 2, 0)
    for g in hl.grid(3):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            hl.store(v, [t, 2, slice(None)], x[t, 0, :], mask=(t.index < 10)[:, None])
            kept = hl.load(v, [t, 2, slice(None)], other=5, mask=(t.index > 3)[:, None])
            v[t, 0, :] = x[t, 1, :] + kept
    return y


@tile.kernel
def whole(x, offsets):
    """Blocks of three dimensions in that order."""
    y = hl.zeros([8, x.shape[0], 3], dtype=x.dtype)
    v = y.permute(1, 2, 0)
    for g in hl.grid(3):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            v[t, :, :] = x[t, :, :] + g
    return y


@tile.kernel
def in_place(x, y):
    """By both names in one loop, what is stored by one is read by the other; then a sum."""
    v, z = y.permute(2, 0, 1), hl.zeros([x.shape[0], 8], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, 1, :] = x[t, 0, :]
        z[t, :] = v[:, t, 1].T
    for t in hl.tile(x.shape[0]):
        hl.atomic_add(v, [slice(None), t, 2], x[t, 1, :].T)
    return z


@tile.kernel
def longer(x, y):
    """Dimensions of length 1, around and between; a view of a view."""
    v = y.permute(1, 0, 2).reshape(3, 1, x.shape[0], 8, 1)
    for t in hl.tile(x.shape[0]):
        v[1, 0, t, :, 0] = x[t, 0, :] - v[1, :, t, :, 0].sum(0)
        v[1, 0, t, :, 0] = v[1, 0, t, :, :].sum(2) * 2
    return y


@tile.kernel
def counted(n, x):
    """A range that is read by a view of what an earlier loop stored to, and a later one does."""
    v, z = n.reshape(1, 4), hl.zeros([4, 8], dtype=x.dtype)
    for g in hl.grid(4):
        v[0, g] = v[0, g] + 2
    for g in hl.grid(4):
        for t in hl.tile(v[0, g], max_extent=12):
            hl.atomic_add(z, [g, slice(None)], x[t, 0, :].sum(0))
    return z


@tile.kernel
def picked(x, ids):
    y = hl.zeros([6, 8], dtype=x.dtype)
    v = y.reshape(6, 1, 8)
    for t in hl.tile(x.shape[0]):
        hl.atomic_add(v, [ids[t], 0, slice(None)], x[t, 2, :])
    return y


@tile.kernel
def one_row(y, x):
    """A dimension of length 1 may be that of the array, or that of the view."""
    v = y.reshape(y.shape[0], 1, 8).permute(2, 0, 1)
    for t in hl.tile(y.shape[0]):
        v[:, t, 0] = v[:, t, 0] + x[t, 0, :].T
    return y


@tile.kernel
def in_heads(x, offsets):
    """An output that is stored to with its columns as heads, and returned as it was made."""
    y = hl.full([x.shape[0], 24], -1.0, dtype=x.dtype)
    v = y.reshape(x.shape[0], 3, 8)
    for h, g in hl.grid([3, 3]):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            v[t, h, :] = x[t, h, :] * (g + 1)
    return y


@tile.kernel
def in_turned_heads(x, offsets):
    """By two views of that view; a later loop reads the array, and another view is returned too."""
    y = hl.zeros([x.shape[0], 24], dtype=x.dtype)
    z = hl.zeros([x.shape[0]], dtype=x.dtype)
    v = y.reshape(x.shape[0], 3, 8).permute(1, 0, 2)
    w = y.reshape(x.shape[0], 3, 1, 8)
    for g in hl.grid(3):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            v[1, t, :] = x[t, 0, :]
    for t in hl.tile(x.shape[0]):
        w[t, 2, 0, :] = x[t, 1, :]
    for t in hl.tile(x.shape[0]):
        z[t] = y[t, :].sum(1)
    return y, z, y.reshape(-1)


@tile.kernel
def in_a_line(x, offsets):
    """One line of all numbers is stored to, and added to."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    v, w = y.reshape(-1), x.reshape(-1)
    for t in hl.tile(v.shape[0]):
        v[t] = w[t] + 1.0
    for g in hl.grid(3):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            hl.atomic_add(v, [t], w[t])
    return y


def by_hand(name: str, given: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """Results, and what arguments are then."""
    a, b = given
    match name:
        case "transposed":
            y = np.full((8, 12), -1.0)
            for g in range(3):
                y[:, b[g] : b[g + 1]] = a[b[g] : b[g + 1], 1].T * (g + 1)
            return y, y.T
        case "turned":
            y = np.zeros((8, 12, 3))
            y[:, 2:10, 2] = a[2:10, 0].T
            kept = np.where((np.arange(2, 12) > 3)[:, None], y[:, 2:, 2].T, 5)
            y[:, 2:, 0] = (a[2:, 1] + kept).T
            return (y,)
        case "whole":
            y = np.zeros((8, 12, 3))
            for g in range(3):
                y[:, b[g] : b[g + 1]] = np.moveaxis(a[b[g] : b[g + 1]] + g, 2, 0)
            return (y,)
        case "in_place":
            y = b.copy()
            y[:, 1] = a[:, 0]
            y[:, 2] += a[:, 1]
            return a[:, 0], y
        case "longer":
            y = b.copy()
            y[:, 1] = 2 * (a[:, 0] - y[:, 1])
            return y, y
        case "counted":
            sums = np.cumsum(np.concatenate([np.zeros((1, 8)), b[:, 0]]), 0)
            return sums[a + 2], a + 2
        case "in_heads":
            y = np.full((12, 3, 8), -1.0)
            for g in range(3):
                y[b[g] : b[g + 1]] = a[b[g] : b[g + 1]] * (g + 1)
            return (y.reshape(12, 24),)
        case "in_turned_heads":
            y = np.zeros((12, 3, 8))
            y[b[0] : b[3], 1], y[:, 2] = a[b[0] : b[3], 0], a[:, 1]
            return y.reshape(12, 24), y.sum((1, 2)), y.reshape(-1)
        case "in_a_line":
            y = a + 1
            y.reshape(-1)[b[0] : b[3]] += a.reshape(-1)[b[0] : b[3]]
            return (y,)
        case "picked":
            y = np.zeros((6, 8))
            np.add.at(y, b, a[:, 2])
            return (y,)
        case _:
            return a + b[: len(a), 0], a + b[: len(a), 0]


Y = RNG.integers(-9, 9, (12, 3, 8)).astype(np.float32)
CASES: dict[str, tuple[tile.Kernel, tuple[np.ndarray, ...]]] = {
    "transposed": (transposed, (X, OFFSETS)),
    "transposed empty": (transposed, (X, np.zeros(4, np.int32))),
    "turned": (turned, (X, OFFSETS)),
    "whole": (whole, (X, OFFSETS)),
    "in_place": (in_place, (X, Y)),
    "longer": (longer, (X, Y)),
    "counted": (counted, (np.array([0, 3, 1, 10], np.int32), X)),
    "picked": (picked, (X, IDS)),
    "in_heads": (in_heads, (X, OFFSETS)),
    "in_turned_heads": (in_turned_heads, (X, OFFSETS)),
    "in_a_line": (in_a_line, (X, OFFSETS)),
    "one_row": (one_row, (Y[:, 0].copy(), X)),
    "one_row alone": (one_row, (Y[:1, 0].copy(), X[:1])),
}
each = pytest.mark.parametrize("name", CASES)


def outcome(call: Any, given: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """What a call returns, and what it makes of arrays of floats or counts that are given first."""
    own = tuple(a.copy() for a in given)
    found = call(*own)
    results = found if isinstance(found, tuple) else (found,)
    changed = tuple(o for o, a in zip(own, given, strict=True) if not np.array_equal(o, a))
    return tuple(map(np.asarray, (*results, *changed)))


@each
@pytest.mark.parametrize("block", [None, 4])
def test_the_numbers(name: str, block: int | None) -> None:
    kernel, given = CASES[name]
    wanted = by_hand(name.split()[0], given)
    config = tile.Config() if block is None or name == "longer" else tile.Config({"t": block})
    ours = outcome(lambda *a: again(kernel)(*a, config=config), given)
    meant = outcome(again(kernel).reference, given)  # changes no argument
    assert len(ours) == len(wanted) and meant
    for found, numbers in (*zip(ours, wanted), *zip(meant, wanted)):
        np.testing.assert_array_equal(found, numbers)


@needs_libtpu
@pytest.mark.parametrize("target", ["tpu:v5e", "tpu:7x"])
@each
def test_the_compiler_takes_them(name: str, target: str) -> None:
    kernel, given = CASES[name]
    arguments = (tile.spec(a.shape, str(a.dtype)) for a in given)
    assert compiled(kernel, *arguments, target=target).memory.code


@tile.kernel
def split(y):
    """The halves of rows have a dimension of their own, which the array has not."""
    v = y.reshape(y.shape[0], 2, 4)
    for t in hl.tile(y.shape[0]):
        v[t, 0, :] = v[t, 1, :] * 2


@tile.kernel
def behind(y, n):
    """What is read of a dimension that only the view has may lie outside of it."""
    v = y.reshape(1, y.shape[0], 8)
    for t in hl.tile(y.shape[0]):
        v[n[0], t, :] = 2.0 + hl.zeros([t, 8], dtype=y.dtype)


@tile.kernel
def by_both(x):
    """An output is stored to in two shapes."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    v = y.reshape(-1)
    for t in hl.tile(v.shape[0]):
        v[t] = 2.0 + hl.zeros([t], dtype=y.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :]
    return y


@pytest.mark.parametrize("rows", [0, 1, 2, 37])
def test_rows_of_a_line_however_many(rows: int) -> None:
    """One row is a dimension of length 1 that the line has not, and a tile goes along it."""

    @tile.kernel
    def kernel(x):
        y = hl.zeros([x.shape[0] * 3], dtype=x.dtype)
        v = y.reshape(x.shape[0], 3)
        for t in hl.tile(x.shape[0]):
            v[t, :] = x[t, :] * 2
        return y

    x = RNG.standard_normal((rows, 3)).astype(np.float32)
    np.testing.assert_array_equal(kernel(x), 2 * x.reshape(-1))


VIEW = (
    "v is a view that merges or splits dimensions, or is indexed by a number in one of length "
    "1 that it adds: stores through such views "
)
OF_ARGUMENT = (
    "of an argument are not supported",
    "pass y in the shape of v, as a view of the caller's",
)
OF_OUTPUT = (
    "are supported where all stores to y are by one",
    "store by v alone, or make y in that shape and return a view",
)
REFUSED = (
    (split, (), OF_ARGUMENT),
    (behind, (np.zeros(1, np.int32),), OF_ARGUMENT),
    (by_both, (), OF_OUTPUT),
)


@pytest.mark.parametrize("kernel, more, words", REFUSED)
def test_other_views_are_refused(
    kernel: Any, more: tuple[np.ndarray, ...], words: tuple[str, str]
) -> None:
    with pytest.raises(tile.PlanError) as found:
        kernel(np.ones((12, 8), np.float32), *more)
    assert found.value.what == VIEW + words[0]
    assert found.value.hint == words[1]
