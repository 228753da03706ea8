"""Specs: windows -> BlockSpecs with their index maps."""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.codegen.pallas.plan import types as plan
from tilelang.codegen.pallas.plan.steps.names import STEP
from tilelang.codegen.writer import Atom, Call, Group, Keyword, Node, flat, statement

from . import ops
from .expressions import ZERO, Printer, infix


@dataclass(frozen=True)
class Operand:
    """One array of a `pallas_call`: cut into blocks by its grid (window), or passed whole."""

    param: str
    argument: str
    window: plan.Window | None


def operands(launch: plan.Launch) -> tuple[list[Operand], list[Operand]]:
    """Inputs and outputs in the order in which the kernel takes them."""
    whole = dict.fromkeys(w.argument for w in launch.inputs if passed_whole(launch, w))
    cut = [Operand(w.ref, w.argument, w) for w in launch.inputs if not passed_whole(launch, w)]
    outputs = [
        Operand(w.argument, w.argument, None)
        if passed_whole(launch, w)
        else Operand(w.ref, w.argument, w)
        for w in launch.outputs
    ]
    return [*cut, *(Operand(name, name, None) for name in whole)], outputs


def passed_whole(launch: plan.Launch, window: plan.Window) -> bool:
    """Whether the kernel sees the whole array and cuts the blocks itself."""
    return launch.form == "pipeline" or not window.stepped or window.flows


def stream_spec(printer: Printer, window: plan.Window, first: Node) -> Node:
    """The spec of a window of a pipeline inside the step, whose steps count from `first`."""
    axis = window.stream or ""
    index = printer.names.axes[axis]
    moved = {} if first == ZERO else {axis: f"({flat(first)} + {index})"}
    return _spec(printer.scope(moved), window, [index])


def block_spec(printer: Printer, window: plan.Window) -> Node:
    """`pl.BlockSpec(block, index_map)` of one window."""
    launch, names = printer.launch, printer.names
    params = [names.step if d.axis is None else names.axes[d.axis] for d in launch.dims]
    if launch.only_step:
        params = ["_"]
    if launch.prefetches:
        params = [*(params or ["_"]), *launch.scalars, *prefetched_list(printer)]
    return _spec(_mapped(printer, window), window, params)


def _spec(mapped: Printer, window: plan.Window, params: list[str]) -> Node:
    """An index map is printed like a call, so it breaks like one; no window has a single entry."""

    def extent(dim: plan.WindowDim, size: int | None) -> Node:
        exact = isinstance(dim, plan.ByRow | plan.Between)
        return Call("pl.BoundedSlice", (Atom(str(size)),)) if exact else Atom(str(size))

    pairs = zip(window.dims, window.numbers, strict=True)
    noted = [mapped.node(plan.Recorded(name, STEP)) for name, _ in window.noted]
    entries = tuple(ZERO if window.held else _entry(mapped, *pair, noted) for pair in pairs)
    index_map = Call(f"lambda {', '.join(params)}: " if params else "lambda: ", entries)
    mode = ()
    if window.early or (window.buffers is not None and window.buffers != 2):
        how = (Atom(str(window.buffers or 2)),)
        how += (Keyword("use_lookahead", Atom("True")),) if window.early else ()
        mode = (Keyword("pipeline_mode", Call("pl.Buffered", how)),)
    sizes = window.padded if window.held else window.block
    block = Group(tuple(map(extent, window.dims, sizes)))
    return Call("pl.BlockSpec", (block, index_map, *mode))


def prefetched_list(printer: Printer) -> list[str]:
    """What a grid prefetches besides scalars: the columns of the work list, and its length."""
    names = printer.names
    return [*names.columns.values(), f"{names.steps}_of"] if printer.launch.worklist else []


def _mapped(printer: Printer, window: plan.Window | None = None) -> Printer:
    """A printer in which axes read the step table, as an index map must."""
    launch, names, axes = printer.launch, printer.names, dict[str, str]()
    table = launch.table
    for track in table.tracks if table else ():
        if window is not None and track.name == window.track:
            axes |= dict.fromkeys(track.axes, f"{names.columns[track.name]}[{names.step}]")
    for position, column in enumerate(table.outer if table else ()):
        axes[column.axis] = f"{names.columns[column.axis]}[{names.step}]"
        if table and table.steps == "rectangle":
            axes[column.axis] = f"{names.word('at')}({names.step})[1][{position}]"
    mapped = printer.scope(axes)
    for dim in launch.moving:
        axis, index = launch.axis(dim), names.axes[dim]
        if axis.base is not None:
            mapped = mapped.scope({dim: f"({mapped.text(axis.base)} + {index})"})
        elif axis.first:
            mapped = mapped.scope({dim: f"({index} + {axis.first})"})
    return mapped


def _entry(mapped: Printer, dim: plan.WindowDim, number: plan.Number, noted: list[Node]) -> Node:
    """Which block of a dimension a step sees; `noted` as in Window."""
    match dim:
        case plan.Between(tile=tile):
            rows = zip(noted, (tile, plan.SHORT), strict=True)
            return Call("pl.ds", tuple(infix("*", each, Atom(str(by))) for each, by in rows))
        case plan.ByRow(axis):
            return Atom(f"{mapped.names.rows[axis]}({mapped.names.step})")
        case plan.ByTile() | plan.ByIndex():
            return Atom(_bare(flat(mapped.number(number))))
        case _:
            return mapped.number(number)


def print_held(printer: Printer, lines: list[str]) -> None:
    """Of arrays that are held, the blocks that a step sees."""
    for window in (w for w in printer.launch.windows if w.held):
        lines.append(f"    # all of {window.argument} is in memory: the step has a block of it")
        lines += statement(window.ref, part_of(printer, window, window.ref, window.block), 4)


def part_of(
    printer: Printer, window: plan.Window, whole: str, sizes: tuple[int | None, ...]
) -> Node:
    """The part of all of an array that is the step's block of it, or its first positions."""
    places: list[str] = []
    each = zip(window.block, sizes, window.padded, window.numbers, strict=True)
    for block, size, length, number in each:
        at = flat(printer.number(number))
        part = at if block is None else f"pl.ds({block} * {at}, {size})"
        places.append(":" if block == length else part)
    while places[-1] == ":":
        places.pop()
    return Atom(f"{whole}.at[{', '.join(places)}]")


def copied_back(printer: Printer, window: plan.Window, back: plan.Back) -> Node:
    """`pltpu.sync_copy` of a block, or of the rows that its array has of the last one."""
    sizes, held = list(window.block), window.ref
    if back.rows != sizes[back.place]:
        sizes[back.place] = back.rows
        held = f"{held}.at[{', '.join(f':{s}' for s in sizes if s is not None)}]"
    there = part_of(printer, window, window.argument, tuple(sizes))
    return Call("pltpu.sync_copy", (there, Atom(held)))


def _bare(text: str) -> str:
    """Without the parentheses that only protect a sum."""
    inner = text[1:-1]
    whole = text.startswith("(") and text.endswith(")") and "(" not in inner and ")" not in inner
    return inner if whole else text


def print_rows(printer: Printer, lines: list[str]) -> None:
    """`def tm_rows(n)`: the rows of a tile that begins where its range does."""
    names, mapped, launch = printer.names, _mapped(printer), printer.launch
    for column in launch.table.columns if launch.table else ():
        if column.rows is None:
            continue
        words = printer.free("first"), printer.free("count")
        lines.append(f"    def {names.rows[column.axis]}({names.step}):")
        lines += statement(words[0], mapped.node(column.rows.first), 8)
        lines += statement(words[1], mapped.node(column.rows.count), 8)
        lines += [f"        return pl.ds({words[0]}, {words[1]})", ""]


def semantics(launch: plan.Launch, pipeline: bool) -> Node:
    """`dimension_semantics`: the pipeline's constants, or pallas_call's strings."""
    names = [d.semantics for d in launch.dims]
    return Group(tuple(Atom(f"pltpu.{n.upper()}" if pipeline else f'"{n}"') for n in names))


def grid(launch: plan.Launch, steps: str) -> Node:
    def extent(dim: plan.Dim) -> str:
        return steps if dim.extent is None else str(-(-dim.extent // launch.together(dim.axis)))

    return Group(tuple(Atom(extent(d)) for d in launch.dims))


def shaped(window: plan.Window, whole: bool) -> Node:
    """The shape and dtype of an output; whole blocks under the interpreter."""
    sizes = (window.long, window.whole) if whole else (window.shape, window.shape)
    pairs = zip(*sizes, strict=True)
    extents = tuple(
        Atom(str(size) if size == padded else f"{padded} if interpret else {size}")
        for size, padded in pairs
    )
    return Call("jax.ShapeDtypeStruct", (Group(extents), ops.dtype(window.dtype)))
