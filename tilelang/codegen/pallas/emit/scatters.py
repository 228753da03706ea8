"""Scatters: loops that store rows one by one, to a block or by copies to where the array lies."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilelang.codegen.pallas.plan import types as plan
from tilelang.codegen.pallas.plan.physical import COPIES, FIRST
from tilelang.codegen.writer import Atom, Call, Node, filled, flat, inner

from . import ops
from .expressions import Printer
from .gathers import Words, beside, free_words, leads, loop, one_row, place_in, tile_start

STORE = """
@live
def {store}():
    @place
    @stored

"""
# The row that a lane goes to, and whether it goes anywhere.
PLACE_OF = """
def {place_of}({lane}):
    @place
    @live
    return {row}, {stored}

def {there}({row}):
    return {place}
"""
COPY = """
def {copy}({lane}, {row}):
    @made
"""
SOME = """
{first} = {number} * {together}
{stop} = {some_stop}

{places} = [({lane}, *{place_of}({lane})) for {lane} in {some_lanes}]
@alive
@moved
"""
EVERY, AT_MOST = "{first} + {number}", "jnp.minimum({first} + {number}, {stop} - 1)"
# Behind the last lane there is none.
ALIVE = """
{places} = [
    ({lane}, {row}, {stored} & ({first} + {number} < {stop}))
    for {number}, ({lane}, {row}, {stored}) in enumerate({places})
]
"""
# Rows are stored unread: the last one of every place.
REPLACED = """
{started} = 0
for {number}, ({lane}, {row}, {stored}) in enumerate({places}, 1):
    for _, {other}, {later} in {places}[{number}:]:
        {stored} &= ~({later} & ({other} == {row}))

    @pl.when({stored})
    def {start}():
        {row_copy}({lane}, {row}).start()

    {started} += jnp.where({stored}, 1, 0)

@wait
"""
# All places are fetched, changed in the order of the rows, and brought back.
CHANGED = """
{fetched} = 0
for {slot}, ({lane}, {row}, {stored}) in enumerate({places}):

    @pl.when({stored})
    def {start}():
        {fetch}({slot}, {row}).start()

    {fetched} += jnp.where({stored}, 1, 0)

@wait_for_places

{started} = 0
for {slot}, ({lane}, {row}, {stored}) in enumerate({places}):
    {following} = {together}  # the next one with the same place, or the end
    for {number} in reversed(range({slot} + 1, {together})):
        _, {other}, {later} = {places}[{number}]
        {same} = {later} & ({other_unit} == {unit})
        {following} = jnp.where({same}, {number}, {following})
    {last} = {stored} & ({following} == {together})

    @pl.when({stored})
    def {change}():
        @changed

    @pl.when({stored} & ({following} < {together}))
    def {hand_on}():
        {held}[{following}] = {held}[{slot}]

    @pl.when({last})
    def {start}():
        {bring_back}({slot}, {row}).start()

    {started} += jnp.where({last}, 1, 0)

@wait
"""
ONE = """
{row}, {stored} = {place_of}({lane})

@pl.when({stored})
def {store}():
    @steps

"""
WORDS = (
    "lane", "row", "stored", "later", "other", "same", "number", "first", "stop", "slot", "last",
    "following", "started", "fetched", "start", "change", "hand_on", "store", "chosen", "old",
    "places",
)  # fmt: skip
# Those that the scope of the step knows: a name is given out once.
FUNCTIONS = (
    "place_of", "there", "row_copy", "fetch", "bring_back", "store_some", "store_row",
)  # fmt: skip


@dataclass(frozen=True)
class Storing:
    """One store of rows: `held` is the scratch memory that they are read from."""

    printer: Printer
    write: plan.Write
    rows: plan.PutRows
    held: str
    words: Words
    indent: int

    @property
    def lanes(self) -> int:
        return self.printer.shape(self.rows.type.shape)[0]

    @property
    def new(self) -> str:
        """The row of the value that a lane stores."""
        return f"{self.held}[{one_row(self.rows, self.words['lane'])}]"

    def lane(self) -> Printer:
        """A printer of what depends on the lane."""
        scope = self.printer.scope()
        scope.lane = self.words["lane"]
        return scope


def put_rows(printer: Printer, write: plan.Write, value: Node, indent: int) -> list[str]:
    """The lines that store rows one by one, in order: the last one of several stays."""
    rows = write.rows
    assert rows is not None
    held = printer.names.scratch[rows.name]
    stored = ops.cast(value, rows.held, 2) if rows.held != write.value.type.dtype else value
    words = free_words(printer, *WORDS)
    if rows.far:
        words |= {name: printer.names.fresh(name) for name in FUNCTIONS}
    s = Storing(printer, write, rows, held, words, indent)
    moved = _far(s) if rows.far else _near(s)
    lines = [*inner(f"{held}[...]", stored, indent), "", *moved]
    return [" " * indent + line if line else "" for line in lines]


def _near(s: Storing) -> list[str]:
    live = inner("", Call("@pl.when", (s.lane().node(s.rows.live),)), s.indent + 4)
    place = inner(s.words["row"], s.lane().node(s.rows.place), s.indent + 8)
    body = filled(STORE, s.words, live=live, place=place, stored=_store(s))
    return loop(s.printer.names.fresh("store_row"), s.words["lane"], [*body, ""], s.lanes)


def _store(s: Storing) -> list[str]:
    """One row goes to its place; of narrow types, with the register tile around it."""
    row, start, tile = s.words["row"], s.words["start"], s.rows.tile
    rest = beside(s.printer, s.write.select)
    if tile == 1:
        place = f"{s.write.ref}[{row if leads(s.rows) else f'pl.ds({row}, 1)'}, {rest}]"
        return inner(place, _whole(s.rows, place, s.new), s.indent + 8)
    place = f"{s.write.ref}[pl.ds({start}, {tile}), {rest}]"
    return [f"{start} = {tile_start(row, tile)}", *_merged(s, place, f"{row} - {start}", 8)]


def _merged(s: Storing, place: str, number: str, depth: int) -> list[str]:
    """A row of a register tile changes, the others stay."""
    rows, chosen, old = s.rows, s.words["chosen"], s.words["old"]
    changed = _combined(rows, Atom(old), Atom(s.new))
    merged = Call("jnp.where", (Atom(chosen), changed, Atom(old)))
    return [
        f"{chosen} = {flat(ops.iota((rows.tile, 1), 0))} == {number}",
        f"{old} = {flat(ops.cast(Atom(place), rows.held, 2))}",
        *inner(place, ops.cast(merged, rows.type.dtype, 2), s.indent + depth),
    ]


def _whole(rows: plan.PutRows, place: str, new: str) -> Node:
    """What a row holds afterwards; narrow types are combined in wide ones."""
    wide = rows.combined_in
    if wide is None:
        return _combined(rows, Atom(place), Atom(new))
    old, added = (ops.cast(Atom(e), wide, 2) for e in (place, new))
    return ops.cast(_combined(rows, old, added), rows.type.dtype, 2)


def _combined(rows: plan.PutRows, old: Node, new: Node) -> Node:
    return new if rows.combine is None else ops.ELEMENTWISE[rows.combine](old, new)


# ---------------------------------------------------------------- where the array lies


def _far(s: Storing) -> list[str]:
    """Some rows at a time are on their way.

    Copies arrive in any order, so of several rows for one place only the last one is copied; where
    rows are changed, each of the others hands on what it made of the place.
    """
    w, rows, lanes = s.words, s.rows, s.lanes
    lines = [*_place_of(s), *_copies(s), ""]
    if rows.together == 1:
        return [*lines, *_one_by_one(s)]
    scope = s.printer.scope()
    scope.locals[FIRST.name] = w["first"]
    assert rows.stop is not None
    whole = lanes % rows.together == 0
    lane = (EVERY if whole else AT_MOST).format(**w)
    moved = (
        _changed(s)
        if rows.changes
        else filled(REPLACED, w, wait=_wait(w["row_copy"], w["started"]))
    )
    some = filled(
        SOME,
        {
            **w,
            "together": str(rows.together),
            "some_stop": scope.text(rows.stop),
            "some_lanes": f"({lane} for {w['number']} in range({rows.together}))",
        },
        alive=[] if whole else filled(ALIVE, w),
        moved=moved,
    )
    return [*lines, *loop(w["store_some"], w["number"], some, -(-lanes // rows.together))]


def _changed(s: Storing) -> list[str]:
    """The lines that change what was fetched; of narrow types a register tile is a place."""
    w, rows = s.words, s.rows
    unit, other = w["row"], w["other"]
    if rows.tile > 1:
        unit, other = (f"jax.lax.div({name}, {rows.tile})" for name in (unit, other))
    return filled(
        CHANGED,
        {
            **w,
            "held": s.printer.names.scratch[rows.places],
            "together": str(rows.together),
            "unit": unit,
            "other_unit": other,
        },
        wait_for_places=_wait(w["fetch"], w["fetched"]),
        changed=_change(s, w["slot"], 12),
        wait=_wait(w["bring_back"], w["started"]),
    )


def _place_of(s: Storing) -> list[str]:
    rows, w = s.rows, s.words
    one = w["row"] if leads(rows) else f"pl.ds({w['row']}, 1)"
    if rows.tile > 1:
        one = f"pl.ds({tile_start(w['row'], rows.tile)}, {rows.tile})"
    there = place_in(s.printer, s.printer.launch.window(s.write.ref), one, rows.part)
    place = inner(w["row"], s.lane().node(rows.place), s.indent + 4)
    live = inner(w["stored"], s.lane().node(rows.live), s.indent + 4)
    return filled(PLACE_OF, {**w, "place": there}, place=place, live=live)


def _copies(s: Storing) -> list[str]:
    """The copies of a row, or of the register tile that it lies in."""
    w, scratch = s.words, s.printer.names.scratch
    there = f"{w['there']}({w['row']})"

    def copy(name: str, lane: str, source: str, target: str) -> list[str]:
        ends = (Atom(source), Atom(target), Atom(scratch[COPIES]))
        made = inner("return", Call("pltpu.make_async_copy", ends), s.indent + 4, " ")
        return ["", *filled(COPY, {**w, "copy": w[name], "lane": lane}, made=made)]

    if not s.rows.changes:
        return copy("row_copy", w["lane"], f"{s.held}.at[{one_row(s.rows, w['lane'])}]", there)
    here = f"{scratch[s.rows.places]}.at[{w['slot']}]"
    brought = copy("bring_back", w["slot"], here, there)
    return [*copy("fetch", w["slot"], there, here), *brought]


def _wait(copy: str, count: str) -> list[str]:
    """Waits for so many copies, which are all of one size."""
    return loop(f"wait_for_{copy}", "_", [f"{copy}(0, 0).wait()"], count, state="done")


def _change(s: Storing, slot: str, depth: int) -> list[str]:
    """What a lane makes of the place that was fetched for it."""
    place = f"{s.printer.names.scratch[s.rows.places]}[{slot}]"
    if s.rows.tile == 1:
        return inner(place, _whole(s.rows, place, s.new), s.indent + depth)
    return _merged(s, place, f"jax.lax.rem({s.words['row']}, {s.rows.tile})", depth)


def _one_by_one(s: Storing) -> list[str]:
    """One row at a time is on its way."""
    if s.lanes == 1:
        s = replace(s, words={**s.words, "lane": "0"})
    w = s.words

    def moved(copy: str, lane: str) -> list[str]:
        return [f"{w[copy]}({lane}, {w['row']}).{what}()" for what in ("start", "wait")]

    if s.rows.changes:
        steps = [*moved("fetch", "0"), *_change(s, "0", 8), *moved("bring_back", "0")]
    else:
        steps = moved("row_copy", w["lane"])
    body = [*filled(ONE, w, steps=steps), ""]
    return body if s.lanes == 1 else loop(w["store_row"], w["lane"], body, s.lanes)
