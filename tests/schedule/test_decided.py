"""Masks of weights go where their scores are masked and their maximum is subtracted; else stay."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl

LEAST = -1e30
OFFSETS = np.array([0, 5, 5, 40, 100], np.int32)  # rows 100 .. 127 in no group


@tile.kernel
def weights(x, offsets, shown: hl.constexpr = False):
    """y[g] = sum of exp(x - max of x) over a group's columns, running; `shown` hides scores."""
    rows, T = x.shape
    G = offsets.shape[0] - 1
    y = hl.zeros([G, rows, 128], dtype=hl.float32)
    for g in hl.grid(G):
        m = hl.full([rows], LEAST if shown else -math.inf, dtype=hl.float32)
        total = hl.zeros([rows], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=T):
            s = x[:, t]
            if shown:
                s = hl.where(t.index[None, :] > 20, s, -math.inf)
            m_new = hl.maximum(m, s.amax(-1))
            p = hl.exp(s - m_new[:, None])
            total = total * hl.exp(m - m_new) + p.sum(-1)
            m = m_new
        y[g, :, :] = total[:, None].broadcast_to([rows, 128])
    return y


@tile.kernel
def no_peak(x, offsets):
    """What is subtracted is no maximum."""
    rows, T = x.shape
    G = offsets.shape[0] - 1
    y = hl.zeros([G, rows, 128], dtype=hl.float32)
    for g in hl.grid(G):
        m = hl.full([rows], 1.5, dtype=hl.float32)
        total = hl.zeros([rows], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=T):
            total = total + hl.exp(x[:, t] - m[:, None]).sum(-1)
        y[g, :, :] = total[:, None].broadcast_to([rows, 128])
    return y


@tile.kernel
def chosen(x, offsets):
    """Only some lanes of a weight are summed, so a lane that is NaN does not stand for its row."""
    rows, T = x.shape
    G = offsets.shape[0] - 1
    y = hl.zeros([G, rows, 128], dtype=hl.float32)
    for g in hl.grid(G):
        m = hl.full([rows], -math.inf, dtype=hl.float32)
        total = hl.zeros([rows], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=T):
            s = x[:, t]
            m_new = hl.maximum(m, s.amax(-1))
            p = hl.exp(s - m_new[:, None])
            total = total * hl.exp(m - m_new) + hl.where(t.index[None, :] > 20, p, 0.0).sum(-1)
            total = total + p.sum(-1)
            m = m_new
        y[g, :, :] = total[:, None].broadcast_to([rows, 128])
    return y


def arrays() -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((8, 128)).astype(np.float32)
    x[:, 100:] = np.nan  # nobody's
    x[2, 5:40] = -np.inf  # a group without a finite score
    x[3, 41:60] = -np.inf  # the first tiles of a group
    return x, OFFSETS


def config(kernel: tile.Kernel) -> tile.Kernel:
    return tile.kernel(kernel.__wrapped__, config=tile.Config({"t": 16}))  # type: ignore[attr-defined]


@pytest.mark.parametrize("shown", [False, True])
def test_the_mask_goes_and_results_stay(shown: bool) -> None:
    x, offsets = arrays()
    lines = config(weights).source(x, offsets, shown).splitlines()
    (weight,) = (line.strip() for line in lines if line.strip().startswith("p = "))
    assert weight == "p = jnp.exp(s - m_new[:, :16])"  # m fills all lanes
    with np.errstate(all="ignore"):
        expected = config(weights).reference(x, offsets, shown)
    np.testing.assert_allclose(config(weights)(x, offsets, shown), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "masked"), [(no_peak, "jnp.where(t_mask, jnp.exp("), (chosen, "& t_mask, p, 0.0)")]
)
def test_masks_that_decide_something_stay(kernel: tile.Kernel, masked: str) -> None:
    x, offsets = arrays()
    assert masked in config(kernel).source(x, offsets)
    with np.errstate(all="ignore"):
        expected = config(kernel).reference(x, offsets)
    np.testing.assert_allclose(config(kernel)(x, offsets), expected, rtol=1e-5)
