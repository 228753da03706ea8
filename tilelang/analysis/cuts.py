"""changes(ir) -> what goes by how loops are cut into tiles, seen in numbers.

    [ a b | c d | e f | g ]   a short range in tiles of two, and in one: online softmax, a mean that
    [ a b   c d   e f   g ]   is kept up to date, log(exp(acc) + sum) are worth the same after both,
                              and so is each row of causal attention; a mean of each tile is not

The body is computed in float32 with numbers made up for what is in memory, one for each position.
Two results that differ, also where numbers rise, are a proof that some call has two results; a
carry that differs by a choice of its own, which what is stored takes out again, is none.  What
cannot be computed here, such as what another loop stored, proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np

from ..ir import (
    Apply,
    Assign,
    Body,
    Expr,
    Index,
    KernelIR,
    Load,
    Loop,
    Stmt,
    Store,
    Tensor,
    TileIndex,
    TileScalar,
    Var,
    children,
    statement_exprs,
    statements,
    walk,
)
from ..ir.traversal import edges_of, index_exprs
from ..language.moment import Array, Covered, Moment
from ..language.op import kind_of
from .carries import Definitions, depends_on, sources_of
from .drawn import FEWER, LONGEST, MOST, TIED, UNKNOWN, Drawn, State, dims_of, worth
from .placed import Place, loops, placed
from .stores import folds_over, is_free, sources
from .thresholds import BEHIND, BOUNDS, COMPARISONS, greatest, lengths, sharp, soft, thresholds
from .uses import references
from .written import NOISE, SMALL, Changed, Noted, apart, differing, placed_at, unknown

Names = frozenset[str]
RISES = (False, True)  # an author may know that ids rise, or times
CUTS = (2, 16)  # blocks
SHORTER = (1, 3, 9, 11)  # sizes with which the first tile has one position, if it may
POSITIONS = 7  # of a loop, if it is longer than a short one
SCALED = (2, 4)  # sizes in which numbers may be large
LENGTHS = (64, 1 << 10)  # of loops inside whose ranges go by tiles: over numbers, and over tiles
FIRST = 4  # turns that stand for all of a long loop that carries values
LARGEST = 1 << 22  # elements of a value: 16 positions of a row of 262,144


def changes(ir: KernelIR, defined: Definitions, meets: frozenset[str]) -> dict[str, Changed]:
    """Those of every loop over tiles that a config cuts.

    meets  axes of which a later iteration may store where an earlier one did
    """
    free = ((loop, around) for loop, around in loops(ir).values() if is_free(loop.axis, ir))
    stores = _stores(ir, defined)
    asked = ((loop, at, _asked(ir, loop, stores, not meets & {*at})) for loop, at in free)
    indices = [e for site in references(ir.body) for i in site.index for e in index_exprs(i)]
    placing = _read(indices, ir, defined)
    return {
        loop.axis: _loop(ir, loop, around, defined, own, placing)
        for loop, around, own in asked
        if loop.carries or own.arrays
    }


@dataclass(frozen=True)
class _Asked:
    """Arrays of which a loop may leave something else for another cut, whatever reads it then.

    elsewhere  those of them that another loop stores, too, so that nobody knows what was there
    alone      whether a place that only one cut stores to counts: nothing is stored there later
    """

    arrays: frozenset[str]
    elsewhere: frozenset[str]
    alone: bool

    def tensor(self, ir: KernelIR, name: str) -> Tensor:
        """The array, with what is in it where nothing is stored."""
        found = ir.tensor(name)
        return replace(found, fill=None) if name in self.elsewhere else found


@dataclass(frozen=True)
class _Stored:
    """A store: the array, the loops around it, and what it is computed from.

    tiles  axes by whose tiles, and not positions alone, it may go; those that its place names
    names  carries among them
    """

    array: str
    around: Place
    tiles: frozenset[str]
    places: frozenset[str]
    names: frozenset[str]


def _stores(ir: KernelIR, defined: Definitions) -> list[_Stored]:
    """All of the kernel."""
    found: list[_Stored] = []
    for store, around in placed(ir.body):
        if isinstance(store, Store):
            exprs = [*statement_exprs(store), *edges_of(ir.axis(a) for a in around)]
            parts = list(sources(exprs, ir, defined))
            tiles = _tiles(parts) | {a for e in parts for a in folds_over(e)}
            names = frozenset[str]().union(*(sources_of(e, defined) for e in exprs))
            array = ir.root(store.tensor)
            places = frozenset[str]().union(*(_places(e, defined) for e in store.index))
            found.append(_Stored(array, around, frozenset(tiles), places, names))
    return found


def _places(entry: Index, defined: Definitions) -> set[str]:
    """The tiles of which an entry of an index is one position, as the author says: not one that
    memory says, nor one for each position of the tile."""
    values = {name: (value,) for name, value in defined.values.items()}
    found = [*_followed(index_exprs(entry), values, lambda e: isinstance(e, Load))]
    return _tiles(found) - {e.axis for e in found if isinstance(e, TileIndex)}


def _followed(
    exprs: Iterable[Expr], values: Mapping[str, Sequence[Expr]], ends: Callable[[Expr], bool]
) -> Iterator[Expr]:
    """What values are computed from, also by names, each once, and nothing that `ends` it."""
    rest, met = [*exprs], set[str]()
    while rest:
        expr = rest.pop()
        if ends(expr):
            continue
        yield expr
        rest += children(expr)
        if isinstance(expr, Var) and expr.name not in met:
            met.add(expr.name)
            rest += values.get(expr.name, ())


def _tiles(parts: list[Expr]) -> set[str]:
    return {e.axis for e in parts if isinstance(e, TileScalar)}


def _asked(ir: KernelIR, loop: Loop, stores: list[_Stored], alone: bool) -> _Asked:
    """Not where a place names the tile, y[t.id] or y[t.begin], which is one for each tile, as the
    author says; nor what a loop in the same tiles reads or stores, too, which may set it right.
    """
    axis, carried = loop.axis, frozenset(c.name for c in loop.carries)
    inside = [s for s in stores if axis in s.around]
    found = {s.array for s in inside if axis in s.tiles or carried & s.names}
    found -= {s.array for s in inside if axis in s.places} | _shared(ir, axis, (Load, Store))
    elsewhere = frozenset(s.array for s in stores if axis not in s.around)
    return _Asked(frozenset(found), elsewhere, alone)


def _shared(ir: KernelIR, axis: str, kinds: tuple[type[Load | Store], ...]) -> frozenset[str]:
    """Arrays that other loops in tiles of the same registered block read or store."""
    block = ir.axis(axis).block
    alike = {a.name for a in ir.axes if a.block == block} - {axis}
    within = ((s, (*at, s.axis) if isinstance(s, Loop) else at) for s, at in placed(ir.body))
    others = [s for s, at in within if axis not in at and alike & {*at}] if alike else []
    parts = [*others, *(part for s in others for e in statement_exprs(s) for part in walk(e))]
    return frozenset(ir.root(e.tensor) for e in parts if isinstance(e, kinds))


def _loop(
    ir: KernelIR,
    loop: Loop,
    around: Place,
    defined: Definitions,
    asked: _Asked,
    placing: frozenset[str],
) -> Changed:
    """Those of one loop; `placing` are the tensors that positions are made of."""
    outside = _shared(ir, loop.axis, (Store,))
    wanted = _wanted(ir, loop, defined)
    axis = ir.axis(loop.axis)
    own, begins, every = (
        _read(exprs, ir, defined)
        for exprs in ((axis.begin, axis.end), (axis.begin,), tuple(edges_of(ir.axes)))
    )
    parts = list(sources([e for s in statements((loop,)) for e in statement_exprs(s)], ir, defined))
    inner = _edges(ir, loop, defined)
    values = _values(ir, defined)
    ends = [(e, 0.0) for name in inner for e in edges_of((ir.axis(name),))]
    ends += sharp(chain(*inner.values()))
    met, beside, bent = (thresholds(found, values) for found in (sharp(parts), ends, soft(parts)))
    memory = Drawn(
        ir, False, 0, outside, wanted, own, begins, every, placing | every,
        _ordered(_compared(parts), values), POSITIONS, loop.axis, frozenset(inner),
        *met.scales(),
    )  # fmt: skip
    within = {s.axis for s in statements((loop,)) if isinstance(s, Loop)}
    several = _tries(frozenset({*around, *within} - {loop.axis, *inner}), parts, every, ir, defined)
    tried = [replace(memory, sizes=sizes) for sizes in range(several)]
    for long in (n for n in lengths(loop.axis, met, beside) if n > POSITIONS):
        tried += [replace(memory, sizes=sizes, most=long) for sizes in range(2)]
    if (large := greatest(met, bent)) != (memory.scale, memory.whole_scale):
        tried += [replace(memory, sizes=n, scale=large[0], whole_scale=large[1]) for n in SCALED]

    def ways(rises: bool) -> Iterator[Changed]:
        for drawn in tried:
            drawn = replace(drawn, rises=rises, log=[])
            yield _changed(loop, around, drawn, defined, asked)

    with np.errstate(all="ignore"):
        found = [*ways(RISES[0])]
        carries, stores = _of_any(found)
        if carries or stores:
            rising = _of_any(ways(RISES[1]))
            carries, stores = carries & rising[0], stores & rising[1]
    others = (c for drawn, c in zip(tried, found, strict=True) if drawn.sizes not in TIED)
    same = frozenset.intersection(*(c.same for c in found[:several]))
    return Changed(carries, stores, same, carries - _of_any(others)[0])


def _tries(free: Names, parts: list[Expr], edges: Names, ir: KernelIR, defined: Definitions) -> int:
    """How many numbers are made up: limits are met by chance, those that memory has seldom.

    free   loops around and inside that do not go through its tiles, so that limits may: what other
           loops made of all of their numbers, as maxima, is none
    edges  arrays that ranges are made of: positions are compared with those, and no numbers
    """
    several = min(TIED)
    for expr in parts:
        if isinstance(expr, Apply) and expr.op in BOUNDS:
            sides = [_loads(a, edges, ir, defined) for a in expr.args]
            limits = [free.issuperset(chain(*side)) for side in sides]
            if all(sides) and any(limits) and not all(limits):
                return len(MOST)
            several = FEWER if any(sides) and expr.op in COMPARISONS else several
    return several


def _loads(value: Expr, edges: Names, ir: KernelIR, defined: Definitions) -> list[Names]:
    """The axes that each number of memory goes by that a value is computed from."""
    found = (e for e in sources((value,), ir, defined) if isinstance(e, Load))
    every = (chain(*map(dims_of, e.index)) for e in found if e.tensor not in edges)
    return [frozenset(d for d in dims if isinstance(d, str)) for dims in every]


def _of_any(found: Iterable[Changed]) -> tuple[frozenset[str], frozenset[int]]:
    """The carries and the stores of one or more."""
    every = [*found]
    carries = frozenset[str]().union(*(c.carries for c in every))
    return carries, frozenset[int]().union(*(c.stores for c in every))


def _changed(
    loop: Loop, around: Place, memory: Drawn, defined: Definitions, asked: _Asked
) -> Changed:
    """Those for one way to make up what is in memory."""
    here, rest = _reached(memory.ir.body, loop, around, memory, Moment(memory, most=LARGEST))
    memory = replace(memory, origin=memory.begin(loop.axis, here))
    other = memory.most - (memory.sizes % 2) * BEHIND  # as long as what is compared, and longer
    cuts = [_cut(loop.axis, block, memory, here) for block in (CUTS[0], max(CUTS[1], other))]
    (one, before), (other, behind) = (_run(loop, memory, here, cut) for cut in cuts)
    noise = max(SMALL, NOISE * max(memory.scale, memory.whole_scale) ** 2)
    differ = partial(_differ, noise=noise)
    found = frozenset(name for name in one.keys() & other if differ(one[name], other[name]))
    lost = unknown(before.log) | unknown(behind.log)
    arrays = asked.arrays - lost
    tensors = [asked.tensor(memory.ir, name) for name in sorted(arrays)]
    stores = differing(before.log, behind.log, tensors, alone=asked.alone, noise=noise)
    same = frozenset(w.store for w in before.log if w.array in arrays) - stores
    if found and not _leaves(memory.ir, loop, around, defined, same):
        runs = ((one, before), (other, behind))
        after = [_stored(rest, to, replace(here, memory=to).next(_outs(loop, s))) for s, to in runs]
        if not any(a is None or b is None or differ(a, b) for a, b in zip(*after, strict=True)):
            found = frozenset()
    return Changed(found, stores, same)


def _edges(ir: KernelIR, loop: Loop, defined: Definitions) -> dict[str, list[Expr]]:
    """Loops inside whose ranges go by tiles of a loop, and what those are computed from."""
    names = [s.axis for s in statements(loop.body) if isinstance(s, Loop)]
    each = {n: list(sources([*edges_of((ir.axis(n),))], ir, defined)) for n in names}
    return {name: parts for name, parts in each.items() if loop.axis in _tiles(parts)}


def _read(exprs: Sequence[Expr], ir: KernelIR, defined: Definitions) -> frozenset[str]:
    """The tensors that expressions are computed from."""
    return frozenset(e.tensor for e in sources(exprs, ir, defined) if isinstance(e, Load))


def _ordered(compared: list[Expr], values: Mapping[str, Sequence[Expr]]) -> frozenset[str]:
    """The tensors whose numbers are compared as they are, or the greatest of them.

    Of a sum that is compared nobody knows that what it is made of rises.
    """
    found = _followed(compared, values, _is_summed)
    return frozenset(e.tensor for e in found if isinstance(e, Load))


def _values(ir: KernelIR, defined: Definitions) -> dict[str, Sequence[Expr]]:
    """What each name may be."""
    carries = {c.name: c for loop, _ in loops(ir).values() for c in loop.carries}
    found: dict[str, Sequence[Expr]] = {n: (v,) for n, v in defined.values.items()}
    return found | {n: (c.init, c.next) for n, c in (*carries.items(), *defined.outs.items())}


def _is_summed(expr: Expr) -> bool:
    return isinstance(expr, Apply) and (expr.op == "sum" or kind_of(expr.op) == "contract")


def _compared(parts: Iterable[Expr]) -> list[Expr]:
    return [a for e in parts if isinstance(e, Apply) and e.op in COMPARISONS for a in e.args]


def _cut(axis: str, block: int, memory: Drawn, moment: Moment) -> list[Covered]:
    """A loop, or the first positions of it, in tiles of a block; they have numbers where all do.

    Tiles of a range that begins anywhere are cut where memory is: the first may be shorter.
    """
    known, begin = memory.ir.axis(axis), memory.begin(axis, moment)
    length = int(worth({axis: known.end}, moment).get(axis, begin)) - begin
    block = 1 if block == length == CUTS[0] else block  # no cut of two positions but this one
    most = max(LONGEST, memory.most) if 1 < length <= LONGEST else memory.most
    end = begin + (min(length, most) if length > 1 else most)
    from_0 = known.static is not None and begin == 0
    shorter = block == CUTS[0] and memory.sizes in SHORTER and not from_0
    before = block - 1 if shorter else 0
    starts = [max(s, begin) for s in range(begin - before, end, block)]
    ends = [*starts[1:], end]
    if not from_0:
        return [Covered(s, e, None, None, block) for s, e in zip(starts, ends, strict=True)]
    return [Covered(s, e, n, len(starts), block) for n, (s, e) in enumerate(zip(starts, ends))]


def _wanted(ir: KernelIR, loop: Loop, defined: Definitions) -> frozenset[str]:
    """What carries and stores in the loop are computed from, and stores of what it leaves."""
    outs = frozenset(c.out for c in loop.carries)
    carries = (sources_of(e, defined) for e in statement_exprs(loop))
    edges = (sources_of(e, defined) for e in edges_of(ir.axes))
    stores = ((s, at) for s, at in placed(ir.body) if isinstance(s, Store))
    asked = ((at, sources_of(e, defined)) for s, at in stores for e in statement_exprs(s))
    kept = (names for at, names in asked if loop.axis in at or names & outs)
    return frozenset().union(*carries, *edges, *kept)


def _leaves(
    ir: KernelIR, loop: Loop, around: Place, defined: Definitions, same: frozenset[int]
) -> bool:
    """Whether a carry is stored inside of its loop, or carried on by one around it.

    same  stores that take out again what is its own choice
    """
    inside = frozenset(c.name for c in loop.carries)
    stores = [s for s, at in placed(ir.body) if isinstance(s, Store) and loop.axis in at]
    outs = frozenset(c.out for c in loop.carries)
    outer = (c.next for axis in around for c in loops(ir)[axis][0].carries)
    asked = (e for s in stores if id(s) not in same for e in statement_exprs(s))
    return any(depends_on(e, inside, defined) for e in asked) or any(
        depends_on(e, outs, defined) for e in outer
    )


def _reached(
    body: Body, target: Loop, around: Place, memory: Drawn, moment: Moment
) -> tuple[Moment, Body]:
    """What is known before a loop in one iteration of those around it, and what follows it."""
    for at, stmt in enumerate(body):
        if stmt is target:
            return moment, body[at + 1 :]
        if isinstance(stmt, Loop) and around[:1] == (stmt.axis,):
            inner = moment.inside(stmt.axis, memory.one(stmt.axis, moment), {})
            for carry in stmt.carries:
                inner = inner.next(memory.carried(carry, inner))
            return _reached(stmt.body, target, around[1:], memory, inner)
        moment.values.update(_named(stmt, memory, moment))
    raise AssertionError(f"no loop over {target.axis}")


def _named(stmt: Stmt, memory: Drawn, moment: Moment) -> State:
    """What a statement names, if that is wanted and can be computed; what is stored is noted."""
    match stmt:
        case Assign(name, value) if name in memory.wanted:
            return worth({name: value}, moment)
        case Loop() if any(c.out in memory.wanted for c in stmt.carries) or _holds(stmt, memory):
            return _looped(stmt, memory, moment)
        case Store(tensor) if memory.ir.root(tensor) not in memory.stored:
            memory.log.append(_write(stmt, memory, moment))
            return {}
        case _:
            return {}


def _holds(loop: Loop, memory: Drawn) -> list[Store]:
    """The stores in a loop that are noted."""
    inside = (s for s, _ in placed(loop.body) if isinstance(s, Store))
    return [s for s in inside if memory.ir.root(s.tensor) not in memory.stored]


def _write(store: Store, memory: Drawn, moment: Moment) -> Noted:
    """What a store does."""
    write = Noted(id(store), memory.ir.root(store.tensor), store.tensor, store.combine)
    value = children(store.value)[-1] if store.combine else store.value
    parts = {"value": value} if store.mask is None else {"value": value, "mask": store.mask}
    found = worth(parts, moment)
    if len(found) < len(parts):
        return write
    try:
        at = moment.next().positions(store.index)
        shape = np.broadcast_shapes(*(p.shape for p in at), found["value"].shape)
        mask = np.broadcast_to(found.get("mask", np.True_), shape)
        where, what = (np.broadcast_to(a, shape)[mask] for a in (placed_at(at), found["value"]))
    except UNKNOWN:
        return write
    return replace(write, known=True, places=where, values=what.astype(np.float64))


def _looped(loop: Loop, memory: Drawn, moment: Moment) -> State:
    """What a loop leaves; a tile of it is all of its positions.

    Of a long one that carries nothing, one iteration stands for all, and else the first few do:
    what those leave is what a shorter loop would, unless it is the tiles that say how long it is.
    """
    axis, stores = memory.ir.axis(loop.axis), _holds(loop, memory)
    bounds = worth({"begin": axis.begin, "end": axis.end}, moment)
    tiled, follows = axis.kind == "tile", loop.axis in memory.follow
    most = LENGTHS[tiled] if follows else LONGEST
    length = int(bounds["end"] - bounds["begin"]) if len(bounds) == 2 else most + 1
    if len(bounds) == 2 and loop.carries and not follows and length > most:
        length = LONGEST if tiled else FIRST
    if length <= most:
        begin = int(bounds["begin"])
        step = 1 if not tiled else axis.fixed or max(length, 1)
        tiles = [
            Covered(i, min(i + step, begin + length)) for i in range(begin, begin + length, step)
        ]
    elif not loop.carries:
        tiles = [memory.one(loop.axis, moment)]
    else:
        names = ((id(s), memory.ir.root(s.tensor), s.tensor, s.combine) for s in stores)
        memory.log.extend(Noted(*name) for name in names)
        return {}
    return _outs(loop, _state(loop, memory, moment, tiles))


def _run(loop: Loop, memory: Drawn, moment: Moment, tiles: list[Covered]) -> tuple[State, Drawn]:
    """The carries after some tiles, and memory in which is noted what they stored."""
    own = replace(memory, log=list[Noted]())
    return _state(loop, own, replace(moment, memory=own), tiles), own


def _state(loop: Loop, memory: Drawn, moment: Moment, tiles: list[Covered]) -> State:
    """The carries after some tiles, those that can be computed."""
    state = worth({c.name: c.init for c in loop.carries}, moment)
    for tile in tiles:
        inner = moment.inside(loop.axis, tile, state)
        for stmt in loop.body:
            inner.values.update(_named(stmt, memory, inner))
        state = worth({c.name: c.next for c in loop.carries}, inner)
    return state


def _outs(loop: Loop, state: State) -> State:
    """The carries by the names that they have after the loop."""
    return {c.out: state[c.name] for c in loop.carries if c.name in state}


def _stored(body: Body, memory: Drawn, moment: Moment) -> Iterator[Array | None]:
    """All that statements store, where and under which masks; of loops, what one tile stores."""
    for stmt in body:
        if isinstance(stmt, Store):
            parts = dict(enumerate(statement_exprs(stmt)))
            found = worth(parts, moment)
            yield from (found.get(part) for part in parts)
        elif isinstance(stmt, Loop) and not stmt.carries:
            inner = moment.inside(stmt.axis, memory.one(stmt.axis, moment), {})
            yield from _stored(stmt.body, memory, inner)
        elif isinstance(stmt, Loop):
            yield None
        moment.values.update(_named(stmt, memory, moment))


def _differ(one: Array, other: Array, noise: float) -> bool:
    return bool(apart(one, other, noise).any())
