"""Arrays that a loop stores to, and reads at other places: recurrences and dynamic programming."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import needs_libtpu
from tests.compile_cache import TPU, shared
from tests.passes.becomes import again
from tilelang.aot import compile_lowered
from tilelang.codegen.pallas.plan.body import shown
from tilelang.codegen.pallas.plan.windows import choose
from tilelang.codegen.pallas.plan.windows.types import Packed
from tilelang.errors import PlanError

RNG = np.random.default_rng(5)
OFFSETS = np.array([0, 7, 7, 8, 20], np.int32)
OTHERS = np.array([0, 3, 9, 9, 15], np.int32)
X = RNG.standard_normal((20, 150)).astype(np.float32)
V, W = X[:, 0], RNG.standard_normal(15).astype(np.float32)
L = np.tril(RNG.standard_normal((20, 20)).astype(np.float32) * 0.2, -1) + np.diag(2 + V**2)
BYTES = RNG.integers(-128, 128, (70, 50)).astype(np.int8)
FAR = 1e30


@tile.kernel
def decayed(x, offsets):
    """y[r] = x[r] + y[r - 1] / 2, within each group."""
    y = hl.zeros_like(x)
    for g in hl.grid(offsets.shape[0] - 1):
        for r in hl.grid(offsets[g], offsets[g + 1]):
            if r == offsets[g]:
                y[r, :] = x[r, :]
            else:
                y[r, :] = x[r, :] + y[r - 1, :] * 0.5
    return y


@tile.kernel
def numbers(v, offsets):
    """The same of numbers, which lie in one row."""
    y = hl.zeros_like(v)
    for g in hl.grid(offsets.shape[0] - 1):
        for r in hl.grid(offsets[g], offsets[g + 1]):
            y[r] = v[r]
            if r > offsets[g]:
                y[r] = y[r] + y[r - 1] * 0.5
    return y


@tile.kernel
def warped(v, w, offsets, others):
    """Dynamic time warping of ragged pairs: the table of each, from its last number on back."""
    B = offsets.shape[0] - 1
    table = hl.full([B, v.shape[0] + 1, w.shape[0] + 1], FAR, dtype=hl.float32)
    cost = hl.zeros([B], dtype=hl.float32)
    for b in hl.grid(B):
        table[b, 0, 0] = 0.0
        for i in hl.grid(offsets[b + 1] - offsets[b]):
            for j in hl.grid(others[b + 1] - others[b]):
                least = hl.minimum(table[b, i, j], table[b, i, j + 1])
                least = hl.minimum(least, table[b, i + 1, j])
                table[b, i + 1, j + 1] = least + hl.abs(v[offsets[b] + i] - w[others[b] + j])
        cost[b] = table[b, offsets[b + 1] - offsets[b], others[b + 1] - others[b]]
    return cost


@tile.kernel
def solved(lower, x):
    """lower @ y = x, row after row: each goes by all that there are."""
    n, m = x.shape
    y = hl.zeros([n, m], dtype=hl.float32)
    for i in hl.grid(n):
        before = hl.where(hl.arange(n) < i, lower[i, :], 0.0)
        y[i, :] = (x[i, :] - (before[:, None] * y[:, :]).sum(0)) / lower[i, i]
    return y


@tile.kernel
def interleaved(x):
    """Two places of one loop, of which every turn has its own."""
    n, d = x.shape
    y = hl.empty([2 * n, d], dtype=x.dtype)
    for i in hl.grid(n):
        y[2 * i, :] = x[i, :]
        y[2 * i + 1, :] = x[i, :] * 2.0
    return y


@tile.kernel
def rising(x):
    """Bytes, of which a register has 32 rows."""
    y = hl.zeros_like(x)
    for _ in hl.grid(1):
        y[0, :] = x[0, :]
        for i in hl.grid(1, x.shape[0]):
            y[i, :] = hl.maximum(x[i, :], y[i - 1, :])
    return y


@tile.kernel
def multiplied(a):
    """p[i] = a[0] @ ... @ a[i]"""
    p = hl.zeros_like(a)
    for _ in hl.grid(1):
        p[0, :, :] = a[0, :, :]
        for i in hl.grid(1, a.shape[0]):
            p[i, :, :] = p[i - 1, :, :] @ a[i, :, :]
    return p


@tile.kernel
def dispatched(x, experts):
    """Rows in the order of their experts, each with a counter that the loop itself stores to."""
    y = hl.zeros([3, 8, x.shape[1]], dtype=x.dtype)
    flat = hl.zeros([24, x.shape[1]], dtype=x.dtype)
    count = hl.zeros([3], dtype=hl.int32)
    for i in hl.grid(x.shape[0]):
        e = experts[i]
        at = count[e]
        if at < 8:
            y[e, count[e], :] = x[i, :]
            flat[e * 8 + at, :] = x[i, :]
        count[e] = at + 1
    return y, flat, count


def halves(x, offsets):
    y = np.zeros_like(x)
    for g in range(len(offsets) - 1):
        for r in range(offsets[g], offsets[g + 1]):
            y[r] = x[r] + (y[r - 1] / 2 if r > offsets[g] else 0)
    return y


def costs(v, w, offsets, others):
    found = []
    for b in range(len(offsets) - 1):
        one, other = v[offsets[b] : offsets[b + 1]], w[others[b] : others[b + 1]]
        table = np.full((len(one) + 1, len(other) + 1), FAR, np.float32)
        table[0, 0] = 0
        for i, a in enumerate(one):
            for j, c in enumerate(other):
                least = min(table[i, j], table[i, j + 1], table[i + 1, j])
                table[i + 1, j + 1] = least + abs(a - c)
        found.append(table[-1, -1])
    return np.array(found)


def products(a):
    found = [a[0]]
    for each in a[1:]:
        found.append(found[-1] @ each)
    return np.stack(found)


def by_experts(x, experts):
    y = np.zeros((3, 8, x.shape[1]), np.float32)
    for e in range(3):
        own = x[experts == e][:8]
        y[e, : len(own)] = own
    return y, y.reshape(24, -1), np.bincount(experts, minlength=3)


EXPERTS = np.array([0, 2, 2] * 6 + [2, 0], np.int32)  # of one there are more than 8, of one none
A = (RNG.standard_normal((6, 33, 33)) * 0.2).astype(np.float32)
CASES = {
    decayed: ((X, OFFSETS), halves(X, OFFSETS)),
    numbers: ((V, OFFSETS), halves(V, OFFSETS)),
    warped: ((V, W, OFFSETS, OTHERS), costs(V, W, OFFSETS, OTHERS)),
    solved: ((L, X), np.linalg.solve(L.astype(np.float64), X)),
    interleaved: ((X,), np.stack([X, 2 * X], 1).reshape(40, 150)),
    rising: ((BYTES,), np.maximum.accumulate(BYTES)),
    multiplied: ((A,), products(A)),
    dispatched: ((X, EXPERTS), by_experts(X, EXPERTS)),
}
FORMS = (None, "grid", "outer_pipeline", "fori_loop", "emit_pipeline", "worklist")


def name(kernel):
    return kernel.__name__


@pytest.mark.parametrize("kernel", CASES, ids=name)
def test_what_a_turn_before_stored(kernel):
    arguments, expected = CASES[kernel]
    ran = []
    for form in FORMS:
        config = tile.Config() if form is None else tile.Config(loop_type=form)
        try:
            made = kernel(*arguments, config=config)
        except PlanError as error:
            assert form is not None, error
            continue
        several = isinstance(expected, tuple)
        pairs = zip(made, expected, strict=True) if several else [(made, expected)]
        for one, want in pairs:
            np.testing.assert_allclose(one, want, rtol=1e-4, atol=1e-4, err_msg=str(form))
        ran.append(form)
    assert len(ran) > 1, "one form beside the default at least"


def test_counters_say_where_rows_go():
    """No scalar unit has a counter that the step changes: all rows are looked through."""
    text = str(again(dispatched).source(X, EXPERTS, target="tpu:v5e"))
    assert "y_ref[jnp.clip(experts[i], 0, 2)] = jnp.where(" in text
    assert "flat_ref[...] = jnp.where(" in text and "pl.ds(at" not in text


@needs_libtpu
@pytest.mark.parametrize("chip", ["v5e", "v6e"])
@pytest.mark.parametrize("kernel", CASES, ids=name)
def test_the_compiler_takes_them(kernel, chip):
    compile_lowered(kernel.lower(*CASES[kernel][0], target=f"tpu:{chip}"), worker=shared(TPU))


def test_an_array_that_no_memory_holds_is_refused():
    x = np.zeros((400_000, 150), np.float32)
    with pytest.raises(PlanError, match="y is stored and also used at another place") as caught:
        interleaved.lower(x, target="tpu:v5e")
    assert "where vector memory holds the array" in caught.value.hint


def test_planted_the_place_of_the_window(monkeypatch):
    """A window that shows all of an array has no place: each reference has its own."""
    arguments, expected = CASES[decayed]
    packed_in = shown.packed_in

    def first(arrays, entry, dim, place):
        return dim if isinstance(dim, Packed) else packed_in(arrays, entry, dim, place)

    monkeypatch.setattr("tilelang.codegen.pallas.plan.body.lower.packed_in", first)
    monkeypatch.setattr(shown, "packed_in", first)
    assert not np.allclose(again(decayed)(*arguments), expected)


def test_planted_constant_places_alone(monkeypatch):
    monkeypatch.setattr(choose, "several", lambda *_: frozenset())
    with pytest.raises(PlanError, match="stored and also used at another place"):
        again(decayed)(*CASES[decayed][0])
