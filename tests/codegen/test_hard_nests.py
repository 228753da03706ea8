"""Nests in which steps, blocks or names are easily confused; each against the reference."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl

pytestmark = pytest.mark.slow  # compiles about forty kernels

FORMS = ({}, {"steps": "rectangle"}, {"loop_type": "fori_loop"})
LAYOUTS = [[0, 7, 7, 20, 50], [3, 3, 3, 3, 3], [10, 12, 13, 13, 40], [0, 0, 0, 50, 50]]
OTHERS = [[0, 0, 8, 9, 30], [30, 30, 30, 30, 30], [2, 5, 5, 9, 30], [0, 8, 16, 24, 30]]


@tile.kernel
def nested_ranges(x, outer, inner):
    """Pages of a group, rows of a page."""
    y = hl.zeros_like(x)
    for a in hl.grid(outer.shape[0] - 1):
        for p in hl.grid(outer[a], outer[a + 1], max_extent=7):
            for tm in hl.tile(inner[p], inner[p + 1]):
                y[tm, :] = x[tm, :] * (a + p + 1)
    return y


@tile.kernel
def nested_sums(x, outer, inner):
    """The sum of a group's pages; a group without pages, a page without rows."""
    total = hl.empty([outer.shape[0] - 1, x.shape[1]], dtype=hl.float32)
    for a in hl.grid(outer.shape[0] - 1):
        acc = hl.full([x.shape[1]], 0.5, dtype=hl.float32)
        for p in hl.grid(outer[a], outer[a + 1], max_extent=7):
            for tm in hl.tile(inner[p], inner[p + 1]):
                acc = acc + x[tm, :].sum(0) * (p + 1)
            acc = acc + 1
        total[a, :] = acc
    return total


@tile.kernel
def nested_rows_and_sums(x, outer, inner):
    """Rows and sums of the same nest: the step of an empty group must not go back to a page."""
    y = hl.zeros_like(x)
    total = hl.empty([outer.shape[0] - 1, x.shape[1]], dtype=hl.float32)
    for a in hl.grid(outer.shape[0] - 1):
        acc = hl.full([x.shape[1]], 0.5, dtype=hl.float32)
        for p in hl.grid(outer[a], outer[a + 1], max_extent=7):
            for tm in hl.tile(inner[p], inner[p + 1]):
                y[tm, :] = x[tm, :] * (a + p + 1)
                acc = acc + x[tm, :].sum(0)
            acc = acc + 1
        total[a, :] = acc
    return y, total


@tile.kernel
def rows_in_order(x, outer):
    """An ordered static loop under a range that may be empty but needs a step."""
    y = hl.zeros_like(x)
    total = hl.empty([outer.shape[0] - 1], dtype=hl.float32)
    for a in hl.grid(outer.shape[0] - 1):
        s = 0.5
        for p in hl.grid(outer[a], outer[a + 1], max_extent=7):
            for t in hl.tile(x.shape[1]):
                y[p, t] = x[p, t] * 2
                s = s + x[p, t].sum()
        total[a] = s
    return y, total


@tile.kernel
def statistics_per_head(x, offsets):
    """A statistic [G, H, T] beside rows, with the heads outside of the groups."""
    H, T, _ = x.shape
    lse = hl.zeros([offsets.shape[0] - 1, H, T], dtype=x.dtype)
    for h in hl.grid(H):
        for g in hl.grid(offsets.shape[0] - 1):
            for tq in hl.tile(offsets[g], offsets[g + 1]):
                lse[g, h, tq] = x[h, tq, :].sum(1)
    return lse


@tile.kernel
def columns_per_head(x, offsets):
    """Heads between the groups and their tiles pick one lane of the output's blocks."""
    H, T, _ = x.shape
    y = hl.zeros([T, H], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for h in hl.grid(H):
            for tq in hl.tile(offsets[g], offsets[g + 1]):
                y[tq, h] = x[h, tq, :].sum(1)
    return y


@tile.kernel
def pages_of_no_group(outer, inner):
    """Rows of pages that no group has keep what they were created with."""
    y = hl.full([30, 8], 3.0, dtype=hl.float32)
    for a in hl.grid(2):
        for p in hl.grid(outer[a], outer[a + 1], max_extent=3):
            for tm in hl.tile(inner[p], inner[p + 1]):
                y[tm, :] = 1.0 + hl.zeros([tm, 8], dtype=hl.float32)
    return y


@tile.kernel
def cells(outer):
    """A block that all steps share, under a loop outside of the table."""
    y = hl.full([2, 2], 0.0, dtype=hl.float32)
    for h in hl.grid(2):
        for a in hl.grid(1):
            for p in hl.grid(outer[a], outer[a + 1], max_extent=2):
                y[p, h] = 1.0
    return y


@tile.kernel
def columns(x):
    """A vector stored to one column of a square."""
    y = hl.full([3, 3], 0.0, dtype=hl.float32)
    for i in hl.grid(3):
        y[:, i] = x[:]
    return y


@tile.kernel
def only_group(offsets, x):
    """A grid of one index, which the offset of a tile reads."""
    y = hl.full([1], 3.0, dtype=hl.float32)
    for g in hl.grid(1):
        acc = 0.0
        for t in hl.tile(offsets[g + 1] - offsets[g], max_extent=40):
            acc = acc + x[g, offsets[g] + t.index].sum(0)
        y[g] = acc
    return y


@tile.kernel
def short_rows(x, offsets):
    """Two passes over ranges of a dimension that is one block, and no multiple of 128."""
    y = hl.zeros([offsets.shape[0] - 1, 3, x.shape[1]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        total = 0.0
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            total = total + x[0, tm].sum()
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[g, 0, tm] = x[0, tm] * total
    return y


@tile.kernel
def two_lengths(x, b, offsets, others):
    """An output that needs every tile of every group beside one whose tiles only rise."""
    y = hl.full([4, 30, 128], 3.0, dtype=hl.float32)
    z = hl.full([30, 128], -1.0, dtype=hl.float32)
    for g in hl.grid(4):
        for tk in hl.tile(others[g], others[g + 1]):
            y[g, tk, :] = x[g, tk, :] * 2
            z[tk, :] = b[tk, :] + g
    return y, z


@tile.kernel
def between(x, offsets):
    """The output moves with h and the tile, and not with g between them."""
    y = hl.full([40, 3, 50], 3.0, dtype=hl.float32)
    z = hl.full([40], -1.0, dtype=hl.float32)
    for tn in hl.tile(40):
        for h in hl.grid(3):
            for g in hl.grid(4):
                for tm in hl.tile(offsets[g], offsets[g + 1]):
                    y[tn, h, tm] = x[tn, h, tm] * 2
        z[tn] = 7.0
    return y, z


@tile.kernel
def pairs(x, offsets, others):
    """Every pair of tiles of two ragged ranges: no dead step may touch a block again."""
    y = hl.full([30, 50], -1.0, dtype=hl.float32)
    n = hl.full([4], -1.0, dtype=hl.float32)
    for g in hl.grid(4):
        acc = 0.0
        for tk in hl.tile(others[g], others[g + 1]):
            acc = acc + (tk.end - tk.begin)
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                y[tk, tm] = x[tk, tm] * 2
        n[g] = acc
    return y, n


@tile.kernel
def picked_twice(x):
    """A tile followed by two scalars."""
    y = hl.zeros([40, 3, 5], dtype=hl.float32)
    for tn in hl.tile(40):
        for h in hl.grid(3):
            for g in hl.grid(5):
                y[tn, h, g] = x[tn, h, g] * 2
    return y


@tile.kernel
def two_launches(x, offsets):
    """Two ragged launches that read one input."""
    y = hl.empty([3, 50], dtype=hl.float32)
    z = hl.zeros([50, 3], dtype=hl.float32)
    for g in hl.grid(4):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            for h in hl.grid(3):
                y[h, tm] = x[tm, h] * 2
    for g in hl.grid(4):
        for tn in hl.tile(offsets[g], offsets[g + 1]):
            z[tn, :] = x[tn, :] + g
    return y, z


def doubled(value):
    t = value * 2
    return t


@tile.kernel
def reused_names(x, b):
    """One name for several values, inside and outside of the loop and of a helper."""
    M, N = x.shape
    y = hl.empty([M], dtype=x.dtype)
    z = hl.empty([M], dtype=x.dtype)
    u = hl.empty([M], dtype=x.dtype)
    for tm in hl.tile(M):
        t = doubled(b[tm])
        old = t
        p = hl.zeros([tm], dtype=hl.float32)
        q = hl.zeros([tm], dtype=hl.float32)
        for tn in hl.tile(N):
            s = x[tm, tn].sum(1)
            t = p + doubled(s)
            r = q + doubled(s * 3)
            p = t
            t = hl.where(old == old, r, old)
            q = t
        y[tm] = p
        z[tm] = q
        u[tm] = old + t
    return y, z, u


@tile.kernel
def exchanged(x):
    """Carries that take each other's values."""
    y = hl.empty([x.shape[0]], dtype=x.dtype)
    z = hl.empty([x.shape[0]], dtype=x.dtype)
    for tm in hl.tile(x.shape[0]):
        a = hl.zeros([tm], dtype=hl.float32)
        b = hl.full([tm], 1.0, dtype=hl.float32)
        for i in hl.grid(5):
            a, b = b, a + b * (i + 1)
        y[tm] = a
        z[tm] = b + x[tm, 0]
    return y, z


@tile.kernel
def signed(x):
    """Indices below zero, and what floor division makes of them."""
    y = hl.empty_like(x)
    for i in hl.grid(-4, 5):
        y[i + 4, :] = x[i + 4, :] * (i % 3) + i // 2
    return y


@tile.kernel
def nothing_to_multiply(x, w, b):
    """K may be zero: what is left is the epilogue."""
    y = hl.zeros([x.shape[0], w.shape[1]], dtype=x.dtype)
    for tm in hl.tile(x.shape[0]):
        acc = hl.zeros([tm, w.shape[1]], dtype=hl.float32)
        for tk in hl.tile(x.shape[1]):
            acc = hl.dot(x[tm, tk], w[tk, :], acc=acc)
        y[tm, :] = acc + b[tm, :]
    return y


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


def offsets(values: list[int]) -> np.ndarray:
    return np.array(values, np.int32)


def agree(kernel: tile.Kernel, arguments: tuple[np.ndarray, ...], config: tile.Config) -> None:
    with np.errstate(all="ignore"):
        wanted = kernel.reference(*arguments)
    results = kernel(*arguments, config=config)
    if not isinstance(results, tuple):
        results, wanted = (results,), (wanted,)
    for result, want in zip(results, wanted, strict=True):
        seen = ~np.isnan(want)  # an element that nothing stores may be anything
        np.testing.assert_allclose(result[seen], want[seen], rtol=1e-4, atol=1e-3)


RAGGED = {
    "two_lengths": (two_lengths, (floats(4, 30, 128), floats(30, 128)), {"tk": 8}, True),
    "between": (between, (floats(40, 3, 50),), {"tm": 16, "tn": 16}, False),
    "pairs": (pairs, (floats(30, 50),), {"tm": 16, "tk": 8}, True),
    "two_launches": (two_launches, (floats(50, 3),), {"tm": 16, "tn": 16}, False),
}


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("name", RAGGED)
def test_ragged(name: str, form: dict[str, str]) -> None:
    kernel, arrays, blocks, second = RAGGED[name]
    for first, other in zip(LAYOUTS, OTHERS, strict=True):
        more = (offsets(first), offsets(other)) if second else (offsets(first),)
        agree(kernel, (*arrays, *more), tile.Config(blocks, **form))


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("kernel", [nested_ranges, nested_sums], ids=lambda k: k.__name__)
def test_ranges_of_ranges(kernel: tile.Kernel, form: dict[str, str]) -> None:
    x = floats(50, 128)
    for outer, inner in (
        ([0, 2, 2, 7], [0, 10, 10, 20, 33, 33, 49, 50]),
        ([0, 0, 0, 0], [0] * 8),
        ([1, 3, 5, 6], [3, 3, 9, 9, 9, 20, 40, 50]),
        ([0, 7, 7, 7], [0, 1, 2, 3, 4, 5, 6, 50]),
    ):
        arguments = (x, offsets(outer), offsets(inner))
        agree(kernel, arguments, tile.Config({"tm": 16}, **form))


OUTER = ([0, 2, 2, 7], [0, 0, 0, 0], [1, 3, 5, 6], [0, 7, 7, 7], [0, 0, 7, 7], [3, 3, 3, 5])


@pytest.mark.parametrize("form", [{}, {"loop_type": "fori_loop"}], ids=str)
@pytest.mark.parametrize("outer", OUTER, ids=str)
def test_the_step_of_an_empty_range_stays_where_it_is(outer: list[int], form) -> None:
    x, config = floats(50, 128), tile.Config({"tm": 16}, **form)
    for inner in ([0, 10, 10, 20, 33, 33, 49, 50], [0, 1, 2, 3, 4, 5, 6, 50], [3] * 7 + [50]):
        agree(nested_rows_and_sums, (x, offsets(outer), offsets(inner)), config)


@pytest.mark.parametrize("outer", OUTER, ids=str)
def test_an_ordered_loop_under_an_empty_range(outer: list[int]) -> None:
    agree(rows_in_order, (floats(7, 300), offsets(outer)), tile.Config())
    agree(rows_in_order, (floats(7, 300), offsets(outer)), tile.Config({"t": 128}))


def test_steps_that_would_go_back_are_refused() -> None:
    x, outer, inner = floats(50, 128), offsets([0, 7, 7, 7]), offsets([0, 1, 2, 3, 4, 5, 6, 50])
    rectangle = tile.Config({"tm": 16}, steps="rectangle")
    with pytest.raises(tile.TileError, match=r"(?s)blocks of y again.*steps='table'"):
        nested_rows_and_sums.source(x, outer, inner, config=rectangle)
    pipeline = tile.Config({"t": 128}, loop_type="outer_pipeline")
    with pytest.raises(tile.TileError, match=r"(?s)blocks of y again.*loop_type='fori_loop'"):
        rows_in_order.source(floats(7, 300), outer, config=pipeline)


def test_statistics_of_heads_outside_of_groups() -> None:
    x = floats(3, 50, 16)
    for layout in LAYOUTS:
        agree(statistics_per_head, (x, offsets(layout)), tile.Config({"tq": 16}))


def test_the_default_falls_back_to_loops_inside_the_step() -> None:
    x, small = floats(3, 50, 16), {"tq": 16}
    for layout in LAYOUTS:
        agree(columns_per_head, (x, offsets(layout)), tile.Config(small))
        agree(columns_per_head, (x, offsets(layout)), tile.Config())  # all rows are one block
    found = columns_per_head.lower(x, offsets(LAYOUTS[0]), config=tile.Config(small)).plan
    assert found.config.loop_type == "fori_loop"
    with pytest.raises(tile.TileError, match="first at its block of y depends on several loops"):
        pipeline = tile.Config(small, loop_type="outer_pipeline")
        columns_per_head.source(x, offsets(LAYOUTS[0]), config=pipeline)


@pytest.mark.parametrize("outer", [[1, 2, 2], [0, 1, 1], [2, 3, 3], [0, 3, 3], [3, 3, 3]], ids=str)
def test_pages_of_no_group(outer: list[int]) -> None:
    for inner in ([0, 18, 18, 30], [0, 0, 0, 0], [5, 10, 20, 25]):
        for blocks in ({}, {"tm": 8}):
            agree(pages_of_no_group, (offsets(outer), offsets(inner)), tile.Config(blocks))


def test_single_positions() -> None:
    for outer in ([0, 2], [0, 0], [1, 2]):
        agree(cells, (offsets(outer),), tile.Config())
    agree(columns, (floats(3),), tile.Config())
    agree(only_group, (offsets([3, 17]), floats(1, 40)), tile.Config())


def test_a_whole_dimension_is_selected_whole() -> None:
    arguments = (floats(3, 50), offsets([0, 7, 7, 20, 50]))
    agree(short_rows, arguments, tile.Config())
    assert "pl.ds" not in short_rows.source(*arguments, target="tpu:v5e")


DENSE = {
    "picked_twice": (picked_twice, (floats(40, 3, 5),), {"tn": 16}),
    "reused_names": (reused_names, (floats(48, 256), floats(48)), {"tm": 16, "tn": 128}),
    "exchanged": (exchanged, (floats(48, 8),), {"tm": 16}),
    "signed": (signed, (floats(9, 128),), {}),
}


@pytest.mark.parametrize("loop_type", ["grid", "outer_pipeline", "fori_loop", "unroll"])
@pytest.mark.parametrize("name", DENSE)
def test_dense(name: str, loop_type: str) -> None:
    kernel, arguments, blocks = DENSE[name]
    agree(kernel, arguments, tile.Config(blocks, loop_type=loop_type))


@pytest.mark.parametrize("shape", [(16, 0, 128), (0, 8, 128), (16, 8, 128)])
def test_sizes_of_zero(shape: tuple[int, int, int]) -> None:
    M, K, N = shape
    agree(nothing_to_multiply, (floats(M, K), floats(K, N), floats(M, N)), tile.Config())


def test_a_sum_over_parts_of_which_there_are_none() -> None:
    """The first launch stores nothing, and the second one must not look at what it stored."""
    from examples.dense.split_k_matmul import split_k_matmul

    result = split_k_matmul(np.zeros((4, 0), np.float32), np.zeros((0, 3), np.float32))
    np.testing.assert_array_equal(result, np.zeros((4, 3)))


def test_offsets_that_break_the_rules_touch_nothing_outside() -> None:
    """In the interpreter that knows the bounds of every memory; the values are anything."""
    from jax.experimental.pallas import tpu as pltpu

    options = {"interpret": pltpu.InterpretParams(), "checks": False}
    unchecked = tile.kernel(nested_sums.__wrapped__, **options)
    x, inner = floats(50, 128), offsets([0, 10, 10, 20, 33, 33, 49, 50])
    for outer in ([0, 7, 7, 7], [6, 2, 9, -3], [2**31 - 1, -(2**31), 0, 7]):
        total = unchecked(x, offsets(outer), inner, config=tile.Config({"tm": 16}))
        assert total.shape == (3, 128)
