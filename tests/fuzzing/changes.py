"""changed(program, rng) -> Program: with one unusual thing more, a dimension that is drawn.

Each change is a function of its own, and knows nothing of the others.  It may give a program that
means nothing (`compose.py` drops those), one that must be refused, or None where it has no place.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from tests.fuzzing.program import (
    Axis,
    Binary,
    Chosen,
    Dot,
    If,
    Joined,
    Let,
    Load,
    Loop,
    Mask,
    Masked,
    Native,
    Number,
    Pick,
    Program,
    Reduce,
    Ref,
    Scalar,
    Statement,
    Store,
    Swap,
    Tensor,
    Term,
    Update,
    Value,
    Whole,
    extent,
    fitted,
    parts,
)

STATISTICS = ("min", "mean", "var", "argmax")
WHOLE = ("//", "%", "&", "|", "^", "<<", ">>", "where")
Change = Callable[[Program, random.Random], Program | None]


@dataclass(frozen=True)
class Site:
    """A node, and the loops that are open there from outer to inner."""

    node: Any
    open: tuple[str, ...]


def sites(node: Any, opened: tuple[str, ...] = ()) -> Iterator[Site]:
    """Every statement, value and pick with the loops around it."""
    if isinstance(node, tuple):
        for entry in node:
            yield from sites(entry, opened)
    elif isinstance(node, Statement | Value | Pick | Mask):
        yield Site(node, opened)
        inner = (*opened, node.axis) if isinstance(node, Loop) else opened
        for field in fields(node):
            yield from sites(getattr(node, field.name), inner)


def swapped(node: Any, old: Any, new: Any) -> Any:
    """`new` in the place of `old`, which is found by what it is, not by what it equals."""
    if node is old:
        return new
    if isinstance(node, tuple):
        found: list[Any] = []
        for entry in node:
            other = swapped(entry, old, new)
            spread = entry is old and isinstance(new, tuple)
            found += other if spread else [other]
        return tuple(found)
    if not isinstance(node, Statement | Value | Pick | Mask):
        return node
    return replace(node, **{f.name: swapped(getattr(node, f.name), old, new) for f in fields(node)})


def mapped(node: Any, change: Callable[[Any], Any]) -> Any:
    """What becomes of every statement and value, those inside of others first."""
    if isinstance(node, tuple):
        return tuple(mapped(entry, change) for entry in node)
    if not isinstance(node, Statement | Value):
        return node
    return change(
        replace(node, **{f.name: mapped(getattr(node, f.name), change) for f in fields(node)})
    )


def _picked(program: Program, rng: random.Random, kinds: tuple[str, ...]) -> Site | None:
    """A pick of an axis of these kinds that is not looked up."""
    by_name = {a.name: a for a in program.axes}
    found = [
        site
        for site in sites(program.body)
        if isinstance(site.node, Pick)
        and not site.node.through
        and site.node.axis
        and by_name[site.node.axis].kind in kinds
    ]
    return rng.choice(found) if found else None


def _fresh(program: Program, prefix: str) -> str:
    used = {t.name for t in program.tensors} | {a.name for a in program.axes}
    return next(name for n in range(1, 1000) if (name := f"{prefix}{n}") not in used)


def _grids(program: Program, site: Site) -> list[Axis]:
    return [program.axis(n) for n in site.open if program.axis(n).kind == "grid"]


# ---------------------------------------------------------------- positions


def moved(program: Program, rng: random.Random) -> Program | None:
    """An offset or a factor, of one access, or of every access to that array."""
    site = _picked(program, rng, ("grid", "tile"))
    if site is None:
        return None
    grid = program.axis(site.node.axis).kind == "grid"
    shift, factor = rng.choice((1, 1, 2, 3, 5, 8, 16)), 1
    if rng.random() < (0.35 if grid else 0.1):
        factor, shift = rng.choice((2, 3, 8)), rng.choice((0, 1, 3))
    new = replace(site.node, shift=site.node.shift + shift, factor=site.node.factor * factor)
    return replace(program, body=swapped(program.body, site.node, new))


def lifted(program: Program, rng: random.Random) -> Program | None:
    """Tiles that are stored whole tiles further on, mostly of a range that memory holds."""
    found = [
        pick
        for store in parts(program.body)
        if isinstance(store, Store)
        for pick in store.index
        if pick.axis
        and program.axis(pick.axis).kind == "tile"
        and not (pick.through or pick.number)
    ]
    if not found:
        return None
    pick = rng.choice(found)
    new = replace(pick, shift=pick.shift + rng.choice((8, 16, 16, 24, 32)))
    program = replace(program, body=swapped(program.body, pick, new))
    return measured(program, rng) or program


def chunked(program: Program, rng: random.Random) -> Program | None:
    """A static tile as one of several chunks: c * C + t.index, in a loop around or inside."""
    own = [a for a in program.axes if a.kind == "tile" and not (a.offsets or a.length)]
    taken = {a.until for a in program.axes}
    own = [a for a in own if not a.until and (a.name not in taken or rng.random() < 0.8)]
    if not own:
        return None
    axis, count = rng.choice(own), rng.randint(2, 4)
    chunk = Axis(_fresh(program, "k"), "grid", count)
    length = axis.size if rng.random() < 0.8 else rng.choice((8, axis.size + 3))
    together = {axis.name} | {a.name for a in program.axes if a.until == axis.name}
    outside = rng.random() < 0.5

    def rewritten(node: Any, inside: bool) -> Any:
        if isinstance(node, tuple):
            return tuple(rewritten(e, inside) for e in node)
        if isinstance(node, Pick) and inside and node.axis in together:
            return replace(node, terms=(*node.terms, Term(chunk.name, "", length)))
        if isinstance(node, Loop) and node.axis == axis.name:
            body = rewritten(node.body, True)
            if outside:
                return Loop(chunk.name, (replace(node, body=body, joint=False),))
            return replace(node, body=(Loop(chunk.name, body),), joint=False)
        if not isinstance(node, Statement | Value | Pick | Mask):
            return node
        return replace(
            node, **{f.name: rewritten(getattr(node, f.name), inside) for f in fields(node)}
        )

    return replace(program, axes=(*program.axes, chunk), body=rewritten(program.body, False))


def placed(program: Program, rng: random.Random) -> Program | None:
    """A scalar from memory in a position, or a dimension more that has only that position."""
    site = _picked(program, rng, ("grid", "tile"))
    if site is None:
        return None
    term, tensors = _scalar(program, site, rng, rng.choice((1, 2, 9)))
    if rng.random() < 0.6:
        new = replace(site.node, terms=(*site.node.terms, term))
        return replace(program, tensors=tensors, body=swapped(program.body, site.node, new))
    accesses = [s for s in sites(program.body) if isinstance(s.node, Load | Store)]
    access = rng.choice(accesses)
    if len(access.node.index) > 3 or _uses(program, access.node.tensor) > 1:
        return None
    term, tensors = _scalar(program, access, rng, rng.choice((1, 3, 9)))
    new = replace(access.node, index=(Pick("", terms=(term,)), *access.node.index))
    return replace(program, tensors=tensors, body=swapped(program.body, access.node, new))


def _uses(program: Program, tensor: str) -> int:
    return sum(isinstance(p, Load | Store) and p.tensor == tensor for p in parts(program.body))


def _scalar(
    program: Program, site: Site, rng: random.Random, limit: int
) -> tuple[Term, tuple[Tensor, ...]]:
    """A term that reads a new tensor, or offsets that there are, and the tensors with it."""
    grids = _grids(program, site)
    known = [t for t in program.tensors if t.role == "offsets"]
    owners = [(g, t) for g in grids for t in known if t.shape[0] == g.size + 1]
    if owners and rng.random() < 0.4:
        grid, tensor = rng.choice(owners)
        return Term(grid.name, tensor.name), program.tensors
    name = _fresh(program, "s")
    axis = rng.choice(grids) if grids and rng.random() < 0.5 else None
    shape = (axis.size,) if axis else ()
    made = Tensor(name, shape, "int32", "index", limit=limit)
    return Term(axis.name if axis else "", name), (*program.tensors, made)


# ---------------------------------------------------------------- ranges and conditions


def measured(program: Program, rng: random.Random) -> Program | None:
    """A static loop to a length that is read from memory."""
    found = [
        s
        for s in sites(program.body)
        if isinstance(s.node, Loop) and not _given(program.axis(s.node.axis))
    ]
    if not found:
        return None
    site = rng.choice(found)
    axis = program.axis(site.node.axis)
    loops = [s for s in found if s.node.axis == axis.name]
    grids = _grids(program, site)
    of = rng.choice(grids) if grids and len(loops) == 1 and rng.random() < 0.6 else None
    name = _fresh(program, "n")
    shape = (of.size,) if of else ()
    tensor = Tensor(name, shape, "int32", "index", limit=axis.size + 1)
    new = replace(axis, length=name, of=of.name if of else "")
    axes = tuple(new if a == axis else a for a in program.axes)
    return replace(program, axes=axes, tensors=(*program.tensors, tensor))


def _given(axis: Axis) -> bool:
    return bool(axis.offsets or axis.length)


def conditional(program: Program, rng: random.Random) -> Program | None:
    """A statement, or a loop, under a condition; perhaps with another branch."""
    found = [
        s
        for s in sites(program.body)
        if isinstance(s.node, Loop | Store | Update | If) and (s.open or isinstance(s.node, Loop))
    ]
    site = rng.choice(found)
    what, term, below, tensors = "term", Term(), rng.choice((1, 1, 2)), program.tensors
    tiles = [n for n in site.open if program.axis(n).kind == "tile"]
    ragged = [a for a in program.axes if a.offsets and not a.until and a.of in site.open]
    kind = rng.choice(("memory", "memory", "index", "begin", "rows"))
    grids = _grids(program, site)
    if kind == "begin" and tiles:
        what, term, below = "begin", Term(rng.choice(tiles)), 10_000
    elif kind == "rows" and ragged:
        what, term, below = "rows", Term(rng.choice(ragged).name), rng.choice((1, 8, 20))
    elif kind == "index" and grids:
        term, below = Term(rng.choice(grids).name), rng.randint(1, 3)
    else:
        term, tensors = _scalar(program, site, rng, 3)
    other: tuple[Statement, ...] = ()
    if isinstance(site.node, Update) and rng.random() < 0.3:
        other = (replace(site.node, value=Ref(site.node.name)),) if site.node.op == "max" else ()
    new = If(term, below, (site.node,), other, what)
    return replace(program, tensors=tensors, body=swapped(program.body, site.node, new))


# ---------------------------------------------------------------- stores


def filled(program: Program, rng: random.Random) -> Program | None:
    """Another fill of an output, or an argument in its place that is changed."""
    if not program.outputs:
        return None
    output = rng.choice(program.outputs)
    new = replace(output, fill=rng.choice((0.0, 3.0, -1.5, None)))
    if rng.random() < 0.5:
        new = replace(output, role="changed", fill=None)
    return replace(program, tensors=tuple(new if t == output else t for t in program.tensors))


def combined(program: Program, rng: random.Random) -> Program | None:
    """A store that adds to what is there, or takes the maximum."""
    stores = [s.node for s in sites(program.body) if isinstance(s.node, Store)]
    stores = [s for s in stores if not s.combine and not any(p.through for p in s.index)]
    if not stores:
        return None
    store = rng.choice(stores)
    new = replace(store, combine=rng.choice(("sum", "max")), atomic=rng.random() < 0.4)
    tensor = program.tensor(store.tensor)
    plain = replace(tensor, dtype="float32")
    if plain.role == "output" and plain.fill is None:
        plain = replace(plain, fill=0.0)
    tensors = tuple(plain if t == tensor else t for t in program.tensors)
    return replace(program, tensors=tensors, body=swapped(program.body, store, new))


def stored(program: Program, rng: random.Random) -> Program | None:
    """A carry that is stored in every step of its loop."""
    updates = [s for s in sites(program.body) if isinstance(s.node, Update)]
    if not updates:
        return None
    site = rng.choice(updates)
    found = [p for p in parts(program.body) if getattr(p, "name", "") == site.node.name]
    dims = next((p.dims for p in found if hasattr(p, "dims")), ())
    grids = [n for n in site.open[:-1] if program.axis(n).kind == "grid"]
    last = (site.open[-1],) if program.axis(site.open[-1]).kind == "grid" else ()
    axes = [*grids, *(last if rng.random() < 0.5 else ()), *dims]
    if not axes or len(axes) > 4:
        return None
    name = _fresh(program, "z")
    fill = rng.choice((0.0, 3.0, None))
    store = Store(name, tuple(Pick(a) for a in axes), Ref(site.node.name))
    tensors = (*program.tensors, Tensor(name, (), "float32", "output", fill))
    both = (site.node, store)
    return replace(program, tensors=tensors, body=swapped(program.body, site.node, both))


def short(program: Program, rng: random.Random) -> Program | None:
    """An array that is shorter than what is read or written."""
    arrays = [t for t in program.tensors if t.role in ("input", "output", "changed")]
    tensor = rng.choice(arrays)
    new = replace(tensor, short=rng.choice((1, 1, 2, 5)))
    return replace(program, tensors=tuple(new if t == tensor else t for t in program.tensors))


def masked(program: Program, rng: random.Random) -> Program | None:
    """A load or a store under masks of its own: of lanes, open loops and numbers in memory."""
    found = [*_loads(program), *(s for s in sites(program.body) if isinstance(s.node, Store))]
    found = [s for s in found if s.open]
    if not found:
        return None
    site = rng.choice(found)
    early = 0.35 if isinstance(site.node, Store) else 0.2
    access = _before(program, site.node, rng) if rng.random() < early else site.node
    masks = [Mask(p, extent(program, p)) for p in access.index if p.shift < 0]
    for _ in range(rng.choice((1, 1, 2)) if not masks else 0):
        pick, program = _stated(program, site, rng)
        last = extent(program, pick)
        first = rng.randint(1, max(last // 2, 1)) if rng.random() < 0.2 else 0
        nothing = isinstance(access, Load) and rng.random() < 0.1  # of an array without rows, too
        masks.append(Mask(pick, 0 if nothing else rng.randint(0, last + 1), first))
    new: Masked | Store
    if isinstance(access, Store):
        new = replace(access, masks=(*access.masks, *masks))
    else:
        new = Masked(access, tuple(masks), rng.choice((0.0, 0.5, -3.0, 7.0)))
    return replace(program, body=swapped(program.body, site.node, new))


def whole(program: Program, rng: random.Random) -> Program | None:
    """Arithmetic of whole numbers."""
    loads = [s.node for s in _loads(program) if program.tensor(s.node.tensor).role == "input"]
    if not loads:
        return None
    load, op = rng.choice(loads), rng.choice(list(WHOLE))
    by = rng.choice((1, 2, 5)) if op in ("<<", ">>") else rng.choice((-5, -3, 1, 2, 4, 7))
    old = program.tensor(load.tensor)
    tensors = tuple(replace(t, dtype="int32") if t == old else t for t in program.tensors)
    body = swapped(program.body, load, Whole(op, load, by))
    return replace(program, tensors=tensors, body=body)


def _loads(program: Program) -> list[Site]:
    """Loads that are values of their own."""
    every = list(parts(program.body))
    under = {id(p.load) for p in every if isinstance(p, Masked | Whole | Chosen)}
    under |= {id(load) for p in every if isinstance(p, Native) for load in (p.left, p.right)}
    return [s for s in sites(program.body) if isinstance(s.node, Load) and id(s.node) not in under]


def scaled(program: Program, rng: random.Random) -> Program | None:
    """A number from memory, or a loop's, in the arithmetic of a value."""
    found = [s for s in _loads(program) if s.open]
    if not found:
        return None
    site = rng.choice(found)
    grids, tensors = _grids(program, site), program.tensors
    if grids and rng.random() < 0.3:
        term = Term(rng.choice(grids).name)
    else:
        term, tensors = _scalar(program, site, rng, rng.choice((1, 5)))
    value = Binary(rng.choice(("+", "*", "max")), site.node, Scalar(term))
    return replace(program, tensors=tensors, body=swapped(program.body, site.node, value))


def chosen(program: Program, rng: random.Random) -> Program | None:
    """A value where an array of bools holds."""
    found = _loads(program)
    if not found:
        return None
    load, name = rng.choice(found).node, _fresh(program, "b")
    index = tuple(p for p in load.index if rng.random() < 0.7) or load.index
    pair = rng.sample((load, Number(0.5)), 2)
    value = Chosen(Load(name, index), *pair)
    tensors = (*program.tensors, Tensor(name, (), "bool", "input"))
    return replace(program, tensors=tensors, body=swapped(program.body, load, value))


CUTS = ("", "pairs", "halves", "parts", "middle")


def summarised(program: Program, rng: random.Random) -> Program | None:
    """A statistic of a whole dimension, or of two values one behind the other."""
    kinds = {a.name: a.kind for a in program.axes}
    found = [s.node for s in _loads(program)]
    pairs = [(x, p.axis) for x in found for p in x.index if kinds.get(p.axis) == "full"]
    if not pairs:
        return None
    load, axis = rng.choice(pairs)
    value: Value = Reduce(rng.choice(STATISTICS), axis, load)
    if rng.random() < 0.4:
        other, cut = Binary("*", load, Number(0.5)), rng.choice(CUTS)
        value = Joined(rng.choice(("sum", "max")), axis, load, other, cut)
    elif random.Random(f"{load} {axis}").random() < 0.5:  # each row by itself
        value = Dot(axis, load, Binary("*", load, Number(0.5)))
    value = Binary(rng.choice(("+", "-", "max")), load, value)
    return replace(program, body=swapped(program.body, load, value))


def exchanged(program: Program, rng: random.Random) -> Program | None:
    """Two carries that change places in every iteration of a loop over single positions."""
    kinds = {a.name: a.kind for a in program.axes}
    found = [s for s in sites(program.body) if isinstance(s.node, Update) and s.node.op == "sum"]
    found = [s.node for s in found if kinds[s.open[-1]] == "grid"]
    if not found:
        return None
    update = rng.choice(found)
    other = f"{update.name}_other"
    body = swapped(program.body, update, Swap(update.name, other, update.value))
    lets = {p.name: p for p in parts(body) if isinstance(p, Let)}
    if other in lets or update.name not in lets:
        return None
    let = lets[update.name]
    start = Let(other, let.dims, Number(rng.choice((0.0, 2.0))))
    return replace(program, body=swapped(body, let, (let, start)))


def reread(program: Program, rng: random.Random) -> Program | None:
    """What was stored is read and stored once more; or two rows of an array change places."""
    found = [s for s in sites(program.body) if isinstance(s.node, Store) and not s.node.masks]
    found = [s for s in found if program.tensor(s.node.tensor).fill is not None]
    if not found:
        return None
    site = rng.choice(found)
    store, name = site.node, _fresh(program, "w")
    dims = _along(program, site)
    if rng.random() < 0.6:
        again = Load(store.tensor, store.index)
        kept = Let(name, dims, again)
        last = Store(store.tensor, store.index, Binary("-", Binary("+", again, again), Ref(name)))
        new = (store, replace(last, value=Number(2.0)), kept, last)
        new = rng.choice(
            (new, (kept, store, last), (store, kept, last, replace(last, value=again)))
        )
        return replace(program, body=swapped(program.body, store, new))
    one, two = (Load(name, (Pick("", n), *store.index)) for n in (0, 1))
    if any(p.through for p in store.index):
        return None
    tensor = Tensor(name, (), "float32", "changed")
    new = (
        store,
        Let(f"{name}a", dims, one),
        Let(f"{name}b", dims, two),
        Store(name, one.index, Ref(f"{name}b")),
        Store(name, two.index, Ref(f"{name}a")),
        Store(name, one.index, Binary("+", one, two)),
    )[: rng.choice((5, 6))]
    return replace(
        program, tensors=(*program.tensors, tensor), body=swapped(program.body, store, new)
    )


def _along(program: Program, site: Site) -> tuple[str, ...]:
    """The dimensions of what is stored, as loops are nested, whole ones last."""
    held = {p.axis for p in site.node.index if p.axis}
    whole = [a.name for a in program.axes if a.kind == "full"]
    return tuple(d for d in (*site.open, *whole) if d in held and program.axis(d).kind != "grid")


def _before(program: Program, access: Any, rng: random.Random) -> Any:
    """The access, begun before the array."""
    tiles = [p for p in access.index if p.axis and program.axis(p.axis).kind == "tile"]
    tiles = [p for p in tiles if not p.through]
    if not tiles:
        return access
    old = rng.choice(tiles)
    new = replace(old, shift=old.shift - rng.choice((1, 3, 8)))
    return replace(access, index=swapped(access.index, old, new))


def _stated(program: Program, site: Site, rng: random.Random) -> tuple[Pick, Program]:
    """A position that a mask is about, and the program with what it reads."""
    places = [p for p in site.node.index if p.axis and program.axis(p.axis).kind != "full"]
    held = {p.axis for p in site.node.index}
    names = [n for n in site.open if program.axis(n).kind == "grid" or n in held]
    kind = rng.choice(("place", "place", "loop", "memory"))
    if kind == "place" and places:
        return rng.choice(places), program
    if kind == "loop" and names:
        return Pick(rng.choice(names)), program
    term, tensors = _scalar(program, site, rng, 4)
    return Pick("", terms=(term,)), replace(program, tensors=tensors)


def dropped(program: Program, rng: random.Random) -> Program | None:
    """A store without one of its dimensions: of several iterations the last one stays."""
    stores = [s.node for s in sites(program.body) if isinstance(s.node, Store)]
    store = rng.choice(stores)
    kinds = {a.name: a.kind for a in program.axes}
    places = [n for n, p in enumerate(store.index) if p.axis and kinds[p.axis] == "grid"]
    if not places or len(store.index) == 1 or _uses(program, store.tensor) > 1:
        return None
    place = rng.choice(places)
    new = replace(store, index=store.index[:place] + store.index[place + 1 :])
    return replace(program, body=swapped(program.body, store, new))


CHANGES: Mapping[str, tuple[Change, float]] = {
    "moved": (moved, 3),
    "lifted": (lifted, 0.6),
    "chunked": (chunked, 1.5),
    "placed": (placed, 1.5),
    "measured": (measured, 1),
    "conditional": (conditional, 1.5),
    "filled": (filled, 1),
    "combined": (combined, 1),
    "stored": (stored, 0.7),
    "masked": (masked, 1),
    "reread": (reread, 0.7),
    "whole": (whole, 0.5),
    "scaled": (scaled, 0.6),
    "chosen": (chosen, 0.6),
    "summarised": (summarised, 0.8),
    "exchanged": (exchanged, 1.5),
    "dropped": (dropped, 0.3),
    "short": (short, 0.25),
}


def changed(program: Program, rng: random.Random) -> tuple[str, Program] | None:
    """One change by chance, with its name."""
    name = rng.choices(list(CHANGES), [weight for _, weight in CHANGES.values()])[0]
    found = CHANGES[name][0](program, rng)
    return None if found is None else (name, fitted(found))
