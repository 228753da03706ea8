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
NEXT_OF = """
def {next_of}({lane}, {stop}):  # the next lane with the same place, or the end
    {row}, _ = {place_of}({lane})

    def {compare}({later}, {found}):
        {other}, {stored} = {place_of}({later})
        {same} = {stored} & ({other_unit} == {unit})
        return jnp.where({same} & ({found} == {stop}), {later}, {found})

    return jax.lax.fori_loop({lane} + 1, {stop}, {compare}, {stop})
"""
SOME = """
{first} = {number} * {together}
{stop} = {some_stop}

@moved
"""
# Rows are stored unread: the last one of every place.
REPLACED = """
def {start_copy}({lane}, {started}):
    {row}, {stored} = {place_of}({lane})
    {last} = {stored} & ({next_of}({lane}, {stop}) == {stop})

    @pl.when({last})
    def {start}():
        {row_copy}({lane}, {row}).start()

    return {started} + jnp.where({last}, 1, 0)

{started} = jax.lax.fori_loop({first}, {stop}, {start_copy}, 0)

@wait
"""
# All places are fetched, changed in the order of the rows, and brought back.
CHANGED = """
def {start_fetch}({lane}, {started}):
    {row}, {stored} = {place_of}({lane})

    @pl.when({stored})
    def {start}():
        {fetch}({lane} - {first}, {row}).start()

    return {started} + jnp.where({stored}, 1, 0)

{fetched} = jax.lax.fori_loop({first}, {stop}, {start_fetch}, 0)

@wait_for_places

def {change_row}({lane}, {started}):
    {row}, {stored} = {place_of}({lane})
    {slot}, {following} = {lane} - {first}, {next_of}({lane}, {stop})
    {last} = {stored} & ({following} == {stop})

    @pl.when({stored})
    def {change}():
        @changed

    @pl.when({stored} & ({following} < {stop}))
    def {hand_on}():
        {places}[{following} - {first}] = {places}[{slot}]

    @pl.when({last})
    def {start}():
        {bring_back}({slot}, {row}).start()

    return {started} + jnp.where({last}, 1, 0)

{started} = jax.lax.fori_loop({first}, {stop}, {change_row}, 0)

@wait
"""
ONE = """
{row}, {stored} = {place_of}({lane})

@pl.when({stored})
def {store}():
    @steps

"""
WORDS = (
    "lane", "row", "stored", "later", "found", "other", "same", "compare", "number", "first",
    "stop", "slot", "following", "last", "started", "fetched", "start", "change", "hand_on",
    "store", "start_copy", "start_fetch", "change_row", "chosen", "old",
)  # fmt: skip
# Those that the scope of the step knows: a name is given out once.
FUNCTIONS = (
    "place_of", "there", "row_copy", "fetch", "bring_back", "next_of", "store_some", "store_row",
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
    unit, other = w["row"], w["other"]
    if rows.tile > 1:
        unit, other = (f"jax.lax.div({name}, {rows.tile})" for name in (unit, other))
    scope = s.printer.scope()
    scope.locals[FIRST.name] = w["first"]
    assert rows.stop is not None
    if rows.changes:
        moved = filled(
            CHANGED,
            {**w, "places": s.printer.names.scratch[rows.places]},
            wait_for_places=_wait(w["fetch"], w["fetched"]),
            changed=_change(s, w["slot"], 12),
            wait=_wait(w["bring_back"], w["started"]),
        )
    else:
        moved = filled(REPLACED, w, wait=_wait(w["row_copy"], w["started"]))
    some = filled(
        SOME, {**w, "together": str(rows.together), "some_stop": scope.text(rows.stop)}, moved=moved
    )
    turns = -(-lanes // rows.together)
    next_of = filled(NEXT_OF, {**w, "unit": unit, "other_unit": other})
    return [*lines, *next_of, "", *loop(w["store_some"], w["number"], some, turns)]


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
