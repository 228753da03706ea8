"""diagonals: what selects pick from a table by a distance, as rows that are each turned by a lane."""

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
from tilelang.codegen.pallas.passes import diagonals as file
from tilelang.codegen.pallas.passes.diagonals import LEAST, SIDE, diagonals

OFFSETS = np.array([0, 7, 7, 150, 300], np.int32)


@tile.kernel
def apart(bias, offsets, T: hl.constexpr, back: hl.constexpr, by: hl.constexpr):
    """y[h, i, j] = bias[h] at the distance of two positions of a group; 0 beside it."""
    H, N = bias.shape
    y = hl.zeros([H, T, T], dtype=bias.dtype)
    for h in hl.grid(H):
        for b in hl.grid(offsets.shape[0] - 1):
            for t in hl.tile(offsets[b], offsets[b + 1], max_extent=T):
                for s in hl.tile(T):
                    rel = t.index[:, None] - s.index[None, :]
                    if back:
                        rel = -rel
                    own = (s.index >= offsets[b]) & (s.index < offsets[b + 1])
                    at = bias[h, rel + N // 2 - by]
                    y[h, t, s] = hl.where(own[None, :], at, 0)
    return y


@tile.kernel
def within(bias, x, block: hl.constexpr):
    """Both positions are of one tile."""
    y = hl.zeros(x.shape, dtype=hl.float32)
    for t in hl.tile(x.shape[0], block_size=block):
        near = bias[t.index[None, :] - t.index[:, None] + 40]
        y[t, :] = hl.dot(near, x[t, :])
    return y


@tile.kernel
def far_by_vectors(bias, places, kind: hl.constexpr):
    """How far is a number that vectors were made to, is carried, or lies in an array of blocks."""
    y = hl.zeros([64, 64], dtype=hl.float32)
    for t, s in hl.tile([64, 64]):
        far = places[3]
        if kind == "made":
            far = places[:].amax(0)
        elif kind == "carried":
            far = hl.zeros([], dtype=hl.int32)
            for k in hl.grid(4):
                far = far + places[k]
        at = bias[t.index[:, None] - s.index[None, :] + far]
        if kind == "beside":
            at = at * places[s][None, :]
        y[t, s] = at
    return y


@tile.kernel
def otherwise(bias, places, kind: hl.constexpr):
    """Positions that are no distance of two, or that count the same way."""
    y = hl.zeros([64, 64], dtype=hl.float32)
    for t, s in hl.tile([64, 64]):
        a, b = t.index[:, None], s.index[None, :]
        if kind == "sum":
            at = a + b
        elif kind == "twice":
            at = 2 * a - 2 * b
        elif kind == "begun":
            at = (places[0] + t.index + 3)[:, None] - b
        elif kind == "read":
            at = places[t][:, None] - b
        elif kind == "square":
            at = (a - b) * (a - b)
        else:
            at = a * 1 - b * 1 + places[3]
        y[t, s] = bias[at]
    return y


def exactly(bias, offsets, T, back, by=0):
    y = np.zeros((len(bias), T, T))
    for begin, end in itertools.pairwise(offsets):
        i = np.arange(begin, end)
        rel = (i[:, None] - i) * (-1 if back else 1) + bias.shape[1] // 2 - by
        y[:, begin:end, begin:end] = bias[:, np.clip(rel, 0, bias.shape[1] - 1)]
    return y


def drawn(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).integers(-60, 61, shape).astype(dtype)


def on_tpu(kernel: Any, **options: Any) -> Any:
    """The plan of a TPU, in the interpreter."""
    return tile.kernel(kernel.__wrapped__, target="tpu:v6e", **options)


# ---------------------------------------------------------------- what it becomes

BEFORE = """
    for t in tile(100, block=64):
        bias_place: int32[t, t] = expand_dims(t.index, axis=0) - expand_dims(t.index, axis=1) + 40
        bias_at: float32[t, t] = where(bias_place >= 1, bias[1], full(bias[0], [t, t], float32))
        bias_at_1: float32[t, t] = where(bias_place >= 2, bias[2], bias_at)
        y[t, 0:8] = dot(bias_at_1, x[t, 0:8], contract=(1, 0))
"""
AFTER = """
    for t in tile(100, block=64):
        bias_place: int32[t, t] = expand_dims(t.index, axis=0) - expand_dims(t.index, axis=1) + 40
        bias_at_1: float32[t, t] = diagonals(bias_line[0:1408], 688)
        y[t, 0:8] = dot(bias_at_1, x[t, 0:8], contract=(1, 0))
"""


def test_rows_that_are_each_turned_by_a_lane(monkeypatch):
    """The table lies between 648 copies of its ends, and whole registers are long."""
    monkeypatch.setattr(file, "LEAST", 3)
    assert SIDE == 648
    becomes(ir_of(within, drawn(3), drawn(100, 8), 64), diagonals, BEFORE, AFTER)


def test_where_the_table_is_small_selects_stay():
    stays(ir_of(within, drawn(LEAST - 1), drawn(100, 8), 64), diagonals)


@pytest.mark.parametrize("kind", ["sum", "twice", "read", "square"])
def test_other_positions_stay(kind):
    """Each row of such a block is not the one above, one lane further on."""
    stays(ir_of(otherwise, drawn(30), drawn(64, dtype=np.int32), kind), diagonals)


@pytest.mark.parametrize("kind", ["begun", "moved"])
def test_what_memory_adds_to_a_distance_is_the_same_for_all(kind):
    bias, places = drawn(30), drawn(64, dtype=np.int32) % 9
    i = np.arange(64)
    apart = i[:, None] - i + (places[0] + 3 if kind == "begun" else places[3])
    kernel = on_tpu(otherwise)
    assert "diagonals(" in kernel.source(bias, places, kind)
    found = kernel(bias, places, kind)
    np.testing.assert_array_equal(found, bias[np.clip(apart, 0, 29)])


@pytest.mark.parametrize("kind", ["made", "carried", "beside"])
def test_numbers_that_scalar_units_do_not_know_turn_no_lanes(kind):
    bias, places = drawn(30), drawn(64, dtype=np.int32) % 9
    stays(ir_of(far_by_vectors, bias, places, kind), diagonals)
    i, far = np.arange(64), {"made": places.max(), "carried": places[:4].sum()}
    exact = bias[np.clip(i[:, None] - i + far.get(kind, places[3]), 0, 29)]
    exact = exact * (places if kind == "beside" else 1)
    np.testing.assert_array_equal(on_tpu(far_by_vectors)(bias, places, kind), exact)


def test_a_table_that_is_stored_to_stays():
    @tile.kernel
    def changed(bias):
        y = hl.zeros([64, 64], dtype=hl.float32)
        for t, s in hl.tile([64, 64]):
            bias[0] = 1.0
            y[t, s] = bias[t.index[:, None] - s.index[None, :]]
        return y, bias

    stays(ir_of(changed, drawn(30)), diagonals)


# ---------------------------------------------------------------- what comes out


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(
    "blocks", share([(136, 128), (8, 640), (16, 128), (128, 256), (32, 384)], 3, 2), ids=str
)
def test_the_same_numbers(blocks, back):
    """Of 255 entries, of 24, and with the whole table far behind either side; in blocks of more
    rows, and of more lanes, than are made at once."""
    kernel = on_tpu(apart)
    config = tile.Config(dict(zip("ts", blocks, strict=True)))
    T = max(300, *blocks)
    offsets = np.array([0, 7, 7, 150, T], np.int32)
    for entries, by in ((255, 0), (24, 5), (31, 1000), (31, -1000)):
        arguments = drawn(2, entries), offsets, T, back, by
        assert "diagonals(" in kernel.source(*arguments, config=config)
        found = kernel(*arguments, config=config)
        np.testing.assert_array_equal(found, exactly(drawn(2, entries), offsets, T, back, by))


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.int32], ids=lambda d: np.dtype(d).name)
def test_of_other_types(dtype):
    bias = drawn(2, 63, dtype=dtype)
    found = np.asarray(on_tpu(apart)(bias, OFFSETS, 300, True, 0)).astype(np.float64)
    np.testing.assert_array_equal(found, exactly(bias.astype(float), OFFSETS, 300, True))


def test_of_a_number_that_is_none_only_its_places_are_none():
    bias = drawn(2, 63)
    bias[0, 20] = np.nan
    found = np.asarray(on_tpu(apart)(bias, OFFSETS, 300, False, 0))
    np.testing.assert_array_equal(found, exactly(bias, OFFSETS, 300, False))
    assert np.isnan(found[0]).any() and not np.isnan(found[1]).any()


@pytest.mark.parametrize("block", [24, 136])
def test_both_of_one_tile(block):
    """Of 136 rows the last 8 are made by themselves."""
    bias, x = drawn(81), drawn(300, 8)
    i = np.arange(300)
    near = bias[np.clip(i - i[:, None] + 40, 0, 80)]
    near *= i[:, None] // block == i // block
    found = on_tpu(within)(bias, x, block)
    np.testing.assert_array_equal(found, near @ x)


def test_strictly():
    """Memory is NaN until it is written, and an access outside of a buffer raises."""
    kernel = on_tpu(apart, interpret=flowing.strict())
    try:
        found = kernel(
            drawn(2, 33), OFFSETS, 300, True, 0, config=tile.Config({"t": 128, "s": 128})
        )
        assert not races_found()
        np.testing.assert_array_equal(found, exactly(drawn(2, 33), OFFSETS, 300, True))
    finally:  # memory and races are those of the whole process
        pltpu.reset_tpu_interpret_mode_state()


@needs_libtpu
@pytest.mark.parametrize("chip", ["v5e", "v5p", "v6e", "7x"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_generation_compiles_it(chip, dtype):
    bias, offsets = tile.spec((2, 255), dtype), tile.spec((9,), "int32")
    for blocks in ((16, 128), (256, 1024)):
        config = tile.Config(dict(zip("ts", blocks, strict=True)))
        assert compiled(apart, bias, offsets, 1000, True, 0, target=f"tpu:{chip}", config=config)


# ---------------------------------------------------------------- bugs that are seen

_distance = file._distance


def _turned_the_other_way(place, values):
    found = _distance(place, values)
    return None if found is None else (not found[0], found[1])


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (file, "_distance", _turned_the_other_way),
        (file, "SIDE", 400),
        (functions, "DIAGONALS", functions.DIAGONALS.replace("- row - height", "- height")),
        (functions, "DIAGONALS", functions.DIAGONALS.replace("first + column", "first")),
        (functions, "DIAGONALS", functions.DIAGONALS.replace("wide - height + 1", "wide - height")),
        (functions, "DIAGONALS", functions.DIAGONALS.replace("jnp.clip(first", "(first").replace(
            ", 1, line.shape[1] - wide)", ")")),
    ],
    ids=["turned", "too few copies", "rows", "columns", "a lane off", "not clamped"],
)  # fmt: skip
def test_a_planted_bug_is_seen(monkeypatch, owner, name, wrong):
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(AssertionError):
        test_both_of_one_tile(136)
        test_the_same_numbers((8, 640), True)
