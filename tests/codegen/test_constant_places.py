"""Outputs of which one step stores several rows, or columns, however far apart they are."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import needs_libtpu
from tests.compile_cache import TPU, shared
from tilelang.aot import compile_lowered

RNG = np.random.default_rng(11)
X = RNG.standard_normal((137, 300)).astype(np.float32)
OFFSETS = np.array([0, 40, 40, 137], np.int32)


@tile.kernel
def rows(x, offsets):
    """Two rows of 16, which lie in two register tiles."""
    y = hl.full([16, x.shape[1]], 2.0)
    for d in hl.tile(x.shape[1]):
        total = hl.zeros([d])
        most = hl.full([d], -9.0)
        for t in hl.tile(x.shape[0]):
            total = total + x[t, d].sum(0)
            most = hl.maximum(most, x[t, d].amax(0))
        y[3, d] = total
        y[12, d] = most
    return y


@tile.kernel
def columns(x, offsets):
    y = hl.full([x.shape[0], 200], 2.0)
    for t in hl.tile(x.shape[0]):
        y[t, 3] = x[t, :].sum(1)
        y[t, 150] = x[t, :].amax(1)
    return y


@tile.kernel
def of_groups(x, offsets):
    """The second is made of what the first one is."""
    y = hl.full([3, 40, x.shape[1]], 2.0, dtype=hl.float32)
    for g in hl.grid(3):
        total = hl.zeros([x.shape[1]])
        for t in hl.tile(offsets[g], offsets[g + 1]):
            total = total + x[t, :].sum(0)
        y[g, 1, :] = total
        y[g, 37, :] = y[g, 1, :] + 1.0
    return y


@tile.kernel
def added(x, offsets):
    y = hl.full([13, x.shape[1]], 2.0)
    for t in hl.tile(x.shape[0]):
        hl.atomic_add(y, [2, slice(None)], x[t, :].sum(0))
        hl.atomic_max(y, [10, slice(None)], x[t, :].amax(0))
    return y


def filled(shape, **places):
    """Twos but for some places."""
    y = np.full(shape, 2.0)
    for place, value in places.items():
        y[..., int(place[1:]), :] = value
    return y


SUMS = np.stack([X[a:b].sum(0) for a, b in pairwise(OFFSETS)])
EXPECTED = {
    rows: filled((16, 300), _3=X.sum(0), _12=X.max(0)),
    columns: filled((200, 137), _3=X.sum(1), _150=X.max(1)).T,
    of_groups: filled((3, 40, 300), _1=SUMS, _37=SUMS + 1),
    added: filled((13, 300), _2=X.sum(0) + 2, _10=np.maximum(X.max(0), 2)),
}


def name(kernel):
    return kernel.__name__


@pytest.mark.parametrize("kernel", EXPECTED, ids=name)
def test_places_in_several_register_tiles(kernel):
    names = dict(kernel.default_config(X, OFFSETS).blocks)
    for block in (None, 8, 64):
        config = None if block is None else tile.Config(dict.fromkeys(names, block))
        made = kernel(X, OFFSETS, config=config)
        np.testing.assert_allclose(made, EXPECTED[kernel], rtol=1e-4, atol=1e-4)


@needs_libtpu
@pytest.mark.parametrize("kernel", EXPECTED, ids=name)
def test_places_that_the_compiler_takes(kernel):
    compile_lowered(kernel.lower(X, OFFSETS, target="tpu:v6e"), worker=shared(TPU))
