"""Iterations that read the same block are rows of one product."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged import paged_attention, varlen_attention
from tests import tiers
from tests.ragged import Space, every_stratum

SPACE = Space(rows=72, groups=5, block=16)
T, D, N, S = 72, 8, 16, 3


@tile.kernel
def shared(x, w, offsets, first: hl.constexpr, share: hl.constexpr):
    """Heads share weights; what one does with its rows needs their largest, and their sum."""
    y = hl.zeros([x.shape[0], x.shape[1], N], dtype=hl.float32)
    for h in hl.grid(first, x.shape[0]):
        for g in hl.grid(offsets.shape[0] - 1):
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                acc = hl.zeros([tm, N], dtype=hl.float32)
                m = hl.full([tm], -8.0, dtype=hl.float32)
                for k in hl.grid(S):
                    scores = hl.dot(x[h, tm, :], w[h // share, k, :, :])
                    best = hl.maximum(m, scores.amax(-1))
                    near = hl.where(scores > best[:, None] - 4, scores, 0.0)
                    acc = acc + hl.dot(near, w[h // share, k, :, :].T @ w[h // share, k, :, :])
                    acc = acc + (best - m)[:, None]
                    m = best
                y[h, tm, :] = acc
    return y


def shared_by_hand(x, w, offsets, first=0, share=4):
    y = np.zeros((*x.shape[:2], N))
    for (begin, end), h in itertools.product(itertools.pairwise(offsets), range(first, len(x))):
        acc, m = np.zeros((end - begin, N)), np.full(end - begin, -8.0)
        for k in range(S):
            weights = w[h // share, k]
            scores = x[h, begin:end] @ weights
            best = np.maximum(m, scores.max(1, initial=-8))
            near = np.where(scores > best[:, None] - 4, scores, 0)
            acc += near @ (weights.T @ weights) + (best - m)[:, None]
            m = best
        y[h, begin:end] = acc
    return y


rng = np.random.default_rng(0)
X = rng.integers(-2, 3, (8, T, D)).astype(np.float32)
W = rng.integers(-2, 3, (8, S, D, N)).astype(np.float32)
CUTS = np.array([0, 5, 5, 40, 72], np.int32)
TOGETHER = tile.Config({"tm": 16}, within=["h"])


def text(first: int, share: int, config: tile.Config = TOGETHER) -> str:
    specs = (tile.spec(a.shape, a.dtype.name) for a in (X, W, CUTS))
    return tile.kernel(shared.__wrapped__).source(
        *specs, first, share, config=config, target="tpu:v6e"
    )


def loops(source: str) -> list[str]:
    return re.findall(r"for h in range\((.*)\):", source)


@pytest.mark.parametrize("first", tiers.share((0, 2, 1), 3))
def test_every_layout(first: int) -> None:
    """Of heads 1 to 7 the first one shares with nobody: none are stacked."""
    kernel = tile.kernel(shared.__wrapped__)  # planned anew, also where bugs are planted
    for layout in every_stratum(SPACE):
        cuts = layout.offsets
        for share in (1, 2):
            found = kernel(X, W, cuts, first, share, config=TOGETHER)
            wanted = shared_by_hand(X, W, cuts, first, share)
            wanted[:, : cuts[0]] = wanted[:, cuts[-1] :] = 0
            np.testing.assert_array_equal(np.asarray(found), wanted)


def test_what_is_stacked() -> None:
    stacked = [f"{first}, 8, 2" for first in (0, 2)]
    assert all(loop in loops(text(int(loop[0]), 2)) for loop in stacked)
    for first, share in ((0, 1), (1, 2), (0, 3)):
        assert all(loop.count(",") < 2 for loop in loops(text(first, share)))


def test_few_rows_are_stacked() -> None:
    q, pages = (tile.spec(s, "bfloat16") for s in ((8, 1024, 128), (4, 16, 128, 128)))
    numbers = (tile.spec(s, "int32") for s in ((8, 4), (8,), (9,)))
    arguments = (q, pages, pages, *numbers)
    for rows, together in ((16, True), (1024, False)):
        config = tile.Config({"tq": rows}, within=["h"])
        source = paged_attention.paged_attention.source(*arguments, config=config, target="tpu:v6e")
        assert ("0, 8, 2" in loops(source)) == together


@tile.kernel
def scaled(x, w, s, offsets):
    """A number of the head, a product with weights of its own, and one over rows."""
    y = hl.zeros([3, x.shape[0], x.shape[1], N], dtype=hl.float32)
    for h in hl.grid(x.shape[0]):
        for g in hl.grid(offsets.shape[0] - 1):
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                y[0, h, tm, :] = hl.dot(x[h, tm, :], w[h // 2, 0, :, :]) * s[h]
    return y


def test_a_number_of_the_iteration_is_left_to_it() -> None:
    s = np.arange(1, 9, dtype=np.float32)
    found = tile.kernel(scaled.__wrapped__)(X, W, s, CUTS, config=TOGETHER)
    wanted = np.stack([X[h] @ W[h // 2, 0] * s[h] for h in range(8)])
    np.testing.assert_array_equal(np.asarray(found)[0], wanted)
    specs = (tile.spec(a.shape, a.dtype.name) for a in (X, W, s, CUTS))
    source = scaled.source(*specs, config=TOGETHER, target="tpu:v6e")
    assert all(loop.count(",") < 2 for loop in loops(source))


@pytest.mark.parametrize("form", tiers.share(("table", "rectangle"), 2))
def test_pages_of_sequences_that_share_heads(form: str) -> None:
    """The same bits as one head after the other."""
    arguments = paged_attention.make_inputs()
    kernel = paged_attention.paged_attention
    results = [
        np.asarray(
            kernel(
                *arguments,
                config=tile.Config(
                    {"tq": 16}, loop_type="outer_pipeline", steps=form, within=within
                ),
            )
        )
        for within in (["h"], [])
    ]
    np.testing.assert_array_equal(*results)
    wanted = paged_attention.oracle(*arguments)
    np.testing.assert_allclose(results[0], wanted, atol=2e-6)


def test_queries_that_share_keys() -> None:
    arguments = varlen_attention.make_inputs()
    found = varlen_attention.varlen_attention(
        *arguments, config=tile.Config({"tq": 16}, within=["h"])
    )
    np.testing.assert_allclose(np.asarray(found), varlen_attention.oracle(*arguments), atol=2e-6)
