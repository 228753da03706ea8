"""Stores of one step to several planes of an output: y[0, t, :] and y[2, t, :].

They are rows of one block.  Blocks of their own for each would be written over each other's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.tiers import share
from tilelang.aot import Compiled

ROWS, WIDTH = 45, 21
LAYOUTS = (
    [0, 15, 32, 32, 45],
    [3, 3, 4, 20, 40],
    [0, 0, 0, 0, 0],
    [45, 45, 45, 45, 45],
    [0, 45, 45, 45, 45],
    [7, 16, 24, 31, 32],
)
FORMS = ({}, {"steps": "rectangle"}, {"loop_type": "worklist"}, {"loop_type": "fori_loop"})


@tile.kernel
def in_front(x, offsets):
    y = hl.full([4, *x.shape], -2.0, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t, n in hl.tile([offsets[g], 0], [offsets[g + 1], x.shape[1]], max_extent=x.shape):
            for c in hl.static_range(2):
                y[2 * c, t, n] = x[t, n] * (c + 1)
    return y


@tile.kernel
def between(x, offsets):
    y = hl.zeros([x.shape[0], 4, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            y[t, 1, :] = x[t, :] + g
            if offsets[g] > 3:
                y[t, 3, :] = x[t, :] * 2
    return y


@tile.kernel
def statistics(x, offsets):
    G = offsets.shape[0] - 1
    y = hl.full([3, G, x.shape[1]], 9.0, dtype=x.dtype)
    for g in hl.grid(G):
        total = hl.zeros([x.shape[1]], dtype=hl.float32)
        most = hl.full([x.shape[1]], -3.0, dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            total = total + x[t, :].to(hl.float32).sum(0)
            most = hl.maximum(most, x[t, :].to(hl.float32).amax(0))
        y[0, g, :] = total.to(y.dtype)
        y[2, g, :] = most.to(y.dtype)
    return y


@tile.kernel
def exchanged(x, offsets):
    y = hl.zeros([3, *x.shape], dtype=x.dtype)
    for u in hl.tile(x.shape[0]):
        y[0, u, :] = x[u, :]
        y[2, u, :] = -x[u, :]
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            y[0, t, :], y[2, t, :] = y[2, t, :], y[0, t, :]
    return y


def by_hand(name: str, x: np.ndarray, offsets: list[int]) -> np.ndarray:
    """The same, group by group."""
    ranges = [slice(*pair) for pair in itertools.pairwise(offsets)]
    if name == "statistics":
        y = np.full((3, len(ranges), WIDTH), 9.0)
        for g, rows in enumerate(ranges):
            y[0, g], y[2, g] = x[rows].sum(0), x[rows].max(0, initial=-3.0)
        return y
    if name == "exchanged":
        y = np.stack([x, 0 * x, -x])
        for rows in ranges:
            y[0, rows], y[2, rows] = -x[rows], x[rows]
        return y
    y = np.full((4, *x.shape), -2.0) if name == "in_front" else np.zeros((ROWS, 4, WIDTH))
    for g, rows in enumerate(ranges):
        if name == "in_front":
            y[0, rows], y[2, rows] = x[rows], 2 * x[rows]
        else:
            y[rows, 1] = x[rows] + g
            y[rows, 3] = 2 * x[rows] if offsets[g] > 3 else 0
    return y


def wrong(call: Callable[..., jax.Array], name: str, dtype: str) -> list[list[int]]:
    """The layouts whose result is not that of the loop over groups."""
    x = np.random.default_rng(0).integers(-3, 4, (ROWS, WIDTH)).astype(np.float32)
    found = [call(jnp.asarray(x, dtype), np.array(offsets, np.int32)) for offsets in LAYOUTS]
    pairs = zip(found, LAYOUTS, strict=True)
    return [o for y, o in pairs if not np.array_equal(y.astype(jnp.float32), by_hand(name, x, o))]


KERNELS = {
    "in_front": in_front, "between": between, "statistics": statistics, "exchanged": exchanged,
}  # fmt: skip
each = pytest.mark.parametrize("name", KERNELS)


@each
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_planes_of_a_ragged_output(name, dtype):
    assert wrong(jax.jit(KERNELS[name]), name, dtype) == []


@pytest.mark.parametrize("form", share(FORMS, 2), ids=str)
@pytest.mark.parametrize("name", ["in_front", "between"])
def test_forms(name, form):
    config = tile.Config({"t": 16}, **form)
    assert wrong(jax.jit(lambda *a: KERNELS[name](*a, config=config)), name, "float32") == []


def test_planes_are_rows_of_one_block():
    x, offsets = tile.spec((ROWS, WIDTH), "float32"), tile.spec((5,), "int32")
    text = in_front.source(x, offsets, config=tile.Config({"t": 16}))
    assert "out_specs=[pl.BlockSpec((4, 16, 21), " in text
    assert "y_ref[0] = " in text and "y_ref[2] = " in text


@needs_libtpu
@each
@pytest.mark.parametrize("target", share(("tpu:v5e", "tpu:7x"), 2))
def test_the_tpu_compiler_takes_them(name, target):
    for dtype in ("float32", "bfloat16"):
        shapes = tile.spec((1000, 200), dtype), tile.spec((5,), "int32")
        made = compiled(KERNELS[name], *shapes, target=target)
        assert isinstance(made, Compiled) and made.memory.temporaries == 0
