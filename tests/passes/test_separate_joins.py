"""separate_joins: what is computed of joined values, computed of each of them by itself."""

from __future__ import annotations

import sys
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.passes.becomes import becomes, floats, ir_of, stays
from tilelang.passes.separate_joins import separate_joins
from tilelang.reference import evaluate

separate_joins_file = sys.modules[separate_joins.__module__]
RNG = np.random.default_rng(5)


@tile.kernel
def rotated(x, cos, sin):
    """A rotary embedding as it is written: halves that change places."""
    T, D = x.shape
    y = hl.empty([T, D], dtype=x.dtype)
    for t in hl.tile(T):
        turned = hl.cat([-x[t, D // 2 : D], x[t, 0 : D // 2]], 1)
        y[t, :] = x[t, :] * cos[:] + turned * sin[t, :]
    return y


def test_a_store_becomes_one_of_each():
    becomes(
        ir_of(rotated, floats(20, 24), floats(24), floats(20, 24)),
        separate_joins,
        before="""
        for t in tile(20):
            turned: float32[t, 24] = concat(-x[t, 12:24], x[t, 0:12], axis=1)
            y[t, 0:24] = x[t, 0:24] * cos[0:24] + turned * sin[t, 0:24]
        """,
        after="""
        for t in tile(20):
            turned_1: float32[t, 12] = -x[t, 12:24]
            turned_2: float32[t, 12] = x[t, 0:12]
            y[t, 0:12] = x[t, 0:12] * cos[0:12] + turned_1 * sin[t, 0:12]
            y[t, 12:24] = x[t, 12:24] * cos[12:24] + turned_2 * sin[t, 12:24]
        """,
    )


@tile.kernel
def scores(q, qr, k, kr, w):
    """Keys of two parts, a content and a position."""
    T, S = q.shape[0], k.shape[0]
    p, total = hl.empty([T, S], dtype=hl.float32), hl.empty([T], dtype=hl.float32)
    for t in hl.tile(T):
        both = hl.cat([q[t, :], qr[t, :]], 1) * w[:]
        total[t] = both.sum(1)
        for s in hl.tile(S):
            p[t, s] = hl.dot(both, hl.cat([k[s, :], kr[s, :]], 1).T)
    return p, total


SCORES = (floats(20, 16), floats(20, 5), floats(9, 16), floats(9, 5), floats(21))


def test_sums_and_products_become_those_of_each():
    becomes(
        ir_of(scores, *SCORES),
        separate_joins,
        before="""
        for t in tile(20):
            both: float32[t, 21] = concat(q[t, 0:16], qr[t, 0:5], axis=1) * w[0:21]
            total[t] = sum(both, axis=1)
            for s in tile(9):
                p[t, s] = dot(both, transpose(concat(k[s, 0:16], kr[s, 0:5], axis=1), perm=(1, 0)), contract=(1, 0))
        """,
        after="""
        for t in tile(20):
            both_1: float32[t, 16] = q[t, 0:16] * w[0:16]
            both_2: float32[t, 5] = qr[t, 0:5] * w[16:21]
            total[t] = sum(both_1, axis=1) + sum(both_2, axis=1)
            for s in tile(9):
                p[t, s] = dot(both_1, transpose(k[s, 0:16], perm=(1, 0)), contract=(1, 0)) + dot(both_2, transpose(kr[s, 0:5], perm=(1, 0)), contract=(1, 0))
        """,
    )


@tile.kernel
def in_place(x):
    """The second store of two would read what the first one stored."""
    T, D = x.shape
    for t in hl.tile(T):
        x[t, :] = hl.cat([x[t, D // 2 : D], x[t, 0 : D // 2]], 1)
    return x


@tile.kernel
def read_before(x):
    T, D = x.shape
    for t in hl.tile(T):
        high, low = x[t, D // 2 : D], x[t, 0 : D // 2]
        x[t, :] = hl.cat([high, low], 1)
    return x


@tile.kernel
def carried(x, z):
    """The largest of both, and what a loop carries: both are needed as they are."""
    (G, T, D), E = x.shape, z.shape[1]
    y, m = hl.empty([G, D + E], dtype=x.dtype), hl.empty([G, T], dtype=x.dtype)
    for g in hl.grid(G):
        acc = hl.zeros([D + E], dtype=hl.float32)
        for t in hl.grid(T):
            both = hl.cat([x[g, t, :], z[t, :]], 0)
            acc = acc + both
            m[g, t] = both.amax(0)
        y[g, :] = acc
    return y, m


@tile.kernel
def of_three(x, y, w):
    """Three values, one of them joined before; a mask, rows that are picked, turned and whole."""
    T, D = x.shape
    z = hl.zeros([8, 2 * D + 3], dtype=hl.float32)
    s = hl.empty([2 * D + 3], dtype=hl.float32)
    for t in hl.tile(T):
        inner = hl.cat([x[t, :], y[t, :]], 1)
        made = hl.cat([inner, hl.full([t, 3], 2.0, dtype=hl.float32)], 1)
        row = hl.arange(2 * D + 3).to(hl.float32)
        hl.store(z, [w[t], slice(None)], made + row, mask=(t.index < 6)[:, None])
    for _ in hl.grid(1):
        s[:] = hl.cat([x[0:4, :], y[0:4, :], x[0:4, 0:3]], 1).T.sum(1)
    return z, s


@tile.kernel
def of_columns(x, w, u):
    """Columns of products, and a batch of them."""
    T = x.shape[0]
    y = hl.empty([T, w.shape[1] + u.shape[1]], dtype=hl.float32)
    for t in hl.tile(T):
        y[t, :] = hl.exp(hl.dot(x[t, :], hl.cat([w[:, :], u[:, :]], 1)))
    return y


def test_what_is_read_while_it_is_stored_stays():
    stays(ir_of(in_place, floats(6, 8)), separate_joins)
    assert "concat" not in str(separate_joins(ir_of(read_before, floats(6, 8))))


def test_what_is_needed_as_a_whole_stays():
    made = str(separate_joins(ir_of(carried, floats(2, 6, 8), floats(6, 3))))
    assert "max(both" in made and "acc_1 + both" in made


def test_a_kernel_without_joins_is_itself():
    ir = ir_of(of_columns, floats(6, 8), floats(8, 3), floats(8, 5))
    separated = separate_joins(ir)
    assert separated is not ir and separate_joins(separated) is separated


ROWS = np.array([3, 1, 7, 7, 0, 2, 5], np.int32)
CASES = {
    "rotated": (rotated, (floats(20, 24), floats(24), floats(20, 24)), {"t": 8}),
    "scores": (scores, SCORES, {"t": 8, "s": 4}),
    "in_place": (in_place, (floats(6, 8),), {"t": 4}),
    "read_before": (read_before, (floats(6, 8),), {"t": 4}),
    "carried": (carried, (floats(2, 6, 8), floats(6, 3)), {}),
    "of_three": (of_three, (floats(7, 5), floats(7, 5), ROWS), {"t": 4}),
    "of_columns": (of_columns, (floats(6, 8), floats(8, 3), floats(8, 5)), {"t": 4}),
}


def difference(name: str) -> float:
    """The largest one between results with joins and without, of the largest number."""
    kernel, arrays, blocks = CASES[name]
    ir = ir_of(kernel, *arrays)
    given = dict(zip((p.name for p in ir.params), arrays, strict=True))
    wanted, found = (
        evaluate(k, {n: a.copy() for n, a in given.items()}, blocks=blocks)
        for k in (ir, separate_joins(ir))
    )
    return max(float(np.abs(wanted[n] - found[n]).max() / np.abs(wanted[n]).max()) for n in wanted)


@pytest.mark.parametrize("name", CASES)
def test_kernels_mean_what_they_meant(name):
    assert difference(name) < 1e-6


def test_a_planted_bug_is_noticed(monkeypatch):
    """Pieces that all begin where the value does."""
    sized = separate_joins_file._sized

    def first(expr, dim, size):
        index = getattr(expr, "index", None)
        if index is None:
            return sized(expr, dim, size)
        span = index[-1]
        moved = type(span)(0, span.stop - span.start)
        return sized(type(expr)(expr.tensor, (*index[:-1], moved), expr.type), dim, size)

    monkeypatch.setattr(separate_joins_file, "_sized", first)
    assert difference("rotated") > 1e-2


# ---------------------------------------------------------------- gradients


@tile.kernel
def latent_attention(q, qr, k, kr, v, offsets):
    """Attention within groups whose keys have a content and a position, by online softmax."""
    (T, D), (_, R), (_, V) = q.shape, qr.shape, v.shape
    y = hl.zeros([T, V], dtype=v.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=T):
            query = hl.cat([q[t, :], qr[t, :]], 1) * (D + R) ** -0.5
            m = hl.full([t], -float("inf"), dtype=hl.float32)
            total = hl.zeros([t], dtype=hl.float32)
            acc = hl.zeros([t, V], dtype=hl.float32)
            for s in hl.tile(offsets[g], offsets[g + 1], max_extent=T):
                p = hl.dot(query, hl.cat([k[s, :], kr[s, :]], 1).T)
                new = hl.maximum(m, p.amax(1))
                p = hl.exp(p - new[:, None])
                alpha = hl.exp(m - new)
                total = total * alpha + p.sum(1)
                acc = acc * alpha[:, None] + hl.dot(p, v[s, :])
                m = new
            y[t, :] = acc / total[:, None]
    return y


def by_group(q, qr, k, kr, v, offsets):
    y = jnp.zeros_like(v)
    for begin, end in pairwise(offsets):
        if begin < end:
            rows = slice(int(begin), int(end))
            query = jnp.concatenate([q[rows], qr[rows]], 1) * query_scale(q, qr)
            p = query @ jnp.concatenate([k[rows], kr[rows]], 1).T
            y = y.at[rows].set(jax.nn.softmax(p, 1) @ v[rows])
    return y


def query_scale(q, qr):
    return (q.shape[1] + qr.shape[1]) ** -0.5


GRADIENTS = {
    "rotated": (
        rotated,
        CASES["rotated"][1],
        lambda x, cos, sin: x * cos + jnp.concatenate([-x[:, 12:], x[:, :12]], 1) * sin,
    ),
    "latent_attention": (
        latent_attention,
        (*(floats(30, n) for n in (16, 8, 16, 8, 16)), np.array([2, 9, 9, 10, 26], np.int32)),
        by_group,
    ),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_what_joined_values_pass_back(name):
    kernel, arrays, expected = GRADIENTS[name]
    places = tuple(n for n, a in enumerate(arrays) if a.dtype == np.float32)
    weights = floats(*expected(*arrays).shape)
    wanted = jax.grad(lambda *a: (expected(*a) * weights).sum(), places)(*arrays)
    given = [jnp.asarray(a) for a in arrays]
    found = jax.jit(jax.grad(lambda *a: (kernel(*a) * weights).sum(), places))(*given)
    for one, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, right, rtol=1e-4, atol=1e-5)
