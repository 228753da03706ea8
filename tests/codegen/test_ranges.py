"""Ranges: no offsets lead a loop out of its dimension, and every number is defined, in every form.

The strict runs are Pallas's TPU interpreter: memory is NaN until it is written, and an access
outside of a buffer raises.
"""

from __future__ import annotations

import itertools
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from tests.tiers import HALF, share
from tilelang.codegen.pallas.plan.steps import ranges

FORMS = {
    "table": tile.Config(loop_type="outer_pipeline"),
    "rectangle": tile.Config(loop_type="outer_pipeline", steps="rectangle"),
    "worklist": tile.Config(loop_type="worklist"),
    "emit_pipeline": tile.Config(loop_type="emit_pipeline"),
    "fori_loop": tile.Config(loop_type="fori_loop"),
}
each_form = pytest.mark.parametrize("form", FORMS)
ROWS, WIDTH, BLOCK = 40, 128, 16
LAST = np.iinfo(np.int32).max
WILD = {
    "past the end": [0, 10, 200, 210, 40],
    "decreasing": [0, 10, 5, 30, 20],
    "negative": [0, 10, -7, -3, -1],
    "huge": [0, 10, LAST - 3, LAST, LAST],
    "to the very end": [0, 10, 12, LAST, LAST],
    "very negative": [0, 10, np.iinfo(np.int32).min, 4, 40],
}


# ---------------------------------------------------------------- wild offsets


def of_indices(x, offsets):
    """Sums of rows, one by one."""
    y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for td in hl.tile(x.shape[1]):
            acc = hl.zeros([td], dtype=hl.float32)
            for r in hl.grid(offsets[g], offsets[g + 1]):
                acc = acc + x[r, td]
            y[g, td] = acc
    return y


def of_tiles(x, offsets):
    """Sums of rows, in tiles."""
    y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for td in hl.tile(x.shape[1]):
            acc = hl.zeros([td], dtype=hl.float32)
            for t in hl.tile(offsets[g], offsets[g + 1], block_size=BLOCK):
                acc = acc + x[t, td].sum(0)
            y[g, td] = acc
    return y


def of_moved_tiles(x, offsets):
    """Sums of rows, in tiles that count from where the group begins."""
    y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        begin = offsets[g]
        for td in hl.tile(x.shape[1]):
            acc = hl.zeros([td], dtype=hl.float32)
            for t in hl.tile(offsets[g + 1] - begin, max_extent=ROWS, block_size=BLOCK):
                acc = acc + x[begin + t.index, td].sum(0)
            y[g, td] = acc
    return y


def of_two_loops(x, offsets):
    """Sums of rows and of their squares: two loops in a row."""
    y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for td in hl.tile(x.shape[1]):
            acc = hl.zeros([td], dtype=hl.float32)
            for t in hl.tile(offsets[g], offsets[g + 1], block_size=BLOCK):
                acc = acc + x[t, td].sum(0)
            for t in hl.tile(offsets[g], offsets[g + 1], block_size=BLOCK):
                acc = acc + (x[t, td] * x[t, td]).sum(0)
            y[g, td] = acc
    return y


def expected(function, x, begin, end):
    rows = x[begin:end]
    return rows.sum(0) + ((rows * rows).sum(0) if function is of_two_loops else 0)


@pytest.fixture(autouse=True)
def fresh_interpreter():
    yield
    pltpu.reset_tpu_interpret_mode_state()


@pytest.mark.parametrize("form", share(FORMS, 6, 5, HALF))
@pytest.mark.parametrize(
    "function", [of_indices, of_tiles, of_moved_tiles, of_two_loops], ids=lambda f: f.__name__
)
def test_no_offsets_lead_out_of_an_array(function, form):
    strict = pltpu.InterpretParams(out_of_bounds_reads="raise", uninitialized_memory="nan")
    kernel = tile.kernel(function, checks=False, interpret=strict)
    x = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
    for name, offsets in WILD.items():
        found = kernel(jnp.asarray(x), jnp.asarray(offsets, jnp.int32), config=FORMS[form])
        wanted = expected(function, x, 0, 10)
        np.testing.assert_allclose(np.asarray(found)[0], wanted, atol=1e-3, err_msg=name)


# ---------------------------------------------------------------- bounds that are none


def from_begin(x, offsets):
    y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for td in hl.tile(x.shape[1]):
            acc = hl.zeros([td], dtype=hl.float32)
            for r in hl.grid(offsets[g], offsets[g + 1], max_extent=30):
                acc = acc + x[r - offsets[g], td]
            y[g, td] = acc
    return y


@each_form
def test_max_extent_bounds_a_count_and_not_an_index(form):
    """Indices go from 20 to 40, though there are at most 30 of them."""
    x = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
    offsets = np.array([0, 20, 40], np.int32)
    found = tile.kernel(from_begin)(x, offsets, config=FORMS[form])
    wanted = np.stack([x[:20].sum(0), x[:20].sum(0)])
    np.testing.assert_allclose(np.asarray(found), wanted, atol=1e-4)


# ---------------------------------------------------------------- numbers that are defined


def only_range(x, offsets):
    """One range, and so the table's only loop: x has more tiles than its max_extent holds."""
    y = hl.zeros([1], dtype=hl.float32)
    for g in hl.grid(1):
        acc = 1.5
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=16):
            acc = acc + x[t].sum(0)
        y[g] = acc
    return y


@each_form
def test_a_table_of_one_loop_has_no_rows_before_it(form):
    x, kernel = np.arange(48, dtype=np.float32), tile.kernel(only_range)
    for begin, end in ((0, 16), (10, 26), (5, 5), (47, 48)):
        found = kernel(x, np.array([begin, end], np.int32), config=FORMS[form])
        np.testing.assert_allclose(found, [1.5 + x[begin:end].sum()])


def chunks_of_tiles(x):
    chunk = 32
    y = hl.zeros(x.shape, dtype=hl.float32)
    for tm, tc in hl.tile([chunk, x.shape[0] // chunk], block_size=[None, 1]):
        y[tc.begin * chunk + tm.index, :] = x[tc.begin * chunk + tm.index, :] * 2
    return y


def tile_around_grid(x):
    chunk = 32
    y = hl.zeros(x.shape, dtype=hl.float32)
    for tm in hl.tile(chunk):
        for c in hl.grid(x.shape[0] // chunk):
            y[c * chunk + tm.index, :] = x[c * chunk + tm.index, :] * 2
    return y


def sums_before(x, block: hl.constexpr = 8):
    chunk = 32
    y = hl.zeros(x.shape, dtype=hl.float32)
    for tm in hl.tile(chunk, block_size=block):
        for c in hl.grid(x.shape[0] // chunk):
            acc = hl.zeros([tm, x.shape[1]], dtype=hl.float32)
            for tk in hl.tile(tm.end):
                acc = acc + x[c * chunk + tk.index, :].sum(0)
            y[c * chunk + tm.index, :] = acc
    return y


def three_deep(x):
    chunk = 32
    y = hl.zeros(x.shape, dtype=hl.float32)
    for tm in hl.tile(chunk):
        for td in hl.tile(x.shape[1]):
            for c in hl.grid(x.shape[0] // chunk):
                y[c * chunk + tm.index, td] = x[c * chunk + tm.index, td] + 1
    return y


CHUNKED = [chunks_of_tiles, tile_around_grid, sums_before, three_deep]


@pytest.mark.parametrize(
    "function", [chunks_of_tiles, tile_around_grid, three_deep], ids=lambda f: f.__name__
)
def test_chunks_in_any_order_of_loops(function):
    x = np.random.default_rng(0).standard_normal((96, 24)).astype(np.float32)
    kernel = tile.kernel(function)
    wanted = kernel.reference(x)
    for block in (8, 32):
        found = kernel(x, config=tile.Config({"tm": block}))
        np.testing.assert_allclose(np.asarray(found), wanted, atol=1e-6)


def test_ranges_that_end_where_an_outer_tile_does():
    """The rows of a chunk up to the end of the tile: what that is, the block says."""
    x = np.random.default_rng(0).standard_normal((96, 24)).astype(np.float32)
    for block in (8, 32):
        blocks = tile.Config({"tk": 16})
        found = np.asarray(tile.kernel(sums_before)(x, block, config=blocks)).reshape(3, 32, 24)
        ends = [row // block * block + block for row in range(32)]
        wanted = np.stack([x.reshape(3, 32, 24)[:, :end].sum(1) for end in ends], 1)
        np.testing.assert_allclose(found, wanted, atol=1e-4)


def phases(x, d, o, p):
    y = hl.zeros(x.shape, dtype=hl.float32)
    for g in hl.grid(o.shape[0] - 1):
        a = 0.0
        for t in hl.tile(o[g], o[g + 1]):
            a = a + hl.sum(hl.sum(d[t, :] * x[t, :], 0), 0)
        b = 0.0
        for t in hl.tile(p[g], p[g + 1]):
            b = b + hl.sum(hl.sum(x[t, :] * a, 0), 0)
        c = 0.0
        for t in hl.tile(p[g], p[g + 1]):
            c = c + hl.sum(hl.sum(d[t, :], 0), 0)
        for t in hl.tile(o[g], o[g + 1]):
            y[t, :] = x[t, :] + d[t, :] * (b + c)
    return y


@pytest.mark.parametrize("loop_type", [None, "worklist", "fori_loop"])
def test_loops_in_a_row_read_their_own_tiles(loop_type):
    """Each loop has other windows, so that their tiles lie on several tracks."""
    rng = np.random.default_rng(0)
    x, d = (rng.standard_normal((72, 24)).astype(np.float32) for _ in range(2))
    o, p = np.array([0, 37, 37, 72], np.int32), np.array([0, 3, 50, 60], np.int32)
    kernel = tile.kernel(phases)
    config = tile.Config({"t": 16}, loop_type=loop_type)
    found = np.asarray(kernel(x, d, o, p, config=config))
    np.testing.assert_allclose(found, kernel.reference(x, d, o, p), rtol=1e-3, atol=1e-2)


def ranges_under_nothing(o, p, x):
    """An empty range of indices in every group; under it a range of blocks of one."""
    y = hl.zeros([3, 8], dtype=hl.float32)
    z = hl.zeros([1], dtype=hl.float32)
    for a in hl.grid(3):
        acc = hl.full([8], -4.0, dtype=hl.float32)
        for i in hl.grid(o[a], o[a + 1], max_extent=1):
            s = 0.0
            for t in hl.tile(p[i], p[i + 1], max_extent=1):
                s = s + x[i, t].sum(0)
            z[i] = s
            acc = hl.maximum(acc, x[i, :].sum(0) + hl.zeros([8], dtype=hl.float32))
        y[a, :] = y[a, :] + acc
    return y, z


def stands_once(form):
    """Whether a step that stands for an empty range is one, wherever memory says that it begins."""
    x, o = np.ones((1, 1), np.float32), np.zeros(4, np.int32)
    for begin in (0, 2, LAST, -9):
        kernel = tile.kernel(ranges_under_nothing, checks=False)
        made = kernel(o, np.full(2, begin, np.int32), x, config=FORMS[form])
        if not (np.asarray(made[0]) == -4).all() or np.asarray(made[1]).any():
            return False
    return True


@pytest.mark.parametrize("form", ["table", "rectangle", "worklist"])
def test_a_range_under_an_empty_one_has_one_step(form):
    assert stands_once(form)


def test_a_stand_in_that_is_not_clamped_is_caught(monkeypatch):
    monkeypatch.setattr(ranges, "stand_in", lambda axis: axis.range.first)
    assert not stands_once("table")


def test_text_of_every_form_reads_defined_names(tmp_path):
    x = np.zeros((96, 24), np.float32)
    o = np.array([0, 37, 96], np.int32)
    calls = [(function, (x,)) for function in CHUNKED] + [(phases, (x, x, o, o))]
    calls += [(function, (x, o)) for function in (of_indices, of_tiles, of_two_loops)]
    calls.append((only_range, (x[:, 0], o[:2])))
    calls.append((of_tiles, (x[:12], o // 8)))  # one tile: the number of a step is its index
    printed = 0
    for (function, arguments), form in itertools.product(calls, [None, *FORMS]):
        config = tile.Config() if form is None else FORMS[form]
        try:
            text = tile.kernel(function).source(*arguments, config=config)
        except tile.PlanError:
            continue
        printed += 1
        (tmp_path / f"{function.__name__}_{form}_{printed}.py").write_text(text)
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F821", tmp_path]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (printed >= 25, run.returncode) == (True, 0), run.stdout


def nested(x, offsets):
    y = hl.zeros(x.shape, dtype=hl.float32)
    for tm in hl.tile(32):
        acc = hl.zeros([tm, x.shape[1]], dtype=hl.float32)
        for c in hl.grid(x.shape[0] // 32):
            acc = acc + x[c * 32 + tm.index, :]
            y[c * 32 + tm.index, :] = acc
    return y


def test_a_loop_that_cannot_move_out_is_refused():
    with pytest.raises(tile.PlanError) as refused:
        tile.kernel(nested).source(np.zeros((96, 24), np.float32), np.zeros(3, np.int32))
    assert refused.value.what == (
        "the positions that tm goes through depend on c, whose loop is inside"
    )
    assert refused.value.hint == "write the loop over c around that over tm"


@tile.kernel
def before(n, x):
    """y[g] = the sum of n[: n[g]], and of as many rows of x if x[g, 0] is positive."""
    y = hl.zeros([n.shape[0]], dtype=hl.int32)
    z = hl.zeros(x.shape, dtype=hl.float32)
    for g in hl.grid(n.shape[0]):
        acc = hl.zeros([], dtype=hl.int32)
        for t in hl.tile(0, n[g], max_extent=n.shape[0]):
            acc = acc + n[t].sum(0)
        y[g] = acc
    for g in hl.grid(x.shape[0]):
        for d in hl.tile(x.shape[1]):
            rows = hl.zeros([d], dtype=hl.float32)
            if x[g, 0] > 0:
                for i in hl.grid(0, n[g], max_extent=x.shape[0]):
                    rows = rows + x[i, d]
            z[g, d] = rows
    return y, z


@pytest.mark.parametrize(
    "form", ["fori_loop", *(pytest.param(f, marks=pytest.mark.slow) for f in ("table", "worklist"))]
)
def test_ranges_of_an_array_that_is_read_in_blocks(form):
    """Its numbers lie in scalar memory, and its blocks in windows: it was an internal error."""
    rng = np.random.default_rng(3)
    n = rng.integers(0, 20, 20).astype(np.int32)
    x = rng.integers(-9, 9, (20, 24)).astype(np.float32)
    y, z = before(n, x, config=FORMS[form])
    np.testing.assert_array_equal(y, [n[:m].sum() for m in n])
    np.testing.assert_array_equal(
        z, [x[:m].sum(0) if row[0] > 0 else 0 * row for m, row in zip(n, x, strict=True)]
    )


def test_a_position_of_an_array_that_is_read_in_blocks():
    @tile.kernel
    def scattered(x, first):
        y = hl.zeros([x.shape[0] * 2, x.shape[1]], dtype=hl.float32)
        for g in hl.grid(first.shape[0]):
            for t in hl.tile(4):
                y[first[g] + t.index, :] = x[g * 4 + t.index, :] * first[:].amax(0)
        return y

    x = np.arange(160, dtype=np.float32).reshape(20, 8)
    first = np.array([8, 0, 36, 4, 20], np.int32)
    want = np.zeros((40, 8), np.float32)
    want[(first[:, None] + np.arange(4)).ravel()] = 36 * x
    np.testing.assert_array_equal(scattered(x, first), want)
