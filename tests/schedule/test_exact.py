"""Blocks that begin where a range does: the same results, fewer steps, and exact refusals.

They run in Pallas's TPU interpreter, where memory is NaN until it is written and an access outside
of an array raises.  tests/interpreter.py runs them with races looked for.
"""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged import jagged_attention, varlen_attention
from tests import checks
from tests.frameworks import from_jax
from tests.ragged import Layout, Space, every_stratum, wild_offsets
from tests.subjects import JAGGED
from tests.tiers import HALF, share
from tilelang.errors import PlanError

SPACE = Space(rows=56, groups=4, block=16)
VARLEN = next(s for s in JAGGED if s.name == "varlen_attention")
EXACT = tile.Config({"tq": 16, "tk": 16}, windows="exact")


def call(*arguments):
    return from_jax(VARLEN.kernel, arguments, config=EXACT)


def arrays(dtype="float32"):
    return VARLEN.arrays(dtype, rows=SPACE.rows, groups=SPACE.groups)


@pytest.mark.parametrize("dtype", share(["bfloat16", "float32"], 3, 2, HALF))
def test_every_kind_of_layout(dtype):
    layouts = every_stratum(SPACE)[:: 1 if dtype == "float32" else 3]

    assert checks.every_layout(VARLEN, call, arrays(dtype), layouts, dtype) == []


@pytest.mark.slow
def test_neighbours_are_never_seen():
    layout = Layout("middle", np.array([2, 19, 19, 40, 51], np.int32))
    assert checks.neighbours(VARLEN, call, arrays(), [layout]) == []


@pytest.mark.slow
def test_without_checks_nothing_outside_of_an_array_is_touched():
    """The interpreter raises if something is; groups that are legal keep their results."""
    kernel = tile.kernel(inspect.unwrap(varlen_attention.varlen_attention), checks=False)

    def unchecked(*arguments):
        return from_jax(kernel, arguments, config=EXACT)

    for name, offsets in wild_offsets(SPACE).items():
        assert checks.unchecked(VARLEN, unchecked, arrays(), offsets) == [], name


def test_no_rows_and_no_groups():
    for rows, groups in ((0, 3), (56, 0), (0, 0)):
        made = VARLEN.arrays("float32", rows=rows, groups=groups)
        result = call(*made, np.zeros(groups + 1, np.int32), *VARLEN.static)
        assert result.shape == made[0].shape and not result.any()


@tile.kernel
def cross(q, k, v, q_offsets, k_offsets):
    """Each batch has queries and keys of its own number; without keys the result is 7."""
    T, H, D = q.shape
    out = hl.zeros([T, H, D], dtype=q.dtype)
    for h, b in hl.grid([H, q_offsets.shape[0] - 1]):
        for tq in hl.tile(q_offsets[b], q_offsets[b + 1]):
            acc = hl.full([tq, D], 7.0, dtype=hl.float32)
            for tk in hl.tile(k_offsets[b], k_offsets[b + 1]):
                p = hl.tanh(hl.dot(q[tq, h, :], k[tk, h, :].T))
                acc = hl.dot(p, v[tk, h, :], acc=acc)
            out[tq, h, :] = acc
    return out


def crossed(q, k, v, q_offsets, k_offsets):
    out = np.zeros(q.shape)
    for b in range(len(q_offsets) - 1):
        mine, keys = slice(*q_offsets[b : b + 2]), slice(*k_offsets[b : b + 2])
        p = np.tanh(np.einsum("qhd,khd->hqk", q[mine].astype(np.float64), k[keys]))
        out[mine] = 7 + np.einsum("hqk,khd->qhd", p, v[keys])
    return out


@pytest.mark.parametrize(
    ("q_offsets", "k_offsets"),
    [
        ([0, 20, 20, 50], [0, 0, 30, 30]),  # no keys, no queries, no keys behind the last row
        ([3, 4, 33, 50], [30, 30, 30, 30]),  # no keys at all, at the end of the array
        ([0, 0, 0, 0], [0, 10, 20, 30]),
        ([0, 16, 32, 50], [0, 17, 29, 30]),
    ],
    ids=str,
)
def test_a_range_may_be_empty_where_another_is_not(q_offsets, k_offsets):
    rng = np.random.default_rng(0)
    q = rng.standard_normal((50, 2, 8), np.float32)
    k, v = rng.standard_normal((2, 30, 2, 8), np.float32)
    cuts = np.array(q_offsets, np.int32), np.array(k_offsets, np.int32)
    result = cross(q, k, v, *cuts, config=tile.Config({"tq": 16, "tk": 16}, windows="exact"))
    np.testing.assert_allclose(np.asarray(result), crossed(q, k, v, *cuts), atol=1e-4)


@tile.kernel
def positions(x, offsets):
    """What a tile says of itself: where it is in its group, and in how many tiles."""
    T, H, D = x.shape
    y = hl.zeros([T, H, D], dtype=hl.float32)
    for h, g in hl.grid([H, offsets.shape[0] - 1]):
        for tm in hl.tile(offsets[g], offsets[g + 1], block_size=16):
            inside = (tm.index - offsets[g]).to(hl.float32)
            y[tm, h, :] = x[tm, h, :] * 0 + inside[:, None] + (tm.end - tm.begin) * 1000
    return y


def test_a_tile_begins_with_its_range():
    x, offsets = np.ones((50, 2, 8), np.float32), np.array([3, 7, 44], np.int32)
    result = positions(x, offsets, config=tile.Config(windows="exact"))
    exact = np.zeros(50)
    exact[3:7] = np.arange(4) + 4000
    inside = np.arange(37)
    exact[7:44] = inside + 1000 * np.where(inside < 32, 16, 5)
    np.testing.assert_array_equal(
        np.asarray(result), np.broadcast_to(exact[:, None, None], x.shape)
    )


def test_ranges_of_a_blocks_length_are_one_tile():
    """Of aligned blocks each range touches two, which nobody has asked for."""
    x, offsets = np.ones((58, 2, 8), np.float32), np.array([10, 26, 42, 58], np.int32) - 4
    result = positions(x, offsets, config=tile.Config(windows="exact"))
    assert set(np.unique(np.asarray(result)[6:54] // 1000)) == {16}
    with pytest.raises(PlanError, match="which rows are in a tile of tm"):
        positions(x, offsets, config=tile.Config(windows="aligned"))


def test_the_source_says_where_tiles_begin():
    args = varlen_attention.CASES[4]
    text = varlen_attention.varlen_attention.source(
        *args, target="tpu:v6e", config=tile.Config(windows="exact")
    )
    assert "blocks of 256 from where its range begins" in text
    assert "pl.BlockSpec((pl.BoundedSlice(256), 16, 128), lambda n: (tk_rows(n), 0, 0))" in text
    assert not re.search(r"multiple_of|first step at this block", text)


# ---------------------------------------------------------------- refusals


@tile.kernel
def scaled(x):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for tm in hl.tile(x.shape[0]):
        y[tm, :, :] = x[tm, :, :] * 2.0
    return y


@tile.kernel
def partly(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm, :, :4] = x[tm, :, :4]
    return y


@tile.kernel
def shared(x, begins, ends):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(begins.shape[0]):
        for tm in hl.tile(begins[g], ends[g], max_extent=64):
            y[tm, :, :] = x[tm, :, :]
    return y


TOKENS = tile.spec((64, 4, 8), "float32")
OFFSETS = tile.spec((5,), "int32")
HEADS_FIRST = jagged_attention.CASES[0]

REFUSED = {
    "nothing ragged": (
        scaled,
        (TOKENS,),
        {},
        "windows='exact', but no tiles of scaled have a range that is read from memory",
        "leave windows out",
    ),
    "rectangle": (
        positions,
        (TOKENS, OFFSETS),
        {"steps": "rectangle"},
        "windows='exact' needs a pipeline over a table of steps, not steps='rectangle'",
        "leave loop_type and steps out",
    ),
    "worklist": (
        positions,
        (TOKENS, OFFSETS),
        {"loop_type": "worklist"},
        "windows='exact' needs a pipeline over a table of steps, not loop_type='worklist'",
        "leave loop_type and steps out",
    ),
    "heads first": (
        jagged_attention.jagged_attention,
        HEADS_FIRST,
        {"loop_type": "outer_pipeline"},
        "windows='exact', but tq indexes one of the last two dimensions of q, where a block cannot "
        "begin at any position",
        "leave windows out, or put the ragged dimension first and two others behind it",
    ),
    "part of a block": (
        partly,
        (TOKENS, OFFSETS),
        {"loop_type": "outer_pipeline"},
        "windows='exact', but only part of a block of y is stored",
        "leave windows out",
    ),
    "ranges that may overlap": (
        shared,
        (TOKENS, tile.spec((4,), "int32"), tile.spec((4,), "int32")),
        {"loop_type": "outer_pipeline"},
        "blocks of y would be visited again after other blocks: iterations of g share them, and "
        "their ranges may overlap",
        "use ranges [offsets[g], offsets[g + 1]) of one sorted tensor, index the output by g, or "
        "use loop_type='fori_loop'",
    ),
    "two lengths": (
        cross,
        (TOKENS, TOKENS, tile.spec((32, 4, 8), "float32"), OFFSETS, OFFSETS),
        {"loop_type": "outer_pipeline"},
        "windows='exact', but tk indexes dimensions of 2 lengths",
        "leave windows out",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name):
    kernel, args, fields, what, hint = REFUSED[name]
    with pytest.raises(PlanError) as caught:
        kernel.lower(*args, config=tile.Config(windows="exact", **fields), target="tpu:v6e")
    assert (caught.value.what, caught.value.hint) == (what, hint)
    assert caught.value.loc is not None
