"""inline_indices: bounds and positions need no local of the body; values keep their names."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.passes.becomes import again, becomes, stays
from tests.schedule.written import INT, Writing, add, mul, positions
from tilelang.errors import PlanError
from tilelang.ir import Const, Gather, KernelIR
from tilelang.language import build
from tilelang.language.shapes import expand_dims
from tilelang.passes.inline_indices import inline_indices

WHOLE = slice(None)


def moved() -> KernelIR:
    """A range and positions by names; the value keeps its name."""
    k = Writing()
    k.input("x", 64, 128)
    k.output("y", 64, 128)
    begin, end = k.offsets("offsets", 4)
    with k.grid("g", 0, 4) as g:
        start = k.let("start", begin)
        stop = k.let("stop", end)
        row = k.let("row", add(start, g))
        scale = k.let("scale", k.load("x", row, 0))
        with k.tile("t", start, stop, 64):
            k.store("y", "t", WHOLE, value=mul(k.load("x", "t", WHOLE), scale))
    return k.ir()


def test_bounds_and_positions_are_written_out():
    becomes(
        moved(),
        inline_indices,
        """
        for g in grid(4):
            start: int32[] = offsets[g]
            stop: int32[] = offsets[g + 1]
            row: int32[] = start + g
            scale: float32[] = x[row, 0]
            for t in tile(start, stop, max_extent=64):
                y[t, 0:128] = x[t, 0:128] * scale
        """,
        """
        for g in grid(4):
            start: int32[] = offsets[g]
            stop: int32[] = offsets[g + 1]
            row: int32[] = start + g
            scale: float32[] = x[offsets[g] + g, 0]
            for t in tile(offsets[g], offsets[g + 1], max_extent=64):
                y[t, 0:128] = x[t, 0:128] * scale
        """,
    )


def test_the_mask_of_rows_that_are_stored_one_by_one_too():
    k = Writing()
    k.input("x", 64, 128)
    k.input("to", 64, dtype="int32")
    k.output("y", 64, 128)
    with k.tile("t", 0, 64):
        place = k.let("place", k.load("to", "t"))
        kept = k.let("kept", build.binary("ge", place, 0, None))
        value = k.let("value", k.load("x", "t", WHOLE))
        mask = expand_dims(kept, 1, None)
        k.store("y", Gather(place), WHOLE, value=value, mask=mask)
        k.store("y", "t", WHOLE, value=value, mask=mask)
    becomes(
        k.ir(),
        inline_indices,
        """
        for t in tile(64):
            place: int32[t] = to[t]
            kept: bool[t] = place >= 0
            value: float32[t, 128] = x[t, 0:128]
            y[rows(place), 0:128] = value where expand_dims(kept, axis=1)
            y[t, 0:128] = value where expand_dims(kept, axis=1)
        """,
        """
        for t in tile(64):
            place: int32[t] = to[t]
            kept: bool[t] = place >= 0
            value: float32[t, 128] = x[t, 0:128]
            y[rows(to[t]), 0:128] = value where expand_dims(to[t] >= 0, axis=1)
            y[t, 0:128] = value where expand_dims(kept, axis=1)
        """,
    )


def test_the_mask_of_stored_lanes_too():
    """Its positions are written out; the names of its values stay."""
    k = Writing()
    k.input("x", 64)
    k.input("least", 8)
    k.output("y", 64)
    with k.grid("g", 0, 8) as g:
        row = k.let("row", mul(g, 1))
        with k.tile("t", 0, 64):
            value = k.load("x", "t")
            kept = build.binary("gt", value, k.load("least", row), None)
            k.store("y", "t", value=value, mask=kept)
    becomes(
        k.ir(),
        inline_indices,
        """
        for g in grid(8):
            row: int32[] = g * 1
            for t in tile(64):
                y[t] = x[t] where x[t] > least[row]
        """,
        """
        for g in grid(8):
            row: int32[] = g * 1
            for t in tile(64):
                y[t] = x[t] where x[t] > least[g * 1]
        """,
    )


def test_what_names_nothing_stays():
    k = Writing()
    k.input("x", 64)
    k.output("y", 64)
    with k.tile("t", 0, 64):
        value = k.let("value", k.load("x", "t"))
        k.store("y", "t", value=mul(value, positions("t")))
    stays(k.ir(), inline_indices)


def test_a_position_that_a_loop_changes_is_refused():
    k = Writing()
    k.input("x", 64)
    k.output("y", 64)
    with k.grid("i", 0, 64) as i:
        at = k.carried("at", Const(0, INT))
        k.becomes(at, add(at, 1))
        k.store("y", i, value=k.load("x", at))
    with pytest.raises(PlanError, match="depends on at, which a loop changes") as caught:
        inline_indices(k.ir())
    assert caught.value.hint == (
        "compute it from loop indices and from numbers loaded from tensors: what else it is made "
        "of can be stored to one, and loaded in a loop of its own after that"
    )


def test_a_position_is_called_what_its_author_calls_it():
    """And not at_out, which is what the value behind the loop is called here."""
    k = Writing()
    k.input("x", 64)
    k.output("y", 64)
    with k.grid("g", 0, 64) as g:
        with k.grid("i", 0, 4):
            at = k.carried("at", Const(0, INT), user="place")
            k.becomes(at, add(at, 1))
        k.store("y", g, value=k.load("x", k.after("at", at)))
    with pytest.raises(PlanError, match="depends on place, which a loop changes"):
        inline_indices(k.ir())


@tile.kernel
def path(back, first):
    """States of a path, each in the row of the one before it, with planes beside."""
    path = hl.zeros([1, back.shape[0], back.shape[2]], dtype=hl.int32)
    for g in hl.grid(1):
        state = first[g]
        for i in hl.grid(back.shape[0]):
            path[g, i, :] = back[i, state, :]
            state = state * 2 % 4
    return path


@tile.kernel
def decoded(values, ends):
    """Runs that are written out, by a search for each place; and as many places as there are."""
    y = hl.zeros([40], dtype=values.dtype)
    for t in hl.tile(40):
        run = hl.zeros([t], dtype=hl.int32)
        for r in hl.tile(ends.shape[0]):
            run += (ends[r][None, :] <= t.index[:, None]).to(hl.int32).sum(1)
        y[t] = values[hl.minimum(run, ends.shape[0] - 1)]
    return y


@tile.kernel
def decoded_later(values, ends):
    runs = hl.zeros([40], dtype=hl.int32)
    total = hl.zeros([1], dtype=hl.int32)
    for t in hl.tile(40):
        run = hl.zeros([t], dtype=hl.int32)
        for r in hl.tile(ends.shape[0]):
            run += (ends[r][None, :] <= t.index[:, None]).to(hl.int32).sum(1)
        runs[t] = hl.minimum(run, ends.shape[0] - 1)
        hl.atomic_add(total, [0], (run < ends.shape[0]).to(hl.int32).sum(0))
    y = hl.zeros([40], dtype=values.dtype)
    for g in hl.grid(1):
        for t in hl.tile(total[g], max_extent=40):
            y[t] = values[runs[t]]
    return y


def test_positions_that_a_loop_changes_are_taken_where_memory_holds_the_array() -> None:
    back, first = np.arange(60, dtype=np.int32).reshape(5, 4, 3), np.array([3], np.int32)
    states = [3, 2, 0, 0, 0]
    np.testing.assert_array_equal(again(path)(back, first)[0], back[np.arange(5), states])
    values, ends = np.arange(5, dtype=np.float32), np.array([3, 3, 9, 30, 33], np.int32)
    want = np.full(40, 4.0)
    want[:33] = np.repeat(values, np.diff(ends, prepend=0))
    np.testing.assert_array_equal(again(decoded)(values, ends), want)
    want[33:] = 0.0
    np.testing.assert_array_equal(again(decoded_later)(values, ends), want)


@pytest.mark.parametrize(
    ("kernel", "shapes", "name"),
    [
        (path, (("int32", 5, 1 << 15, 3), ("int32", 1)), "state"),
        (decoded, (("float32", 1 << 22), ("int32", 5)), "run"),
    ],
)
def test_else_they_are_loaded_in_a_later_loop(kernel, shapes, name) -> None:
    specs = (tile.spec(tuple(sizes), dtype) for dtype, *sizes in shapes)
    with pytest.raises(PlanError, match=f"depends on {name}, which a loop changes") as caught:
        again(kernel).source(*specs, target="tpu:v5e")
    assert caught.value.hint == (
        "compute it from loop indices and from numbers loaded from tensors: what else it is made "
        "of can be stored to one, and loaded in a loop of its own after that"
    )
