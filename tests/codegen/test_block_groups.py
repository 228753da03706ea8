"""Blocks of groups: what is exact, NaN and Inf, offsets that are none, what is refused."""

from __future__ import annotations

import inspect
from itertools import pairwise

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged.jagged_dense_add import jagged_dense_add
from examples.jagged.jagged_layer_norm import jagged_layer_norm
from examples.jagged.jagged_mean import jagged_mean
from examples.jagged.jagged_softmax import jagged_softmax
from examples.jagged.jagged_sum import jagged_sum
from tests import checks
from tests.planted import trial
from tests.planted.groups import NOT_FINITE, WILD
from tests.ragged import covered, poison, wild_offsets
from tests.subjects import JAGGED

LARGEST = np.finfo(np.float32).max
BAD = (np.nan, np.inf, -np.inf, LARGEST)
GROUPED = [subject for subject in JAGGED if subject.groups]
SHAPES = tile.spec((256, 128), "float32"), tile.spec((33,), "int32")
BLOCK = tile.Config({"g": 8})


def sums(call: checks.Call) -> list[str]:
    """Where sums of rows that hold NaN, Inf, or the largest number are not those of NumPy."""
    (x,), wrong = trial.arrays_of("jagged_sum"), []
    for place, layout in enumerate(trial.LAYOUTS):
        (offsets,), rng = layout.tensors(1), np.random.default_rng(place)
        seen = x.copy()
        for _ in range(12):
            seen[rng.integers(len(x)), rng.integers(x.shape[1])] = rng.choice(BAD)
        with np.errstate(all="ignore"):
            exact = np.array([seen[b:e].astype(np.float64).sum(0) for b, e in pairwise(offsets)])
            exact = exact.astype(np.float32)
        found = np.asarray(call(seen, offsets))
        if not np.allclose(found, exact, rtol=1e-5, atol=1e-4, equal_nan=True):
            wrong.append(checks.said(layout.stratum, (offsets,)))
    return wrong


def wild(call: checks.Call) -> list[str]:
    """Wild offsets with which a legal group is wrong."""
    subject, arrays = trial.named("jagged_sum"), trial.arrays_of("jagged_sum")
    every = wild_offsets(trial.SPACE)
    return [n for n, cuts in every.items() if checks.unchecked(subject, call, arrays, cuts)]


def test_what_is_not_finite_stays_in_its_group():
    lowered = trial.printed("jagged_sum", "groups")
    assert sums(trial.runnable(lowered, lowered.source.text)) == []


@pytest.mark.slow
@pytest.mark.parametrize("planted", NOT_FINITE, ids=str)
def test_a_bug_with_what_is_not_finite_is_caught(planted):
    lowered = trial.printed(planted.subject, planted.form)
    assert sums(trial.runnable(lowered, planted.plant(lowered.source.text))) != []


def test_wild_offsets_harm_no_other_group():
    lowered = trial.printed("jagged_sum", "groups")
    assert wild(trial.runnable(lowered, lowered.source.text)) == []


@pytest.mark.slow
@pytest.mark.parametrize("planted", WILD, ids=str)
def test_a_bug_with_wild_offsets_is_caught(planted):
    lowered = trial.printed(planted.subject, planted.form)
    assert wild(trial.runnable(lowered, planted.plant(lowered.source.text))) != []


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("subject", GROUPED, ids=str)
def test_layouts(subject, dtype):
    arrays = subject.arrays(dtype, rows=trial.SPACE.rows, groups=trial.SPACE.groups)
    config = tile.Config(subject.blocks_in("groups"))

    def call(*arguments):
        return subject.kernel(*arguments, config=config)

    assert checks.every_layout(subject, call, arrays, trial.LAYOUTS, dtype) == []


# ---------------------------------------------------------------- what a kernel may do


@tile.kernel
def scaled(x, offsets):
    """y[r] = x[r] times the length of its group, and how far in it the row is."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            far = (tm.index - offsets[g]).to(x.dtype)
            y[tm, :] = x[tm, :] * (offsets[g + 1] - offsets[g]).to(x.dtype) + far[:, None]
    return y


def scaled_oracle(x, offsets):
    y = np.zeros_like(x)
    for b, e in pairwise(offsets):
        y[b:e] = x[b:e] * (e - b) + np.arange(e - b)[:, None]
    return y


@tile.kernel
def weighted(x, weights, offsets):
    """y[g] = the sum of its rows, each times its group's weight."""
    y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            acc += (x[tm, :] * weights[g]).sum(0)
        y[g, :] = acc
    return y


def weighted_oracle(x, weights, offsets):
    return np.array(
        [x[b:e].sum(0) * w for w, (b, e) in zip(weights, pairwise(offsets), strict=True)]
    )


@tile.kernel
def faded(x, offsets):
    """y[g] = 1, halved once if the group has rows, and the sum of the first column."""
    y = hl.zeros([offsets.shape[0] - 1], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        total, fade = 0.0, 1.0
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            total += hl.sum(x[tm, 0])
            fade = hl.where(fade > 0.5, fade * 0.5, fade)
        y[g] = total + fade
    return y


def faded_oracle(x, offsets):
    return np.array([x[b:e, 0].sum() + (0.5 if b < e else 1) for b, e in pairwise(offsets)])


@tile.kernel
def far_below(x, offsets):
    """y[r] = how far four columns are below the largest of r's group, by the sum of exp of that."""
    y = hl.zeros([x.shape[0], 4], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        top = hl.full([4], -np.inf, dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            top = hl.maximum(top, x[tm, 0:4].amax(0))
        total = hl.zeros([4], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            total += hl.exp(x[tm, 0:4] - top[None, :]).sum(0)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm, :] = (x[tm, 0:4] - top[None, :]) * total[None, :]
    return y


def far_below_oracle(x, offsets):
    y = np.zeros((len(x), 4), np.float32)
    for b, e in pairwise(offsets):
        if b < e:
            below = x[b:e, :4] - x[b:e, :4].max(0)
            y[b:e] = below * np.exp(below).sum(0)
    return y


WEIGHTS = np.arange(1, trial.SPACE.groups + 1, dtype=np.float32)


@pytest.mark.parametrize(
    ("kernel", "more", "oracle"),
    [(scaled, (), scaled_oracle), (weighted, (WEIGHTS,), weighted_oracle),
     (faded, (), faded_oracle), (far_below, (), far_below_oracle)],
    ids=lambda v: getattr(v, "name", None),
)  # fmt: skip
def test_what_rows_and_groups_may_use_of_each_other(kernel, more, oracle):
    """NaN in the rows of no group reaches nothing."""
    kernel = tile.kernel(inspect.unwrap(kernel))  # lowered anew
    x = np.random.default_rng(0).standard_normal((trial.SPACE.rows, 40), np.float32)
    tiles = dict.fromkeys((a for a in ("tm", "tm_1") if a in kernel_axes(kernel, x, more)), 16)
    for layout in trial.LAYOUTS:
        (offsets,) = layout.tensors(1)
        seen = poison(x, covered(offsets, len(x)))
        found = kernel(seen, *more, offsets, config=tile.Config({"g": 2, **tiles}))
        exact = oracle(np.where(covered(offsets, len(x))[:, None], x, 0), *more, offsets)
        np.testing.assert_allclose(found, exact, 1e-5, 1e-5, err_msg=str(layout))


def test_rows_between_the_groups_of_a_block_keep_their_fill():
    """Of offsets that fall, which nobody checks."""
    unchecked = tile.kernel(inspect.unwrap(scaled), checks=False)
    offsets = np.array([50, 60, 0, 10], np.int32)
    x = np.ones((64, 40), np.float32)
    found = np.asarray(unchecked(x, offsets, config=tile.Config({"g": 4, "tm": 16})))
    assert (found[10:50] == 0).all() and (found[60:] == 0).all()
    assert (found[50:60, 0] == 10 + np.arange(10)).all() and (found[:10] == found[50:60]).all()


@tile.kernel
def shifted(x, offsets):
    """y[r] = x[r] less the sum of its group, and those sums."""
    sums = hl.empty([offsets.shape[0] - 1], dtype=hl.float32)
    y = hl.full(x.shape, 3.0, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        total = 0.0
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            total += x[tm].sum()
        sums[g] = total
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm] = x[tm] - total
    return sums, y


def test_a_block_without_rows_stays_where_its_rows_would_be():
    """Else its step would leave a block of rows, and come back to what it held at first."""
    offsets = np.array([4, 5, 9, 9, 9, 9, 11, 15], np.int32)
    x = np.arange(70, dtype=np.float32)
    sums, y = shifted(x, offsets, config=tile.Config({"g": 2, "tm": 32, "tm_1": 32}))
    exact = np.array([x[b:e].sum() for b, e in pairwise(offsets)])
    np.testing.assert_array_equal(sums, exact)
    np.testing.assert_array_equal(y[4:15], x[4:15] - np.repeat(exact, np.diff(offsets)))
    assert (np.delete(np.asarray(y), np.s_[4:15]) == 3).all()


@tile.kernel
def short(x, offsets):
    """y[g] = the sum of its rows, of which those behind the end of x are 1."""
    y = hl.full([offsets.shape[0] - 1], 0.0, dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        acc = 0.0
        for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=40):
            acc += hl.load(x, [tm], mask=tm.index < x.shape[0], other=1.0).sum()
        y[g] = acc
    return y


def test_blocks_of_groups_have_more_rows_than_an_array_that_they_leave():
    offsets = np.array([0, 3, 20, 30], np.int32)
    found = short(np.zeros(12, np.float32), offsets, config=tile.Config({"g": 2, "tm": 16}))
    np.testing.assert_array_equal(found, [0, 8, 10])


def kernel_axes(kernel, x, more) -> set[str]:
    (offsets,) = trial.LAYOUTS[0].tensors(1)
    return {axis.name for axis in kernel.lower(x, *more, offsets).ir.axes}


# ---------------------------------------------------------------- the default


def spec(rows: int, groups: int, dtype: str = "bfloat16") -> tuple[object, object]:
    return tile.spec((rows, 512), dtype), tile.spec((groups + 1,), "int32")


@pytest.mark.parametrize(
    ("arguments", "block"),
    [
        (spec(32768, 2048), 256),
        (spec(32768, 128), 128),
        (spec(131072, 8), None),  # long ones are read as fast one by one
        (spec(32768, 2048, "int32"), None),  # products do not sum integers
    ],
)
def test_short_groups_have_blocks_by_default(arguments, block):
    lowered = jagged_sum.lower(*arguments, target="tpu:v6e")
    assert dict(lowered.config.blocks).get("g") == block
    again = jagged_sum.lower(*arguments, target="tpu:v6e", config=lowered.config)
    assert again.source.text == lowered.source.text


@pytest.mark.parametrize(
    ("groups", "block"), [(2048, 256), (128, 128), (8, None)], ids=["short", "long", "few"]
)
def test_groups_of_several_loops_have_blocks_by_default(groups, block):
    x, offsets = spec(32768, groups)
    weight = tile.spec((512,), "bfloat16")
    lowered = jagged_layer_norm.lower(x, weight, weight, offsets, target="tpu:v6e")
    assert dict(lowered.config.blocks).get("g") == block


def test_groups_have_blocks_where_steps_of_their_own_have_no_estimate():
    """Three loops of 20,000 groups are too many steps for a table: pipelines inside of steps."""
    arguments = tile.spec((320000, 8), "float32"), tile.spec((20001,), "int32")
    lowered = far_below.lower(*arguments, target="tpu:v6e")
    assert "g" in dict(lowered.config.blocks)
    assert "g one by one" in far_below.explain(*arguments, target="tpu:v6e")


def test_loops_in_a_row_run_in_the_step():
    """As steps each of them copies its rows again, and a short group is a small step.

    Where vector memory holds all rows they stay there; where it does not, columns of them do.
    """
    found = {}
    for rows, groups in ((32768, 2048), (32768, 128), (131072, 512)):
        lowered = jagged_softmax.lower(*spec(rows, groups), target="tpu:v6e")
        found[rows, groups] = lowered.config.loop_type, dict(lowered.config.blocks)["tm"]
        again = jagged_softmax.lower(*spec(rows, groups), target="tpu:v6e", config=lowered.config)
        assert again.source.text == lowered.source.text
    assert found == {
        (32768, 2048): ("fori_loop", 32),
        (32768, 128): ("fori_loop", 128),
        (131072, 512): ("fori_loop", 128),  # 256 MiB
    }
    text = jagged_softmax.explain(*spec(32768, 2048), target="tpu:v6e")
    assert "its loops in a row as steps: 1069 us" in text


def test_explain_says_what_a_step_does_and_what_one_by_one_would_take():
    text = jagged_mean.explain(*spec(32768, 2048), target="tpu:v6e")
    assert "axis g: parallel, table block 256: each g writes its own rows of y; a step" in text
    assert "g one by one: " in text


def test_configs_with_blocks_of_groups_are_estimated_as_what_they_are():
    first = next(jagged_mean.configs(*spec(32768, 2048), target="tpu:v6e"))
    assert dict(first.config.blocks)["g"] == 256 and first.seconds < 50e-6


# ---------------------------------------------------------------- what is refused


@tile.kernel
def largest(x, offsets):
    """y[g] = the largest of each column."""
    y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        best = hl.full([x.shape[1]], -1.0, dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            best = hl.maximum(best, x[tm, :].amax(0))
        y[g, :] = best
    return y


@tile.kernel
def every_other(x, offsets):
    """y[g] = the sum of the rows from offsets[2 * g] on."""
    y = hl.zeros([offsets.shape[0] // 2, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] // 2):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tm in hl.tile(offsets[2 * g], offsets[2 * g + 1]):
            acc += x[tm, :].sum(0)
        y[g, :] = acc
    return y


@tile.kernel
def turned(x, offsets):
    """y[g] = the sum of its rows, which are columns for a moment."""
    y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            acc += x[tm, :].T.sum(1)
        y[g, :] = acc
    return y


@tile.kernel
def in_place(x, offsets):
    """x[r] *= the length of its group."""
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            x[tm, :] = x[tm, :] * (offsets[g + 1] - offsets[g]).to(x.dtype)


@tile.kernel
def columns(x, offsets):
    """y[:, r] = x[r]."""
    y = hl.zeros([x.shape[1], x.shape[0]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            for i in hl.grid(1):
                y[i, tm] = x[tm, 0]
    return y


@tile.kernel
def stored(x, offsets, how):
    """Sums that are stored where blocks of groups cannot be."""
    G, N = offsets.shape[0] - 1, x.shape[1]
    y = hl.zeros([N, G] if how == "beside" else [G, N], dtype=x.dtype)
    for g in hl.grid(1 if how == "later" else 0, G):
        acc = hl.zeros([N], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            acc += x[tm, :].sum(0)
        if how == "added":
            hl.atomic_add(y, [g, slice(None)], acc)
        elif how == "beside":
            y[:, g] = acc
        elif how == "alone":
            y[0, :] = acc
        else:
            y[g, :] = acc
    return y


@tile.kernel
def stored_rows(x, offsets, how):
    """Rows that are stored where blocks of groups cannot be."""
    y = hl.zeros(x.shape[::-1] if how == "turned" else x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            if how == "turned":
                y[:, tm] = x[tm, :].T
            else:
                hl.atomic_add(y, [tm, slice(None)], x[tm, :])
    return y


@tile.kernel
def thrice(x, offsets):
    """y[g] = the sum of its rows, as they are and twice as large: 0 + 1 + 2 times."""
    y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for i in hl.grid(3):
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                acc += (x[tm, :] * i).sum(0)
        y[g, :] = acc
    return y


@tile.kernel
def planes(x, offsets):
    """y[g] = the sum of its rows, which have three dimensions."""
    y = hl.zeros([offsets.shape[0] - 1, *x.shape[1:]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        acc = hl.zeros(x.shape[1:], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            acc += x[tm, :, :, :].sum(0)
        y[g, :, :, :] = acc
    return y


@tile.kernel
def planes_most(x, offsets):
    """y[g] = the largest of its rows, which have three dimensions."""
    y = hl.zeros([offsets.shape[0] - 1, *x.shape[1:]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        top = hl.full([*x.shape[1:]], -np.inf, dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            top = hl.maximum(top, x[tm, :, :, :].amax(0))
        y[g, :, :, :] = top
    return y


@pytest.mark.parametrize(
    ("kernel", "arguments", "why"),
    [
        (largest, SHAPES, "it takes the max of rows of more than 16 numbers"),
        (every_other, SHAPES, "tm does not go from T[g] to T[g + 1]"),
        (jagged_softmax, SHAPES, "it takes the max of rows of more than 16 numbers"),
        (turned, SHAPES, "a value of its rows has them in another dimension than the first"),
        (in_place, SHAPES, "x is read and stored"),
        (columns, SHAPES, "a loop over i stands in one over its rows"),
        (jagged_sum, (tile.spec((256, 128), "int32"), SHAPES[1]),
         "it sums rows of int32, and products sum in float32"),
        (planes_most, (tile.spec((256, 2, 4, 128), "float32"), SHAPES[1]),
         "it takes the max of rows that have several dimensions"),
        (planes, (tile.spec((256, 2, 4, 128), "float32"), SHAPES[1]),
         "it sums rows that have several dimensions"),
        (stored, (*SHAPES, "added"), "a store of it has a mask, or adds to what is there"),
        (stored, (*SHAPES, "beside"), "y is not indexed by g in its first dimension"),
        (stored, (SHAPES[0], tile.spec((2,), "int32"), "alone"), "a store to y is not at g"),
        (thrice, SHAPES, "a loop of it over i carries acc"),
        (stored, (*SHAPES, "later"),
         "its indices do not go from 0 to a number that shapes give"),
        (stored_rows, (*SHAPES, "added"),
         "a store of its rows has a mask, or adds to what is there"),
        (stored_rows, (*SHAPES, "turned"), "y is not stored at its rows, in the first dimension"),
    ],
    ids=lambda v: getattr(v, "name", None),
)  # fmt: skip
def test_why_groups_cannot_have_blocks(kernel, arguments, why):
    with pytest.raises(tile.PlanError) as refused:
        kernel.lower(*arguments, target="tpu:v6e", config=BLOCK)
    assert refused.value.what == f"g cannot have a block: {why}"
    assert refused.value.hint == (
        "leave the block of g out; only an hl.grid loop whose ragged loops sum rows "
        "[offsets[g], offsets[g + 1]), take the largest of numbers, or store to them, can have one"
    )
    assert refused.value.loc is not None


def test_a_block_of_groups_is_one_that_can_be_cut():
    arguments = tile.spec((4096, 128), "float32"), tile.spec((1025,), "int32")
    with pytest.raises(tile.PlanError) as refused:
        jagged_sum.lower(*arguments, target="tpu:v6e", config=BLOCK)
    assert refused.value.what == "a block of 8 for g cannot be cut from a dimension of 1024"


def test_tiles_that_begin_with_a_range_are_of_one_group():
    with pytest.raises(tile.PlanError) as refused:
        jagged_sum.lower(*SHAPES, config=tile.Config({"g": 8}, windows="exact"))
    assert refused.value.what == "windows='exact' with a block of g: tiles hold many groups"


def test_a_kernel_of_another_form_is_left_alone():
    dense = SHAPES[0], tile.spec((32, 16, 128), "float32"), SHAPES[1]
    with pytest.raises(tile.PlanError, match="cannot have a block"):
        jagged_dense_add.lower(*dense, config=tile.Config({"g": 8}))
