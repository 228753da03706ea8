"""compile_checks(ir) -> Check | None: are offsets, lengths and indices in range, for given values?

Compiled once per specialisation; a call evaluates a few NumPy expressions over all groups at once,
and works out which group is wrong only when one is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ..analysis.facts import PositionFact
from ..errors import RaggedValueError
from ..ir import Along, Apply, Const, Expr, KernelIR, Load, walk
from .phrase import Number, phrase, settled
from .points import Domain, domain, reads
from .pointwise import Arrays, Points, Scope, position, scope, term
from .rules import IndexRule, Limit, RangeRule, index_rules, range_rules

Run = Callable[[Arrays], None]


@dataclass(frozen=True)
class Check:
    """`run(arrays)` raises RaggedValueError for values out of range; `reads` names its tensors."""

    reads: tuple[str, ...]
    run: Run


def compile_checks(ir: KernelIR, positions: Sequence[PositionFact] = ()) -> Check | None:
    """The check of a kernel; None if no loop or index depends on what tensors hold.

    positions  facts: of those that were not proved, the ones that read no tensor are checked, too
    """
    known = scope(ir)
    open_ = {(p.expr, p.size) for p in positions if p.kind == "dynamic"}
    ranges, indices = range_rules(ir, known), index_rules(ir, known, open_)
    compiled = [_range_check(r, known) for r in ranges] + [_index_check(r, known) for r in indices]
    runs = tuple(run for run in compiled if run is not None)
    if not runs:
        return None

    def run_all(arrays: Arrays) -> None:
        for run in runs:
            run(arrays)

    exprs = [e for r in ranges for e in (r.begin, r.end)] + [r.value for r in indices]
    every = [r.iterations for r in (*ranges, *indices)]
    exprs += [e for i in every for a in i.loops for e in (a.begin, a.end)]
    exprs += [condition for i in every for condition, _ in i.where]
    return Check(reads(exprs, known), run_all)


# ---------------------------------------------------------------- ranges


@dataclass(frozen=True)
class _Places:
    """Where a rule is evaluated: known ahead, or found from the tensors at each call."""

    domain: Domain
    known: Scope  # with the points that are known ahead

    def of(self, arrays: Arrays) -> Points:
        return {} if self.domain.static is not None else self.domain.points(arrays)[0]

    def any(self, arrays: Arrays) -> bool:
        """Whether there is a place at all: a loop around may have no iterations."""
        return self.domain.points(arrays)[1] > 0

    def point(self, arrays: Arrays, number: int) -> Points:
        """One place, as axis -> int."""
        points, _ = self.domain.points(arrays)
        return {axis: int(values[number]) for axis, values in points.items()}


def _places(rule: RangeRule | IndexRule, known: Scope) -> _Places | None:
    found = domain(rule.iterations, known)
    if found is None or (found.static is not None and found.size == 0):
        return None
    return _Places(found, replace(known, points=found.static or {}, ends=rule.iterations.ends))


def _range_check(rule: RangeRule, known: Scope) -> Run | None:
    places = _places(rule, known)
    if places is None:
        return None
    begin, end = term(rule.begin, places.known), term(rule.end, places.known)
    if begin is None or end is None:
        return None
    exact = begin.bound == "exact" and end.bound == "exact"
    if not exact and not rule.strict:
        return None
    most = rule.most if exact else None
    wrong = _wrong_strict if rule.strict else _wrong_loose
    size = None if rule.limit is None else rule.limit.size

    def run(arrays: Arrays) -> None:
        points = places.of(arrays)
        low, high = np.asarray(begin.run(arrays, points)), np.asarray(end.run(arrays, points))
        if low.size and high.size and wrong(low, high, size, most) and places.any(arrays):
            low, high = np.broadcast_arrays(low, high)
            raise _range_error(rule, places, arrays, low, high, most)

    return run


def _wrong_strict(low: np.ndarray, high: np.ndarray, size: int | None, most: int | None) -> bool:
    """Whether any range starts below 0, decreases, or is too far or too long."""
    spans = np.subtract(high, low, dtype=np.int64)
    if low.min() < 0 or spans.min() < 0:
        return True
    return (size is not None and high.max() > size) or (most is not None and spans.max() > most)


def _wrong_loose(low: np.ndarray, high: np.ndarray, size: int | None, most: int | None) -> bool:
    """The same for ranges that may be empty in any way."""
    spans = np.subtract(high, low, dtype=np.int64)
    if most is not None and spans.max() > most:
        return True
    return size is not None and bool(np.any((spans > 0) & ((low < 0) | (high > size))))


def _range_error(
    rule: RangeRule,
    places: _Places,
    arrays: Arrays,
    low: np.ndarray,
    high: np.ndarray,
    most: int | None,
) -> RaggedValueError:
    """The first range that is wrong, and how."""
    low, high = np.atleast_1d(low), np.atleast_1d(high)
    spans = np.subtract(high, low, dtype=np.int64)
    size = np.inf if rule.limit is None else rule.limit.size
    relevant = np.ones(len(low), bool) if rule.strict else spans > 0
    faults = (
        (relevant & (low < 0), _negative_begin),
        (relevant & (spans < 0), _decreasing),
        (relevant & (high > size), _past),
        (spans > (np.inf if most is None else most), _too_long),
    )
    wrong, say = next((wrong, say) for wrong, say in faults if wrong.any())
    first = int(np.argmax(wrong))
    words = _words(places, arrays, first)
    begin, end = (settled(bound, words.number) for bound in (rule.begin, rule.end))
    here = replace(rule, begin=begin, end=end)
    what = say(here, words, int(low[first]), int(high[first]))
    return RaggedValueError(what, rule.axis.loc)


@dataclass(frozen=True)
class _Words:
    """Expressions in words: `here` with the numbers of one place, `general` without."""

    point: Points
    number: Number
    here: Callable[[Expr], str]
    general: Callable[[Expr], str]


def _words(places: _Places, arrays: Arrays, number: int) -> _Words:
    point = places.point(arrays, number)
    value = _number(replace(places.known, points=point), arrays)
    return _Words(
        point=point,
        number=value,
        here=lambda expr: phrase(expr, places.known, value),
        general=lambda expr: phrase(expr, places.known),
    )


def _number(here: Scope, arrays: Arrays) -> Number:
    def number(expr: Expr | Along) -> int | None:
        found = position(expr, here) if isinstance(expr, Along) else term(expr, here)
        if found is None or found.bound != "exact":
            return None
        return int(np.asarray(found.run(arrays, {})).item())

    return number


def _negative_begin(rule: RangeRule, words: _Words, low: int, high: int) -> str:
    return f"{words.here(rule.begin)} = {low} is negative"


def _decreasing(rule: RangeRule, words: _Words, low: int, high: int) -> str:
    begin, end = words.here(rule.begin), words.here(rule.end)
    length = _length(rule)
    if length is not None:
        return f"{words.here(length)} = {high - low} is negative"
    if isinstance(rule.begin, Const) and high < 0:
        return f"{end} = {high} is negative"
    if isinstance(rule.end, Const):
        return f"{begin} = {low} is past the end of its range, {high}"
    ranges = f"[{words.general(rule.begin)}, {words.general(rule.end)})"
    same = _tensors(rule.begin) == _tensors(rule.end)
    must = "must not decrease" if same else "must not end before they begin"
    return f"{end} = {high} is less than {begin} = {low}: ranges {ranges} {must}"


def _length(rule: RangeRule) -> Expr | None:
    """L of a range [b, b + L)."""
    match rule.end:
        case Apply("add", (a, b)) if rule.begin in (a, b):
            return b if a == rule.begin else a
        case _:
            return None


def _past(rule: RangeRule, words: _Words, low: int, high: int) -> str:
    return f"{words.here(rule.end)} = {high} is past {rule.limit}"


def _too_long(rule: RangeRule, words: _Words, low: int, high: int) -> str:
    tensors = sorted(_tensors(rule.begin) | _tensors(rule.end))
    unit = "positions" if rule.limit is None else rule.limit.unit
    group = tuple(words.point.values())
    if group and tensors:
        which = f"group {group[0] if len(group) == 1 else group} of {' and '.join(tensors)}"
    else:
        which = f"the range [{words.here(rule.begin)}, {words.here(rule.end)})"
    return f"{which} holds {high - low} {unit}, more than max_extent = {rule.most}"


def _tensors(expr: Expr) -> set[str]:
    return {part.tensor for part in walk(expr) if isinstance(part, Load)}


# ---------------------------------------------------------------- indices


def _index_check(rule: IndexRule, known: Scope) -> Run | None:
    places = _places(rule, known)
    if places is None:
        return None
    value = term(rule.value, places.known)
    if value is None or value.bound != "exact":
        return None
    size = rule.limit.size

    def run(arrays: Arrays) -> None:
        found = np.asarray(value.run(arrays, places.of(arrays)))
        wrong = found.size and (found.min() < 0 or found.max() >= size)
        if wrong and places.any(arrays):
            raise _index_error(rule, places, arrays, np.atleast_1d(found))

    return run


def _index_error(
    rule: IndexRule, places: _Places, arrays: Arrays, found: np.ndarray
) -> RaggedValueError:
    first = int(np.argmax((found < 0) | (found >= rule.limit.size)))
    words, picked = _words(places, arrays, first), int(found[first])
    limit: Limit = rule.limit
    why = "is negative" if picked < 0 else "is too large"
    value = words.here(settled(rule.value, words.number))
    what = f"{value} = {picked} {why}: it picks one of {limit}"
    return RaggedValueError(what, rule.loc)
