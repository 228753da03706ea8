"""Tiles that are read a few positions beside their own: what a step sees of the block next to it.

They run in every form, and in Pallas's TPU interpreter, in which memory is NaN until it is written
and an access outside of a buffer raises.
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.codegen import flowing
from tests.forgotten import forget
from tests.interpreter import races_found
from tests.ragged import Space, every_stratum
from tests.tiers import share
from tilelang.codegen.pallas.plan.body import lower
from tilelang.codegen.pallas.plan.windows import choose, unaligned
from tilelang.codegen.pallas.plan.windows.types import Edge, Number
from tilelang.errors import InternalError
from tilelang.ir import integers

T, F, G = 100, 20, 5
SPACE = Space(rows=T, groups=G, block=32)
FORMS = (
    {}, {"steps": "rectangle"}, {"loop_type": "worklist"}, {"loop_type": "fori_loop"},
    {"loop_type": "emit_pipeline"}, {"windows": "cut"},
)  # fmt: skip


@tile.kernel
def causal(x, w, offsets):
    """A causal convolution of each group's rows: y[t] = sum over i of w[i] * x[t - i]."""
    y = hl.zeros(x.shape, dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t, tf in hl.tile([offsets[g], 0], [offsets[g + 1], x.shape[1]]):
            acc = hl.zeros([t, tf], dtype=hl.float32)
            for i in hl.static_range(w.shape[0]):
                own = t.index - i >= offsets[g]
                row = hl.load(x, [t - i, tf], mask=own[:, None])
                acc = acc + row.to(hl.float32) * w[i, tf][None, :]
            y[t, tf] = acc
    return y


@tile.kernel
def between(x, offsets):
    """The row before, and twice the row behind, of the rows of a group."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            first, last = t.index == offsets[g], t.index + 1 == offsets[g + 1]
            before = hl.load(x, [t - 1, slice(None)], mask=~first[:, None])
            after = hl.load(x, [t + 1, slice(None)], mask=~last[:, None])
            y[t, :] = before + 2 * after
    return y


@tile.kernel
def along(x, by: hl.constexpr):
    """Every row, moved along itself; what comes from outside is 0."""
    y = hl.empty(x.shape, dtype=x.dtype)
    for m in hl.grid(x.shape[0]):
        for t in hl.tile(x.shape[1]):
            own = (t.index + by >= 0) & (t.index + by < x.shape[1])
            y[m, t] = hl.load(x, [m, t + by], mask=own)
    return y


@tile.kernel
def planes(x, by: hl.constexpr):
    """Matrices, each the one so far from it."""
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        own = (t.index + by >= 0) & (t.index + by < x.shape[0])
        y[t, :, :] = hl.load(x, [t + by, slice(None), slice(None)], mask=own[:, None, None])
    return y


def drawn(*shape, dtype=np.float32):
    return np.random.default_rng(0).integers(-8, 9, shape).astype(dtype)


def convolved(x, w, offsets):
    y = np.zeros(x.shape)
    for begin, end in itertools.pairwise(offsets.tolist()):
        for i in range(len(w)):
            y[begin + i : end] += x[begin : max(end - i, begin)].astype(float) * w[i]
    return y


def moved(x, by):
    """x[i + by] along the first dimension, 0 where there is none."""
    y = np.zeros(x.shape)
    at = np.arange(len(x)) + by
    own = (at >= 0) & (at < len(x))
    y[own] = x[at[own]]
    return y


# ---------------------------------------------------------------- what comes out


@pytest.mark.parametrize(
    "dtype", [np.float32, ml_dtypes.bfloat16, np.int8], ids=lambda d: d.__name__
)
@pytest.mark.parametrize("form", FORMS[:-1], ids=str)
def test_a_causal_convolution(form, dtype):
    x, w = drawn(T, F, dtype=dtype), drawn(4, F)
    for layout in every_stratum(SPACE):
        found = causal(x, w, layout.offsets, config=tile.Config({"t": 32}, **form))
        np.testing.assert_array_equal(found, convolved(x, w, layout.offsets))


@pytest.mark.parametrize("taps", share([2, 9, 10, 17], 3))
def test_more_than_a_register_tile(taps):
    """The edge is one, or two, of 8 rows; 16 are half of a block."""
    x, w = drawn(T, F), drawn(taps, F)
    for layout in every_stratum(SPACE):
        found = causal(x, w, layout.offsets, config=tile.Config({"t": 32}))
        np.testing.assert_array_equal(found, convolved(x, w, layout.offsets))


@pytest.mark.parametrize("form", share(FORMS[:-1], 3, 2), ids=str)
def test_on_either_side(form):
    x = drawn(T, F)
    for layout in every_stratum(SPACE):
        exact = np.zeros(x.shape)
        for begin, end in itertools.pairwise(layout.offsets.tolist()):
            exact[begin:end] = moved(x[begin:end], -1) + 2 * moved(x[begin:end], 1)
        found = between(x, layout.offsets, config=tile.Config({"t": 16}, **form))
        np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("by", [-1, 3, -128, 130])
def test_along_lanes(by):
    x = drawn(3, 700)
    found = along(x, by, config=tile.Config({"t": 256}))
    np.testing.assert_array_equal(found, moved(x.T, by).T)


@pytest.mark.parametrize("by", [-1, 2, 3, -5])
def test_planes(by):
    """A block holds four of them: those that two are part of it, not three."""
    x = drawn(11, 5, 6)
    found = planes(x, by, config=tile.Config({"t": 4}))
    np.testing.assert_array_equal(found, moved(x, by))


@cache
def strict(kernel: Any) -> Any:
    return tile.kernel(kernel.__wrapped__, interpret=flowing.strict(), checks=False)


@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=lambda d: d.__name__)
def test_strictly(block, dtype):
    """Groups that begin at the first row, at the begin of a block and before it, none behind."""
    strictly = strict(causal)
    x, w = drawn(66, F, dtype=dtype), drawn(4, F)
    try:
        for layout in ([0, 0, 31, 32, 66], [0, 33, 64, 65, 66], [66, 66, 66, 66, 66]):
            offsets = np.array(layout, np.int32)
            found = np.asarray(strictly(x, w, offsets, config=tile.Config({"t": block})))
            assert not races_found()
            np.testing.assert_array_equal(found, convolved(x, w, offsets))
    finally:  # memory and races are those of the whole process
        pltpu.reset_tpu_interpret_mode_state()


# ---------------------------------------------------------------- what is chosen

X, W = tile.spec((16384, 2048), "bfloat16"), tile.spec((4, 2048), "float32")
OFFSETS = tile.spec((33,), "int32")


def edges(kernel, *arguments, **options):
    """Of what each launch sees, the positions next to tiles."""
    plan = kernel.lower(*arguments, **options).plan
    found = (d for launch in plan.launches for w in launch.windows for d in w.dims)
    return [d for d in found if isinstance(d, Edge)]


def test_several_tiles_on_a_side_have_one_edge():
    """Three moved tiles of a narrow type: two copies of x, of which one is 16 rows."""
    (edge,) = edges(causal, X, W, OFFSETS, target="tpu:v6e")
    assert (edge.block, edge.after) == (16, False)
    assert ")(x, w, x, y)" in causal.source(X, W, OFFSETS, target="tpu:v6e")


def test_each_side_has_one():
    found = edges(between, X, OFFSETS, target="tpu:v6e", config=tile.Config({"t": 64}))
    assert [(e.block, e.after) for e in found] == [(16, False), (16, True)]


def test_one_block_or_a_far_tile_has_none():
    whole = tile.Config({"t": 16384, "tf": 128})
    assert not edges(causal, X, W, OFFSETS, target="tpu:v6e", config=whole)
    config = tile.Config({"t": 16})
    assert not edges(causal, X, W, OFFSETS, target="tpu:v6e", config=config)
    assert not edges(causal, X, W, OFFSETS, target="tpu:v6e", config=tile.Config(windows="cut"))


@needs_libtpu
@pytest.mark.parametrize("chip", ["v5e", "v5p", "v6e", "7x"])
@pytest.mark.parametrize("dtype", share(["bfloat16", "float32", "int8"], 2, 1))
def test_every_generation_compiles_it(chip, dtype):
    x, w = tile.spec((1000, 300), dtype), tile.spec((4, 300), "float32")
    config = tile.Config({"t": 64})
    assert edges(causal, x, w, OFFSETS, target=f"tpu:{chip}", config=config)
    assert compiled(causal, x, w, OFFSETS, target=f"tpu:{chip}", config=config)
    y = tile.spec((24, 1000), dtype)
    assert compiled(along, y, -3, target=f"tpu:{chip}", config=tile.Config({"t": 256}))


# ---------------------------------------------------------------- bugs that are seen

_next_to, _with_edge = unaligned.next_to, unaligned.with_edge


def _on_the_other_side(axis, block, after, size):
    return replace(_next_to(axis, block, not after, size), after=after)


def _one_position_off(own, beside, by, dim, axis, name):
    return _with_edge(own, beside, by + 1, dim, axis, name)


def _the_other_way(own, beside, by, dim, axis, name):
    return _with_edge(own, beside, -by, dim, axis, name)


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (unaligned, "next_to", _on_the_other_side),
        (lower, "with_edge", _one_position_off),
        (lower, "with_edge", _the_other_way),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_a_planted_bug_is_seen(monkeypatch, owner, name, wrong):
    for kernel in (causal, between):
        forget(kernel)
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises((AssertionError, InternalError)):
        test_on_either_side({})
    with pytest.raises((AssertionError, InternalError)):
        test_more_than_a_register_tile(10)


def test_a_block_that_was_not_chosen_is_found(monkeypatch):
    """What a step sees is said once in the plan, and where it is shown once more."""
    forget(causal)
    monkeypatch.setattr(choose, "_number", lambda *_: Number(integers.const(0)))
    with pytest.raises(InternalError, match="shows another block than was chosen"):
        causal.source(X, W, OFFSETS, target="tpu:v6e", config=tile.Config({"t": 128}))
