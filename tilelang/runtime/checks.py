"""compile_checks(ir) -> Check | None: are offsets, lengths and indices in range, for given values?

Compiled once per specialisation; a call evaluates a few NumPy expressions over all groups at once,
and works out which group is wrong only when one is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from ..analysis.facts import Facts
from ..errors import RaggedValueError
from ..ir import Apply, Const, Expr, KernelIR, definitions, inlined
from ..ir.integers import add, fold
from .certain import certain, evident
from .phrase import phrase, settled
from .points import domain, reads
from .pointwise import Arrays, KnownAhead, term, written_out
from .rules import (
    IndexRule,
    RangeRule,
    counted,
    index_rules,
    numbered,
    range_rules,
    read_as_it_is,
    tensors_of,
)
from .sorted_ranges import Sorted, order_of, sorted_ranges

Rule = RangeRule | IndexRule
Run = Callable[[Arrays], None]
Values = Sequence[Any]  # of the rule's expressions: one per place, or one for all
MOST_HELD = 1 << 16  # bytes that are kept to compare with those of the next call
Say = Callable[..., str]  # rule, place, the numbers of the rule's expressions -> what is wrong


@dataclass(frozen=True)
class Check:
    """`run(arrays)` raises RaggedValueError for values out of range; `reads` names its tensors."""

    reads: tuple[str, ...]
    run: Run


@np.errstate(all="ignore")  # what is divided by zero is unspecified, here too
def compile_checks(
    ir: KernelIR, facts: Facts | None = None, blocks: Mapping[str, int] = MappingProxyType({})
) -> Check | None:
    """The check of a kernel; None if no loop or index depends on what tensors hold.

    With facts, positions and tiles of which they doubt that they stay inside are checked even where
    those read no tensor.  With blocks, those of the plan, numbers of tiles are positions like any.
    """
    values = definitions(ir.body)
    positions, leaving = (facts.positions, facts.leaving) if facts is not None else ((), ())
    found, ir = certain(ir), written_out(ir)
    references = tuple(evident(found, ir))
    fixed = {a.name: a.fixed for a in ir.axes if a.fixed is not None}
    sizes = {a: b for a, b in {**blocks, **fixed}.items() if a in numbered(references)}
    count = partial(counted, ir=ir, blocks=sizes)
    references = tuple(found.map(count) for found in references)
    tiles = {(count(inlined(t.index.offset, values)), t.size) for t in leaving if t.index.offset}
    doubted = {(count(inlined(p.expr, values)), p.size) for p in positions if p.kind == "dynamic"}
    rising = facts.sorted if facts is not None else ()
    ranges = range_rules(ir, references, tiles, rising)
    rules = (*ranges, *index_rules(ir, references, doubted))
    runs = [run for run in (_compiled(rule, ir) for rule in rules) if run is not None]
    orders = sorted_ranges(ir, facts) if facts is not None else ()
    runs += [run for run in (order_of(one, ir) for one in orders) if run is not None]
    if not runs:
        return None

    def run_all(arrays: Arrays) -> None:
        for run in runs:
            run(arrays)

    looked: tuple[Rule | Sorted, ...] = (*rules, *orders)
    exprs = (e for r in looked for e in (*r.exprs, *r.iterations.exprs))
    return Check(reads(exprs, ir), run_all)


def verifying(check: Check, fetch: Callable[[Any], list[np.ndarray]]) -> Callable[[Any], None]:
    """The check of a call's arguments, not made again of the values that the call before had.

    `fetch` gives what is read of the arguments, in the order of `check.reads`.
    """
    right: list[bytes] | None = None  # nothing is known, also where nothing is read

    def verify(given: Any) -> None:
        nonlocal right
        arrays = fetch(given)
        held = [array.tobytes() for array in arrays]
        if held == right:
            return
        # what is held is what is looked at: a caller's array may change meanwhile
        copies = [
            np.frombuffer(kept, array.dtype).reshape(array.shape)
            for kept, array in zip(held, arrays, strict=True)
        ]
        check.run(dict(zip(check.reads, copies, strict=True)))
        if sum(map(len, held)) <= MOST_HELD:
            right = held

    return verify


def _compiled(given: Rule, ir: KernelIR) -> Run | None:
    """The check of one rule; None if its values cannot be known, or no loop ever comes there."""
    places = domain(given.iterations, ir)
    if places is None or places.empty:
        return None
    rule = given if isinstance(given, IndexRule) else _knowable(given, places.ahead)
    if rule is None:
        tiled = given.of_tiles if isinstance(given, RangeRule) else None
        return (
            None
            if tiled is None
            else _compiled(replace(given, iterations=tiled, of_tiles=None), ir)
        )
    terms = [t for e in rule.exprs if (t := term(e, places.ahead)) is not None]
    if len(terms) != len(rule.exprs):
        return None

    @np.errstate(all="ignore")
    def look(arrays: Arrays) -> None:
        points, size = places.listed(arrays)
        values = [np.asarray(t.run(arrays, points)) for t in terms]
        for wrong, say in _faults(rule, *values):
            if wrong.any() and size:
                every = _Place(replace(places.ahead, points=points), arrays)
                raise _error(rule, say, every, [wrong, *values])

    if places.points is None or not all(t.plain for t in terms):
        return look
    points, surely = places.points, _sure(rule)

    def run(arrays: Arrays) -> None:
        if not surely([t.run(arrays, points) for t in terms]):
            look(arrays)

    return run


def _sure(rule: Rule) -> Callable[[Values], bool]:
    """Whether a rule surely holds: no place breaks it, and of ranges none that may be empty does.

    Counting what is wrong is several times cheaper than NumPy's `any`; which place it is, and
    whether that matters, is only asked where there is one.
    """
    some, limit = np.count_nonzero, None if rule.limit is None else rule.limit.size
    if isinstance(rule, IndexRule):
        return lambda values: not (some(values[0] < 0) or some(values[0] >= limit))
    strict, most = rule.strict, rule.most

    def surely(values: Values) -> bool:
        low, high = values
        if some(low < 0) or (limit is not None and some(high > limit)):
            return False
        if most is not None and some(np.subtract(high, low, dtype=np.int64) > most):
            return False
        return not (strict and some(high < low))

    return surely


def _knowable(rule: RangeRule, ahead: KnownAhead) -> RangeRule | None:
    """What of it can be looked at: of ranges that end where a tile does what they are cut from."""
    begin, end = _part(rule.begin, ahead), _part(rule.end, ahead)
    if begin is None or end is None:
        return None
    if (begin, end) == (rule.begin, rule.end):
        return rule
    strict = not rule.iterations.where and read_as_it_is(begin, end)
    return replace(rule, begin=begin, end=end, most=None, strict=True) if strict else None


def _part(expr: Expr, ahead: KnownAhead) -> Expr | None:
    """The expression, of minima and maxima the arms that can be known, moved or not."""
    if term(expr, ahead) is not None:
        return expr
    match expr:
        case Apply("minimum" | "maximum", (a, b)):
            arms = [arm for e in (a, b) if (arm := _part(e, ahead)) is not None]
            return (
                None if not arms else arms[0] if len(arms) == 1 else replace(expr, args=tuple(arms))
            )
        case Apply("add", (a, b)):
            left, right = _part(a, ahead), _part(b, ahead)
            return None if left is None or right is None else fold(add(left, right))
        case _:
            return None


def _faults(rule: Rule, *values: np.ndarray) -> Iterator[tuple[np.ndarray, Say]]:
    """Where the rule is broken, and how to say it."""
    if isinstance(rule, IndexRule):
        (value,) = values
        yield (value < 0) | (value >= rule.limit.size), _outside
        return
    low, high = values
    spans = np.subtract(high, low, dtype=np.int64)
    begun = np.True_ if rule.strict else spans > 0  # others may be empty in any way
    yield begun & (low < 0), _negative
    if rule.strict:
        yield spans < 0, _decreasing
    if rule.limit is not None:
        yield begun & (high > rule.limit.size), _past
    if rule.most is not None:
        yield spans > rule.most, _too_long


# ---------------------------------------------------------------- messages


@dataclass(frozen=True)
class _Place:
    """One place of the loops around what is wrong: the words of expressions with its numbers."""

    ahead: KnownAhead
    arrays: Arrays

    def number(self, expr: Expr) -> int | None:
        found = term(expr, self.ahead)
        return None if found is None else int(found.run(self.arrays, {}))

    def __call__(self, expr: Expr) -> str:
        return phrase(expr, self.ahead.ir, self.number)


def _error(rule: Rule, say: Say, every: _Place, found: Sequence[np.ndarray]) -> RaggedValueError:
    """The first of all places where something is wrong, and what; `found`: where, and numbers."""
    wrong, *values = (np.atleast_1d(a) for a in np.broadcast_arrays(*found))
    first = int(np.argmax(wrong))
    point = {axis: int(v[first]) for axis, v in every.ahead.points.items()}
    here = replace(every, ahead=replace(every.ahead, points=point))
    numbers = tuple(int(v[first]) for v in values)
    what = say(rule.map(partial(settled, number=here.number)), here, *numbers)
    hint = rule.hint(*numbers, say=partial(phrase, ir=every.ahead.ir))
    return RaggedValueError(what, rule.loc, hint)


def _number(here: _Place, expr: Expr, value: int) -> str:
    """`offsets[4] = 300`; a number is only said once."""
    text = here(expr)
    return text if text == str(value) else f"{text} = {value}"


def _outside(rule: IndexRule, here: _Place, value: int) -> str:
    why = "is negative" if value < 0 else "is too large"
    return f"{_number(here, rule.value, value)} {why}: it picks one of {rule.limit}"


def _negative(rule: RangeRule, here: _Place, low: int, high: int) -> str:
    where = f"before {rule.limit}" if rule.moved else "negative"
    return f"{_number(here, rule.begin, low)} is {where}"


def _decreasing(rule: RangeRule, here: _Place, low: int, high: int) -> str:
    begin, end = _number(here, rule.begin, low), _number(here, rule.end, high)
    match rule.end:
        case Apply("add", (a, b)) if rule.begin in (a, b):  # [b, b + length)
            return f"{_number(here, b if a == rule.begin else a, high - low)} is negative"
        case _:
            pass  # no length of its own
    if isinstance(rule.begin, Const) and high < 0:
        return f"{end} is negative"
    if isinstance(rule.end, Const):
        return f"{begin} is past the end of its range, {high}"
    ranges = f"[{phrase(rule.begin, here.ahead.ir)}, {phrase(rule.end, here.ahead.ir)})"
    same = tensors_of(rule.begin) == tensors_of(rule.end)
    must = "must not decrease" if same else "must not end before they begin"
    return f"{end} is less than {begin}: ranges {ranges} {must}"


def _past(rule: RangeRule, here: _Place, low: int, high: int) -> str:
    return f"{_number(here, rule.end, high)} is past {rule.limit}"


def _too_long(rule: RangeRule, here: _Place, low: int, high: int) -> str:
    tensors = sorted(tensors_of(rule.begin) | tensors_of(rule.end))
    unit = "positions" if rule.limit is None else rule.limit.unit
    group = tuple(here.ahead.points.values())
    if group and tensors:
        which = f"group {group[0] if len(group) == 1 else group} of {' and '.join(tensors)}"
    else:
        which = f"the range [{here(rule.begin)}, {here(rule.end)})"
    return f"{which} holds {high - low} {unit}, more than max_extent = {rule.most}"
