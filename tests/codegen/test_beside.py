"""Several iterations in a step, in straight code where their loops turn once at most."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from tests.codegen.flowing import LAYOUTS, ROWS, WILD, laid, strict
from tests.codegen.side_by_side import planned, result, text_of
from tests.planted.bug import Bug, bug
from tilelang.codegen.pallas.plan.body.beside import alone, sizes

FLOWING = tile.Config({"tm": 8}, loop_type="fori_loop", windows="flowing")
AT_ONCE = tile.Config({"tm": 8}, loop_type="fori_loop", windows="aligned")


def softmax(x, offsets):
    """Softmax of every column over the rows of each group."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        m = hl.full([x.shape[1]], -float("inf"), dtype=hl.float32)
        total = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            new = hl.maximum(m, x[tm, :].amax(0))
            total = total * hl.exp(m - new) + hl.exp(x[tm, :] - new[None, :]).sum(0)
            m = new
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm, :] = hl.exp(x[tm, :] - m[None, :]) / total[None, :]
    return y


def weights(x, offsets):
    """The sum of what a softmax weighs the rows of each group with: 0 of none."""
    y = hl.empty([offsets.shape[0] - 1, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        m = hl.full([x.shape[1]], -float("inf"), dtype=hl.float32)
        total = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            new = hl.maximum(m, x[tm, :].amax(0))
            total = total * hl.exp(m - new) + hl.exp(x[tm, :] - new[None, :]).sum(0)
            m = new
        y[g, :] = total
    return y


KERNEL, WEIGHTS = (tile.kernel(f, checks=False) for f in (softmax, weights))


def oracle(x: np.ndarray, offsets: tuple[int, ...]) -> np.ndarray:
    y = np.zeros_like(x)
    for begin, end in pairwise(offsets):
        if begin < end:
            weights = np.exp(x[begin:end] - x[begin:end].max(0))
            y[begin:end] = weights / weights.sum(0)
    return y


def given(offsets: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Rows, of which those that are in no group hold NaN."""
    return laid(np.random.default_rng(0).standard_normal((ROWS, 8), np.float32), offsets)


@pytest.fixture(autouse=True)
def anew():
    yield
    pltpu.reset_tpu_interpret_mode_state()


# Every one, some and none of the groups fit a tile; one step has fewer groups than the others.
FORMS = ((2, 8), (3, 16), (4, 16), (4, 48))


@pytest.mark.parametrize(("count", "size"), FORMS)
def test_groups_have_their_own_rows(count, size):
    text = text_of(planned(KERNEL, given(LAYOUTS[0]), AT_ONCE, count, size))
    for offsets in LAYOUTS:
        found = result(KERNEL, given(offsets), AT_ONCE, text)
        np.testing.assert_allclose(found, oracle(given(offsets)[0], offsets), rtol=1e-6)


@pytest.mark.parametrize(
    ("count", "size"), [FORMS[1], *(pytest.param(*f, marks=pytest.mark.slow) for f in FORMS[2:])]
)
def test_pieces_are_there_for_all_groups_of_a_step(count, size):
    text = text_of(planned(KERNEL, given(LAYOUTS[0]), FLOWING, count, size))
    for offsets in LAYOUTS:
        found = result(KERNEL, given(offsets), FLOWING, text, strict())
        np.testing.assert_allclose(found, oracle(given(offsets)[0], offsets), rtol=1e-6)


@pytest.mark.parametrize(
    ("count", "size"), [FORMS[1], pytest.param(*FORMS[3], marks=pytest.mark.slow)]
)
def test_ranges_that_do_not_rise_are_those_of_one_a_step(count, size):
    text = text_of(planned(KERNEL, given(LAYOUTS[0]), FLOWING, count, size))
    for offsets in WILD:
        x, cuts = given(offsets)
        found = result(KERNEL, (x, cuts), FLOWING, text, strict())
        np.testing.assert_allclose(found, KERNEL(x, cuts, config=AT_ONCE), rtol=1e-6)


EMPTY = (0, 5, 5, 48, 48)
LOST = bug("weights", "several", "a loop of no turn is run", "jnp.where(stop > 0, new, old)", "new")


def test_a_group_without_rows_keeps_what_its_loop_began_with():
    x, cuts = given(EMPTY)
    text = text_of(planned(WEIGHTS, (x, cuts), AT_ONCE, 4, 48))
    found = result(WEIGHTS, (x, cuts), AT_ONCE, text)
    rows = [x[b:e] for b, e in pairwise(EMPTY)]
    wanted = [np.exp(each - each.max(0, initial=-9.0)).sum(0) for each in rows]
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    lost = result(WEIGHTS, (x, cuts), AT_ONCE, LOST.plant(text))
    assert not np.allclose(lost, wanted, rtol=1e-6)


def test_what_is_not_finite_stays_in_its_group():
    offsets = (0, 5, 9, 20, 40)
    x, cuts = given(offsets)
    x[5:9, :3], x[6, 1], x[20, 4] = np.inf, np.nan, -np.inf
    text = text_of(planned(KERNEL, (x, cuts), FLOWING, 4, 48))
    found = result(KERNEL, (x, cuts), FLOWING, text, strict())
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(found, oracle(x, offsets), rtol=1e-6)


# ---------------------------------------------------------------- by default

SHORT = tile.spec((32768, 512), "bfloat16"), tile.spec((2049,), "int32")


def test_short_groups_are_several_in_a_step_by_default():
    plan = KERNEL.lower(*SHORT, target="tpu:v6e").plan
    (launch,) = plan.launches
    assert launch.beside is not None and launch.beside.count == 8
    assert "8 of g in a step" in str(plan)
    assert "grid=(256,)" in KERNEL.source(*SHORT, target="tpu:v6e")


@pytest.mark.parametrize(("groups", "rows"), [(2, 4096), (32, 512), (64, 16)])
def test_long_groups_are_one_a_step(groups, rows):
    plan = KERNEL.lower(
        tile.spec((groups * rows, 512), "bfloat16"), tile.spec((groups + 1,), "int32"),
        target="tpu:v6e", config=tile.Config({"tm": 32}, loop_type="fori_loop"),
    ).plan  # fmt: skip
    many = plan.launches[0].beside
    assert (many is not None) == (rows == 16)


def gathered(x, offsets, picked):
    """Rows that an array picks: single rows are put together in scratch memory."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm, :] = x[picked[tm], :]
    return y


def chosen(x, offsets):
    """Flags of which a tile has all: they are read as a whole, and no part of them."""
    y = hl.empty([offsets.shape[0] - 1, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        total = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1], block_size=x.shape[0]):
            total = total + x[tm, :].sum(0)
        y[g, :] = total
    return y


def carried(x, offsets):
    """Every group goes on with what the one before made."""
    y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=x.dtype)
    total = hl.zeros([x.shape[1]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            total = total + x[tm, :].sum(0)
        y[g, :] = total
    return y


@pytest.mark.parametrize("body", [gathered, chosen, carried])
def test_what_has_one_iteration_a_step(body):
    x, cuts = given(LAYOUTS[0])
    more = (np.arange(ROWS, dtype=np.int32),) if body is gathered else ()
    config = tile.Config({} if body is chosen else {"tm": 8}, loop_type="fori_loop")
    plan = tile.kernel(body).lower(x, cuts, *more, config=config).plan
    assert all(alone(launch, plan.target) is None for launch in plan.launches)


def test_tiles_are_whole_registers():
    plan = KERNEL.lower(*given(LAYOUTS[0]), config=AT_ONCE).plan
    near = alone(plan.launches[0], plan.target)
    assert near is not None
    assert list(sizes(near)) == [16, 32, 48]


# ---------------------------------------------------------------- planted bugs

_SHORT = partial(bug, "softmax", "several in a step")
BUGS: tuple[tuple[Bug, tuple[int, ...], int, int], ...] = (
    (_SHORT("a group that needs two tiles is taken for a short one",
            "g_once &= g_turns(g + later) <= 1", "g_once &= g_turns(g + later) <= 9"),
     (0, 5, 30, 31, 48), 4, 16),
    (_SHORT("only the first group is asked", "for later in range(1, 4)",
            "for later in range(1, 1)"),
     (0, 5, 30, 31, 48), 4, 16),
    (_SHORT("the last group of a step is left out", "for later in range(4):\n            g_short",
            "for later in range(3):\n            g_short"), LAYOUTS[0], 4, 48),
    (_SHORT("of long groups the first one alone is done", "@pl.loop(g, g + 4)",
            "@pl.loop(g, g + 1)"), LAYOUTS[0], 4, 8),
    (_SHORT("groups that are not there are done", "@pl.loop(g, jnp.minimum(g + 3, 4))",
            "@pl.loop(g, g + 3)"), LAYOUTS[0], 3, 48),
    (_SHORT("the rows of the first group alone are waited for",
            "end_row = jnp.maximum(end_row, offsets[later + 1])", "end_row = end_row"),
     LAYOUTS[0], 4, 16),
    (_SHORT("rows before the last tile count again",
            "tm_index >= jnp.maximum(offsets[g], tm_first + tm * 16)", "tm_index >= 0"),
     (30, 31, 35, 40, 48), 4, 16),
    (_SHORT("a step has one group", "g = pl.program_id(0) * 2", "g = pl.program_id(0)"),
     LAYOUTS[0], 2, 48),
)  # fmt: skip


@pytest.mark.parametrize(("planted", "offsets", "count", "size"), BUGS, ids=str)
def test_a_planted_bug_is_noticed(planted, offsets, count, size):
    text = planted.plant(text_of(planned(KERNEL, given(offsets), FLOWING, count, size)))
    try:
        found = result(KERNEL, given(offsets), FLOWING, text, strict())
    except Exception:  # a position outside of its array, of which the interpreter speaks
        return
    assert not np.allclose(found, oracle(given(offsets)[0], offsets), rtol=1e-6)
