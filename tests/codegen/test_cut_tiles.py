"""Moved tiles that are cut from their arrays with the rows that they have: results, text, refusals.

They run in Pallas's TPU interpreter: memory is NaN until it is written, an access outside of a
buffer raises, and copies that race are found.
"""

from __future__ import annotations

import inspect
import itertools
from dataclasses import replace
from functools import cache, partial

import jax
import ml_dtypes
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from examples.jagged.jagged_to_padded import jagged_to_padded
from examples.jagged.padded_to_jagged import padded_to_jagged
from tests.aot.written import compiled, needs_libtpu
from tests.codegen import flowing
from tests.interpreter import races_found
from tests.tiers import share
from tilelang.codegen.pallas.plan.estimate import seconds
from tilelang.codegen.pallas.plan.estimate.rank import judged
from tilelang.errors import PlanError

STRICT = flowing.strict()


@tile.kernel
def permuted(x, begins, order, ends):
    """Group j of the result is group order[j] of x."""
    out = hl.zeros_like(x)
    for j in hl.grid(order.shape[0]):
        for t in hl.tile(ends[j], ends[j + 1]):
            out[t, :] = x[begins[order[j]] - ends[j] + t.index, :]
    return out


@tile.kernel
def summed(x, y, begins, lengths):
    """Sums of rows that no tile begins with, behind what a step before left in memory."""
    out = hl.zeros([lengths.shape[0], x.shape[1]], dtype=hl.float32)
    for g in hl.grid(lengths.shape[0]):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(lengths[g], max_extent=40):
            acc = acc + (x[begins[g] + t.index, :] * y[t, :]).to(hl.float32).sum(0)
        out[g, :] = acc
    return out


@tile.kernel
def differences(x, offsets):
    """Two tiles of one array, and one of them where the other has no row."""
    out = hl.zeros_like(x)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            before = hl.where((t.index > offsets[g])[:, None], x[t.index - 1, :], 0)
            out[t, :] = x[t, :] - before
    return out


@tile.kernel
def parts(x, offsets):
    """Boxes of the last columns less the middle ones, where a row may begin anywhere."""
    G = offsets.shape[0] - 1
    out = hl.zeros([G, 48, x.shape[1] - 256], dtype=x.dtype)
    for g in hl.grid(G):
        for t in hl.tile(hl.minimum(offsets[g + 1] - offsets[g], 48), max_extent=48):
            at = offsets[g] + t.index
            out[g, t, :] = x[at, 256:] - x[at, 128 : x.shape[1] - 128]
    return out


@tile.kernel
def heads(x, offsets, H: hl.constexpr):
    """Boxes of the heads that lie side by side in rows."""
    G, M, D = offsets.shape[0] - 1, x.shape[0], x.shape[1] // H
    side_by_side = x.reshape(M, H, D)
    out = hl.zeros([G, H, 48, D], dtype=x.dtype)
    for g, h in hl.grid([G, H]):
        for t in hl.tile(hl.minimum(offsets[g + 1] - offsets[g], 48), max_extent=48):
            out[g, h, t, :] = side_by_side[offsets[g] + t.index, h, :]
    return out


@cache
def strict(kernel):
    return tile.kernel(inspect.unwrap(kernel), interpret=STRICT, checks=False)


def strictly(kernel, *arguments, block, **options):
    try:
        config = tile.Config({"t": block}, windows="cut", **options)
        found = strict(kernel)(*arguments, config=config)
        assert not races_found()
        return np.asarray(found).astype(np.float64)
    finally:  # memory and races are those of the whole process
        pltpu.reset_tpu_interpret_mode_state()


def rows(count, columns, dtype):
    drawn = np.random.default_rng(count).integers(-60, 60, (count, columns))
    return drawn.astype(dtype)


# Six groups each: one program.
LAYOUTS = (
    [0, 0, 0, 66, 66, 66, 66], [0, 0, 1, 34, 66, 66, 66], [0, 17, 17, 18, 49, 66, 66],
    [0, 31, 32, 33, 66, 66, 66],
)  # fmt: skip
TYPES = (np.float32, ml_dtypes.bfloat16, np.int8)


@pytest.mark.parametrize("dtype", TYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("columns", share([20, 130], 2))
def test_groups_in_another_order(dtype, columns):
    """66 rows are no whole register tiles of any of these types."""
    x = rows(66, columns, dtype)
    alone = [[0, 66]] if dtype is np.float32 else []
    for layout in (*LAYOUTS, *alone):
        begins = np.array(layout, np.int32)
        order = np.roll(np.arange(len(layout) - 1, dtype=np.int32)[::-1], 1)
        ends = np.r_[0, np.cumsum(np.diff(begins)[order])].astype(np.int32)
        exact = np.concatenate([x[begins[j] : begins[j + 1]] for j in order])
        found = strictly(permuted, x, begins, order, ends, block=32)
        np.testing.assert_array_equal(found, exact.astype(np.float64))


@pytest.mark.parametrize("dtype", TYPES[:2], ids=lambda d: np.dtype(d).name)
def test_what_no_copy_brought_is_never_added(dtype):
    x, y = rows(70, 20, dtype), rows(40, 20, dtype) % 3
    begins = np.array([3, 0, 69, 17, 30, 70], np.int32)
    lengths = np.array([39, 40, 1, 0, 33, 0], np.int32)
    found = strictly(summed, x, y, begins, lengths, block=16)
    pairs = zip(begins, lengths, strict=True)
    exact = [(x[b : b + n].astype(np.float64) * y[:n].astype(np.float64)).sum(0) for b, n in pairs]
    np.testing.assert_array_equal(found, exact)


def test_the_row_before_the_first_one_is_no_data():
    x, offsets = rows(66, 20, np.float32), np.array([0, 16, 17, 48, 66], np.int32)
    exact = x.copy()
    for begin, end in itertools.pairwise(offsets):
        exact[begin + 1 : end] -= x[begin : end - 1]
    np.testing.assert_array_equal(strictly(differences, x, offsets, block=16), exact)


def boxes(x, offsets):
    found = np.zeros((len(offsets) - 1, 48, x.shape[1]))
    for box, (begin, end) in zip(found, itertools.pairwise(offsets), strict=True):
        box[: min(end - begin, 48)] = x[begin : min(end, begin + 48)]
    return found


@pytest.mark.parametrize("dtype", TYPES[:2], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("columns", share([384, 320], 2, 1))
def test_of_rows_only_some_columns(dtype, columns):
    x = rows(66, columns, dtype) % 5
    for layout in LAYOUTS:
        whole = boxes(x, layout)
        exact = whole[..., 256:] - whole[..., 128 : columns - 128]
        found = strictly(parts, x, np.array(layout, np.int32), block=16)
        np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("dtype", TYPES[:2], ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("within", [("h",), ()])
def test_heads_side_by_side(dtype, within):
    """A step that runs all heads has them in one block, and moves the columns of each."""
    x = rows(66, 3 * 128, dtype)
    for layout in LAYOUTS[:2]:
        exact = boxes(x, layout).reshape(-1, 48, 3, 128).swapaxes(1, 2)
        found = strictly(heads, x, np.array(layout, np.int32), 3, block=16, within=within)
        np.testing.assert_array_equal(found, exact)


# ---------------------------------------------------------------- which kernels, and what they do

ROWS, GROUPS = 65536, 256
X, OFFSETS = tile.spec((ROWS, 512), "bfloat16"), tile.spec((GROUPS + 1,), "int32")
ORDER = tile.spec((GROUPS,), "int32")


def test_it_is_the_default_of_rows_that_lie_anywhere():
    text = permuted.source(X, OFFSETS, ORDER, OFFSETS, target="tpu:v6e")
    assert "(pl.BoundedSlice(272), 512)" in text and ")(x, out)" in text
    assert "x_first_of[n] = x_first" in text  # once, and not for every window and step around
    aligned = tile.Config(windows="aligned")
    assert ")(x, x, out)" in permuted.source(
        X, OFFSETS, ORDER, OFFSETS, target="tpu:v6e", config=aligned
    )


# Microseconds by schedules of libtpu 0.0.42.1, executed: of so many rows, with four in flight
SEEN = {"v6e": {128: 205.3, 256: 171.3, 512: 176.1}, "v5e": {128: 289.0, 256: 262.1, 512: 285.3}}


def ratios():
    """What is estimated, to what schedules take."""
    for chip, times in SEEN.items():
        for rows_of, us in times.items():
            config = tile.Config({"t": rows_of}, buffers=4)
            lowered = permuted.lower(
                X, OFFSETS, ORDER, OFFSETS, target=f"tpu:{chip}", config=config
            )
            yield judged(lowered.plan)[0].seconds * 1e6 / us


def test_the_estimate_is_what_schedules_take():
    assert all(0.85 < ratio < 1.1 for ratio in ratios())


def test_pipelines_that_never_wait_for_what_they_wrote_are_found(monkeypatch):
    piped = seconds._piped

    def landed(compute, copied, chip, ahead, lands):
        return piped(compute, copied, replace(chip, write=-1), ahead, lands)

    monkeypatch.setattr(seconds, "_piped", landed)
    assert all(ratio < 0.85 for ratio in ratios())


@pytest.mark.parametrize("target", ["tpu:v6e", "tpu:v5e", "tpu:v5p", "tpu:7x"])
def test_half_of_the_time_is_estimated_to_go(target):
    """Schedules take 0.57 to 0.65 of what two blocks a tile do."""

    def guessed(config):
        lowered = permuted.lower(X, OFFSETS, ORDER, OFFSETS, target=target, config=config)
        return judged(lowered.plan)[0].seconds

    assert guessed(None) < 0.75 * guessed(tile.Config({"t": 128}, windows="aligned", buffers=4))


def test_rows_that_are_ragged_on_one_side_move_with_their_boxes():
    boxes = tile.spec((128, 496, 512), "bfloat16")
    flat, offsets = tile.spec((32768, 512), "bfloat16"), tile.spec((129,), "int32")
    assert "move_rows(" in jagged_to_padded.source(flat, offsets, 496, target="tpu:v6e")
    assert "move_rows(" in padded_to_jagged.source(boxes, offsets, 32768, target="tpu:v6e")


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({}, {"windows": "cut"}),
        ({"interpret": True}, {"windows": "cut"}),
        ({"target": "tpu:v6e"}, {}),
        ({"target": "tpu:v6e"}, {"windows": "aligned"}),
    ],
    ids=str,
)
def test_a_call_on_a_cpu(options, asked):
    """Copies are as long as memory says: the usual interpreter has none such, for any target."""
    kernel = tile.kernel(inspect.unwrap(permuted), **options)
    x = rows(66, 128, np.float32)
    order, ends = np.array([1, 0], np.int32), np.array([0, 49, 66], np.int32)
    arguments = x, np.array([0, 17], np.int32), order, ends
    config = tile.Config({"t": 32}, **asked)
    assert ("rows_from(" in kernel.source(*arguments, config=config)) != ("aligned" in str(asked))
    exact = np.concatenate([x[17:], x[:17]])
    for call in (partial(kernel, config=config), jax.jit(partial(kernel, config=config))):
        np.testing.assert_array_equal(call(*arguments), exact)


@needs_libtpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("columns", [384, 320])
def test_some_columns_compile(dtype, columns):
    """Of 320 columns the middle ones end inside of a register, and are moved as whole blocks."""
    x, offsets = tile.spec((4096, columns), dtype), tile.spec((33,), "int32")
    assert compiled(parts, x, offsets, target="tpu:v5e")
    text = parts.source(x, offsets, target="tpu:v5e")
    assert ("x_ref.at[:, 128:256]" in text) == (columns == 384)
    assert compiled(heads, x, offsets, columns // 64, target="tpu:v6e")
    config = tile.Config({"t": 48}, within=("h",))
    assert compiled(heads, x, offsets, columns // 64, target="tpu:v6e", config=config)


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize("chip", ["v4", "v5e", "v5p", "v6e", "7x"])
@pytest.mark.parametrize(("dtype", "count"), [("bfloat16", 770), ("int8", 1030), ("float32", 401)])
def test_every_generation_compiles_it(chip, dtype, count):
    """The last register tile has fewer rows than others of its type, in memory too."""
    x, offsets, order = (tile.spec(s, d) for s, d in (
        ((count, 140), dtype), ((7,), "int32"), ((6,), "int32")
    ))  # fmt: skip
    config = tile.Config({"t": 64}, windows="cut")
    arguments, asked = (x, offsets, order, offsets), {"target": f"tpu:{chip}", "config": config}
    assert "pl.BoundedSlice(" in permuted.source(*arguments, **asked)
    assert compiled(permuted, *arguments, **asked)


@tile.kernel
def copied(x, offsets):
    out = hl.zeros_like(x)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            out[t, :] = x[t, :]
    return out


@pytest.mark.parametrize(
    ("kernel", "arguments", "config"),
    [
        (copied, (X, OFFSETS), {}),
        (permuted, (X, OFFSETS, ORDER, OFFSETS), {"loop_type": "worklist"}),
        (permuted, (X, OFFSETS, ORDER, OFFSETS), {"steps": "rectangle"}),
    ],
)
def test_it_is_refused_where_nothing_is_cut(kernel, arguments, config):
    with pytest.raises(PlanError) as refused:
        kernel.lower(*arguments, target="tpu:v6e", config=tile.Config(windows="cut", **config))
    assert refused.value.what == (
        f"windows='cut', but {kernel.__name__} reads no rows of a matrix at other positions than "
        "those of its tiles, in a pipeline over a table of steps"
    )
    assert refused.value.hint == "leave windows out, or steps and loop_type"
