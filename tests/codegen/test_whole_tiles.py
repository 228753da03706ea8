"""Tiles that end where tiles of another axis do are whole: nothing of them is masked.

Evidence: text; the interpreter runs such kernels in tests/gpu.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

import tilelang as tile
import tilelang.language as hl
from tests.gpu import kernels
from tilelang import analysis
from tilelang.codegen.triton.plan import body
from tilelang.codegen.triton.plan.problem import Prepared


@tile.kernel
def triangle(x, w, rows: hl.constexpr):
    """Sums over the columns up to the diagonal, and over those from it on."""
    M, N = x.shape[0], w.shape[1]
    low, high = hl.empty([M, N], dtype=hl.float32), hl.empty([M, N], dtype=hl.float32)
    for t in hl.tile(M, block_size=rows):
        acc = hl.zeros([t, N], dtype=hl.float32)
        for k in hl.tile(t.end):
            acc = hl.dot(x[t, k], w[k, :], acc=acc)
        low[t, :] = acc
        acc = hl.zeros([t, N], dtype=hl.float32)
        for k in hl.tile(t.begin, M):
            acc = hl.dot(x[t, k], w[k, :], acc=acc)
        high[t, :] = acc
    return low, high


@tile.kernel
def twice_around(x, offsets):
    """Two loops over one range, the second of which follows a store to what may be its end."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        total = hl.zeros([], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            total += x[t].sum(0)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t] = x[t] / total
    return y


def text(rows, t, k):
    specs = tile.spec((rows, rows), "bfloat16"), tile.spec((rows, 64), "bfloat16")
    config = tile.Config({"k": k, "k_1": k}, indexing="pointer")
    return triangle.source(*specs, t, target="cuda:sm90", config=config)


def masks(*sizes):
    made = text(*sizes)
    return "k_in" in made, "k_1_in" in made


def test_steps_that_divide_the_tiles_around_leave_no_mask():
    assert masks(512, 128, 64) == (False, False)
    assert masks(512, 64, 64) == (False, False)


def test_other_steps_do():
    assert masks(512, 64, 128) == (True, True)
    assert masks(512, 48, 32) == (True, True)


def test_the_last_tile_around_may_be_cut():
    """480 rows are 3.75 tiles of 128 and 7.5 of 64: the first range ends at them, in no tile."""
    assert masks(480, 128, 64) == (True, True)
    assert masks(480, 128, 32) == (False, False)


def test_planted_edges_of_tiles_are_multiples_of_anything(monkeypatch):
    monkeypatch.setattr(Prepared, "is_multiple", lambda self, bound, of: True)
    fresh = tile.kernel(triangle.__wrapped__)
    specs = tile.spec((480, 480), "bfloat16"), tile.spec((480, 64), "bfloat16")
    config = tile.Config({"k": 64, "k_1": 64}, indexing="pointer")
    assert "k_in" not in fresh.source(*specs, 128, target="cuda:sm90", config=config)


def test_loops_over_one_range_share_its_ends():
    made = twice_around.source(
        tile.spec((512,), "float32"), tile.spec((9,), "int32"), target="cuda:sm90"
    )
    assert made.count("tl.maximum(offsets_value, 0)") == 1
    assert made.count("in tl.range(t_begin, t_end, ") == 2


@tile.kernel
def moved_ends(x, ends):
    """The end of a range changes between two loops over it."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(1):
        for t in hl.tile(ends[g]):
            y[t] = x[t]
        ends[g] = 3
        for t in hl.tile(ends[g]):
            y[t] = y[t] * 2.0
    return y


def test_an_end_that_is_stored_to_is_read_again():
    made = moved_ends.source(
        tile.spec((512,), "float32"), tile.spec((1,), "int32"), target="cuda:sm90"
    )
    heads = [line.split("(")[1] for line in made.splitlines() if " in tl.range(" in line]
    assert len(set(heads)) == 2, made


def test_planted_ends_are_kept_whatever_is_stored(monkeypatch):
    monkeypatch.setattr(body, "_stored", lambda scope, load: False)
    fresh = tile.kernel(moved_ends.__wrapped__)
    made = fresh.source(tile.spec((512,), "float32"), tile.spec((1,), "int32"), target="cuda:sm90")
    heads = [line.split("(")[1] for line in made.splitlines() if " in tl.range(" in line]
    assert len(set(heads)) == 1


def barriers(kernel, *shapes):
    specs = [tile.spec(shape, dtype) for shape, dtype in shapes]
    return tile.kernel(kernel.__wrapped__).source(*specs, target="cuda:sm90").count("barrier")


@tile.kernel
def overwritten(x):
    """The last row stays."""
    y = hl.zeros([x.shape[1]], dtype=x.dtype)
    for t in hl.tile(x.shape[1]):
        for i in hl.grid(x.shape[0]):
            y[t] = x[i, t]
    return y


STATES = (*(((512, 2, 64), "bfloat16"),) * 3, ((5,), "int32"))


def test_loops_that_what_they_carry_alone_orders_wait_for_no_stores():
    """A barrier in a loop keeps Triton from copying ahead in it."""
    assert barriers(kernels.linear_attention, *STATES) == 0
    assert barriers(overwritten, ((8, 64), "float32")) == 1


@pytest.mark.parametrize("meets", [True, False])
def test_planted_iterations_always_meet_or_never(monkeypatch, meets):
    found = analysis.axis_fact
    monkeypatch.setattr(analysis, "axis_fact", lambda *args: replace(found(*args), meets=meets))
    with pytest.raises(AssertionError):
        test_loops_that_what_they_carry_alone_orders_wait_for_no_stores()
