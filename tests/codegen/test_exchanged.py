"""Carries take their next values at once: what one becomes is computed of what the others were.

The values of a loop whose steps are folded stand in scratch memory, and statements at its end run
under a condition of their own: a value that is computed there again must still see the old ones.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.codegen.pallas.plan.body import sections
from tilelang.errors import PlanError
from tilelang.schedule.config import LOOP_TYPES

FORMS = ({}, {"steps": "rectangle"}, *({"loop_type": t} for t in LOOP_TYPES))
OFFSETS = np.array([0, 7, 7, 24, 40], np.int32)
X = np.arange(40 * 8, dtype=np.float32).reshape(40, 8) % 5
SCALE = np.float32([1, 2, 0, 3])


@tile.kernel
def numbers(x, scale, offsets):
    """Two numbers change places for every group; rows of the group are stored between."""
    B = offsets.shape[0] - 1
    y, z = hl.zeros(x.shape, dtype=x.dtype), hl.empty([2], dtype=hl.float32)
    for i in hl.grid(2):
        a, b = 1.0, 2.0
        for g in hl.grid(B):
            a, b = b, a + scale[g]
            for t in hl.tile(offsets[g], offsets[g + 1]):
                y[t, :] = x[t, :] * 2
        z[i] = a - 5 * b
    return y, z


@tile.kernel
def rows(x, scale, offsets):
    """Three rows go round; each group adds its sum to the one that comes last."""
    B, D = offsets.shape[0] - 1, x.shape[1]
    y, z = hl.zeros([B, D], dtype=hl.float32), hl.empty([B, D], dtype=hl.float32)
    a, b = hl.zeros([D], dtype=hl.float32), hl.full([D], 1, dtype=hl.float32)
    c = hl.full([D], 2, dtype=hl.float32)
    for g in hl.grid(B):
        total = hl.zeros([D], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            total = total + x[t, :].sum(0)
        y[g, :] = a + 10 * b + 100 * c
        a, b, c = b, c, a * scale[g] + total
        z[g, :] = a
    return y, z


@tile.kernel
def boxes(x, scale, offsets):
    """A box per tile of columns, and one that follows it by an iteration."""
    B, D = offsets.shape[0] - 1, x.shape[1]
    y, z = hl.empty([D], dtype=hl.float32), hl.zeros([B, D], dtype=hl.float32)
    for d in hl.tile(D):
        new, old = hl.zeros([d], dtype=hl.float32), hl.full([d], 3, dtype=hl.float32)
        for g in hl.grid(B):
            new, old = old - new + scale[g], new * 2
            for t in hl.tile(offsets[g], offsets[g + 1]):
                hl.atomic_add(z, [g, d], x[t, d].sum(0))
        y[d] = new + old
    return y, z


@tile.kernel
def twice(x, scale, offsets):
    """Two numbers that change places in a loop inside of a tile; only one of them is added to."""
    y, z = hl.empty([2], dtype=hl.float32), hl.empty([2], dtype=hl.float32)
    for i in hl.grid(2):
        a, b = 0.0, 2.0
        for _ in hl.tile(1):
            for g in hl.grid(offsets.shape[0] - 1):
                a, b = b, a + x[g, :].sum(0)
        y[i], z[i] = a, b
    return y, z


def exact(kernel):
    found = kernel.reference(X, SCALE, OFFSETS)
    return found if isinstance(found, tuple) else (found,)


def by_hand():
    a, b = 1.0, 2.0
    for s in SCALE:
        a, b = b, a + s
    return X * 2, np.full(2, a - 5 * b)


def wrong(kernel, form) -> bool:
    """Whether a result is another one; skips what no plan of that form exists for."""
    try:
        found = kernel(X, SCALE, OFFSETS, config=tile.Config(**form) if form else None)
    except PlanError as refused:
        assert form, refused
        pytest.skip(str(refused).splitlines()[0])
    pairs = zip(found, exact(kernel), strict=True)
    return any(not np.array_equal(np.asarray(ours), right) for ours, right in pairs)


def test_the_reference_is_what_python_computes():
    for ours, right in zip(exact(numbers), by_hand(), strict=True):
        np.testing.assert_array_equal(ours, right)


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("kernel", [numbers, rows, boxes, twice], ids=lambda k: k.__name__)
def test_what_changes_places(kernel, form):
    assert not wrong(kernel, form)


def test_a_planted_bug_is_caught(monkeypatch):
    """The value is computed again where it is read, though what it reads has changed by then."""

    def late(stmts, source):
        names = sections.physical.names_read
        first = next(i for i, s in enumerate(stmts) if source.name in names(s))
        return (*stmts[:first], source, *stmts[first:])

    monkeypatch.setattr(sections, "_copied", late)
    again = tile.kernel(inspect.unwrap(numbers))  # nothing is planned yet
    assert wrong(again, {})
