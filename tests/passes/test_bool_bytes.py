"""bool_bytes: tiles of bools are bytes on TPUs, which copy no bools."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.ragged import Space, every_stratum
from tilelang.codegen.pallas.passes.bool_bytes import bool_bytes
from tilelang.codegen.pallas.target import TARGETS as EVERY
from tilelang.ir.verify import verify

ROWS, WIDTH, GROUPS = 200, 136, 7
FAST = ("tpu:v4", "tpu:v5e")
TARGETS = [n if n in FAST else pytest.param(n, marks=pytest.mark.slow) for n in EVERY if n != "cpu"]


@tile.kernel
def kept(x, keep, live, offsets):
    """y[r] = x[r] where keep[r], and whether that is positive; rows of groups that live."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    up = hl.zeros(x.shape, dtype=hl.bool_)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            value = hl.where(keep[t, :] & live[g], x[t, :], 0.0)
            y[t, :] = value
            up[t, :] = value > 0
    return y, up


@tile.kernel
def as_vector(x, offsets):
    """What is made here is returned as it is, and as a view of it."""
    up = hl.zeros(x.shape, dtype=hl.bool_)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            up[t, :] = x[t, :] > 0
    return up.reshape(x.shape[0] * x.shape[1]), up


@tile.kernel
def picked(x, keep, ids):
    y = hl.zeros([ids.shape[0], x.shape[1]], dtype=x.dtype)
    for t in hl.tile(ids.shape[0]):
        y[t, :] = hl.where(keep[ids[t], :], x[ids[t], :], 0.0)
    return y


@tile.kernel
def flipped(flags, offsets):
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            flags[t, :] = ~flags[t, :]


@tile.kernel
def flipped_row(flags, offsets):
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            flags[t] = ~flags[t]


@tile.kernel
def flipped_whole(flags):
    for t, d in hl.tile(flags.shape):
        flags[t, d] = ~flags[t, d]


def arguments() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((ROWS, WIDTH), np.float32)
    return x, rng.random((ROWS, WIDTH)) < 0.5, np.arange(GROUPS) % 3 != 1


def by_hand(x, keep, live, offsets):
    rows = np.zeros(len(x), bool)
    for g in range(GROUPS):
        rows[offsets[g] : offsets[g + 1]] |= live[g]
    y = np.where(keep & rows[:, None], x, 0)
    return y, y > 0


@pytest.mark.parametrize("config", [None, {"t": 32}])
def test_results_are_those_of_bools(config) -> None:
    given = arguments()
    kernel = tile.kernel(kept.__wrapped__, config=tile.Config(config)) if config else kept
    for layout in every_stratum(Space(ROWS, GROUPS, 32)):
        y, up = kernel(*given, layout.offsets)
        want, positive = by_hand(*given, layout.offsets)
        np.testing.assert_array_equal(np.asarray(y), want, str(layout))
        assert up.dtype == bool
        np.testing.assert_array_equal(np.asarray(up), positive, str(layout))


def test_views_of_results_are_bools_too() -> None:
    x, _, _ = arguments()
    vector, up = as_vector(x, np.array([0, 5, 5, 150]))
    want = (x > 0) & (np.arange(ROWS) < 150)[:, None]
    assert vector.dtype == up.dtype == bool
    np.testing.assert_array_equal(np.asarray(up), want)
    np.testing.assert_array_equal(np.asarray(vector), want.reshape(-1))


def test_rows_that_are_picked() -> None:
    x, keep, _ = arguments()
    ids = np.random.default_rng(1).integers(0, ROWS, 33).astype(np.int32)
    np.testing.assert_array_equal(picked(x, keep, ids), np.where(keep[ids], x[ids], 0))


def test_tiles_are_bytes_and_single_numbers_stay() -> None:
    before = kept.lower(*arguments(), np.arange(GROUPS + 1), target="tpu:v6e").ir
    after = bool_bytes(before)
    verify(after)
    assert bool_bytes(after) == after, "nothing is left to do"
    text = str(after)
    assert "keep_bytes: int8[200, 136] = keep.cast()" in text
    assert "up_bools: bool[200, 136] = up.cast()" in text
    assert "where(cast(keep_bytes[t, 0:136], int32) != 0 and live[g], x" in text
    assert after.tensor("up").dtype == "int8" and after.returns == ("y", "up_bools")


@needs_libtpu
@pytest.mark.parametrize("target", TARGETS)
def test_they_compile(target) -> None:
    x, keep, live = arguments()
    compiled(kept, x, keep, live, np.arange(GROUPS + 1), target=target)
    compiled(as_vector, x, np.arange(GROUPS + 1), target=target)
    compiled(picked, x, keep, np.arange(33, dtype=np.int32), target=target)


@pytest.mark.parametrize("shape", [(ROWS, WIDTH), (ROWS,)])
def test_bools_that_ragged_loops_change_are_refused(shape) -> None:
    flags = np.zeros(shape, bool)
    kernel = flipped if len(shape) == 2 else flipped_row
    with pytest.raises(tile.PlanError) as raised:
        kernel.source(flags, np.arange(GROUPS + 1), target="tpu:v6e")
    assert "flags is bool and changed in place, and a TPU copies no bools" in str(raised.value)
    assert "hint: pass flags as int8, or return a new array" in str(raised.value)
    if len(shape) == 2:
        flipped_whole(flags)
        assert flags.all()
