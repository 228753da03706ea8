"""Several turns of an ordered loop in one: values, what is left out, maxima that are taken once."""

from __future__ import annotations

import math

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged.paged_attention import paged_attention
from tests.planted import trial
from tilelang.codegen.pallas.passes import running_maximum as maxima
from tilelang.codegen.pallas.passes import several_turns as turns

HALF = "bfloat16"


@tile.kernel
def summed(x, table, lengths):
    """y[b] = the sum of the rows of its pages."""
    B, most = table.shape
    y = hl.zeros([B, x.shape[2]], dtype=hl.float32)
    for b in hl.grid(B):
        acc = hl.zeros([x.shape[2]], dtype=hl.float32)
        for p in hl.grid(0, lengths[b], max_extent=most):
            acc = acc + x[table[b, p], :, :].sum(0)
        y[b, :] = acc
    return y


@tile.kernel
def alternating(x, table, lengths):
    """y[b] = page 0 - 2 * page 1 + 4 * page 2 ...: what is carried is changed by every page."""
    B, most = table.shape
    y = hl.zeros([B, x.shape[2]], dtype=hl.float32)
    for b in hl.grid(B):
        acc = hl.zeros([x.shape[2]], dtype=hl.float32)
        by = hl.full([x.shape[2]], 1.0, dtype=hl.float32)
        for p in hl.grid(0, lengths[b], max_extent=most):
            acc = acc + x[table[b, p], :, :].sum(0) * by
            by = by * -2.0
        y[b, :] = acc
    return y


@tile.kernel
def softmax_of_rows(x, table, lengths):
    """The sum of the rows of its pages, each by the softmax of what it sums to."""
    B, most = table.shape
    D = x.shape[2]
    y = hl.zeros([B, D], dtype=hl.float32)
    for b in hl.grid(B):
        m = hl.full([1], -math.inf, dtype=hl.float32)
        total = hl.zeros([1], dtype=hl.float32)
        acc = hl.zeros([1, D], dtype=hl.float32)
        for p in hl.grid(0, lengths[b], max_extent=most):
            rows = x[table[b, p], :, :]
            scores = rows.sum(-1)[None, :] * 4.0
            m_new = hl.maximum(m, scores.amax(-1))
            alpha = hl.exp(m - m_new)
            weights = hl.exp(scores - m_new[:, None])
            total = total * alpha + weights.sum(-1)
            acc = hl.dot(weights, rows, acc=acc * alpha[:, None])
            m = m_new
        y[b, :] = hl.squeeze(acc / total[:, None], 0)
    return y


@tile.kernel
def guarded(x, table, lengths):
    """The same of the rows with a number above 2; 0 where there are none."""
    B, most = table.shape
    D = x.shape[2]
    y = hl.zeros([B, D], dtype=hl.float32)
    for b in hl.grid(B):
        m = hl.full([1], -math.inf, dtype=hl.float32)
        total = hl.zeros([1], dtype=hl.float32)
        acc = hl.zeros([1, D], dtype=hl.float32)
        for p in hl.grid(0, lengths[b], max_extent=most):
            rows = x[table[b, p], :, :]
            seen = rows.amax(-1)[None, :] > 2.0
            scores = hl.where(seen, rows.sum(-1)[None, :], -math.inf)
            m_new = hl.maximum(m, scores.amax(-1))
            safe = hl.where(m_new == -math.inf, 0.0, m_new)
            alpha = hl.exp(m - safe)
            weights = hl.exp(scores - safe[:, None])
            total = total * alpha + weights.sum(-1)
            acc = hl.dot(weights, rows, acc=acc * alpha[:, None])
            m = m_new
        y[b, :] = hl.squeeze(hl.where(total[:, None] > 0, acc / total[:, None], 0.0), 0)
    return y


@tile.kernel
def not_scaled(x, table, lengths):
    """Every page by its own running maximum: nothing is scaled to the last one."""
    B, most = table.shape
    y = hl.zeros([B, x.shape[2]], dtype=hl.float32)
    for b in hl.grid(B):
        m = hl.full([1], -math.inf, dtype=hl.float32)
        total = hl.zeros([1], dtype=hl.float32)
        for p in hl.grid(0, lengths[b], max_extent=most):
            scores = x[table[b, p], :, :].sum(-1)[None, :]
            m_new = hl.maximum(m, scores.amax(-1))
            total = total + hl.exp(scores - m_new[:, None]).sum(-1)
            m = m_new
        y[b, :] = hl.broadcast_to(total, [x.shape[2]])
    return y


@tile.kernel
def counted(x, table, lengths):
    """How many rows sum to 0 or less, beside the sum of a softmax."""
    B, most = table.shape
    y = hl.zeros([B, x.shape[2]], dtype=hl.float32)
    for b in hl.grid(B):
        m = hl.full([1], -math.inf, dtype=hl.float32)
        count = hl.zeros([1], dtype=hl.float32)
        total = hl.zeros([1], dtype=hl.float32)
        for p in hl.grid(0, lengths[b], max_extent=most):
            scores = x[table[b, p], :, :].sum(-1)[None, :]
            m_new = hl.maximum(m, scores.amax(-1))
            total = total * hl.exp(m - m_new) + hl.exp(scores - m_new[:, None]).sum(-1)
            count = count + hl.where(scores > 0.0, 0.0, 1.0).sum(-1)
            m = m_new
        y[b, :] = hl.broadcast_to(count + total * 0.125, [x.shape[2]])
    return y


KERNELS = (summed, alternating, softmax_of_rows, guarded, not_scaled, counted)


def arrays(seed: int) -> tuple[np.ndarray, ...]:
    """Pages, of which some are NaN; tables end in such, or in no page at all."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((9, 8, 16)).astype(np.float32)
    x[7:] = np.nan
    lengths = np.array([0, 1, 2, 3, 4, 5, 5, 1], np.int32)
    table = rng.integers(0, 7, (8, 5)).astype(np.int32)
    behind = np.arange(5) >= lengths[:, None]
    table[behind] = rng.choice([7, 8, -1, 99], behind.sum())
    return x, table, lengths


def wrong(kernel: tile.Kernel, count: int) -> bool:
    """Whether several pages in a turn give something else than one after the other."""
    given = arrays(count)
    with np.errstate(all="ignore"):
        exact = kernel.reference(*given)
    found = kernel(*given, config=tile.Config({"p": count}))
    return not np.allclose(found, exact, rtol=1e-5, atol=1e-5, equal_nan=True)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
@pytest.mark.parametrize("count", [3, pytest.param(8, marks=pytest.mark.slow)])
def test_turns_of_several_give_what_single_ones_do(kernel, count):
    assert not wrong(kernel, count)


PLANTED = {
    "every iteration runs": (summed, turns._Turns, "live", lambda *_: None),
    "any maximum may be taken once": (not_scaled, maxima, "_scales", lambda *_: True),
    "all vanishes with -inf": (counted, maxima, "_is_zero", lambda *_: True),
    "what is carried is never scaled": (softmax_of_rows, maxima, "is_one", lambda *_: True),
    "products of no page": (softmax_of_rows, turns, "where", lambda c, a, b, loc: a),
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_wrong_turn_is_found(what, monkeypatch):
    kernel, where, name, instead = PLANTED[what]
    monkeypatch.setattr(where, name, instead)
    again = tile.Kernel(kernel._fn)  # with nothing planned yet
    assert wrong(again, 3)


# ---------------------------------------------------------------- what is made of them


def made(kernel: tile.Kernel, count: int = 2) -> str:
    return kernel.source(*arrays(0), config=tile.Config({"p": count}))


def test_a_maximum_that_is_only_there_for_size_is_taken_once():
    assert made(softmax_of_rows).count("jnp.max(") == 1
    assert made(guarded).count("jnp.max(") == 4  # of rows, too; what is not seen is no 0 there
    assert made(not_scaled).count("jnp.max(") == 2


def pages(tokens: int, most: int, page: int = 128) -> tuple[object, ...]:
    count, pool = 16, tile.spec((8, 16 * most, page, 128), HALF)
    return (
        tile.spec((32, tokens, 128), HALF), pool, pool, tile.spec((count, most), "int32"),
        tile.spec((count,), "int32"), tile.spec((count + 1,), "int32"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("target", "arguments", "block"),
    [
        ("tpu:v6e", pages(16, 16), 4),
        ("tpu:v5e", pages(16, 16), 2),  # copies take as long as a step waits
        ("tpu:v6e", pages(16, 8), 2),
        ("tpu:v6e", pages(16, 4), None),  # the last turn would copy too much for nothing
        ("cpu", pages(16, 16), None),
    ],
)
def test_pages_are_looked_up_several_at_a_time_by_default(target, arguments, block):
    lowered = paged_attention.lower(*arguments, target=target)
    assert dict(lowered.config.blocks).get("p") == block
    again = paged_attention.lower(*arguments, target=target, config=lowered.config)
    assert again.source.text == lowered.source.text


def test_explain_says_how_many_a_step_runs():
    text = paged_attention.explain(*pages(16, 16), target="tpu:v6e")
    assert "ordered, table: carries total, acc, m; a step runs 4 of its iterations" in text


# ---------------------------------------------------------------- what is refused


@tile.kernel
def from_one(x, table, lengths):
    y = hl.zeros([table.shape[0], x.shape[2]], dtype=hl.float32)
    for b in hl.grid(table.shape[0]):
        acc = hl.zeros([x.shape[2]], dtype=hl.float32)
        for p in hl.grid(1, lengths[b], max_extent=table.shape[1]):
            acc = acc + x[table[b, p], :, :].sum(0)
        y[b, :] = acc
    return y


@tile.kernel
def with_a_loop(x, table, lengths):
    y = hl.zeros([table.shape[0], x.shape[2]], dtype=hl.float32)
    for b in hl.grid(table.shape[0]):
        acc = hl.zeros([x.shape[2]], dtype=hl.float32)
        for p in hl.grid(0, lengths[b], max_extent=table.shape[1]):
            for t in hl.tile(x.shape[1]):
                acc = acc + x[table[b, p], t, :].sum(0)
        y[b, :] = acc
    return y


@tile.kernel
def with_a_store(x, table, lengths):
    y = hl.zeros(x.shape, dtype=hl.float32)
    for b in hl.grid(table.shape[0]):
        acc = hl.zeros([x.shape[1], x.shape[2]], dtype=hl.float32)
        for p in hl.grid(0, lengths[b], max_extent=table.shape[1]):
            acc = acc + x[table[b, p], :, :]
            y[table[b, p], :, :] = acc
    return y


@tile.kernel
def moving(x, table, lengths):
    y = hl.zeros([table.shape[0], x.shape[1], x.shape[2]], dtype=hl.float32)
    for b in hl.grid(table.shape[0]):
        for t in hl.tile(x.shape[1]):
            acc = hl.zeros([t, x.shape[2]], dtype=hl.float32)
            for p in hl.grid(0, lengths[b], max_extent=table.shape[1]):
                acc = acc + hl.load(x, [b, t + p, slice(None)], mask=(t.index + p < 8)[:, None])
            y[b, t, :] = acc
    return y


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        (from_one, "it does not begin at 0"),
        (with_a_loop, "there is a loop in it"),
        (with_a_store, "there is a store to y in it"),
        (moving, "what it reads of x begins elsewhere every time"),
    ],
    ids=lambda v: getattr(v, "__name__", None),
)
def test_why_a_loop_has_no_turns_of_several(kernel, why):
    with pytest.raises(tile.PlanError) as refused:
        kernel.lower(*arrays(0), config=tile.Config({"p": 2}))
    assert refused.value.what == f"p cannot have a block: {why}"
    assert refused.value.hint == (
        "leave the block of p out; an ordered hl.grid loop can have one where it begins at 0, "
        "only carries values, and looks up whole blocks"
    )
    assert refused.value.loc is not None


@pytest.mark.slow
def test_layouts_of_pages():
    lowered = trial.printed("paged_attention", "groups")
    assert next(trial.reports("paged_attention", lowered, lowered.source.text), None) is None


def test_a_step_has_no_more_turns_than_its_text_may_hold():
    x = tile.spec((64, 16, 128), "float32")
    arguments = x, tile.spec((4, 2048), "int32"), tile.spec((4,), "int32")
    with pytest.raises(tile.PlanError, match="a body for each of its 512 iterations, 64 at most"):
        summed.source(*arguments, config=tile.Config({"p": 512}), target="tpu:v5e")
    assert "p * 64 + 63" in summed.source(
        *arguments, config=tile.Config({"p": 64}), target="tpu:v5e"
    )


@tile.kernel
def products(q, pages, table, lengths):
    """y[h, t] = the sum of q[h, t] @ its pages of head h: [H, 16 B, P] and [H, N, P, D]."""
    H, T, _ = q.shape
    B, most = table.shape
    y = hl.zeros([H, T, pages.shape[3]], dtype=q.dtype)
    for h, b in hl.grid([H, B]):
        for t in hl.tile(b * 16, b * 16 + 16, max_extent=16):
            acc = hl.zeros([t, pages.shape[3]], dtype=hl.float32)
            for p in hl.grid(0, lengths[b], max_extent=most):
                acc = hl.dot(q[h, t, :], pages[h, table[b, p], :, :], acc=acc)
            y[h, t, :] = acc.to(y.dtype)
    return y


def test_steps_of_one_small_product_have_all_heads_and_several_pages():
    """By v6e's schedules 40 us for 390 that a page of one head in each step takes."""
    q, pages = tile.spec((8, 256, 128), HALF), tile.spec((8, 512, 128, 128), HALF)
    given = q, pages, tile.spec((16, 16), "int32"), tile.spec((16,), "int32")
    config = products.default_config(*given, target="tpu:v6e")
    assert config.within == ("h",) and dict(config.blocks)["p"] == 4
    shapes = (3, 32, 8), (3, 4, 8, 40)
    a, b = (np.random.default_rng(0).standard_normal(s, np.float32) for s in shapes)
    table, lengths = np.array([[1, 0, 3], [2, 2, 0]], np.int32), np.array([3, 1], np.int32)
    small = tile.Config({"p": 2, "t": 16}, within=["h"])
    found = np.asarray(products(a, b, table, lengths, config=small))
    pairs = [(a[:, :16], b[:, [1, 0, 3]]), (a[:, 16:], b[:, [2]])]
    exact = np.concatenate([np.einsum("htp,hnpd->htd", *pair) for pair in pairs], 1)
    np.testing.assert_allclose(found, exact, 1e-4, 1e-4)
