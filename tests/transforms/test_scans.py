"""Gradients of what loops carry and read on the way: running sums, decays, states of chunks.

Each against JAX's gradient of an expression of its own, in blocks that are not the forward's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.derivatives import derived, gradients, named
from tests.tiers import share
from tilelang.analysis import analyze
from tilelang.transforms import derive

RNG = np.random.default_rng(0)
LAYOUTS = [[0, 7, 7, 30, 37], [0, 0, 0, 0, 0], [3, 4, 20, 36, 40], [0, 40, 40, 40, 40]]


def _floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


# ---------------------------------------------------------------- over indices


@tile.kernel
def running_sum(x):
    y = hl.zeros(x.shape, dtype=hl.float32)
    for tn in hl.tile(x.shape[1]):
        acc = hl.zeros([tn], dtype=hl.float32)
        for i in hl.grid(x.shape[0]):
            acc = acc + x[i, tn]
            y[i, tn] = acc
    return y


@tile.kernel
def decayed_sums(x, a, first):
    """s = a[i] * s + x[i], before and after each step and at the end, from a first value."""
    n, N = x.shape
    before, after = hl.zeros(x.shape, dtype=hl.float32), hl.zeros(x.shape, dtype=hl.float32)
    last = hl.zeros([N], dtype=hl.float32)
    for tn in hl.tile(N):
        s = first[tn]
        for i in hl.grid(n):
            before[i, tn] = s
            s = s * a[i] + x[i, tn]
            after[i, tn] = s * s
        last[tn] = s
    return before, after, last


def _decayed(x, a, first):
    def step(s, given):
        row, by = given
        new = s * by + row
        return new, (s, new * new)

    last, (before, after) = jax.lax.scan(step, first, (x, a))
    return before, after, last


@tile.kernel
def moving_averages(x, a):
    """h goes a part of the way to each row, and c turns its sign; both on both sides of a minus."""
    y, z = hl.zeros(x.shape, dtype=hl.float32), hl.zeros(x.shape, dtype=hl.float32)
    for tn in hl.tile(x.shape[1]):
        h, c = hl.zeros([tn], dtype=hl.float32), x[0, tn]
        for i in hl.grid(x.shape[0]):
            h = h + a[i] * (x[i, tn] - h)
            c = x[i, tn] - c * a[i] - (-c) * 0.25
            y[i, tn] = h
            z[i, tn] = c
    return y, z


def _moving_averages(x, a):
    def step(held, given):
        (h, c), (row, by) = held, given
        made = (1 - by) * h + by * row, row + (0.25 - by) * c
        return made, made

    return jax.lax.scan(step, (jnp.zeros(x.shape[1]), x[0]), (x, a))[1]


@tile.kernel
def only_the_last(x, a):
    """The same, of which only the end is stored; where a is negative nothing changes."""
    n, N = x.shape
    last = hl.zeros([N], dtype=hl.float32)
    for tn in hl.tile(N):
        s = hl.zeros([tn], dtype=hl.float32)
        for i in hl.grid(n):
            if a[i] > 0:
                s = s * a[i] + x[i, tn]
        last[tn] = s
    return last


def _only_the_last(x, a):
    s = jnp.zeros(x.shape[1])
    for i in range(x.shape[0]):
        s = jnp.where(a[i] > 0, s * a[i] + x[i], s)
    return (s,)


@tile.kernel
def sums_of_sums(x):
    """A running sum, and the running sum of that: each carry reads the other's new value."""
    y = hl.zeros(x.shape, dtype=hl.float32)
    total = hl.zeros([x.shape[1]], dtype=hl.float32)
    for tn in hl.tile(x.shape[1]):
        one = hl.zeros([tn], dtype=hl.float32)
        two = hl.zeros([tn], dtype=hl.float32)
        for i in hl.grid(x.shape[0]):
            one = one + x[i, tn]
            two = two * 0.5 + one * one
            y[i, tn] = two
        total[tn] = two + one
    return y, total


def _sums_of_sums(x):
    one, two, y = 0.0, 0.0, []
    for row in x:
        one = one + row
        two = two * 0.5 + one * one
        y.append(two)
    return jnp.stack(y), two + one


@tile.kernel
def linear_attention(q, k, v, w):
    """Chunks: what those before leave in a state that decays, and the causal part of each."""
    H, n, C, D = q.shape
    o = hl.zeros([H, n, C, v.shape[3]], dtype=q.dtype)
    for h in hl.grid(H):
        for te in hl.tile(v.shape[3]):
            state = hl.zeros([D, te], dtype=hl.float32)
            for c in hl.grid(n):
                i = hl.arange(C)
                s = hl.dot(q[h, c, :, :], k[h, c, :, :].T)
                s = hl.where(i[:, None] >= i[None, :], s, 0.0)
                o[h, c, :, te] = hl.dot(q[h, c, :, :], state) + hl.dot(s, v[h, c, :, te])
                state = state * w[h, c] + hl.dot(k[h, c, :, :].T, v[h, c, :, te])
    return o


def _linear_attention(q, k, v, w):
    def step(s, given):
        q, k, v, w = given
        return s * w + k.T @ v, q @ s + jnp.tril(q @ k.T) @ v

    def head(*given):
        return jax.lax.scan(step, jnp.zeros((q.shape[3], v.shape[3])), given)[1]

    return (jax.vmap(head)(q, k, v, w),)


DENSE = [
    (running_sum, (_floats(13, 8),), lambda x: (jnp.cumsum(x, 0),)),
    (decayed_sums, (_floats(9, 8), RNG.uniform(-1, 1, 9).astype(np.float32), _floats(8)), _decayed),
    (only_the_last, (_floats(9, 8), RNG.uniform(-1, 1, 9).astype(np.float32)), _only_the_last),
    (moving_averages, (_floats(9, 8), RNG.uniform(0, 1, 9).astype(np.float32)), _moving_averages),
    (sums_of_sums, (_floats(9, 8),), _sums_of_sums),
    (linear_attention, (*(_floats(2, 5, 4, 8) for _ in "qkv"), _floats(2, 5)), _linear_attention),
]


def compare(kernel: Any, arguments: tuple[Any, ...], exact: Callable[..., Any]) -> None:
    """Derived gradients in several blocks against JAX's, of every float argument."""
    ir, made = derived(kernel, arguments)
    places = [n for n, a in enumerate(arguments) if a.dtype == np.float32]

    def of_floats(*floats):
        given = list(arguments)
        for place, value in zip(places, floats, strict=True):
            given[place] = value
        return tuple(exact(*given))

    floats = tuple(jnp.asarray(arguments[n]) for n in places)
    results, pull = jax.vjp(of_floats, *floats)
    cotangents = [np.asarray(RNG.standard_normal(r.shape), np.float32) for r in results]
    wanted = pull(tuple(map(jnp.asarray, cotangents)))
    for block in (3, 8, 64):
        found = gradients(made, named(ir, arguments), cotangents, block)
        for place, want in zip(places, wanted, strict=True):
            name = ir.params[place].tensor
            assert name is not None
            scale = np.abs(want).max(initial=0) + 0.1
            error = np.abs(found[name] - want).max(initial=0)
            assert error <= 1e-5 * scale, (kernel.__name__, name, block)


@pytest.mark.parametrize(
    ("kernel", "arguments", "exact"), DENSE, ids=lambda v: getattr(v, "__name__", "")
)
@pytest.mark.slow
def test_carried_over_indices(kernel, arguments, exact):
    compare(kernel, arguments, exact)


def test_no_iterations():
    """Nothing is carried: what the loop began with is what it leaves."""
    arguments = (_floats(0, 8), _floats(0), _floats(8))
    ir, made = derived(decayed_sums, arguments)
    cotangents = [_floats(0, 8), _floats(0, 8), _floats(8)]
    found = gradients(made, named(ir, arguments), cotangents)
    np.testing.assert_array_equal(found["first"], cotangents[2])


def test_the_state_of_every_chunk_is_saved():
    """What the forward kernel meets is stored by it, and not computed again."""
    text = linear_attention.grad_source(*DENSE[-1][1])
    assert "saved_state[h, c, :, te] = state" in text
    assert "d_state[h, 4 - c, :, te] = state" in text
    assert text.count("@tile.kernel") == 4


@pytest.mark.slow
def test_a_gradient_of_a_gradient():
    """The adjoint of a loop that runs back runs forward."""
    x, a, first = map(jnp.asarray, DENSE[1][1])

    def loss(of):
        def inner(x, a, first):
            return sum((r * jnp.cos(r)).sum() for r in of(x, a, first))

        return lambda *given: sum((g**2).sum() for g in jax.grad(inner, (0, 1, 2))(*given))

    found = jax.grad(loss(decayed_sums), (0, 1, 2))(x, a, first)
    wanted = jax.grad(loss(_decayed), (0, 1, 2))(x, a, first)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-4)


# ---------------------------------------------------------------- over rows of groups, and tiles


@tile.kernel
def row_by_row(x, a, offsets):
    """The decayed sum of the rows of each group so far."""
    y = hl.zeros(x.shape, dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for tn in hl.tile(x.shape[1]):
            s = hl.zeros([tn], dtype=hl.float32)
            for i in hl.grid(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
                s = s * a[i] + x[i, tn]
                y[i, tn] = s
    return y


def _row_by_row(x, a, offsets):
    y = jnp.zeros_like(x)
    for begin, end in itertools.pairwise(offsets):
        s = jnp.zeros(x.shape[1])
        for i in range(int(begin), int(end)):
            s = s * a[i] + x[i]
            y = y.at[i].set(s)
    return (y,)


@tile.kernel
def jagged_linear_attention(q, k, v, offsets):
    """Causal attention without a softmax, by a state that tiles hand on."""
    T, D = q.shape
    o = hl.zeros([T, v.shape[1]], dtype=q.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for te in hl.tile(v.shape[1]):
            state = hl.zeros([D, te], dtype=hl.float32)
            for t in hl.tile(offsets[g], offsets[g + 1], max_extent=T):
                s = hl.dot(q[t, :], k[t, :].T)
                s = hl.where(t.index[:, None] >= t.index[None, :], s, 0.0)
                o[t, te] = hl.dot(q[t, :], state) + hl.dot(s, v[t, te])
                state = state + hl.dot(k[t, :].T, v[t, te])
    return o


def _jagged_linear_attention(q, k, v, offsets):
    place = jnp.arange(q.shape[0])
    group = jnp.searchsorted(offsets, place, side="right") - 1
    inside = (place >= offsets[0]) & (place < offsets[-1])
    seen = (group[:, None] == group) & inside[:, None] & inside & (place[:, None] >= place)
    return (jnp.where(seen, q @ k.T, 0) @ v,)


@tile.kernel
def running_product(a, first, offsets):
    """exp of the running sum of each group, times its first number: tiles scale what they met."""
    T, N = a.shape
    y = hl.zeros([T, N], dtype=hl.float32)
    last = hl.zeros([offsets.shape[0] - 1, N], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for tn in hl.tile(N):
            s = first[g, tn]
            for t in hl.tile(offsets[g], offsets[g + 1], max_extent=T):
                before = hl.where(t.index[:, None] >= t.index[None, :], 1.0, 0.0)
                y[t, tn] = hl.exp(hl.dot(before, a[t, tn])) * s[None, :]
                s = s * hl.exp(a[t, tn].sum(0))
            last[g, tn] = s
    return y, last


def _running_product(a, first, offsets):
    y, last = jnp.zeros_like(a), []
    for g, (begin, end) in enumerate(itertools.pairwise(offsets)):
        rows = jnp.exp(jnp.cumsum(a[begin:end], 0)) * first[g]
        y = y.at[begin:end].set(rows)
        last.append(rows[-1] if end > begin else first[g])
    return y, jnp.stack(last)


@pytest.mark.parametrize("offsets", share(LAYOUTS, 4))
def test_tiles_that_scale(offsets):
    given = (0.3 * _floats(40, 8), _floats(4, 8), np.array(offsets, np.int32))
    compare(running_product, given, _running_product)


@pytest.mark.parametrize("offsets", share(LAYOUTS, 4))
def test_rows_of_groups(offsets):
    given = (_floats(40, 8), RNG.uniform(-1, 1, 40).astype(np.float32), np.array(offsets, np.int32))
    compare(row_by_row, given, _row_by_row)


@pytest.mark.parametrize("offsets", LAYOUTS, ids=str)
def test_tiles_of_groups(offsets):
    given = (*(_floats(40, 8) for _ in "qkv"), np.array(offsets, np.int32))
    compare(jagged_linear_attention, given, _jagged_linear_attention)


def test_what_runs_over_tiles_is_differentiated_twice():
    """Every kernel of the backward has one: of a tile of fixed length by its number."""
    given = (*(_floats(40, 8) for _ in "qkv"), np.array(LAYOUTS[0], np.int32))
    for launch in derived(jagged_linear_attention, given)[1].launches:
        ir = launch.kernel
        again = derive(ir, analyze(ir), frozenset(launch.operands))
        assert again.launches


@pytest.mark.slow
@pytest.mark.parametrize("offsets", [[0, 37, 37, 130, 190], [5, 6, 64, 128, 129]], ids=str)
def test_a_gradient_of_a_gradient_of_tiles(offsets):
    """Groups that begin and end within a tile, and several of its numbers."""
    q, k, v = (jnp.asarray(0.3 * _floats(200, 8)) for _ in "qkv")
    cuts = jnp.array(offsets)

    def loss(of):
        def inner(*given):
            return sum((r * r).sum() for r in of(*given, cuts))

        return lambda *given: sum((g**2).sum() for g in jax.grad(inner, (0, 1, 2))(*given))

    found = jax.jit(jax.grad(loss(lambda *a: (jagged_linear_attention(*a),)), (0, 1, 2)))(q, k, v)
    wanted = jax.grad(loss(_jagged_linear_attention), (0, 1, 2))(q, k, v)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4 * float(abs(other).max()))


def test_many_tiles():
    """Tiles have 128 positions in the backward: here are three and a part, and one alone."""
    given = (*(_floats(600, 8) for _ in "qkv"), np.array([0, 450, 450, 560], np.int32))
    compare(jagged_linear_attention, given, _jagged_linear_attention)


def test_rows_in_no_group_hold_anything():
    given = [*(_floats(40, 8) for _ in "qkv"), np.array([3, 20, 30], np.int32)]
    ir, made = derived(jagged_linear_attention, given)
    cotangent, free = _floats(40, 8), np.r_[0:3, 30:40]
    wanted = gradients(made, named(ir, given), [cotangent])
    for array in (*given[:3], cotangent):
        array[free] = np.nan
    found = gradients(made, named(ir, given), [cotangent])
    for name, gradient in found.items():
        np.testing.assert_array_equal(gradient, wanted[name])
        assert (gradient[free] == 0).all()


@pytest.mark.slow
def test_in_the_interpreter_by_jax():
    """Where tiles are cut at multiples of their length: of 15 rows in two tiles, and of none."""
    offsets = jnp.array([5, 120, 135, 135, 300])
    q, k, v = (jnp.asarray(_floats(300, 8)) for _ in "qkv")
    cotangent, ends = _floats(300, 8), _floats(4, 8)

    def attended(of, *given):
        return (of(*given, offsets) * cotangent).sum()

    def scaled(of, a, first):
        y, last = of(a, first, offsets)
        return (y * cotangent).sum() + (last * ends).sum()

    attention = jagged_linear_attention, lambda *a: _jagged_linear_attention(*a)[0]
    for loss, pair, given in (
        (attended, attention, (q, k, v)),
        (scaled, (running_product, _running_product), (0.05 * q, v[:4])),
    ):
        places = tuple(range(len(given)))
        found, wanted = (jax.grad(loss, tuple(n + 1 for n in places))(of, *given) for of in pair)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)
