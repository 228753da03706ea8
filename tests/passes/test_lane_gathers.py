"""lane_gathers: what selects pick from a table at any positions, as lanes that read other lanes."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.codegen import flowing
from tests.interpreter import races_found
from tests.passes.becomes import becomes, ir_of, stays
from tests.tiers import share
from tilelang.codegen.pallas.emit import functions
from tilelang.codegen.pallas.passes import lane_gathers as file
from tilelang.codegen.pallas.passes.lane_gathers import LEAST, lane_gathers

OFFSETS = np.array([0, 7, 7, 150, 300], np.int32)


@tile.kernel
def two_tables(a, b, place):
    """One dimension, and a column of a matrix."""
    y = hl.zeros(place.shape, dtype=a.dtype)
    for tm, tn in hl.tile(place.shape):
        y[tm, tn] = a[place[tm, tn]] - b[place[tm, tn], 1]
    return y


@tile.kernel
def times(q, k, stamps, bias, offsets):
    """Attention by time: scores of two rows of a group, and a bias by how far their times are."""
    H = bias.shape[0]
    out = hl.zeros([H, *k.shape], dtype=hl.float32)
    for h in hl.grid(H):
        for g in hl.grid(offsets.shape[0] - 1):
            for tq in hl.tile(offsets[g], offsets[g + 1]):
                acc = hl.zeros([tq, k.shape[1]], dtype=hl.float32)
                for tk in hl.tile(offsets[g], offsets[g + 1]):
                    far = hl.abs(stamps[tq][:, None] - stamps[tk][None, :])
                    scores = hl.dot(q[tq, :], k[tk, :].T) + bias[h, far]
                    acc = hl.dot(scores, k[tk, :], acc=acc)
                out[h, tq, :] = acc
    return out


def times_exactly(q, k, stamps, bias, offsets):
    out = np.zeros((len(bias), *k.shape))
    for begin, end in itertools.pairwise(offsets):
        own = slice(begin, end)
        far = np.abs(stamps[own, None] - stamps[None, own]).clip(0, bias.shape[1] - 1)
        out[:, own] = (q[own] @ k[own].T + bias[:, far]) @ k[own]
    return out


def drawn(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-60, 61, shape).astype(dtype)


def on_tpu(kernel: Any, **options: Any) -> Any:
    """The plan of a TPU, in the interpreter."""
    return tile.kernel(kernel.__wrapped__, target="tpu:v6e", **options)


# ---------------------------------------------------------------- what it becomes

BEFORE = """
    for tm in tile(20):
        for tn in tile(30):
            a_place: int32[tm, tn] = place[tm, tn]
            a_at: float32[tm, tn] = where(a_place >= 1, a[1], full(a[0], [tm, tn], float32))
            a_at_1: float32[tm, tn] = where(a_place >= 2, a[2], a_at)
            b_place: int32[tm, tn] = place[tm, tn]
            b_at: float32[tm, tn] = where(b_place >= 1, b[1, 1], full(b[0, 1], [tm, tn], float32))
            b_at_1: float32[tm, tn] = where(b_place >= 2, b[2, 1], b_at)
            y[tm, tn] = a_at_1 - b_at_1
"""
AFTER = """
    for tm in tile(20):
        for tn in tile(30):
            a_place: int32[tm, tn] = place[tm, tn]
            a_at_1: float32[tm, tn] = lane_gather(a[0:3], a_place)
            b_place: int32[tm, tn] = place[tm, tn]
            b_at_1: float32[tm, tn] = lane_gather(b[0:3, 1], b_place)
            y[tm, tn] = a_at_1 - b_at_1
"""
PLACE = drawn(20, 30, dtype=np.int32)


def test_all_of_a_table_is_one_gather(monkeypatch):
    monkeypatch.setattr(file, "LEAST", 3)
    becomes(ir_of(two_tables, drawn(3), drawn(3, 2), PLACE), lane_gathers, BEFORE, AFTER)


def test_where_the_table_is_small_selects_stay():
    stays(ir_of(two_tables, drawn(LEAST - 1), drawn(LEAST - 1, 2), PLACE), lane_gathers)


def test_a_table_that_is_stored_to_stays():
    @tile.kernel
    def changed(a, place):
        y = hl.zeros(place.shape, dtype=hl.float32)
        for tm, tn in hl.tile(place.shape):
            a[0] = 1.0
            y[tm, tn] = a[place[tm, tn]]
        return y, a

    stays(ir_of(changed, drawn(LEAST), PLACE), lane_gathers)


# ---------------------------------------------------------------- what comes out


@pytest.mark.parametrize("entries", [LEAST, 64, 127, 128, 129, 200, 256])
def test_the_same_numbers(entries):
    """Positions lie far behind either end, and one number of each table is none."""
    place = np.random.default_rng(1).integers(-300, 600, (20, 300)).astype(np.int32)
    a, b = drawn(entries), drawn(entries, 3, seed=2)
    a[5], b[entries - 1, 1] = np.nan, np.inf
    near = place.clip(0, entries - 1)
    kernel = on_tpu(two_tables)
    for blocks in ({"tm": 8, "tn": 128}, {"tm": 32, "tn": 384}, {"tm": 16, "tn": 300}):
        config = tile.Config(blocks)
        assert kernel.source(a, b, place, config=config).count("= lane_gather(") == 2
        found = kernel(a, b, place, config=config)
        np.testing.assert_array_equal(found, a[near] - b[near, 1])


@pytest.mark.parametrize("shape", [(1, 5), (3, 1), (1, 300), (9, 129)], ids=str)
def test_of_few_lanes(shape):
    """A row alone, a lane alone, and a lane more than a register has."""
    place = np.random.default_rng(1).integers(-9, 60, shape).astype(np.int32)
    a, b = drawn(40), drawn(40, 3, seed=2)
    near = place.clip(0, 39)
    found = on_tpu(two_tables)(a, b, place)
    np.testing.assert_array_equal(found, a[near] - b[near, 1])


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.int32, np.int8], ids=str)
def test_of_other_types(dtype):
    """Numbers are as wide as what they are picked by, and are narrowed after."""
    place = np.random.default_rng(1).integers(-9, 90, (20, 300)).astype(np.int32)
    a, b = drawn(70, dtype=dtype), drawn(70, 3, dtype=dtype)
    near = place.clip(0, 69)
    found = np.asarray(on_tpu(two_tables)(a, b, place))
    exact = a[near].astype(np.float64) - b[near, 1].astype(np.float64)
    np.testing.assert_array_equal(found.astype(np.float64), exact.astype(dtype).astype(np.float64))


@pytest.mark.parametrize("blocks", share([(128, 128), (384, 128), (256, 256)], 2, 1), ids=str)
def test_scores_by_time(blocks):
    q, k, bias = drawn(300, 16) / 32, drawn(300, 16, seed=3) / 32, drawn(2, 150, seed=4) / 4
    stamps = np.sort(np.random.default_rng(5).integers(0, 200, 300)).astype(np.int32)
    arguments = q.astype(np.float32), k.astype(np.float32), stamps, bias.astype(np.float32), OFFSETS
    config = tile.Config(dict(zip(("tq", "tk"), blocks, strict=True)))
    found = on_tpu(times)(*arguments, config=config)
    np.testing.assert_allclose(found, times_exactly(*arguments), rtol=1e-5, atol=2e-3)


def test_strictly():
    """Memory is NaN until it is written, and an access outside of a buffer raises."""
    kernel = on_tpu(two_tables, interpret=flowing.strict())
    a, b = drawn(40), drawn(40, 3)
    try:
        found = kernel(a, b, PLACE, config=tile.Config({"tm": 8, "tn": 128}))
        assert not races_found()
        near = PLACE.clip(0, 39)
        np.testing.assert_array_equal(found, a[near] - b[near, 1])
    finally:  # memory and races are those of the whole process
        pltpu.reset_tpu_interpret_mode_state()


def test_where_rows_cannot_be_turned_one_by_one_distances_are_gathered_too():
    """v4 has no rotation with a stride."""

    @tile.kernel
    def near(bias):
        y = hl.zeros([64, 64], dtype=hl.float32)
        for t, s in hl.tile([64, 64]):
            y[t, s] = bias[t.index[:, None] - s.index[None, :] + 20]
        return y

    assert "= diagonals(" in near.source(drawn(40), target="tpu:v5e")
    assert "= lane_gather(" in near.source(drawn(40), target="tpu:v4")


@needs_libtpu
@pytest.mark.parametrize("chip", ["v4", "v5e", "v5p", "v6e", "7x"])
def test_every_generation_compiles_it(chip):
    for dtype, entries in (("float32", 64), ("bfloat16", 200), ("int8", 40)):
        place = tile.spec((999, 300), "int32")
        arguments = tile.spec((entries,), dtype), tile.spec((entries, 3), dtype), place
        for blocks in ({"tm": 32, "tn": 128}, {"tm": 256, "tn": 384}):
            config = tile.Config(blocks)
            assert compiled(two_tables, *arguments, target=f"tpu:{chip}", config=config)


@needs_libtpu
@pytest.mark.parametrize("chip", share(["v6e", "v5e", "v5p", "7x"], 2, 1))
def test_every_generation_compiles_scores(chip):
    rows, stamps = tile.spec((4096, 128), "bfloat16"), tile.spec((4096,), "int32")
    arguments = rows, rows, stamps, tile.spec((4, 64), "float32"), tile.spec((9,), "int32")
    assert compiled(times, *arguments, target=f"tpu:{chip}")


# ---------------------------------------------------------------- bugs that are seen


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("jnp.clip(place, 0, table.shape[1] - 1)", "place"),
        ("at >= first", "at > first"),
        ("at & 127", "at & 63"),
        ("column : column + 128", "0:128"),
        ("max(place.shape[0], 2), ", "place.shape[0] + 1, "),
    ],
    ids=["not clamped", "first of the second", "half", "columns", "a row more"],
)
def test_a_planted_bug_is_seen(monkeypatch, right, wrong):
    assert right in functions.LANE_GATHER
    monkeypatch.setattr(functions, "LANE_GATHER", functions.LANE_GATHER.replace(right, wrong))
    with pytest.raises((AssertionError, ValueError, TypeError)):
        test_the_same_numbers(200)
        test_of_few_lanes((1, 300))
