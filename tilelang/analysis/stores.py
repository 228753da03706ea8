"""store_facts(...) -> StoreFact...: does what a store leaves behind depend on how a loop is cut?

for tm, tn in hl.tile([M, N]):
    y[tn] = x[tm, tn].sum(0)            varies with tm: the last tile's rows stay
    y[tn] = acc                         not if tm carries acc
    y[tn] = y[tn] + acc                 then it does: what every tile left is added
    part[tm.id, tn] = x[tm, tn].sum(0)  not: every tile has its own place
    y[tn] = scale[tn] * 2               not: every tile stores the same
    y[0, tn] = y[1, tn] + acc           as if y[1, :] were another array
    y[ids[tn], tn] = x[tn]              it does: in all columns of the tile, for each of its rows
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ..ir import (
    Along,
    Apply,
    At,
    Axis,
    Expr,
    Gather,
    GridIndex,
    Index,
    KernelIR,
    Load,
    Span,
    Store,
    TileIndex,
    TileScalar,
    Var,
    children,
    index_exprs,
    integers,
    walk,
)
from ..ir.traversal import reduced
from ..language.op import ELEMENTWISE
from .carries import OPS, Definitions, sources_of
from .facts import StoreFact
from .placed import Place, loops, placed
from .ranges import Ranges, depends
from .written import Changed

FOLDS = ("sum", "dot")  # ops whose result depends on how many positions they fold


def store_facts(
    ir: KernelIR, defined: Definitions, known: Ranges, changed: Mapping[str, Changed]
) -> tuple[StoreFact, ...]:
    """One fact per store, of atomic updates only of those that vary.

    changed  what of loops over these axes goes by how they are cut, in numbers
    """
    found = (
        (s, replace(_fact(ir, s, around, defined, known), squares=_squares(ir, s, defined)))
        for s, around in placed(ir.body)
        if isinstance(s, Store)
    )
    facts = ((s, _in_numbers(f, s, ir, defined, known, changed)) for s, f in found)
    return tuple(f for s, f in facts if s.combine is None or f.varies or f.squares or f.cut)


def _in_numbers(
    fact: StoreFact,
    store: Store,
    ir: KernelIR,
    defined: Definitions,
    known: Ranges,
    changed: Mapping[str, Changed],
) -> StoreFact:
    """With the axes by whose cut it leaves something else, and without those that it does not."""
    axes = tuple(a for a, c in changed.items() if id(store) in c.stores)
    tiles = tuple(a for a in fact.tiles if a not in changed or id(store) not in changed[a].same)
    if fact.varies or not axes:
        return replace(fact, tiles=tiles)
    again = not moving(store.index, ir, defined, known) & {*axes}
    folds = OPS[store.combine] if again and store.combine else ""
    return replace(fact, tiles=tiles, cut=axes, again=again, folds=folds)


def _squares(ir: KernelIR, store: Store, defined: Definitions) -> tuple[str, ...]:
    """Free axes along two dimensions, of which neither the value nor the mask goes by both.

    Which pairs of positions are in one tile goes by the block.
    """
    places: dict[str, list[int]] = {}
    for place, entry in enumerate(reversed([e for e in store.index if not isinstance(e, At)]), 1):
        places.setdefault(_along(entry), []).append(place)
    parts = [*(children(store.value) if store.combine else (store.value,))]
    parts = [e for e in parts if not (store.combine and isinstance(e, Load) and _own(ir, e, store))]
    parts += [] if store.mask is None else [store.mask]
    return tuple(
        axis
        for axis, found in places.items()
        if len(found) > 1 and axis and is_free(axis, ir)
        if not any(all(not _same(p, n, defined) for n in found) for p in parts)
    )


def _along(entry: Index) -> str:
    """The axis of a dimension; "" if it is none."""
    if isinstance(entry, Along):
        return entry.axis
    rows = entry.expr.type.shape if isinstance(entry, Gather) else ()
    return next((d for d in rows if isinstance(d, str)), "")


def _same(value: Expr, place: int, defined: Definitions) -> bool:
    """Whether a value is the same at all positions of a dimension, counted from the last one."""
    shape = value.type.shape
    if len(shape) < place or shape[-place] == 1:
        return True
    match value:
        case Var(name) if name in defined.values:
            return _same(defined.values[name], place, defined)
        case Apply(op, args) if op == "broadcast" or op in ELEMENTWISE:
            return all(_same(a, place, defined) for a in args)
        case _:
            return isinstance(value, Apply) and value.op == "full"


def _fact(
    ir: KernelIR, store: Store, around: Place, defined: Definitions, known: Ranges
) -> StoreFact:
    """The tile axes that decide what stays behind, though only the last tile's value does."""
    cut = [a for a in around if is_cut(ir.axis(a))]
    if not cut:
        return StoreFact(store.tensor, (), store.loc)
    value = list(sources((store.value,), ir, defined))
    used = sources_of(store.value, defined)
    places = moving(store.index, ir, defined, known)
    masks = () if store.mask is None else (store.mask,)
    places |= {a for e in sources(masks, ir, defined) for a in named(e)}
    carried = {a for a in cut if used & {c.name for c in loops(ir)[a][0].carries}}
    if any(isinstance(e, Load) and _goes_on(ir, e, store) for e in value):
        # it goes on with what the tiles before it stored; a carry would count them once more
        return StoreFact(
            store.tensor, tuple(a for a in cut if a in carried - places), store.loc, True
        )
    seen = {a for e in value for a in of_lanes(e)}
    varies = tuple(a for a in cut if a in seen - places - carried)
    folded = {a for e in value for a in folds_over(e)} & places - carried
    tiles = tuple(a for a in cut if a in folded and is_free(a, ir) and store.combine is None)
    return StoreFact(store.tensor, varies, store.loc, tiles=tiles)


def _goes_on(ir: KernelIR, load: Load, store: Store) -> bool:
    return _own(ir, load, store) and not apart(load, store)


def _own(ir: KernelIR, load: Load, store: Store) -> bool:
    return ir.root(load.tensor) == ir.root(store.tensor)


def is_cut(axis: Axis) -> bool:
    """Whether a tile axis may have several tiles, whose size is not part of what was written."""
    if axis.kind != "tile" or axis.max_extent in (0, 1):
        return False
    if axis.static is None:
        return True
    begin, end = axis.static
    one = axis.fixed is not None and begin // axis.fixed == (end - 1) // axis.fixed
    return end - begin > 1 and not one


def is_free(name: str, ir: KernelIR) -> bool:
    """Whether it goes by tiles of which the author does not say how long they are."""
    axis = ir.axis(name)
    return is_cut(axis) and axis.fixed is None


def apart(load: Load, store: Store) -> bool:
    """Whether the numbers in two positions show that they share no element."""
    if load.tensor != store.tensor:
        return False  # of views, nothing is known here
    pairs = zip(load.index, store.index, strict=True)
    return any(_differ(a, b) for a, b in pairs)


def _differ(a: Index, b: Index) -> bool:
    match a, b:
        case At(one), At(other):
            return bool(integers.value_of(integers.sub(one, other)))
        case (At(at), Span(start, stop)) | (Span(start, stop), At(at)):
            number = integers.value_of(at)
            return number is not None and not start <= number < stop
        case Span(), Span():
            return a.stop <= b.start or b.stop <= a.start
        case _:
            return False


def sources(exprs: Sequence[Expr], ir: KernelIR, defined: Definitions) -> Iterator[Expr]:
    """Every expression that a value is computed from, bounds of loops that carry it included."""
    reached = frozenset[str]().union(*(sources_of(e, defined) for e in exprs))
    found = [*exprs, *(defined.values[n] for n in sorted(reached) if n in defined.values)]
    for name, (loop, _) in loops(ir).items():
        if any(c.name in reached or c.out in reached for c in loop.carries):
            axis = ir.axis(name)
            found += [axis.begin, axis.end, *(e for c in loop.carries for e in (c.init, c.next))]
    for expr in found:
        yield from walk(expr)


def of_lanes(expr: Expr) -> Iterator[str]:
    """Axes of which a part of a value depends on the positions of the tile.

    tile.end is not among them: in the last iteration it is the end of the range.
    """
    match expr:
        case TileIndex(axis) | TileScalar(axis, "begin" | "id"):
            yield axis
        case Load(_, index):
            yield from (e.axis for e in index if isinstance(e, Along))
        case Apply(op) if op in FOLDS:
            lengths = {d for a in expr.args for d in a.type.shape} - {*expr.type.shape}
            yield from (d for d in lengths if isinstance(d, str))
        case _:
            pass


def folds_over(expr: Expr) -> Iterator[str]:
    """Axes that a part of a value is reduced over."""
    for operand, dim in reduced(expr):
        if isinstance(axis := operand.type.shape[dim], str):
            yield axis


def named(expr: Expr) -> Iterator[str]:
    """Axes that a part of a position or of a mask depends on in any way."""
    match expr:
        case GridIndex(axis) | TileIndex(axis) | TileScalar(axis):
            yield axis
        case Load(_, index):
            yield from (e.axis for e in index if isinstance(e, Along))
        case _:
            pass


def mentions(expr: Expr, axis: str) -> bool:
    """Whether an expression by itself, and not by what its names stand for, is of an axis."""
    return axis in named(expr) or axis in expr.type.shape


def moving(index: tuple[Index, ...], ir: KernelIR, defined: Definitions, known: Ranges) -> set[str]:
    """Axes whose tiles choose where the store goes, also by the ranges of loops inside them."""
    found = placing(index, ir, defined)
    while more := {d for a in found for d in depends(a, known)} - found:
        found |= more
    return found


def placing(index: tuple[Index, ...], ir: KernelIR, defined: Definitions) -> set[str]:
    """Axes that the positions are computed from."""
    exprs = [e for entry in index for e in index_exprs(entry)]
    found = {a for e in sources(exprs, ir, defined) for a in named(e)}
    return found | {entry.axis for entry in index if isinstance(entry, Along)}
