"""range_rules, index_rules -> (rule...): what the values in tensors must satisfy.

A range rule holds for one loop: [begin, end) lies within every dimension that the loop indexes.  An
index rule holds for one position that is read from a tensor, such as perm[i] in x[perm[i]].
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from ..analysis.placed import Place, loops
from ..analysis.uses import reads_memory
from ..errors import Loc
from ..ir import (
    Along,
    Apply,
    At,
    Axis,
    Const,
    Expr,
    Gather,
    GridIndex,
    Index,
    KernelIR,
    Load,
    TileIndex,
    TileScalar,
    edges_of,
    index_exprs,
    loads,
    rewrite,
    walk,
)
from ..ir.integers import INT, add, floordiv, fold, linear, plus
from ..language.op import REDUCTIONS
from .certain import CheckedReference, Limit
from .points import (
    Iterations,
    Where,
    around_by,
    around_tiles,
    depends,
    placed_by,
    ragged,
    reads_data,
    slides,
    tested,
    whole,
)
from .pointwise import tile_edges

MASKS = "hl.load(..., mask=..., other=0), hl.store(..., mask=...)"


@dataclass(frozen=True)
class RangeRule:
    """begin..end of a loop lie in `limit`, if there is one, and span at most `most` positions.

    strict   the bounds are read as they are (offsets, lengths), so that an end before its begin is
             wrong; otherwise (offsets[g] + 1) it is an empty range
    moved    it is where a tile lies that is moved from its loop's range, x[t - 1]
    of_tiles the iterations with those tiles of other loops that begin or end it, if any do
    """

    begin: Expr
    end: Expr
    limit: Limit | None
    most: int | None
    strict: bool
    loc: Loc
    iterations: Iterations
    moved: bool = False
    of_tiles: Iterations | None = None

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return self.begin, self.end

    def hint(self, low: int, high: int, say: Callable[[Expr], str]) -> str:
        """What to write where such a range is meant."""
        if self.moved:
            return f"leave out what lies outside by a mask: {MASKS}"
        if not self.strict or low < 0 or high >= low:
            return ""
        if tensors_of(self.begin) == tensors_of(self.end):
            offsets = isinstance(self.begin, Load) and isinstance(self.end, Load)
            return "offsets made of lengths are [0, *np.cumsum(lengths)]" if offsets else ""
        begin, end = say(self.begin), say(self.end)
        return f"where such a range means none, end it at hl.maximum({begin}, {end})"

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

    def hint(self, value: int, say: Callable[[Expr], str]) -> str:
        """What to write where no row is meant: a negative number often says so, and the position
        behind the last one, where an empty range at the end begins."""
        if value > self.limit.size:
            return ""
        kept = f"{say(self.value)} {'>= 0' if value < 0 else f'< {value}'}"
        if self.value.type.rank:
            return f"where it means none, leave it out by a mask of {kept}: {MASKS}"
        return f"where it means none, write it in an `if`: if {kept}: ..."

    def map(self, fn: Callable[[Expr], Expr]) -> IndexRule:
        return replace(self, value=fn(self.value))


def tensors_of(expr: Expr) -> set[str]:
    """Names of the tensors that an expression reads."""
    return {load.tensor for load in loads(expr)}


def _tightest(limits: Iterable[Limit]) -> Limit | None:
    """The smallest dimension; of equal ones that of the tensor declared first."""
    return min(limits, key=lambda limit: (limit.size, limit.order), default=None)


def iterations_of(
    values: Iterable[Expr],
    place: Place,
    guards: Iterable[str],
    where: Where,
    ir: KernelIR,
    loop: Axis | None = None,
) -> Iterations:
    """Where values are looked at: in every place of the loops that they and conditions depend on.

    guards  loops around that may have no iteration
    loop    whose range the values are: looked at in every tile that begins or ends it, too
    """
    exprs = (*values, *(condition for condition, _ in where))
    needs = own = frozenset(a for e in exprs for a in depends(e, ir))
    filters = frozenset(guards) - needs
    cutting = around_tiles(loop, ir) if loop is not None else frozenset[str]()
    around = frozenset(a for name in filters | needs for a in around_tiles(ir.axis(name), ir))
    around |= cutting
    placing = frozenset(a for name in filters for a in placed_by(ir.axis(name), ir)) | around
    filters, needs = filters - placing, needs | placing | filters
    needs |= {a for name in needs for a in placed_by(ir.axis(name), ir)}
    axes = tuple(ir.axis(name) for name in place if name in needs)
    exprs += tuple(edges_of(axes))
    asked = frozenset(a for e in exprs for a in tested(e))
    placed_in = around & frozenset(place) - asked
    picks = own if any(map(reads_memory, values)) else frozenset[str]()
    ranges = axes if loop is None else (*axes, loop)
    each = frozenset(a for a in placed_in if a in picks or slides(a, ranges))
    alone = frozenset(a for a in each - own if len(list(around_by(a, axes))) == 1)
    once = alone - cutting
    ends = asked | placed_in - each
    cut = frozenset(a for a in (ends | each) - own if ir.axis(a).fixed is not None)
    return Iterations(axes, filters, where, ends, each, once, cut)


def numbered(references: Iterable[CheckedReference]) -> frozenset[str]:
    """Axes whose tiles are counted by a position."""
    exprs = (e for found in references for entry in found.index for e in index_exprs(entry))
    parts = (p for e in exprs for p in walk(e) if isinstance(p, TileScalar))
    return frozenset(p.axis for p in parts if p.what == "id")


def counted(expr: Expr, ir: KernelIR, blocks: Mapping[str, int]) -> Expr:
    """With what is asked of tiles of these axes as what it is of the positions in them.

    Only tiles of ranges that begin at 0 have numbers: they are cut there.
    """

    def of_tile(part: Expr) -> Expr | None:
        if not isinstance(part, TileScalar) or part.axis not in blocks:
            return None
        begin, end = tile_edges(ir.axis(part.axis), blocks[part.axis])
        match part.what:
            case "id":
                return floordiv(TileIndex(part.axis, INT), blocks[part.axis])
            case "begin":
                return begin
            case "end":
                return end
            case _:
                return None

    return rewrite(expr, of_tile)


# ---------------------------------------------------------------- ranges


def range_rules(
    ir: KernelIR,
    references: Sequence[CheckedReference],
    doubted: Collection[tuple[Expr, int]],
    rising: Collection[str],
) -> tuple[RangeRule, ...]:
    """Rules of every loop whose range, or whose offset into a tensor, is read from tensors.

    doubted  other offsets and lengths of dimensions that tiles may leave
    rising   tensors that proofs take to be sorted
    """
    each = [(ir.axis(name), around) for name, (_, around) in loops(ir).items()]
    found = [rule for a, around in each for rule in _of_loop(a, around, references, ir, doubted)]
    found += [rule for a, around in each for rule in _neighbours(a, around, ir, rising)]
    return tuple(_merged(found))


def _of_loop(
    axis: Axis,
    around: Place,
    references: Sequence[CheckedReference],
    ir: KernelIR,
    doubted: Collection[tuple[Expr, int]],
) -> Iterator[RangeRule]:
    groups: dict[tuple[Expr | None, Place, Where], list[Limit]] = {(None, around, frozenset()): []}
    for offset, place, where, limit in _limits(axis, around, references, ir):
        groups.setdefault((offset, place, where), []).append(limit)
    moves = ragged(axis, ir)
    for (offset, place, where), limits in groups.items():
        doubt = any((offset, limit.size) in doubted for limit in limits)
        if not (moves or doubt or (offset is not None and reads_data(offset, ir))):
            continue
        begin, end = axis.begin, axis.end
        if offset is not None:
            begin, end = fold(add(offset, begin)), fold(add(offset, end))
        inner = frozenset(place) - ({axis.name} if doubt else {*around, axis.name})
        guards = (a for a in place if may_skip(a, inner, ir))
        limit, moved = _tightest(limits), offset is not None and not _as_read(begin)
        values, guards = (begin, end), tuple(guards)
        tiled = None  # what is moved may lie outside where a condition leaves it out
        if offset is None and around_tiles(axis, ir):
            tiled = iterations_of(values, place, guards, where, ir, axis)
        yield RangeRule(
            begin=begin,
            end=end,
            limit=limit,
            most=axis.max_extent if offset is None and not where else None,
            strict=not where and read_as_it_is(begin, end),
            loc=(limit.loc if moved and limit is not None else None) or axis.loc,
            iterations=iterations_of(values, place, guards, where, ir),
            moved=moved,
            of_tiles=tiled,
        )


def _neighbours(
    axis: Axis, around: Place, ir: KernelIR, rising: Collection[str]
) -> Iterator[RangeRule]:
    """That T[e] <= T[e + 1], where proofs take it from a length such as T[e + 1] - T[e].

    Of ranges that are read as they are the rule of the loop says so already.
    """
    if read_as_it_is(axis.begin, axis.end):
        return
    for where, end in _arms(axis.end, frozenset()):
        found = [x for e in (axis.begin, end) for x in loads(e) if x.tensor in rising]
        for low, high in product(found, found):
            if _follows(low, high):
                chosen = iterations_of((low, high), around, (), where, ir)
                yield RangeRule(low, high, None, None, True, axis.loc, chosen)


def _arms(expr: Expr, where: Where) -> Iterator[tuple[Where, Expr]]:
    """What a select chooses from, and under which conditions."""
    match expr:
        case Apply("where", (condition, a, b)):
            yield from _arms(a, where | {(condition, True)})
            yield from _arms(b, where | {(condition, False)})
        case _:
            yield where, expr


def _follows(low: Load, high: Load) -> bool:
    """Whether the second is the next number of the same tensor in one of its dimensions."""
    if low.tensor != high.tensor:
        return False
    pairs = [(a, b) for a, b in zip(low.index, high.index, strict=True) if a != b]
    match pairs:
        case [(At(a), At(b))]:
            return plus(linear(b), linear(a), -1) == ({}, 1)
        case _:
            return False


def _limits(
    axis: Axis, around: Place, references: Sequence[CheckedReference], ir: KernelIR
) -> Iterator[tuple[Expr | None, Place, Where, Limit]]:
    """(offset, where, under which conditions, dimension) of references that the axis moves along.

    The offset may be read in loops further in: it is known where the reference is.
    """
    for found in references:
        place = found.around if found.where else around
        for dim, entry in enumerate(found.index):
            match entry:
                case Along(name) if whole(name, ir) != axis.name or name in found.asked:
                    pass
                case Along(_, None):
                    yield None, place, found.where, found.limit(dim, ir)
                case Along(_, offset) if offset is not None:
                    yield offset, found.around, found.where, found.limit(dim, ir)
                case At(GridIndex(name)) if name == axis.name and not found.where:
                    yield None, around, found.where, found.limit(dim, ir)
                case _:
                    pass  # not along this loop


def may_skip(name: str, inner: Collection[str], ir: KernelIR) -> bool:
    """Whether a loop may have no iteration: not that of a range which is itself looked at.

    One that came out of an `if` may: its end was made a select.
    """
    axis = ir.axis(name)
    guarded = any(isinstance(part, Apply) and part.op == "where" for part in walk(axis.end))
    return guarded or (name in inner and ragged(axis, ir))


def read_as_it_is(begin: Expr, end: Expr) -> bool:
    """Whether a range is from one number to another as memory has them, or of a length from it.

    What whole rows measure is not: the first one set is behind the last one where none is set.
    """
    parts = (*walk(begin), *walk(end))
    if any(isinstance(part, Apply) and part.op in REDUCTIONS for part in parts):
        return False
    return _as_read(begin) and _end_as_read(begin, end)


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
    ir: KernelIR, references: Sequence[CheckedReference], doubted: Collection[tuple[Expr, int]]
) -> tuple[IndexRule, ...]:
    """Rules of the scalar and gathered positions that are read from tensors.

    doubted  positions and lengths of dimensions that others may leave, too
    """
    found: dict[tuple[Expr, Limit, Iterations], IndexRule] = {}
    for reference in references:
        for rule in _of_reference(reference, ir, doubted):
            found.setdefault((rule.value, rule.limit, rule.iterations), rule)
    return tuple(found.values())


def _of_reference(
    reference: CheckedReference, ir: KernelIR, doubted: Collection[tuple[Expr, int]]
) -> Iterator[IndexRule]:
    around, where = reference.around, reference.where
    for dim, entry in enumerate(reference.index):
        value, limit = _position(entry, reference), reference.limit(dim, ir)
        if value is None or not ((value, limit.size) in doubted or reads_data(value, ir)):
            continue
        guards = (a for a in around if may_skip(a, around, ir))
        chosen = iterations_of((value,), around, guards, where, ir)
        yield IndexRule(value, limit, reference.loc, chosen)


def _position(entry: Index, reference: CheckedReference) -> Expr | None:
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
