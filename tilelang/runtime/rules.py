"""range_rules, index_rules -> (rule...): what the values in tensors must satisfy.

A range rule holds for one loop: [begin, end) lies within every dimension that the loop indexes.  An
index rule holds for one position that is read from a tensor, such as perm[i] in x[perm[i]].
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
    definitions,
    index_exprs,
    inlined,
    map_index,
    walk,
)
from ..ir.integers import INT, add, fold
from ..language.op import OPS
from .points import Iterations, Where, depends, placed_by, ragged, reads_data, tested


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


@dataclass(frozen=True)
class RangeRule:
    """begin..end of a loop lie in `limit`, if there is one, and span at most `most` positions.

    strict   the bounds are read as they are (offsets, lengths), so that an end before its begin is
             wrong; otherwise (offsets[g] + 1) it is an empty range
    """

    begin: Expr
    end: Expr
    limit: Limit | None
    most: int | None
    strict: bool
    loc: Loc
    iterations: Iterations

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return self.begin, self.end

    def map(self, fn: Callable[[Expr], Expr]) -> RangeRule:
        return replace(self, begin=fn(self.begin), end=fn(self.end))


@dataclass(frozen=True)
class IndexRule:
    """A position read from a tensor lies in `limit`."""

    value: Expr
    limit: Limit
    loc: Loc | None
    iterations: Iterations

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.value,)

    def map(self, fn: Callable[[Expr], Expr]) -> IndexRule:
        return replace(self, value=fn(self.value))


@dataclass(frozen=True)
class Reference:
    """A tensor and its index that are evaluated whenever the loops around it run.

    where  and these conditions hold
    lanes  a select picks lanes of it: of what it reads only where its tiles are is certain
    """

    tensor: str
    index: tuple[Index, ...]
    around: Place
    loc: Loc | None
    where: Where = frozenset()
    lanes: bool = False

    @property
    def asked(self) -> frozenset[str]:
        """Axes of whose tiles the conditions ask."""
        return frozenset(axis for condition, _ in self.where for axis in tested(condition))

    def limit(self, dim: int, ir: KernelIR) -> Limit:
        """The dimension as a bound."""
        tensor = ir.tensor(self.tensor)
        shape = tensor.shape
        return Limit(tensor.name, dim, len(shape), shape[dim], ir.tensors.index(tensor))


def _tightest(limits: Iterable[Limit]) -> Limit | None:
    """The smallest dimension; of equal ones that of the tensor declared first."""
    return min(limits, key=lambda limit: (limit.size, limit.order), default=None)


def _iterations(
    values: Iterable[Expr], place: Place, guards: Iterable[str], where: Where, ir: KernelIR
) -> Iterations:
    """Where values are looked at: in every place of the loops that they and conditions depend on.

    `guards` are loops around that may have no iteration.
    """
    exprs = (*values, *(condition for condition, _ in where))
    needs = frozenset(a for e in exprs for a in depends(e, ir))
    filters = frozenset(guards) - needs
    placing = frozenset(a for name in filters for a in placed_by(ir.axis(name), ir))
    filters, needs = filters - placing, needs | placing | filters
    needs |= {a for name in needs for a in placed_by(ir.axis(name), ir)}
    loops = tuple(ir.axis(name) for name in place if name in needs)
    exprs += tuple(e for axis in loops for e in (axis.begin, axis.end))
    return Iterations(loops, filters, where, frozenset(a for e in exprs for a in tested(e)))


def evident(references: Iterable[Reference], ir: KernelIR) -> Iterator[Reference]:
    """Those whose conditions are known where they are, with the names in them written out.

    A use further in may be what has a condition.
    """
    values = definitions(ir.body)

    def change(expr: Expr) -> Expr:
        return inlined(expr, values)

    for found in references:
        where = frozenset((change(condition), holds) for condition, holds in found.where)
        if all(depends(condition, ir) <= set(found.around) for condition, _ in where):
            index = tuple(map_index(entry, change) for entry in found.index)
            yield replace(found, index=index, where=where)


# ---------------------------------------------------------------- ranges


def range_rules(ir: KernelIR, references: Sequence[Reference]) -> tuple[RangeRule, ...]:
    """Rules of every loop whose range, or whose offset into a tensor, is read from tensors."""
    loops = [(ir.axis(s.axis), around) for s, around in placed(ir.body) if isinstance(s, Loop)]
    return tuple(_merged(r for a, around in loops for r in _of_loop(a, around, references, ir)))


def _of_loop(
    axis: Axis, around: Place, references: Sequence[Reference], ir: KernelIR
) -> Iterator[RangeRule]:
    groups: dict[tuple[Expr | None, Place, Where], list[Limit]] = {(None, around, frozenset()): []}
    for offset, place, where, limit in _limits(axis, around, references, ir):
        groups.setdefault((offset, place, where), []).append(limit)
    moves = ragged(axis, ir)
    for (offset, place, where), limits in groups.items():
        if not moves and (offset is None or not reads_data(offset, ir)):
            continue
        begin, end = axis.begin, axis.end
        if offset is not None:
            begin, end = fold(add(offset, begin)), fold(add(offset, end))
        inner = frozenset(place) - {*around, axis.name}
        guards = (a for a in place if _may_skip(a, inner, ir))
        yield RangeRule(
            begin=begin,
            end=end,
            limit=_tightest(limits),
            most=axis.max_extent if offset is None and not where else None,
            strict=not where and _as_read(begin) and _end_as_read(begin, end),
            loc=axis.loc,
            iterations=_iterations((begin, end), place, guards, where, ir),
        )


def _limits(
    axis: Axis, around: Place, references: Sequence[Reference], ir: KernelIR
) -> Iterator[tuple[Expr | None, Place, Where, Limit]]:
    """(offset, where, under which conditions, dimension) of references that the axis moves along.

    The offset may be read in loops further in: it is known where the reference is.
    """
    for found in references:
        place = found.around if found.where else around
        for dim, entry in enumerate(found.index):
            match entry:
                case Along(name) if name != axis.name or name in found.asked:
                    pass
                case Along(_, None):
                    yield None, place, found.where, found.limit(dim, ir)
                case Along(_, offset) if not found.lanes and offset is not None:
                    yield offset, found.around, found.where, found.limit(dim, ir)
                case At(GridIndex(name)) if name == axis.name and not found.where:
                    yield None, around, found.where, found.limit(dim, ir)


def _may_skip(name: str, inner: Collection[str], ir: KernelIR) -> bool:
    """Whether a loop may have no iteration: not that of a range which is itself looked at.

    One that came out of an `if` may: its end was made a select.
    """
    axis = ir.axis(name)
    guarded = any(isinstance(part, Apply) and part.op == "where" for part in walk(axis.end))
    return guarded or (name in inner and ragged(axis, ir))


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
        case Apply("add", (a, b)) if begin in (a, b):
            return _as_read(b if a == begin else a)
        case Apply("where", (_, a, b)):
            return _end_as_read(begin, a) and _end_as_read(begin, b)
        case _:
            return _as_read(end)


def _merged(found: Iterable[RangeRule]) -> Iterator[RangeRule]:
    """Loops over the same range are one rule with the tightest bounds."""
    groups: dict[object, list[RangeRule]] = {}
    for rule in found:
        same = (rule.begin, rule.end, rule.strict, rule.iterations)
        groups.setdefault(same, []).append(rule)
    for rules in groups.values():
        limits = (r.limit for r in rules if r.limit is not None)
        extents = (r.most for r in rules if r.most is not None)
        yield replace(rules[0], limit=_tightest(limits), most=min(extents, default=None))


# ---------------------------------------------------------------- indices


def index_rules(
    ir: KernelIR, references: Sequence[Reference], doubted: Collection[tuple[Expr, int]]
) -> tuple[IndexRule, ...]:
    """Rules of the scalar and gathered positions that are read from tensors.

    doubted  positions and lengths of dimensions that others may leave, too
    """
    found: dict[tuple[Expr, Limit, Iterations], IndexRule] = {}
    for reference in (r for r in references if not r.lanes):
        for rule in _of_reference(reference, ir, doubted):
            found.setdefault((rule.value, rule.limit, rule.iterations), rule)
    return tuple(found.values())


def _of_reference(
    reference: Reference, ir: KernelIR, doubted: Collection[tuple[Expr, int]]
) -> Iterator[IndexRule]:
    around, where = reference.around, reference.where
    for dim, entry in enumerate(reference.index):
        value, limit = _position(entry, reference), reference.limit(dim, ir)
        if value is None or not ((value, limit.size) in doubted or reads_data(value, ir)):
            continue
        guards = (a for a in around if _may_skip(a, around, ir))
        chosen = _iterations((value,), around, guards, where, ir)
        yield IndexRule(value, limit, reference.loc, chosen)


def _position(entry: Index, reference: Reference) -> Expr | None:
    """A position of its own: no rule of a range speaks of it."""
    match entry:
        case At(GridIndex()) if not reference.where:
            return None
        case At(expr) | Gather(expr):
            return expr
        case Along(axis, offset) if axis in reference.asked:
            index = TileIndex(axis, INT)
            return index if offset is None else add(offset, index)
        case _:
            return None


# ---------------------------------------------------------------- what certainly happens


@dataclass(frozen=True)
class Reached:
    """An expression that is evaluated in a place, `where` conditions hold; see `Reference`."""

    expr: Expr
    around: Place
    loc: Loc | None
    where: Where = frozenset()
    lanes: bool = False

    def under(self, condition: Expr, holds: bool) -> Where:
        return self.where | {(condition, holds)}


MIXING = frozenset(name for name, op in OPS.items() if op.kind in ("contract", "reduce"))
MOST_WAYS = 8  # in which one value is reached; those beyond are not looked at


def certain(ir: KernelIR) -> Iterator[Reference]:
    """Loads and stores that certainly happen, and the conditions under which they do.

    The frontend turns a dynamic `if` into selects and masks of loads and stores, so a load happens
    when its value reaches a store, a carry, a bound or an index, under the conditions of the
    selects and masks that are scalars.  A select of lanes, where(seen, q @ k, -inf), does not
    switch off what a product or a reduction reads, nor does it move the tiles of a load: those lie
    in the tensor all the same.
    """
    defined = {s.name: (s, around) for s, around in placed(ir.body) if isinstance(s, Assign)}
    ways: dict[str, list[Reached]] = {name: [] for name in defined}
    for root in _roots(ir):
        if isinstance(root, Reference):
            yield root
        else:
            yield from _references(root, ways)
    for name, (stmt, around) in reversed(defined.items()):  # after all that may use it
        for way in _simplest(ways[name]):
            start = replace(way, expr=stmt.value, around=around, loc=stmt.loc)
            yield from _references(start, ways)


def _roots(ir: KernelIR) -> Iterator[Reference | Reached]:
    """What runs whatever the selects choose: stores, bounds, and what loops carry."""
    for stmt, around in placed(ir.body):
        match stmt:
            case Store(mask=mask):
                here = Reached(stmt.value, around, stmt.loc)
                if mask is not None:
                    yield replace(here, expr=mask)
                    if mask.type.rank:  # it may leave out any lane
                        continue
                    here = replace(here, where=here.under(mask, True))
                yield Reference(stmt.tensor, stmt.index, around, stmt.loc, here.where)
                for expr in (stmt.value, *(e for i in stmt.index for e in index_exprs(i))):
                    yield replace(here, expr=expr)
            case Loop():
                axis, inside = ir.axis(stmt.axis), (*around, stmt.axis)
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
                for arm, holds in zip(arms, (True, False), strict=True):
                    queue.append(replace(at, expr=arm, where=at.under(condition, holds)))
            case Load(tensor, index, mask=mask) as load:
                if mask is not None:
                    queue.append(replace(at, expr=mask))
                    if mask.type.rank:
                        continue
                    at = replace(at, where=at.under(mask, True))
                yield Reference(tensor, index, at.around, load.loc or at.loc, at.where, at.lanes)
                queue += [replace(at, expr=e) for i in index for e in index_exprs(i)]
            case expr:
                mixed = isinstance(expr, Apply) and expr.op in MIXING
                lanes = at.lanes and not mixed
                queue += [replace(at, expr=e, lanes=lanes) for e in children(expr)]


def _simplest(ways: Sequence[Reached]) -> list[Reached]:
    """Without those that others imply: reached if c and if not c is reached in any case."""
    found = {(way.where, way.lanes): way for way in ways}
    for one, two in permutations(tuple(found.values()), 2):
        apart = one.where ^ two.where
        if len({condition for condition, _ in apart}) == 1 and len(apart) == 2:
            both = replace(one, where=one.where & two.where, lanes=one.lanes or two.lanes)
            found[both.where, both.lanes] = both
    every = list(found.values())
    implied = [
        way
        for way in every
        if any(o is not way and o.where <= way.where and o.lanes <= way.lanes for o in every)
    ]
    return [way for way in every if way not in implied][:MOST_WAYS]
