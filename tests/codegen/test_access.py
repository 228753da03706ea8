"""Masks of what Triton loads and stores: those that are needed, each once, those of a dimension
together; and parts of an array that do not meet, between which no thread waits for another.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.codegen.triton.plan import access
from tilelang.codegen.triton.plan.access import both, by_dimension, spread
from tilelang.ir import Apply, Expr, Type, Var, walk
from tilelang.language.evaluate import evaluate

X, OFFSETS = tile.spec((512, 128), "float32"), tile.spec((5,), "int32")
SHAPES = {"a": (4,), "b": (4,), "c": (3,), "d": (3,), "e": (4, 3), "f": (), "g": (2,)}
CONDITIONS = {name: Var(name, Type(shape, "bool")) for name, shape in SHAPES.items()}


# ---------------------------------------------------------------- positions


@tile.kernel
def of_pages(k, v, table):
    """Two arrays at the same place, which memory holds."""
    y = hl.empty(k.shape, dtype=k.dtype)
    for i in hl.grid(table.shape[0]):
        page = table[i]
        y[i, :] = k[page, :] * v[page, :]
    return y


def test_a_place_is_kept_inside_once():
    pages = tile.spec((4, 128), "float32")
    text = of_pages.source(pages, pages, tile.spec((4,), "int32"), target="cuda:sm90")
    assert "page_inside = tl.minimum(tl.maximum(page, 0), 3)" in text
    assert text.count("tl.minimum(") == 1 and text.count("_ptr + page_inside * 128") == 2


@tile.kernel
def followed(links, x):
    """A place that memory leads on from, read before and after it changes."""
    y = hl.empty([links.shape[0]], dtype=x.dtype)
    for i in hl.grid(links.shape[0]):
        at = links[i]
        total = hl.full([], 0.0, dtype=hl.float32)
        for _ in hl.grid(3):
            total = total + x[at]
            at = links[at]
            total = total + x[at] * 10.0
        y[i] = total
    return y


def test_a_place_that_changes_is_kept_inside_again():
    links = np.int32([2, 0, 3, 9, -4])
    x = np.arange(1, 6, dtype=np.float32)
    text = followed.source(links, x, target="cuda:sm90")
    assert text.count("tl.minimum(tl.maximum(at, 0), 4)") == 3


# ---------------------------------------------------------------- ranges of whole tiles


@tile.kernel
def scaled_ends(x, offsets, begin: hl.constexpr, end: hl.constexpr):
    """Ends that are 16 times what memory holds, and more."""
    y = hl.empty(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g] * 16 + begin, offsets[g + 1] * 16 + end):
            y[t, :] = x[t, :] * 2.0
    return y


@pytest.mark.parametrize(
    ("rows", "begin", "end", "block", "masked"),
    [
        (512, 0, 0, 16, False),
        (512, 0, 0, 8, False),
        (512, -32, 16, 16, False),
        (512, 0, 0, 32, True),
        (512, 8, 0, 16, True),
        (512, 0, 8, 16, True),
        (512, 8, 8, 16, True),  # one end may be that of the array, and the other one not
        (520, 0, 0, 16, True),  # where the array ends
        (528, 0, 0, 12, True),  # lanes are 16
    ],
)
def test_tiles_are_whole_where_the_step_divides_both_ends(rows, begin, end, block, masked):
    x = tile.spec((rows, 128), "float32")
    config = tile.Config(blocks={"t": block})
    text = scaled_ends.source(x, OFFSETS, begin, end, config=config, target="cuda:sm90")
    assert text.count("t_in") == 3 * masked  # where it is made, for the load and for the store


# ---------------------------------------------------------------- conditions


def holds(mask: Expr, seed: int) -> np.ndarray:
    """Where a mask holds if its conditions are drawn."""
    rng = np.random.default_rng(seed)
    drawn = {name: rng.random(shape) < 0.7 for name, shape in SHAPES.items()}
    return np.broadcast_to(evaluate(mask, drawn), (2, 4, 3))


def mask_of(seed: int) -> Expr:
    """Several conditions, in any order and grouping, some of them twice."""
    rng = random.Random(seed)

    def made(depth: int) -> Expr:
        if depth and rng.random() < 0.8:
            return both(made(depth - 1), made(depth - 1))
        name, rank = rng.choice("abcdefg"), rng.choice((2, 3))
        if name in "ab":
            return spread(CONDITIONS[name], rank - 2, rank)
        return spread(CONDITIONS[name], 0, 3) if name == "g" else CONDITIONS[name]

    return made(3)


@pytest.mark.parametrize("seed", range(40))
def test_a_mask_by_dimension_holds_where_it_did(seed):
    mask = mask_of(seed)
    grouped = by_dimension(mask)
    for drawn in range(8):
        np.testing.assert_array_equal(holds(grouped, drawn), holds(mask, drawn))
    assert grouped.type == mask.type
    for name in SHAPES:
        assert len([e for e in _read(grouped) if e == name]) <= 2  # of rank 2 and of rank 3


def _read(mask: Expr) -> list[str]:
    """The conditions of a mask, each as often as it is read."""
    if isinstance(mask, Apply):
        return [name for arg in mask.args for name in _read(arg)]
    return [mask.name] if isinstance(mask, Var) else []


def test_a_planted_bug_of_places_is_noticed(monkeypatch):
    """Rows taken for columns."""
    square = {"a": np.array([True, False, True]), "b": np.array([False, True, True])}
    a, b = (Var(name, Type((3,), "bool")) for name in square)
    mask = both(spread(a, 0, 2), spread(b, 1, 2))
    np.testing.assert_array_equal(evaluate(by_dimension(mask), square), evaluate(mask, square))
    monkeypatch.setattr(access, "spread", lambda e, place, rank: spread(e, rank - 1 - place, rank))
    wrong = evaluate(by_dimension(mask), square)
    assert (wrong != evaluate(mask, square)).any()


def test_conditions_of_a_dimension_stand_together():
    a, b, c = (CONDITIONS[n] for n in "abc")
    mask = both(both(spread(a, 0, 2), spread(c, 1, 2)), both(spread(b, 0, 2), spread(a, 0, 2)))
    found = [e for e in walk(by_dimension(mask)) if isinstance(e, Apply) and e.op == "expand_dims"]
    assert [e.args for e in found] == [(both(a, b),), (c,)]


@tile.kernel
def scattered(x, rows, starts):
    """Rows that are picked: in the array, in the range, no later one the same, and the author's."""
    y = hl.zeros([64, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(starts.shape[0] - 1):
        for t in hl.tile(starts[g], starts[g + 1]):
            hl.store(y, [rows[t], slice(None)], x[t, :], mask=(t.index > 3)[:, None])
    return y


def test_a_scatter_has_every_condition_once():
    rows = tile.spec((512,), "int32")
    text = scattered.source(X, rows, OFFSETS, target="cuda:sm90")
    (store,) = (part for part in text.split("tl.store(")[1:] if "y_ptr +" in part)
    whole = "(t_in & (rows_tile >= 0) & (rows_tile < 64) & y_last & (t_at > 3))[:, None]"
    assert f"mask={whole},\n" in store
    last = text.partition("y_last = ")[2].partition("x_tile")[0]
    assert "& t_in[None, :]" in last and "& (t_at > 3)[None, :]" in last and "reshape" not in last


# ---------------------------------------------------------------- parts of arrays


@tile.kernel
def in_parts(x, first: hl.constexpr, second: hl.constexpr):
    """Stores to one part of the columns, then to another, which may meet it."""
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :first] = x[t, :first] * 2.0
        y[t, second:] = x[t, second:] * 3.0
    return y


@tile.kernel
def read_back(x, place: hl.constexpr):
    """Reads one column of what the same tile has stored to another one."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, 0:64] = x[t, 0:64] * 2.0
        y[t, 127] = y[t, place] + 1.0
    return y


@pytest.mark.parametrize("second", [32, 63, 64, 96])
def test_stores_to_parts_that_meet_wait(second):
    text = in_parts.source(X, 64, second, target="cuda:sm90")
    assert ("tl.debug_barrier()" in text) == (second < 64)


@pytest.mark.parametrize(("place", "waits"), [(0, 1), (63, 1), (64, 0), (126, 0), (127, 1)])
def test_what_is_read_of_another_part_waits_for_no_store(place, waits):
    """127: the column itself, which is read before it is stored to."""
    text = read_back.source(X, place, target="cuda:sm90")
    assert text.count("tl.debug_barrier()") == waits
