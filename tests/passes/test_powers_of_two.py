"""powers_of_two: exponentials of scaled values are powers of two, where nothing else reads them."""

from __future__ import annotations

import math

import numpy as np

import tilelang as tile
import tilelang.language as hl
from tests.derivatives import parsed
from tests.passes.becomes import becomes, stays
from tilelang.passes.powers_of_two import LOG2_E, powers_of_two

X = tile.spec((40, 16), "float32")
LOWEST = float(np.finfo(np.float32).min)


def kernel_of(found):
    """A kernel of one line, which `found` computes of a tile."""

    @tile.kernel
    def row(x):
        y = hl.zeros_like(x)
        for tm in hl.tile(x.shape[0]):
            y[tm, :] = found(x[tm, :])
        return y

    return parsed(row, (X,))[0]


@tile.kernel
def softened(x):
    y = hl.zeros_like(x)
    for tm in hl.tile(x.shape[0]):
        y[tm, :] = hl.exp(x[tm, :] / 10)
    return y


@tile.kernel
def online(x, low: hl.constexpr = -math.inf, shown: hl.constexpr = False):
    """sum(exp(x / 8), over rows) by its running maximum, of positive numbers alone."""
    y, peak = hl.zeros([x.shape[1]]), hl.zeros([x.shape[1]])
    for tn in hl.tile(x.shape[1]):
        m, total = hl.full([tn], -1e30), hl.zeros([tn])
        for tm in hl.tile(x.shape[0]):
            s = hl.where(x[tm, tn] > 0, x[tm, tn] * 0.125, low)
            m_new = hl.maximum(m, s.amax(0))
            total = total * hl.exp(m - m_new) + hl.exp(s - m_new[None, :]).sum(0)
            m = m_new
        y[tn] = total
        if shown:
            peak[tn] = m
    return y, peak


def test_an_online_softmax():
    becomes(
        parsed(online, (X,))[0],
        powers_of_two,
        """
        for tn in tile(16):
            m: float32[tn] = full([tn], float32, value=-1e+30)
            total: float32[tn] = full([tn], float32, value=0.0)
            for tm in tile(40) carrying total_1 = total, m_1 = m:
                s: float32[tm, tn] = where(x[tm, tn] > 0.0, x[tm, tn] * 0.125, -inf)
                m_new: float32[tn] = maximum(m_1, max(s, axis=0))
                total_2: float32[tn] = total_1 * exp(m_1 - m_new) + sum(exp(s - expand_dims(m_new, axis=0)), axis=0)
                next total_1 = total_2
                next m_1 = m_new
            after total_3 = total_1
            after m_2 = m_1
            y[tn] = total_3
        """,
        """
        for tn in tile(16):
            m: float32[tn] = full([tn], float32, value=-1.4426950408889633e+30)
            total: float32[tn] = full([tn], float32, value=0.0)
            for tm in tile(40) carrying total_1 = total, m_1 = m:
                s: float32[tm, tn] = where(x[tm, tn] > 0.0, x[tm, tn] * 0.18033688011112042, -inf)
                m_new: float32[tn] = maximum(m_1, max(s, axis=0))
                total_2: float32[tn] = total_1 * exp2(m_1 - m_new) + sum(exp2(s - expand_dims(m_new, axis=0)), axis=0)
                next total_1 = total_2
                next m_1 = m_new
            after total_3 = total_1
            after m_2 = m_1
            y[tn] = total_3
        """,
    )


def test_what_is_read_elsewhere_stays():
    stays(parsed(online, (X, -math.inf, True))[0], powers_of_two)


def test_a_constant_that_would_overflow_stays():
    stays(parsed(online, (X, LOWEST))[0], powers_of_two)


def test_no_multiplication_is_added():
    for found in (
        lambda x: hl.exp(x),
        lambda x: hl.exp(x * 0.5 - x),
        lambda x: hl.exp(hl.sin(x * 0.5)),
        lambda x: hl.exp((x * 0.5).to(hl.bfloat16)).to(hl.float32),
        lambda x: hl.exp(x / 3e38),
        lambda x: hl.exp(0.5 / x),
    ):
        stays(kernel_of(found), powers_of_two)


def test_what_is_divided_is_multiplied():
    """Scores over the root of a length: one instruction for each, not the several of a quotient."""
    text = str(powers_of_two(kernel_of(lambda x: hl.exp(x / 10))))
    assert f"exp2(x_1 * {LOG2_E * (1 / 10)})" in text
    x = np.random.default_rng(0).standard_normal((40, 16), np.float32)
    np.testing.assert_allclose(softened(x), np.exp(x / 10), rtol=1e-6)


def test_numbers_of_every_kind_mean_the_same():
    """NaN, inf and -inf are what they were; others differ by a rounding of the power."""
    x = np.random.default_rng(0).standard_normal((40, 16), np.float32) * 40
    x[0, :4] = np.nan, np.inf, -np.inf, 3e38
    x[:, 5], x[:, 6] = -np.inf, -1
    made = [np.asarray(a) for a in online(x)]
    wanted = [np.asarray(a) for a in online.reference(x)]
    assert "jnp.exp2(" in online.source(X) and "jnp.exp(" not in online.source(X)
    for one, other in zip(made, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=3e-6)


@tile.kernel
def with_a_sink(x, sink, scale: hl.constexpr = None):
    """exp(x / 8) by a running maximum that begins with a number from memory."""
    y = hl.zeros_like(x)
    for tm in hl.tile(x.shape[0]):
        begin = sink[()] if scale is None else sink[()] * scale
        m = hl.maximum(hl.full([tm], begin, dtype=hl.float32), x[tm, :].amax(1) * 0.125)
        y[tm, :] = hl.exp(x[tm, :] * 0.125 - m[:, None])
    return y


def test_numbers_from_memory():
    """A product with one takes log2(e); one that is read as it is would need a product."""
    sink = tile.spec((), "float32")
    stays(parsed(with_a_sink, (X, sink))[0], powers_of_two)
    text = str(powers_of_two(parsed(with_a_sink, (X, sink, 0.25))[0]))
    assert "exp2(" in text and f"* {0.25 * math.log2(math.e)}" in text


def test_the_numbers_of_a_sink():
    x = np.random.default_rng(0).standard_normal((40, 16)).astype(np.float32)
    sink = np.array(0.1, np.float32)
    wanted = np.exp(x / 8 - np.maximum(x.max(1) / 8, sink)[:, None])
    np.testing.assert_allclose(with_a_sink(x, sink), wanted, rtol=1e-6)
    wanted = np.exp(x / 8 - np.maximum(x.max(1) / 8, sink / 4)[:, None])
    np.testing.assert_allclose(with_a_sink(x, sink, 0.25), wanted, rtol=1e-6)
