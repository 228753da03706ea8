"""Whole arrays whose rows come, and go, in pieces while steps compute."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from tests.codegen.flowing import LAYOUTS, ROWS, WILD, laid, noticed, strict
from tests.planted import trial
from tests.planted.bug import Bug, bug
from tilelang.codegen.pallas.plan.estimate.offsets import typical
from tilelang.codegen.pallas.plan.estimate.seconds import estimate
from tilelang.codegen.pallas.plan.windows.flowing import at_once

FLOWING = tile.Config({"tm": 16}, loop_type="fori_loop", windows="flowing")
AT_ONCE = tile.Config({"tm": 16}, loop_type="fori_loop", windows="aligned")


def shifted(x, offsets):
    """Rows less the smallest of their group."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        least = hl.full([x.shape[1]], float("inf"), dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            least = hl.minimum(least, x[tm, :].amin(0))
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm, :] = x[tm, :] - least[None, :]
    return y


def oracle(x: np.ndarray, offsets: tuple[int, ...]) -> np.ndarray:
    y = np.zeros_like(x)
    for begin, end in pairwise(offsets):
        if begin < end:
            y[begin:end] = x[begin:end] - x[begin:end].min(0)
    return y


def given(offsets: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Rows, of which those that are in no group hold NaN."""
    x = np.random.default_rng(0).standard_normal((ROWS, 8), np.float32)
    return laid(x, offsets)


@pytest.fixture(autouse=True)
def anew():
    yield
    pltpu.reset_tpu_interpret_mode_state()


KERNEL = tile.kernel(shifted, interpret=strict(), checks=False)
PLAIN = tile.kernel(shifted, checks=False)


@pytest.mark.parametrize("offsets", LAYOUTS)
def test_groups_have_their_own_rows(offsets):
    result = KERNEL(*given(offsets), config=FLOWING)
    np.testing.assert_array_equal(result, oracle(given(offsets)[0], offsets))


def counted(x, offsets):
    """How many rows groups have, and the sums of these."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        total = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            total = total + x[tm, :].sum(0)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm, :] = x[tm, :] * 0 + total[None, :]
    return y


COUNTED = tile.kernel(counted, interpret=strict(), checks=False)


@pytest.mark.parametrize("offsets", LAYOUTS)
def test_a_last_tile_that_has_rows_again_counts_them_once(offsets):
    """Of tiles from row 40 on, the one of 16 rows begins at 32."""
    x = np.ones((ROWS, 8), np.float32)
    wanted = np.zeros_like(x)
    for begin, end in pairwise(offsets):
        wanted[begin:end] = end - begin
    text = COUNTED.lower(x, np.array(offsets, np.int32), config=FLOWING).source.text
    assert "tm_row = pl.multiple_of(jnp.minimum(tm_first + tm * 16, 32), 8)" in text
    result = COUNTED(x, np.array(offsets, np.int32), config=FLOWING)
    np.testing.assert_array_equal(result, wanted)


@pytest.mark.parametrize("offsets", WILD)
def test_ranges_that_do_not_rise_are_those_of_whole_arrays(offsets):
    x, cuts = given(offsets)
    np.testing.assert_array_equal(KERNEL(x, cuts, config=FLOWING), PLAIN(x, cuts, config=AT_ONCE))


def by_columns(x, offsets):
    """The same, of blocks of columns by themselves."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tf in hl.tile(x.shape[1]):
            least = hl.full([tf], float("inf"), dtype=hl.float32)
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                least = hl.minimum(least, x[tm, tf].amin(0))
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                y[tm, tf] = x[tm, tf] - least[None, :]
    return y


COLUMNS = tile.kernel(by_columns, interpret=strict(), checks=False)
PLAIN_COLUMNS = tile.kernel(by_columns, checks=False)
CUT = replace(FLOWING, blocks={"tm": 16, "tf": 128})


def wide(offsets: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Three blocks of columns."""
    return laid(np.random.default_rng(1).standard_normal((ROWS, 384), np.float32), offsets)


@pytest.mark.parametrize("offsets", LAYOUTS)
def test_blocks_of_columns_are_flows_of_their_own(offsets):
    x, cuts = wide(offsets)
    launch = PLAIN_COLUMNS.lower(x, cuts, config=CUT).plan.launches[0]
    assert [(w.flows, w.shown) for w in launch.windows] == [(True, (48, 128))] * 2
    np.testing.assert_array_equal(COLUMNS(x, cuts, config=CUT), oracle(x, offsets))


@pytest.mark.parametrize("offsets", WILD)
def test_ranges_that_do_not_rise_are_right_in_every_block_of_columns(offsets):
    x, cuts = wide(offsets)
    wanted = PLAIN_COLUMNS(x, cuts, config=replace(CUT, windows="aligned"))
    np.testing.assert_array_equal(COLUMNS(x, cuts, config=CUT), wanted)


def test_a_block_that_the_array_ends_in_is_no_flow():
    x = tile.spec((48, 320), "float32"), tile.spec((5,), "int32")
    with pytest.raises(tile.PlanError, match="no array is whole in every step"):
        PLAIN_COLUMNS.lower(*x, config=CUT)


def test_blocks_of_columns_have_one_buffer():
    """Of two whole arrays of 32 MiB, a chip with 64 MiB has half the columns at a time."""
    from examples.jagged.jagged_softmax import jagged_softmax

    given = tile.spec((32768, 512), "bfloat16"), tile.spec((129,), "int32")
    for chip, columns in (("v6e", 512), ("7x", 256), ("v5p", 256)):
        plan = jagged_softmax.lower(*given, target=f"tpu:{chip}").plan
        assert dict(plan.blocks)["tf"] == columns and plan.launches[0].flow is not None
        assert plan.launches[0].memory.vmem < 1.1 * 2 * 32768 * columns * 2


def pooled(x, offsets):
    """The largest of each group, and how many rows it has beside twice their sum; else zeros."""
    G, D = offsets.shape[0] - 1, x.shape[1]
    peaks = hl.zeros([G, D], dtype=x.dtype)
    sums = hl.zeros([G, 2, D], dtype=x.dtype)
    for g in hl.grid(G):
        peak = hl.full([D], -float("inf"), dtype=hl.float32)
        total = hl.zeros([D], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            peak = hl.maximum(peak, x[tm, :].amax(0))
            total = total + x[tm, :].sum(0)
        count = offsets[g + 1] - offsets[g]
        if count > 0:
            peaks[g, :] = peak
            sums[g, 0, :] = total * 0 + count
            sums[g, 1, :] = total * 2
    return peaks, sums


POOLED = tile.kernel(pooled, interpret=strict(), checks=False)
PLAIN_POOLED = tile.kernel(pooled, checks=False)


def among_empty(offsets: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The same groups behind ten and in front of five that have no rows: results of 19 rows."""
    x, cuts = laid(np.random.default_rng(2).integers(-9, 9, (ROWS, 8)).astype(np.float32), offsets)
    return x, np.concatenate([[cuts[0]] * 10, cuts, [cuts[-1]] * 5]).astype(np.int32)


def pooled_by_hand(x: np.ndarray, cuts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    peaks, sums = np.zeros((len(cuts) - 1, 8), np.float32), np.zeros((len(cuts) - 1, 2, 8))
    for g, (begin, end) in enumerate(pairwise(cuts)):
        if begin < end:
            peaks[g] = x[begin:end].max(0)
            sums[g] = np.full(8, end - begin), 2 * x[begin:end].sum(0)
    return peaks, sums


@pytest.mark.parametrize("offsets", LAYOUTS)
def test_results_of_groups_are_held(offsets):
    """Their blocks would wait behind all pieces: all of them are in memory until the end."""
    given = among_empty(offsets)
    launch = PLAIN_POOLED.lower(*given, config=FLOWING).plan.launches[0]
    assert [(w.held, w.resident) for w in launch.windows if w.output] == [
        (True, (24, 8)), (True, (19, 2, 8))
    ]  # fmt: skip
    for found, wanted in zip(POOLED(*given, config=FLOWING), pooled_by_hand(*given), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("offsets", WILD)
def test_held_results_of_ranges_that_do_not_rise_are_the_same(offsets):
    x, cuts = among_empty(offsets)
    wanted = PLAIN_POOLED(x, cuts, config=AT_ONCE)
    for found, exact in zip(POOLED(x, cuts, config=FLOWING), wanted, strict=True):
        np.testing.assert_array_equal(found, exact)


def test_results_of_groups_are_held_by_default_where_one_core_runs_all_steps():
    from examples.jagged.segment_reduction import segment_reduction

    given = tile.spec((65536, 512), "bfloat16"), tile.spec((257,), "int32")
    for chip, held in (("v6e", True), ("v5e", True), ("v5p", False)):
        (launch,) = segment_reduction.lower(*given, target=f"tpu:{chip}").plan.launches
        assert all(w.held == held for w in launch.windows if w.output), chip


def test_results_that_are_long_are_not_held():
    given = tile.spec((65536, 512), "bfloat16"), tile.spec((2049,), "int32")
    config = tile.Config({"tm": 128}, loop_type="fori_loop")
    launch = PLAIN_POOLED.lower(*given, target="tpu:v6e", config=config).plan.launches[0]
    assert launch.flow is None and not any(w.held for w in launch.windows)


def test_what_the_plan_says():
    plan = PLAIN.lower(*given(LAYOUTS[0]), config=FLOWING).plan
    assert "  x, y: in 3 pieces of 16 rows, which come and go while steps compute" in str(plan)


# ---------------------------------------------------------------- by default

LONG = tile.spec((8192, 256), "bfloat16"), tile.spec((33,), "int32")


def test_long_arrays_come_in_pieces_by_default():
    config = tile.Config({"tm": 64}, loop_type="fori_loop")
    plan = PLAIN.lower(*LONG, target="tpu:v6e", config=config).plan
    (launch,) = plan.launches
    assert launch.flow is not None
    assert launch.flow.rows * launch.flow.pieces == 8192
    steered = typical(plan.problem)
    assert estimate(plan, steered).seconds < 0.7 * estimate(at_once(plan), steered).seconds
    alone = replace(config, windows="aligned")
    assert PLAIN.lower(*LONG, target="tpu:v6e", config=alone).plan.launches[0].flow is None


@pytest.mark.parametrize(
    ("shape", "fields"),
    [
        ((50, 8), {"blocks": {"tm": 16}, "loop_type": "fori_loop"}),  # tiles do not divide the rows
        ((48, 8), {"blocks": {"tm": 16}, "loop_type": "outer_pipeline"}),  # loops are steps
        ((16, 8), {"blocks": {"tm": 16}, "loop_type": "fori_loop"}),  # one piece
    ],
)
def test_what_has_no_pieces_is_refused(shape, fields):
    config = tile.Config(**fields, windows="flowing")
    with pytest.raises(tile.PlanError, match="no array is whole in every step"):
        PLAIN.lower(tile.spec(shape, "float32"), tile.spec((5,), "int32"), config=config)


# ---------------------------------------------------------------- planted bugs

_SHIFTED = partial(bug, "shifted", "flowing")
_COLUMNS = partial(bug, "by_columns", "flowing")
REACH = "reach = jax.lax.div(jnp.clip(offsets[g + 1], 0, 48)"
READ = "reach = jax.lax.div(jnp.minimum(jnp.clip(offsets[g + 1], 0, 48) + 8, 48)"
BUGS: tuple[tuple[Bug, tuple[int, ...]], ...] = (
    (_SHIFTED("the piece that a range ends in is not waited for",
              f"{READ} + 15, 16)", f"{REACH}, 16)"),
     LAYOUTS[0]),
    (_SHIFTED("rows in front of a range count",
              "tm_index >= jnp.maximum(offsets[g], tm_first + tm * 16)", "tm_index >= 0"),
     LAYOUTS[0]),
    (_SHIFTED("a last tile ends before the array does",
              "jnp.minimum(tm_1_first + tm_1 * 16, 32)", "jnp.minimum(tm_1_first + tm_1 * 16, 24)"),
     LAYOUTS[1]),
    (_SHIFTED("a piece goes before the next group has stored to it",
              f"{REACH}, 16)", f"{REACH} + 15, 16)",
              (">= (flow[1] + 1) * 16", "> flow[1] * 16"),
              ("back < flow[1]", "back < 0")), LAYOUTS[0]),
    (_SHIFTED("the last piece does not go", "@pl.loop(flow[1], 3)", "@pl.loop(flow[1], 2)",
              ("@pl.loop(flow[2], 3)", "@pl.loop(flow[2], 2)")), LAYOUTS[0]),
    (_SHIFTED("nobody waits for what has gone", "@pl.loop(flow[2], 3)",
              "@pl.loop(flow[1], 3)"), LAYOUTS[0]),
    (_SHIFTED("what had gone does not go again",
              "flow[1], flow[2] = back, back", "flow[2] = flow[1]"), WILD[1]),
    (_SHIFTED("all pieces go to the place of the first", "y.at[pl.ds(piece * 16, 16)]",
              "y.at[pl.ds(0, 16)]"), LAYOUTS[1]),
)  # fmt: skip


BY_COLUMNS: tuple[Bug, ...] = (
    _COLUMNS("all blocks of columns are the first one's", "pl.ds(tf * 128, 128)", "pl.ds(0, 128)"),
    _COLUMNS("only the first block of columns is waited for",
             "flow[0], flow[1], flow[2] = 0, 0, 0",
             "flow[0], flow[1], flow[2] = jnp.where(tf == 0, 0, 3), 0, 0"),
    _COLUMNS("results of the last block of columns go to those of the one before",
             "y.at[pl.ds(piece * 16, 16), pl.ds(tf * 128, 128)]",
             "y.at[pl.ds(piece * 16, 16), pl.ds(jnp.minimum(tf, 1) * 128, 128)]"),
)  # fmt: skip


HELD: tuple[Bug, ...] = (
    bug("pooled", "flowing", "every group's results are among the first ones'",
        "peaks_ref.at[pl.ds(8 * jax.lax.div(g, 8), 8)]", "peaks_ref.at[pl.ds(0, 8)]"),
    bug("pooled", "flowing", "a group's sums are those of the next one",
        "sums_ref.at[g]", "sums_ref.at[jnp.minimum(g + 1, 18)]"),
)  # fmt: skip


@pytest.mark.parametrize("planted", HELD, ids=str)
def test_a_planted_bug_in_what_is_held_is_noticed(planted):
    x, cuts = among_empty(LAYOUTS[0])
    lowered = PLAIN_POOLED.lower(x, cuts, config=FLOWING)
    call = trial.runnable(lowered, planted.plant(lowered.source.text), strict())
    pairs = zip(call(x, cuts), pooled_by_hand(x, cuts), strict=True)
    assert not all(np.array_equal(np.asarray(a), b) for a, b in pairs)


@pytest.mark.parametrize("planted", BY_COLUMNS, ids=str)
def test_a_planted_bug_in_blocks_of_columns_is_noticed(planted):
    aligned = replace(CUT, windows="aligned")
    assert noticed(PLAIN_COLUMNS, planted, wide(LAYOUTS[0]), CUT, aligned)


@pytest.mark.parametrize(("planted", "offsets"), BUGS, ids=str)
def test_a_planted_bug_is_noticed(planted, offsets):
    assert noticed(PLAIN, planted, given(offsets), FLOWING, AT_ONCE)
