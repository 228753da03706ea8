"""Vectors and boxes that the outermost loop carries: hl.zeros before the loops, assigned in one."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.subjects import HAS_TORCH
from tilelang.errors import ParseError, PlanError

OFFSETS = np.array([0, 7, 7, 24, 40])
X = np.arange(40 * 12, dtype=np.float32).reshape(40, 12) % 11
FORMS = ({}, {"steps": "rectangle"}, {"loop_type": "worklist"}, {"loop_type": "fori_loop"},
         {"loop_type": "emit_pipeline"})  # fmt: skip


@tile.kernel
def running(x, offsets):
    """y[g] = the sum of the rows of all groups up to g; z, their number; m, the largest."""
    B, D = offsets.shape[0] - 1, x.shape[1]
    y, m = hl.zeros([B, D], dtype=hl.float32), hl.empty([B, D], dtype=hl.float32)
    z = hl.zeros([B], dtype=hl.int32)
    acc, top = hl.zeros([D], dtype=hl.float32), hl.full([1, D], -1, dtype=hl.float32)
    count = hl.zeros([], dtype=hl.int32)
    for g in hl.grid(B):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            acc = acc + x[t, :].sum(0)
            top = hl.maximum(top, x[t, :].amax(0)[None, :])
            count += t.end - t.begin
        y[g, :] = acc
        m[g, :] = top.reshape(D)
        z[g] = count
    return y, z, m


@tile.kernel
def exchanged(x, offsets):
    """Two carries change places in every turn."""
    y, B = hl.zeros(x.shape, dtype=x.dtype), offsets.shape[0] - 1
    for g in hl.grid(B):
        a, b = hl.zeros([x.shape[1]], dtype=hl.float32), hl.full([x.shape[1]], 1, dtype=hl.float32)
        for i in hl.grid(offsets[g], offsets[g + 1]):
            y[i, :] = a * x[i, :]
            a, b = b, a
    return y


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_carries_change_places(form):
    turns = np.concatenate([np.arange(n) % 2 for n in np.diff(OFFSETS)])
    try:
        found = exchanged(X, OFFSETS, config=tile.Config(**form))
    except PlanError:
        assert form
        return
    np.testing.assert_array_equal(np.asarray(found), X * turns[:, None])


def exact():
    ends = OFFSETS[1:]
    sums = np.stack([X[:e].sum(0) for e in ends])
    return sums, ends, np.stack([X[:e].max(0, initial=-1) for e in ends])


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("block", [8, 16])
def test_a_vector_is_carried_over_the_outermost_loop(form, block):
    for found, right in zip(running.reference(X, OFFSETS), exact(), strict=True):
        np.testing.assert_array_equal(found, right)
    try:
        found = running(X, OFFSETS, config=tile.Config({"t": block}, **form))
    except PlanError:
        assert form
        return
    for ours, right in zip(found, exact(), strict=True):
        np.testing.assert_array_equal(np.asarray(ours), right)


@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
def test_in_torch_spelling():
    import torch

    @tile.kernel
    def scan(x):
        y = torch.empty_like(x)
        run = torch.zeros(x.shape[1], dtype=torch.float32)
        for i in hl.grid(x.shape[0]):
            run = run * 0.5 + x[i, :]
            y[i, :] = run
        return y

    x, run = torch.from_numpy(X), torch.zeros(12)
    for got, row in zip(scan(x), x, strict=True):
        run = run * 0.5 + row
        torch.testing.assert_close(got, run)


def refused(kernel):
    with pytest.raises(ParseError) as caught:
        kernel.source(X)
    return caught.value.what.replace(str(caught.value.loc.line), "N"), caught.value.hint


def test_what_has_no_value_to_begin_with():
    @tile.kernel
    def kernel(x):
        y = hl.empty(x.shape, dtype=hl.float32)
        acc = hl.empty([x.shape[1]], dtype=hl.float32)
        for i in hl.grid(x.shape[0]):
            acc = acc + x[i, :]
            y[i, :] = acc
        return y

    what, hint = refused(kernel)
    assert what.startswith("acc is the tensor acc before the loop of line ")
    assert hint == (
        "a tensor is changed by a store: acc[index] = value; "
        "a value begins as acc = hl.zeros([...])"
    )


def test_what_was_stored_to_is_a_tensor():
    @tile.kernel
    def kernel(x):
        y = hl.empty(x.shape, dtype=hl.float32)
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(x.shape[1]):
            acc[t] = x[0, t]
        for i in hl.grid(x.shape[0]):
            acc = acc + x[i, :]
            y[i, :] = acc
        return y

    what, hint = refused(kernel)
    assert what.startswith("acc is the tensor acc before the loop of line ")
    assert hint == "a tensor is changed by a store: acc[index] = value"


def test_a_launch_leaves_no_values():
    @tile.kernel
    def kernel(x):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        y = hl.zeros([x.shape[1]], dtype=hl.float32)
        for i in hl.grid(x.shape[0]):
            acc = acc + x[i, :]
            y[:] = acc
        return y, acc

    what, hint = refused(kernel)
    assert what.startswith("acc is computed by the loop of line ")
    assert hint == ("store it to an output in the loop: a launch leaves nothing but tensors")
