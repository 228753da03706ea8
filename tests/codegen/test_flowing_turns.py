"""Whole arrays whose rows come, and go, in pieces while the loops of the only step turn."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from examples.jagged.jagged_layer_norm import jagged_layer_norm
from tests.codegen.flowing import LAYOUTS, ROWS, WILD, laid, noticed, strict
from tests.planted.bug import Bug, bug
from tilelang.codegen.pallas.plan.estimate.offsets import typical
from tilelang.codegen.pallas.plan.estimate.seconds import estimate

BLOCKS = {"g": 4, "tm": 16}
FLOWING = tile.Config(BLOCKS, loop_type="fori_loop", windows="flowing")
AT_ONCE = tile.Config(BLOCKS, loop_type="fori_loop", windows="aligned")


def centred(x, offsets):
    """Rows less the sum of all numbers of their group."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        total = 0.0
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            total += hl.sum(x[tm, :])
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm, :] = x[tm, :] - total
    return y


def oracle(x: np.ndarray, offsets: tuple[int, ...]) -> np.ndarray:
    y = np.zeros_like(x)
    for begin, end in pairwise(offsets):
        y[begin:end] = x[begin:end] - x[begin:end].sum()
    return y


def given(offsets: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Small integers, whose sums are exact; NaN in rows that are in no group."""
    x = np.random.default_rng(0).integers(-8, 9, (ROWS, 8)).astype(np.float32)
    return laid(x, offsets)


@pytest.fixture(autouse=True)
def anew():
    yield
    pltpu.reset_tpu_interpret_mode_state()


KERNEL = tile.kernel(centred, interpret=strict(), checks=False)
PLAIN = tile.kernel(centred, checks=False)


@pytest.mark.parametrize("offsets", LAYOUTS)
def test_groups_have_their_own_rows(offsets):
    result = KERNEL(*given(offsets), config=FLOWING)
    np.testing.assert_array_equal(result, oracle(given(offsets)[0], offsets))


@pytest.mark.parametrize("offsets", WILD)
def test_ranges_that_do_not_rise_are_those_of_whole_arrays(offsets):
    x, cuts = given(offsets)
    np.testing.assert_array_equal(KERNEL(x, cuts, config=FLOWING), PLAIN(x, cuts, config=AT_ONCE))


def part_twice(x, cuts):
    """Rows of the second range, threefold, with the sums of the first one's."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    total = hl.zeros([x.shape[1]], dtype=hl.float32)
    for _ in hl.grid(1):
        for tm in hl.tile(cuts[0], cuts[1]):
            total = total + x[tm, :].sum(0)
        for tm in hl.tile(cuts[2], cuts[3]):
            y[tm, :] = x[tm, :] * 3 + total[None, :]
    return y


@pytest.mark.parametrize("cuts", [(0, 20, 30, 48), (30, 48, 0, 20), (5, 5, 7, 41), (0, 48, 9, 9)])
def test_loops_of_the_only_step_may_have_ranges_of_their_own(cuts):
    """The second loop may be behind the pieces that the first one waited for, or before them."""
    x = given((0, ROWS))[0]
    config = tile.Config({"tm": 16, "tm_1": 16}, loop_type="fori_loop", windows="flowing")
    call = tile.kernel(part_twice, interpret=strict(), checks=False)
    first, stop, begin, end = cuts
    wanted = np.zeros_like(x)
    wanted[begin:end] = x[begin:end] * 3 + x[first:stop].sum(0)
    np.testing.assert_array_equal(call(x, np.array(cuts, np.int32), config=config), wanted)


def stored_twice(x, offsets):
    """Rows, of which those of the first range are stored again."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for _ in hl.grid(1):
        for tm in hl.tile(offsets[0], offsets[1]):
            y[tm, :] = x[tm, :]
        for tm in hl.tile(offsets[2], offsets[3]):
            y[tm, :] = x[tm, :] * 2
    return y


def test_what_two_loops_store_stays_until_the_end():
    cuts = np.array((0, 40, 10, 30), np.int32)
    config = tile.Config({"tm": 16, "tm_1": 16}, loop_type="fori_loop", windows="flowing")
    call = tile.kernel(stored_twice, interpret=strict(), checks=False)
    x = given((0, ROWS))[0]
    (launch,) = call.lower(x, cuts, config=config).plan.launches
    assert [w.array for w in launch.windows if w.flows] == ["x"]
    wanted = np.zeros_like(x)
    wanted[:40] = x[:40]
    wanted[10:30] = x[10:30] * 2
    np.testing.assert_array_equal(call(x, cuts, config=config), wanted)


def test_what_the_plan_says():
    plan = PLAIN.lower(*given(LAYOUTS[0]), config=FLOWING).plan
    told = "  x, y: in 3 pieces of 16 rows, which come and go while loops of the step turn"
    assert told in str(plan)


# ---------------------------------------------------------------- by default


def test_the_estimate_knows_what_goes_on_beside_the_copies():
    long = tile.spec((8192, 512), "bfloat16"), tile.spec((129,), "int32")
    config = tile.Config({"g": 128, "tm": 1024}, loop_type="fori_loop")
    flowing, aligned = (
        PLAIN.lower(*long, target="tpu:v6e", config=replace(config, windows=windows)).plan
        for windows in (None, "aligned")
    )
    (launch,) = flowing.launches
    assert launch.flow is not None
    assert [t.axis for t in launch.flow.turns] == ["tm", "tm_1"]
    assert aligned.launches[0].flow is None
    steered = typical(flowing.problem)
    assert estimate(flowing, steered).seconds < 0.8 * estimate(aligned, steered).seconds


def layer_norm(rows: int) -> tuple[tile.Config, str]:
    """The default of groups of 256 rows, and why."""
    weight = tile.spec((512,), "bfloat16")
    given = tile.spec((rows, 512), "bfloat16"), weight, weight, tile.spec((129,), "int32")
    config = jagged_layer_norm.default_config(*given, target="tpu:v6e")
    return config, jagged_layer_norm.explain(*given, target="tpu:v6e")


def test_loops_in_a_row_read_rows_once_where_vector_memory_holds_them():
    """By v6e's schedules 73.0 us, where steps of tiles that are read three times take 97.0."""
    config, told = layer_norm(32768)
    assert dict(config.blocks)["g"] == 128
    assert config.loop_type == "fori_loop"
    assert "x, y: in 8 pieces of 4096 rows, which come and go while loops of the step turn" in told
    assert "its loops in a row as steps: " in told


def test_rows_that_vector_memory_does_not_hold_come_for_every_loop():
    config, told = layer_norm(131072)
    assert config.loop_type is None
    assert "pieces of" not in told


# ---------------------------------------------------------------- planted bugs

_CENTRED = partial(bug, "centred", "flowing")
BUGS: tuple[tuple[Bug, tuple[int, ...]], ...] = (
    (_CENTRED("a tile does not wait for its piece", "@pl.when(tm * 16 + 16 > flow[0] * 16)",
              "@pl.when(tm * 16 > flow[0] * 16)"), LAYOUTS[1]),
    (_CENTRED("the second loop uses what nobody waited for",
              "@pl.when(tm_1 * 16 + 16 > flow[0] * 16)", "@pl.when(tm_1 < 0)",
              ("@pl.when(tm * 16 + 16 > flow[0] * 16)", "@pl.when(tm < 0)")), LAYOUTS[1]),
    (_CENTRED("a piece goes before its tile is stored",
              "@pl.when(tm_1 * 16 + 16 >= (flow[1] + 1) * 16)",
              "@pl.when(tm_1 * 16 + 32 >= (flow[1] + 1) * 16)",
              ("reach = jax.lax.div(tm_1 * 16 + 16, 16)",
               "reach = jnp.minimum(jax.lax.div(tm_1 * 16 + 32, 16), 3)")), LAYOUTS[1]),
    (_CENTRED("pieces that no tile has passed do not go", "@pl.loop(flow[1], 3)",
              "@pl.loop(flow[1], 2)", ("@pl.loop(flow[2], 3)", "@pl.loop(flow[2], 2)")),
     LAYOUTS[0]),
    (_CENTRED("nobody waits for what has gone", "@pl.loop(flow[2], 3)", "@pl.loop(flow[1], 3)"),
     LAYOUTS[1]),
)  # fmt: skip


@pytest.mark.parametrize(("planted", "offsets"), BUGS, ids=str)
def test_a_planted_bug_is_noticed(planted, offsets):
    assert noticed(PLAIN, planted, given(offsets), FLOWING, AT_ONCE)
