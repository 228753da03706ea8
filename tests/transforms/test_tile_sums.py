"""Kernels that add sums of tiles to arrays, and tiles that the author fixed, in parts."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang.language as hl
from tests.partitions import divided
from tests.transforms.test_partition import F, found, parsed


def columns(x):
    y = hl.zeros([x.shape[1]], dtype=x.dtype)
    for t, n in hl.tile(x.shape):
        hl.atomic_add(y, [n], x[t, n].sum(0))
    return y


def scaled_columns(x, w, offsets):
    """The factor of a group is the same on every device; groups are split, too."""
    y = hl.zeros([x.shape[1]], dtype=x.dtype)
    for g in hl.grid(w.shape[0]):
        for t, n in hl.tile([offsets[g], 0], [offsets[g + 1], x.shape[1]]):
            total = x[t, n].sum(0)
            hl.atomic_add(y, [n], total * w[g] * -2.0)
    return y


def products(x, z, offsets):
    y = hl.zeros([x.shape[1], z.shape[1]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t, n in hl.tile([offsets[g], 0], [offsets[g + 1], x.shape[1]]):
            hl.atomic_add(y, [n, slice(None)], hl.dot(x[t, n].T, z[t, :]))
    return y


def later_tiles(x):
    """Tiles are told apart: none is cut."""
    y = hl.zeros([x.shape[1]], dtype=x.dtype)
    for t in hl.tile(x.shape[0], block_size=8):
        if t.begin > 8:
            hl.atomic_add(y, [slice(None)], x[t, :].sum(0))
    return y


def squares(x):
    y = hl.zeros([x.shape[1]], dtype=x.dtype)
    for t in hl.tile(x.shape[0], block_size=8):
        total = x[t, :].sum(0)
        hl.atomic_add(y, [slice(None)], total * total)
    return y


def numbered(x):
    y = hl.zeros([x.shape[1]], dtype=x.dtype)
    for t in hl.tile(x.shape[0], block_size=8):
        hl.atomic_add(y, [slice(None)], x[t, :].sum(0) * (t.begin + 1))
    return y


def used_beside(x):
    y, z = hl.zeros([x.shape[1]], dtype=x.dtype), hl.zeros(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0], block_size=8):
        total = x[t, :].sum(0)
        hl.atomic_add(y, [slice(None)], total)
        z[t, :] = x[t, :] - total[None, :]
    return y, z


def cut_off(x):
    y = hl.zeros([x.shape[1]], dtype=hl.int32)
    for t in hl.tile(x.shape[0], block_size=8):
        hl.atomic_add(y, [slice(None)], x[t, :].sum(0).to(hl.int32))
    return y


def begins(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0], block_size=8):
        y[t, :] = x[t, :] * (t.index - t.begin)[:, None]
    return y


def begins_of_groups(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=8):
            y[t, :, :] = x[t, :, :] * t.begin  # whose tiles begin where its ranges do, on TPUs too
    return y


def summed_up(x):
    """What a tile adds is of all of it: none is cut."""
    y = hl.zeros([x.shape[1]], dtype=x.dtype)
    for n in hl.tile(x.shape[1]):
        found = hl.full([n], 0.0, dtype=x.dtype)
        for t in hl.tile(x.shape[0], block_size=8):
            upto = hl.where(t.index[:, None] >= t.index[None, :], 1.0, 0.0)
            found = found + hl.dot(upto, x[t, n]).sum(0)
        y[n] = found
    return y


def sizes(x):
    y = hl.zeros([x.shape[1]], dtype=x.dtype)
    for n in hl.tile(x.shape[1]):
        found = hl.full([n], 0.0, dtype=x.dtype)
        for t in hl.tile(x.shape[0], block_size=8):
            found = found + hl.abs(x[t, n].sum(0))
        y[n] = found
    return y


def fixed_columns(x):
    """The block says nothing of what is added."""
    y = hl.zeros([x.shape[1]], dtype=x.dtype)
    for n in hl.tile(x.shape[1]):
        found = hl.full([n], 0.0, dtype=x.dtype)
        for t in hl.tile(x.shape[0], block_size=8):
            found = found + hl.abs(x[t, n]).sum(0) * 0.5
        y[n] = found
    return y


def least(x):
    y = hl.zeros([x.shape[1]], dtype=x.dtype)
    for n in hl.tile(x.shape[1]):
        found = hl.full([n], -100.0, dtype=x.dtype)
        for t in hl.tile(x.shape[0], block_size=8):
            found = hl.maximum(found, -x[t, n].amax(0))
        y[n] = found
    return y


def summed_up_by_groups(x, offsets):
    y = hl.zeros([offsets.shape[0] - 1, *x.shape[1:]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        found = hl.zeros(x.shape[1:], dtype=x.dtype)
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=8):
            upto = hl.where(t.index[:, None] >= t.index[None, :], 1.0, 0.0)
            found = found + hl.einsum("st,tab->sab", upto, x[t, :, :]).sum(0)
        y[g, :, :] = found
    return y


def less_each(x, offsets):
    y = hl.zeros([offsets.shape[0] - 1, *x.shape[1:]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        found = hl.zeros(x.shape[1:], dtype=x.dtype)
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=8):
            found = found + hl.abs(x[t, :, :] - x[t, :, :].sum(0)[None, :, :]).sum(0)
        y[g, :, :] = found
    return y


RNG = np.random.default_rng(0)
X, W = (RNG.standard_normal(shape, np.float32) for shape in ((48, 4), (3,)))
LAYOUTS = ([3, 17, 17, 40], [0, 0, 0, 0], [0, 48, 48, 48], [12, 24, 25, 36])
TOGETHER = "sum brings elements along t together"
# kernel -> more arguments, and how its rows are split: a kind, how many stay together
RIGHT = {
    columns: ({}, "groups", 1),
    scaled_columns: ({"w": W}, "rows", 1),
    products: ({"z": X[:, :3]}, "rows", 1),
    later_tiles: ({}, "groups", 8),
    begins: ({}, "parallel", 8),
    summed_up: ({}, "sum", 8),
    sizes: ({}, "sum", 8),
    fixed_columns: ({}, "sum", 1),
    least: ({}, "max", 8),
}
WRONG = {
    squares: TOGETHER,
    numbered: TOGETHER,
    used_beside: TOGETHER,
    cut_off: TOGETHER,
    begins_of_groups: "tiles of t begin elsewhere in parts",
    summed_up_by_groups: "tiles of t begin elsewhere in parts",
    less_each: "tiles of t begin elsewhere in parts",
}


BY_GROUPS = (begins_of_groups, summed_up_by_groups, less_each)


def given_of(kernel, more):
    names = kernel.__code__.co_varnames[: kernel.__code__.co_argcount]
    for offsets in LAYOUTS if "offsets" in names else LAYOUTS[:1]:
        known = {"x": X, **more, "offsets": np.int32(offsets)}
        yield {name: known[name] for name in names}


def ir_of(kernel, given):
    return parsed(kernel, *((a.shape, str(a.dtype)) for a in given.values()))


@pytest.mark.parametrize("kernel", RIGHT, ids=lambda k: k.__name__)
def test_parts_put_together_are_the_whole(kernel):
    more, kind, together = RIGHT[kernel]
    for given in given_of(kernel, more):
        ir = ir_of(kernel, given)
        rows = found(ir)["t"]
        assert (rows.kind, rows.together) == (kind, together)
        assert dict(rows.added) == ({} if kind == "parallel" else {"y": F})
        assert list(divided(ir, given)) == []


@pytest.mark.parametrize("kernel", WRONG, ids=lambda k: k.__name__)
def test_what_goes_by_how_rows_are_cut_is_not_split(kernel):
    more = {"x": X[:, None, :]} if kernel in BY_GROUPS else {}
    given = next(given_of(kernel, more))
    rows = found(ir_of(kernel, given))["t"]
    assert (rows.kind, rows.why) == (None, WRONG[kernel])
