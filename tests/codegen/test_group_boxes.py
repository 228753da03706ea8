"""Rows that steps move between tiles and boxes, many groups at a time: who may, what they hold."""

from __future__ import annotations

from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from benchmarks.matches import MATCHES
from examples.jagged.jagged_dense_add import jagged_dense_add
from examples.jagged.jagged_to_padded import jagged_to_padded, oracle
from examples.jagged.padded_to_jagged import oracle as back
from examples.jagged.padded_to_jagged import padded_to_jagged
from tests import checks
from tests.planted import trial
from tests.ragged import wild_offsets
from tests.tiers import share

BOXES = ("jagged_to_padded", "padded_to_jagged")
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "int8": np.int8}
CONFIG = tile.Config({"b": 4, "t": 32})
COLUMNS, LONGEST, ROWS = 136, 44, 180
# Lengths: short, empty, one row, longer than a box; begins are anything modulo 32.
LENGTHS = (
    (7, 0, 1, 50, 17, 16, 31, 33, 5),
    (0, 0, 0, 180, 0, 0, 0, 0, 0),
    (3, 13, 15, 9, 21, 27, 1, 1, 90),
    (32, 32, 32, 32, 32, 0, 0, 0, 0),
    (1, 0, 1, 0, 1, 0, 1, 0, 1),
)


def offsets_of(lengths: tuple[int, ...], first: int) -> np.ndarray:
    return np.minimum(np.cumsum([first, *lengths]), ROWS).astype(np.int32)


def numbers(shape: tuple[int, ...], dtype: str, seed: int) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(shape) * 40).astype(DTYPES[dtype])


def spoiled(array: np.ndarray, own: np.ndarray) -> np.ndarray:
    """NaN, or the largest number, where nobody's rows are."""
    filler = 127 if array.dtype == np.int8 else np.nan
    return np.where(own[..., None], array, np.array(filler, array.dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_go_to_boxes_from_wherever_they_begin(dtype):
    for place, lengths in enumerate(LENGTHS):
        offsets, row = offsets_of(lengths, place), np.arange(ROWS)
        x = numbers((ROWS, COLUMNS), dtype, place)
        own = (row >= offsets[0]) & (row < offsets[-1])
        found = np.asarray(jagged_to_padded(spoiled(x, own), offsets, LONGEST, config=CONFIG))
        exact = oracle(x, offsets, LONGEST).astype(found.dtype)
        np.testing.assert_array_equal(found, exact, str(offsets))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_come_back_from_boxes_to_wherever_they_begin(dtype):
    for place, lengths in enumerate(LENGTHS):
        offsets = offsets_of(lengths, place)
        d = numbers((len(lengths), LONGEST, COLUMNS), dtype, place)
        own = np.arange(LONGEST) < np.diff(offsets)[:, None]
        found = np.asarray(padded_to_jagged(spoiled(d, own), offsets, ROWS, config=CONFIG))
        exact = back(d, offsets, ROWS).astype(found.dtype)
        np.testing.assert_array_equal(found, exact, str(offsets))


# Of rows that lie in one of 32 bits: what no test of float32 sees.
PACKED = (
    ("rows of a pair change places", "bits == 0", "bits > 0"),
    (
        "the first row of every word alone",
        "bits = jnp.full_like(rows, jax",
        "bits = 0 * jnp.full_like(rows, jax",
    ),
    ("the word behind is the same", "jax.lax.div(far, each) + 1,", "jax.lax.div(far, each),"),
    ("the sign of a number goes on", "shift_right_logical", "shift_right_arithmetic"),
)


@pytest.mark.parametrize("dtype", share(["bfloat16", "int8"], 2))
@pytest.mark.parametrize("planted", PACKED, ids=lambda p: p[0])
def test_a_bug_with_packed_rows_is_caught(planted, dtype):
    _, old, new = planted
    offsets = offsets_of(LENGTHS[0], 3)
    x = numbers((ROWS, COLUMNS), dtype, 0)
    lowered = jagged_to_padded.lower(x, offsets, LONGEST, config=CONFIG)
    text, exact = lowered.source.text, oracle(x, offsets, LONGEST).astype(x.dtype)
    right, wrong = (trial.runnable(lowered, t) for t in (text, text.replace(old, new)))
    assert np.array_equal(np.asarray(right(x, offsets, LONGEST)), exact)
    assert not np.array_equal(np.asarray(wrong(x, offsets, LONGEST)), exact)


@pytest.mark.parametrize("name", BOXES)
def test_wild_offsets_harm_no_other_group(name):
    lowered = trial.printed(name, "groups")
    call = trial.runnable(lowered, lowered.source.text)
    subject, arrays = trial.named(name), trial.arrays_of(name)
    every = wild_offsets(trial.SPACE).items()
    assert [n for n, cuts in every if checks.unchecked(subject, call, arrays, cuts)] == []


@pytest.mark.parametrize(
    "form",
    [{"loop_type": "worklist"}, {"steps": "rectangle"}, {"loop_type": "fori_loop"}, {"buffers": 3}],
    ids=str,
)
@pytest.mark.parametrize("name", BOXES)
def test_other_forms_are_right_or_refused(name, form):
    subject = trial.named(name)
    config = tile.Config(subject.blocks_in("groups"), **form)
    arrays = trial.arrays_of(name)

    def call(*arguments):
        return subject.kernel(*arguments, config=config)

    try:
        assert checks.every_layout(subject, call, arrays, trial.CROWDED[:2], "float32") == []
    except tile.PlanError as refused:
        assert refused.what


# ---------------------------------------------------------------- written in other ways


@tile.kernel
def boxed(x, offsets, L: hl.constexpr):
    """The same boxes, of ranges of x; rows behind a box are dropped."""
    B = offsets.shape[0] - 1
    out = hl.full([B, L, x.shape[1]], -1.0, dtype=x.dtype)
    for b in hl.grid(B):
        for t in hl.tile(offsets[b], offsets[b + 1], max_extent=L):
            out[b, t.index - offsets[b], :] = x[t, :]
    return out


@tile.kernel
def halves(x, offsets, L: hl.constexpr):
    """Boxes of the first rows of each group, 22 of them at most."""
    B = offsets.shape[0] - 1
    out = hl.zeros([B, L, x.shape[1]], dtype=x.dtype)
    for b in hl.grid(B):
        begin = offsets[b]
        for t in hl.tile(hl.minimum(offsets[b + 1] - begin, 22)):
            out[b, t, :] = x[begin + t.index, :]
    return out


@tile.kernel
def doubled(x, offsets, L: hl.constexpr):
    """Boxes of twice the rows."""
    B = offsets.shape[0] - 1
    out = hl.zeros([B, L, x.shape[1]], dtype=x.dtype)
    for b in hl.grid(B):
        begin = offsets[b]
        for t in hl.tile(hl.minimum(offsets[b + 1] - begin, L)):
            out[b, t, :] = x[begin + t.index, :] * 2
    return out


@tile.kernel
def next_rows(x, offsets, L: hl.constexpr):
    """Boxes of the rows that follow each."""
    B = offsets.shape[0] - 1
    out = hl.zeros([B, L, x.shape[1]], dtype=x.dtype)
    for b in hl.grid(B):
        begin = offsets[b]
        for t in hl.tile(hl.minimum(offsets[b + 1] - begin, L)):
            out[b, t, :] = x[begin + t.index + 1, :]
    return out


@tile.kernel
def always_three(x, offsets, L: hl.constexpr):
    """Boxes of three rows, whoever has them."""
    B = offsets.shape[0] - 1
    out = hl.zeros([B, L, x.shape[1]], dtype=x.dtype)
    for b in hl.grid(B):
        begin = offsets[b]
        for t in hl.tile(begin, begin + 3):
            out[b, t.index - begin, :] = x[t, :]
    return out


def boxes(x: np.ndarray, offsets: np.ndarray, most: int, fill: float) -> np.ndarray:
    out = np.full((len(offsets) - 1, LONGEST, x.shape[1]), fill, x.dtype)
    for b, (begin, end) in enumerate(pairwise(offsets)):
        rows = x[begin : min(end, begin + most)]
        out[b, : len(rows)] = rows
    return out


@pytest.mark.parametrize(
    ("kernel", "most", "fill"), [(boxed, LONGEST, -1.0), (halves, LONGEST // 2, 0.0)], ids=str
)
@pytest.mark.parametrize("kind", [np.int32, np.int64])
def test_other_ways_to_write_it(kernel, most, fill, kind):
    offsets = offsets_of((7, 0, 1, 44, 17, 16, 31, 33, 5), 3).astype(kind)
    x = numbers((ROWS, COLUMNS), "float32", 1)
    text = kernel.source(x, offsets, LONGEST, config=CONFIG)
    assert "move_rows(" in text
    found = np.asarray(kernel(x, offsets, LONGEST, config=CONFIG))
    np.testing.assert_array_equal(found, boxes(x, offsets, most, fill))


# ---------------------------------------------------------------- the default, and what is refused


@pytest.mark.parametrize(
    ("name", "blocks"),
    [
        ("jagged_to_padded, groups of 256 rows", {"b": 4, "t": 2048}),
        ("padded_to_jagged, groups of 256 rows", {"b": 4, "t": 2048}),
        ("jagged_to_padded, groups of 16 rows", {"b": 64, "t": 2048}),
        ("padded_to_jagged, groups of 16 rows", {"b": 64, "t": 2048}),
    ],
)
def test_short_groups_are_moved_together_by_default(name, blocks):
    case = MATCHES[name].case
    lowered = case.kernel.lower(*case.arguments, target="tpu:v6e")
    assert dict(lowered.config.blocks) == blocks
    again = case.kernel.lower(*case.arguments, target="tpu:v6e", config=lowered.config)
    assert again.source.text == lowered.source.text
    assert "b one by one: " in case.kernel.explain(*case.arguments, target="tpu:v6e")


def test_boxes_that_are_mostly_padding_are_not_read_whole():
    arguments = tile.spec((512, 1024, 512), "bfloat16"), tile.spec((513,), "int32"), 131072
    lowered = padded_to_jagged.lower(*arguments, target="tpu:v5e")
    assert "b" not in dict(lowered.config.blocks)


SPECS = tile.spec((256, 128), "float32"), tile.spec((33,), "int32"), 16


@pytest.mark.parametrize(
    ("kernel", "arguments", "why"),
    [
        (doubled, SPECS, "what t stores is more than rows of another array"),
        (next_rows, SPECS, "the rows of t do not begin at T[b]"),
        (always_three, SPECS, "the rows of t may go on behind T[b + 1]"),
        (jagged_to_padded, (tile.spec((256, 128), "bool"), *SPECS[1:]), "rows of bool become bool"),
    ],
    ids=lambda v: getattr(v, "name", None),
)
def test_why_groups_cannot_have_blocks(kernel, arguments, why):
    with pytest.raises(tile.PlanError) as refused:
        kernel.lower(*arguments, target="tpu:v6e", config=tile.Config({"b": 8}))
    assert refused.value.what == f"b cannot have a block: {why}"
    assert refused.value.loc is not None


def test_rows_that_are_added_are_not_only_copied():
    arguments = (*SPECS[:1], tile.spec((32, 16, 128), "float32"), SPECS[1])
    with pytest.raises(tile.PlanError, match="what tm stores is more than rows"):
        jagged_dense_add.lower(*arguments, config=tile.Config({"g": 8}))


def test_few_rows_of_narrow_types_are_moved_one_group_at_a_time():
    arguments = tile.spec((256, 128), "bfloat16"), SPECS[1], 7
    with pytest.raises(tile.PlanError) as refused:
        jagged_to_padded.lower(*arguments, config=tile.Config({"b": 8, "t": 32}))
    what = "out has so few rows of bfloat16 that no copy takes a block of them"
    assert refused.value.what == what
    lowered = jagged_to_padded.lower(*arguments, target="tpu:v6e")
    assert "b" not in dict(lowered.config.blocks)


def test_blocks_of_rows_have_whole_register_tiles():
    with pytest.raises(tile.PlanError) as refused:
        jagged_to_padded.lower(*SPECS, config=tile.Config({"b": 8, "t": 12}))
    assert refused.value.what == "a block of 12 rows of x has no whole register tiles"


@tile.kernel
def short_boxes(x, offsets, L: hl.constexpr, most: hl.constexpr):
    """Boxes of L rows take no more than `most`: L is as many as x has, or less."""
    out = hl.zeros([offsets.shape[0] - 1, L, x.shape[1]], dtype=x.dtype)
    for b in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(hl.minimum(offsets[b + 1] - offsets[b], most)):
            out[b, t, :] = x[offsets[b] + t.index, :]
    return out


@pytest.mark.parametrize("rows", [7, 16])
def test_boxes_as_long_as_the_array_that_a_range_might_leave(rows):
    """What was found of tiles of a box was taken for what holds of the array's tiles."""
    x = np.arange(rows * 8, dtype=np.float32).reshape(rows, 8)
    offsets = np.array([0, 2, 2, rows], np.int32)
    found = short_boxes(x, offsets, rows, 16, config=tile.Config({"b": 2, "t": 16}))
    np.testing.assert_array_equal(found, short_boxes.reference(x, offsets, rows, 16))
