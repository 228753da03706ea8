"""Scatters: loops that store rows one by one, to a block or by copies to where the array lies."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from tilelang.codegen.pallas.plan.physical import COPIES
from tilelang.codegen.pallas.plan.types import PutRows, Write
from tilelang.codegen.writer import Atom, Call, Node, flat, statement

from . import ops
from .expressions import Printer
from .gathers import leads, loop, one_row, place_in, put


def put_rows(printer: Printer, write: Write, value: Node, indent: int) -> list[str]:
    """The lines that store rows one by one, in order: the last one of several stays."""
    rows = write.rows
    assert rows is not None
    held = printer.names.scratch[rows.name]
    stored = ops.cast(value, rows.held, 2) if rows.held != write.value.type.dtype else value
    lines = [
        *statement(f"{held}[...]", stored, 0),
        "",
        *(_far(printer, write, rows, held) if rows.far else _near(printer, write, rows, held)),
    ]
    return [" " * indent + line if line else "" for line in lines]


def _near(printer: Printer, write: Write, rows: PutRows, held: str) -> list[str]:
    lane, row = printer.free("lane"), printer.free("row")
    scope = printer.scope()
    scope.lane = lane
    body = [
        *statement("", Call("@pl.when", (scope.node(rows.live),)), 4),
        f"    def {printer.free('store')}():",
        *statement(row, scope.node(rows.place), 8),
        *("    " + line for line in _store(printer, write, rows, held, lane, row)),
        "",
    ]
    count = str(printer.shape(rows.type.shape)[0])
    return loop(printer.names.fresh("store_row"), lane, body, count)


def _store(
    printer: Printer, write: Write, rows: PutRows, held: str, lane: str, row: str
) -> list[str]:
    """One row goes to its place; of narrow types, with the register tile around it."""
    rest = printer.select(write.select[1:])
    rest = ":" if rest == "..." and len(write.select) == 2 else rest
    if rows.tile == 1:
        place = f"{write.ref}[{row if leads(rows) else f'pl.ds({row}, 1)'}, {rest}]"
        return put(place, _whole(rows, place, _new(rows, held, lane)))
    start = printer.free("start")
    place = f"{write.ref}[pl.ds({start}, {rows.tile}), {rest}]"
    return [
        *put(start, f"jax.lax.div({row}, {rows.tile}) * {rows.tile}"),
        *_merged(printer, rows, place, _new(rows, held, lane), f"{row} - {start}"),
    ]


def _new(rows: PutRows, held: str, lane: str) -> str:
    """The row of the value that a lane stores."""
    return f"{held}[{one_row(rows, lane)}]"


def _merged(printer: Printer, rows: PutRows, place: str, new: str, number: str) -> list[str]:
    """A row of a register tile changes, the others stay."""
    chosen, old = printer.free("chosen"), printer.free("old")
    changed = Atom(_combined(rows, old, new))
    merged = Call("jnp.where", (Atom(chosen), changed, Atom(old)))
    return [
        *put(chosen, f"{flat(ops.iota((rows.tile, 1), 0))} == {number}"),
        *put(old, flat(ops.cast(Atom(place), rows.held, 2))),
        *statement(place, ops.cast(merged, rows.type.dtype, 2), 4),
    ]


def _whole(rows: PutRows, place: str, new: str) -> str:
    """What a row holds afterwards; narrow types are combined in wide ones."""
    if rows.combined_in is None:
        return _combined(rows, place, new)
    old, new = (flat(ops.cast(Atom(e), rows.combined_in, 2)) for e in (place, new))
    return flat(ops.cast(Atom(f"({_combined(rows, old, new)})"), rows.type.dtype, 2))


def _combined(rows: PutRows, old: str, new: str) -> str:
    """What a row holds afterwards."""
    match rows.combine:
        case None:
            return new
        case "add":
            return f"{old} + {new}"
        case op:
            return f"jnp.{op}({old}, {new})"


# ---------------------------------------------------------------- where the array lies


@dataclass(frozen=True)
class Words:
    """The names of the loops, functions and numbers below, none of which the author has."""

    lane: str
    row: str
    stored: str
    place_of: str
    there: str
    row_copy: str
    fetch: str
    bring_back: str
    next_of: str
    later: str
    found: str
    other: str
    same: str
    compare: str
    number: str
    first: str
    stop: str
    slot: str
    following: str
    last: str
    started: str
    fetched: str
    start: str
    change: str
    hand_on: str
    store: str
    store_row: str
    store_some: str
    start_copy: str
    start_fetch: str
    change_row: str


# Those that the scope of the step knows: a name is given out once.
FUNCTIONS = (
    "place_of", "there", "row_copy", "fetch", "bring_back", "next_of", "store_some", "store_row",
)  # fmt: skip


def _far(printer: Printer, write: Write, rows: PutRows, held: str) -> list[str]:
    """Some rows at a time are on their way.

    Copies arrive in any order, so of several rows for one place only the last one is copied; where
    rows are changed, each of the others hands on what it made of the place.
    """
    w = Words(
        **{f.name: printer.free(f.name) for f in fields(Words) if f.name not in FUNCTIONS},
        **{name: printer.names.fresh(name) for name in FUNCTIONS},
    )
    count = printer.shape(rows.type.shape)[0]
    lines = [*_place_of(printer, rows, w), *_copies(printer, write, rows, held, w)]
    if rows.together == 1:
        return [*lines, *_one_by_one(printer, rows, held, w, count)]
    stop = f"{w.first} + {rows.together}"
    if count % rows.together:
        stop = f"jnp.minimum({stop}, {count})"
    moved = _changed(printer, rows, held, w) if rows.changes else _replaced(w)
    body = [
        *put(w.first, f"{w.number} * {rows.together}"),
        *put(w.stop, stop),
        "",
        *_indented(moved),
    ]
    some = loop(w.store_some, w.number, body, str(-(-count // rows.together)))
    return [*lines, *_next_of(rows, w), *some]


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line if line else "" for line in lines]


def _place_of(printer: Printer, rows: PutRows, w: Words) -> list[str]:
    """The row that a lane goes to, and whether it goes anywhere."""
    scope = printer.scope()
    scope.lane = w.lane
    return [
        f"def {w.place_of}({w.lane}):",
        *statement(w.row, scope.node(rows.place), 4),
        *statement(w.stored, scope.node(rows.live), 4),
        f"    return {w.row}, {w.stored}",
        "",
    ]


def _next_of(rows: PutRows, w: Words) -> list[str]:
    one, other = w.row, w.other
    if rows.tile > 1:
        one, other = (f"jax.lax.div({name}, {rows.tile})" for name in (one, other))
    return [
        f"def {w.next_of}({w.lane}, {w.stop}):  # the next lane with the same place, or the end",
        f"    {w.row}, _ = {w.place_of}({w.lane})",
        "",
        f"    def {w.compare}({w.later}, {w.found}):",
        f"        {w.other}, {w.stored} = {w.place_of}({w.later})",
        f"        {w.same} = {w.stored} & ({other} == {one})",
        f"        return jnp.where({w.same} & ({w.found} == {w.stop}), {w.later}, {w.found})",
        "",
        f"    return jax.lax.fori_loop({w.lane} + 1, {w.stop}, {w.compare}, {w.stop})",
        "",
    ]


def _copies(printer: Printer, write: Write, rows: PutRows, held: str, w: Words) -> list[str]:
    """The copies of a row, or of the register tile that it lies in."""
    counter = printer.names.scratch[COPIES]
    one = w.row
    if rows.tile > 1:
        one = f"pl.ds(jax.lax.div({w.row}, {rows.tile}) * {rows.tile}, {rows.tile})"
    elif not leads(rows):
        one = f"pl.ds({w.row}, 1)"
    place = place_in(printer, printer.launch.window(write.ref), one, rows.part)
    there = f"{w.there}({w.row})"

    def copy(name: str, lane: str, source: str, target: str) -> list[str]:
        made = Call("pltpu.make_async_copy", (Atom(source), Atom(target), Atom(counter)))
        head, *rest = statement("made", made, 4)
        head = head.replace("made = ", "return ", 1)
        return [f"def {name}({lane}, {w.row}):", head, *rest, ""]

    lines = [f"def {there}:", f"    return {place}", ""]
    if not rows.changes:
        return lines + copy(w.row_copy, w.lane, f"{held}.at[{one_row(rows, w.lane)}]", there)
    here = f"{printer.names.scratch[rows.places]}.at[{w.slot}]"
    lines += copy(w.fetch, w.slot, there, here)
    return lines + copy(w.bring_back, w.slot, here, there)


def _replaced(w: Words) -> list[str]:
    """Rows are stored unread: the last one of every place."""
    return [
        f"def {w.start_copy}({w.lane}, {w.started}):",
        f"    {w.row}, {w.stored} = {w.place_of}({w.lane})",
        f"    {w.last} = {w.stored} & ({w.next_of}({w.lane}, {w.stop}) == {w.stop})",
        "",
        *_when(w.last, w.start, [f"{w.row_copy}({w.lane}, {w.row}).start()"]),
        f"    return {w.started} + jnp.where({w.last}, 1, 0)",
        "",
        f"{w.started} = jax.lax.fori_loop({w.first}, {w.stop}, {w.start_copy}, 0)",
        "",
        *_wait(w.row_copy, w.started),
    ]


def _changed(printer: Printer, rows: PutRows, held: str, w: Words) -> list[str]:
    """All places are fetched, changed in the order of the rows, and brought back."""
    places = printer.names.scratch[rows.places]
    handed = f"{w.stored} & ({w.following} < {w.stop})"
    return [
        f"def {w.start_fetch}({w.lane}, {w.started}):",
        f"    {w.row}, {w.stored} = {w.place_of}({w.lane})",
        "",
        *_when(w.stored, w.start, [f"{w.fetch}({w.lane} - {w.first}, {w.row}).start()"]),
        f"    return {w.started} + jnp.where({w.stored}, 1, 0)",
        "",
        f"{w.fetched} = jax.lax.fori_loop({w.first}, {w.stop}, {w.start_fetch}, 0)",
        "",
        *_wait(w.fetch, w.fetched),
        "",
        f"def {w.change_row}({w.lane}, {w.started}):",
        f"    {w.row}, {w.stored} = {w.place_of}({w.lane})",
        f"    {w.slot}, {w.following} = {w.lane} - {w.first}, {w.next_of}({w.lane}, {w.stop})",
        f"    {w.last} = {w.stored} & ({w.following} == {w.stop})",
        "",
        *_when(w.stored, w.change, _change(printer, rows, held, w, w.slot)),
        *_when(handed, w.hand_on, [f"{places}[{w.following} - {w.first}] = {places}[{w.slot}]"]),
        *_when(w.last, w.start, [f"{w.bring_back}({w.slot}, {w.row}).start()"]),
        f"    return {w.started} + jnp.where({w.last}, 1, 0)",
        "",
        f"{w.started} = jax.lax.fori_loop({w.first}, {w.stop}, {w.change_row}, 0)",
        "",
        *_wait(w.bring_back, w.started),
    ]


def _when(condition: str, name: str, body: list[str]) -> list[str]:
    """`body` where the condition holds, inside of a function."""
    return _indented([f"@pl.when({condition})", f"def {name}():", *_indented(body), ""])


def _wait(copy: str, count: str) -> list[str]:
    """Waits for so many copies, which are all of one size."""
    return loop(f"wait_for_{copy}", "_", [f"    {copy}(0, 0).wait()"], count, state="done")


def _change(printer: Printer, rows: PutRows, held: str, w: Words, slot: str) -> list[str]:
    """What a lane makes of the place that was fetched for it."""
    place = f"{printer.names.scratch[rows.places]}[{slot}]"
    new = _new(rows, held, w.lane)
    if rows.tile == 1:
        lines = put(place, _whole(rows, place, new))
    else:
        lines = _merged(printer, rows, place, new, f"jax.lax.rem({w.row}, {rows.tile})")
    return [line.removeprefix("    ") for line in lines]


def _one_by_one(printer: Printer, rows: PutRows, held: str, w: Words, count: int) -> list[str]:
    """One row at a time is on its way."""
    if count == 1:
        w = replace(w, lane="0")

    def moved(copy: str, lane: str) -> list[str]:
        return [f"{copy}({lane}, {w.row}).start()", f"{copy}({lane}, {w.row}).wait()"]

    steps = moved(w.row_copy, w.lane)
    if rows.changes:
        change = _change(printer, rows, held, w, "0")
        steps = [*moved(w.fetch, "0"), *change, *moved(w.bring_back, "0")]
    body = [
        f"    {w.row}, {w.stored} = {w.place_of}({w.lane})",
        "",
        *_when(w.stored, w.store, steps),
    ]
    if count > 1:
        return loop(w.store_row, w.lane, body, str(count))
    return [line.removeprefix("    ") for line in body]
