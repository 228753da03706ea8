"""Why loops that add up are not split over devices: what results hold besides, and who reads it."""

from __future__ import annotations

import pytest

import tilelang as tile
import tilelang.language as hl
from tests.transforms.test_partition import found
from tilelang.ir import KernelIR

X, NUMBER, ROWS = ((8, 4), "float32"), ((1,), "int32"), ((8,), "float32")
W, COLUMNS, OFFSETS = ((2, 4), "float32"), ((4,), "float32"), ((5,), "int32")


@tile.kernel
def sums(x, s, more, how):
    """The sum of each row, and what keeps parts of it from being added up."""
    y = hl.full([x.shape[0], 2], 1.0 if how == "ones" else 0.0, dtype=hl.float32)
    z = hl.zeros([x.shape[0]], dtype=hl.float32)
    for tm in hl.tile(s[0] if how == "ones" else x.shape[0], max_extent=x.shape[0]):
        acc = more[tm] if how == "begun" else hl.zeros([tm], dtype=hl.float32)
        count = hl.zeros([tm], dtype=hl.int32)
        for tk in hl.tile(x.shape[1]):
            acc = acc + x[tm, tk].sum(1)
            count = count + x[tm, tk].to(hl.int32).sum(1)
        if how == "decides":
            hl.store(y, [tm, 0], acc, mask=acc > 0)
        else:
            y[tm, 0] = acc
        if how == "others":
            y[tm, 1] = hl.full([tm], 1.0, dtype=hl.float32)
        if how == "integers":
            y[tm, 1] = count.to(hl.float32)
    if how == "read":
        for tn in hl.tile(x.shape[0]):
            z[tn] = y[tn, 0] * 2
    return y, z


@tile.kernel
def groups(w, more, x, offsets, how):
    """Rows of all groups together, and rows that each group has."""
    y = hl.full([w.shape[1]], 1.0 if how == "ones" else 0.0, dtype=hl.float32)
    z = hl.zeros([x.shape[0]], dtype=hl.float32)
    for g in hl.grid(w.shape[0]):
        if how == "few":
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                z[tm] = x[tm] * w[g, 0]
        elif how == "given":
            hl.atomic_add(more, [slice(None)], w[g, :])
        else:
            hl.atomic_add(y, [slice(None)], w[g, :])
    if how == "again":
        for tn in hl.tile(w.shape[1]):
            hl.atomic_add(y, [tn], more[tn])
    return y, z


def why(ir: KernelIR, axis: str) -> str:
    (factor,) = (f for f in found(ir).values() if axis in f.axes)
    assert factor.kind is None
    return factor.why


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("begun", "the sum over tk does not begin with zero"),
        ("decides", "the sum over tk decides what is stored"),
        ("others", "y holds other values, too"),
        ("integers", "y holds sums of several dtypes"),
        ("ones", "y is added up over devices and does not begin as zeros"),
        ("read", "y is added up over devices and read by the kernel"),
    ],
)
def test_sums(how, what):
    given = (tile.spec(*shape) for shape in (X, NUMBER, ROWS))
    assert why(sums.lower(*given, how, target="tpu:v6e").ir, "tk") == what


@pytest.mark.parametrize(
    ("how", "what"),
    [
        ("ones", "y is added up over devices and does not begin as zeros"),
        ("again", "y is stored outside of the loop, too"),
        ("given", "more is an argument that every group stores to"),
        ("few", "offsets does not hold one number more than there are groups"),
    ],
)
def test_groups(how, what):
    given = (tile.spec(*shape) for shape in (W, COLUMNS, ROWS, OFFSETS))
    assert why(groups.lower(*given, how, target="tpu:v6e").ir, "g") == what
