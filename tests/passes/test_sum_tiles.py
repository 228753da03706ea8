"""sum_tiles: a loop that adds rows one by one becomes one over tiles of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.interpreter import races_found, strictly
from tests.passes.becomes import again, becomes, floats
from tilelang.codegen.pallas.passes.sum_tiles import sum_tiles
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused

BLOCK = tile.Config({"j": 8})
BEFORE = """
for b in grid(6):
    acc: float32[16] = full([16], float32, value=0.0)
    for j in grid(offsets[b], offsets[b + 1], max_extent=40) carrying acc_1 = acc:
        row: float32[16] = table[ids[j], 0:16]
        acc_2: float32[16] = acc_1 + row * by[j]
        next acc_1 = acc_2
    after acc_3 = acc_1
    out[b, 0:16] = acc_3
"""
AFTER = """
for b in grid(6):
    acc: float32[16] = full([16], float32, value=0.0)
    for j in tile(offsets[b], offsets[b + 1], max_extent=40, block=8) carrying acc_1 = acc:
        row: float32[j, 16] = table[rows(ids[j]), 0:16]
        acc_rows: float32[j, 16] = row * expand_dims(by[j], axis=1)
        acc_2: float32[16] = acc_1 + sum(acc_rows, axis=0)
        next acc_1 = acc_2
    after acc_3 = acc_1
    out[b, 0:16] = acc_3
"""


@tile.kernel
def bag(table, ids, offsets, by):
    """An embedding bag as its definition reads: the sum of rows, each times a number."""
    B, D = offsets.shape[0] - 1, table.shape[1]
    out = hl.empty([B, D], dtype=table.dtype)
    for b in hl.grid(B):
        acc = hl.zeros([D], dtype=hl.float32)
        for j in hl.grid(offsets[b], offsets[b + 1]):
            row = table[ids[j], :]
            acc += row * by[j]
        out[b, :] = acc
    return out


def bag_by_hand(table, ids, offsets, by):
    return np.array([
        (table[ids[i:e]] * by[i:e, None]).sum(0)
        for i, e in itertools.pairwise(offsets)
    ])  # fmt: skip


@tile.kernel
def means(table, ids, offsets, by):
    """Means over rows whose number is not negative, and how many these are."""
    B, D = offsets.shape[0] - 1, table.shape[1]
    out = hl.empty([B, D], dtype=table.dtype)
    for b in hl.grid(B):
        acc = hl.zeros([D], dtype=hl.float32)
        count = 1.0
        for j in hl.grid(offsets[b], offsets[b + 1]):
            acc = hl.where(by[j] >= 0, acc + table[ids[j], :], acc)
            count = hl.where(by[j] >= 0, count + 1.0, count)
        out[b, :] = acc / count
    return out


def means_by_hand(table, ids, offsets, by):
    found = []
    for i, e in itertools.pairwise(offsets):
        rows = table[ids[i:e]][by[i:e] >= 0]
        found.append(rows.sum(0) / (1 + len(rows)))
    return np.array(found)


@tile.kernel
def greatest(table, ids, offsets, by):
    """The greatest of every column, less the least, of rows that are next to one another here."""
    B, D = offsets.shape[0] - 1, table.shape[1]
    out = hl.empty([B, D], dtype=table.dtype)
    for b in hl.grid(B):
        high = hl.full([D], -1e30, dtype=hl.float32)
        low = hl.full([D], 1e30, dtype=hl.float32)
        turns = 0
        for j in hl.grid(offsets[b], offsets[b + 1]):
            high = hl.maximum(high, table[ids[j] + 1, :] * by[j])
            low = hl.minimum(table[ids[j] + 1, :] * by[j], low)
            turns += 1
        out[b, :] = hl.where(turns > 0, high - low, 0.0) + turns
    return out


def greatest_by_hand(table, ids, offsets, by):
    found = []
    for i, e in itertools.pairwise(offsets):
        rows = table[np.clip(ids[i:e] + 1, 0, len(table) - 1)] * by[i:e, None]
        spread = rows.max(0) - rows.min(0) if len(rows) else np.zeros(table.shape[1])
        found.append(spread + len(rows))
    return np.array(found)


@tile.kernel
def columns(x, table, offsets, by):
    """Sums of rows as they lie, each beside a row that all of them share, in tiles of columns."""
    B, D = offsets.shape[0] - 1, x.shape[1]
    out = hl.empty([B, D], dtype=x.dtype)
    for b in hl.grid(B):
        for d in hl.tile(D):
            acc = hl.zeros([d], dtype=hl.float32)
            for j in hl.grid(offsets[b], offsets[b + 1]):
                acc = acc + x[j, d] * by[j] + table[b, d]
            out[b, d] = acc
    return out


def columns_by_hand(x, table, offsets, by):
    pairs = enumerate(itertools.pairwise(offsets))
    rows = [(x[i:e] * by[i:e, None] + table[b]).sum(0) for b, (i, e) in pairs]
    return np.array(rows)


@tile.kernel
def beside(table, ids, offsets, by):
    """Rows with numbers beside them, which count once for each row, on either side."""
    B, D = offsets.shape[0] - 1, table.shape[1]
    out = hl.empty([B, D], dtype=table.dtype)
    for b in hl.grid(B):
        acc = hl.zeros([D], dtype=hl.float32)
        turns = 0
        for j in hl.grid(offsets[b], offsets[b + 1]):
            acc = 0.5 + (acc + 1.0 + table[ids[j], :]) + by[j]
            turns = turns + 1 + j
        out[b, :] = (acc + turns) * 0.03125
    return out


def beside_by_hand(table, ids, offsets, by):
    numbers = np.arange(len(ids))[:, None]
    every = table[ids] + by[:, None] + 2.5 + numbers
    return np.array([every[i:e].sum(0) / 32 for i, e in itertools.pairwise(offsets)])


def given(kernel: tile.Kernel) -> tuple[np.ndarray, ...]:
    """Groups that are empty, of one row, and longer than a tile; a gap behind them has no numbers.

    Rows that are not of a group, and what they pick, are NaN.
    """
    offsets = np.array([2, 2, 3, 11, 11, 33, 36], np.int32)
    table, by = floats(24, 16), floats(40)
    ids = np.random.default_rng(1).integers(0, 23, 40).astype(np.int32)
    by[:2] = by[36:] = np.nan
    if kernel is columns:
        return floats(40, 16), table, offsets, by
    ids[:2] = ids[36:] = 23
    if kernel is not greatest:
        table[23] = np.nan
    return table, ids, offsets, by


CASES: list[tuple[tile.Kernel, Callable[..., np.ndarray]]] = [
    (bag, bag_by_hand),
    (means, means_by_hand),
    (greatest, greatest_by_hand),
    (columns, columns_by_hand),
    (beside, beside_by_hand),
]
each = pytest.mark.parametrize(("kernel", "oracle"), CASES, ids=lambda v: getattr(v, "name", ""))


@each
def test_values_are_those_of_rows_one_by_one(kernel, oracle):
    arrays = given(kernel)
    lowered = again(kernel).lower(*arrays, config=BLOCK)
    assert "for j in tile(" in str(lowered.plan.ir)
    assert np.abs(again(kernel)(*arrays, config=BLOCK) - oracle(*arrays)).max() < 1e-5


@each
def test_memory_that_no_one_wrote_reaches_nothing(kernel, oracle):
    arrays = given(kernel)
    found = strictly(again(kernel), 0)(*arrays, config=BLOCK)
    assert np.abs(found - oracle(*arrays)).max() < 1e-5
    assert not races_found()


def test_a_tile_is_summed_before_it_is_added():
    arrays = given(bag)
    lowered = again(bag).lower(*arrays)
    problem = Problem(lowered.ir, lowered.facts)
    becomes(lowered.ir, lambda _: sum_tiles(problem, "j", 8).ir, BEFORE, AFTER)


# ---------------------------------------------------------------- the default

SPECS = (
    tile.spec((100_000, 128), "float32"),
    tile.spec((20_000,), "int32"),
    tile.spec((1025,), "int32"),
    tile.spec((20_000,), "float32"),
)


def test_a_bag_is_summed_by_tiles_by_default():
    """And the config says so, and is the same again."""
    lowered = again(bag).lower(*SPECS, target="tpu:v6e")
    assert dict(lowered.config.blocks)["j"] % 8 == 0
    same = again(bag).lower(*SPECS, target="tpu:v6e", config=lowered.config)
    assert same.source.text == lowered.source.text
    assert "jnp.take(table, ids, axis=0" in lowered.source.text
    assert "j one by one: " in bag.explain(*SPECS, target="tpu:v6e")


# ---------------------------------------------------------------- what is refused


@tile.kernel
def faded(table, ids, offsets, by):
    """Every row counts half of the next one."""
    B, D = offsets.shape[0] - 1, table.shape[1]
    out = hl.empty([B, D], dtype=table.dtype)
    for b in hl.grid(B):
        acc = hl.zeros([D], dtype=hl.float32)
        for j in hl.grid(offsets[b], offsets[b + 1]):
            acc = acc * 0.5 + table[ids[j], :] * by[j]
        out[b, :] = acc
    return out


@tile.kernel
def prefixes(table, ids, offsets, by):
    """Sums of all rows so far."""
    B, D = offsets.shape[0] - 1, table.shape[1]
    out = hl.zeros([ids.shape[0], D], dtype=table.dtype)
    for b in hl.grid(B):
        acc = hl.zeros([D], dtype=hl.float32)
        for j in hl.grid(offsets[b], offsets[b + 1]):
            acc += table[ids[j], :] * by[j]
            out[j, :] = acc
    return out


@tile.kernel
def unlike(table, ids, offsets, by):
    """Rows at indices of which one array has fewer."""
    B, D = offsets.shape[0] - 1, table.shape[1]
    out = hl.empty([B, D], dtype=table.dtype)
    for b in hl.grid(B):
        acc = hl.zeros([D], dtype=hl.float32)
        for j in hl.grid(offsets[b], offsets[b + 1]):
            acc += table[j, :] * by[j] + ids[j].to(hl.float32)
        out[b, :] = acc
    return out


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (faded, "acc is not only added to, nor the greatest or least"),
        (prefixes, "there is a store in it"),
        (unlike, "what it indexes is not of one length"),
    ],
    ids=lambda v: getattr(v, "name", None),
)
def test_what_has_no_tiles(kernel, why):
    lowered = again(kernel).lower(*given(bag))
    with pytest.raises(Refused) as refusal:
        sum_tiles(Problem(lowered.ir, lowered.facts), "j", 8)
    assert refusal.value.refusal.what == f"j cannot have a block: {why}"
    assert "take the greatest or the least" in refusal.value.refusal.hint


def test_what_is_not_summed_has_several_turns():
    """A block of a loop that has no tiles is one of turns, and what says why not speaks of those."""
    arrays = given(bag)
    with pytest.raises(tile.PlanError, match="it does not begin at 0"):
        again(faded).lower(*arrays, config=BLOCK)
