"""range_rules, index_rules -> (rule...): what the values in tensors must satisfy.

A range rule holds for one loop: [begin, end) lies within every dimension that the loop indexes.  An
index rule holds for one position that is read from a tensor, such as perm[i] in x[perm[i]].
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

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
    Var,
    children,
    index_exprs,
    walk,
)
from ..ir.integers import add, fold
from ..ir.traversal import definitions, inlined
from ..language.op import OPS
from .points import depends, placed_by, ragged, reads_data


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
class Loops:
    """Where a rule is looked at: at every place of the loops `walked`, outermost first.

    filters  those of which it only matters that they have an iteration
    """

    walked: tuple[Axis, ...]
    filters: frozenset[str]


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
    loops: Loops

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
    loops: Loops

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return (self.value,)

    def map(self, fn: Callable[[Expr], Expr]) -> IndexRule:
        return replace(self, value=fn(self.value))


@dataclass(frozen=True)
class Reference:
    """A tensor and its index that are evaluated whenever the loops around it run.

    lanes  a select picks lanes of it: of what it reads only where its tiles are is certain
    """

    tensor: str
    index: tuple[Index, ...]
    around: Place
    loc: Loc | None
    lanes: bool = False

    def limit(self, dim: int, ir: KernelIR) -> Limit:
        """The dimension as a bound."""
        tensor = ir.tensor(self.tensor)
        shape = tensor.shape
        return Limit(tensor.name, dim, len(shape), shape[dim], ir.tensors.index(tensor))


def _tightest(limits: Iterable[Limit]) -> Limit | None:
    """The smallest dimension; of equal ones that of the tensor declared first."""
    return min(limits, key=lambda limit: (limit.size, limit.order), default=None)


def _loops(around: Place, needs: frozenset[str], filters: frozenset[str], ir: KernelIR) -> Loops:
    """The loops to walk: those needed, and those that their ranges and those of filters need."""
    placing = frozenset[str]().union(*(placed_by(ir.axis(name), ir) for name in filters))
    filters, found = filters - placing, needs | placing | filters
    found = found.union(*(placed_by(ir.axis(name), ir) for name in found))
    return Loops(tuple(ir.axis(name) for name in around if name in found), filters)


# ---------------------------------------------------------------- ranges


def range_rules(ir: KernelIR, references: Sequence[Reference]) -> tuple[RangeRule, ...]:
    """Rules of every loop whose range, or whose offset into a tensor, is read from tensors."""
    loops = [(ir.axis(s.axis), around) for s, around in placed(ir.body) if isinstance(s, Loop)]
    return tuple(_merged(r for a, around in loops for r in _of_loop(a, around, references, ir)))


def _of_loop(
    axis: Axis, around: Place, references: Sequence[Reference], ir: KernelIR
) -> Iterator[RangeRule]:
    groups: dict[tuple[Expr | None, Place], list[Limit]] = {(None, around): []}
    for offset, place, limit in _limits(axis, around, references, ir):
        groups.setdefault((offset, place), []).append(limit)
    moves = ragged(axis, ir)
    for (offset, place), limits in groups.items():
        if not moves and (offset is None or not reads_data(offset, ir)):
            continue
        begin, end = axis.begin, axis.end
        if offset is not None:
            begin, end = fold(add(offset, begin)), fold(add(offset, end))
        needs = depends(begin, ir) | depends(end, ir)
        inner = frozenset(place) - {*around, axis.name}
        guards = frozenset(a for a in place if a not in needs and _may_skip(a, inner, ir))
        yield RangeRule(
            begin=begin,
            end=end,
            limit=_tightest(limits),
            most=axis.max_extent if offset is None else None,
            strict=_as_read(begin) and _end_as_read(begin, end),
            loc=axis.loc,
            loops=_loops(place, needs, guards, ir),
        )


def _limits(
    axis: Axis, around: Place, references: Sequence[Reference], ir: KernelIR
) -> Iterator[tuple[Expr | None, Place, Limit]]:
    """(offset, where, dimension) of every reference that the axis moves along.

    The offset may be read in loops further in: it is known where the reference is.
    """
    values = definitions(ir.body)
    for found in references:
        for dim, entry in enumerate(found.index):
            match entry:
                case Along(name, None) | At(GridIndex(name)) if name == axis.name:
                    yield None, around, found.limit(dim, ir)
                case Along(name, offset) if name == axis.name and not found.lanes and offset:
                    yield inlined(offset, values), found.around, found.limit(dim, ir)


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
        same = (rule.begin, rule.end, rule.strict, rule.loops)
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
    found: dict[tuple[Expr, Limit], IndexRule] = {}
    for reference in (r for r in references if not r.lanes):
        for rule in _of_reference(reference, ir, doubted):
            found.setdefault((rule.value, rule.limit), rule)
    return tuple(found.values())


def _of_reference(
    reference: Reference, ir: KernelIR, doubted: Collection[tuple[Expr, int]]
) -> Iterator[IndexRule]:
    values, around = definitions(ir.body), reference.around
    for dim, entry in enumerate(reference.index):
        if not isinstance(entry, At | Gather) or isinstance(entry.expr, GridIndex):
            continue
        value, limit = inlined(entry.expr, values), reference.limit(dim, ir)
        if (entry.expr, limit.size) not in doubted and not reads_data(value, ir):
            continue
        needs = depends(value, ir)
        filters = frozenset(a for a in around if a not in needs and ragged(ir.axis(a), ir))
        yield IndexRule(value, limit, reference.loc, _loops(around, needs, filters, ir))


# ---------------------------------------------------------------- what certainly happens

Waiting = tuple[Expr, Place, Loc | None]
MIXING = frozenset(name for name, op in OPS.items() if op.kind in ("contract", "reduce"))


def certain(ir: KernelIR) -> Iterator[Reference]:
    """Loads and stores that no `if`, `where` or mask may switch off.

    The frontend turns a dynamic `if` into selects and store masks, so a load is certain when its
    value reaches a store, a carry, a bound or an index other than through the arm of a select.  A
    select of lanes, where(seen, q @ k, -inf), does not switch off what a product or a reduction
    reads, nor does it move the tiles of a load: those lie in the tensor all the same.
    """
    defined = {s.name: (s, around) for s, around in placed(ir.body) if isinstance(s, Assign)}
    waiting: list[Waiting] = []
    for stmt, around in placed(ir.body):
        match stmt:
            case Store(mask=None):
                yield Reference(stmt.tensor, stmt.index, around, stmt.loc)
                exprs = (stmt.value, *(e for i in stmt.index for e in index_exprs(i)))
                waiting += [(e, around, stmt.loc) for e in exprs]
            case Store(mask=mask) if mask is not None:
                waiting.append((mask, around, stmt.loc))
            case Loop():
                inside, axis = (*around, stmt.axis), ir.axis(stmt.axis)
                waiting += [(e, around, stmt.loc) for e in (axis.begin, axis.end)]
                waiting += [(c.init, around, c.loc) for c in stmt.carries]
                waiting += [(c.next, inside, c.loc) for c in stmt.carries]
    yield from _reached(waiting, defined)


def _reached(
    waiting: list[Waiting], defined: Mapping[str, tuple[Assign, Place]]
) -> Iterator[Reference]:
    queue = [(*entry, True) for entry in waiting]
    seen: set[tuple[str, bool]] = set()
    while queue:
        expr, around, loc, sure = queue.pop()
        match expr:
            case Var(name) if name in defined:
                if (name, sure) not in seen:
                    seen.add((name, sure))
                    stmt, place = defined[name]
                    queue.append((stmt.value, place, stmt.loc, sure))
            case Apply("where", (condition, *arms)):
                queue.append((condition, around, loc, sure))
                if condition.type.rank:
                    queue += [(arm, around, loc, False) for arm in arms]
            case Load(mask=None):
                yield Reference(expr.tensor, expr.index, around, expr.loc or loc, not sure)
                queue += [(e, around, loc, sure) for e in children(expr)]
            case Load(mask=mask) if mask is not None:
                queue.append((mask, around, loc, sure))
            case _:
                sure = sure or (isinstance(expr, Apply) and expr.op in MIXING)
                queue += [(e, around, loc, sure) for e in children(expr)]
