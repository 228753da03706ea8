"""Tiles that lie at another position of some array than where tiles are cut: results, and errors.

Every kernel is compared with NumPy on ragged layouts of every kind, in every form that it has.
"""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged.jagged_to_padded import jagged_to_padded
from tests.aot.written import compiled, needs_libtpu
from tests.ragged import Space, every_stratum
from tests.subjects import HAS_TORCH
from tests.tiers import share
from tilelang.errors import PlanError

T, F, G = 72, 20, 5
SPACE = Space(rows=T, groups=G, block=16)
FORMS = ({}, {"steps": "rectangle"}, {"loop_type": "worklist"}, {"loop_type": "fori_loop"})
each_form = pytest.mark.parametrize("form", FORMS, ids=str)


def drawn(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(dtype)


def groups(offsets):
    return enumerate(itertools.pairwise(offsets.tolist()))


def boxes(x, offsets, longest):
    out = np.zeros((G, longest, *x.shape[1:]), np.float64)
    for g, (begin, end) in groups(offsets):
        end = min(end, begin + longest)
        out[g, : end - begin] = x[begin:end]
    return out


def same(kernel, arguments, exact, form, blocks):
    result = np.asarray(kernel(*arguments, config=tile.Config(blocks, **form)))
    np.testing.assert_array_equal(result.astype(np.float64), exact)


# ---------------------------------------------------------------- into boxes


@tile.kernel
def vectors(x, offsets, longest: hl.constexpr):
    """One dimension: tiles are turned along the lanes."""
    out = hl.zeros([offsets.shape[0] - 1, longest], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        begin, end = offsets[g], offsets[g + 1]
        for t in hl.tile(hl.minimum(end - begin, longest)):
            out[g, t] = x[begin + t.index]
    return out


@tile.kernel
def matrices(x, offsets, longest: hl.constexpr):
    """Three dimensions: tiles are turned along the first one."""
    out = hl.zeros([offsets.shape[0] - 1, longest, *x.shape[1:]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        begin, end = offsets[g], offsets[g + 1]
        for t in hl.tile(hl.minimum(end - begin, longest)):
            out[g, t, :, :] = x[begin + t.index, :, :]
    return out


@tile.kernel
def heads(x, offsets, longest: hl.constexpr):
    """[tokens, heads, width]: a head's rows are turned after the block of all heads was."""
    out = hl.zeros([offsets.shape[0] - 1, x.shape[1], longest, x.shape[2]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        begin, end = offsets[g], offsets[g + 1]
        for h in hl.grid(x.shape[1]):
            for t in hl.tile(hl.minimum(end - begin, longest)):
                out[g, h, t, :] = x[begin + t.index, h, :]
    return out


@tile.kernel
def masked(x, offsets, longest: hl.constexpr):
    """A static tile of which the author masks what lies behind a group, or behind the array."""
    out = hl.empty([offsets.shape[0] - 1, longest, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        begin = offsets[g]
        for t in hl.tile(longest):
            own = begin + t.index < offsets[g + 1]
            out[g, t, :] = hl.load(x, [begin + t.index, slice(None)], mask=own[:, None])
    return out


@pytest.mark.parametrize("longest", [1, 16, 45, 100])
@each_form
def test_boxes_of_vectors(form, longest):
    x = drawn(T)
    for layout in every_stratum(SPACE):
        arguments = (x, layout.offsets, longest)
        same(vectors, arguments, boxes(x, layout.offsets, longest), form, {"t": 16})


@each_form
def test_boxes_of_matrices(form):
    x = drawn(T, 3, F)
    for layout in every_stratum(SPACE):
        same(matrices, (x, layout.offsets, 45), boxes(x, layout.offsets, 45), form, {"t": 16})


@pytest.mark.parametrize("within", share([(), ("h",)], 2, 1))
@each_form
def test_boxes_of_heads(form, within):
    x = drawn(T, 4, F)
    for layout in every_stratum(SPACE):
        exact = boxes(x, layout.offsets, 45).transpose(0, 2, 1, 3)
        same(heads, (x, layout.offsets, 45), exact, form | {"within": within}, {"t": 16})


@pytest.mark.parametrize("longest", [1, 45, 200])
@pytest.mark.parametrize("form", [{}, {"loop_type": "fori_loop"}], ids=str)
def test_masks_of_the_author(form, longest):
    x = drawn(T, F)
    for layout in every_stratum(SPACE):
        arguments = (x, layout.offsets, longest)
        same(masked, arguments, boxes(x, layout.offsets, longest), form, {"t": 16})


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "int32", "float16"])
def test_narrow_types(dtype):
    x = drawn(T, F).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    for layout in every_stratum(SPACE):
        same(masked, (x, layout.offsets, 45), boxes(x, layout.offsets, 45), {}, {"t": 16})


@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float32"])
@pytest.mark.parametrize("rows", [1, 2, 3, 7])
def test_arrays_of_few_rows(rows, dtype):
    """Of narrow types they are padded for the compiler: with NaN, which must not be seen."""
    x = drawn(rows, F).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    for layout in every_stratum(Space(rows=rows, groups=G, block=16)):
        arguments = (x, layout.offsets, 45)
        same(jagged_to_padded, arguments, boxes(x, layout.offsets, 45), {}, {"t": 16})
    config = tile.Config(loop_type="outer_pipeline")  # as a whole they need no rows more
    text = jagged_to_padded.lower(*arguments, target="tpu:v6e", config=config).source.text
    always = f"\n    x = jnp.pad(x, ((0, {8 - rows})"  # not for the interpreter alone
    assert (always in text) == (dtype != "float32" and rows <= 4)  # up to there tiles are smaller


@needs_libtpu
@pytest.mark.parametrize("dtype", ["bfloat16", "int8", "float32"])
@pytest.mark.parametrize("rows", [1, 3, 4, 5, 7, 200])
def test_few_rows_compile(rows, dtype):
    x, offsets = tile.spec((rows, 128), dtype), tile.spec((G + 1,), "int32")
    assert compiled(jagged_to_padded, x, offsets, 45, target="tpu:v5e")


# ---------------------------------------------------------------- and summed


@tile.kernel
def weights(x, d, offsets):
    """The product of a group's rows of x, turned, with the rows of its box."""
    G, L, N = d.shape
    out = hl.zeros([G, x.shape[1], N], dtype=hl.float32)
    for g in hl.grid(G):
        begin, end = offsets[g], offsets[g + 1]
        acc = hl.zeros([x.shape[1], N], dtype=hl.float32)
        for t in hl.tile(hl.minimum(end - begin, L)):
            acc = hl.dot(x[begin + t.index, :].T, d[g, t, :], acc=acc)
        out[g, :, :] = acc
    return out


@tile.kernel
def biased(q, k, bias, offsets):
    """Scores with a bias for every position of a sequence, times k: nothing is normalised."""
    out = hl.zeros(q.shape, dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        begin, end = offsets[g], offsets[g + 1]
        for tq in hl.tile(begin, end):
            acc = hl.zeros([tq, q.shape[1]], dtype=hl.float32)
            for tk in hl.tile(begin, end):
                s = hl.dot(q[tq, :], k[tk, :].T) + bias[tk.index - begin][None, :]
                acc = hl.dot(s, k[tk, :], acc=acc)
            out[tq, :] = acc
    return out


ALL_FORMS = (*FORMS, {"loop_type": "emit_pipeline"})


@pytest.mark.parametrize("form", ALL_FORMS, ids=str)
def test_products_along_a_moved_tile(form):
    x, d = drawn(T, F), drawn(G, 45, 8, seed=1)
    for layout in every_stratum(SPACE):
        exact = np.zeros((G, F, 8))
        for g, (begin, end) in groups(layout.offsets):
            end = min(end, begin + 45)
            exact[g] = x[begin:end].T.astype(np.float64) @ d[g, : end - begin]
        same(weights, (x, d, layout.offsets), exact, form, {"t": 16})


@pytest.mark.parametrize("form", ALL_FORMS, ids=str)
def test_a_bias_by_position(form):
    q, k, bias = drawn(T, F), drawn(T, F, seed=1), drawn(T, seed=2)
    for layout in every_stratum(SPACE):
        exact = np.zeros((T, F))
        for _, (begin, end) in groups(layout.offsets):
            rows = k[begin:end].astype(np.float64)
            exact[begin:end] = (q[begin:end] @ rows.T + bias[: end - begin]) @ rows
        same(biased, (q, k, bias, layout.offsets), exact, form, {"tq": 16, "tk": 16})


@tile.kernel
def twice(x, d, offsets):
    """Loops in a row, each with a moved tile: the largest entry of a group, then what is left."""
    G, L, N = d.shape
    out = hl.zeros([x.shape[0], N], dtype=x.dtype)
    for g in hl.grid(G):
        begin, end = offsets[g], offsets[g + 1]
        most = hl.full([N], -100.0, dtype=hl.float32)
        for t in hl.tile(begin, hl.minimum(end, begin + L)):
            most = hl.maximum(most, (x[t, :] + d[g, t.index - begin, :]).amax(0))
        for s in hl.tile(begin, hl.minimum(end, begin + L)):
            out[s, :] = x[s, :] + d[g, s.index - begin, :] - most[None, :]
    return out


@each_form
def test_loops_in_a_row(form):
    x, d = drawn(T, F), drawn(G, 45, F, seed=1)
    for layout in every_stratum(SPACE):
        exact = np.zeros((T, F))
        for g, (begin, end) in groups(layout.offsets):
            end = min(end, begin + 45)
            if begin < end:
                total = x[begin:end] + d[g, : end - begin]
                exact[begin:end] = total - total.max(0)
        same(twice, (x, d, layout.offsets), exact, form, {"t": 16, "s": 16})


# ---------------------------------------------------------------- by a fixed distance


@tile.kernel
def stencil(x):
    """The row before, twice the row itself, and the row behind; zeros outside."""
    out = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        i = t.index
        before = hl.load(x, [i - 1, slice(None)], mask=(i > 0)[:, None])
        behind = hl.load(x, [i + 1, slice(None)], mask=(i < x.shape[0] - 1)[:, None])
        out[t, :] = before + 2 * x[t, :] + behind
    return out


@tile.kernel
def differences(x, by: hl.constexpr):
    """x[i + by] - x[i] of a vector."""
    out = hl.empty([x.shape[0] - by], dtype=x.dtype)
    for t in hl.tile(x.shape[0] - by):
        out[t] = x[t.index + by] - x[t.index]
    return out


@pytest.mark.parametrize("rows", [1, 16, 33, 64])
@pytest.mark.parametrize("form", [{}, {"loop_type": "fori_loop"}], ids=str)
def test_neighbours(form, rows):
    x = drawn(rows, F)
    wide = np.pad(x, ((1, 1), (0, 0)))
    same(stencil, (x,), wide[:-2] + 2 * wide[1:-1] + wide[2:], form, {"t": 16})


@pytest.mark.parametrize("by", [1, 15, 16, 17, 128, 200])
@pytest.mark.parametrize("target", ["cpu", "tpu:v6e"])
def test_differences(by, target):
    x = drawn(300)
    lowered = differences.lower(x, by, target=target, config=tile.Config({"t": 128}))
    import jax.numpy as jnp

    run = lowered.source.load()
    result = np.asarray(run(jnp.asarray(x), interpret=True))
    np.testing.assert_array_equal(result, x[by:] - x[:-by])


# ---------------------------------------------------------------- refusals


@tile.kernel
def corners(x):
    out = hl.empty([x.shape[0] - 1, x.shape[1] - 1], dtype=x.dtype)
    for ti, tj in hl.tile([x.shape[0] - 1, x.shape[1] - 1]):
        out[ti, tj] = x[ti.index + 1, tj.index + 1] - x[ti.index, tj.index]
    return out


@tile.kernel
def two_outputs(x):
    first = hl.zeros(x.shape, dtype=x.dtype)
    second = hl.zeros([x.shape[0] + 1, x.shape[1]], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        first[t, :] = x[t, :]
        second[t.index + 1, :] = x[t, :]
    return first, second


@tile.kernel
def picked(x, index, bias):
    out = hl.zeros([index.shape[0], 128], dtype=x.dtype)
    for tm, tn in hl.tile([index.shape[0], 128]):
        out[tm, tn] = x[index[tm], tn.index + 1]
    return out


@pytest.mark.parametrize(
    ("kernel", "shapes", "config", "message"),
    [
        (corners, [(40, 200)], {}, "at other positions than those of the tiles ti and tj"),
        (two_outputs, [(40, 200)], {}, "t says where outputs are stored, at 2 different offsets"),
        (picked, [(40, 200), (8,), (1,)], {}, "at other columns than those of the tile"),
        (matrices, [(40, 2, 8), (5,), 45], {"windows": "exact"}, "at different offsets"),
    ],
)
def test_what_is_refused(kernel, shapes, config, message):
    kinds = [
        s if isinstance(s, int) else tile.spec(s, "int32" if i == 1 else "float32")
        for i, s in enumerate(shapes)
    ]
    with pytest.raises(PlanError, match=message) as caught:
        kernel.lower(*kinds, target="tpu:v6e", config=tile.Config(**config))
    assert caught.value.loc is not None and caught.value.hint


def test_which_output_needs_a_loop_of_its_own():
    with pytest.raises(PlanError) as caught:
        two_outputs.lower(tile.spec((40, 200), "float32"), target="tpu:v6e")
    assert caught.value.hint == (
        "tiles of outputs are cut at one place: store to second in a loop of its own, over the "
        "same range"
    )


def test_a_position_outside_of_an_array_is_named():
    """Without a mask; on the CPU the values of offsets are looked at before the call."""
    x, offsets = drawn(T, F), np.array([0, 20, 40, 60, 70, 90], np.int32)
    with pytest.raises(ValueError, match="offsets"):
        vectors(x[:, 0], offsets, 45)


@pytest.mark.skipif(not HAS_TORCH, reason="calls the kernel from torch")
def test_the_same_from_torch():
    import torch

    x, offsets = drawn(T, F), np.array([0, 20, 20, 60, 70, 72], np.int32)
    result = masked(torch.from_numpy(x), torch.from_numpy(offsets), 45)
    np.testing.assert_array_equal(result.numpy(), boxes(x, offsets, 45))
