"""Gathers: loops that put rows together, one by one, and the value that they make."""

from __future__ import annotations

from tilelang.codegen.pallas.plan.physical import COPIES
from tilelang.codegen.pallas.plan.types import (
    ByIndex,
    ByTile,
    Fetched,
    Part,
    PutRows,
    TakeRows,
    Window,
)
from tilelang.codegen.writer import Atom, Node, flat, statement

from . import ops
from .expressions import Printer


def take_rows(printer: Printer, take: TakeRows, indent: int) -> tuple[list[str], Node]:
    """The lines that fetch the rows, and the value that they are then."""
    rows = printer.names.scratch[take.rows]
    inner = printer.scope()
    lane, row = printer.free("lane"), printer.free("row")
    inner.lane = lane
    place = statement(row, inner.node(take.place), 4)
    count = printer.shape(take.type.shape)[0]
    if take.far and take.tile > 1:
        lines = _copied_tiles(printer, take, rows, count)
    elif take.far:
        lines = _copied(printer, take, rows, count, lane, row, place)
    else:
        body = _near(printer, take, rows, lane, row)
        lines = loop(printer.names.fresh("fetch_row"), lane, [*place, *body], str(count))
    read = Atom(f"{rows}[...]")
    if take.kept is not None:
        read = Atom(f"{rows}[..., {take.kept.start}:{take.kept.stop}]")
    dtype = take.type.dtype
    value: Node = read
    if take.held != dtype:
        value = ops.cast(read, dtype, len(take.type.shape))
    return [" " * indent + line if line else "" for line in lines], value


def loop(name: str, lane: str, body: list[str], count: str, state: str = "_") -> list[str]:
    """`body` for every lane."""
    return [
        f"def {name}({lane}, {state}):",
        *body,
        "    return 0",
        "",
        f"jax.lax.fori_loop(0, {count}, {name}, 0)",
    ]


def leads(rows: TakeRows | PutRows) -> bool:
    """Whether a row is a block of its own: then any one can be named, whatever its dtype."""
    return len(rows.type.shape) > 2


def one_row(rows: TakeRows | PutRows, lane: str) -> str:
    """The index of the row of a lane, in the rows that are put together."""
    return lane if leads(rows) else f"pl.ds({lane}, 1), :"


def _near(printer: Printer, take: TakeRows, rows: str, lane: str, row: str) -> list[str]:
    """One row of a block in vector memory, or one number from scalar memory."""
    target = f"{rows}[{one_row(take, lane)}]"
    if not take.ref:
        return put(target, f"jnp.full((1, 1), {row})")
    rest = printer.select(take.select[1:])
    rest = ":" if rest == "..." and len(take.select) == 2 else rest
    if take.tile == 1:
        place = row if leads(take) else f"pl.ds({row}, 1)"
        return put(target, f"{take.ref}[{place}, {rest}]")
    start = printer.free("start")
    read = f"{take.ref}[pl.ds({start}, {take.tile}), {rest}]"
    return [
        *put(start, f"jax.lax.div({row}, {take.tile}) * {take.tile}"),
        *_one_of(printer, take, target, read, f"{row} - {start}"),
    ]


def _one_of(printer: Printer, take: TakeRows, target: str, tile: str, number: str) -> list[str]:
    """One row of a register tile: a masked sum, exact and blind to NaN."""
    chosen, kept = printer.free("chosen"), printer.free("kept")
    rows = flat(ops.cast(Atom(tile), take.held, 2))
    return [
        *put(chosen, f"{flat(ops.iota((take.tile, 1), 0))} == {number}"),
        *put(kept, f"jnp.where({chosen}, {rows}, 0)"),
        *put(target, f"jnp.sum({kept}, axis=0, keepdims=True)"),
    ]


def put(target: str, value: str) -> list[str]:
    """An assignment inside of a function."""
    return [f"    {target} = {value}"]


# ---------------------------------------------------------------- copies


def _copied(
    printer: Printer,
    take: TakeRows,
    rows: str,
    count: int,
    lane: str,
    row: str,
    place: list[str],
) -> list[str]:
    """All copies are started before the first is waited for."""
    copy = printer.names.fresh("row_copy")
    one = row if leads(take) else f"pl.ds({row}, 1)"
    target = f"{rows}.at[{one_row(take, lane)}]"
    return [
        f"def {copy}({lane}):",
        *place,
        *_copy(printer, take, one, target),
        "",
        *_all_copies(printer, lane, f"{copy}({lane})", count),
    ]


def _copy(printer: Printer, take: TakeRows, rows: str, target: str) -> list[str]:
    """Returns the copy of some rows of the array."""
    source, to = printer.free("source"), printer.free("target")
    place = place_in(printer, printer.launch.window(take.ref), rows, take.part)
    made = f"pltpu.make_async_copy({source}, {to}, {printer.names.scratch[COPIES]})"
    return [*put(source, place), *put(to, target), f"    return {made}"]


def _all_copies(printer: Printer, index: str, copy: str, count: int) -> list[str]:
    """Starts all, and waits for all: copies may arrive in any order."""
    start, wait = printer.names.fresh("start_copy"), printer.names.fresh("wait_for_copy")
    return [
        *loop(start, index, [f"    {copy}.start()"], str(count)),
        "",
        *loop(wait, index, [f"    {copy}.wait()"], str(count)),
    ]


def place_in(printer: Printer, window: Window, rows: str, part: Part | None) -> str:
    """The part of an array that a copy takes."""
    parts = []
    for d, (dim, number) in enumerate(zip(window.dims, window.numbers, strict=True)):
        match dim:
            case Fetched():
                parts.append(rows)
            case ByIndex():
                parts.append(printer.text(number.expr))
            case ByTile(axis, block):
                start = printer.text(printer.launch.axis(axis).tile.origin)
                parts.append(f"pl.ds({start}, {block})")
            case _ if part is not None and d == len(window.dims) - 1:
                parts.append(f"{part.start}:{part.stop}")
            case _:
                parts.append(":")
    return f"{window.argument}.at[{', '.join(parts)}]"


def _copied_tiles(printer: Printer, take: TakeRows, rows: str, count: int) -> list[str]:
    """Register tiles that hold a row each, some at a time, and then the row of each."""
    tiles = printer.names.scratch[take.tiles]
    held = next(s.shape[0] for s in printer.launch.scratch if s.name == take.tiles)
    lane, row, start = (printer.free(w) for w in ("lane", "row", "start"))
    slot, first = printer.free("slot"), printer.free("first")
    place_of = printer.names.fresh("place_of")
    some, pick, copy = (printer.names.fresh(w) for w in ("fetch_some", "take_row", "tile_copy"))
    found = f"{lane}, {row}, {start} = {place_of}({first}, {slot})"
    picked = _one_of(
        printer, take, f"{rows}[pl.ds({lane}, 1), :]", f"{tiles}[{slot}]", f"{row} - {start}"
    )
    copied = _copy(printer, take, f"pl.ds({start}, {take.tile})", f"{tiles}.at[{slot}]")
    loops = [
        f"def {copy}({slot}):",
        f"    {found}".replace(f"{lane}, {row}", "_, _", 1),
        *copied,
        "",
        *_all_copies(printer, slot, f"{copy}({slot})", held),
        "",
        *loop(pick, slot, [f"    {found}", *picked], str(held)),
    ]
    body = ["    " + line if line else "" for line in loops]
    return [
        *_tile_of(printer, take, f"def {place_of}({first}, {slot}):", held, count),
        *loop(some, first, body, str(-(-count // held))),
    ]


def _tile_of(printer: Printer, take: TakeRows, head: str, held: int, count: int) -> list[str]:
    """Which lane a slot is for, the row of it, and where that row's register tile starts."""
    scope, lane, row = printer.scope(), printer.free("lane"), printer.free("row")
    scope.lane = lane
    first, slot = printer.free("first"), printer.free("slot")
    start = f"jax.lax.div({row}, {take.tile}) * {take.tile}"
    return [
        head,
        *put(lane, f"jnp.minimum({first} * {held} + {slot}, {count - 1})"),
        *statement(row, scope.node(take.place), 4),
        f"    return {lane}, {row}, {start}",
        "",
    ]
