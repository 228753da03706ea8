"""factors(ir, facts) -> how a kernel may be split over devices.

A factor is a set of loop axes and all dimensions of tensors that only they index.  Split in n, a
dimension is a shard, and the kernel of one device runs its part of the axes.  What else it must do:

rows      of ragged axes: ranges are clipped to the device's rows
groups    offsets are sliced, and results that all groups write are added up
sum       of an ordered axis: results are added up in float32, then cast; ranges are clipped, too.
          A result may be the sum times a number that every device knows: a mean is
max, min  the same of the largest or smallest, where a result is that itself
parallel  nothing

Numbers are those of the whole: where offsets are read as numbers, as of how many rows a group has,
the kernel of one device takes the whole ones, too; where positions are computed with, it takes the
one that its part begins at.

A dimension may hold one place for several positions of an axis, as keys do that query heads share,
k[h // share]: positions that share one stay together, and it is split into as many parts.  So are
those of an array that is seen in another shape, x.reshape(rows, heads, width): columns and heads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from ..analysis.carries import Definitions, definitions, reduction
from ..analysis.facts import Facts
from ..analysis.once import stored_once
from ..analysis.placed import loops, placed
from ..errors import Loc
from ..ir import (
    Apply,
    Carry,
    Expr,
    Index,
    KernelIR,
    Load,
    Loop,
    Stmt,
    Store,
    TileScalar,
    Var,
    axis_of,
    every_access,
    every_store,
    inlined,
    read_by,
    statement_exprs,
    statements,
    walk,
)
from ..ir import definitions as assigned
from ..ir.traversal import loads
from .multiples import added_alone, is_multiple, is_zero, turned_back, uncast
from .positions import (
    BEGINS,
    following,
    limits,
    mover,
    numbers,
    place_of,
    step,
    with_places,
    within,
)
from .tile_folds import keeps, stay_together
from .views import Place, alike, with_views

Kind = Literal["parallel", "rows", "groups", "sum", "max", "min"]
FOLDS: Mapping[str, Kind] = {"sum": "sum", "max": "max", "min": "min"}


@dataclass(frozen=True)
class Factor:
    """Dimensions that are split together.

    kind    how, or None where they cannot be, and `why` says what is in the way
    dims    all that are split: of that size, of one place for several positions, or of more places
    together  so many positions in a row stay on one device
    edges   dimensions of offsets that hold one more than that: read at g and g + 1
    clipped tensors of offsets that range over the dimensions
    counted whether positions along the axes are computed with
    added   results that are put together, in the dtype that they are summed in
    """

    axes: frozenset[str]
    dims: frozenset[Place]
    size: int
    kind: Kind | None
    why: str = ""
    edges: frozenset[Place] = frozenset()
    clipped: frozenset[str] = frozenset()
    counted: bool = False
    added: tuple[tuple[str, str], ...] = ()
    together: int = 1
    loc: Loc | None = field(default=None, compare=False)  # of what is in the way, or of a loop

    def splits(self, parts: int) -> bool:
        """Whether there are so many equal parts."""
        return self.size % (parts * self.together) == 0


@dataclass(frozen=True)
class _Kernel:
    """A kernel and what is asked of it many times."""

    ir: KernelIR
    facts: Facts
    defined: Definitions
    references: tuple[tuple[str, int, Index], ...]  # tensor, dimension, entry
    alike: Mapping[Place, frozenset[Place]]  # those that are cut with a place, in all forms


class _Obstacle(Exception):
    """Why a factor cannot be split, and where that is."""

    def __init__(self, why: str, loc: Loc | None = None) -> None:
        super().__init__(why)
        self.loc = loc


def factors(ir: KernelIR, facts: Facts) -> tuple[Factor, ...]:
    """The factors of a kernel; a dimension that no axis indexes alone is in none."""
    ir = with_places(ir)
    known = _Kernel(ir, facts, definitions(ir), tuple(_references(ir)), alike(ir))
    return tuple(_factor(axes, known) for axes in _components(known))


def _references(ir: KernelIR) -> Iterator[tuple[str, int, Index]]:
    for expr in _expressions(ir):
        for part in walk(expr):
            if isinstance(part, Load):
                yield from ((part.tensor, d, entry) for d, entry in enumerate(part.index))
    for stmt in statements(ir.body):
        if isinstance(stmt, Store):
            yield from ((stmt.tensor, d, entry) for d, entry in enumerate(stmt.index))


def _expressions(ir: KernelIR) -> Iterator[Expr]:
    """Everything that is evaluated, bounds too; of a store's index what moves it otherwise."""
    for stmt in statements(ir.body):
        if isinstance(stmt, Store):
            yield from (_value(stmt), *(() if stmt.mask is None else (stmt.mask,)))
            yield from (e for entry in stmt.index for e in within(entry))
        else:
            yield from statement_exprs(stmt)
    for axis in ir.axes:
        yield from (axis.begin, axis.end)


def _value(store: Store) -> Expr:
    """What a store computes: of an update what is new."""
    return store.value if store.combine is None else store.operands[1]


def _components(known: _Kernel) -> list[frozenset[str]]:
    """Axes that index the same dimensions."""
    found = [{axis.name} for axis in known.ir.axes if axis.name in loops(known.ir)]
    by_place: dict[Place, set[str]] = {}
    for tensor, dim, entry in known.references:
        axis = mover(entry)
        if axis is not None:
            place = min(known.alike.get((tensor, dim), {(tensor, dim)}))
            by_place.setdefault(place, set()).add(axis)
    for together in by_place.values():
        joined = [c for c in found if c & together]
        found = [c for c in found if not c & together] + [set[str]().union(*joined)]
    return [frozenset(c) for c in found]


def _factor(axes: frozenset[str], known: _Kernel) -> Factor:
    edges = {(t, d) for t, d, e in known.references if following(e) in axes}
    dims = {(t, d) for t, d, e in known.references if mover(e) in axes} - edges
    dims |= {other for place in dims for other in known.alike.get(place, ())}
    steps = {
        ((t, d), found[1])
        for t, d, e in known.references
        if (t, d) not in edges and (found := step(e)) is not None and found[0] in axes
    }
    sizes = {_size(known, place) * many for place, many in steps}
    most = max(sizes, default=0)
    loc = min((known.ir.axis(a).loc for a in axes), key=lambda loc: (loc.line, loc.col))
    made = Factor(
        axes, frozenset(dims), most, None, edges=frozenset(edges), loc=loc,
        together=math.lcm(*(most // math.gcd(most, _size(known, p)) for p in dims)) if most else 1,
    )  # fmt: skip
    try:
        if not sizes:
            raise _Obstacle("no dimension is indexed along them")
        if len(sizes) > 1:
            raise _Obstacle("they index dimensions of different lengths")
        return _checked(made, known)
    except _Obstacle as obstacle:
        return replace(made, why=str(obstacle), loc=obstacle.loc or loc)


def _size(known: _Kernel, place: Place) -> int:
    return known.ir.tensor(place[0]).shape[place[1]]


def _checked(factor: Factor, known: _Kernel) -> Factor:
    """The factor with its kind; `_Obstacle` where there is none."""
    _only_indexed(factor, known)
    _beside(factor, known)
    if len({tensor for tensor, _ in factor.dims}) < len(factor.dims):
        raise _Obstacle("two dimensions of one array are indexed along them")
    factor = _counted(factor, known)
    ragged = {a for a in factor.axes if known.ir.axis(a).static is None}
    for name in factor.axes - ragged:
        if known.ir.axis(name).static != (0, factor.size):
            raise _Obstacle(f"{_user(known, name)} does not run over the whole dimension")
    ordered = {a for a in factor.axes if known.facts.axis(a).kind == "ordered"}
    if ordered and not _keeps_apart(factor, known) and not _only_adds(factor, known):
        return _summed(factor, ordered, ragged, known)
    _elementwise(factor, known)
    added = _written_by_all(factor, known)
    if added:
        _from_zero(added, known)
        _unread(added, known)
        _once(added, known)
    kept = _put_together({name: known.ir.tensor(name).dtype for name in added}, known)
    if ragged:
        return replace(_with_ranges(factor, ragged, known), kind="rows", added=kept)
    return replace(factor, kind="groups" if added or factor.edges else "parallel", added=kept)


def _user(known: _Kernel, axis: str) -> str:
    return known.ir.axis(axis).user


def _only_indexed(factor: Factor, known: _Kernel) -> None:
    """Every place is always indexed along the axes, which say nothing else."""
    for tensor, dim, entry in known.references:
        if (tensor, dim) in factor.dims and (step(entry) or ("", 0))[0] not in factor.axes:
            raise _Obstacle(f"{tensor} is indexed in another way, too")
        if (tensor, dim) in factor.edges and not {axis_of(entry), following(entry)} & factor.axes:
            raise _Obstacle(f"{tensor} is indexed in another way, too")
    _in_all_forms(factor, known)
    _as_they_lie((t for t, _ in factor.edges), known)
    for tensor, dim in factor.edges:
        role = known.ir.tensor(tensor).role
        if role != "input" or _size(known, (tensor, dim)) != factor.size + 1:
            raise _Obstacle(f"{tensor} does not hold one number more than there are groups")


def _in_all_forms(factor: Factor, known: _Kernel) -> None:
    """What is split has a dimension that is split with it in every form."""
    split = {tensor for tensor, _ in factor.dims}
    for other in sorted(with_views(known.ir, {known.ir.root(t) for t in split}) - split):
        root = known.ir.root(other)
        raise _Obstacle(f"{root} is reshaped, and what is split is no part of both of its shapes")


def _as_they_lie(tensors: Iterable[str], known: _Kernel) -> None:
    """Numbers that change on a device have no other form, which would change too."""
    for tensor in tensors:
        if len(with_views(known.ir, {known.ir.root(tensor)})) > 1:
            raise _Obstacle(f"{tensor} is reshaped or transposed")


def _beside(factor: Factor, known: _Kernel) -> None:
    """No loop over the axes is inside of another: it brings each position to all others."""
    for name in sorted(factor.axes):
        loop, around = loops(known.ir)[name]
        for outer in factor.axes.intersection(around):
            both = f"{_user(known, outer)} and {_user(known, name)}"
            raise _Obstacle(f"{both} bring every position of it to every other", loop.loc)


def _counted(factor: Factor, known: _Kernel) -> Factor:
    """Whether positions along the axes are numbers, which those of the whole can stand for.

    Tiles that the author fixed stay whole where they are told apart by what they begin at.
    """
    found = [(n, e) for e in _expressions(known.ir) for n in numbers(e) if n.axis in factor.axes]
    together = factor.together
    for number, expr in found:
        if not isinstance(number, TileScalar):
            continue
        axis = known.ir.axis(number.axis)
        if number.what not in BEGINS or (axis.fixed and axis.static is None):
            how = "begin elsewhere" if number.what in BEGINS else "are numbered, and cut anew"
            raise _Obstacle(f"tiles of {axis.user} {how} in parts", place_of(expr, number))
        together = math.lcm(together, axis.fixed or 1)
    return replace(factor, counted=bool(found), together=together)


def _elementwise(factor: Factor, known: _Kernel) -> None:
    """No operation brings elements along the axes together, but sums that are only added."""
    sums = added_alone(known.ir, factor.axes, exprs := [*_expressions(known.ir)], known.defined)
    for expr in exprs:
        for part in walk(expr):
            if isinstance(part, Apply) and id(part) not in sums and not keeps(part, factor.axes):
                axis = next(d for a in part.args for d in a.type.shape if d in factor.axes)
                raise _Obstacle(
                    f"{part.op} brings elements along {_user(known, str(axis))} together", part.loc
                )


def _keeps_apart(factor: Factor, known: _Kernel) -> bool:
    """Whether iterations are ordered only by what they store along the axes.

    Heads that share keys add to one place of their gradient, and stay on one device.
    """
    carries = (loops(known.ir)[axis][0].carries for axis in factor.axes)
    return not any(carries) and not _written_by_all(factor, known)


def _only_adds(factor: Factor, known: _Kernel) -> bool:
    """Whether iterations are ordered only by what they add to results of all of them."""
    carries = (loops(known.ir)[axis][0].carries for axis in factor.axes)
    return not any(carries) and _written_by_all(factor, known) <= _updated(known)


def _updated(known: _Kernel) -> set[str]:
    """Tensors that nothing is done to but adding."""
    every = list(every_store(known.ir.body))
    return {s.tensor for s in every} - {s.tensor for s in every if s.combine != "add"}


def _written_by_all(factor: Factor, known: _Kernel) -> frozenset[str]:
    """Results that are stored inside of the loops, and not along them."""
    stores = [(s, around) for s, around in placed(known.ir.body) if isinstance(s, Store)]
    inside = (s for s, around in stores if factor.axes & set(around))
    apart = ((s, {at[0] for e in s.index if (at := step(e))}) for s in inside)
    found = {s.tensor for s, along in apart if not along & factor.axes}
    split = {tensor for tensor, _ in factor.dims}
    for stmt, around in stores:
        if stmt.tensor in found:
            if not factor.axes & set(around) or stmt.tensor in split:
                raise _Obstacle(f"{stmt.tensor} is stored outside of the loop, too")
            if known.ir.tensor(stmt.tensor).role != "output":
                raise _Obstacle(f"{stmt.tensor} is an argument that every group stores to")
    return frozenset(found)


def _from_zero(added: frozenset[str], known: _Kernel) -> None:
    for name in added:
        if known.ir.tensor(name).fill != 0:
            raise _Obstacle(f"{name} is added up over devices and does not begin as zeros")


def _put_together(added: Mapping[str, str], known: _Kernel) -> tuple[tuple[str, str], ...]:
    """What is added up, in all its forms, none of which says what the others begin with."""
    for name in sorted(added):
        if known.ir.tensor(name).view is not None:
            raise _Obstacle(f"{known.ir.root(name)} is stored in another shape, and added up")
    forms = ((form, d) for name, d in added.items() for form in with_views(known.ir, {name}))
    return tuple(sorted(forms))


def _unread(added: frozenset[str], known: _Kernel) -> None:
    read = {known.ir.root(e.tensor) for expr in _expressions(known.ir) for e in loads(expr)}
    for name in sorted(added & read):
        raise _Obstacle(f"{name} is added up over devices and read by the kernel")


def _once(added: frozenset[str], known: _Kernel) -> None:
    """What two devices store to one place would be added up."""
    for name in added - _updated(known):
        if sum(name in _stored(s) for s in known.ir.body) > 1 or not stored_once(known.ir, name):
            raise _Obstacle(f"it was not proved that elements of {name} are stored once")


def _stored(loop: Stmt) -> set[str]:
    return {store.tensor for store in every_store((loop,))}


def _with_ranges(factor: Factor, ragged: set[str], known: _Kernel) -> Factor:
    """The factor with the tensors of offsets that are clipped; other bounds are, once computed."""
    found, values = set[str](), assigned(known.ir.body)
    for name in ragged:
        if not _ends(name, factor, known):
            raise _Obstacle(
                f"{_user(known, name)} may run past its {factor.size} positions, "
                "where masks leave out what is read: no device has those",
                known.ir.axis(name).loc,
            )
        for bound in (known.ir.axis(name).begin, known.ir.axis(name).end):
            for limit in limits(inlined(bound, values)):
                if isinstance(limit, Load) and limit.mask is None:
                    found.add(limit.tensor)
                else:
                    factor = replace(factor, counted=True)
    stored = {s.tensor for s in every_store(known.ir.body)}
    for tensor in found:
        if tensor in stored or known.ir.tensor(tensor).role != "input":
            raise _Obstacle(f"{tensor} is stored to, too")
    _as_they_lie(sorted(found), known)
    return replace(factor, clipped=frozenset(found))


def _ends(axis: str, factor: Factor, known: _Kernel) -> bool:
    """Whether the range of an axis ends with the dimensions that are split.

    What is read or stored without a mask ends it, and so does its longest extent.
    """
    ragged, most = known.ir.axis(axis), known.ir.axis(axis).max_extent
    ending = (site for site in every_access(known.ir.body) if site.mask is None)
    entries = (((s.tensor, dim), e) for s in ending for dim, e in enumerate(s.index))
    if any(place in factor.dims and mover(entry) == axis for place, entry in entries):
        return True
    return is_zero(ragged.begin) and most is not None and most <= factor.size


# ---------------------------------------------------------------- sums


def _summed(factor: Factor, ordered: set[str], ragged: set[str], known: _Kernel) -> Factor:
    """A sum over one axis, or a largest, which is stored as it is or cast: parts may be added up.

    Of rows between offsets each device adds up its own, and nothing of groups that are others'.
    """
    if len(factor.axes) > 1 or factor.edges:
        user = _user(known, min(ordered))
        raise _Obstacle(f"{user} is ordered: {known.facts.axis(min(ordered)).why}")
    (name,) = factor.axes
    loop, _ = loops(known.ir)[name]
    kind = FOLDS.get(reduction(loop, known.defined) or "")
    if kind is None:
        raise _Obstacle(f"{_user(known, name)} is ordered: {known.facts.axis(name).why}")
    if (whole := stay_together(loop, kind, known.ir, known.defined)) is None:
        raise _Obstacle(f"tiles of {_user(known, name)} begin elsewhere in parts", loop.loc)
    factor = replace(factor, together=math.lcm(factor.together, whole))
    values, outs = assigned(known.ir.body), {carry.out for carry in loop.carries}
    for carry in loop.carries:
        if kind == "sum" and not is_zero(inlined(carry.init, values)):
            raise _Obstacle(f"the sum over {_user(known, name)} does not begin with zero")
    added: dict[str, str] = {}
    for stmt in statements(known.ir.body):
        if isinstance(stmt, Store) and _depends(stmt.value, outs, known):
            total = _total(inlined(_value(stmt), values), outs, known)
            if total is None or not _adds_up(stmt, total, kind, known):
                raise _Obstacle(f"{stmt.tensor} is not the {kind} over {_user(known, name)} itself")
            if added.setdefault(stmt.tensor, total.type.dtype) != total.type.dtype:
                raise _Obstacle(f"{stmt.tensor} holds sums of several dtypes")
    others = {s.tensor for s in statements(known.ir.body) if isinstance(s, Store)
              and not _depends(s.value, outs, known)}  # fmt: skip
    if others & set(added):
        raise _Obstacle(f"{min(others & set(added))} holds other values, too")
    _alone(loop, outs, known)
    for tensor in added if kind == "sum" else ():
        if known.ir.tensor(tensor).fill not in (0, None) and not known.facts.output(tensor).covered:
            raise _Obstacle(f"{tensor} is added up over devices and does not begin as zeros")
    _unread(frozenset(added), known)
    ranged = _with_ranges(factor, ragged, known) if ragged else factor
    return replace(ranged, kind=kind, added=_put_together(added, known))


def _adds_up(store: Store, total: Expr, kind: Kind, known: _Kernel) -> bool:
    """Whether parts of what is stored may be put together: sums also of what is added to zeros."""
    if kind != "sum":
        return isinstance(turned_back(total), Var) and store.combine is None
    tensor = known.ir.tensor(store.tensor)
    zeros = tensor.fill == 0 and tensor.dtype == total.type.dtype
    return store.combine is None or (store.combine == "add" and zeros)


def _alone(loop: Loop, outs: set[str], known: _Kernel) -> None:
    """What the sum feeds is only what is stored, and its loop stores nothing."""
    if any(isinstance(stmt, Store) for stmt in statements(loop.body)):
        raise _Obstacle(f"something is stored in the loop over {_user(known, loop.axis)}")
    for stmt in statements(known.ir.body):
        if isinstance(stmt, Loop) and any(_carried(c, outs, known) for c in stmt.carries):
            raise _Obstacle(f"the sum over {_user(known, loop.axis)} goes on in another loop")
        mask = stmt.mask if isinstance(stmt, Store) else None
        if mask is not None and _depends(mask, outs, known):
            raise _Obstacle(f"the sum over {_user(known, loop.axis)} decides what is stored")


def _carried(carry: Carry, outs: set[str], known: _Kernel) -> bool:
    return carry.out not in outs and any(
        _depends(expr, outs, known) for expr in (carry.init, carry.next)
    )


def _depends(expr: Expr, names: set[str], known: _Kernel) -> bool:
    used = set(read_by((expr,)))
    return bool(names & used) or any(names & known.defined.uses.get(n, frozenset()) for n in used)


def _total(expr: Expr, outs: set[str], known: _Kernel) -> Expr | None:
    """The sum that is stored, or a multiple of it, before it is cast."""
    total = uncast(expr)
    return total if is_multiple(total, outs, lambda e: _depends(e, outs, known)) else None
