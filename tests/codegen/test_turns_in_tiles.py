"""Recurrences over rows that a step has a tile of: the loop over them runs in the step."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.codegen import flowing
from tests.codegen.test_single_rows import drawn, on_tpu
from tests.codegen.test_turns_at_once import (
    delta_exactly,
    delta_rule,
    recurrence,
    recurrence_exactly,
    signs,
    spec,
)
from tests.interpreter import races_found
from tests.planted import trial
from tests.planted.bug import Bug, bug
from tests.tiers import share
from tilelang.errors import PlanError


@tile.kernel
def of_tiles(a, x):
    """The author's own tiles."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    h = hl.zeros([x.shape[1]], dtype=hl.float32)
    for tt in hl.tile(x.shape[0]):
        for t in hl.grid(tt.begin, tt.end):
            h = a[t, :].to(hl.float32) * h + x[t, :].to(hl.float32)
            y[t, :] = h.to(y.dtype)
    return y


@tile.kernel
def counted(a, x):
    """Rows of a tile that are counted from its first one, and sums of their own beside them."""
    y, sums = hl.zeros(x.shape, dtype=x.dtype), hl.zeros([x.shape[0]], dtype=hl.float32)
    h, total = hl.zeros([x.shape[1]], dtype=hl.float32), hl.zeros([1], dtype=hl.float32)
    for tt in hl.tile(x.shape[0]):
        for i in hl.grid(0, tt.end - tt.begin):
            h = a[tt.begin + i, :] * h + x[tt.begin + i, :]
            total = total + hl.sum(h)
            y[tt.begin + i, :] = h
            sums[tt.begin + i] = hl.sum(h)
    return y, sums


@tile.kernel
def later(a, x):
    """Stored a row further down, where the first one stays what it was."""
    y = hl.full([x.shape[0] + 1, x.shape[1]], 7.0, dtype=x.dtype)
    h = hl.zeros([x.shape[1]], dtype=hl.float32)
    for t in hl.grid(x.shape[0]):
        h = a[t, :] * h + x[t, :]
        y[t + 1, :] = h
    return y


@tile.kernel
def moved(x):
    """Loads and stores in the same rows, one further down."""
    y = hl.full(x.shape, 7.0, dtype=x.dtype)
    h = hl.zeros([x.shape[1]], dtype=hl.float32)
    for t in hl.grid(x.shape[0] - 1):
        h = x[t + 1, :] - h
        y[t + 1, :] = h
    return y


@tile.kernel
def before(x):
    """Each row and the one before it."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    h = hl.zeros([x.shape[1]], dtype=hl.float32)
    for t in hl.grid(1, x.shape[0]):
        h = x[t, :] - x[t - 1, :] - h
        y[t, :] = h
    return y


@tile.kernel
def of_groups(a, x, offsets):
    """Every group begins again."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for b in hl.grid(offsets.shape[0] - 1):
        h = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.grid(offsets[b], offsets[b + 1]):
            h = a[t, :].to(hl.float32) * h + x[t, :].to(hl.float32)
            y[t, :] = h.to(y.dtype)
    return y


@tile.kernel
def of_heads(a, x, offsets):
    """Rows of several heads, in front of them; two carries."""
    T, H, D = x.shape
    y, last = hl.zeros(x.shape, dtype=x.dtype), hl.zeros([offsets.shape[0] - 1, H, D])
    for b in hl.grid(offsets.shape[0] - 1):
        h, top = hl.zeros([H, D], dtype=hl.float32), hl.zeros([H, D], dtype=hl.float32)
        for tt in hl.tile(offsets[b], offsets[b + 1], max_extent=T):
            for t in hl.grid(tt.begin, tt.end):
                h = a[t, :, :] * h + x[t, :, :]
                top = hl.maximum(top, h)
                y[t, :, :] = h - top
        last[b, :, :] = top
    return y, last


@tile.kernel
def of_columns(a, x):
    """Rows of an array whose columns are cut, too."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for td in hl.tile(x.shape[1]):
        h = hl.zeros([td], dtype=hl.float32)
        for t in hl.grid(x.shape[0]):
            h = a[t, td] * h + x[t, td]
            y[t, td] = h
    return y


def groups_exactly(a, x, offsets):
    y = np.zeros(x.shape)
    for first, stop in itertools.pairwise(int(o) for o in offsets):
        y[first:stop] = recurrence_exactly(a[first:stop], x[first:stop]) if stop > first else 0
    return y


def heads_exactly(a, x, offsets):
    y, last = np.zeros(x.shape), np.zeros((len(offsets) - 1, *x.shape[1:]))
    for b, (first, stop) in enumerate(itertools.pairwise(int(o) for o in offsets)):
        h = np.zeros(x.shape[1:])
        for t in range(first, stop):
            h = a[t] * h + x[t]
            last[b] = np.maximum(last[b], h)
            y[t] = h - last[b]
    return y, last


def later_exactly(a, x):
    return np.concatenate([np.full((1, x.shape[1]), 7.0), recurrence_exactly(a, x)])


def moved_exactly(x):
    y = np.full(x.shape, 7.0)
    y[1:] = recurrence_exactly(np.full(x[1:].shape, -1.0), x[1:])
    return y


def before_exactly(x):
    y = np.zeros(x.shape)
    y[1:] = recurrence_exactly(np.full(x[1:].shape, -1.0), x[1:] - x[:-1])
    return y


def counted_exactly(a, x):
    y = recurrence_exactly(a, x)
    return y, y.sum(1)


def checked(kernel: Any, given: Any, wanted: Any, config: tile.Config | None = None) -> str:
    """The text of a kernel that makes what is wanted, in the strict interpreter."""
    run = on_tpu(kernel, interpret=flowing.strict(), checks=False, config=config)
    text = run.source(*given)
    try:
        found = run(*given)
        assert not races_found()
        pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
        for one, exact in pairs:
            exact = np.asarray(exact).astype(np.asarray(one).dtype)
            np.testing.assert_array_equal(np.asarray(one), exact)
    finally:  # memory and races are those of the whole process
        pltpu.reset_tpu_interpret_mode_state()
    return text


# ---------------------------------------------------------------- what they make


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [1, 16, 40, 131])
def test_the_same_rows_in_tiles(rows, dtype):
    """A loop over rows with a block of them, and the tiles that an author writes."""
    a, x = signs(rows, 40, dtype=dtype), drawn(rows, 40, dtype=dtype)
    exact = recurrence_exactly(a, x).astype(dtype)
    for kernel, name in ((recurrence, "t"), (of_tiles, "tt")):
        text = checked(kernel, (a, x), exact, tile.Config({name: 32}))
        assert rows <= 32 or "pl.program_id(0)" in text


def test_rows_counted_from_the_first_of_a_tile():
    a, x = signs(300, 24), drawn(300, 24)
    text = checked(counted, (a, x), counted_exactly(a, x), tile.Config({"tt": 128}))
    assert "grid=(3,)" in text


@pytest.mark.parametrize("kernel", [later, moved, before])
def test_other_rows(kernel):
    """Where rows are stored says where tiles are cut; what lies elsewhere is in no block."""
    exact = {later: later_exactly, moved: moved_exactly, before: before_exactly}[kernel]
    x = drawn(70, 24)
    given = (signs(70, 24), x) if kernel is later else (x,)
    checked(kernel, given, exact(*given))
    try:
        text = on_tpu(kernel).source(*given, config=tile.Config({"t": 16}))
    except PlanError:
        assert kernel is not moved
    else:
        assert kernel is moved and "grid=(5,)" in text
        checked(kernel, given, exact(*given), tile.Config({"t": 16}))


OFFSETS = ([0, 13, 13, 50, 64, 65, 131], [0, 131], [7, 7, 7], [20, 40, 41, 100], [0, 32, 64, 96])


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=str)
def test_ranges_that_memory_holds(dtype):
    a, x = signs(131, 40, dtype=dtype), drawn(131, 40, dtype=dtype)
    for offsets in OFFSETS:
        given = a, x, np.array(offsets, np.int32)
        exact = groups_exactly(*given).astype(dtype)
        checked(of_groups, given, exact)
        config = tile.Config({"t": 32}, loop_type="outer_pipeline")
        text = checked(of_groups, given, exact, config)
        assert "emit_pipeline" in text and "turned_in_rows(" in text


def test_rows_of_heads():
    a, x = signs(60, 3, 20), drawn(60, 3, 20)
    for offsets in ([0, 13, 13, 50, 60], [0, 60], [9, 9]):
        given = a, x, np.array(offsets, np.int32)
        checked(of_heads, given, heads_exactly(*given), tile.Config({"tt": 8}))


def test_columns_in_tiles():
    a, x = signs(60, 300), drawn(60, 300)
    config = tile.Config({"t": 16, "td": 128})
    text = checked(of_columns, (a, x), recurrence_exactly(a, x), config)
    assert "grid=(3, 4)" in text


def test_states_in_tiles():
    k, v, beta = drawn(3, 35, 16) / 32, drawn(3, 35, 16), drawn(3, 35) / 16
    kernel = on_tpu(delta_rule, config=tile.Config({"t": 8}))
    assert "(None, 8, 16)" in kernel.source(k, v, beta)
    found = kernel(k, v, beta)
    np.testing.assert_allclose(found, delta_exactly(k, v, beta), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("offsets", [[0, 40, -9, 131], [5, 2**30, 60, 70], [-(2**31), 20, 131, 0]])
def test_offsets_that_leave_the_arrays(offsets):
    """No access lies outside of a block; groups that rise from what is before them are right."""
    a, x = signs(131, 40), drawn(131, 40)
    run = on_tpu(of_groups, interpret=flowing.strict(), checks=False, config=tile.Config({"t": 32}))
    try:
        found = np.asarray(run(a, x, np.array(offsets, np.int64).astype(np.int32)))
        assert not races_found()
    finally:
        pltpu.reset_tpu_interpret_mode_state()
    if offsets[0] == 0:
        np.testing.assert_array_equal(found[:40], recurrence_exactly(a[:40], x[:40]))


# ---------------------------------------------------------------- every generation, planted bugs


@needs_libtpu
@pytest.mark.parametrize("chip", share(["v6e", "v5e", "v4", "v5p", "7x"], 5, 0))
def test_every_generation_compiles_them(chip):
    target, offsets = f"tpu:{chip}", spec(9, dtype="int32")
    for dtype in ("float32", "bfloat16"):
        rows = spec(200_003, 200, dtype=dtype)
        assert compiled(recurrence, rows, rows, target=target)
        assert compiled(of_tiles, rows, rows, target=target)
        assert compiled(of_groups, rows, rows, offsets, target=target)
    heads = spec(3000, 3, 100)
    assert compiled(of_heads, heads, heads, offsets, target=target)
    states = spec(2, 2000, 100)
    block = tile.Config({"t": 256})
    assert compiled(delta_rule, states, states, spec(2, 2000), target=target, config=block)


BLOCKS = tile.Config({"t": 32}, loop_type="outer_pipeline")
_GROUPS = partial(bug, "of_groups", "turns in tiles")
BUGS: tuple[Bug, ...] = (
    _GROUPS("rows of a block count from the array's first", "t_row - t * 32", "t_row % 32 * 0"),
    _GROUPS("one of the turns that are left is forgotten", "rows * count, stop",
            "rows * count + 1, stop"),
    _GROUPS("turns in a row begin at the range's first row", "first + n * count + k", "first + k"),
    _GROUPS("every tile begins anew", "h = h_ref[...]", "h = jnp.zeros_like(h_ref[...])"),
    _GROUPS("a tile ends where the range does not", "offsets[b + 1], t * 32 + 32",
            "offsets[b + 1] + 1, t * 32 + 32"),
)  # fmt: skip


@pytest.mark.parametrize("planted", BUGS, ids=str)
def test_a_planted_bug_is_noticed(planted):
    given = signs(131, 40), drawn(131, 40), np.array([0, 13, 13, 50, 64, 65, 120], np.int32)
    lowered = on_tpu(of_groups).lower(*given, config=BLOCKS)
    call = trial.runnable(lowered, planted.plant(lowered.source.text), flowing.strict())
    try:
        found = np.asarray(call(*given)[0])
        assert not np.array_equal(found, groups_exactly(*given).astype(np.float32))
    finally:
        pltpu.reset_tpu_interpret_mode_state()


@pytest.mark.parametrize("rows", [8, 12])
def test_unrolled_rows(rows):
    """As many as blocks have are written out; where a tile may have fewer, no text has a number."""
    a, x = signs(rows, 8), drawn(rows, 8)
    config = tile.Config({"tt": 8}, loop_type="unroll")
    if rows % 8 == 0:
        assert "for t in range(8)" in of_tiles.source(a, x, config=config)
        np.testing.assert_allclose(of_tiles(a, x, config=config), of_tiles.reference(a, x), 1e-5)
        return
    with pytest.raises(PlanError) as caught:
        of_tiles(a, x, config=config)
    assert caught.value.what == (
        "loop_type='unroll' needs static bounds, but t goes through the rows of a tile, which may "
        "have fewer than a block"
    )
    assert caught.value.hint == "use loop_type='fori_loop'"
