"""compose(seed) -> Composed: a drawn kernel with a few unusual things, and their names."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.fuzzing.added import added
from tests.fuzzing.apart import permuted, sliced
from tests.fuzzing.beside import beside
from tests.fuzzing.biased import biased
from tests.fuzzing.carried import carried
from tests.fuzzing.changes import changed, swapped
from tests.fuzzing.clipped import clipped
from tests.fuzzing.counted import counted
from tests.fuzzing.derived import derived
from tests.fuzzing.draw import draw
from tests.fuzzing.ends import ends
from tests.fuzzing.folded import folded
from tests.fuzzing.guarded import guarded
from tests.fuzzing.headed import headed
from tests.fuzzing.inputs import case
from tests.fuzzing.kept import kept
from tests.fuzzing.layered import layered
from tests.fuzzing.limited import limited
from tests.fuzzing.mirrored import mirrored
from tests.fuzzing.mixed import mixed
from tests.fuzzing.narrow import narrowed
from tests.fuzzing.parted import parted
from tests.fuzzing.program import (
    Axis,
    Binary,
    Dot,
    Number,
    Program,
    Reduce,
    TileNumber,
    Value,
    from_0,
    parts,
)
from tests.fuzzing.ranked import ranked
from tests.fuzzing.recalled import recalled
from tests.fuzzing.relocated import relocated
from tests.fuzzing.repeated import repeated
from tests.fuzzing.shared import shared
from tests.fuzzing.small import (
    attention,
    boxes,
    grouped,
    lanes,
    paged,
    scaled,
    scaled_twice,
    small,
)
from tests.fuzzing.stepped import stepped
from tests.fuzzing.tailed import tailed
from tests.fuzzing.tallied import tallied
from tests.fuzzing.text import source
from tests.fuzzing.turned import turned
from tests.fuzzing.views import rewritten, viewed
from tests.fuzzing.weighed import weighed

LARGEST = 60  # nodes of a large kernel, which makes one compile slow
MOST = 4  # changes
SOFTMAX = 0.12  # of the programs
GUARDED = 0.5  # of those
PAGED = 0.1  # of the programs
TALLIED = 0.1  # of the programs that store at one tile
KEPT = 0.15  # of the programs that have such a sum
LAYERED = 0.08  # of the programs
GROUPED = 0.08  # of the programs
SCALED = 0.04  # of the programs
BOXES = 0.06  # of the programs
ADDED = 0.04  # of the programs
LANES = 0.08  # of the programs
TWICE = 0.06  # of the programs
REPEATED = 0.05  # of the programs
CARRIED = 0.06  # of the programs
WEIGHED = 0.05  # of the programs
RANKED = 0.04  # of the programs
REWRITTEN = 0.05  # of the programs
VIEWED = 0.3  # of the programs
ALWAYS = 0.9  # of those that are rewritten
RELOCATED = 0.07  # of the programs
HEADED = 0.3  # of the programs with inputs that have columns
BESIDE = 0.04  # of the programs
SHARED = 0.12  # of the programs with an input that is loaded at an index
TILES = 0.05  # of the programs count tiles of open blocks
NARROW = 0.35  # of the programs have arrays of narrower dtypes
TURNED = 0.06  # of the programs that have a sum
STEPPED = 0.12  # of the programs with ragged loops
PARTED = 0.08  # of the programs with a loop over tiles
BIASED = 0.1  # of the programs whose values have positions
SLICED = 0.2  # of the programs with ragged loops
PERMUTED = 0.12  # of the programs with loops over single positions
FIXED = 0.12  # of the programs have a block_size
COUNTED = 0.4  # of those with products along a loop whose tiles can be counted
ENDS = 0.08  # of the programs with ragged loops
CLIPPED = 0.06  # of the programs that reduce tiles
LIMITED = 0.08  # of the programs
TAILED = 0.08  # of the programs that store whole columns
MIXED = 0.1  # of the programs with tiles
DERIVED = 0.12  # of the programs
MIRRORED = 0.1  # of the programs with loops over single positions
RECALLED = 0.1  # of the programs that store in loops over single positions
FOLDED = 0.12  # of the programs with columns that nothing sums along
AS_THEY_ARE = 0.7  # of those, which changes make something else of
LAST = (
    ("parted", parted, PARTED),
    ("biased", biased, BIASED),
    ("sliced", sliced, SLICED),
    ("permuted", permuted, PERMUTED),
    ("ends", ends, ENDS),
    ("folded", folded, FOLDED),
    ("clipped", clipped, CLIPPED),
    ("limited", limited, LIMITED),
    ("tailed", tailed, TAILED),
    ("mixed", mixed, MIXED),
    ("derived", derived, DERIVED),
    ("mirrored", mirrored, MIRRORED),
    ("recalled", recalled, RECALLED),
)  # changes that others know nothing of, in this order


@dataclass(frozen=True)
class Composed:
    """A program, and the changes that made it."""

    program: Program
    changes: tuple[str, ...]


def compose(seed: int, sized: bool = True) -> Composed:
    """The program of a seed; every seed gives one that means something.

    sized  whether the author may give a block_size, and narrower dtypes
    """
    for attempt in range(100):
        rng = random.Random(f"{seed} {attempt}")
        softmax = random.Random(f"softmax {seed} {attempt}").random() < SOFTMAX
        boxed = tiles = again = moved = False
        if random.Random(f"paged {seed} {attempt}").random() < PAGED:
            program, softmax = paged(rng), False
        elif random.Random(f"grouped {seed} {attempt}").random() < GROUPED:
            program, softmax = grouped(rng), False
        elif random.Random(f"scaled {seed} {attempt}").random() < SCALED:
            program, softmax = scaled(rng), False
        elif sized and random.Random(f"lanes {seed} {attempt}").random() < LANES:
            program, softmax = lanes(rng), False
        elif sized and random.Random(f"twice {seed} {attempt}").random() < TWICE:
            program, softmax = scaled_twice(rng), False
        elif tiles := sized and random.Random(f"tiles {seed} {attempt}").random() < TILES:
            program, softmax = counted(rng), False
        elif sized and random.Random(f"carried {seed} {attempt}").random() < CARRIED:
            program, softmax = carried(rng), False
        elif sized and random.Random(f"weighed {seed} {attempt}").random() < WEIGHED:
            program, softmax = weighed(rng), False
        elif again := sized and random.Random(f"rewritten {seed} {attempt}").random() < REWRITTEN:
            program, softmax = rewritten(rng), False
        elif sized and random.Random(f"beside {seed} {attempt}").random() < BESIDE:
            program, softmax = beside(rng), False
        elif moved := sized and random.Random(f"moved {seed} {attempt}").random() < RELOCATED:
            program, softmax = relocated(rng), False
        elif sized and random.Random(f"repeated {seed} {attempt}").random() < REPEATED:
            program, softmax = repeated(rng), False
        elif boxed := random.Random(f"boxes {seed} {attempt}").random() < BOXES:
            program, softmax = boxes(rng), False
        elif sized and random.Random(f"ranked {seed} {attempt}").random() < RANKED:
            program, softmax = ranked(rng), False
        elif sized and random.Random(f"added2 {seed} {attempt}").random() < ADDED:
            program, softmax = added(rng), False
        else:
            program = attention(rng) if softmax else _one(rng)
            own = random.Random(f"guarded {seed} {attempt}")
            if softmax and own.random() < GUARDED:
                program = guarded(program, own)
        if not means_something(program):
            continue
        changes = ["rewritten"] * again + ["relocated"] * moved
        as_it_is = (boxed or tiles or again or moved) and rng.random() < AS_THEY_ARE
        for _ in range(0 if as_it_is else rng.randint(1, MOST)):
            found = changed(program, rng)
            if found is not None and means_something(found[1]):
                changes.append(found[0])
                program = found[1]
        if random.Random(f"kept {seed} {attempt}").random() < KEPT:
            made = kept(program, random.Random(f"which {seed} {attempt}"))
            if made is not None and means_something(made):
                program, changes = made, [*changes, "kept"]
        if random.Random(f"tallied {seed} {attempt}").random() < TALLIED:
            made = tallied(program, random.Random(f"places {seed} {attempt}"))
            if made is not None and means_something(made):
                program, changes = made, [*changes, "tallied"]
        if random.Random(f"layered {seed} {attempt}").random() < LAYERED:
            made = layered(program, random.Random(f"planes {seed} {attempt}"))
            if made is not None and means_something(made):
                program, changes = made, [*changes, "layered"]
        if random.Random(f"shared {seed} {attempt}").random() < SHARED:
            made = shared(program, random.Random(f"heads {seed} {attempt}"))
            if made is not None and means_something(made):
                program, changes = made, [*changes, "shared"]
        if sized and random.Random(f"stepped {seed} {attempt}").random() < STEPPED:
            made = stepped(program, random.Random(f"pages {seed} {attempt}"))
            if made is not None and means_something(made):
                program, changes = made, [*changes, "stepped"]
        if sized and random.Random(f"turned {seed} {attempt}").random() < TURNED:
            made = turned(program, random.Random(f"signs {seed} {attempt}"))
            if made is not None and means_something(made):
                program, changes = made, [*changes, "turned"]
        summed = {p.axis for p in parts(program.body) if isinstance(p, Dot)}
        often = COUNTED if any(is_counted(a, summed) for a in program.axes) else FIXED
        if sized and random.Random(f"fixed {seed} {attempt}").random() < often:
            program, changes = fixed(program, random.Random(f"block {seed}")), [*changes, "fixed"]
        if sized and random.Random(f"narrow {seed} {attempt}").random() < NARROW:
            made = narrowed(program, random.Random(f"dtypes {seed} {attempt}"))
            program, changes = made, [*changes, "narrowed"]
        likely = ALWAYS if again else VIEWED
        if sized and random.Random(f"viewed {seed} {attempt}").random() < likely:
            made = viewed(program, random.Random(f"views {seed} {attempt}"))
            if made is not None and means_something(made):
                program, changes = made, [*changes, "viewed"]
        if sized and random.Random(f"headed {seed} {attempt}").random() < HEADED:
            made = headed(program, random.Random(f"columns {seed} {attempt}"))
            if made is not None and means_something(made):
                program, changes = made, [*changes, "headed"]
        for name, change, often in LAST if sized else ():
            own = random.Random(f"{name} {seed} {attempt}")
            made = change(program, own) if own.random() < often else None
            if made is not None and means_something(made):
                another = {*made.tensors}.isdisjoint(program.tensors)  # of which nothing is left
                program, changes = made, [*([] if another else changes), name]
        if program.results:
            return Composed(program, tuple(changes))
    raise AssertionError(f"seed {seed} gives no program")


def seeds_of(first: int, count: int, change: str = "") -> Sequence[int]:
    """So many seeds from one on; those of programs with a change, if one is named."""
    if not change:
        return range(first, first + count)
    able = (seed for seed in itertools.count(first) if change in compose(seed).changes)
    return tuple(itertools.islice(able, count))


def fixed(program: Program, rng: random.Random) -> Program:
    """One of the loops over tiles has a block_size, by which values that are summed may go.

    Of those that products sum along, if there are any: defaults would take them whole.
    """
    tiles = [n for n, a in enumerate(program.axes) if a.kind == "tile"]
    for kind in (Reduce, Dot):
        summed = {p.axis for p in parts(program.body) if isinstance(p, kind)}
        tiles = [n for n in tiles if is_counted(program.axes[n], summed)] or tiles
    if not tiles:
        return program
    place, block = rng.choice(tiles), rng.choice((8, 16, 32))
    axes = (replace(a, block=block) if n == place else a for n, a in enumerate(program.axes))
    return numbered(replace(program, axes=tuple(axes)), program.axes[place].name)


def is_counted(axis: Axis, summed: Collection[str]) -> bool:
    """Whether the tiles of a summed loop begin at 0, and one position is in one of them."""
    return axis.name in summed and from_0(axis)


def numbered(program: Program, name: str) -> Program:
    """What products and sums along an axis take in is times the number of the tile."""
    body: Any = program.body if is_counted(program.axis(name), {name}) else ()
    for part in list(parts(body)):
        match part:
            case Dot(summed, left) if summed == name:
                body = swapped(body, part, replace(part, left=_times(left, name)))
            case Reduce("sum", summed, value) if summed == name:
                body = swapped(body, part, replace(part, value=_times(value, name)))
            case _:
                pass
    return replace(program, body=body) if body else program


def _times(value: Value, name: str) -> Value:
    return Binary("*", value, Binary("+", TileNumber(name), Number(1.0)))


def _one(rng: random.Random) -> Program:
    return small(rng) if rng.random() < 0.8 else _drawn(rng)


def _drawn(rng: random.Random) -> Program:
    """One of the larger programs that is not too large."""
    while True:
        program = draw(rng.randrange(1 << 30))
        if len(list(parts(program.body))) <= LARGEST:
            return program


def means_something(program: Program) -> bool:
    """Whether a program can be printed and evaluated: one that was made smaller may not be."""
    try:
        source(program)
        case(program, 0, blocks=())
    except (ValueError, KeyError, IndexError):
        return False
    return True
