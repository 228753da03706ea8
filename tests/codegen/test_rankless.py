"""Tensors without dimensions: scales, counts and bounds, with an index and without one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.subjects import HAS_TORCH
from tilelang.errors import ParseError, RaggedValueError, TypingError

X = np.arange(70 * 20, dtype=np.float32).reshape(70, 20) % 7


@tile.kernel
def scaled(x, s, n):
    """The first n rows times s, added s; host arithmetic, a bound, a condition, an op, a method."""
    out = hl.zeros(x.shape, dtype=hl.float32)
    half = n // 2
    for tm in hl.tile(n):
        for tn in hl.tile(x.shape[1]):
            value = x[tm, tn] * s + s[()] + hl.maximum(s, 0) + s.to(hl.float32)
            if s > 2:
                value = -value
            out[tm, tn] = hl.where((tm.index < half)[:, None], value, value + n)
    return out


@tile.kernel
def totals(x, start, offsets, pick):
    """y = start + the sum of the rows of one group; m = their largest; made without dimensions."""
    y, m = hl.zeros([], dtype=hl.float32), hl.full([], -1, dtype=hl.int32)
    for _ in hl.grid(1):
        acc = start
        top = 0
        for t in hl.tile(offsets[pick], offsets[pick + 1], max_extent=x.shape[0]):
            acc = acc + x[t, :].sum(1).sum(0)
            top = hl.maximum(top, t.end)
        y[()] = acc
        m[()] = top
    return y, m


def scaled_exact(s, n):
    value = X * s + s + max(s, 0) + s
    value = -value if s > 2 else value
    value = np.where((np.arange(70) < n // 2)[:, None], value, value + n)
    return np.where((np.arange(70) < n)[:, None], value, 0).astype(np.float32)


def callers():
    def arrays(make):
        return lambda f, x, s, *rest: f(make(x), make(np.asarray(s, np.float32)), *map(make, rest))

    yield "numpy", arrays(np.asarray)
    yield "jax", arrays(jnp.asarray)
    yield "jit", lambda f, *a: jax.jit(f)(*map(jnp.asarray, a))
    yield "reference", lambda f, x, s, *r: f.reference(x, np.float32(s)[...], *map(np.asarray, r))
    if HAS_TORCH:
        import torch

        yield (
            "torch",
            lambda f, x, s, *r: f(torch.tensor(x), torch.tensor(s), *map(torch.tensor, r)),
        )


@pytest.mark.parametrize("call", [pytest.param(c, id=n) for n, c in callers()])
def test_a_number_may_be_a_tensor(call):
    for s, n in ((0.5, 40), (3.0, 70), (-1.0, 0), (2.0, 1)):
        found = np.asarray(call(scaled, X, s, n))
        np.testing.assert_array_equal(found, scaled_exact(s, n))


@pytest.mark.parametrize("call", [pytest.param(c, id=n) for n, c in callers()])
def test_what_is_made_may_have_no_dimensions(call):
    offsets = np.array([0, 10, 10, 70])
    for pick in range(3):
        begin, end = offsets[pick], offsets[pick + 1]
        y, m = call(totals, X, 2.0, offsets, pick)
        assert np.shape(y) == np.shape(m) == ()
        assert float(y) == 2 + X[begin:end].sum() and int(m) == (end if end > begin else 0)


FORMS = ({"steps": "rectangle"}, {"loop_type": "worklist"}, {"loop_type": "fori_loop"})


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_every_form(form):
    for s, n in ((0.5, 40), (3.0, 70), (-1.0, 0)):
        config = tile.Config({"tm": 16}, **form)
        found = np.asarray(scaled(X, np.array(s, np.float32), np.array(n), config=config))
        np.testing.assert_array_equal(found, scaled_exact(s, n))


@tile.kernel
def where_any(x, offsets):
    """x where the one group has rows: the largest of a number over a loop that begins at -inf."""
    y = hl.zeros(x.shape, dtype=hl.float32)
    for tm in hl.tile(x.shape[0]):
        most = float("-inf")
        for g in hl.grid(1):
            most = hl.maximum(most, (offsets[g] < offsets[g + 1]).to(hl.float32))
        y[tm, :] = hl.where(most > 0.0, x[tm, :], 0.0)
    return y


def test_a_largest_number_begins_at_minus_infinity():
    np.testing.assert_array_equal(where_any(X, np.array([0, 3], np.int32)), X)
    np.testing.assert_array_equal(where_any(X, np.array([3, 3], np.int32)), 0 * X)


def test_a_bound_that_is_too_large():
    with pytest.raises(RaggedValueError) as caught:
        scaled(X, np.array(1, np.float32), np.array(71))
    assert caught.value.what == "n = 71 is past the 70 rows of x"
    assert caught.value.loc.text.strip() == "for tm in hl.tile(n):"


def test_a_store_to_an_argument_without_dimensions_is_refused():
    @tile.kernel
    def kernel(x, s):
        for tm in hl.tile(x.shape[0]):
            s[()] = x[tm, :].sum(1).sum(0)

    with pytest.raises(ParseError) as caught:
        kernel.source(X, np.array(1, np.float32))
    assert caught.value.what == "s is stored to, and has no dimensions"
    assert caught.value.hint == "pass an array of one element, or make an output, s = hl.zeros([])"


def test_a_number_that_was_made_is_read_by_an_index():
    @tile.kernel
    def kernel(x):
        total = hl.zeros([], dtype=hl.float32)
        y = hl.empty(x.shape, dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            hl.atomic_add(total, [], x[tm, :].sum(1).sum(0))
        for tm in hl.tile(x.shape[0]):
            y[tm, :] = x[tm, :] / hl.sqrt(total)
        return y

    with pytest.raises(TypingError) as caught:
        kernel.source(X)
    assert caught.value.what == "total is used whole, as if it were a value"
    assert caught.value.hint == "the number that it holds is total[()], in a loop"


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize("target", ["tpu:v4", "tpu:v5e", "tpu:v5p", "tpu:v6e"])
def test_the_compiler_takes_them(target):
    s, n = tile.spec((), "float32"), tile.spec((), "int32")
    x = tile.spec((700, 200), "float32")
    assert compiled(scaled, x, s, n, target=target)
    assert compiled(totals, x, s, tile.spec((4,), "int32"), n, target=target)
