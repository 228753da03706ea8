"""Ranges that are proved to be apart because offsets are sorted: checked where not all are used."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.errors import RaggedValueError
from tilelang.runtime import sorted_ranges


def ints(numbers):
    return np.array(numbers, np.int32)


@tile.kernel
def some_groups(x, offsets, runs):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(runs.shape[0]):
        if runs[g] > 0:
            for t in hl.tile(offsets[g], offsets[g + 1]):
                y[t] = x[t] * (g + 1)
    return y


@tile.kernel
def even_groups(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        if g % 2 == 0:
            for t in hl.tile(offsets[g], offsets[g + 1]):
                y[t] = x[t] * (g + 1)
    return y


@tile.kernel
def begins_and_ends(x, offsets, into: hl.constexpr = "rows"):
    """Into rows that groups share, into a box, or into a sum."""
    G = offsets.shape[0] // 2
    y = hl.zeros([*([] if into == "rows" else [G]), *x.shape], dtype=x.dtype)
    for g in hl.grid(G):
        for t in hl.tile(offsets[2 * g], offsets[2 * g + 1]):
            if into == "rows":
                y[t] = x[t] * (g + 1)
            else:
                y[g, t] = x[t] * (g + 1)
    return y


@tile.kernel
def sentences(x, words, documents):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for d in hl.grid(documents.shape[0] // 2):
        for s in hl.grid(documents[2 * d], documents[2 * d + 1]):
            for t in hl.tile(words[s], words[s + 1]):
                y[t] = x[t] * (s + 1)
    return y


TEN = np.ones(10, np.float32)
APART = {  # arguments that are right, and such that two ranges that are used overlap
    "an if": (some_groups, [(0, 4, 9, 6, 8), (1, 0, 0, 1)], [(0, 4, 0, 4), (1, 0, 1)]),
    "a number": (even_groups, [(0, 4, 6, 9)], [(0, 4, 2, 9)]),
    "pairs": (begins_and_ends, [(0, 4, 6, 9)], [(0, 4, 2, 9)]),
    "gaps": (sentences, [(0, 4, 9, 5, 9), (0, 1, 3, 4)], [(0, 4, 0, 4), (0, 1, 2, 3)]),
}


@pytest.mark.parametrize("name", APART)
def test_ranges_that_are_proved_to_be_apart_are(name):
    kernel, right, wrong = APART[name]
    kernel = tile.kernel(kernel.__wrapped__)
    for run in (kernel, kernel.reference):
        run(TEN, *map(ints, right))
        with pytest.raises(RaggedValueError, match="must not overlap"):
            run(TEN, *map(ints, wrong))


def test_ranges_that_need_not_be_apart_may_overlap():
    overlapping, kernel = ints((0, 4, 2, 9)), tile.kernel(begins_and_ends.__wrapped__)
    assert "offsets is sorted" not in str(kernel.lower(TEN, overlapping, "box").axes["g"])
    assert kernel(TEN, overlapping, "box").sum() == 4 + 2 * 7


PLANTED = {
    "_each_follows": (
        lambda *_: True, lambda: test_ranges_that_are_proved_to_be_apart_are("an if"),
    ),
    "_resting": (
        lambda around, facts: set(facts.sorted), test_ranges_that_need_not_be_apart_may_overlap,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_caught(name, monkeypatch):
    wrong, test = PLANTED[name]
    monkeypatch.setattr(sorted_ranges, name, wrong)
    with pytest.raises((Exception, pytest.fail.Exception)):
        test()
