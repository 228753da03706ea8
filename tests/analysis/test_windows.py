"""Ranges that begin some positions before a tile: what rows that see nothing are given there."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.errors import ParseError

RNG = np.random.default_rng(3)
SCORES, VALUES = (RNG.standard_normal(shape).astype(np.float32) for shape in ((200, 200), (200,)))
WINDOWS = (7, 20, 128)


def weights(s, highest):
    """What every row makes of its scores: with a lowest score that is finite 1 of a row of them."""
    return hl.exp(s - highest[:, None])


def seen_weights(s, highest):
    """Nothing of what a row does not see."""
    return hl.where(s > -1e29, hl.exp(s - highest[:, None]), 0.0)


def windowed(window, made):
    """The keys of a window before each row, up to a number that memory holds."""

    @tile.kernel
    def kernel(scores, values, most):
        y = hl.zeros([200], dtype=hl.float32)
        for tq in hl.tile(200):
            m = hl.full([tq], -1e30, dtype=hl.float32)
            total = acc = hl.zeros([tq], dtype=hl.float32)
            for tk in hl.tile(
                hl.maximum(0, tq.begin - window), hl.minimum(most[()], tq.end), max_extent=200
            ):
                near = tk.index[None, :] + window >= tq.index[:, None]
                seen = near & (tk.index[None, :] <= tq.index[:, None])
                s = hl.where(seen, scores[tq, tk], -1e30)
                highest = hl.maximum(m, s.amax(1))
                alpha, p = hl.exp(m - highest), made(s, highest)
                total = total * alpha + p.sum(1)
                acc = acc * alpha + (p * values[tk][None, :]).sum(1)
                m = highest
            y[tq] = acc / hl.maximum(total, 1e-20)
        return y

    return kernel


@pytest.mark.parametrize("window", WINDOWS)
def test_rows_that_see_nothing_of_what_their_tile_reads(window):
    """A tile in front has keys of the window, and one of this row alone has none."""
    with pytest.raises(ParseError) as caught:
        windowed(window, weights).source(SCORES, VALUES, np.array(36, np.int32))
    assert caught.value.what == (
        "y at one position of tq goes by which others are in its tile: the result would depend on "
        "the block of tq"
    )


@pytest.mark.parametrize("window", WINDOWS)
def test_rows_that_leave_out_what_they_do_not_see(window):
    kernel, most = windowed(window, seen_weights), np.array(36, np.int32)
    found = [kernel.reference(SCORES, VALUES, most, blocks={"tq": b, "tk": 40}) for b in (4, 50)]
    for one in found[1:]:
        np.testing.assert_allclose(one, found[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(kernel(SCORES, VALUES, most), found[0], rtol=1e-5, atol=1e-6)
