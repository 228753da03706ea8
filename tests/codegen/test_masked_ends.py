"""A block that is all of an array, beside a longer one that is masked: whole registers of both."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu

LONG = np.arange(20 * 8, dtype=np.float32).reshape(20, 8)
SHORT = np.arange(17 * 8, dtype=np.float32).reshape(17, 8) % 7
GIVEN = tile.spec((20, 8), "float32"), tile.spec((17, 8), "float32")


@tile.kernel
def longer_is_read(x, w):
    y = hl.empty(w.shape, dtype=w.dtype)
    for t in hl.tile(w.shape[0]):
        y[t, :] = w[t, :] + hl.load(x, [t, slice(None)], mask=(t.index < 11)[:, None], other=0)
    return y


@tile.kernel
def longer_is_stored(x, w):
    y = hl.zeros(x.shape, dtype=w.dtype)
    z = hl.empty(w.shape, dtype=w.dtype)
    for t in hl.tile(w.shape[0]):
        z[t, :] = w[t, :] * 2
        hl.store(y, [t, slice(None)], w[t, :], mask=(t.index < 11)[:, None])
    return y, z


@tile.kernel
def shorter_is_read(x, w, v):
    """Of two loops: where blocks of one are chosen by their times, so are those of the other."""
    z = hl.empty(v.shape, dtype=v.dtype)
    y = hl.empty([x.shape[2], x.shape[0]], dtype=hl.bfloat16)
    for s in hl.tile(v.shape[0]):
        z[s, :] = v[s, :] * 2
    for t in hl.tile(x.shape[0]):
        rows = hl.load(w, [t, slice(None)], mask=(t.index < 11)[:, None], other=0)
        y[:, t] = (x[t, :, :] * rows[:, :, None]).sum(1).T.to(y.dtype)
    return z, y


KERNELS = (longer_is_read, longer_is_stored)
TRIED = (*(tile.spec(s, "float32") for s in ((33, 32, 8), (20, 32), (33, 8))),)


def block_of(kernel: tile.Kernel, given: tuple = GIVEN, target: str = "tpu:v5e") -> int:
    return dict(kernel.lower(*given, target=target).config.blocks)["t"]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_it_is_whole_registers(kernel):
    assert block_of(kernel) == 24


def test_so_are_those_that_are_tried():
    """Masked behind its end, w is shorter than the only block of t."""
    assert block_of(shorter_is_read, TRIED, "tpu:v5p") == 128


@needs_libtpu
def test_they_compile():
    assert compiled(shorter_is_read, *TRIED, target="tpu:v5p").memory.code


@needs_libtpu
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_it_compiles(kernel):
    for target in ("tpu:v5e", "tpu:7x"):
        assert compiled(kernel, *GIVEN, target=target).memory.code


def test_the_numbers():
    """What lies behind either end is neither read nor stored."""
    few = np.where(np.arange(17)[:, None] < 11, LONG[:17], 0)
    np.testing.assert_array_equal(longer_is_read(LONG, SHORT, target="tpu:v5e"), SHORT + few)
    y, z = longer_is_stored(LONG, SHORT, target="tpu:v5e")
    np.testing.assert_array_equal(z, SHORT * 2)
    np.testing.assert_array_equal(y[:11], SHORT[:11])
    assert not np.asarray(y[11:]).any()
