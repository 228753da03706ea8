"""prove(smaller, larger, knowledge): a small decision procedure for integer inequalities.

The goal larger - smaller >= 0 is linear over atoms (symbols, offsets(g), floor(...), min(...)).  A
step subtracts something known to be non-negative so that one atom disappears; a goal that is a
number is decided.  Sound and incomplete: None means "not proved", never "false".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache

import sympy
from sympy.core.function import AppliedUndef

from .symbols import parts

Linear = Mapping[sympy.Basic, Fraction]
Tables = frozenset[str]
Key = frozenset[tuple[sympy.Basic, Fraction]]

# Steps of a proof, and goals tried for one question: they bound the time of one that fails.  Of the
# examples and 40 random kernels no fact changes from 6 steps and 30 goals on.
DEPTH, GOALS = 9, 600


@dataclass(frozen=True, eq=False)
class Knowledge:
    """What a proof may use; a key that stands for itself.

    facts    expressions that are not negative
    sorted   (tensor, argument): tensors taken to be non-decreasing in that index
    """

    facts: tuple[sympy.Expr, ...] = ()
    sorted: frozenset[tuple[str, int]] = frozenset()

    @cached_property
    def of(self) -> Mapping[tuple[sympy.Basic, bool], Sequence[Linear]]:
        """The finite facts, by the atoms of each and whether their factors are positive."""
        found: dict[tuple[sympy.Basic, bool], list[Linear]] = {}
        for fact in filter(None, map(linear, self.facts)):
            for atom, factor in fact.items():
                found.setdefault((atom, factor > 0), []).append(fact)
        return found


@lru_cache(256)  # positions of one loop are often the same in several accesses
def prove(smaller: sympy.Expr, larger: sympy.Expr, known: Knowledge) -> Tables | None:
    """The tensors whose being sorted smaller <= larger rests on, or None if it was not proved."""
    goal = linear(larger - smaller)
    return None if goal is None else _search(goal, known, DEPTH, {})


@lru_cache(1024)  # facts of one loop are those of the loops in it
def linear(expr: sympy.Expr) -> Linear | None:
    """Coefficients by atom, the constant under 1; None if the expression is not finite."""
    if expr.has(sympy.oo, -sympy.oo, sympy.nan, sympy.zoo):
        return None
    terms = sympy.expand(expr).as_coefficients_dict()
    if not all(c.is_Rational for c in terms.values()):
        return None
    return {atom: Fraction(int(c.p), int(c.q)) for atom, c in terms.items() if c != 0}


def _search(
    goal: Linear, known: Knowledge, depth: int, tried: dict[Key, Tables | None]
) -> Tables | None:
    """Proves goal >= 0; `tried` holds what was found of other goals."""
    if all(atom is sympy.S.One for atom in goal):
        return frozenset() if sum(goal.values()) >= 0 else None
    key: Key = frozenset(goal.items())
    if key in tried or depth == 0 or len(tried) >= GOALS:
        return tried.get(key)
    tried[key] = None
    split = _split(goal)
    if split is not None:
        goals, every = split
        found = [_search(g, known, depth - 1, tried) for g in goals]
        tried[key] = _all(found) if every else next((f for f in found if f is not None), None)
        return tried[key]
    for step, used in _steps(goal, known):
        rest = _search(step, known, depth - 1, tried)
        if rest is not None:
            tried[key] = rest | used
            return tried[key]
    return None


def _all(found: Sequence[Tables | None]) -> Tables | None:
    proved = [f for f in found if f is not None]
    return frozenset[str]().union(*proved) if len(proved) == len(found) else None


def _split(goal: Linear) -> tuple[list[Linear], bool] | None:
    """Goals with one min, max or select replaced by each of its values; True: all must hold.

    min(a, b) + r >= 0 needs both a + r >= 0 and b + r >= 0; max(a, b) + r >= 0 needs either.
    """
    for atom, factor in goal.items():
        if not isinstance(atom, sympy.Min | sympy.Max | sympy.Piecewise):
            continue
        values = branches(atom)
        goals = [_replaced(goal, atom, value) for value in values]
        known = [g for g in goals if g is not None]
        every = isinstance(atom, sympy.Piecewise) or isinstance(atom, sympy.Min) == (factor > 0)
        if len(known) < len(values) and every:
            return [{sympy.S.One: Fraction(-1)}], True
        return known, every
    return None


def branches(atom: sympy.Basic) -> tuple[sympy.Expr, ...]:
    """The values that a min, max or Piecewise may have."""
    if isinstance(atom, sympy.Piecewise):
        return tuple(value for value, _ in parts(atom))
    return parts(atom)


def _replaced(goal: Linear, atom: sympy.Basic, value: sympy.Expr) -> Linear | None:
    other = linear(value)
    if other is None:
        return None
    factor = goal[atom]
    rest = {a: c for a, c in goal.items() if a != atom}
    return _minus(rest, other, -factor)


def _minus(goal: Linear, other: Linear, factor: Fraction) -> Linear:
    """goal - factor * other"""
    out = dict(goal)
    for atom, coefficient in other.items():
        out[atom] = out.get(atom, Fraction(0)) - factor * coefficient
    return {atom: c for atom, c in out.items() if c != 0}


def _steps(goal: Linear, known: Knowledge) -> Iterator[tuple[Linear, Tables]]:
    """Goals that imply this one and lack one of its atoms, with the tables that needs."""
    for bigger, smaller, used in _monotone(goal, known):
        factor = min(goal[bigger], -goal[smaller])
        yield _minus(goal, {bigger: Fraction(1), smaller: Fraction(-1)}, factor), used
    for atom, coefficient in goal.items():
        if atom is sympy.S.One:
            continue
        for fact in (*known.of.get((atom, coefficient > 0), ()), *_of_atom(atom)):
            ratio = coefficient / fact[atom]
            if ratio > 0:
                yield _minus(goal, fact, ratio), frozenset()


def _of_atom(atom: sympy.Basic) -> Iterator[Linear]:
    """What holds of floor(e) and e % c by definition, for integer symbols."""
    if isinstance(atom, sympy.floor):
        inside = linear(parts(atom)[0])
        if inside is not None:
            steps = max(c.denominator for c in inside.values())
            below = Fraction(steps - 1, steps)
            yield _minus(inside, {atom: Fraction(1)}, Fraction(1))
            if all(steps % c.denominator == 0 for c in inside.values()):
                gap = _minus({atom: Fraction(1)}, inside, Fraction(1))
                yield _minus(gap, {sympy.S.One: Fraction(1)}, -below)
    if isinstance(atom, sympy.Mod) and parts(atom)[1].is_Integer and parts(atom)[1] > 0:
        yield {atom: Fraction(1)}
        yield {atom: Fraction(-1), sympy.S.One: Fraction(int(parts(atom)[1]) - 1)}


def _monotone(goal: Linear, known: Knowledge) -> Iterator[tuple[sympy.Basic, sympy.Basic, Tables]]:
    """Pairs of atoms (bigger with a positive factor, smaller with a negative one)."""
    for bigger, up in goal.items():
        for smaller, down in goal.items():
            if up > 0 > down:
                for low, high, name in _arguments(smaller, bigger, known.sorted):
                    inner = linear(high - low)
                    if inner is not None:
                        used = _search(inner, known, DEPTH // 2, {})
                        if used is not None:
                            yield bigger, smaller, used | name


def _arguments(
    smaller: sympy.Basic, bigger: sympy.Basic, tables: frozenset[tuple[str, int]]
) -> Iterator[tuple[sympy.Expr, sympy.Expr, Tables]]:
    """The arguments to compare when both atoms are one non-decreasing function."""
    if isinstance(smaller, sympy.floor) and isinstance(bigger, sympy.floor):
        yield parts(smaller)[0], parts(bigger)[0], frozenset()
    if not (isinstance(smaller, AppliedUndef) and smaller.func == bigger.func):
        return
    name = smaller.func.__name__
    differ = [k for k, (a, b) in enumerate(zip(parts(smaller), parts(bigger))) if a != b]
    if len(differ) == 1 and (name, differ[0]) in tables:
        yield parts(smaller)[differ[0]], parts(bigger)[differ[0]], frozenset({name})
