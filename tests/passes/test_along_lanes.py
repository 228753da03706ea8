"""along_lanes: tiles of vectors stay rows where sums go over few numbers beside each of theirs.

Evidence: Pallas's interpreters, the strict one for each loop type; libtpu, ahead of time.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.interpreter import strictly
from tests.passes.becomes import again, becomes, ir_of, stays
from tests.ragged import Space, every_stratum, wild_offsets
from tests.tiers import share
from tilelang.codegen.pallas.passes.along_lanes import MOST, along_lanes

SPACE = Space(rows=40, groups=4, block=16)
FORMS = ({}, {"loop_type": "worklist"}, {"loop_type": "fori_loop"}, {"loop_type": "emit_pipeline"})
WHOLE = Space(rows=48, groups=4, block=16)  # of the strict one a work list gets whole blocks alone
BOUNDS = np.array([-1.5, -0.25, 0.0, 0.5, 2.0], np.float32)


@tile.kernel
def above(x, bounds):
    """How many bounds are below each number."""
    n = hl.zeros(x.shape, dtype=hl.int32)
    for t in hl.tile(x.shape[0]):
        n[t] = hl.sum((x[t][:, None] > bounds[:][None, :]).to(hl.int32), 1)
    return n


@tile.kernel
def of_groups(x, y, bounds, offsets):
    """Of each row of a group the nearest bound; of each bound the numbers that have it, and ys."""
    G, B, D = offsets.shape[0] - 1, bounds.shape[0], y.shape[1]
    near = hl.full(x.shape, -1, dtype=hl.int32)
    least = hl.zeros(x.shape, dtype=hl.float32)
    count = hl.zeros([G, B], dtype=hl.int32)
    sums = hl.zeros([G, B, D], dtype=hl.float32)
    for g in hl.grid(G):
        acc, total = hl.zeros([B], dtype=hl.int32), hl.zeros([B, D], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            far = hl.abs(x[t][:, None] - bounds[:][None, :])
            own = far == far.amin(1, keepdim=True)
            near[t] = hl.argmin(far, 1)
            least[t] = far.amin(1)
            acc = acc + own.to(hl.int32).sum(0)
            total = hl.dot(own.to(hl.float32).T, y[t, :], acc=total)
        count[g, :] = acc
        sums[g, :, :] = total
    return near, least, count, sums


@tile.kernel
def shown(x, bounds):
    """The value is stored, too."""
    far = hl.zeros([x.shape[0], bounds.shape[0]], dtype=hl.float32)
    least = hl.zeros(x.shape, dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        each = hl.abs(x[t][:, None] - bounds[:][None, :])
        far[t, :] = each
        least[t] = each.amin(1)
    return far, least


@tile.kernel
def of_columns(y, bounds):
    """What a sum over the lanes gives is a column already."""
    n = hl.zeros([y.shape[0]], dtype=hl.int32)
    for t in hl.tile(y.shape[0]):
        n[t] = hl.sum((y[t, :].sum(1)[:, None] > bounds[:][None, :]).to(hl.int32), 1)
    return n


def exactly(x, y, bounds, offsets):
    far = np.abs(x[:, None] - bounds[None, :])
    own = far == far.min(1, keepdims=True)
    rows = np.zeros(len(x), bool)
    count = np.zeros((len(offsets) - 1, len(bounds)), np.int32)
    sums = np.zeros((*count.shape, y.shape[1]), np.float32)
    for g, (begin, end) in enumerate(itertools.pairwise(offsets)):
        rows[begin:end] = True
        count[g] = own[begin:end].sum(0)
        sums[g] = own[begin:end].T.astype(np.float32) @ y[begin:end]
    return np.where(rows, far.argmin(1), -1), np.where(rows, far.min(1), 0), count, sums


def drawn(rows: int = SPACE.rows) -> tuple[np.ndarray, np.ndarray]:
    """Quarters, so that sums are exact and numbers lie between two bounds."""
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 10, rows).astype(np.float32) / 4
    return x, rng.integers(-4, 5, (rows, 8)).astype(np.float32)


def right(found, wanted) -> None:
    for ours, exact in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(np.asarray(ours), exact)


@pytest.mark.parametrize("form", share(FORMS, 2))
def test_every_stratum(form):
    x, y = drawn()
    config = tile.Config({"t": 16}, **form)
    for layout in every_stratum(SPACE):
        owned = exactly(x, y, BOUNDS, layout.offsets)[0] >= 0
        seen = np.where(owned, x, np.nan), np.where(owned[:, None], y, np.nan)
        found = of_groups(*seen, BOUNDS, layout.offsets, config=config)
        right(found, exactly(x, y, BOUNDS, layout.offsets))


@pytest.mark.parametrize("form", share(FORMS, 4))
def test_in_the_strict_interpreter(form):
    """No access is outside of a buffer, whatever the offsets are; few of them, for it is slow."""
    x, y = drawn(WHOLE.rows)
    kernel, config = strictly(of_groups, seed=0), tile.Config({"t": 16}, **form)
    for layout in list(every_stratum(WHOLE))[::6]:
        found = kernel(x, y, BOUNDS, layout.offsets, config=config)
        right(found, exactly(x, y, BOUNDS, layout.offsets))
    for offsets in list(wild_offsets(WHOLE).values())[::5]:
        kernel(x, y, BOUNDS, offsets.astype(np.int32), config=config)


def test_sums_over_either_dimension():
    x, y = drawn()
    becomes(
        ir_of(of_groups, x, y, BOUNDS, np.array([0, 10, 40], np.int32)),
        along_lanes,
        """
        for g in grid(2):
            acc: int32[5] = full([5], int32, value=0)
            total: float32[5, 8] = full([5, 8], float32, value=0.0)
            for t in tile(offsets[g], offsets[g + 1], max_extent=40) carrying acc_1 = acc, total_1 = total:
                far: float32[t, 5] = abs(expand_dims(x[t], axis=1) - expand_dims(bounds[0:5], axis=0))
                own: bool[t, 5] = far == min(far, axis=1, keepdim=True)
                near[t] = argmin(far, axis=1)
                least[t] = min(far, axis=1)
                acc_2: int32[5] = acc_1 + sum(cast(own, int32), axis=0)
                total_2: float32[5, 8] = total_1 + dot(transpose(cast(own, float32), perm=(1, 0)), y[t, 0:8], contract=(1, 0))
                next acc_1 = acc_2
                next total_1 = total_2
            after acc_3 = acc_1
            after total_3 = total_1
            count[g, 0:5] = acc_3
            sums[g, 0:5, 0:8] = total_3
        """,
        """
        for g in grid(2):
            acc: int32[5] = full([5], int32, value=0)
            total: float32[5, 8] = full([5, 8], float32, value=0.0)
            for t in tile(offsets[g], offsets[g + 1], max_extent=40) carrying acc_1 = acc, total_1 = total:
                far: float32[5, t] = abs(expand_dims(x[t], axis=0) - expand_dims(bounds[0:5], axis=1))
                own: bool[5, t] = far == min(far, axis=0, keepdim=True)
                near[t] = argmin(far, axis=0)
                least[t] = min(far, axis=0)
                acc_2: int32[5] = acc_1 + sum(cast(own, int32), axis=1)
                total_2: float32[5, 8] = total_1 + dot(cast(own, float32), y[t, 0:8], contract=(1, 0))
                next acc_1 = acc_2
                next total_1 = total_2
            after acc_3 = acc_1
            after total_3 = total_1
            count[g, 0:5] = acc_3
            sums[g, 0:5, 0:8] = total_3
        """,
    )  # fmt: skip


def test_memory_has_room_for_what_is_computed_whole():
    x, bounds = tile.spec((1 << 20,), "float32"), tile.spec((64,), "float32")
    low = again(above).lower(x, bounds, target="tpu:v6e", config=tile.Config({"t": 1 << 16}))
    memory = dict(low.plan.launches[0].memory.parts)
    assert memory["temporaries"] > 64 * (1 << 16) * 4


STAYING = {
    "stored": (shown, drawn()[0], BOUNDS),
    "a column": (of_columns, drawn()[1], BOUNDS),
    "many numbers": (above, drawn()[0], np.arange(MOST + 1, dtype=np.float32)),
}


@pytest.mark.parametrize("case", STAYING)
def test_what_stays(case):
    stays(ir_of(*STAYING[case]), along_lanes)


@needs_libtpu
@pytest.mark.parametrize("target", share(["tpu:v5e", "tpu:v6e"], 2))
def test_libtpu_has_room_for_what_it_computes_whole(target):
    """By default: 64 bounds beside each of a million numbers."""
    x, y = tile.spec((1 << 20,), "float32"), tile.spec((1 << 20, 8), "float32")
    bounds, offsets = tile.spec((64,), "float32"), np.array([0, 1 << 19, 1 << 20], np.int32)
    compiled(of_groups, x, y, bounds, offsets, target=target)
