"""Blocks of groups: the largest and least of rows, and what rows look up that is no number."""

from __future__ import annotations

import inspect
import math
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from tests.planted import trial
from tests.planted.bug import Bug, bug
from tests.ragged import covered, poison
from tilelang.codegen.pallas.plan import search
from tilelang.codegen.pallas.plan.estimate.offsets import spread

COLUMNS = 24
RNG = np.random.default_rng(7)
QUERIES = RNG.standard_normal((trial.SPACE.groups, COLUMNS)).astype(np.float32)


@tile.kernel
def pooled(x, queries, offsets):
    """y[g] = the rows of a group, weighed by a softmax of their products with its query."""
    G, D = queries.shape
    y = hl.zeros([G, D], dtype=hl.float32)
    for g in hl.grid(G):
        m = hl.full([], -math.inf, dtype=hl.float32)
        total = hl.zeros([], dtype=hl.float32)
        acc = hl.zeros([D], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            rows = x[tm, :].to(hl.float32)
            scores = (rows * queries[g, :].to(hl.float32)[None, :]).sum(1)
            new = hl.maximum(m, scores.amax(0))
            p, scale = hl.exp(scores - new), hl.exp(m - new)
            total = total * scale + p.sum(0)
            acc = acc * scale + (p[:, None] * rows).sum(0)
            m = new
        y[g, :] = acc / hl.maximum(total, 1e-20)
    return y


def _pooled(rows, query):
    scores = rows @ query
    p = np.exp(scores - scores.max(initial=-math.inf))
    return p @ rows / max(p.sum(), 1e-20)


def pooled_oracle(x, queries, offsets):
    return np.array(
        [_pooled(x[b:e], q) for q, (b, e) in zip(queries, pairwise(offsets), strict=True)]
    )


@tile.kernel
def normed(x, offsets):
    """Every column less its mean in the group, over its deviation there."""
    y = hl.full(x.shape, 7.0, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        total = hl.zeros([x.shape[1]], dtype=hl.float32)
        squares = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            rows = x[tm, :].to(hl.float32)
            total += rows.sum(0)
            squares += (rows * rows).sum(0)
        n = (offsets[g + 1] - offsets[g]).to(hl.float32)  # of no rows NaN, which nobody sees
        mean = total / n
        scale = hl.rsqrt(squares / n - mean * mean + 1e-2)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm, :] = ((x[tm, :].to(hl.float32) - mean[None, :]) * scale[None, :]).to(y.dtype)
    return y


def normed_oracle(x, offsets):
    y = np.full_like(x, 7.0)
    for b, e in pairwise(offsets):
        if b < e:
            y[b:e] = (x[b:e] - x[b:e].mean(0)) / np.sqrt(x[b:e].var(0) + 1e-2)
    return y


@tile.kernel
def edges(x, offsets):
    """A softmax of the numbers of every group."""
    y = hl.full(x.shape, 7.0, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        m = hl.full([], -math.inf, dtype=hl.float32)
        total = hl.zeros([], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            own = x[tm].to(hl.float32)
            new = hl.maximum(m, own.amax(0))
            total = total * hl.exp(m - new) + hl.exp(own - new).sum(0)
            m = new
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm] = (hl.exp(x[tm].to(hl.float32) - m) / total).to(y.dtype)
    return y


def edges_oracle(x, offsets):
    y = np.full_like(x, 7.0)
    for b, e in pairwise(offsets):
        p = np.exp(x[b:e] - x[b:e].max(initial=-math.inf))
        y[b:e] = p / p.sum()
    return y


@tile.kernel
def between(x, offsets):
    """Whether a row is the least or the largest of its group, and both."""
    G = offsets.shape[0] - 1
    low, high = hl.empty([G], dtype=x.dtype), hl.empty([G], dtype=x.dtype)
    y = hl.full(x.shape, 7.0, dtype=x.dtype)
    for g in hl.grid(G):
        most = hl.full([], -1000, dtype=x.dtype)
        least = hl.full([], 1000, dtype=x.dtype)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            most = hl.maximum(most, x[tm].amax(0))
            least = hl.minimum(least, x[tm].amin(0))
        low[g] = least
        high[g] = most
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm] = hl.where((x[tm] == most) | (x[tm] == least), 1, 0).to(y.dtype)
    return low, high, y


def between_oracle(x, offsets):
    y = np.full_like(x, 7)
    low = [x[b:e].min(initial=1000) for b, e in pairwise(offsets)]
    high = [x[b:e].max(initial=-1000) for b, e in pairwise(offsets)]
    for (b, e), *ends in zip(pairwise(offsets), low, high, strict=True):
        y[b:e] = np.isin(x[b:e], ends)
    return np.array(low), np.array(high), y


CASES = {
    "pooled": (pooled, (COLUMNS,), (QUERIES,), pooled_oracle),
    "normed": (normed, (COLUMNS,), (), normed_oracle),
    "edges": (edges, (), (), edges_oracle),
    "between": (between, (), (), between_oracle),
}


def drawn(name: str, dtype: str = "float32") -> np.ndarray:
    shape = trial.SPACE.rows, *CASES[name][1]
    return np.round(4 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)


def printed(name: str, block: int, rows: int, dtype: str = "float32"):
    kernel, _, more, _ = CASES[name]
    kernel = tile.kernel(inspect.unwrap(kernel))  # lowered anew
    arguments = drawn(name, dtype), *more, trial.LAYOUTS[0].tensors(1)[0]
    ragged = {a.name: rows for a in kernel.lower(*arguments).ir.axes if a.kind == "tile"}
    return kernel.lower(*arguments, config=tile.Config({"g": block, **ragged}))


def wrong(name: str, call, dtype: str = "float32", layouts=trial.LAYOUTS) -> list[str]:
    """Layouts with which it is wrong; NaN in the rows of no group reaches nothing."""
    _, _, more, oracle = CASES[name]
    found = []
    for layout in layouts:
        (offsets,), x = layout.tensors(1), drawn(name, dtype)
        seen = poison(x, covered(offsets, len(x))) if dtype == "float32" else x
        with np.errstate(all="ignore"):
            exact = oracle(x, *more, offsets)
        results = call(seen, *more, offsets)
        pairs = zip(results, exact, strict=True) if name == "between" else [(results, exact)]
        if not all(np.allclose(a, b, 1e-4, 1e-4) for a, b in pairs):
            found.append(str(layout))
    return found


@pytest.mark.parametrize(("block", "rows"), [(2, 16), (5, 32)])
@pytest.mark.parametrize("name", CASES)
def test_layouts(name, block, rows):
    lowered = printed(name, block, rows)
    assert dict(lowered.plan.blocks)["g"] == block
    assert wrong(name, trial.runnable(lowered, lowered.source.text)) == []


def test_integers():
    lowered = printed("between", 2, 16, "int32")
    assert wrong("between", trial.runnable(lowered, lowered.source.text), "int32") == []


@pytest.mark.parametrize("name", CASES)
def test_memory_that_was_never_written_reaches_nothing(name):
    lowered = printed(name, 2, 16)
    strict = pltpu.InterpretParams(uninitialized_memory="nan", out_of_bounds_reads="raise")
    call = trial.runnable(lowered, lowered.source.text, strict)
    assert wrong(name, call, layouts=trial.CROWDED) == []


BUGS = (
    bug("normed", "groups", "rows look up the group before theirs too",
        "tm_1_index >= y_offsets_begin", "tm_1_index >= y_offsets_begin - 1"),
    bug("normed", "groups", "rows of a group that has none before them look up 0",
        "tm_1 * 16)", "tm_1 * 16 + 1)"),
    bug("normed", "groups", "two parts of float32 and not three",
        "product(values - high - middle) + product(middle) + ", ""),
    bug("between", "groups", "the largest of no rows is 0", "-jnp.inf", "0.0"),
    bug("between", "groups", "the least of other groups' rows", "(tm_index < offsets_end_ref",
        "(tm_index <= offsets_end_ref"),
    bug("between", "groups", "a maximum of one tile",
        "most_ref[...] = jnp.maximum(\n                most_ref[...],",
        "most_ref[...] = jnp.maximum(\n                -1000.0,"),
    bug("edges", "groups", "a group that has no rows in a tile forgets its sum",
        "& (next_offsets_begin < next_offsets_end)", "| (next_offsets_begin >= 0)"),
    bug("edges", "groups", "rows look up the next group too", "(tm_1_index < y_offsets_end.T)",
        "(tm_1_index <= y_offsets_end.T)"),
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("planted", BUGS, ids=str)
def test_a_bug_is_caught(planted: Bug):
    lowered = printed(planted.subject, 2, 16)
    call = trial.runnable(lowered, planted.plant(lowered.source.text))
    assert wrong(planted.subject, call) != []


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_stays_in_its_group(bad):
    lowered = printed("normed", 5, 32)
    call = trial.runnable(lowered, lowered.source.text)
    for layout in trial.LAYOUTS:
        (offsets,), x = layout.tensors(1), drawn("normed")
        for b, e in [*pairwise(offsets)][::2]:
            x[b:e][:1, 3] = bad
        with np.errstate(all="ignore"):
            exact = normed_oracle(x, offsets)
        np.testing.assert_allclose(call(x, offsets), exact, 1e-4, 1e-4, err_msg=str(layout))


# ---------------------------------------------------------------- the default


@tile.kernel
def shortened(x, offsets):
    """Rows over the norm of their group."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        squares = hl.zeros([], dtype=hl.float32)
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            rows = x[tm, :].to(hl.float32)
            squares += (rows * rows).sum()
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm, :] = (x[tm, :].to(hl.float32) * hl.rsqrt(squares + 1e-6)).to(y.dtype)
    return y


OFFSETS = tile.spec((1025,), "int32")
MANY = tile.spec((32768, 256), "bfloat16"), OFFSETS


def block_of(kernel, *arguments) -> int | None:
    return dict(kernel.default_config(*arguments, target="tpu:v6e").blocks).get("g")


def test_a_form_that_one_long_group_makes_slow_is_not_taken_for_a_little():
    """41 us with even groups and 235 between random cuts, or 51 and 51, by v6e's schedules."""
    assert block_of(shortened, *MANY) == 256


def test_a_choice_by_even_groups_alone_is_found(monkeypatch):
    monkeypatch.setattr(search, "_unevenly", lambda *_: 0.0)
    assert block_of(tile.Kernel(shortened._fn), *MANY) is None


def test_softmaxes_of_groups_have_blocks_by_default():
    """126 us instead of 384, and 300 instead of 1342, between random cuts by v6e's schedules."""
    half = "bfloat16"
    queries = tile.spec((1024, 128), half)
    assert block_of(pooled, tile.spec((65536, 128), half), queries, OFFSETS) == 128
    assert block_of(edges, tile.spec((262144,), "float32"), tile.spec((4097,), "int32")) == 128


@pytest.mark.parametrize("uneven", [False, True])
def test_ranges_that_stand_for_others_cover_all_rows(uneven):
    lengths = np.diff(spread(32768, 1024, uneven))
    assert lengths.sum() == 32768 and (lengths >= 0).all()
    assert (0.04 < (lengths > 96).mean() < 0.06) == uneven and (lengths < 49).all() != uneven


def test_numbers_of_16_bits_are_looked_up_in_one_product():
    """Which is exact: nothing is gained by three parts of what they become."""
    half = QUERIES.astype(ml_dtypes.bfloat16)
    x, (offsets,) = drawn("pooled"), trial.LAYOUTS[0].tensors(1)
    kernel = tile.kernel(inspect.unwrap(pooled))
    lowered = kernel.lower(x, half, offsets, config=tile.Config({"g": 2, "tm": 16}))
    assert "queries_ref[...].astype" not in lowered.source.text
    call = trial.runnable(lowered, lowered.source.text)
    for layout in trial.CROWDED:
        (offsets,) = layout.tensors(1)
        exact = pooled_oracle(x, half.astype(np.float32), offsets)
        np.testing.assert_allclose(call(x, half, offsets), exact, 1e-4, 1e-4, str(layout))
