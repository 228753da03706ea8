"""A short table at positions that are a block: relative biases of T5, Swin and HSTU."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.tiers import share
from tilelang.errors import ParseError, PlanError

FORMS = ({}, {"steps": "rectangle"}, {"loop_type": "fori_loop"}, {"loop_type": "emit_pipeline"})


@tile.kernel
def biased(q, bias, offsets):
    """out[h, i] = the sum over j of its sequence of q[i] . q[j] + bias[h, clip(i - j)]."""
    T, H = q.shape[0], bias.shape[0]
    W = bias.shape[1] // 2
    out = hl.zeros([H, T], dtype=hl.float32)
    for h in hl.grid(H):
        for b in hl.grid(offsets.shape[0] - 1):
            for tq in hl.tile(offsets[b], offsets[b + 1], max_extent=T):
                acc = hl.zeros([tq], dtype=hl.float32)
                for tk in hl.tile(offsets[b], offsets[b + 1], max_extent=T):
                    rel = tq.index[:, None] - tk.index[None, :] + W
                    acc = acc + (hl.dot(q[tq, :], q[tk, :].T) + bias[h, rel]).sum(1)
                out[h, tq] = acc
    return out


@tile.kernel
def tables(a, b, place):
    """One dimension, a table behind a number, and positions read from memory."""
    y = hl.zeros(place.shape, dtype=hl.float32)
    z = hl.zeros(place.shape, dtype=hl.float32)
    for tm, tn in hl.tile(place.shape):
        y[tm, tn] = a[place[tm, tn]]
        z[tm, tn] = b[place[tm, tn], 1]
    return y, z


def biased_exact(q, bias, offsets):
    out = np.zeros((len(bias), len(q)))
    W = bias.shape[1] // 2
    for begin, end in itertools.pairwise(offsets):
        i = np.arange(begin, end)
        rel = np.clip(i[:, None] - i[None, :] + W, 0, bias.shape[1] - 1)
        out[:, begin:end] = (q[begin:end] @ q[begin:end].T + bias[:, rel]).sum(2)
    return out


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_relative_bias(form):
    rng = np.random.default_rng(0)
    q, bias = rng.integers(-3, 4, (40, 8)), rng.integers(-9, 10, (2, 11))
    q, bias = q.astype(np.float32), bias.astype(np.float32)
    for offsets in (np.array([0, 7, 7, 40]), np.array([0, 1, 39, 40])):
        exact = biased_exact(q, bias, offsets)
        np.testing.assert_array_equal(biased.reference(q, bias, offsets), exact)
        try:
            found = biased(q, bias, offsets, config=tile.Config({"tq": 16, "tk": 8}, **form))
        except PlanError:
            assert form
            continue
        np.testing.assert_array_equal(np.asarray(found), exact)


@pytest.mark.parametrize("entries", [1, 2, 40])
def test_positions_outside_are_those_at_the_ends(entries):
    rng = np.random.default_rng(1)
    place = rng.integers(-9, 50, (20, 30)).astype(np.int32)
    a, b = rng.integers(-9, 10, entries).astype(np.float32), rng.random((entries, 3), np.float32)
    a[0] = np.nan
    near = np.clip(place, 0, entries - 1)
    for got in (tables(a, b, place), tables.reference(a, b, place)):
        np.testing.assert_array_equal(np.asarray(got[0]), a[near])
        np.testing.assert_array_equal(np.asarray(got[1]), b[near, 1])


def test_what_no_table_is():
    @tile.kernel
    def rows(a, place):
        y = hl.zeros([*place.shape, a.shape[1]], dtype=hl.float32)
        for tm, tn in hl.tile(place.shape):
            y[tm, tn, :] = a[place[tm, tn], :]
        return y

    @tile.kernel
    def long(a, place):
        y = hl.zeros(place.shape, dtype=hl.float32)
        for tm, tn in hl.tile(place.shape):
            y[tm, tn] = a[place[tm, tn]]
        return y

    place = np.zeros((4, 4), np.int32)
    what = "a is indexed with a value of type int32[tm, tn]"
    with pytest.raises(ParseError) as caught:
        rows.source(np.zeros((5, 6), np.float32), place)
    assert caught.value.what == what
    assert caught.value.hint == "each other dimension is indexed with a number: bias[h, rel]"
    with pytest.raises(ParseError) as caught:
        long.source(np.zeros(257, np.float32), place)
    assert caught.value.what == f"{what}, and has 257 entries there"
    hint = "a table that is looked up in has 1 to 256 entries: group the positions"
    assert caught.value.hint == hint


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize(
    "target", share(["tpu:v4", "tpu:v5e", "tpu:v5p", "tpu:v6e", "tpu:7x"], 3, 1, "thorough")
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_compiler_takes_it(target, dtype):
    q, bias = tile.spec((600, 128), dtype), tile.spec((2, 33), dtype)
    assert compiled(biased, q, bias, tile.spec((9,), "int32"), target=target)
