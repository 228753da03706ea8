"""turn_late: a value that only products read is turned where they read it."""

from __future__ import annotations

import itertools

import numpy as np

import tilelang as tile
import tilelang.language as hl
from tests.derivatives import parsed
from tests.passes.becomes import becomes, stays
from tilelang.ir.verify import verify
from tilelang.passes.turn_late import turn_late

X, Y = tile.spec((40, 16), "bfloat16"), tile.spec((40, 8), "bfloat16")


@tile.kernel
def outer(x, y, offsets):
    """w[g] = exp(x)^T y over the rows of group g, of which the left side has a name."""
    G = offsets.shape[0] - 1
    w = hl.zeros([G, x.shape[1], y.shape[1]], dtype=hl.float32)
    for g in hl.grid(G):
        acc = hl.zeros([x.shape[1], y.shape[1]], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            left = hl.exp(x[tm, :].to(hl.float32)).T.to(hl.bfloat16)
            acc = hl.dot(left, y[tm, :], acc=acc)
        w[g, :, :] = acc
    return w


@tile.kernel
def shown(x, y):
    """What is stored, too, keeps its name as it is."""
    w = hl.zeros([x.shape[1], y.shape[1]], dtype=hl.float32)
    t = hl.zeros([x.shape[1], x.shape[0]], dtype=x.dtype)
    for tn in hl.tile(y.shape[1]):
        left = x[:, :].T
        t[:, :] = left
        w[:, tn] = hl.dot(left, y[:, tn])
    return w, t


@tile.kernel
def one_of_another(x, k, offsets):
    """y = (x k^T)^T x over the rows of a group: both left sides have turned names."""
    y = hl.zeros(k.shape, dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for tk in hl.tile(offsets[g], offsets[g + 1]):
            keys = k[tk, :].T
            acc = hl.zeros([tk, k.shape[1]], dtype=hl.float32)
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                scores = (hl.dot(x[tm, :], keys) * 2.0).T
                acc = hl.dot(scores, x[tm, :], acc=acc)
            y[tk, :] = acc
    return y


def test_names_that_are_computed_of_each_other():
    """Blocks are square: a product of what was not turned is wrong, and no error."""
    rng = np.random.default_rng(0)
    x, k = rng.standard_normal((2, 16, 16), np.float32)
    offsets = np.array([0, 10, 16], np.int32)
    parts = [2 * k[a:b] @ x[a:b].T @ x[a:b] for a, b in itertools.pairwise(offsets)]
    ir, _ = parsed(one_of_another, (x, k, offsets))
    verify(turn_late(ir))
    found = one_of_another(x, k, offsets, config=tile.Config({"tk": 16, "tm": 16}))
    np.testing.assert_allclose(found, np.concatenate(parts), rtol=1e-5, atol=1e-5)


def test_a_name_that_products_read():
    ir, _ = parsed(outer, (X, Y, np.array([0, 40], np.int32)))
    becomes(
        ir,
        turn_late,
        """
        for g in grid(1):
            acc: float32[16, 8] = full([16, 8], float32, value=0.0)
            for tm in tile(offsets[g], offsets[g + 1], max_extent=40) carrying acc_1 = acc:
                left: bfloat16[16, tm] = cast(transpose(exp(cast(x[tm, 0:16], float32)), perm=(1, 0)), bfloat16)
                acc_2: float32[16, 8] = acc_1 + dot(left, y[tm, 0:8], contract=(1, 0))
                next acc_1 = acc_2
            after acc_3 = acc_1
            w[g, 0:16, 0:8] = acc_3
        """,
        """
        for g in grid(1):
            acc: float32[16, 8] = full([16, 8], float32, value=0.0)
            for tm in tile(offsets[g], offsets[g + 1], max_extent=40) carrying acc_1 = acc:
                left: bfloat16[tm, 16] = cast(exp(cast(x[tm, 0:16], float32)), bfloat16)
                acc_2: float32[16, 8] = acc_1 + dot(transpose(left, perm=(1, 0)), y[tm, 0:8], contract=(1, 0))
                next acc_1 = acc_2
            after acc_3 = acc_1
            w[g, 0:16, 0:8] = acc_3
        """,
    )


def test_what_is_stored_too_stays():
    ir, _ = parsed(shown, (X, Y))
    stays(ir, turn_late)
