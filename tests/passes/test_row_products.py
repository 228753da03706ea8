"""row_products: a product of which no operand has rows or columns is a sum; one batch is enough."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.derivatives import parsed
from tests.passes.becomes import again, becomes, stays
from tilelang.passes.row_products import row_products

OFFSETS = np.array([1, 3, 3, 40, 49], np.int32)
RNG = np.random.default_rng(0)
ROWS = np.arange(49) >= 1  # of some group


@tile.kernel
def each_with_its_own(x, w, offsets):
    """y[t] = x[t] . w[t]"""
    y = hl.zeros([x.shape[0]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t] = hl.einsum("td,td->t", x[t, :], w[t, :])
    return y


@tile.kernel
def heads_turned(x, w, offsets):
    """y[t, a, h] = x[t, a, h] . w[t, h, a]"""
    T, A, H, _ = x.shape
    y = hl.zeros([T, A, H], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :, :] = hl.einsum("tahd,thad->tah", x[t, ...], w[t, ...])
    return y


@tile.kernel
def matrices_of_heads(x, w, offsets):
    """y[t, h] = x[t, h] @ w[t, h]: two batch dimensions, of which one is a tile."""
    T, H, R, _ = x.shape
    y = hl.zeros([T, H, R, w.shape[3]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, ...] = hl.dot(x[t, ...], w[t, ...])
    return y


@tile.kernel
def heads_apart(x, w, offsets):
    """The same with the heads of one operand between its rows and columns."""
    T, H, R, _ = x.shape
    y = hl.zeros([T, R, H, w.shape[3]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, ...] = hl.einsum("thrd,tdhe->trhe", x[t, ...], w[t, ...])
    return y


CASES = {
    each_with_its_own: ((49, 33), (49, 33), "td,td->t"),
    heads_turned: ((49, 3, 2, 20), (49, 2, 3, 20), "tahd,thad->tah"),
    matrices_of_heads: ((49, 2, 8, 20), (49, 2, 20, 24), "thrd,thde->thre"),
    heads_apart: ((49, 2, 8, 20), (49, 20, 2, 24), "thrd,tdhe->trhe"),
}


def drawn(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32).astype(dtype)


def test_rows_are_multiplied_and_summed() -> None:
    kind = tile.spec((49, 33), "bfloat16")
    ir, _ = parsed(each_with_its_own, (kind, kind, OFFSETS))
    becomes(
        ir,
        row_products,
        """
        for g in grid(4):
            for t in tile(offsets[g], offsets[g + 1], max_extent=49):
                y[t] = cast(cast(dot(x[t, 0:33], w[t, 0:33], contract=(1, 1), batch=((0,), (0,))), bfloat16), float32)
        """,
        """
        for g in grid(4):
            for t in tile(offsets[g], offsets[g + 1], max_extent=49):
                y[t] = cast(cast(sum(cast(x[t, 0:33], float32) * cast(w[t, 0:33], float32), axis=1), bfloat16), float32)
        """,
    )


@tile.kernel
def by_vectors(x, w, v):
    """Heads by a vector each, and by one for all."""
    T, H, _ = x.shape
    y = hl.zeros([T, H], dtype=hl.float32)
    for t in hl.tile(T):
        y[t, :] = hl.einsum("thd,td->th", x[t, ...], w[t, :])
        y[t, :] += hl.einsum("d,thd->th", v[:], x[t, ...])
    return y


def test_vectors_are_multiplied_and_summed_where_it_is_asked_for() -> None:
    args = [tile.spec(shape, "float32") for shape in ((64, 4, 32), (64, 32), (32,))]
    ir, _ = parsed(by_vectors, tuple(args))
    stays(ir, row_products)
    becomes(
        ir,
        lambda kernel: row_products(kernel, vectors=True),
        """
        for t in tile(64):
            y[t, 0:4] = dot(x[t, 0:4, 0:32], w[t, 0:32], contract=(2, 1), batch=((0,), (0,)))
            y[t, 0:4] = y[t, 0:4] + dot(v[0:32], x[t, 0:4, 0:32], contract=(0, 2))
        """,
        """
        for t in tile(64):
            y[t, 0:4] = sum(x[t, 0:4, 0:32] * expand_dims(w[t, 0:32], axis=1), axis=2)
            y[t, 0:4] = y[t, 0:4] + sum(expand_dims(expand_dims(v[0:32], axis=0), axis=0) * x[t, 0:4, 0:32], axis=2)
        """,
    )


def test_matrices_stay() -> None:
    x, w = (tile.spec(shape, "float32") for shape in CASES[matrices_of_heads][:2])
    ir, _ = parsed(matrices_of_heads, (x, w, OFFSETS))
    stays(ir, row_products)
    stays(ir, lambda kernel: row_products(kernel, vectors=True))


@pytest.mark.parametrize("dtype", ["float32", ml_dtypes.bfloat16])
@pytest.mark.parametrize("target", ["cpu", "tpu:v6e"])
@pytest.mark.parametrize("kernel", CASES, ids=lambda k: k.__name__)
def test_they_are_what_einsum_says(kernel, target, dtype) -> None:
    *shapes, text = CASES[kernel]
    x, w = (drawn(shape, dtype) for shape in shapes)
    found = np.asarray(again(kernel)(x, w, OFFSETS, target=target))
    want = np.einsum(text, x.astype(np.float64), w.astype(np.float64))
    rounds = 0 if dtype == "float32" else 2**-8  # einsum gives what its operands are
    np.testing.assert_allclose(found[ROWS], want[ROWS], rtol=rounds, atol=3e-5)
    assert (found[~ROWS] == 0).all()


@needs_libtpu
@pytest.mark.parametrize("target", ["tpu:v5e", "tpu:7x"])
@pytest.mark.parametrize("kernel", CASES, ids=lambda k: k.__name__)
def test_they_compile(kernel, target) -> None:
    for dtype in ("float32", "bfloat16"):
        arguments = [tile.spec(shape, dtype) for shape in CASES[kernel][:2]]
        compiled(kernel, *arguments, OFFSETS, target=target)
