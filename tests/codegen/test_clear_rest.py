"""Clearing the rest: for which outputs a fill becomes one of the rows that ranges leave."""

from __future__ import annotations

import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged.grouped_gemm import grouped_gemm
from examples.jagged.jagged_attention import jagged_attention
from examples.jagged.jagged_to_padded import jagged_to_padded
from examples.jagged.padded_to_jagged import padded_to_jagged
from tests.passes.becomes import again
from tilelang import ir
from tilelang.codegen.triton.passes import clear_rest

X, OFFSETS = tile.spec((8192, 512), "float32"), tile.spec((9,), "int32")
HALF = tile.spec((8192, 512), "bfloat16")


def plan(kernel, *args, **options):
    return kernel.lower(*args, target="cuda:sm90", **options).plan


def clears(kernel, *args):
    """Whether programs clear the first output, and nothing fills it."""
    made = plan(kernel, *args)
    cleared = made.buffers[0].fill is None
    (launch,) = made.launches
    assert ("row" in {a.name for a in launch.axes}) == cleared
    return cleared


@tile.kernel
def doubled(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = x[t, :] * 2.0
    return y


def test_programs_share_the_rows():
    (launch,) = plan(doubled, X, OFFSETS).launches
    text = doubled.source(X, OFFSETS, target="cuda:sm90")
    assert "y = torch.empty((8192, 512)" in text and "torch.zeros" not in text
    assert f"for row_start in tl.range(pid * 16, 8192, {16 * launch.programs}):" in text
    assert "outside = (row_start < first) | (row_start + 16 > last)" in text
    assert "mask=(seen == 0)[:, None]" in text
    assert "tl.debug_barrier()" not in text  # no row is one of those that the loop before stores


def test_specialized_warps_have_no_part_for_it():
    w = tile.spec((8, 512, 1024), "bfloat16")
    config = tile.Config(warp_specialize=True)
    made = grouped_gemm.lower(HALF, w, OFFSETS, target="cuda:sm100", config=config).plan
    first, *others = ({axis.name for axis in one.axes} for one in made.launches)
    assert "row" in first and others and not any("row" in names for names in others)


def test_without_groups_all_is_filled():
    (buffer,) = plan(doubled, X, tile.spec((1,), "int32")).buffers
    assert buffer.fill == 0.0


def test_many_ranges_of_many_numbers_are_not_searched():
    """A row is looked for in every range: more than a fill of so few bytes takes."""

    def searched(rows, columns, ranges):
        made = tile.spec((rows, columns), "float32"), tile.spec((ranges + 1,), "int32")
        return plan(doubled, *made).buffers[0].fill is None

    assert searched(2**20, 256, 2**14) and searched(2**14, 4, 2**12)
    assert not searched(2**20, 4, 2**14)


@tile.kernel
def read_later(x, offsets):
    """What the first launch stores and clears, the second one reads: all of it."""
    z, y = hl.zeros(x.shape, dtype=x.dtype), hl.empty(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            z[t, :] = x[t, :] * 2.0
    for t in hl.tile(x.shape[0]):
        y[t, :] = z[t, :] + 1.0
    return y


def test_what_a_later_launch_reads_is_cleared_by_the_one_that_stores_it():
    first, second = plan(read_later, X, OFFSETS).launches
    assert [a.name for a in first.axes] == ["g", "t", "row", "group", "column"]
    assert [a.name for a in second.axes] == ["t_1"]
    assert [b.fill for b in plan(read_later, X, OFFSETS).buffers] == [None, None]


def test_the_ir_has_the_second_loop():
    ir = str(clear_rest.clear_rest(doubled.lower(X, OFFSETS, target="tpu:v5e").ir))
    assert "y: float32[8192, 512], output, empty" in ir
    assert "for row in tile(8192, block=16):" in ir
    assert "for group in tile(0, ranges, max_extent=8, block=32) carrying seen" in ir
    assert "full([row, column], float32, value=0.0) where expand_dims(found == 0, axis=1)" in ir


def test_examples():
    w = tile.spec((8, 512, 1024), "float32")
    assert clears(grouped_gemm, X, w, OFFSETS)
    heads = tile.spec((4, 8192, 64), "float32")
    assert clears(jagged_attention, heads, heads, heads, OFFSETS)
    padded = tile.spec((8, 2048, 512), "float32")
    assert not clears(padded_to_jagged, padded, OFFSETS, 8192)  # which may end before the next


def test_a_range_is_stored_whole_however_long_its_author_says_that_it_is():
    """Programs take every n-th tile until none is left: no longest range says how many."""
    heads = tile.spec((4, 8192, 64), "float32")
    assert clears(jagged_attention, heads, heads, heads, OFFSETS, False, 1024)


def test_configs_say_nothing_of_it():
    config = doubled.default_config(X, OFFSETS, target="cuda:sm90")
    assert {name for name, _ in config.blocks} == {"t"}
    given, default = (doubled.source(X, OFFSETS, target="cuda:sm90", config=c)
                      for c in (config, None))  # fmt: skip
    assert given == default


@tile.kernel
def halves(x, offsets):
    """Joined values, whose parts are stored one by one."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            v = x[t, :]
            y[t, :] = hl.cat([v[:, 256:], -v[:, :256]], 1)
    return y


@tile.kernel
def row_by_row(x, offsets):
    """A state that each row changes."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for c in hl.tile(x.shape[1]):
            state = hl.zeros([c], dtype=hl.float32)
            for r in hl.grid(offsets[g], offsets[g + 1]):
                state = state * 0.5 + x[r, c]
                y[r, c] = state
    return y


@pytest.mark.parametrize("kernel", [halves, row_by_row], ids=lambda k: k.__name__)
def test_parts_and_rows_are_stored_whole(kernel):
    assert clears(kernel, X, OFFSETS)


@tile.kernel
def three_quarters(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, 0:128] = x[t, 0:128]
            y[t, 256:512] = x[t, 256:512]
    return y


@tile.kernel
def parts_of_others(x, offsets):
    """Two halves of the columns, each of the rows of a loop of its own."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, 0:256] = x[t, 0:256]
        for t in hl.tile(offsets[g], min(offsets[g + 1], 9)):
            y[t, 256:512] = x[t, 256:512]
    return y


@tile.kernel
def moved(x, offsets):
    y = hl.zeros([x.shape[0] + 1, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t + 1, :] = x[t, :]
    return y


@tile.kernel
def masked(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            hl.store(y, [t, slice(None)], x[t, :], mask=x[t, :] > 0)
    return y


@tile.kernel
def half(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, 0:256] = x[t, 0:256]
    return y


@tile.kernel
def updated(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = y[t, :] + x[t, :]
    return y


@tile.kernel
def every_other(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid((offsets.shape[0] - 1) // 2):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = x[t, :]
    return y


@tile.kernel
def as_often(x, offsets, times):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            for _ in hl.grid(times[g], max_extent=4):
                y[t, :] = x[t, :]
    return y


@tile.kernel
def twice(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = x[t, :]
    for u in hl.tile(16):
        y[u, :] = 1.0
    return y


@pytest.mark.parametrize(
    "kernel",
    [moved, masked, half, updated, every_other, as_often, twice, three_quarters, parts_of_others],
    ids=lambda k: k.__name__,
)
def test_other_stores_keep_their_fill(kernel):
    more = (tile.spec((8,), "int32"),) if kernel is as_often else ()
    made = plan(kernel, X, OFFSETS, *more)
    assert made.buffers[0].fill == 0.0


def whole(index):
    """The bug: as if one part were all of it."""
    return (*index[:-1], ir.Span(0, 512))


def test_planted_parts_that_leave_something(monkeypatch):
    monkeypatch.setattr(clear_rest, "_together", lambda indices, shape: whole(indices[0]))
    assert clears(again(three_quarters), X, OFFSETS)


def test_padded_outputs_keep_theirs():
    assert plan(jagged_to_padded, X, OFFSETS, 1024).buffers[0].fill is not None


# ---------------------------------------------------------------- what stores cover


@tile.kernel
def covered(x, n):
    y, z = hl.zeros(x.shape, dtype=x.dtype), hl.full([x.shape[1]], 3.0, dtype=x.dtype)
    for t in hl.tile(x.shape[0], block_size=64):
        y[t, :] = x[t, :]
    v = z.reshape(1, x.shape[1])
    for d in hl.tile(x.shape[1]):
        v[0, d] = x[0, d]
    for t in hl.tile(x.shape[0]):
        hl.atomic_add(y, [t, slice(None)], x[t, :])
    return y, z


@tile.kernel
def guarded(x, n):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for i in hl.grid(x.shape[0]):
        if n[0] > 0:
            y[i, :] = x[i, :]
    return y


@tile.kernel
def as_often_as_memory_says(x, n):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        for _ in hl.grid(n[0], max_extent=3):
            y[t, :] = x[t, :]
    return y


@tile.kernel
def read_before(x, n):
    y = hl.zeros(x.shape, dtype=x.dtype)
    total = hl.empty([x.shape[0]], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        total[t] = y[t, :].sum(1)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :]
    return y, total


def test_what_stores_cover_nobody_fills():
    made = plan(covered, X, tile.spec((1,), "int32"))
    assert [b.fill for b in made.buffers] == [None, None]


@pytest.mark.parametrize("kernel", [guarded, as_often_as_memory_says, read_before])
def test_what_may_be_seen_is_filled(kernel):
    assert plan(kernel, X, tile.spec((1,), "int32")).buffers[0].fill == 0.0


def test_no_loop_over_heads_runs_where_all_rows_are_stored():
    """The outermost has no iteration then, and its index needs no other bound."""
    heads = tuple(tile.spec((4, 1024, 64), "bfloat16") for _ in range(3))
    text = jagged_attention.source(*heads, OFFSETS, target="cuda:sm90")
    assert "outers = tl.where(outside, 4, 0)" in text
    assert "for outer in tl.range(0, outers):" in text
    assert "outer_inside" not in text
