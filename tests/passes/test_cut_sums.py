"""cut_sums: products along long rows, in parts that warps hold."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.passes.becomes import becomes, ir_of, stays
from tilelang.codegen.triton.passes.cut_sums import cut_sums
from tilelang.ir import Apply, every_expr
from tilelang.ir.verify import verify
from tilelang.reference import evaluate


def dots(ir):
    return [e for e in every_expr(ir.body) if isinstance(e, Apply) and e.op == "dot"]


def parts_of(length):
    return lambda ir: cut_sums(ir, lambda dot: length)


@tile.kernel
def scores(x, w):
    T, U = x.shape[0], w.shape[0]
    y = hl.zeros([T, U], dtype=hl.float32)
    for t, u in hl.tile([T, U]):
        y[t, u] = hl.exp(hl.dot(x[t, :] * 2.0, w[u, :].T))
    return y


X, W = np.zeros((96, 40), np.float32), np.zeros((64, 40), np.float32)


def test_parts_are_added_in_their_order_and_the_last_is_short():
    becomes(
        ir_of(scores, X, W),
        parts_of(16),
        """
    for t in tile(96):
        for u in tile(64):
            y[t, u] = exp(dot(x[t, 0:40] * 2.0, transpose(w[u, 0:40], perm=(1, 0)), contract=(1, 0)))
    """,
        """
    for t in tile(96):
        for u in tile(64):
            part: float32[t, u] = dot(x[t, 0:16] * 2.0, transpose(w[u, 0:16], perm=(1, 0)), contract=(1, 0))
            part_1: float32[t, u] = part + dot(x[t, 16:32] * 2.0, transpose(w[u, 16:32], perm=(1, 0)), contract=(1, 0))
            y[t, u] = exp(part_1 + dot(x[t, 32:40] * 2.0, transpose(w[u, 32:40], perm=(1, 0)), contract=(1, 0)))
    """,
    )


@tile.kernel
def carried(x, w):
    """What a loop carries on is a product: parts of it are made at its end."""
    y = hl.zeros([x.shape[0], w.shape[1]], dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        acc = hl.zeros([t, w.shape[1]], dtype=hl.float32)
        for g in hl.grid(w.shape[0]):
            acc = acc * 0.5 + hl.dot(x[t, 1:33] + hl.arange(32)[None, :], w[g, :, 2:34].T)
        y[t, :] = acc
    return y


@pytest.mark.parametrize("length", [16, 12, 32])
def test_what_is_computed_is_the_same(length):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, 40)).astype(np.float32)
    w = rng.standard_normal((3, 24, 40)).astype(np.float32)
    ir = ir_of(carried, x, w)
    cut = parts_of(length)(ir)
    verify(cut)
    assert len(set(dots(cut))) == -(-32 // length)
    one, other = (evaluate(k, {"x": x, "w": w})["y"] for k in (ir, cut))
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)


@tile.kernel
def chained(x):
    y = hl.zeros(x.shape, dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        y[t, :] = hl.dot(hl.dot(x[t, :], x[0:40, :].T), x[0:40, :])
    return y


def test_products_of_products_stay_whole():
    """Half of a product is no product of halves of the same rows; the inner one is cut."""
    cut = parts_of(16)(ir_of(chained, X))
    assert {e.args[0].type.shape[1] for e in dots(cut)} == {8, 16, 40}


def test_what_nobody_wants_in_parts_stays():
    stays(ir_of(scores, X, W), lambda ir: cut_sums(ir, lambda dot: None))
