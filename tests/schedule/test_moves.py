"""Moves: what is said of blocks' numbers is compared with all steps of small loops, one by one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping

import pytest

from tilelang.codegen.pallas.plan.steps.moves import (
    Order,
    consecutive,
    first_visit,
    owns,
    steady,
)
from tilelang.codegen.pallas.plan.types import (
    AtDim,
    AxisPlan,
    ByIndex,
    Condition,
    Number,
    Packed,
    RowStarts,
    Turns,
    Window,
)
from tilelang.errors import Loc
from tilelang.ir import Apply, Const, Expr, GridIndex
from tilelang.ir.integers import const, linear

LOC = Loc("kernel.py", 1, 0, 1, "")
X, J, K = (GridIndex(name) for name in "ijk")
Place = Mapping[str, int]


def axis(name: str, first: int, tiles: int) -> AxisPlan:
    low, high = const(first), const(first + tiles)
    return AxisPlan(name, name, "ordered", "", "dim", low, high, LOC, first, tiles, 99)


def window(*numbers: Number) -> Window:
    dims = tuple(Packed(n.expr, n.rows, False) if n.rows > 1 else ByIndex(n.expr) for n in numbers)
    return Window("y_ref", "y", (99,) * len(dims), "float32", dims, numbers, True)


def op(name: str, left: Expr, right: int | Expr) -> Expr:
    return Apply(name, (left, const(right) if isinstance(right, int) else right), X.type)


def value(expr: Expr, at: Place) -> int:
    match expr:
        case Const(number):
            return int(number)
        case GridIndex(name):
            return at[name]
        case Apply(name, (left, right)):
            a, b = value(left, at), value(right, at)
            return {
                "add": a + b, "sub": a - b, "mul": a * b, "minimum": min(a, b),
                "maximum": max(a, b), "floordiv": a // b if b else 0, "mod": a % b if b else 0,
            }[name]  # fmt: skip
    raise AssertionError(expr)


def block(shown: Window, at: Place) -> tuple[int, ...]:
    return tuple(value(n.expr, at) // n.rows for n in shown.numbers)


def holds(condition: Condition, at: Place, axes: Mapping[str, AxisPlan]) -> bool:
    """What the text of a condition computes; of grid dimensions only."""
    match condition:
        case AtDim(name, "first"):
            return at[name] == axes[name].first
        case RowStarts(name, number, first):
            start = value(number.expr, at) % number.rows == 0
            return start or (first and at[name] == axes[name].first)
        case Turns(numbers, str(name)):
            before = {**at, name: at[name] - 1}
            moved = [
                value(n.expr, at) // n.rows != value(n.expr, before) // n.rows for n in numbers
            ]
            return at[name] == axes[name].first or any(moved)
    raise AssertionError(condition)


def places(axes: Mapping[str, AxisPlan]) -> list[Place]:
    ranges = [range(a.first, a.first + (a.tiles or 0)) for a in axes.values()]
    return [dict(zip(axes, at, strict=True)) for at in itertools.product(*ranges)]


def disagreement(shown: Window, axes: Mapping[str, AxisPlan]) -> str | None:
    """What is said of a window and is not so."""
    order, steps = Order(axes, tuple(axes), (), ()), places(axes)
    blocks = [block(shown, at) for at in steps]
    found = first_visit(shown, order)
    for position, at in enumerate(steps):
        new = position == 0 or blocks[position] != blocks[position - 1]
        if found is not None and all(holds(c, at, axes) for c in found) != new:
            return f"first visit at {at}: {found}"
    runs = [b for b, _ in itertools.groupby(blocks)]
    if consecutive(shown, order) and len(set(runs)) != len(runs):
        return "visits of one block are not consecutive"
    changes = order.seen(shown)
    for (a, here), (b, there) in itertools.pairwise(zip(steps, blocks, strict=True)):
        at = next(name for name in axes if a[name] != b[name])
        for old, new_, number in zip(here, there, shown.numbers, strict=True):
            low, high = changes.change(number, at)
            if not low <= new_ - old <= high:
                return f"{number} changes by {new_ - old} when {at} goes on"
    for name in axes:
        seen: dict[tuple[int, ...], int] = {}
        if owns(shown, name, axes) and any(
            seen.setdefault(b, at[name]) != at[name] for at, b in zip(steps, blocks, strict=True)
        ):
            return f"iterations of {name} share a block"
    return None


def drawn(rng: random.Random, depth: int = 3) -> Expr:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([X, J, K])
    name = rng.choice(["add", "add", "sub", "mul", "floordiv", "mod", "minimum", "maximum"])
    left = drawn(rng, depth - 1)
    if name in ("add", "sub") and rng.random() < 0.6:
        return op(name, left, drawn(rng, depth - 1))
    return op(
        name, left, rng.choice([-2, 0, 1, 5]) if name in ("add", "mul") else rng.randint(1, 5)
    )


@pytest.mark.parametrize("seed", range(4))
def test_what_is_said_of_blocks_is_so(seed: int) -> None:
    rng, told = random.Random(seed), 0
    for _ in range(250):
        sizes = [(name, rng.randint(0, 5), rng.randint(1, 5)) for name in "ijk"]
        axes = {name: axis(name, first, tiles) for name, first, tiles in sizes}
        count = rng.randint(1, 2)
        numbers = tuple(Number(drawn(rng), rng.choice([1, 1, 2, 4, 8])) for _ in range(count))
        shown = window(*numbers)
        assert disagreement(shown, axes) is None, (sizes, numbers)
        told += first_visit(shown, Order(axes, tuple(axes), (), ())) is not None
    assert told > 50  # and not always "nobody can tell"


ONE = {"i": axis("i", 0, 40)}
TWO = {"i": axis("i", 3, 10), "j": axis("j", 0, 2)}
ROWS = Number(X, 8)


@pytest.mark.parametrize(
    ("expr", "condition"),
    [
        (X, RowStarts("i", Number(X, 8), False)),
        (op("add", X, 8), RowStarts("i", Number(op("add", X, 8), 8), False)),
        (op("add", X, 1), RowStarts("i", Number(op("add", X, 1), 8), True)),
        (op("mul", X, 2), Turns((Number(op("mul", X, 2), 8),), "i")),
        (op("floordiv", X, 2), Turns((Number(op("floordiv", X, 2), 8),), "i")),
    ],
)
def test_the_condition_is_that_of_the_block(expr: Expr, condition: Condition) -> None:
    shown = window(Number(expr, 8))
    assert first_visit(shown, Order(ONE, ("i",), (), ())) == (condition,)


def test_a_row_of_the_table_is_compared_with_the_one_before() -> None:
    shown = window(Number(op("add", X, 1), 8), Number(op("mul", J, 2)))
    found = first_visit(shown, Order(TWO, (), ("i", "j"), ()))
    assert found == (Turns((Number(op("add", X, 1), 8), Number(J))),)  # 2 * j changes when j does


def test_two_loops_that_make_one_number() -> None:
    both = op("add", op("mul", X, 2), J)
    assert first_visit(window(Number(both)), Order(TWO, ("i", "j"), (), ())) == ()
    assert first_visit(window(Number(both, 8)), Order(TWO, ("i", "j"), (), ())) is None
    assert owns(window(Number(both)), "i", TWO) and owns(window(Number(both)), "j", TWO)
    close = window(Number(op("add", X, J)))
    assert not owns(close, "i", TWO) and not owns(close, "j", TWO)


def test_numbers_that_follow_no_loop() -> None:
    assert steady(op("floordiv", op("add", op("mul", X, 3), 1), 2))
    assert not steady(op("mod", op("mul", X, 3), 7)) and not steady(op("mul", X, J))
    assert linear(op("sub", op("mul", X, 3), op("mul", X, 3))) == ({}, 0)
    assert linear(op("floordiv", X, 2)) is None
    around = window(Number(op("mod", X, 4), 8))
    assert not consecutive(around, Order(ONE, ("i",), (), ()))
