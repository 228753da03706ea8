"""What goes by the block in few numbers alone: where two are as great, or near a limit.

Made-up numbers have ties, meet limits that memory has, and lie in tiles that begin anywhere.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang import ParseError
from tilelang.analysis import cuts, drawn

G, N = 4, 40
RNG = np.random.default_rng(0)
OFFSETS = np.int32([0, 7, 7, 29, 40])
BLOCKS = (8, 16, 32)
DEPENDS = "the result would depend on the block of t"


def best_of(keep, static=0):
    """What is kept beside the greatest number of a group, or of an array of so many."""

    @tile.kernel
    def of_groups(x, w, offsets):
        y = hl.zeros([offsets.shape[0] - 1], dtype=hl.float32)
        for g in hl.grid(offsets.shape[0] - 1):
            top, at = hl.full([], -100.0), hl.full([], -1.0)
            for t in hl.tile(offsets[g], offsets[g + 1]):
                best = x[t].to(hl.float32).amax(0)
                at = keep(at, top, best, x[t].to(hl.float32) == best, w[t], t.index)
                top = hl.maximum(top, best)
            y[g] = at
        return y

    @tile.kernel
    def of_all(x, w):
        y = hl.zeros([1], dtype=hl.float32)
        for i in hl.grid(1):
            top, at = hl.full([], -100.0), hl.full([], -1.0)
            for t in hl.tile(static):
                best = x[t].to(hl.float32).amax(0)
                at = keep(at, top, best, x[t].to(hl.float32) == best, w[t], t.index)
                top = hl.maximum(top, best)
            y[i] = at
        return y

    return of_all if static else of_groups


def first(at, top, best, same, w, index):
    return hl.where(best > top, hl.where(same, index, 1000).amin(0).to(hl.float32), at)


def last(at, top, best, same, w, index):
    return hl.where(best >= top, hl.where(same, index, -1).amax(0).to(hl.float32), at)


def how_often(at, top, best, same, w, index):
    count = hl.where(same, 1.0, 0.0).sum(0)
    return hl.where(best > top, count, hl.where(best == top, at + count, at))


def weight_of_all(at, top, best, same, w, index):
    weight = hl.where(same, w, -9.0).amax(0)
    return hl.where(best > top, weight, hl.where(best == top, hl.maximum(at, weight), at))


def last_of_first_tile(at, top, best, same, w, index):
    return hl.where(best > top, hl.where(same, index, -1).amax(0).to(hl.float32), at)


def first_of_last_tile(at, top, best, same, w, index):
    return hl.where(best >= top, hl.where(same, index, 1000).amin(0).to(hl.float32), at)


def how_often_at_once(at, top, best, same, w, index):
    return hl.where(best > top, hl.where(same, 1.0, 0.0).sum(0), at)


def weight_of_one_tile(at, top, best, same, w, index):
    return hl.where(best >= top, hl.where(same, w, 99.0).amin(0), at)


RIGHT = {
    first: lambda x, w: x.argmax(),
    last: lambda x, w: len(x) - 1 - x[::-1].argmax(),
    how_often: lambda x, w: (x == x.max()).sum(),
    weight_of_all: lambda x, w: w[x == x.max()].max(),
}
WRONG = (last_of_first_tile, first_of_last_tile, how_often_at_once, weight_of_one_tile)


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("keep", RIGHT, ids=lambda k: k.__name__)
def test_what_is_the_same_in_all_tiles_is_taken(keep, dtype) -> None:
    x, w = RNG.integers(0, 3, N).astype(dtype), RNG.standard_normal(N, np.float32)
    right = [RIGHT[keep](x[b:e], w[b:e]) + b * (keep in (first, last)) if e > b else -1.0
             for b, e in pairwise(OFFSETS)]  # fmt: skip
    for block in BLOCKS:
        found = best_of(keep)(x, w, OFFSETS, config=tile.Config({"t": block}))
        np.testing.assert_array_equal(found, np.float32(right))


@pytest.mark.parametrize("dtype", ["bfloat16", "int32"])
@pytest.mark.parametrize("static", [0, 3, 4, 7, 16])
@pytest.mark.parametrize("keep", WRONG, ids=lambda k: k.__name__)
def test_what_goes_by_ties_in_one_tile_is_refused(keep, static, dtype) -> None:
    given = tile.spec((static or N,), dtype), tile.spec((static or N,), "float32")
    offsets = () if static else (tile.spec((G + 1,), "int32"),)
    with pytest.raises(ParseError, match=DEPENDS) as caught:
        best_of(keep, static).lower(*given, *offsets)
    if keep in (last_of_first_tile, first_of_last_tile) and dtype == "bfloat16":
        assert "at goes by which of several equal numbers are in one tile of t" in str(caught.value)
        assert "hint: keep of equal ones the first, > and the least t.index" in str(caught.value)


def sums(change):
    @tile.kernel
    def kernel(x, limit, offsets):
        y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=x.dtype)
        for g in hl.grid(offsets.shape[0] - 1):
            acc = hl.zeros([x.shape[1]], dtype=x.dtype)
            for t in hl.tile(offsets[g], offsets[g + 1]):
                acc = change(acc, x[t, :], limit[g], t)
            y[g, :] = acc
        return y

    return kernel


LIMITED = {
    "until it is enough": lambda acc, x, limit, t: acc + hl.where(acc < limit, x.sum(0), 0),
    "a product until it is enough": lambda acc, x, limit, t: (
        acc + hl.where(acc > limit, (x * x[:, 0:1]).sum(0), 0)
    ),
    "from a number on": lambda acc, x, limit, t: acc + hl.where(acc + 2 <= limit, x.sum(0), 0),
    "at most": lambda acc, x, limit, t: acc + hl.minimum(x.sum(0), limit),
    "never more": lambda acc, x, limit, t: hl.minimum(acc + x.sum(0), limit * 10),
    "how often more": lambda acc, x, limit, t: acc + hl.where(x.sum(0) > limit * 8, 1, 0),
    "twice the small": lambda acc, x, limit, t: hl.maximum(
        acc, hl.where(x.amax(0) <= limit, x.amax(0) * 2, x.amax(0))
    ),
    "every other of a tile": lambda acc, x, limit, t: (
        acc + hl.where(((t.index - t.begin) % 2 == 0)[:, None], x, 0).sum(0)
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("change", LIMITED.values(), ids=LIMITED)
def test_what_goes_by_a_limit_is_refused(change, dtype) -> None:
    given = tile.spec((N, 16), dtype), tile.spec((G,), dtype), tile.spec((G + 1,), "int32")
    with pytest.raises(ParseError, match=DEPENDS):
        sums(change).lower(*given)


def test_limits_of_single_rows_are_taken() -> None:
    """What is compared may be a row, or its positions in the group."""

    def change(acc, x, limit, t):
        return acc + hl.where((x > limit) & (t.index % 2 == 0)[:, None], x, 0.0).sum(0)

    x, limit = RNG.standard_normal((N, 16), np.float32), np.float32([0.1, 0, -1, 0.5])
    even = (np.arange(N) % 2 == 0)[:, None]
    group = np.repeat(limit, np.diff(OFFSETS))[:, None]
    kept = np.where((x > group) & even, x, 0)
    right = [kept[b:e].sum(0) for b, e in pairwise(OFFSETS)]
    for block in BLOCKS:
        found = sums(change)(x, limit, OFFSETS, config=tile.Config({"t": block}))
        np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-5)


def turned(x, offsets):
    """Each tile back to front: one place for each position, and not for each tile."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t.begin + t.end - 1 - t.index, :] = x[t, :]
    return y


def at_the_first(x, ids):
    """All of a tile goes where its first row belongs."""
    y = hl.zeros([8, x.shape[1]], dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        hl.atomic_add(y, [ids[t.begin], slice(None)], x[t, :].sum(0))
    return y


def in_parts(x, offsets):
    """One place for each tile, as the author says."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t.begin, :] = x[t, :].sum(0)
    return y


@pytest.mark.parametrize("kernel", [turned, at_the_first], ids=lambda k: k.__name__)
def test_places_that_do_not_name_a_tile_alone_are_refused(kernel) -> None:
    last = tile.spec((N if kernel is at_the_first else G + 1,), "int32")
    with pytest.raises(ParseError, match="goes by which others are in its tile"):
        tile.kernel(kernel).lower(tile.spec((N, 16), "float32"), last)


def test_a_place_for_each_tile_is_taken() -> None:
    x = RNG.standard_normal((N, 16), np.float32)
    found = np.asarray(tile.kernel(in_parts)(x, OFFSETS))
    right = np.add.reduceat(x, OFFSETS[[0, 1, 3]])
    parts = [found[b:e].sum(0) for b, e in ((0, 7), (7, 29), (29, 40))]
    np.testing.assert_allclose(parts, right, rtol=1e-5, atol=1e-5)


TRIED = {
    min(drawn.TIED): lambda acc, x, limit, t: hl.maximum(acc, x.amax(0)),
    drawn.FEWER: lambda acc, x, limit, t: acc + hl.where(x > 0.5, x, 0).sum(0),
    len(drawn.MOST): lambda acc, x, limit, t: acc + hl.where(x > limit, x, 0).sum(0),
}


@pytest.mark.parametrize("tries", TRIED)
def test_only_what_meets_a_limit_is_tried_often(tries, monkeypatch) -> None:
    """A sum without limits is computed with few numbers: every one costs time."""
    sizes, numbers = [], drawn.Drawn.numbers

    def counted(self, *args):
        sizes.append(self.sizes)
        return numbers(self, *args)

    monkeypatch.setattr(drawn.Drawn, "numbers", counted)
    given = tile.spec((N, 16), "float32"), tile.spec((G,), "float32"), tile.spec((G + 1,), "int32")
    sums(TRIED[tries]).lower(*given)
    assert set(sizes) == set(range(tries))


@tile.kernel
def greatest_twice(x, limit):
    """How often the greatest is there, by a loop of its own, and how often there is more."""
    y = hl.zeros([2], dtype=hl.int32)
    for g in hl.grid(1):
        m = hl.full([], float("-inf"), dtype=hl.float32)
        for t in hl.tile(x.shape[0]):
            m = hl.maximum(m, x[t].amax(0))
        count = hl.zeros([], dtype=hl.int32)
        for s in hl.tile(x.shape[0]):
            count += (x[s] == m).to(hl.int32).sum(0)
        more = hl.zeros([], dtype=hl.int32)
        for r in hl.tile(x.shape[0]):
            more += (x[r] > limit[g]).to(hl.int32).sum(0)
        y[0] = count
        y[1] = more
    return y


def test_limits_are_tried_often_and_what_other_loops_made_is_none(monkeypatch):
    """Gradients of maxima compare with those, in loops after loops: proofs took seconds."""
    tried, real = Counter[str](), cuts._changed

    def counted(loop, *rest):
        tried[loop.axis] += 1
        return real(loop, *rest)

    monkeypatch.setattr(cuts, "_changed", counted)
    greatest_twice.source(np.float32([3, 1, 3]), np.float32([2]))
    assert tried == {"t": min(drawn.TIED), "s": drawn.FEWER, "r": drawn.TRIES}
