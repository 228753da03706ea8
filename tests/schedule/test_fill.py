"""Fill: where masks of partial tiles stand, and that nothing outside of a range is ever seen."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.written import Writing, add, full, printed, run, total
from tilelang.ir import Expr, KernelIR
from tilelang.language import build
from tilelang.schedule.config import Config

WHOLE = slice(None)


def reduced(uses) -> KernelIR:
    """out[g] = uses(x[tm]) over a ragged tile, where `uses` gives a value per column."""
    k = Writing("reduced")
    begin, end = k.offsets("offsets", 4)
    k.input("x", 50, 128)
    k.output("out", 4, 128, fill=None)
    with k.grid("g", 0, 4) as g:
        with k.tile("tm", begin, end):
            x = k.let("value", k.load("x", "tm", WHOLE))
            acc = k.carried("acc", full((128,), 0.0))
            k.becomes(acc, add(acc, uses(x)))
        k.store("out", g, WHOLE, value=k.after("acc", acc))
    return k.ir()


def masks(ir: KernelIR) -> list[str]:
    text = printed(ir, Config({"tm": 16})).text
    lines = [line.strip() for line in text.splitlines()]
    return [line for line in lines if "tm_mask" in line and not line.startswith("tm_mask =")]


def test_a_value_masked_with_one_fill_is_masked_where_it_is_made() -> None:
    ir = reduced(lambda x: add(total(x, 0), _matrix(x)))
    assert masks(ir) == ["value = jnp.where(tm_mask, x_ref[...], 0.0)"]


def test_two_fills_are_placed_at_their_uses() -> None:
    ir = reduced(lambda x: add(total(x, 0), build.reduce("max", x, 0, False, None)))
    assert sum("0.0)" in line for line in masks(ir)) == 1
    assert sum("-jnp.inf)" in line for line in masks(ir)) == 1


def test_whole_tiles_need_no_mask() -> None:
    k = Writing("whole")
    k.input("x", 64, 128)
    k.output("out", 1, 128, fill=None)
    with k.grid("one", 0, 2):
        with k.tile("tm", 0, 64):
            acc = k.carried("acc", full((128,), 0.0))
            k.becomes(acc, add(acc, total(k.load("x", "tm", WHOLE), 0)))
        k.store("out", 0, WHOLE, value=k.after("acc", acc))
    assert "mask" not in printed(k.ir(), Config({"tm": 16})).text
    assert "mask" in printed(k.ir(), Config({"tm": 24})).text


def _maximum(x: Expr) -> Expr:
    return build.reduce("max", build.unary("abs", x, None), 0, False, None)


def _matrix(x: Expr) -> Expr:
    return total(build.dot(x, x, None, (0, 0)), 0)


OPERATIONS = {
    "sum": (lambda x: total(x, 0), lambda x: x.sum(0)),
    "sum of exp": (lambda x: total(build.unary("exp", x, None), 0), lambda x: np.exp(x).sum(0)),
    "max": (_maximum, lambda x: np.abs(x).max(0, initial=-np.inf)),
    "product": (_matrix, lambda x: (x.T @ x).sum(0)),
    "all": (
        lambda x: build.cast(
            build.reduce("all", build.binary("gt", x, -2.0, None), 0, False, None), "float32", None
        ),
        lambda x: (x > -2).all(0),
    ),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("offsets", [[0, 5, 9, 30, 50], [3, 3, 14, 15, 40]])
def test_neighbours_full_of_nan_are_never_seen(name: str, offsets: list[int]) -> None:
    _uses, want = OPERATIONS[name]
    x = np.random.default_rng(0).standard_normal((50, 128), np.float32)
    for g in range(4):
        own = slice(offsets[g], offsets[g + 1])
        if len(x[own]) == 0 or (own.stop - 1) // 16 != own.start // 16:
            continue  # a maximum per tile is not one per group
        seen = np.full_like(x, np.nan)
        seen[own] = x[own]
        arrays = {"x": seen, "offsets": np.array(offsets, np.int32)}
        got = run(reduced_once(name), arrays, Config({"tm": 16}))["out"][g]
        np.testing.assert_allclose(got, want(x[own]), rtol=1e-4, atol=1e-3)


_ONCE: dict[str, KernelIR] = {}


def reduced_once(name: str) -> KernelIR:
    """One IR per operation, so that it is compiled once."""
    return _ONCE.setdefault(name, reduced(OPERATIONS[name][0]))
