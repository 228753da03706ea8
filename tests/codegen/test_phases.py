"""Loops in a row under one ragged group: rows of one step table, loop after loop."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from tests.frameworks import from_jax
from tests.ragged import Space, covered, every_stratum, poison, wild_offsets

pytestmark = pytest.mark.slow  # compiles about forty kernels

ROWS, OTHER, GROUPS, FEATURES = 72, 50, 5, 24
QUERIES, KEYS = (Space(rows=rows, groups=GROUPS, block=16) for rows in (ROWS, OTHER))
PAIRS = [
    (q.offsets, k.offsets)
    for q, k in zip(every_stratum(QUERIES), reversed(every_stratum(KEYS)), strict=False)
]
LAYOUTS = [
    *PAIRS,
    *((q, np.zeros(GROUPS + 1, np.int32)) for q, _ in PAIRS[:3]),
    *((np.full(GROUPS + 1, ROWS, np.int32), k) for _, k in PAIRS[:3]),
    (np.array([0, 16, 16, 32, 32, 64]), np.array([0, 0, 16, 16, 48, 48])),
    (np.array([0, 0, 16, 16, 48, 48]), np.array([0, 16, 16, 32, 32, 32])),
]
STRICT = LAYOUTS[::6]  # every copy of a step is simulated
BLOCKS = 16


@tile.kernel
def three_passes(x, other, rows, keys):
    """Softmax in three loops: the largest value, the sum, the quotients."""
    y = hl.zeros_like(x)
    for g in hl.grid(rows.shape[0] - 1):
        m = hl.full([x.shape[1]], float("-inf"), dtype=hl.float32)
        for t in hl.tile(rows[g], rows[g + 1]):
            m = hl.maximum(m, x[t, :].amax(0))
        total = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(rows[g], rows[g + 1]):
            total = total + hl.exp(x[t, :] - m[None, :]).sum(0)
        for t in hl.tile(rows[g], rows[g + 1]):
            y[t, :] = hl.exp(x[t, :] - m[None, :]) / total[None, :]
    return y


def three_passes_exact(x, other, rows, keys):
    y = np.zeros_like(x)
    for a, b in itertools.pairwise(rows):
        e = np.exp(x[a:b] - x[a:b].max(0, initial=-np.inf))
        y[a:b] = e / e.sum(0)
    return y


@tile.kernel
def two_ranges(x, other, rows, keys):
    """First over a group's keys, then over its queries: either may be empty."""
    y = hl.zeros_like(x)
    for g in hl.grid(rows.shape[0] - 1):
        acc = hl.full([x.shape[1]], 0.5, dtype=hl.float32)
        for k in hl.tile(keys[g], keys[g + 1]):
            acc = acc + other[k, :].sum(0)
        for t in hl.tile(rows[g], rows[g + 1]):
            y[t, :] = x[t, :] * acc[None, :]
    return y


def two_ranges_exact(x, other, rows, keys):
    y = np.zeros_like(x)
    for g in range(GROUPS):
        acc = 0.5 + other[keys[g] : keys[g + 1]].sum(0)
        y[rows[g] : rows[g + 1]] = x[rows[g] : rows[g + 1]] * acc
    return y


@tile.kernel
def both_written(x, other, rows, keys):
    """Either loop stores, the first one to rows that have a value already."""
    y = hl.zeros_like(x)
    z = hl.full(other.shape, 3.0, dtype=other.dtype)
    for g in hl.grid(rows.shape[0] - 1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(rows[g], rows[g + 1]):
            acc = acc + x[t, :].sum(0)
            y[t, :] = x[t, :] * 2
        for k in hl.tile(keys[g], keys[g + 1]):
            z[k, :] = other[k, :] + acc[None, :]
    return y, z


def both_written_exact(x, other, rows, keys):
    y, z = np.zeros_like(x), np.full_like(other, 3.0)
    for g in range(GROUPS):
        a, b = rows[g], rows[g + 1]
        y[a:b] = x[a:b] * 2
        z[keys[g] : keys[g + 1]] = other[keys[g] : keys[g + 1]] + x[a:b].sum(0)
    return y, z


@tile.kernel
def stored_between(x, other, rows, keys):
    """What stands between loops and behind them happens for every group, be the loops empty."""
    first = hl.empty([rows.shape[0] - 1, x.shape[1]], dtype=hl.float32)
    last = hl.zeros([rows.shape[0] - 1, x.shape[1]], dtype=hl.float32)
    y = hl.zeros_like(x)
    for g in hl.grid(rows.shape[0] - 1):
        acc = hl.full([x.shape[1]], 1.0, dtype=hl.float32)
        for t in hl.tile(rows[g], rows[g + 1]):
            acc = acc + x[t, :].sum(0)
            y[t, :] = x[t, :] + 1
        first[g, :] = hl.exp(acc * 0.01)
        acc = acc * 2
        for k in hl.tile(keys[g], keys[g + 1]):
            acc = acc + other[k, :].sum(0)
        last[g, :] = acc
    return first, y, last


def stored_between_exact(x, other, rows, keys):
    y = np.zeros_like(x)
    first, last = np.zeros((2, GROUPS, FEATURES), np.float32)
    for g in range(GROUPS):
        a, b = rows[g], rows[g + 1]
        y[a:b] = x[a:b] + 1
        first[g] = np.exp((1 + x[a:b].sum(0)) * 0.01)
        last[g] = 2 * (1 + x[a:b].sum(0)) + other[keys[g] : keys[g + 1]].sum(0)
    return first, y, last


@tile.kernel
def over_groups(x, other, rows, keys):
    """A value that the groups pass on, changed by both loops and behind them."""
    y = hl.zeros_like(x)
    total = hl.empty([1, x.shape[1]], dtype=hl.float32)
    for _ in hl.grid(1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for g in hl.grid(rows.shape[0] - 1):
            for k in hl.tile(keys[g], keys[g + 1]):
                acc = acc + other[k, :].sum(0)
            for t in hl.tile(rows[g], rows[g + 1]):
                y[t, :] = x[t, :] * acc[None, :]
            acc = acc * 0.5 + 1
        total[0, :] = acc
    return y, total


def over_groups_exact(x, other, rows, keys):
    y, acc = np.zeros_like(x), np.zeros(FEATURES, np.float32)
    for g in range(GROUPS):
        acc = acc + other[keys[g] : keys[g + 1]].sum(0)
        y[rows[g] : rows[g + 1]] = x[rows[g] : rows[g + 1]] * acc
        acc = acc * 0.5 + 1
    return y, acc[None]


@tile.kernel
def out_and_back(x, other, rows, keys):
    """One array in the first and the last loop, another one between."""
    y = hl.zeros_like(x)
    for g in hl.grid(rows.shape[0] - 1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(rows[g], rows[g + 1]):
            acc = acc + x[t, :].sum(0)
        for k in hl.tile(keys[g], keys[g + 1]):
            acc = acc + other[k, :].sum(0) * 2
        for t in hl.tile(rows[g], rows[g + 1]):
            y[t, :] = x[t, :] - acc[None, :]
    return y


def out_and_back_exact(x, other, rows, keys):
    y = np.zeros_like(x)
    for g in range(GROUPS):
        a, b = rows[g], rows[g + 1]
        y[a:b] = x[a:b] - x[a:b].sum(0) - 2 * other[keys[g] : keys[g + 1]].sum(0)
    return y


@tile.kernel
def static_loop(x, other, rows, keys):
    """One of the loops has a static range."""
    y = hl.zeros([rows.shape[0] - 1, *other.shape], dtype=x.dtype)
    for g in hl.grid(rows.shape[0] - 1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(rows[g], rows[g + 1]):
            acc = acc + x[t, :].sum(0)
        for k in hl.tile(other.shape[0]):
            y[g, k, :] = other[k, :] * acc[None, :]
    return y


def static_loop_exact(x, other, rows, keys):
    sums = np.stack([x[a:b].sum(0) for a, b in itertools.pairwise(rows)])
    return other[None] * sums[:, None]


@tile.kernel
def single_rows(x, other, rows, keys):
    """Loops over single rows instead of tiles."""
    y = hl.zeros_like(x)
    for g in hl.grid(rows.shape[0] - 1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for k in hl.tile(keys[g], keys[g + 1]):
            acc = acc + other[k, :].sum(0)
        for r in hl.grid(rows[g], rows[g + 1], max_extent=72):
            y[r, :] = x[r, :] * acc
    return y


@tile.kernel
def attention(x, other, rows, keys):
    """Under every tile of queries two passes over the keys."""
    y = hl.zeros_like(x)
    for g in hl.grid(rows.shape[0] - 1):
        for t in hl.tile(rows[g], rows[g + 1]):
            m = hl.full([t], float("-inf"), dtype=hl.float32)
            for k in hl.tile(keys[g], keys[g + 1]):
                m = hl.maximum(m, hl.dot(x[t, :], other[k, :].T).amax(1))
            acc = hl.zeros([t, x.shape[1]], dtype=hl.float32)
            total = hl.full([t], 1.0, dtype=hl.float32)
            for k in hl.tile(keys[g], keys[g + 1]):
                p = hl.exp(hl.dot(x[t, :], other[k, :].T) - m[:, None])
                total = total + p.sum(1)
                acc = hl.dot(p, other[k, :], acc=acc)
            y[t, :] = acc / total[:, None]
    return y


def attention_exact(x, other, rows, keys):
    y = np.zeros_like(x)
    for g in range(GROUPS):
        q, k = x[rows[g] : rows[g + 1]], other[keys[g] : keys[g + 1]]
        s = q @ k.T
        p = np.exp(s - s.max(1, initial=-np.inf, keepdims=True)) if len(k) else s
        y[rows[g] : rows[g + 1]] = (p @ k) / (1 + p.sum(1, keepdims=True))
    return y


@tile.kernel
def in_columns(x, other, rows, keys):
    """Columns are dimensions outside of the table; the result adds to what y holds."""
    y = hl.zeros_like(x)
    for f in hl.tile(x.shape[1]):
        for g in hl.grid(rows.shape[0] - 1):
            acc = hl.zeros([f], dtype=hl.float32)
            for k in hl.tile(keys[g], keys[g + 1]):
                acc = acc + other[k, f].sum(0)
            for t in hl.tile(rows[g], rows[g + 1]):
                y[t, f] = x[t, f] * acc[None, :]
    return y


def sums_exact(x, other, rows, keys):
    y = np.zeros_like(x)
    for g in range(GROUPS):
        y[rows[g] : rows[g + 1]] = x[rows[g] : rows[g + 1]] * other[keys[g] : keys[g + 1]].sum(0)
    return y


@tile.kernel
def same_ranges(x, other, rows, keys):
    """Ranges that are the same for every iteration around, and may be empty."""
    last = hl.zeros([1, x.shape[1]], dtype=hl.float32)
    for _ in hl.grid(1):
        total = hl.zeros([x.shape[1]], dtype=hl.float32)
        for i in hl.grid(3):
            acc = hl.full([x.shape[1]], 1.0, dtype=hl.float32)
            for t in hl.tile(rows[0], rows[1]):
                acc = acc + x[t, :].sum(0) * (i + 1)
            for k in hl.tile(keys[1], keys[2]):
                acc = acc - other[k, :].sum(0)
            total = total * 0.5 + acc
        last[0, :] = total
    return last


def same_ranges_exact(x, other, rows, keys):
    total = np.zeros(FEATURES, np.float32)
    for i in range(3):
        acc = 1 + x[rows[0] : rows[1]].sum(0) * (i + 1) - other[keys[1] : keys[2]].sum(0)
        total = total * 0.5 + acc
    return total[None]


@tile.kernel
def lengths(x, other, rows, keys):
    """Ranges that begin at 0, or are moved there: only their ends differ."""
    y = hl.full([rows.shape[0] - 1, *x.shape], 3.0, dtype=hl.float32)
    for g in hl.grid(rows.shape[0] - 1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for k in hl.tile(keys[g + 1] - keys[g], max_extent=50):
            acc = acc + other[k, :].sum(0)
        for k in hl.tile(keys[g + 1] - keys[g], max_extent=50):
            acc = acc - other[keys[g] + k.index, :].sum(0)
        for r in hl.tile(rows[g + 1] - rows[g], max_extent=72):
            y[g, r, :] = acc + hl.zeros([r, x.shape[1]], dtype=hl.float32)
    return y


def lengths_exact(x, other, rows, keys):
    y = np.full((GROUPS, *x.shape), 3.0, np.float32)
    for g in range(GROUPS):
        count = keys[g + 1] - keys[g]
        acc = other[:count].sum(0) - other[keys[g] : keys[g + 1]].sum(0)
        y[g, : rows[g + 1] - rows[g]] = acc
    return y


@dataclass(frozen=True)
class Nest:
    kernel: Any
    exact: Callable[..., Any]

    def __str__(self) -> str:
        return self.kernel.__name__


NESTS = [
    Nest(three_passes, three_passes_exact),
    Nest(two_ranges, two_ranges_exact),
    Nest(both_written, both_written_exact),
    Nest(stored_between, stored_between_exact),
    Nest(over_groups, over_groups_exact),
    Nest(out_and_back, out_and_back_exact),
    Nest(static_loop, static_loop_exact),
    Nest(single_rows, sums_exact),
    Nest(attention, attention_exact),
    Nest(in_columns, sums_exact),
    Nest(same_ranges, same_ranges_exact),
    Nest(lengths, lengths_exact),
]
SHOWN = (static_loop, lengths)  # they read rows of no group
every_nest = pytest.mark.parametrize("nest", NESTS, ids=str)
hard_nests = pytest.mark.parametrize(
    "nest", [n for n in NESTS if n.kernel in (two_ranges, stored_between, attention)], ids=str
)


def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    return tuple(rng.standard_normal((n, FEATURES), np.float32) for n in (ROWS, OTHER))  # type: ignore[return-value]


def config(kernel: Any, **form: str) -> tile.Config:
    """Blocks of 16 rows for every tile axis but the columns."""
    x, other = arrays()
    default = kernel.default_config(x, other, *LAYOUTS[0], target="cpu")
    return tile.Config({n: BLOCKS for n, _ in default.blocks if n != "f"}, **form)


def compare(nest: Nest, kernel: Any, layouts: list, form: dict[str, str]) -> None:
    x, other = arrays()
    chosen = config(kernel, **form)
    for rows, keys in layouts:
        hidden = poison(x, covered(rows, ROWS))
        others = other if nest.kernel in SHOWN else poison(other, covered(keys, OTHER))
        cuts = rows.astype(np.int32), keys.astype(np.int32)
        results = from_jax(kernel, (hidden, others, *cuts), config=chosen)
        results = results if isinstance(results, tuple) else (results,)
        exact = nest.exact(x, other, rows, keys)
        exact = exact if isinstance(exact, tuple) else (exact,)
        for result, wanted in zip(results, exact, strict=True):
            np.testing.assert_allclose(
                result, wanted, rtol=2e-4, atol=2e-4, err_msg=f"{rows}; {keys}"
            )


@every_nest
def test_loops_in_a_row_are_phases_by_default(nest: Nest) -> None:
    x, other = arrays()
    chosen = config(nest.kernel)
    source = nest.kernel.source(x, other, *LAYOUTS[0], config=chosen, target="tpu:v6e")
    assert "phase_of" in source and source.count("emit_pipeline") == 1


@every_nest
def test_every_pair_of_layouts(nest: Nest) -> None:
    compare(nest, nest.kernel, LAYOUTS, {})


@every_nest
def test_as_a_work_list(nest: Nest) -> None:
    x, other = arrays()
    form = {"loop_type": "worklist"}
    chosen = config(nest.kernel, **form)
    assert "phase_of" in nest.kernel.source(x, other, *LAYOUTS[0], config=chosen)
    compare(nest, nest.kernel, LAYOUTS, form)


@hard_nests
@pytest.mark.parametrize("form", [{"steps": "rectangle"}, {"loop_type": "fori_loop"}], ids=str)
def test_other_forms_run_the_loops_inside_the_step(nest: Nest, form: dict[str, str]) -> None:
    compare(nest, nest.kernel, LAYOUTS[::4], form)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("nest", "form"),
    [(n, {}) for n in NESTS] + [(n, {"loop_type": "worklist"}) for n in (NESTS[1], NESTS[8])],
    ids=str,
)
def test_in_the_strict_interpreter(nest: Nest, form: dict[str, str]) -> None:
    """Memory is NaN until it is written, and copies that race are found."""
    races = pytest.importorskip("jax._src.pallas.mosaic.interpret.interpret_pallas_call")
    strict = pltpu.InterpretParams(detect_races=True)
    kernel = tile.kernel(nest.kernel.__wrapped__, interpret=strict, checks=False)
    try:
        compare(nest, kernel, STRICT, form)
        assert not races.races.races_found
    finally:
        pltpu.reset_tpu_interpret_mode_state()


@hard_nests
def test_offsets_that_break_the_rules_stay_inside_the_arrays(nest: Nest) -> None:
    """An access outside of a buffer raises in the strict interpreter."""
    strict = pltpu.InterpretParams()
    kernel = tile.kernel(nest.kernel.__wrapped__, interpret=strict, checks=False)
    x, other = arrays()
    try:
        for rows, keys in zip(
            wild_offsets(QUERIES).values(), reversed(wild_offsets(KEYS).values()), strict=True
        ):
            cuts = rows.astype(np.int32), keys.astype(np.int32)
            from_jax(kernel, (x, other, *cuts), config=config(kernel))
    finally:
        pltpu.reset_tpu_interpret_mode_state()
