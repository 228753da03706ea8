"""sorted_ranges(ir, facts) -> (rule...): numbers that ranges are read from do not fall.

That ranges [offsets[g], offsets[g + 1]) do not overlap is taken from offsets being sorted.  Where
every group is looked at, each range says so of its neighbour.  Where an `if` leaves out groups, or
their numbers are [2 * g] and [2 * g + 1], the numbers of all that are left are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..analysis.facts import Facts
from ..analysis.placed import Place, loops
from ..errors import Loc, RaggedValueError
from ..ir import Apply, At, Axis, Expr, GridIndex, KernelIR, Load, loads, walk
from ..ir.integers import linear
from .points import Iterations, domain, ragged
from .pointwise import Arrays, KnownAhead, Points, Term, term
from .rules import iterations_of, may_skip

Row = tuple[Term, tuple[Term, ...]]  # a number, and where it is read


@dataclass(frozen=True)
class Sorted:
    """Numbers of a tensor that are bounds of ranges, in the dimension that goes through them."""

    tensor: str
    dim: int
    loads: tuple[Load, ...]
    loc: Loc
    iterations: Iterations

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (*self.loads, *(e for load in self.loads for e in _places(load)))


def sorted_ranges(ir: KernelIR, facts: Facts) -> tuple[Sorted, ...]:
    """What to look at besides the ranges themselves, one by one."""
    each = ((ir.axis(name), around) for name, (_, around) in loops(ir).items())
    return tuple(rule for a, around in each for rule in _of_loop(a, around, ir, facts))


def _of_loop(axis: Axis, around: Place, ir: KernelIR, facts: Facts) -> Iterator[Sorted]:
    rests = _resting(around, facts)
    found = [load for e in (axis.begin, axis.end) for load in loads(e) if load.tensor in rests]
    for name in sorted({load.tensor for load in found}):
        own = tuple(load for load in found if load.tensor == name)
        dim = _moving(own)
        if dim is None or _each_follows(axis, around, own, dim, ir):
            continue
        guards = (axis.name, *(a for a in around if may_skip(a, around, ir)))
        values, place = (axis.begin, axis.end, *own), (*around, axis.name)
        chosen = iterations_of(values, place, guards, frozenset(), ir)
        yield Sorted(name, dim, own, axis.loc, chosen)


def _resting(around: Place, facts: Facts) -> set[str]:
    """The tensors on whose being sorted it rests that loops around are parallel."""
    return {name for axis in around for name in facts.axis(axis).rests}


def _moving(own: Sequence[Load]) -> int | None:
    """The dimension in which what is read for one bound is beside what is read for the other."""
    first, *others = own
    apart = [d for d, at in enumerate(first.index) if any(o.index[d] != at for o in others)]
    return apart[0] if len(apart) == 1 else None


def _each_follows(axis: Axis, around: Place, own: Sequence[Load], dim: int, ir: KernelIR) -> bool:
    """Whether every number is that of one range and of the next, and every range is looked at."""
    bounds = (e for bound in (axis.begin, axis.end) for e in walk(bound))
    if any(isinstance(e, Apply) and e.op == "where" for e in bounds):
        return False
    for load in own:
        at = load.index[dim]
        moves = linear(at.expr) if isinstance(at, At) else None
        atoms = list(moves[0].items()) if moves else []
        if len(atoms) != 1 or not isinstance(atoms[0][0], GridIndex) or atoms[0][1] != 1:
            return False
        by = atoms[0][0].axis
        inside = around[around.index(by) :]
        if ragged(ir.axis(by), ir) or any(may_skip(a, inside, ir) for a in inside):
            return False
    return True


def _places(load: Load) -> Iterator[Expr]:
    """Where an element is read."""
    yield from (at.expr for at in load.index if isinstance(at, At))


def order_of(rule: Sorted, ir: KernelIR) -> Callable[[Arrays], None] | None:
    """The check of one rule; None if what it looks at cannot be known."""
    places = domain(rule.iterations, ir)
    if places is None or places.empty:
        return None
    rows = [_row(load, places.ahead) for load in rule.loads]
    known = [row for row in rows if row is not None]
    if len(known) != len(rows):
        return None

    def run(arrays: Arrays) -> None:
        points, size = places.listed(arrays)
        columns = [_columns(row, arrays, points, size) for row in known]
        table = np.concatenate(columns, axis=1)
        size_of = ir.tensor(rule.tensor).shape[rule.dim]
        table = table[:, (table[rule.dim] >= 0) & (table[rule.dim] < size_of)]
        others = [row for d, row in enumerate(table[:-1]) if d != rule.dim]
        table = table[:, np.lexsort((table[rule.dim], *others))]
        one, two = table[:, :-1], table[:, 1:]
        same = (np.delete(one[:-1], rule.dim, 0) == np.delete(two[:-1], rule.dim, 0)).all(0)
        falls = np.flatnonzero(same & (two[-1] < one[-1]))
        if len(falls):
            raise _error(rule, one[:, falls[0]], two[:, falls[0]])

    return run


def _row(load: Load, ahead: KnownAhead) -> Row | None:
    terms = [term(e, ahead) for e in (*_places(load), load)]
    known = tuple(t for t in terms if t is not None)
    return (known[-1], known[:-1]) if len(known) == 1 + len(load.index) else None


def _columns(row: Row, arrays: Arrays, points: Points, size: int) -> np.ndarray:
    """Where numbers are read, one row for each dimension, and below them the numbers."""
    value, where = row
    given = [np.asarray(t.run(arrays, points)) for t in (*where, value)]
    return np.stack([np.broadcast_to(g, size).astype(np.int64) for g in given])


def _error(rule: Sorted, one: np.ndarray, two: np.ndarray) -> RaggedValueError:
    def said(place: np.ndarray) -> str:
        return f"{rule.tensor}[{', '.join(map(str, place[:-1]))}] = {place[-1]}"

    return RaggedValueError(
        f"{said(two)} is less than {said(one)}: ranges that {rule.tensor} gives must not overlap",
        rule.loc,
    )
