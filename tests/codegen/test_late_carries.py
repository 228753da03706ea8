"""Carries that begin as constants, and become something else in a later turn than others."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.passes.becomes import again

X = (np.arange(5 * 6 * 8, dtype=np.float32) * 7 % 9 - 4).reshape(5, 6, 8)
PAGES, COUNTS = np.array([1, 4, 2], np.int32), np.array([3, 0, 1], np.int32)


@tile.kernel
def exchanged(counts, pages, x):
    """Sums of every other page; found by random kernel 3000039."""
    y = hl.zeros([counts.shape[0], x.shape[2]], dtype=hl.float32)
    for i in hl.grid(counts.shape[0]):
        a = hl.zeros([x.shape[2]], dtype=hl.float32)
        b = hl.zeros([x.shape[2]], dtype=hl.float32)
        for p in hl.grid(counts[i], max_extent=3):
            a, b = b, a + x[pages[p], :, :].sum(0)
        y[i, :] = a - 2 * b
    return y


@tile.kernel
def of_columns(counts, pages, x):
    """The same of the sums of rows, which TPUs hold as columns, and of whole pages."""
    y = hl.zeros([counts.shape[0], *x.shape[1:]], dtype=hl.float32)
    for i in hl.grid(counts.shape[0]):
        a = hl.zeros([x.shape[1]], dtype=hl.float32)
        b = hl.full([x.shape[1]], 3.0, dtype=hl.float32)
        whole, other = (
            hl.zeros(x.shape[1:], dtype=x.dtype),
            hl.full(x.shape[1:], 2.0, dtype=x.dtype),
        )
        for p in hl.grid(counts[i], max_extent=3):
            a, b = b, a + x[pages[p], :, :].sum(1)
            whole, other = other, whole + x[pages[p], :, :]
        y[i, :, :] = (a - 2 * b)[:, None] + (whole - 2 * other).to(hl.float32)
    return y


@tile.kernel
def running(counts, pages, x):
    """Sums of sums of sums: each is one turn later than the next."""
    y = hl.zeros([counts.shape[0], x.shape[2]], dtype=hl.float32)
    for i in hl.grid(counts.shape[0]):
        once = hl.full([x.shape[2]], 2.0, dtype=hl.float32)
        twice = hl.full([x.shape[2]], 1.0, dtype=hl.float32)
        thrice = hl.zeros([x.shape[2]], dtype=hl.float32)
        for p in hl.grid(counts[i], max_extent=3):
            thrice = thrice * 0.5 + twice
            twice = twice + once
            once = once + x[pages[p], :, :].sum(0)
        y[i, :] = thrice
    return y


@tile.kernel
def nested(counts, pages, x):
    """What the inner loop begins with is what the outer one does."""
    y = hl.zeros([counts.shape[0], x.shape[2]], dtype=hl.int32)
    for i in hl.grid(counts.shape[0]):
        a = hl.zeros([x.shape[2]], dtype=hl.int32)
        b = hl.full([x.shape[2]], 5, dtype=hl.int32)
        for _ in hl.grid(counts[i], max_extent=3):
            for p in hl.grid(counts[0], max_extent=3):
                a, b = b, a + x[pages[p], :, :].sum(0).to(hl.int32)
        y[i, :] = a - 2 * b
    return y


@tile.kernel
def behind(counts, pages, x):
    """What an earlier loop made of constants alone is exchanged with a sum."""
    y = hl.zeros([counts.shape[0], x.shape[2]], dtype=hl.float32)
    for i in hl.grid(counts.shape[0]):
        a = hl.full([x.shape[2]], 1.0, dtype=hl.float32)
        for _ in hl.grid(counts[i], max_extent=3):
            a = a * 0.5 + 1.0
        b = hl.zeros([x.shape[2]], dtype=hl.float32)
        for p in hl.grid(counts[i], max_extent=3):
            a, b = b, a + x[pages[p], :, :].sum(0)
        y[i, :] = a - 2 * b
    return y


@tile.kernel
def made_behind(counts, pages, x):
    """The same of what is computed of that, and of three loops."""
    y = hl.zeros([counts.shape[0], x.shape[2]], dtype=hl.float32)
    for i in hl.grid(counts.shape[0]):
        a = hl.zeros([x.shape[2]], dtype=hl.float32)
        for _ in hl.grid(counts[i], max_extent=3):
            a = a + 1.0
        for _ in hl.grid(counts[0], max_extent=3):
            a = a * 2.0
        m = a * 2.0
        b = hl.full([x.shape[2]], 3.0, dtype=hl.float32)
        for p in hl.grid(counts[i], max_extent=3):
            m = m * 0.5 + b
            b = b + x[pages[p], :, :].sum(0)
        y[i, :] = m
    return y


@tile.kernel
def computed(counts, pages, x):
    """A constant that is computed of another: a choice between 1 and itself would be none."""
    y = hl.zeros([counts.shape[0], x.shape[2]], dtype=hl.float32)
    for i in hl.grid(counts.shape[0]):
        a = hl.exp(hl.zeros([x.shape[2]], dtype=hl.float32))
        b = hl.zeros([x.shape[2]], dtype=hl.float32)
        for p in hl.grid(counts[i], max_extent=3):
            a, b = b, a + x[pages[p], :, :].sum(0)
        y[i, :] = a - 2 * b
    return y


ALL = (exchanged, of_columns, running, nested, behind, made_behind, computed)
each = pytest.mark.parametrize("kernel", ALL, ids=lambda k: k.__name__)
PAIRS = {
    "exchanged": (0.0, 0.0),
    "computed": (1.0, 0.0),
    "of_columns": (0.0, 3.0),
    "nested": (0.0, 5.0),
}


def by_hand_behind(name: str) -> np.ndarray:
    found = []
    for count in COUNTS:
        a, b = (1.0, np.zeros(8)) if name == "behind" else (count * 2.0**4, np.full(8, 3.0))
        for _ in range(count if name == "behind" else 0):
            a = a * 0.5 + 1.0
        for page in X[PAGES[:count]].sum(1):
            a, b = (b, a + page) if name == "behind" else (a * 0.5 + b, b + page)
        found.append((a - 2 * b if name == "behind" else a) * np.ones(8))
    return np.array(found)


def by_hand(name: str) -> np.ndarray:
    if name in ("behind", "made_behind"):
        return by_hand_behind(name)
    found = []
    for count in COUNTS:
        a, b = (np.full(8, fill) for fill in PAIRS.get(name, (0.0, 2.0)))
        if name == "of_columns":
            a, b = np.zeros(6), np.full(6, 3.0)
        whole, other, thrice, twice = (
            np.zeros((6, 8)),
            np.full((6, 8), 2.0),
            np.zeros(8),
            np.ones(8),
        )
        once = np.full(8, 2.0)
        turns = [p for _ in range(count) for p in PAGES] if name == "nested" else PAGES[:count]
        for page in X[turns]:
            a, b = b, a + page.sum(1 if name == "of_columns" else 0)
            whole, other = other, whole + page
            thrice, twice, once = thrice * 0.5 + twice, twice + once, once + page.sum(0)
        if name == "of_columns":
            found.append((a - 2 * b)[:, None] + whole - 2 * other)
        else:
            found.append(thrice if name == "running" else a - 2 * b)
    return np.array(found)


@each
def test_the_numbers_of_the_text_for_tpus(kernel: tile.Kernel) -> None:
    import jax.numpy as jnp

    for dtype in (np.float32, ml_dtypes.bfloat16):
        x = X.astype(dtype)
        source = again(kernel).lower(COUNTS, PAGES, x, target="tpu:v5e").source
        found = source.load()(COUNTS, PAGES, jnp.asarray(x), interpret=True)
        np.testing.assert_array_equal(found, by_hand(kernel.__name__))
        np.testing.assert_array_equal(kernel(COUNTS, PAGES, jnp.asarray(x)), found)


def test_which_constants_are_spread() -> None:
    """Those that are one turn late: `once` becomes a sum in the first turn."""
    text = " ".join(again(running).source(COUNTS, PAGES, X, target="tpu:v6e").split())
    start = text[text.index("thrice, twice, once = (") : text.index("def each_p")]
    assert start.count("jax.lax.broadcasted_iota(jnp.int32, (1, 8), 1) >= 0") == 2
    assert " >= 0, jnp.zeros((1, 8), jnp.float32), 1.0, )" in start
    assert " >= 0, jnp.full((1, 8), 1.0, jnp.float32), 0.0, )" in start
    assert " ), jnp.full((1, 8), 2.0, jnp.float32), )" in start


def test_a_constant_that_is_computed_is_no_other() -> None:
    text = " ".join(again(computed).source(COUNTS, PAGES, X, target="tpu:v6e").split())
    assert " >= 0, jnp.exp(jnp.zeros((1, 8), jnp.float32)), 0.0, )" in text


def test_what_an_earlier_loop_leaves_is_spread_behind_it() -> None:
    """Of two loops that make it of constants alone, behind the second."""
    text = " ".join(again(behind).source(COUNTS, PAGES, X, target="tpu:v6e").split())
    assert text.count("broadcasted_iota(jnp.int32, (1, 8), 1) >= 0") == 1
    assert "a_1, b = ( jnp.where(jax.lax.broadcasted_iota(jnp.int32, (1, 8), 1) >= 0, a, " in text
    text = " ".join(again(made_behind).source(COUNTS, PAGES, X, target="tpu:v6e").split())
    assert text.count("broadcasted_iota(jnp.int32, (1, 8), 1) >= 0") == 1
    assert "m = jnp.where(jax.lax.broadcasted_iota(jnp.int32, (1, 8), 1) >= 0, a_1 * 2.0" in text


@needs_libtpu
@pytest.mark.parametrize("target", ["tpu:v5e", "tpu:v5p", "tpu:v6e", "tpu:7x"])
@each
def test_the_compiler_takes_them(kernel: Any, target: str) -> None:
    for dtype in ("float32", "bfloat16"):
        arguments = tile.spec((3,), "int32"), tile.spec((3,), "int32"), tile.spec((5, 6, 8), dtype)
        assert compiled(kernel, *arguments, target=target).memory.code
