"""Rows of two dimensions, in blocks of groups: columns side by side, whatever else a group has."""

from __future__ import annotations

import inspect
from itertools import pairwise

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.planted import trial
from tests.ragged import covered, poison
from tests.tiers import share

HEADS, WIDTH = 4, 10


@tile.kernel
def graph_attention(x, scores, offsets):
    """Of each group and head: the softmax of scores over rows, times rows."""
    H, D = x.shape[1:]
    out = hl.zeros([offsets.shape[0] - 1, H, D], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        top = hl.full([H], -np.inf, dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            top = hl.maximum(top, scores[tm, :].amax(0))
        total, acc = hl.zeros([H], dtype=hl.float32), hl.zeros([H, D], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            p = hl.exp(scores[tm, :] - top[None, :])
            total += p.sum(0)
            acc += (p[:, :, None] * x[tm, :, :]).sum(0)
        out[g, :, :] = hl.where(total > 0, 1 / hl.maximum(total, 1e-30), 0.0)[:, None] * acc
    return out


def graph_attention_oracle(x, scores, offsets):
    found = np.zeros((len(offsets) - 1, *x.shape[1:]), np.float32)
    for g, (b, e) in enumerate(pairwise(offsets)):
        if b < e:
            p = np.exp(scores[b:e] - scores[b:e].max(0))
            found[g] = np.einsum("eh,ehd->hd", p / p.sum(0), x[b:e])
    return found


@tile.kernel
def dots(x, scores, offsets):
    """y[r, h] = the product of row and mean row of each head; z[r] = rows times what all share."""
    M, (H, D) = x.shape[0], x.shape[1:]
    y, z = hl.zeros([M, H], dtype=x.dtype), hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        acc = hl.zeros([H, D], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            acc += x[tm, :, :].sum(0)
        mean = acc.sum(1) / hl.maximum(offsets[g + 1] - offsets[g], 1).to(hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm, :] = (x[tm, :, :] * scores[tm, :][:, :, None]).sum(2) - mean[None, :]
            z[tm, :, :] = x[tm, :, :] * x[tm, :, :].sum(1)[:, None, :]
    return y, z


def dots_oracle(x, scores, offsets):
    y, z = np.zeros(x.shape[:2], np.float32), np.zeros_like(x)
    for b, e in pairwise(offsets):
        mean = x[b:e].sum((0, 2)) / max(e - b, 1)
        y[b:e] = (x[b:e] * scores[b:e, :, None]).sum(2) - mean
        z[b:e] = x[b:e] * x[b:e].sum(1)[:, None]
    return y, z


@tile.kernel
def seen_as_heads(x, scores, offsets):
    """The same sums of a view, with a weight for each column and one for each head."""
    H = scores.shape[1]
    heads = x.reshape(x.shape[0], H, x.shape[1] // H)
    out = hl.zeros([offsets.shape[0] - 1, H, x.shape[1] // H], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        acc = hl.zeros([H, x.shape[1] // H], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            column = hl.arange(x.shape[1] // H).to(hl.float32)
            acc += (heads[tm, :, :] * column * scores[0, :][None, :, None]).sum(0)
        out[g, :, :] = acc
    return out.reshape(offsets.shape[0] - 1, x.shape[1])


def seen_as_heads_oracle(x, scores, offsets):
    weights = np.outer(scores[0], np.arange(WIDTH)).reshape(-1)
    return np.array([(x[b:e] * weights).sum(0) for b, e in pairwise(offsets)])


CASES = (graph_attention, graph_attention_oracle), (dots, dots_oracle)
VIEWED = (seen_as_heads, seen_as_heads_oracle)


@pytest.mark.parametrize(("kernel", "oracle"), (*CASES, VIEWED), ids=lambda v: v.__name__)
def test_rows_of_heads(kernel, oracle):
    """NaN in the rows of no group, or in a column of another head, reaches nothing."""
    kernel = tile.kernel(inspect.unwrap(kernel))  # lowered anew
    rng, viewed = np.random.default_rng(0), oracle is seen_as_heads_oracle
    shape = (HEADS * WIDTH,) if viewed else (HEADS, WIDTH)
    x = rng.standard_normal((trial.SPACE.rows, *shape), np.float32)
    x[(5, *(1,) * len(shape))] = np.nan
    scores = rng.standard_normal((trial.SPACE.rows, HEADS), np.float32)
    names = [a.name for a in kernel.lower(x, scores, trial.LAYOUTS[0].tensors(1)[0]).ir.axes]
    blocks = {"g": 2, **{n: 16 for n in names if n.startswith("tm")}}
    for layout in trial.LAYOUTS:
        (offsets,) = layout.tensors(1)
        live = covered(offsets, len(x))
        seen = poison(x, live), scores if viewed else poison(scores, live)
        found = kernel(*seen, offsets, config=tile.Config(blocks))
        kept = (np.where(live.reshape(-1, *(1,) * (a.ndim - 1)), a, 0) for a in (x, scores))
        exact = oracle(next(kept), scores if viewed else next(kept), offsets)
        for one, other in zip(tuple_of(found), tuple_of(exact), strict=True):
            np.testing.assert_allclose(one, other, 1e-5, 1e-5, err_msg=str(layout))


def tuple_of(found):
    return found if isinstance(found, tuple) else (found,)


@needs_libtpu
@pytest.mark.parametrize("chip", share(["v6e", "v5e", "v4", "v5p", "7x"], 5, 0))
def test_every_generation_compiles_it(chip):
    """Heads of 64 columns are half of a register's lanes."""
    target, offsets = f"tpu:{chip}", tile.spec((513,), "int32")
    rows, scores = tile.spec((8192, 4, 64), "float32"), tile.spec((8192, 4), "float32")
    config = tile.Config({"g": 128, "tm": 512, "tm_1": 512})
    for kernel in (graph_attention, dots):
        assert compiled(kernel, rows, scores, offsets, config=config, target=target)
