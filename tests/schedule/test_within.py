"""Loops of which a step runs all iterations: when they may, and that nothing changes by it."""

from __future__ import annotations

import inspect
import math

import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged import varlen_attention
from tests.ragged import Space, every_stratum
from tilelang.codegen.pallas.plan.windows import turned
from tilelang.errors import PlanError

T, H, D, G = 72, 4, 16, 5
SPACE = Space(rows=T, groups=G, block=16)
WITHIN = tile.Config({"tm": 16}, within=["h"])


@tile.kernel
def rotate(x, angle, offsets):
    """Halves of the width are rotated; `norm` is the length of every row."""
    half = x.shape[2] // 2
    y = hl.zeros(x.shape, dtype=x.dtype)
    norm = hl.zeros(x.shape[:2], dtype=hl.float32)
    for h, g in hl.grid([x.shape[1], offsets.shape[0] - 1]):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            a, b = x[tm, h, :half], x[tm, h, half:]
            cos, sin = hl.cos(angle[tm]), hl.sin(angle[tm])
            y[tm, h, :half] = a * cos[:, None] - b * sin[:, None]
            y[tm, h, half:] = b * cos[:, None] + a * sin[:, None]
            norm[tm, h] = hl.sqrt((a * a).sum(-1) + (b * b).sum(-1))
    return y, norm


def rotated(x, angle, offsets):
    live = (np.arange(len(x)) >= offsets[0]) & (np.arange(len(x)) < offsets[-1])
    a, b = np.split(x.astype(np.float64), 2, -1)
    cos, sin = np.cos(angle)[:, None, None], np.sin(angle)[:, None, None]
    y = np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)
    norm = np.sqrt((x.astype(np.float64) ** 2).sum(-1))
    return y * live[:, None, None], norm * live[:, None]


@tile.kernel
def twice(x, offsets, others):
    """Rows of groups, of which some are stored once more."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for h in hl.grid(x.shape[1]):
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                y[tm, h, :] = x[tm, h, :] + 1
            for ts in hl.tile(others[g], others[g + 1]):
                y[ts, h, :] = -x[ts, h, :]
    return y


@tile.kernel
def products(x, w, offsets):
    """[T, H, D] times [H, D, N], with a sum that starts anew in every tile."""
    rows, heads, _ = x.shape
    y = hl.zeros([rows, heads, w.shape[2]], dtype=x.dtype)
    for h in hl.grid(heads):
        for g in hl.grid(offsets.shape[0] - 1):
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                acc = hl.zeros([tm, w.shape[2]], dtype=hl.float32)
                for tk in hl.tile(w.shape[1]):
                    acc = hl.dot(x[tm, h, tk], w[h, tk, :], acc=acc)
                y[tm, h, :] = acc
    return y


def multiplied(x, w, offsets):
    live = (np.arange(len(x)) >= offsets[0]) & (np.arange(len(x)) < offsets[-1])
    return np.einsum("thk,hkn->thn", x.astype(np.float64), w) * live[:, None, None]


@tile.kernel
def corners(x):
    """Two loops within the step; neither array is [.., heads, width]."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for a, b in hl.grid([x.shape[0], x.shape[1]]):
        for tm in hl.tile(x.shape[2]):
            y[a, b, tm] = x[a, b, tm] * (a + 1) + b
    return y


def arrays(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


@pytest.mark.parametrize("config", [tile.Config({"tm": 16}), WITHIN], ids=["default", "within"])
def test_parts_of_the_width_and_one_number_for_every_head(config):
    x, angle = arrays((T, H, D), (T,))
    for layout in every_stratum(SPACE):
        results = rotate(x, angle, layout.offsets, config=config)
        for result, exact in zip(results, rotated(x, angle, layout.offsets), strict=True):
            np.testing.assert_allclose(np.asarray(result), exact, atol=2e-5)


@pytest.mark.parametrize(
    "more",
    [{}, {"steps": "rectangle"}, {"loop_type": "worklist"}, {"loop_type": "fori_loop"}],
    ids=str,
)
def test_every_form_of_the_nest(more):
    x, w = arrays((T, H, 24), (H, 24, 20))
    config = tile.Config({"tm": 16, "tk": 8}, within=["h"], **more)
    for layout in every_stratum(SPACE):
        result = np.asarray(products(x, w, layout.offsets, config=config))
        np.testing.assert_allclose(result, multiplied(x, w, layout.offsets), atol=2e-5)


@tile.kernel
def own_rows(x, offsets):
    """A ragged range for every position that is picked in the last two dimensions but one."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm, g, :] = x[tm, g, :] + 1
    return y


@pytest.mark.parametrize("more", [{}, {"loop_type": "fori_loop"}], ids=str)
def test_loops_that_ranges_depend_on_stay_out(more):
    (x,) = arrays((T, G, D))
    for layout in every_stratum(SPACE):
        cuts = layout.offsets
        rows = np.arange(T)[:, None]
        own = (rows >= cuts[:-1]) & (rows < cuts[1:])
        result = np.asarray(own_rows(x, cuts, config=tile.Config({"tm": 16}, **more)))
        np.testing.assert_array_equal(result, np.where(own[:, :, None], x + 1, 0))


@tile.kernel
def spread(x, offsets):
    """Sums over all rows, stored by loops inside the step for every index of the outer one."""
    heads, rows, width = x.shape
    y = hl.zeros([2, rows, heads, width], dtype=x.dtype)
    for i in hl.grid(heads):
        total = hl.zeros([width], dtype=hl.float32)
        for g in hl.grid(offsets.shape[0] - 1):
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                total = total + x[i, tm, :].sum(0)
        for h in hl.grid(2):
            for g in hl.grid(offsets.shape[0] - 1):
                for tm in hl.tile(offsets[g], offsets[g + 1]):
                    y[h, tm, i, :] = total[None, :] + hl.zeros([tm, width], dtype=hl.float32)
    return y


def test_stores_of_loops_inside_of_the_step():
    (x,) = arrays((3, T, D))
    for layout in every_stratum(SPACE):
        rows = np.arange(T)
        live = (rows >= layout.offsets[0]) & (rows < layout.offsets[-1])
        total = np.where(live[:, None], x.astype(np.float64), 0).sum(1)
        exact = np.broadcast_to(live[:, None, None] * total, (2, T, 3, D))
        result = np.asarray(spread(x, layout.offsets, config=tile.Config({"tm": 16})))
        np.testing.assert_allclose(result, exact, atol=2e-5)
    with pytest.raises(PlanError, match="at another position by every iteration of a loop inside"):
        spread.lower(x, layout.offsets, config=tile.Config(loop_type="fori_loop", within=["i"]))


@pytest.mark.parametrize("names", [["a"], ["b"], ["a", "b"], []], ids=str)
def test_loops_over_leading_dimensions(names):
    (x,) = arrays((3, 5, 40))
    result = corners(x, config=tile.Config({"tm": 16}, within=names))
    exact = x * (np.arange(3) + 1)[:, None, None] + np.arange(5)[None, :, None]
    np.testing.assert_allclose(np.asarray(result), exact, rtol=1e-6, atol=1e-6)


def moved(kernel, *args, **options):
    """Arrays that the host transposes, and what the config says of loops within the step."""
    plan = kernel.lower(*args, **options).plan
    return [a.source for a in plan.arrays if a.permute is not None], plan.config.within


CASE = varlen_attention.CASES[4]  # 65,536 tokens, 16 heads of 128, bfloat16


@pytest.mark.parametrize("target", ["tpu:v5e", "tpu:v5p", "tpu:v6e", "tpu:7x", "cpu"])
def test_no_array_is_transposed_where_heads_fit_into_a_step(target):
    assert moved(varlen_attention.varlen_attention, *CASE, target=target) == ([], ("h",))


def test_arrays_are_transposed_if_the_config_says_so():
    config = tile.Config(within=[])
    found = moved(varlen_attention.varlen_attention, *CASE, target="tpu:v6e", config=config)
    assert found == (["k", "v", "q", "out"], ())


def test_arrays_are_transposed_where_the_heads_are_too_many():
    q, _, _, *rest = CASE
    many = tile.spec((q.shape[0], 64, 128), "bfloat16")
    kernel = varlen_attention.varlen_attention
    assert moved(kernel, many, many, many, *rest, target="tpu:v6e")[1] is None


def test_the_default_config_says_it():
    config = varlen_attention.varlen_attention.default_config(*CASE, target="tpu:v6e")
    assert config.within == ("h",)
    assert tile.Config.from_json(config.to_json()) == config


# ---------------------------------------------------------------- refusals


@tile.kernel
def summed(x):
    """The heads are added up."""
    y = hl.zeros([x.shape[0], x.shape[2]], dtype=x.dtype)
    for h in hl.grid(x.shape[1]):
        for tm in hl.tile(x.shape[0]):
            y[tm, :] += x[tm, h, :]
    return y


@tile.kernel
def doubled(x):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for h in hl.grid(x.shape[1]):
        for tm in hl.tile(x.shape[0]):
            y[tm, h, :] = x[tm, h, :]
            y[tm, h, :] = y[tm, h, :] * 2.0
    return y


@tile.kernel
def sheared(x, start):
    """Every head has its rows at another place."""
    y = hl.zeros([x.shape[0] + 8, x.shape[1], x.shape[2]], dtype=x.dtype)
    for h in hl.grid(x.shape[1]):
        for tm in hl.tile(x.shape[0]):
            y[start[h] + tm.index, h, :] = x[tm, h, :]
    return y


@tile.kernel
def every_other(x):
    y = hl.zeros([x.shape[0], 2 * x.shape[1], x.shape[2]], dtype=x.dtype)
    for h in hl.grid(x.shape[1]):
        for tm in hl.tile(x.shape[0]):
            y[tm, 2 * h, :] = x[tm, h, :]
    return y


@tile.kernel
def picked(x, index):
    y = hl.zeros([4, *x.shape], dtype=x.dtype)
    for h in hl.grid(4):
        for tm in hl.tile(index.shape[0]):
            y[h, tm, :] = x[index[tm], :] * (h + 1)
    return y


def scaled(heads):
    return tile.spec((64, heads, 128), "float32")


REFUSED = {
    "unknown": (
        products,
        (scaled(4), tile.spec((4, 128, 20), "float32"), tile.spec((6,), "int32")),
        {"within": ["head"]},
        "config wants all iterations of 'head' within the step, but no hl.grid loop of products "
        "has that index",
        "the indices of such loops are: h, g",
    ),
    "ragged": (
        products,
        (scaled(4), tile.spec((4, 128, 20), "float32"), tile.spec((6,), "int32")),
        {"within": ["g"], "loop_type": "outer_pipeline"},
        "not all iterations of g can run within one step: the range of tm depends on it",
        "only a parallel loop with constant bounds can, if no other range depends on it",
    ),
    "moved": (
        sheared,
        (scaled(4), tile.spec((4,), "int32")),
        {"within": ["h"]},
        "not all iterations of h can run within one step: the range of tm depends on it",
        "only a parallel loop with constant bounds can, if no other range depends on it",
    ),
    "ordered": (
        summed,
        (scaled(4),),
        {"within": ["h"]},
        "not all iterations of h can run within one step: ",
        "only a parallel loop with constant bounds can, if no other range depends on it",
    ),
    "too many": (
        every_other,
        (scaled(40),),
        {"within": ["h"]},
        "40 iterations of h within one step are too many",
        "the step contains the code of each of them: 32 are the most",
    ),
    "pipelines inside": (
        products,
        (scaled(4), tile.spec((4, 128, 20), "float32"), tile.spec((6,), "int32")),
        {"within": ["h"], "loop_type": "emit_pipeline"},
        "iterations of h cannot run within a step whose inner loops are pipelines of their own",
        "use loop_type='outer_pipeline', or leave within out",
    ),
    "stored and read": (
        doubled,
        (scaled(4),),
        {"within": ["h"]},
        "y is stored and also read, for all iterations of a loop at once",
        "leave within out of the config",
    ),
    "gaps": (
        every_other,
        (scaled(4),),
        {"within": ["h"]},
        "not every element of y that lies between those stored by one step is stored by it too",
        "leave within out of the config",
    ),
    "several stores": (
        twice,
        (scaled(4), tile.spec((6,), "int32"), tile.spec((6,), "int32")),
        {"within": ["h"]},
        "y is stored to by several statements, for all iterations of a loop at once, and each "
        "leaves out other rows",
        "leave within out of the config",
    ),
    "gather": (
        picked,
        (tile.spec((64, 128), "float32"), tile.spec((64,), "int32")),
        {"within": ["h"]},
        "rows that an index array picks are moved for one iteration of h at a time",
        "leave within out of the config",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_it_is_refused(name):
    kernel, args, fields, what, hint = REFUSED[name]
    kernel = tile.kernel(inspect.unwrap(kernel))  # nothing of it was planned before
    with pytest.raises(PlanError) as caught:
        kernel.lower(*args, config=tile.Config(**fields), target="tpu:v6e")
    assert caught.value.what.startswith(what)
    assert caught.value.hint == hint
    assert caught.value.loc is not None


@pytest.mark.parametrize("within", [None, []])
def test_two_loops_that_store_rows_of_all_heads(within):
    (x,) = arrays((T, 3, D))
    ends = np.array([0, 17, 24, 24, T], np.int32), np.array([0, 1, 2, 40, 41], np.int32)
    config = tile.Config({"tm": 16, "ts": 16}, within=within)
    found = twice(jnp.asarray(x), *map(jnp.asarray, ends), config=config)
    np.testing.assert_array_equal(np.asarray(found), twice.reference(x, *ends))


@pytest.mark.parametrize("kernel", [doubled, every_other], ids=["doubled", "every_other"])
def test_what_is_refused_runs_by_default(kernel):
    (x,) = arrays((40, 3, 16))
    result = np.asarray(kernel(jnp.asarray(x)))
    if kernel is doubled:
        np.testing.assert_allclose(result, 2 * x)
    else:
        np.testing.assert_array_equal(result[:, ::2], x)
        assert not result[:, 1::2].any()


def test_heads_whose_rows_are_elsewhere_do_not_share_a_mask():
    (x,) = arrays((40, 3, 16))
    start = np.array([8, 0, 3], np.int32)
    result = np.asarray(sheared(jnp.asarray(x), start))
    np.testing.assert_array_equal(result, sheared.reference(x, start))


def test_heads_that_run_in_one_step_whatever_their_rows_are_caught(monkeypatch):
    monkeypatch.setattr(turned, "_check", lambda problem, axis, outward: None)
    (x,) = arrays((40, 3, 16))
    start = np.array([8, 0, 3], np.int32)
    result = np.asarray(sheared(jnp.asarray(x), start, config=tile.Config(within=["h"])))
    assert not np.array_equal(result, sheared.reference(x, start))


def test_a_value_that_starts_anew_inside_is_not_reset_too_early():
    """The sum of the heads' maxima so far is read before it is set back."""

    @tile.kernel
    def kernel(x):
        y = hl.zeros([x.shape[0], x.shape[1], x.shape[2]], dtype=x.dtype)
        for h in hl.grid(x.shape[1]):
            for tm in hl.tile(x.shape[0]):
                m = hl.full([tm], -math.inf, dtype=hl.float32)
                for tk in hl.tile(x.shape[2], block_size=128):
                    m_new = hl.maximum(m, x[tm, h, tk].amax(-1))
                    y[tm, h, tk] = x[tm, h, tk] + m_new[:, None]
                    m = hl.zeros([tm], dtype=hl.float32)
        return y

    (x,) = arrays((40, 3, 256))
    exact = np.empty_like(x)
    exact[:, :, :128] = x[:, :, :128] + x[:, :, :128].max(-1, keepdims=True)
    exact[:, :, 128:] = x[:, :, 128:] + np.maximum(x[:, :, 128:].max(-1, keepdims=True), 0)
    for within in (["h"], []):
        result = kernel(x, config=tile.Config({"tm": 16}, within=within))
        np.testing.assert_allclose(np.asarray(result), exact, rtol=1e-6)
