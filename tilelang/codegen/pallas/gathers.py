"""Gathers: loops that put rows together, one by one, and the value that they make."""

from __future__ import annotations

from ...ir import Const, GridIndex
from ...schedule.gathers import COPIES, wide
from ...schedule.picked import clamped
from ...schedule.plan import ByIndex, ByTile, Fetched, PutRows, TakeRows, Window, Write
from ..writer import Atom, Call, Node, flat, statement
from . import ops
from .expressions import Printer


def take_rows(printer: Printer, take: TakeRows, indent: int) -> tuple[list[str], Node]:
    """The lines that fetch the rows, and the value that they are then."""
    rows = printer.names.scratch[take.rows]
    inner = printer.scope()
    lane, row = _free(printer, "lane"), _free(printer, "row")
    inner.lane = lane
    place = statement(row, inner.node(take.place), 4)
    count = printer.shape(take.type.shape)[0]
    if take.far and take.tile > 1:
        lines = _copied_tiles(printer, take, rows, count)
    elif take.far:
        lines = _copied(printer, take, rows, count, lane, row, place)
    else:
        body = _near(printer, take, rows, lane, row)
        lines = _loop(_free(printer, "fetch_row"), lane, [*place, *body], str(count))
    read = Atom(f"{rows}[...]")
    dtype = take.type.dtype
    value: Node = read
    if wide(take) != dtype:
        value = ops.cast(read, dtype, len(take.type.shape))
    return [" " * indent + line if line else "" for line in lines], value


def _free(printer: Printer, wish: str) -> str:
    """The wished name, or the first one with a number that nothing in scope has."""
    busy = printer.names.taken | set(printer.locals.values()) | set(printer.made.values())
    name, number = wish, 0
    while name in busy:
        number += 1
        name = f"{wish}_{number}"
    return name


def _loop(name: str, lane: str, body: list[str], count: str) -> list[str]:
    """`body` for every lane."""
    return [
        f"def {name}({lane}, _):",
        *body,
        "    return 0",
        "",
        f"jax.lax.fori_loop(0, {count}, {name}, 0)",
    ]


def _leads(take: TakeRows) -> bool:
    """Whether a row is a block of its own: then any one can be named, whatever its dtype."""
    return len(take.type.shape) > 2


def _lane(take: TakeRows, lane: str) -> str:
    return f"{lane}" if _leads(take) else f"pl.ds({lane}, 1), :"


def _near(printer: Printer, take: TakeRows, rows: str, lane: str, row: str) -> list[str]:
    """One row of a block in vector memory, or one number from scalar memory."""
    target = f"{rows}[{_lane(take, lane)}]"
    if not take.ref:
        return _put(target, f"jnp.full((1, 1), {row})")
    rest = printer.select(take.select[1:])
    rest = ":" if rest == "..." and len(take.select) == 2 else rest
    if take.tile == 1:
        place = row if _leads(take) else f"pl.ds({row}, 1)"
        return _put(target, f"{take.ref}[{place}, {rest}]")
    start = _free(printer, "start")
    read = f"{take.ref}[pl.ds({start}, {take.tile}), {rest}]"
    return [
        *_put(start, f"jax.lax.div({row}, {take.tile}) * {take.tile}"),
        *_one_of(printer, take, target, read, f"{row} - {start}"),
    ]


def _one_of(printer: Printer, take: TakeRows, target: str, tile: str, number: str) -> list[str]:
    """One row of a register tile: a masked sum, exact and blind to NaN."""
    chosen, kept = _free(printer, "chosen"), _free(printer, "kept")
    rows = flat(ops.cast(Atom(tile), wide(take), 2))
    return [
        *_put(chosen, f"{flat(ops.iota((take.tile, 1), 0))} == {number}"),
        *_put(kept, f"jnp.where({chosen}, {rows}, 0)"),
        *_put(target, f"jnp.sum({kept}, axis=0, keepdims=True)"),
    ]


def _put(target: str, value: str) -> list[str]:
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
    copy = _free(printer, "row_copy")
    one = row if _leads(take) else f"pl.ds({row}, 1)"
    return [
        f"def {copy}({lane}):",
        *place,
        *_copy(printer, take, one, f"{rows}.at[{_lane(take, lane)}]"),
        "",
        *_all_copies(printer, lane, f"{copy}({lane})", count),
    ]


def _copy(printer: Printer, take: TakeRows, rows: str, target: str) -> list[str]:
    """Returns the copy of some rows of the array."""
    source, to = _free(printer, "source"), _free(printer, "target")
    place = _place(printer, printer.launch.window(take.ref), rows)
    made = f"pltpu.make_async_copy({source}, {to}, {printer.names.scratch[COPIES]})"
    return [*_put(source, place), *_put(to, target), f"    return {made}"]


def _all_copies(printer: Printer, index: str, copy: str, count: int) -> list[str]:
    """Starts all, and waits for all: copies may arrive in any order."""
    start, wait = _free(printer, "start_copy"), _free(printer, "wait_for_copy")
    return [
        *_loop(start, index, [f"    {copy}.start()"], str(count)),
        "",
        *_loop(wait, index, [f"    {copy}.wait()"], str(count)),
    ]


def _place(printer: Printer, window: Window, rows: str) -> str:
    """The part of an array that a copy takes."""
    parts = []
    for dim, size in zip(window.dims, window.shape, strict=True):
        match dim:
            case Fetched():
                parts.append(rows)
            case ByIndex(expr):
                place = expr if isinstance(expr, Const | GridIndex) else clamped(expr, size)
                parts.append(flat(printer.node(place)))
            case ByTile(axis, block):
                start = flat(printer.origin(printer.launch.axis(axis)))
                parts.append(f"pl.ds({start}, {block})")
            case _:
                parts.append(":")
    return f"{window.argument}.at[{', '.join(parts)}]"


def _copied_tiles(printer: Printer, take: TakeRows, rows: str, count: int) -> list[str]:
    """Register tiles that hold a row each, some at a time, and then the row of each."""
    tiles = printer.names.scratch[take.tiles]
    held = next(s.shape[0] for s in printer.launch.scratch if s.name == take.tiles)
    lane, row, start = (_free(printer, w) for w in ("lane", "row", "start"))
    slot, first, place_of = (_free(printer, w) for w in ("slot", "first", "place_of"))
    some, pick, copy = (_free(printer, w) for w in ("fetch_some", "take_row", "tile_copy"))
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
        *_loop(pick, slot, [f"    {found}", *picked], str(held)),
    ]
    body = ["    " + line if line else "" for line in loops]
    return [
        *_tile_of(printer, take, f"def {place_of}({first}, {slot}):", held, count),
        *_loop(some, first, body, str(-(-count // held))),
    ]


def _tile_of(printer: Printer, take: TakeRows, head: str, held: int, count: int) -> list[str]:
    """Which lane a slot is for, the row of it, and where that row's register tile starts."""
    window = printer.launch.window(take.ref)
    unit = next(d.rows for d in window.dims if isinstance(d, Fetched))
    last = -(-take.size // unit) * unit - take.tile
    scope, lane, row = printer.scope(), _free(printer, "lane"), _free(printer, "row")
    scope.lane = lane
    first, slot = _free(printer, "first"), _free(printer, "slot")
    start = f"jnp.minimum(jax.lax.div({row}, {take.tile}) * {take.tile}, {last})"
    return [
        head,
        *_put(lane, f"jnp.minimum({first} * {held} + {slot}, {count - 1})"),
        *statement(row, scope.node(take.place), 4),
        f"    return {lane}, {row}, {start}",
        "",
    ]


# ---------------------------------------------------------------- stores


def put_rows(printer: Printer, write: Write, value: Node, indent: int) -> list[str]:
    """The lines that store rows one by one, in order: the last one of several stays."""
    rows = write.rows
    assert rows is not None
    held = printer.names.scratch[rows.name]
    lane, row = _free(printer, "lane"), _free(printer, "row")
    scope = printer.scope()
    scope.lane = lane
    stored = ops.cast(value, wide(rows), 2) if wide(rows) != write.value.type.dtype else value
    body = [
        *statement("", Call("@pl.when", (scope.node(rows.live),)), 4),
        f"    def {_free(printer, 'store')}():",
        *statement(row, scope.node(rows.place), 8),
        *("    " + line for line in _store(printer, write, rows, held, lane, row)),
        "",
    ]
    count = str(printer.shape(rows.type.shape)[0])
    lines = [
        *statement(f"{held}[...]", stored, 0),
        *_loop(_free(printer, "store_row"), lane, body, count),
    ]
    return [" " * indent + line if line else "" for line in lines]


def _store(
    printer: Printer, write: Write, rows: PutRows, held: str, lane: str, row: str
) -> list[str]:
    """One row goes to its place; of narrow types, with the register tile around it."""
    rest = printer.select(write.select[1:])
    rest = ":" if rest == "..." and len(write.select) == 2 else rest
    if rows.tile == 1:
        leads = len(rows.type.shape) > 2
        place = f"{write.ref}[{row if leads else f'pl.ds({row}, 1)'}, {rest}]"
        new = f"{held}[{lane if leads else f'pl.ds({lane}, 1), :'}]"
        return _put(place, _combined(rows, place, new))
    start, chosen, old = (_free(printer, w) for w in ("start", "chosen", "old"))
    place = f"{write.ref}[pl.ds({start}, {rows.tile}), {rest}]"
    new = _combined(rows, old, f"{held}[pl.ds({lane}, 1), :]")
    merged = ops.cast(Atom(f"jnp.where({chosen}, {new}, {old})"), rows.type.dtype, 2)
    return [
        *_put(start, f"jax.lax.div({row}, {rows.tile}) * {rows.tile}"),
        *_put(chosen, f"{flat(ops.iota((rows.tile, 1), 0))} == {row} - {start}"),
        *_put(old, flat(ops.cast(Atom(place), wide(rows), 2))),
        *_put(place, flat(merged)),
    ]


def _combined(rows: PutRows, old: str, new: str) -> str:
    """What a row holds afterwards."""
    match rows.combine:
        case None:
            return new
        case "add":
            return f"{old} + {new}"
        case op:
            return f"jnp.{op}({old}, {new})"
