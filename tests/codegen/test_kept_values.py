"""Values that scratch memory keeps from one section of a step to another, in every loop type.

What is kept may be rows that were put together one by one, which are no expression, and several
pipelines within a step may read it, each more than once.
"""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.codegen.pallas.plan.body import sections
from tilelang.errors import InternalError, PlanError
from tilelang.schedule.config import LOOP_TYPES

FORMS = ({}, {"steps": "rectangle"}, *({"loop_type": t} for t in LOOP_TYPES))
OFFSETS = np.array([0, 17, 17, 40], np.int32)
X = np.arange(24, dtype=np.float32).reshape(8, 3) % 7
V = np.arange(40, dtype=np.float32) % 5


@tile.kernel
def fetched(x, v, offsets):
    """A column of single numbers, stored behind each of two loops that do not read it."""
    G, S = offsets.shape[0] - 1, x.shape[0]
    y, z = hl.zeros([S, G, v.shape[0]], dtype=x.dtype), hl.zeros([S, G, v.shape[0]], dtype=x.dtype)
    first, second = hl.zeros([S, G], dtype=x.dtype), hl.zeros([S, G], dtype=x.dtype)
    flat = x.reshape(S * G)
    for s in hl.tile(S):
        for g in hl.grid(G):
            column = flat[s.index * G + g]
            for t in hl.tile(offsets[g], offsets[g + 1]):
                y[s, g, t] = v[t][None, :] + hl.zeros([s, t], dtype=x.dtype)
            first[s, g] = column
            for t in hl.tile(offsets[g], offsets[g + 1]):
                z[s, g, t] = v[t][None, :] * 2 + hl.zeros([s, t], dtype=x.dtype)
            second[s, g] = column * 2
    return y, z, first, second


@tile.kernel
def read_by_two(x, v, offsets):
    """Made at the first group, and read by two loops: by the second one in two statements."""
    G, S = offsets.shape[0] - 1, v.shape[0]
    y = hl.zeros([S, G, v.shape[0]], dtype=x.dtype)
    z = hl.zeros([S, G, 2, v.shape[0]], dtype=x.dtype)
    totals = hl.empty([S], dtype=hl.float32)
    for s in hl.tile(S):
        column = hl.tanh(v[s])
        total = hl.zeros([s], dtype=hl.float32)
        for g in hl.grid(G):
            for t in hl.tile(offsets[g], offsets[g + 1]):
                total = total + v[t].sum(0)
            for t in hl.tile(offsets[g], offsets[g + 1]):
                y[s, g, t] = column[:, None] + hl.zeros([s, t], dtype=x.dtype)
            for t in hl.tile(offsets[g], offsets[g + 1]):
                z[s, g, 0, t] = v[t][None, :] - column[:, None]
                z[s, g, 1, t] = v[t][None, :] * column[:, None]
        totals[s] = total
    return y, z, totals


def run(kernel, form):
    try:
        return kernel(X, V, OFFSETS, config=tile.Config(**form) if form else None)
    except PlanError as refused:
        assert form, refused
        pytest.skip(str(refused).splitlines()[0])


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("kernel", [fetched, read_by_two], ids=lambda k: k.__name__)
def test_values_that_are_kept(kernel, form):
    for ours, right in zip(run(kernel, form), kernel.reference(X, V, OFFSETS), strict=True):
        np.testing.assert_allclose(np.asarray(ours), right, atol=1e-6)


def test_the_reference_is_what_numpy_computes():
    y, z, first, second = fetched.reference(X, V, OFFSETS)
    np.testing.assert_array_equal(first, X)
    np.testing.assert_array_equal(second, 2 * X)
    np.testing.assert_array_equal(y[:, 2, 17:], np.broadcast_to(V[17:], (8, 23)))
    np.testing.assert_array_equal(z, 2 * y)
    _, two, totals = read_by_two.reference(X, V, OFFSETS)
    np.testing.assert_allclose(two[:, 0, 0, :17], V[:17] - np.tanh(V)[:, None], atol=1e-6)
    np.testing.assert_allclose(two[:, 2, 1, 17:], V[17:] * np.tanh(V)[:, None], atol=1e-6)
    np.testing.assert_array_equal(totals, np.full(40, V.sum()))


def direct(stmts):
    """Planted: rows are kept where they are put together."""
    for keep in (s for s in stmts if isinstance(s, sections.Keep)):
        value = keep.value
        made = next((s for s in stmts if getattr(s, "name", "") == getattr(value, "name", 0)), None)
        if isinstance(made, sections.Bind) and isinstance(made.value, sections.physical.TakeRows):
            kept = sections.Keep(keep.name, made.value, made.loc)
            stmts = tuple(kept if s is made else s for s in stmts if s is not keep)
    return stmts


PLANTED = {
    "rows in an expression": (fetched, {}, "_direct_keeps", direct, "puts rows together within"),
    "a local that is itself": (
        read_by_two, {"loop_type": "emit_pipeline"}, "_without_own", lambda stmts, _: stmts,
        "is itself",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_planted_bugs_are_caught(name, monkeypatch):
    kernel, form, function, wrong, message = PLANTED[name]
    monkeypatch.setattr(sections, function, wrong)
    again = tile.kernel(inspect.unwrap(kernel))  # nothing is planned yet
    with pytest.raises(InternalError, match=message):
        again.source(X, V, OFFSETS, config=tile.Config(**form))
