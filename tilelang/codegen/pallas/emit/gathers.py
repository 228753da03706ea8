"""Gathers: loops that put rows together, one by one, and the value that they make."""

from __future__ import annotations

from tilelang.codegen.pallas.plan import types as plan
from tilelang.codegen.pallas.plan.physical import COPIES, FIRST, SLOT
from tilelang.codegen.writer import Atom, Node, filled, flat, inner

from . import ops
from .expressions import Printer

Words = dict[str, str]

LOOP = """
def {name}({lane}, {state}):
    @body
    return 0

jax.lax.fori_loop(0, {count}, {name}, 0)
"""
ROW_COPY = """
def {copy}({lane}):
    @place
    @made

@moved
"""
# The lane that a slot is for, its row, and where that row's register tile starts.
TILE_OF = """
def {place_of}({first}, {slot}):
    @lane
    @place
    return {lane}, {row}, jax.lax.div({row}, {tile}) * {tile}

"""
ONE_ROW = """
{chosen} = {lanes} == {row} - {start}
{kept} = jnp.where({chosen}, {rows}, 0)
{target} = jnp.sum({kept}, axis=0, keepdims=True)
"""
TILE_COPY = """
def {copy}({slot}):
    _, _, {start} = {place_of}({first}, {slot})
    @made

@moved

@picks
"""


def take_rows(printer: Printer, take: plan.TakeRows, indent: int) -> tuple[list[str], Node]:
    """The lines that fetch the rows, and the value that they are then."""
    rows = printer.names.scratch[take.rows]
    words = free_words(printer, "lane", "row", "start", "first", "slot", "chosen", "kept")
    scope = printer.scope()
    scope.lane = words["lane"]
    place = inner(words["row"], scope.node(take.place), indent + 4)
    count = printer.shape(take.type.shape)[0]
    if take.far and take.tile > 1:
        lines = _copied_tiles(printer, take, rows, count, words, place)
    elif take.far:
        lines = _copied(printer, take, rows, count, words, place)
    else:
        body = _near(printer, take, rows, words)
        lines = loop(printer.names.fresh("fetch_row"), words["lane"], [*place, *body], count)
    kept = "..." if take.kept is None else f"..., {take.kept.start}:{take.kept.stop}"
    value: Node = Atom(f"{rows}[{kept}]")
    if take.held != take.type.dtype:
        value = ops.cast(value, take.type.dtype, len(take.type.shape))
    return [" " * indent + line if line else "" for line in lines], value


def free_words(printer: Printer, *wishes: str) -> Words:
    """Names for what a template defines, none of which is in scope."""
    return {wish: printer.free(wish) for wish in wishes}


def loop(name: str, lane: str, body: list[str], count: object, state: str = "_") -> list[str]:
    """`body` for every lane."""
    words = {"name": name, "lane": lane, "state": state, "count": str(count)}
    return filled(LOOP, words, body=body)


def leads(rows: plan.TakeRows | plan.PutRows) -> bool:
    """Whether a row is a block of its own: then any one can be named, whatever its dtype."""
    return len(rows.type.shape) > 2


def one_row(rows: plan.TakeRows | plan.PutRows, lane: str) -> str:
    """The index of the row of a lane, in the rows that are put together."""
    return lane if leads(rows) else f"pl.ds({lane}, 1), :"


def beside(printer: Printer, select: tuple[plan.Select, ...]) -> str:
    """What is meant of each row that is picked."""
    rest = printer.select(select[1:])
    return ":" if rest == "..." and len(select) == 2 else rest


def tile_start(row: str, tile: int) -> str:
    """Where the register tile of a row starts."""
    return f"jax.lax.div({row}, {tile}) * {tile}"


def _near(printer: Printer, take: plan.TakeRows, rows: str, w: Words) -> list[str]:
    """One row of a block in vector memory, or one number from scalar memory."""
    target, row, start = f"{rows}[{one_row(take, w['lane'])}]", w["row"], w["start"]
    if not take.ref:
        return [f"{target} = jnp.full((1, 1), {row})"]
    rest = beside(printer, take.select)
    if take.tile == 1:
        return [f"{target} = {take.ref}[{row if leads(take) else f'pl.ds({row}, 1)'}, {rest}]"]
    read = f"{take.ref}[pl.ds({start}, {take.tile}), {rest}]"
    return [f"{start} = {tile_start(row, take.tile)}", *_one_of(take, target, read, w)]


def _one_of(take: plan.TakeRows, target: str, tile: str, w: Words) -> list[str]:
    """One row of a register tile: a masked sum, exact and blind to NaN."""
    rows, lanes = flat(ops.cast(Atom(tile), take.held, 2)), flat(ops.iota((take.tile, 1), 0))
    return filled(ONE_ROW, {**w, "lanes": lanes, "rows": rows, "target": target})


# ---------------------------------------------------------------- copies


def _copied(
    printer: Printer, take: plan.TakeRows, rows: str, count: int, w: Words, place: list[str]
) -> list[str]:
    """All copies are started before the first is waited for."""
    copy = printer.names.fresh("row_copy")
    one = w["row"] if leads(take) else f"pl.ds({w['row']}, 1)"
    made = _copy(printer, take, one, f"{rows}.at[{one_row(take, w['lane'])}]")
    moved = _all_copies(printer, w["lane"], copy, count)
    return filled(ROW_COPY, {**w, "copy": copy}, place=place, made=made, moved=moved)


def _copy(printer: Printer, take: plan.TakeRows, rows: str, target: str) -> list[str]:
    """Returns the copy of some rows of the array."""
    source, to = printer.free("source"), printer.free("target")
    place = place_in(printer, printer.launch.window(take.ref), rows, take.part)
    counter = printer.names.scratch[COPIES]
    made = f"return pltpu.make_async_copy({source}, {to}, {counter})"
    return [f"{source} = {place}", f"{to} = {target}", made]


def _all_copies(printer: Printer, index: str, copy: str, count: int) -> list[str]:
    """Starts all, and waits for all: copies may arrive in any order."""
    start, wait = printer.names.fresh("start_copy"), printer.names.fresh("wait_for_copy")
    starts = loop(start, index, [f"{copy}({index}).start()"], count)
    return [*starts, "", *loop(wait, index, [f"{copy}({index}).wait()"], count)]


def place_in(printer: Printer, window: plan.Window, rows: str, part: plan.Part | None) -> str:
    """The part of an array that a copy takes."""
    parts = []
    for d, (dim, number) in enumerate(zip(window.dims, window.numbers, strict=True)):
        match dim:
            case plan.Fetched():
                parts.append(rows)
            case plan.ByIndex():
                parts.append(printer.text(number.expr))
            case plan.ByTile(axis, block):
                start = printer.text(printer.launch.axis(axis).tile.origin)
                parts.append(f"pl.ds({start}, {block})")
            case _ if part is not None and d == len(window.dims) - 1:
                parts.append(f"{part.start}:{part.stop}")
            case _:
                parts.append(":")
    return f"{window.argument}.at[{', '.join(parts)}]"


def _copied_tiles(
    printer: Printer, take: plan.TakeRows, rows: str, count: int, w: Words, place: list[str]
) -> list[str]:
    """Register tiles that hold a row each, some at a time, and then the row of each."""
    tiles = printer.names.scratch[take.tiles]
    assert take.lane is not None
    scope = printer.scope()
    scope.locals |= {FIRST.name: w["first"], SLOT.name: w["slot"]}
    place_of, some, pick, copy = (
        printer.names.fresh(n) for n in ("place_of", "fetch_some", "take_row", "tile_copy")
    )
    words = {**w, "tile": str(take.tile), "place_of": place_of, "copy": copy}
    slot, found = w["slot"], f"{w['lane']}, {w['row']}, {w['start']}"
    row = _one_of(take, f"{rows}[pl.ds({w['lane']}, 1), :]", f"{tiles}[{slot}]", w)
    picked = [f"{found} = {place_of}({w['first']}, {slot})", *row]
    body = filled(
        TILE_COPY,
        words,
        made=_copy(printer, take, f"pl.ds({w['start']}, {take.tile})", f"{tiles}.at[{slot}]"),
        moved=_all_copies(printer, slot, copy, take.together),
        picks=loop(pick, slot, picked, take.together),
    )
    return [
        *filled(TILE_OF, words, lane=inner(w["lane"], scope.node(take.lane), 0), place=place),
        "",
        *loop(some, w["first"], body, -(-count // take.together)),
    ]
