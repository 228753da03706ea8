"""Softmaxes whose totals are kept from zero: what guards them costs nothing, and says nothing."""

from __future__ import annotations

import itertools
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.derivatives import derived, gradients, named

LOWEST = float("-inf")
OFFSETS = np.array([0, 5, 5, 6, 20], np.int32)
HOW = ("maximum", "wide", "select", "zero", "added", "both", "late")


@tile.kernel
def attention(q, k, v, offsets, how, start):
    """Every fifth query sees no key, and one group has no rows."""
    T, D = q.shape
    out = hl.zeros([T, D], dtype=q.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tq in hl.tile(offsets[g], offsets[g + 1]):
            m = hl.full([tq], start, dtype=hl.float32)
            total = hl.zeros([tq], dtype=hl.float32)
            acc = hl.zeros([tq, D], dtype=hl.float32)
            for tk in hl.tile(offsets[g], offsets[g + 1]):
                holds = (tq.index % 5 != 2)[:, None] & (tk.index[None, :] <= tq.index[:, None])
                scores = hl.where(holds, hl.dot(q[tq, :], k[tk, :].T), LOWEST)
                m_new = hl.maximum(m, scores.amax(-1))
                safe = hl.where(m_new == LOWEST, 0.0, m_new)
                alpha = hl.exp(m - safe)
                p = hl.exp(scores - safe[:, None])
                if how == "late":
                    p = hl.where(holds, p, 0.0)
                total = total * alpha + p.sum(-1)
                acc = hl.dot(p, v[tk, :], acc=acc * alpha[:, None])
                m = m_new
            if how == "wide":
                y = acc / hl.maximum(total[:, None], 1e-20)
            elif how == "select":
                y = acc / hl.where(total > 0, total, 1.0)[:, None]
            elif how == "zero":
                y = acc / hl.where(total == 0, 1.0, total)[:, None]
            elif how == "added":
                y = acc / (total + 1e-20)[:, None]
            elif how == "both":
                some = (total > 1e-3)[:, None]
                y = hl.where(some, acc / hl.where(total != 0, total, 1.0)[:, None], 0.0)
            else:
                y = acc / hl.maximum(total, 1e-20)[:, None]
            out[tq, :] = y.to(out.dtype)
    return out


def function(q, k, v):
    """The same of rows that see something."""
    rows = jnp.arange(q.shape[0])
    group = jnp.asarray(np.searchsorted(OFFSETS, np.arange(q.shape[0]), "right"))
    holds = (rows[:, None] % 5 != 2) & (rows[None, :] <= rows[:, None])
    holds &= (group[:, None] == group[None, :]) & (rows < OFFSETS[-1])[:, None]
    scores = jnp.where(holds, q @ k.T, -1e30)
    weights = jnp.where(holds, jax.nn.softmax(scores, -1), 0)
    return (weights @ v,)


def _arguments() -> Any:
    return tuple(np.random.default_rng(3).standard_normal((3, 24, 8), np.float32) * 2)


def _loss(q, k, v, cotangent, how, start):
    return (attention(q, k, v, OFFSETS, how, start) * cotangent).sum()


def _compared(how: str, start: float, cotangent: Any) -> None:
    arguments = _arguments()
    wanted = jax.grad(lambda *a: (function(*a)[0] * cotangent).sum(), (0, 1, 2))
    found = jax.grad(_loss, (0, 1, 2))(*arguments, cotangent, how, start)
    for mine, exact in zip(found, wanted(*arguments), strict=True):
        np.testing.assert_allclose(mine, exact, rtol=0, atol=1e-5 * float(abs(exact).max()))


FAST = (("maximum", LOWEST),)


@pytest.mark.parametrize(
    ("how", "start"),
    [
        pytest.param(how, start, marks=() if (how, start) in FAST else pytest.mark.slow)
        for how, start in itertools.product(HOW, (LOWEST, -1e30))
    ],
)
def test_right_where_rows_see_something_and_where_they_do_not(how, start):
    _compared(how, start, np.random.default_rng(4).standard_normal((24, 8), np.float32))


@pytest.mark.parametrize("how", HOW)
def test_one_number_is_saved_and_none_divides(how):
    text = attention.grad_source(*_arguments(), OFFSETS, how, LOWEST)
    _, made = derived(attention, (*_arguments(), OFFSETS, how, LOWEST))
    alone = [n for n in made.saved if n not in made.forward.returns[:1]]
    assert alone[0] == "saved_log_total"
    assert how == "both" or alone == ["saved_log_total"]
    backward = text[text.index("Part of the gradient") :]
    assert how == "both" or not re.search(r" / ", backward)
    assert "amax" not in backward and " max(" not in backward  # the maximum has no gradient


def test_the_cotangent_of_a_row_that_sees_nothing_does_not_leak():
    """The author selects 0 for such rows: nothing passes, whatever arrives."""
    arguments = (*_arguments(), OFFSETS, "both", LOWEST)
    cotangent = np.random.default_rng(4).standard_normal((24, 8)).astype(np.float32)
    _, pull = jax.vjp(function, *arguments[:3])
    wanted = pull((cotangent,))
    cotangent[2::5] = np.nan
    ir, made = derived(attention, arguments)
    found = gradients(made, named(ir, arguments), [cotangent], 8)
    for name, exact in zip("qkv", wanted, strict=True):
        np.testing.assert_allclose(found[name], exact, rtol=0, atol=1e-5 * abs(exact).max())


@tile.kernel
def guarded(x, limit, start):
    """softmax(x) of each row, whose total is kept from being less than a limit."""
    M, N = x.shape
    y = hl.zeros([M, N], dtype=hl.float32)
    for tm in hl.tile(M):
        m = hl.full([tm], start, dtype=hl.float32)
        for tn in hl.tile(N):
            m = hl.maximum(m, x[tm, tn].amax(-1))
        total = hl.zeros([tm], dtype=hl.float32)
        for tn in hl.tile(N):
            total = total + hl.exp(x[tm, tn] - m[:, None]).sum(-1)
        for tn in hl.tile(N):
            y[tm, tn] = hl.exp(x[tm, tn] - m[:, None]) / hl.maximum(total, limit)[:, None]
    return y


@pytest.mark.parametrize(
    ("limit", "start"), [(1e-20, LOWEST), (0.5, -1.0), (1e-6, 0.0), (1.0, LOWEST), (3.0, LOWEST)]
)
def test_limits_that_count(limit, start):
    """A limit that a total of weights may be below, and a maximum that no score is."""

    def exact(x):
        m = jnp.maximum(x.max(-1, keepdims=True), start)
        weights = jnp.exp(x - m)
        return (weights / jnp.maximum(weights.sum(-1, keepdims=True), limit),)

    x = np.random.default_rng(0).standard_normal((20, 6), np.float32)
    x[::2] -= 20.0  # exp(x) is less than 1e-6
    x[4::2] += 18.0
    x[1, 1:] = -np.inf  # one weight: the total is 1
    ir, made = derived(guarded, (x, limit, start))
    cotangent = np.random.default_rng(1).standard_normal(x.shape).astype(np.float32)
    (wanted,) = jax.vjp(exact, x)[1]((cotangent,))
    found = gradients(made, named(ir, (x, limit, start)), [cotangent], 8)["x"]
    wanted = np.nan_to_num(np.asarray(wanted))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)


@tile.kernel
def sunk(x, sink, first):
    """log(first * exp(sink) + sum(exp(x))) of each row: what a total begins with moves, too."""
    M, N = x.shape
    y = hl.zeros([M], dtype=hl.float32)
    for tm in hl.tile(M):
        m = sink[tm]
        total = first[tm]
        for tn in hl.tile(N):
            m_new = hl.maximum(m, x[tm, tn].amax(-1))
            total = total * hl.exp(m - m_new) + hl.exp(x[tm, tn] - m_new[:, None]).sum(-1)
            m = m_new
        y[tm] = m + hl.log(total)
    return y


@pytest.mark.parametrize("away", [-3.0, 3.0])
def test_a_total_that_begins_with_more_than_nothing(away):
    """Where what it begins with is the largest, and where it is not."""
    rng = np.random.default_rng(5)
    x, sink = rng.standard_normal((6, 20), np.float32), np.float32(away) * np.arange(6)
    arguments = x, sink.astype(np.float32), rng.random(6, np.float32) + 0.5
    cotangent = rng.standard_normal(6, np.float32)
    ir, made = derived(sunk, arguments)

    def exact(x, sink, first):
        return (jnp.log(first * jnp.exp(sink) + jnp.exp(x).sum(-1)) * cotangent).sum()

    wanted = jax.grad(exact, (0, 1, 2))(*arguments)
    for block in (3, 8, 64):
        found = gradients(made, named(ir, arguments), [cotangent], block)
        for name, want in zip(("x", "sink", "first"), wanted, strict=True):
            np.testing.assert_allclose(found[name], want, rtol=1e-4, atol=1e-5)
