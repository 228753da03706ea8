"""Single rows of a block that is there whole: of 32 bits they are loaded and stored as they are."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.codegen import flowing
from tests.interpreter import races_found
from tests.tiers import share
from tilelang.codegen.pallas.emit.expressions import Printer
from tilelang.errors import PlanError

OFFSETS = np.array([0, 7, 7, 8, 150, 300], np.int32)


@tile.kernel
def recurrence(a, x, offsets):
    """h = a[t] h + x[t], row by row of each group; other rows are zero."""
    y = hl.zeros_like(x)
    for g in hl.grid(offsets.shape[0] - 1):
        for td in hl.tile(x.shape[1]):
            h = hl.zeros([td], dtype=hl.float32)
            for t in hl.grid(offsets[g], offsets[g + 1]):
                h = a[t] * h + x[t, td].to(hl.float32)
                y[t, td] = h.to(y.dtype)
    return y


@tile.kernel
def picked(x, rows, offsets):
    """y[t] = x[rows[t]] - y[t - 1] of each group, and the last row of it."""
    G, D = offsets.shape[0] - 1, x.shape[1]
    y = hl.zeros([rows.shape[0], D], dtype=x.dtype)
    last = hl.zeros([G, D], dtype=x.dtype)
    for g in hl.grid(G):
        h = hl.zeros([D], dtype=x.dtype)
        for t in hl.grid(offsets[g], offsets[g + 1]):
            h = x[rows[t], :] - h
            y[t, :] = h
        last[g, :] = h
    return y, last


def recurrence_exactly(a, x, offsets):
    y = np.zeros(x.shape)
    for begin, end in itertools.pairwise(offsets):
        h = np.zeros(x.shape[1])
        for t in range(begin, end):
            h = a[t] * h + x[t].astype(np.float64)
            y[t] = h
    return y


def picked_exactly(x, rows, offsets):
    y, last = np.zeros((len(rows), x.shape[1])), []
    for begin, end in itertools.pairwise(offsets):
        h = np.zeros(x.shape[1])
        for t in range(begin, end):
            h = x[rows[t]] - h
            y[t] = h
        last.append(h)
    return y, np.stack(last)


def drawn(*shape: int, dtype: Any = np.float32, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-9, 10, shape).astype(dtype)


def on_tpu(kernel: Any, **options: Any) -> Any:
    """The plan of a TPU, in the interpreter."""
    return tile.kernel(kernel.__wrapped__, target="tpu:v6e", **options)


def forms(kernel: Any, *arguments: Any) -> list[tile.Config | None]:
    """The default, and each loop type that takes the kernel."""
    every: list[tile.Config | None] = [None]
    for loop_type in ("emit_pipeline", "fori_loop", "outer_pipeline", "worklist"):
        config = tile.Config(loop_type=loop_type)
        try:
            kernel.source(*arguments, config=config)
        except PlanError:
            continue
        every.append(config)
    return every


A = (drawn(300) > 0).astype(np.float32)


def test_a_row_is_loaded_and_stored_where_it_is():
    text = on_tpu(recurrence).source(A, drawn(300, 256), OFFSETS)
    assert "+ x_ref[pl.ds(t, 1)]" in text and "y_ref[pl.ds(t, 1)] = " in text


def test_narrow_rows_share_a_register_and_are_selected():
    x = drawn(320, 256, dtype=ml_dtypes.bfloat16)
    text = on_tpu(recurrence).source(drawn(320), x, OFFSETS)
    assert "pl.ds(t, 1)" not in text and "x_ref[pl.ds(jax.lax.div(t, 16) * 16, 16)]" in text


def test_few_rows_are_selected_from_as_before():
    text = on_tpu(recurrence).source(A[:24], drawn(24, 256), OFFSETS[:4])
    assert "pl.ds(t, 1)" not in text


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("columns", [256, 100])
def test_recurrences(dtype, columns):
    """Unsorted and out of range offsets leave other groups as they are."""
    x, kernel = drawn(300, columns, dtype=dtype), on_tpu(recurrence)
    for config in forms(kernel, A, x, OFFSETS):
        for offsets in (OFFSETS, np.array([0, 0, 0, 0, 0, 0]), np.array([3, 4, 9, 9, 299, 300])):
            offsets = offsets.astype(np.int32)
            found = np.asarray(kernel(A, x, offsets, config=config)).astype(np.float64)
            exact = recurrence_exactly(A, x, offsets)
            np.testing.assert_array_equal(found, exact.astype(dtype).astype(np.float64))


@pytest.mark.parametrize("dtype", [np.float32, np.int32], ids=str)
def test_rows_that_memory_names(dtype):
    """Rows before and behind the array are its first and last one."""
    x, rows = drawn(120, 40, dtype=dtype), drawn(300, dtype=np.int32) * 20
    kernel = tile.kernel(picked.__wrapped__, target="tpu:v6e", checks=False)
    assert "pl.ds(t, 1)" in kernel.source(x, rows, OFFSETS)
    y, last = kernel(x, rows, OFFSETS)
    exact = picked_exactly(x, rows.clip(0, 119), OFFSETS)
    np.testing.assert_array_equal(y, exact[0])
    np.testing.assert_array_equal(last, exact[1])


def test_not_a_number_stays_in_its_group():
    x = drawn(300, 256)
    x[7] = np.nan
    found = np.asarray(on_tpu(recurrence)(A, x, OFFSETS))
    exact = recurrence_exactly(A, x, OFFSETS)
    np.testing.assert_array_equal(found, exact.astype(np.float32))
    assert np.isnan(found[7]).all() and not np.isnan(found[8:]).any()


def test_strictly():
    """Memory is NaN until it is written, and an access outside of a buffer raises."""
    kernel = on_tpu(recurrence, interpret=flowing.strict())
    x = drawn(300, 256)
    try:
        found = kernel(A, x, OFFSETS)
        assert not races_found()
        np.testing.assert_array_equal(found, recurrence_exactly(A, x, OFFSETS))
    finally:  # memory and races are those of the whole process
        pltpu.reset_tpu_interpret_mode_state()


@needs_libtpu
@pytest.mark.parametrize("chip", share(["v6e", "v5e", "v4", "v5p", "7x"], 5, 2))
def test_every_generation_compiles_it(chip):
    offsets = tile.spec((9,), "int32")
    for rows, columns, dtype in ((4096, 1024, "float32"), (1003, 100, "float32")):
        x = tile.spec((rows, columns), dtype)
        assert compiled(recurrence, tile.spec((rows,), dtype), x, offsets, target=f"tpu:{chip}")
    for dtype in ("float32", "int32"):
        x, rows = tile.spec((1001, 300), dtype), tile.spec((600,), "int32")
        assert compiled(picked, x, rows, offsets, target=f"tpu:{chip}")


# ---------------------------------------------------------------- bugs that are seen


@pytest.mark.parametrize("wrong", ["jax.lax.div(t, 8) * 8", "jnp.maximum(t - 1, 0)"])
def test_a_planted_bug_is_seen(monkeypatch, wrong):
    """The row is the first of its register tile, or the one before."""
    right = Printer._part

    def planted(self, select):
        return right(self, select).replace("pl.ds(t, 1)", f"pl.ds({wrong}, 1)")

    monkeypatch.setattr(Printer, "_part", planted)
    with pytest.raises(AssertionError):
        test_not_a_number_stays_in_its_group()
