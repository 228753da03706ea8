"""Derived gradients of the examples are those of JAX, of an independent expression of each.

Derived kernels run in the NumPy reference, launch by launch, on adversarial layouts; rows in no
group hold NaN and Inf, in the arguments and in the cotangents, and get exactly nothing.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged.segment_reduction import segment_reduction
from tests import checks
from tests.derivatives import derived, gradients, named, parsed
from tests.frameworks import needs_examples_in_torch
from tests.ragged import Layout, Space, covered, every_stratum, poison
from tests.subjects import DENSE, JAGGED, SUBJECTS, Subject
from tests.tiers import HALF, share
from tilelang.transforms import derive

SPACE = Space(rows=40, groups=4, block=16)
LAYOUTS = every_stratum(SPACE)
HARD = [la for la in LAYOUTS if la.stratum in ("edges and empties", "gaps on both sides")]

# Every example is a differentiable function of its float arguments.
NOT_DIFFERENTIABLE: dict[str, str] = {}

Call = Callable[..., Any]


# ---------------------------------------------------------------- what JAX says


def _attention(mask: Callable[..., Any], heads: int | None = None, lse: bool = False) -> Call:
    """Softmax attention over [H, T, D] with a mask; JAX's gradient of others has 0 * NaN."""

    def attention(q: Any, k: Any, v: Any, offsets: Any, *static: Any) -> Any:
        if heads == 1:
            q, k, v = (jnp.swapaxes(x, 0, 1) for x in (q, k, v))
        repeat = q.shape[0] // k.shape[0]
        k, v = jnp.repeat(k, repeat, 0), jnp.repeat(v, repeat, 0)
        place = jnp.arange(q.shape[1])
        group = jnp.searchsorted(offsets, place, side="right") - 1
        inside = (place >= offsets[0]) & (place < offsets[-1])
        seen = (group[:, None] == group) & inside[:, None] & inside
        seen &= mask(place[:, None], place)
        scores = jnp.einsum("hqd,hkd->hqk", q, k) * q.shape[-1] ** -0.5
        scores = jnp.where(seen, scores, -1e30)
        out = jnp.einsum("hqk,hkd->hqd", jnp.where(seen, jax.nn.softmax(scores), 0), v)
        out = jnp.swapaxes(out, 0, 1) if heads == 1 else out
        if not lse:
            return out
        return out, jnp.where(inside, jax.nn.logsumexp(scores, -1), 0)

    return attention


def _causal(q: Any, k: Any) -> Any:
    return k <= q


def _everything(q: Any, k: Any) -> Any:
    return k <= k


INDEPENDENT: dict[str, Call] = {
    "jagged_attention": _attention(_everything),
    "jagged_attention_causal": _attention(_causal),
    "sliding_window_attention": _attention(lambda q, k: (k <= q) & (q - k < 20)),
    "grouped_query_attention": _attention(_causal),
    "varlen_attention": _attention(_causal, heads=1),
    "attention_with_lse": _attention(_everything, lse=True),
}


def _expected(
    subject: Subject, arguments: Sequence[Any], names: Sequence[int], seed: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Cotangents of the results, and JAX's gradients of the arguments at some places."""
    function = INDEPENDENT.get(subject.name, subject.baseline)

    def call(*moved: Any) -> tuple[Any, ...]:
        own = list(arguments)
        for place, value in zip(names, moved, strict=True):
            own[place] = value
        return checks.parts(function(*own))

    results, pull = jax.vjp(call, *(jnp.asarray(arguments[n]) for n in names))
    rng = np.random.default_rng(seed)
    cotangents = [rng.standard_normal(r.shape).astype(np.float32) for r in results]
    wanted = pull(tuple(c.astype(r.dtype) for c, r in zip(cotangents, results, strict=True)))
    return cotangents, [np.asarray(w) for w in wanted]


# ---------------------------------------------------------------- derived


@functools.cache
def _derivative(name: str) -> Any:
    subject = next(s for s in SUBJECTS if s.name == name)
    return derived(subject.kernel, arguments_of(subject, LAYOUTS[-1]))


# Arguments of which the kernel multiplies what it masks after that: 0 * NaN is NaN, as in JAX.
MULTIPLIED = {"paged_attention": (1, 2)}
# Every row of the result is one of the caller's, also where its slots belong to no group.
ALIVE = {"moe"}


def arguments_of(subject: Subject, layout: Layout | None) -> tuple[Any, ...]:
    if subject.ragged is None:
        return subject.arguments(subject.arrays("float32"))
    arrays = subject.arrays("float32", rows=SPACE.rows, groups=SPACE.groups)
    given = list(subject.arguments(arrays, layout))
    for place in MULTIPLIED.get(subject.name, ()):
        given[place] = np.nan_to_num(given[place], posinf=0.0, neginf=0.0)
    return tuple(given)


def _hidden(
    subject: Subject, arguments: Sequence[Any], cotangents: list[np.ndarray], layout: Layout
) -> tuple[list[Any], list[np.ndarray]]:
    """Arguments and cotangents with NaN and Inf in all rows that belong to no group."""
    ragged = checks.ragged_of(subject)
    cuts = layout.tensors(ragged.offsets)
    count = len(arguments) - ragged.offsets - len(subject.static)
    arrays = checks.hide_free_rows(subject, tuple(arguments[:count]), cuts)
    dead = list(cotangents)
    for place, axis in enumerate(ragged.outs):
        if axis is not None and subject.name not in ALIVE:
            rows = covered(cuts[ragged.of_result(place)], dead[place].shape[axis])
            dead[place] = poison(dead[place], rows, axis)
    return [*arrays, *arguments[count:]], dead


def compare(subject: Subject, layout: Layout | None, block: int, run: Call = gradients) -> str:
    """What is wrong with the gradients of an example; "" if nothing is."""
    ir, made = _derivative(subject.name)
    places = {p.tensor: n for n, p in enumerate(ir.params)}
    names = [name for name, _ in made.gradients]
    arguments = arguments_of(subject, layout)
    cotangents, wanted = _expected(subject, arguments, [places[n] for n in names], seed=1)
    if layout is not None:
        arguments, cotangents = _hidden(subject, arguments, cotangents, layout)
    found = run(made, named(ir, arguments), cotangents, block)
    for name, exact in zip(names, wanted, strict=True):
        error = np.abs(found[name] - exact).max(initial=0)
        scale = np.abs(exact).max(initial=0) + 0.1  # terms of about 1 may cancel to 0
        if not error <= 1e-5 * scale:
            return f"d_{name} on {layout}: error {error:.1e} of {scale:.1e}"
    return ""


def numeric(subject: Subject, layout: Layout | None) -> str:
    """What differs from the differences of the example's own expression; "" if nothing does."""
    ir, made = _derivative(subject.name)
    arguments = list(arguments_of(subject, layout))
    for place, value in enumerate(arguments):
        if getattr(value, "dtype", None) == np.float32:
            arguments[place] = np.nan_to_num(value, posinf=0, neginf=0)
    places = {p.tensor: n for n, p in enumerate(ir.params)}
    rng = np.random.default_rng(2)
    results = checks.parts(subject.oracle(*arguments))
    cotangents = [rng.standard_normal(r.shape).astype(np.float32) for r in results]
    found = gradients(made, named(ir, arguments), cotangents, 16)

    def loss(place: int, moved: np.ndarray) -> float:
        given = [moved if n == place else a for n, a in enumerate(arguments)]
        made = checks.parts(subject.oracle(*given))
        return sum(float((np.float64(r) * c).sum()) for r, c in zip(made, cotangents, strict=True))

    for name, _ in made.gradients:
        place = places[name]
        own, step = np.float64(arguments[place]), 1e-3
        direction = rng.standard_normal(own.shape)
        slope = (loss(place, own + step * direction) - loss(place, own - step * direction)) / (
            2 * step
        )
        exact = float((np.float64(found[name]) * direction).sum())
        allowed = 2e-2 * (np.linalg.norm(found[name]) + 0.1)
        if not abs(slope - exact) <= allowed:
            return f"d_{name}: {exact:.5g}, numeric {slope:.5g}, {allowed:.2g} allowed"
    return ""


@pytest.mark.parametrize("subject", share(SUBJECTS, 9, 2))
def test_finite_differences(subject):
    """Of what the example says of itself in NumPy, along a random direction of each argument."""
    assert numeric(subject, HARD[0] if subject.ragged is not None else None) == ""


@pytest.mark.parametrize("subject", share(JAGGED, 16, 1, HALF))
def test_jagged(subject):
    assert [w for w in (compare(subject, layout, 32) for layout in HARD) if w] == []


@pytest.mark.parametrize("subject", JAGGED, ids=str)
@pytest.mark.thorough
def test_jagged_on_every_layout(subject):
    assert [w for w in (compare(subject, layout, 16) for layout in LAYOUTS) if w] == []


@pytest.mark.parametrize("subject", share(DENSE, 6, rest=HALF))
def test_dense(subject):
    assert compare(subject, None, 32) == ""


@tile.kernel
def scaled_groups(x, w, offsets):
    y = hl.zeros(x.shape, dtype=hl.float32)
    for g in hl.grid(w.shape[0]):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm, :] = x[tm, :] * hl.exp(w[g, :])[None, :]
    return y


@tile.kernel
def scaled_by_one(x, w, offsets):
    """Rows of all groups times the same two numbers per column."""
    y = hl.zeros(x.shape, dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm, :] = x[tm, :] * (w[0, :] * w[1, :])[None, :]
    return y


@pytest.mark.parametrize("offsets", [[0, 0, 0], [8, 8, 8], [0, 0, 8]], ids=str)
def test_weights_that_no_group_reads(offsets):
    """Where one group has rows the weights are read; where none has, they may be anything."""
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, 8, 16)).astype(np.float32)
    w, rows = rng.standard_normal((2, 16)).astype(np.float32), offsets[-1] - offsets[0]
    if not rows:
        w[:] = np.nan
    given = (x, w, np.array(offsets, np.int32))
    ir, made = derived(scaled_by_one, given)
    found = gradients(made, named(ir, given), [dy])["w"]
    both = (dy * x)[:rows].sum(0)
    np.testing.assert_allclose(found, both * w[::-1] if rows else 0 * dy[:2], rtol=1e-5, atol=1e-5)


def test_a_group_without_rows():
    """It does not read its weights, whatever they hold; their gradient is 0."""
    rng = np.random.default_rng(0)
    x, dy = rng.standard_normal((2, 8, 16)).astype(np.float32)
    w = rng.standard_normal((3, 16)).astype(np.float32)
    offsets = np.array([0, 5, 5, 8], np.int32)
    w[1] = np.nan
    ir, made = derived(scaled_groups, (x, w, offsets))
    found = gradients(made, named(ir, (x, w, offsets)), [dy])["w"]
    wanted = np.stack([(dy[a:b] * x[a:b]).sum(0) for a, b in itertools.pairwise(offsets)])
    np.testing.assert_allclose(found[[0, 2]], (wanted * np.exp(w))[[0, 2]], rtol=1e-5)
    assert (found[1] == 0).all()


@tile.kernel
def chosen_groups(x, w, offsets, most):
    """A product of rows and weights, in the groups that are short enough; rows summed in both."""
    y, z = hl.zeros(x.shape, dtype=hl.float32), hl.zeros(w.shape, dtype=hl.float32)
    for g in hl.grid(w.shape[0]):
        for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            if offsets[g + 1] - offsets[g] < most:
                y[tm, :] = hl.log(x[tm, :]) * hl.exp(w[g, :])[None, :]
        z[g, :] = w[g, :] * w[g, :]
    return y, z


def test_what_an_if_leaves_out_has_no_share():
    """Rows that are not read hold anything: their gradient is 0, and so is what they add to w's."""
    rng = np.random.default_rng(0)
    x, dy = rng.uniform(1, 2, (2, 12, 16)).astype(np.float32)
    w, dz = rng.standard_normal((2, 3, 16)).astype(np.float32)
    offsets, most = np.array([0, 3, 10, 12], np.int32), np.array(4, np.int32)
    x[3:10] = np.nan  # the group that is too long
    arguments = (x, w, offsets, most)
    ir, made = derived(chosen_groups, arguments)
    found = gradients(made, named(ir, arguments), [dy, dz])
    rows, kept = np.repeat(np.exp(w), np.diff(offsets), 0), np.r_[0:3, 10:12]
    wanted = np.zeros_like(x)
    wanted[kept] = (dy * rows / x)[kept]
    np.testing.assert_allclose(found["x"], wanted, rtol=1e-5)
    terms = np.zeros_like(x)
    terms[kept] = (dy * np.log(x) * rows)[kept]
    sums = [terms[a:b].sum(0) for a, b in itertools.pairwise(offsets)]
    np.testing.assert_allclose(found["w"], np.stack(sums) + 2 * w * dz, rtol=1e-5, atol=1e-6)


def test_equal_rows_share_the_gradient_of_a_maximum():
    """Whatever tiles they are in: as JAX's maximum of a whole segment."""
    rows, offsets = np.array([1, 3, 3, 2, 3, 0], np.float32), np.array([0, 5, 6], np.int32)
    x = np.repeat(rows[:, None], 8, 1)
    ir, made = derived(segment_reduction, (x, offsets))
    cotangents = [np.zeros((2, 8), np.float32), np.ones((2, 8), np.float32)]
    for block in (1, 2, 4, 128):
        found = gradients(made, named(ir, (x, offsets)), cotangents, block)["x"]
        np.testing.assert_allclose(found[:, 0], [0, 1 / 3, 1 / 3, 0, 1 / 3, 1], rtol=1e-6)


@tile.kernel
def detached(x, w):
    """In torch's words and in JAX's; what is added to the total of weights counts."""
    M, N = x.shape
    y = hl.zeros([M, N], dtype=hl.float32)
    for tm in hl.tile(M):
        block = x[tm, :]
        m = hl.max(block, 1).detach()
        p = hl.exp(block - m[:, None])
        scale = jax.lax.stop_gradient(w[:] * w[:])
        y[tm, :] = p / (p.sum(1) + 1e-2)[:, None] * scale[None, :] + (
            x[tm, :].detach() * w[:][None, :]
        )
    return y


def test_what_is_detached_has_no_gradient():
    """Not in the gradient of the gradient either; and what is computed is the same."""
    x, w = np.random.default_rng(0).standard_normal((2, 12, 12)).astype(np.float32)
    w, kernel = w[0], tile.kernel(detached.__wrapped__)

    def exact(x, w):
        stop = jax.lax.stop_gradient
        p = jnp.exp(x - stop(x.max(1, keepdims=True)))
        return p / (p.sum(1, keepdims=True) + 1e-2) * stop(w * w) + stop(x) * w

    np.testing.assert_allclose(kernel(x, w), exact(x, w), rtol=1e-5, atol=1e-6)

    def of(function):
        once = jax.grad(lambda x, w: (jnp.sin(function(x, w)) * x).sum(), (0, 1))
        twice = jax.grad(lambda x, w: sum((g * g).sum() for g in once(x, w)), (0, 1))
        return [*once(x, w), *twice(x, w)]

    for mine, wanted in zip(of(kernel), of(exact), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-4, atol=1e-4)
    assert "hl.detach(" in kernel.grad_source(x, w)


def test_nothing_is_computed_that_is_not_wanted():
    subject = next(s for s in SUBJECTS if s.name == "grouped_gemm")
    kernel, facts = parsed(subject.kernel, arguments_of(subject, LAYOUTS[-1]))
    only = derive(kernel, facts, frozenset(("w", "offsets")))
    assert [launch.results for launch in only.launches] == [("d_w",)]
    assert (only.forward, only.saved, only.zeros) == (kernel, (), ())
    assert derive(kernel, facts, frozenset()).launches == ()


@needs_examples_in_torch
def test_examples_that_are_no_functions_are_named():
    assert {s.name for s in SUBJECTS} >= set(NOT_DIFFERENTIABLE)
    assert len(SUBJECTS) - len(NOT_DIFFERENTIABLE) >= 45
