"""Intervals, sums of indices and folding say of every expression what NumPy computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import pytest

from tests.planted.integers import MUTATIONS
from tilelang.ir import Apply, Const, Expr, GridIndex, Type, integers
from tilelang.ir.integers import INT, const, linear
from tilelang.ir.intervals import ANYTHING, Interval, difference, divided, interval
from tilelang.language.op import OPS

G, H = GridIndex("g"), GridIndex("h")
RANGES: Mapping[Expr, range] = {G: range(4), H: range(-2, 3)}
BINARY = ("add", "sub", "mul", "floordiv", "mod", "minimum", "maximum")


def apply(op: str, *args: Expr) -> Apply:
    return Apply(op, args, INT)


def _deeper(inner: list[Expr]) -> Iterator[Expr]:
    """One operation more; nothing is divided by what may be 0."""
    for op, left, right in product(BINARY, inner, (G, H, const(-3), const(2), const(3))):
        if op not in ("floordiv", "mod") or isinstance(right, Const):
            yield apply(op, left, right)
    for left, right in product(inner, (G, H)):
        condition = Apply("gt", (left, const(1)), Type((), "bool"))
        yield apply("where", condition, left, right)
    yield from (apply("neg", e) for e in inner)


ONCE = [*_deeper([G, H])]
EXPRESSIONS = [*ONCE, *_deeper(ONCE)]


def meaning(expr: Expr, at: Mapping[Expr, int]) -> int:
    """The value by the language's own table."""
    match expr:
        case Const(value):
            return int(value)
        case Apply(op, args):
            return int(OPS[op].reference(*(meaning(a, at) for a in args)))
        case _:
            return at[expr]


def values(expr: Expr) -> Iterator[tuple[Mapping[Expr, int], int]]:
    for numbers in product(*RANGES.values()):
        at = dict(zip(RANGES, numbers, strict=True))
        yield at, meaning(expr, at)


def leaf(expr: Expr) -> Interval:
    return (RANGES[expr][0], RANGES[expr][-1]) if expr in RANGES else ANYTHING


def change(expr: Expr) -> Interval:
    """g goes on by 1 to 3, h stays."""
    return {G: (1, 3), H: (0, 0)}.get(expr, ANYTHING)


def changes_otherwise(expr: Expr) -> bool:
    """Whether the difference of two values is not among those that are possible."""
    low, high = difference(expr, change)
    found = {(at[G], at[H]): value for at, value in values(expr)}
    pairs = (((g, h), (more, h)) for g, h in found for more in range(g + 1, 4))
    return any(not low <= found[there] - found[here] <= high for here, there in pairs)


def is_wrong(expr: Expr) -> bool:
    """Whether an interval leaves a value out, or a sum or a multiple is another number."""
    if changes_otherwise(expr):
        return True
    known = [of for of in (2, 3) if integers.is_multiple(expr, of)]
    if any(value % of for of in known for _, value in values(expr)):
        return True
    low, high = interval(expr, leaf)
    total = linear(expr)
    for at, value in values(expr):
        if not low <= value <= high:
            return True
        if total is not None:
            terms, rest = total
            if sum(at[index] * by for index, by in terms.items()) + rest != value:
                return True
    return False


def test_every_value_lies_in_the_interval() -> None:
    assert [str(e) for e in EXPRESSIONS if is_wrong(e)] == []


def test_multiples_are_found() -> None:
    """Whatever the parts are of which nothing is known."""
    rows = apply("mul", H, const(6))
    for expr in (rows, apply("sub", rows, const(12)), apply("minimum", const(3), rows)):
        assert integers.is_multiple(expr, 3)
        assert not integers.is_multiple(apply("add", expr, const(1)), 3)
        assert integers.is_multiple(apply("floordiv", expr, const(3)), 1)
        assert not integers.is_multiple(apply("floordiv", expr, const(3)), 2)


def test_nothing_is_known_of_what_is_not_an_index() -> None:
    memory = GridIndex("memory")
    assert interval(apply("mul", memory, const(0)), leaf) == (0, 0)
    assert interval(apply("minimum", memory, G), leaf) == (ANYTHING[0], 3)
    assert interval(apply("mod", memory, const(5)), leaf) == (0, 4)
    assert interval(apply("floordiv", memory, const(5)), leaf) == ANYTHING
    assert interval(apply("sub", G, memory), leaf) == ANYTHING


def test_quotients_of_changes_are_rounded_outwards() -> None:
    assert divided((-3, 5), 4) == (-1, 1)
    assert divided((-3, 5), 4, up=True) == (-1, 2)
    assert divided((-3, ANYTHING[1]), 4, up=True) == (-1, ANYTHING[1])


@pytest.mark.parametrize("op", ["floordiv", "mod", "minimum", "maximum"])
def test_numbers_are_folded_as_the_language_means_them(op: str) -> None:
    build = getattr(integers, op)
    for left, right in product(range(-9, 10), (1, 4, 7)):
        assert build(const(left), right) == const(int(OPS[op].reference(left, right)))
    assert build(G, 4) == apply(op, G, const(4))


TERMS = (const(0), const(3), G, H, apply("neg", G), *(apply("sub", const(0), e) for e in (G, H)))


def folds_wrongly(left: Expr, right: Expr) -> list[str]:
    """The sums and differences of both that mean another number once they are folded."""
    pairs = ((op, getattr(integers, op)(left, right)) for op in ("add", "sub"))
    return [
        f"{left} {op} {right} is {folded}"
        for op, folded in pairs
        if [v for _, v in values(folded)] != [v for _, v in values(apply(op, left, right))]
    ]


def test_folded_sums_and_differences_mean_what_they_did() -> None:
    terms = [*TERMS, *(integers.sub(a, b) for a in TERMS for b in TERMS)]
    assert [wrong for a in terms for b in terms for wrong in folds_wrongly(a, b)] == []


def test_shorter_sums_mean_what_they_did() -> None:
    """Those of sums and differences of all terms, and of those again."""
    sums = [apply(op, a, b) for op in ("add", "sub") for a in TERMS for b in TERMS]
    for expr in (apply(op, a, b) for op in ("add", "sub") for a in sums for b in TERMS):
        found = integers.shorter(expr)
        assert [v for _, v in values(found)] == [v for _, v in values(expr)], str(expr)


def test_what_cancels_is_not_printed() -> None:
    sixteen = apply("sub", apply("add", G, const(16)), G)
    assert integers.shorter(sixteen) == const(16)
    assert integers.shorter(apply("add", apply("sub", G, const(20)), const(1))) == apply(
        "sub", G, const(19)
    )
    rest = apply("sub", apply("add", H, const(4)), apply("add", G, const(9)))
    assert integers.shorter(rest) == apply("sub", apply("sub", H, G), const(5))
    assert integers.shorter(apply("sub", const(5), G)) == apply("sub", const(5), G)
    assert integers.shorter(apply("sub", apply("sub", const(5), G), const(5))) == apply(
        "sub", const(0), G
    )


def test_a_planted_bug_of_shorter_sums_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = integers.linear
    monkeypatch.setattr(integers, "linear", lambda expr, leaf: (whole(expr, leaf)[0], 0))
    with pytest.raises(AssertionError):
        test_shorter_sums_mean_what_they_did()


def test_no_negation_is_negated() -> None:
    minus = integers.sub(const(0), G)
    assert integers.sub(const(0), minus) == G
    assert integers.sub(H, minus) == apply("add", H, G)
    assert integers.add(H, minus) == apply("sub", H, G)
    assert integers.sub(G, apply("neg", G)) == apply("add", G, G)
    assert integers.sub(apply("add", G, H), G) == H  # b + n - b, of a range that is counted from 0
    assert integers.sub(apply("add", G, H), H) == G


def test_a_planted_bug_of_folding_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(expr: Expr) -> Expr | None:
        """Takes every difference for a negation."""
        return expr.args[-1] if isinstance(expr, Apply) and expr.op == "sub" else None

    monkeypatch.setattr(integers, "_negated", wrong)
    minus = Apply("sub", (G, H), INT)
    assert folds_wrongly(const(3), minus)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_planted_bug_is_noticed(mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    replaced = monkeypatch.setitem if isinstance(mutation.owner, dict) else monkeypatch.setattr
    replaced(mutation.owner, mutation.at, mutation.wrong)
    assert any(is_wrong(e) for e in EXPRESSIONS)
