"""rules(ir) -> (RangeRule..., IndexRule...): what the values in tensors must satisfy.

A range rule holds for one loop: [begin, end) lies within every dimension that the loop indexes.  An
index rule holds for one position that is read from a tensor, such as perm[i] in x[perm[i]].
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from ..language.op import OPS
from .points import depends, ragged, reads_data
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
    walked: tuple[Axis, ...]
    filters: frozenset[str]


@dataclass(frozen=True)
class IndexRule:
    """A position read from a tensor lies in `limit`."""

    value: Expr
    limit: Limit
    loc: Loc | None
    walked: tuple[Axis, ...]
    filters: frozenset[str]


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


# ---------------------------------------------------------------- ranges


def range_rules(ir: KernelIR, known: Scope) -> tuple[RangeRule, ...]:
    """Rules of every loop whose range, or whose offset into a tensor, is read from tensors."""
    axes = {a.name: a for a in ir.axes}
    references = tuple(certain(ir))
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
    groups: dict[tuple[Expr | None, Place], list[Limit]] = {(None, around): []}
    for offset, place, limit in _limits(axis, around, references, known):
        groups.setdefault((offset, place), []).append(limit)
    begin = resolve(axis.begin, known.definitions)
    end = resolve(axis.end, known.definitions)
    moves = ragged(axis, known, axes)
    for (offset, place), limits in groups.items():
        if not moves and (offset is None or not reads_data(offset, known, axes)):
            continue
        bounds = (begin, end)
        if offset is not None:
            bounds = (fold(add(offset, begin)), fold(add(offset, end)))
        needs = depends(bounds[0], known, axes) | depends(bounds[1], known, axes)
        inner = frozenset(a for a in place if a not in (*around, axis.name))
        guards = frozenset(
            a for a in place if a not in needs and _may_skip(axes[a], a in inner, axes, known)
        )
        placing = _placing(guards, axes, known)
        needs, guards = needs | placing, guards - placing
        yield RangeRule(
            axis=axis,
            begin=bounds[0],
            end=bounds[1],
            limit=tightest(limits),
            most=axis.max_extent if offset is None else None,
            strict=_as_read(bounds[0]) and _end_as_read(*bounds),
            walked=_walked(place, needs | guards, axes, known),
            filters=guards,
        )


def _limits(
    axis: Axis, around: Place, references: Sequence[Reference], known: Scope
) -> Iterator[tuple[Expr | None, Place, Limit]]:
    """(offset, where, dimension) of every reference that the axis moves along.

    The offset may be read in loops further in: it is known where the reference is.
    """
    for found in references:
        for dim, entry in enumerate(found.index):
            limit = _limit(found.tensor, dim, known)
            match entry:
                case Along(name, None) if name == axis.name:
                    yield None, around, limit
                case Along(name, offset) if name == axis.name and not found.lanes and offset:
                    yield resolve(offset, known.definitions), found.around, limit
                case At(GridIndex(name)) if name == axis.name:
                    yield None, around, limit


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
        same = (rule.begin, rule.end, rule.strict, rule.walked, rule.filters)
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
    for reference in (r for r in certain(ir) if not r.lanes):
        for rule in _of_reference(reference, axes, known, doubted):
            found.setdefault((rule.value, rule.limit), rule)
    return tuple(found.values())


def _of_reference(
    reference: Reference,
    axes: Mapping[str, Axis],
    known: Scope,
    doubted: Collection[tuple[Expr, int]],
) -> Iterator[IndexRule]:
    for dim, entry in enumerate(reference.index):
        if not isinstance(entry, At | Gather) or isinstance(entry.expr, GridIndex):
            continue
        value = resolve(entry.expr, known.definitions)
        limit = _limit(reference.tensor, dim, known)
        if (entry.expr, limit.size) not in doubted and not reads_data(value, known, axes):
            continue
        needs = depends(value, known, axes)
        filters = frozenset(
            a for a in reference.around if a not in needs and ragged(axes[a], known, axes)
        )
        placing = _placing(filters, axes, known)
        needs, filters = needs | placing, filters - placing
        yield IndexRule(
            value=value,
            limit=limit,
            loc=reference.loc,
            walked=_walked(reference.around, needs | filters, axes, known),
            filters=filters,
        )


def _placing(filters: frozenset[str], axes: Mapping[str, Axis], known: Scope) -> frozenset[str]:
    """Axes that the ranges of filters are placed by: of these every index counts."""
    bounds = [e for a in filters for e in (axes[a].begin, axes[a].end)]
    return frozenset(d for bound in bounds for d in depends(bound, known, axes))


# ---------------------------------------------------------------- what certainly happens

Waiting = tuple[Expr, Place, Loc | None]
Definitions = Mapping[str, tuple[Assign, Place]]
MIXING = frozenset(name for name, op in OPS.items() if op.kind in ("contract", "reduce"))


def certain(ir: KernelIR) -> Iterator[Reference]:
    """Loads and stores that no `if`, `where` or mask may switch off.

    The frontend turns a dynamic `if` into selects and store masks, so a load is certain when its
    value reaches a store, a carry, a bound or an index other than through the arm of a select.  A
    select of lanes, where(seen, q @ k, -inf), does not switch off what a product or a reduction
    reads, nor does it move the tiles of a load: those lie in the tensor all the same.
    """
    definitions = {s.name: (s, around) for s, around in placed(ir.body) if isinstance(s, Assign)}
    axes = {a.name: a for a in ir.axes}
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
                inside = (*around, stmt.axis)
                axis = axes[stmt.axis]
                waiting += [(e, around, stmt.loc) for e in (axis.begin, axis.end)]
                waiting += [(c.init, around, c.loc) for c in stmt.carries]
                waiting += [(c.next, inside, c.loc) for c in stmt.carries]
    yield from _reached(waiting, definitions)


def _reached(waiting: list[Waiting], definitions: Definitions) -> Iterator[Reference]:
    queue = [(*entry, True) for entry in waiting]
    seen: set[tuple[str, bool]] = set()
    while queue:
        expr, around, loc, sure = queue.pop()
        match expr:
            case Var(name) if name in definitions:
                if (name, sure) not in seen:
                    seen.add((name, sure))
                    stmt, place = definitions[name]
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
