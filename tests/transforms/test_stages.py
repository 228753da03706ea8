"""Kernels cut where a loop is done, and largest and smallest of parts."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged.jagged_layer_norm import jagged_layer_norm
from examples.jagged.jagged_softmax import jagged_softmax
from tests import derivatives
from tests.partitions import divided
from tests.transforms.test_partition import F, found, parsed
from tilelang.analysis import analyze
from tilelang.transforms.partition import factors
from tilelang.transforms.stages import staged

OFFSETS = np.int32([0, 3, 3, 7])
X, STARTS = ((8, 4), F), ((4,), "int32")


def extremes(x, offsets):
    """The largest and the smallest of each group; a group of none has what they begin with."""
    most = hl.zeros([offsets.shape[0] - 1], dtype=hl.float32)
    least = hl.zeros([offsets.shape[0] - 1], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        high = hl.full([], -5.0, dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            high = hl.maximum(high, x[t].amax())
        most[g] = high
    for g in hl.grid(offsets.shape[0] - 1):
        low = hl.full([], 5.0, dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            low = hl.minimum(low, x[t].amin())
        least[g] = low
    return most, least


def smallest(x, offsets):
    y = hl.zeros([offsets.shape[0] - 1], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        low = hl.full([], 5.0, dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            low = hl.minimum(low, x[t].amin())
        y[g] = low
    return y


def twice_the_largest(x, offsets):
    y = hl.zeros([offsets.shape[0] - 1], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        high = hl.full([], -5.0, dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            high = hl.maximum(high, x[t].amax())
        y[g] = -2.0 * high
    return y


def running_sum(x, offsets):
    """Every row with those before it: no sum of parts."""
    y = hl.zeros_like(x)
    for g in hl.grid(offsets.shape[0] - 1):
        for td in hl.tile(x.shape[1]):
            before = hl.zeros([td], dtype=hl.float32)
            for t in hl.tile(offsets[g], offsets[g + 1]):
                seen = hl.where(t.index[:, None] >= t.index[None, :], 1.0, 0.0)
                y[t, td] = before[None, :] + hl.dot(seen, x[t, td])
                before = before + x[t, td].sum(0)
    return y


def faded(x):
    """Largest sums of columns, and a number that another loop carries: no sum is all there is."""
    y = hl.zeros([x.shape[0]], dtype=hl.float32)
    for s in hl.tile(x.shape[0]):
        left = hl.full([s], 0.0, dtype=hl.float32)
        for _ in hl.grid(2):
            left = left * 0.5 + 1.0
        total = hl.zeros([s], dtype=hl.float32)
        for t in hl.tile(x.shape[1]):
            total = total + x[s, t].sum(1)
        y[s] = hl.maximum(total, left)
    return y


def shares(x, w, offsets):
    """Every row by its share of the weights of its group."""
    y = hl.zeros_like(x)
    for g in hl.grid(offsets.shape[0] - 1):
        total = 0.0
        for t in hl.tile(offsets[g], offsets[g + 1]):
            total += w[t].sum()
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t] = x[t] * w[t] / total
    return y


def stored_twice(x, w):
    """Every row of x over its sum, twice: a value of one loop goes to places of another in it."""
    y = hl.zeros([32, x.shape[1]], dtype=hl.float32)
    for t in hl.tile(16):
        total = hl.zeros([t], dtype=hl.float32)
        for k in hl.tile(x.shape[1]):
            total = total + x[t, k].sum(1)
        for i in hl.grid(2):
            for k in hl.tile(x.shape[1]):
                y[i * 16 + t.index, k] = x[t, k] / total[:, None] * w[i]
    return y


def stored_again(x, offsets):
    """Twice a sum, of which one is read back; what is read before it is stored is zero."""
    y = hl.zeros([offsets.shape[0] - 1], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        total = 0.0
        for t in hl.tile(offsets[g], offsets[g + 1]):
            total += x[t].sum()
        before = y[g]
        y[g] = total
        y[g] = y[g] + total - before
    return y


def in_a_range_that_is_stored(x):
    """How far each row is read is what the launch has just stored."""
    ends = hl.zeros([x.shape[0]], dtype=hl.int32)
    y = hl.zeros([x.shape[0]], dtype=hl.float32)
    for i in hl.grid(x.shape[0]):
        ends[i] = i // 2
        total = 0.0
        for t in hl.tile(0, ends[i], max_extent=x.shape[1]):
            total += x[i, t].sum()
        y[i] = total
    return y, ends


def stages_of(kernel, axes, *shapes):
    ir = parsed(kernel, *shapes)
    facts = analyze(ir)
    return staged(ir, facts, [f for f in factors(ir, facts) if f.axes & axes])


def kinds(stage):
    """How a stage is split along rows."""
    return [f.kind for f in stage.factors if f.axes & {"t", "tm"}]


def test_the_stages_of_a_softmax():
    """A maximum, the sum in that gauge, and the rows."""
    made = stages_of(jagged_softmax.__wrapped__, {"tm", "tm_1"}, X, STARTS)
    assert [stage.ir.returns for stage in made] == [("all_m",), ("all_total",), ("y",)]
    assert [p.tensor for p in made[1].ir.params] == ["offsets", "x", "all_m"]
    assert [kinds(stage) for stage in made] == [["max"], ["sum"], ["rows"]]


def softmax_in_pieces(x, offsets):
    """Rows are those of pieces of one length, and so are the rows of what is returned."""
    rows = x.reshape(-1, x.shape[2])
    y = hl.zeros(rows.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        total = hl.zeros([x.shape[2]], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            total = total + hl.exp(rows[t, :]).sum(0)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = hl.exp(rows[t, :]) / total[None, :]
    return y.reshape(x.shape), y.T


def test_stages_of_arrays_in_another_form():
    ir = parsed(softmax_in_pieces, ((4, 2, 3), F), STARTS)
    (rows,) = [f for f in factors(ir, analyze(ir)) if ("x", 0) in f.dims]
    stages = staged(ir, analyze(ir), [rows])
    assert [stage.ir.returns for stage in stages] == [("all_total",), ("y_view", "y_view_1")]
    x = np.random.default_rng(0).standard_normal((4, 2, 3)).astype(np.float32)
    for offsets in ([0, 3, 3, 7], [0, 0, 8, 8], [5, 5, 5, 5]):
        assert list(divided(ir, {"x": x, "offsets": np.int32(offsets)})) == []


def test_a_sum_that_needs_another_comes_after_it():
    made = stages_of(
        jagged_layer_norm.__wrapped__, {"tm", "tm_1", "tm_2"}, X, ((4,), F), ((4,), F), STARTS
    )
    assert [stage.ir.returns for stage in made] == [("all_total",), ("all_squares",), ("y",)]
    assert [kinds(stage) for stage in made] == [["sum"], ["sum"], ["rows"]]


def test_what_iterations_meet_has_no_stages():
    assert stages_of(running_sum, {"t"}, X, STARTS) == ()


def test_what_another_loop_carries_has_no_stages():
    assert stages_of(faded, {"t"}, X) == ()


def test_a_sum_that_would_lie_at_several_places_has_no_stages():
    x, w = np.random.default_rng(0).uniform(1, 2, (16, 6)).astype(np.float32), np.float32([1, 3])
    ir, facts = derivatives.parsed(tile.kernel(stored_twice), (x, w))
    (columns,) = (f for f in factors(ir, facts) if "k" in f.axes)
    assert columns.size == 6 and staged(ir, facts, [columns]) == ()
    assert list(divided(ir, {"x": x, "w": w})) == []


@pytest.mark.parametrize("kernel", [stored_again, in_a_range_that_is_stored])
def test_what_reads_what_it_stores_has_no_stages(kernel):
    rng = np.random.default_rng(0)
    given = {"x": rng.uniform(1, 9, (8,) if kernel is stored_again else (8, 4)).astype(np.float32)}
    given |= {"offsets": OFFSETS} if kernel is stored_again else {}
    ir, facts = derivatives.parsed(tile.kernel(kernel), tuple(given.values()))
    assert list(divided(ir, given)) == []
    (rows,) = (f for f in factors(ir, facts) if "t" in f.axes)
    assert rows.kind is None and staged(ir, facts, [rows]) == ()


def test_several_launches_have_no_stages():
    assert stages_of(extremes, {"t"}, ((8,), F), STARTS) == ()


@pytest.mark.parametrize("kernel", [smallest, twice_the_largest, shares])
def test_parts_are_put_together(kernel):
    """Also what begins with a number, and what is computed of the largest."""
    rows = [((8,), F)] * (2 if kernel is shares else 1)
    ir, rng = parsed(kernel, *rows, STARTS), np.random.default_rng(0)
    names = [p.tensor for p in ir.params]
    values = [rng.uniform(1, 9, 8).astype(np.float32) for _ in rows]
    assert list(divided(ir, dict(zip(names, (*values, OFFSETS), strict=True)))) == []
    (factor,) = (f for f in factors(ir, analyze(ir)) if "t" in f.axes)
    assert factor.kind == ("min" if kernel is smallest else None)
    assert factor.kind or staged(ir, analyze(ir), [factor])


def test_a_number_times_the_largest_is_not_the_largest():
    why = found(parsed(twice_the_largest, ((8,), F), STARTS))["t"].why
    assert why == "y is not the max over t itself"
