"""rules(ir) -> (RangeRule..., IndexRule...): what the values in tensors must satisfy.

A range rule holds for one loop: [begin, end) lies within every dimension that the loop indexes.  An
index rule holds for one position that is read from a tensor, such as perm[i] in x[perm[i]].
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from ..analysis.placed import Place, placed
from ..errors import Loc
from ..ir import (
    Along,
    Apply,
    Assign,
    At,
    Axis,
    Const,
    Expr,
    Gather,
    GridIndex,
    Index,
    KernelIR,
    Load,
    Loop,
    Store,
    TileIndex,
    Var,
    children,
    index_exprs,
    walk,
)
from ..ir.integers import INT, add, fold
from ..language.op import OPS
from .points import Iterations, Where, depends, ragged, reads_data, tested
from .pointwise import Scope, resolve


@dataclass(frozen=True)
class Limit:
    """A dimension of a tensor, as the bound of a position; `order` is the tensor's place."""

    tensor: str
    dim: int
    rank: int
    size: int
    order: int

    @property
    def unit(self) -> str:
        """What one position of the dimension is called."""
        if self.dim == 0:
            return "rows" if self.rank > 1 else "elements"
        return "columns" if self.rank == 2 else f"positions (dimension {self.dim})"

    def __str__(self) -> str:
        return f"the {self.size} {self.unit} of {self.tensor}"


def tightest(limits: Iterable[Limit]) -> Limit | None:
    """The smallest dimension; of equal ones that of the tensor declared first."""
    return min(limits, key=lambda limit: (limit.size, limit.order), default=None)


@dataclass(frozen=True)
class RangeRule:
    """begin..end of a loop lie in `limit`, if there is one, and span at most `most` positions.

    strict   the bounds are read as they are (offsets, lengths), so that an end before its begin is
             wrong; otherwise (offsets[g] + 1) it is an empty range
    """

    axis: Axis
    begin: Expr
    end: Expr
    limit: Limit | None
    most: int | None
    strict: bool
    iterations: Iterations


@dataclass(frozen=True)
class IndexRule:
    """A position read from a tensor lies in `limit`."""

    value: Expr
    limit: Limit
    loc: Loc | None
    iterations: Iterations


@dataclass(frozen=True)
class Reference:
    """A tensor and its index that are evaluated whenever the loops around it run.

    where   and these conditions hold
    chosen  conditions of selects that may leave its value out, wherever its tiles are
    lanes   the same for a select of lanes, of which no condition is known
    """

    tensor: str
    index: tuple[Index, ...]
    around: Place
    loc: Loc | None
    where: Where = frozenset()
    chosen: Where = frozenset()
    lanes: bool = False


# ---------------------------------------------------------------- ranges


def range_rules(ir: KernelIR, known: Scope) -> tuple[RangeRule, ...]:
    """Rules of every loop whose range, or whose offset into a tensor, is read from tensors."""
    axes = {a.name: a for a in ir.axes}
    references = tuple(_evident(ir, known))
    found = [
        rule
        for loop, around in loops(ir)
        for rule in _of_loop(axes[loop.axis], around, axes, references, known)
    ]
    return tuple(_merged(found))


def loops(ir: KernelIR) -> Iterator[tuple[Loop, Place]]:
    """Every loop with the axes around it, outermost first."""
    return ((s, around) for s, around in placed(ir.body) if isinstance(s, Loop))


def _of_loop(
    axis: Axis,
    around: Place,
    axes: Mapping[str, Axis],
    references: Sequence[Reference],
    known: Scope,
) -> Iterator[RangeRule]:
    groups: dict[tuple[Expr | None, Place, Where], list[Limit]] = {(None, around, frozenset()): []}
    for offset, place, where, limit in _limits(axis, around, references, known):
        groups.setdefault((offset, place, where), []).append(limit)
    begin = resolve(axis.begin, known.definitions)
    end = resolve(axis.end, known.definitions)
    moves = ragged(axis, known, axes)
    for (offset, place, where), limits in groups.items():
        if not moves and (offset is None or not reads_data(offset, known, axes)):
            continue
        bounds = (begin, end)
        if offset is not None:
            bounds = (fold(add(offset, begin)), fold(add(offset, end)))
        inner = frozenset(a for a in place if a not in (*around, axis.name))
        guards = (a for a in place if _may_skip(axes[a], a in inner, axes, known))
        yield RangeRule(
            axis=axis,
            begin=bounds[0],
            end=bounds[1],
            limit=tightest(limits),
            most=axis.max_extent if offset is None and not where else None,
            strict=not where and _as_read(bounds[0]) and _end_as_read(*bounds),
            iterations=_iterations(bounds, place, guards, where, axes, known),
        )


def _iterations(
    values: Iterable[Expr],
    place: Place,
    guards: Iterable[str],
    where: Where,
    axes: Mapping[str, Axis],
    known: Scope,
) -> Iterations:
    """Where values are looked at: in every place of the loops that they and conditions depend on.

    `guards` are loops around that may have no iteration.
    """
    exprs = (*values, *(condition for condition, _ in where))
    needs = frozenset(a for e in exprs for a in depends(e, known, axes))
    guards = frozenset(guards) - needs
    placing = _placing(guards, axes, known)
    needs, guards = needs | placing, guards - placing
    loops = _walked(place, needs | guards, axes, known)
    exprs += tuple(e for a in loops for e in (a.begin, a.end))
    ends = frozenset(a for e in exprs for a in tested(e, known))
    return Iterations(loops, guards, where, ends)


def _limits(
    axis: Axis, around: Place, references: Sequence[Reference], known: Scope
) -> Iterator[tuple[Expr | None, Place, Where, Limit]]:
    """(offset, where, under which conditions, dimension) of references that the axis moves along.

    The offset may be read in loops further in: it is known where the reference is.
    """
    for found in references:
        place = found.around if found.where else around
        for dim, entry in enumerate(found.index):
            limit = _limit(found.tensor, dim, known)
            match entry:
                case Along(name) if name != axis.name or name in _asked(found, known):
                    pass
                case Along(_, None):
                    yield None, place, found.where, limit
                case Along(_, offset) if not found.lanes and offset is not None:
                    moved = resolve(offset, known.definitions)
                    yield moved, found.around, found.where, limit
                case At(GridIndex(name)) if name == axis.name and not (found.where or found.chosen):
                    yield None, around, found.where, limit


def _evident(ir: KernelIR, known: Scope) -> Iterator[Reference]:
    """Those whose conditions are known where they are: a use further in may be what has them."""
    axes = {a.name: a for a in ir.axes}
    for found in certain(ir):
        if all(
            depends(c, known, axes).issubset(found.around) for c, _ in found.where | found.chosen
        ):
            yield found


def _asked(reference: Reference, known: Scope) -> frozenset[str]:
    """Axes of whose tiles the conditions of a reference ask."""
    return frozenset(a for condition, _ in reference.where for a in tested(condition, known))


def _may_skip(axis: Axis, inner: bool, axes: Mapping[str, Axis], known: Scope) -> bool:
    """Whether a loop may have no iteration: not that of a range which is itself looked at."""
    return _guarded(axis, known) or (inner and ragged(axis, known, axes))


def _limit(name: str, dim: int, known: Scope) -> Limit:
    tensor = known.ir.tensor(name)
    order = known.ir.tensors.index(tensor)
    return Limit(name, dim, len(tensor.shape), tensor.shape[dim], order)


def _guarded(axis: Axis, known: Scope) -> bool:
    """Whether the loop came out of an `if`: its end was made a select."""
    end = resolve(axis.end, known.definitions)
    return any(isinstance(part, Apply) and part.op == "where" for part in walk(end))


def _as_read(expr: Expr) -> bool:
    match expr:
        case Const() | Load():
            return True
        case Apply("minimum" | "maximum", (a, b)):
            return _as_read(a) or _as_read(b)
        case Apply("where", (_, a, b)):
            return _as_read(a) and _as_read(b)
        case Apply("cast", (a,)):
            return _as_read(a)
        case _:
            return False


def _end_as_read(begin: Expr, end: Expr) -> bool:
    """Also begin + length."""
    match end:
        case Apply("add", (a, b)) if a == begin or b == begin:
            return _as_read(b if a == begin else a)
        case Apply("where", (_, a, b)):
            return _end_as_read(begin, a) and _end_as_read(begin, b)
        case _:
            return _as_read(end)


def _walked(
    around: Place, needs: frozenset[str], axes: Mapping[str, Axis], known: Scope
) -> tuple[Axis, ...]:
    """The loops to walk, outermost first: those needed, and those that their ranges need."""
    more = {d for n in needs for d in _of_range(axes[n], axes, known)}
    return tuple(axes[name] for name in around if name in needs | more)


def _of_range(axis: Axis, axes: Mapping[str, Axis], known: Scope) -> frozenset[str]:
    return depends(axis.begin, known, axes) | depends(axis.end, known, axes)


def _merged(found: list[RangeRule]) -> Iterator[RangeRule]:
    """Loops over the same range are one rule with the tightest bounds."""
    groups: dict[object, list[RangeRule]] = {}
    for rule in found:
        same = (rule.begin, rule.end, rule.strict, rule.iterations)
        groups.setdefault(same, []).append(rule)
    for first, *others in groups.values():
        limits = [r.limit for r in (first, *others) if r.limit is not None]
        extents = [r.most for r in (first, *others) if r.most is not None]
        yield replace(first, limit=tightest(limits), most=min(extents, default=None))


# ---------------------------------------------------------------- indices


def index_rules(
    ir: KernelIR, known: Scope, doubted: Collection[tuple[Expr, int]] = ()
) -> tuple[IndexRule, ...]:
    """Rules of the scalar and gathered positions that are read from tensors.

    doubted  positions and lengths of dimensions that others may leave, too
    """
    axes = {a.name: a for a in ir.axes}
    found = {}
    for reference in (r for r in _evident(ir, known) if not r.lanes):
        for rule in _of_reference(reference, axes, known, doubted):
            found.setdefault((rule.value, rule.limit, rule.iterations), rule)
    return tuple(found.values())


def _of_reference(
    reference: Reference,
    axes: Mapping[str, Axis],
    known: Scope,
    doubted: Collection[tuple[Expr, int]],
) -> Iterator[IndexRule]:
    for dim, entry in enumerate(reference.index):
        position = _position(entry, reference, known)
        if position is None:
            continue
        value = resolve(position, known.definitions)
        limit = _limit(reference.tensor, dim, known)
        if (position, limit.size) not in doubted and not reads_data(value, known, axes):
            continue
        guards = (a for a in reference.around if _may_skip(axes[a], True, axes, known))
        where = reference.where | reference.chosen
        chosen = _iterations((value,), reference.around, guards, where, axes, known)
        yield IndexRule(value, limit, reference.loc, chosen)


def _position(entry: Index, reference: Reference, known: Scope) -> Expr | None:
    """A position of its own: no rule of a range speaks of it."""
    match entry:
        case At(GridIndex()) if not (reference.where or reference.chosen):
            return None
        case At(expr) | Gather(expr):
            return expr
        case Along(axis, offset) if axis in _asked(reference, known):
            index = TileIndex(axis, INT)
            return index if offset is None else add(offset, index)
        case _:
            return None


def _placing(filters: frozenset[str], axes: Mapping[str, Axis], known: Scope) -> frozenset[str]:
    """Axes that the ranges of filters are placed by: of these every index counts."""
    bounds = [e for a in filters for e in (axes[a].begin, axes[a].end)]
    return frozenset(d for bound in bounds for d in depends(bound, known, axes))


# ---------------------------------------------------------------- what certainly happens


@dataclass(frozen=True)
class Reached:
    """An expression that is evaluated in a place; the rest as of `Reference`."""

    expr: Expr
    around: Place
    loc: Loc | None
    where: Where = frozenset()
    chosen: Where = frozenset()
    lanes: bool = False

    def under(self, mask: Expr) -> Reached:
        """The same behind a mask."""
        return replace(self, where=self.where | {(mask, True)})

    def arm(self, arm: Expr, condition: Expr, holds: bool) -> Reached:
        """One arm of a select."""
        return replace(self, expr=arm, chosen=self.chosen | {(condition, holds)})


MIXING = frozenset(name for name, op in OPS.items() if op.kind in ("contract", "reduce"))
MOST_WAYS = 8  # in which one value is reached; those beyond are not looked at


def certain(ir: KernelIR) -> Iterator[Reference]:
    """Loads and stores that certainly happen, and the conditions under which they do.

    The frontend turns a dynamic `if` into selects, and masks of stores and of loads that may lie
    outside.  So a load happens where its mask holds, if that is a scalar.  What selects leave out
    may be read anywhere, except along tiles: those lie in the tensor all the same.  A select of
    lanes, where(seen, q @ k, -inf), does not switch off what a product or a reduction reads.
    """
    defined = {s.name: (s, around) for s, around in placed(ir.body) if isinstance(s, Assign)}
    ways: dict[str, list[Reached]] = {name: [] for name in defined}
    for root in _roots(ir):
        if isinstance(root, Reference):
            yield root
        else:
            yield from _references(root, ways)
    for name, (stmt, around) in reversed(defined.items()):  # after all that may use it
        here = Reached(stmt.value, around, stmt.loc)
        for way in _simplest(ways[name]) or [here]:  # what nothing uses is read all the same
            start = replace(way, expr=stmt.value, around=around, loc=stmt.loc)
            yield from _references(start, ways)


def _roots(ir: KernelIR) -> Iterator[Reference | Reached]:
    """What runs whatever the selects choose: stores, bounds, and what loops carry."""
    axes = {a.name: a for a in ir.axes}
    for stmt, around in placed(ir.body):
        match stmt:
            case Store(mask=mask):
                here = Reached(stmt.value, around, stmt.loc)
                if mask is not None:
                    yield replace(here, expr=mask)
                    if mask.type.rank:  # it may leave out any lane
                        continue
                    here = here.under(mask)
                yield Reference(stmt.tensor, stmt.index, around, stmt.loc, here.where)
                for expr in (stmt.value, *(e for i in stmt.index for e in index_exprs(i))):
                    yield replace(here, expr=expr)
            case Loop():
                axis, inside = axes[stmt.axis], (*around, stmt.axis)
                for expr in (axis.begin, axis.end):
                    yield Reached(expr, around, stmt.loc)
                for carry in stmt.carries:
                    yield Reached(carry.init, around, carry.loc)
                    yield Reached(carry.next, inside, carry.loc)
            case Assign():
                pass


def _references(start: Reached, ways: Mapping[str, list[Reached]]) -> Iterator[Reference]:
    """The loads that an expression makes; `ways` gets how named values are reached from it."""
    queue = [start]
    while queue:
        at = queue.pop()
        match at.expr:
            case Var(name) if name in ways:
                ways[name].append(at)
            case Apply("where", (condition, *arms)):
                queue.append(replace(at, expr=condition))
                if condition.type.rank:
                    queue += [replace(at, expr=arm, lanes=True) for arm in arms]
                    continue
                taken, other = arms
                queue += [at.arm(taken, condition, True), at.arm(other, condition, False)]
            case Load(tensor, index, mask=mask) as load:
                if mask is not None:
                    queue.append(replace(at, expr=mask))
                    if mask.type.rank:
                        continue
                    at = at.under(mask)
                loc = load.loc or at.loc
                yield Reference(tensor, index, at.around, loc, at.where, at.chosen, at.lanes)
                queue += [replace(at, expr=e) for i in index for e in index_exprs(i)]
            case expr:
                mixed = isinstance(expr, Apply) and expr.op in MIXING
                lanes = at.lanes and not mixed
                queue += [replace(at, expr=e, lanes=lanes) for e in children(expr)]


def _simplest(ways: Sequence[Reached]) -> list[Reached]:
    """Without those that others imply: reached if c and if not c is reached in any case."""
    found = {(way.where, way.chosen, way.lanes): way for way in ways}
    for one, two in permutations(tuple(found.values()), 2):
        apart = (one.where ^ two.where) | (one.chosen ^ two.chosen)
        if len({condition for condition, _ in apart}) == 1 and len(apart) == 2:
            where, chosen = one.where & two.where, one.chosen & two.chosen
            lanes = one.lanes or two.lanes
            found[where, chosen, lanes] = replace(one, where=where, chosen=chosen, lanes=lanes)
    every = list(found.values())
    implied = [w for w in every if any(o is not w and _implies(o, w) for o in every)]
    return [way for way in every if way not in implied][:MOST_WAYS]


def _implies(less: Reached, more: Reached) -> bool:
    """Whether a value that is reached in one way is whenever it is in the other way."""
    fewer = less.where <= more.where and less.chosen <= more.chosen
    return fewer and less.lanes <= more.lanes
