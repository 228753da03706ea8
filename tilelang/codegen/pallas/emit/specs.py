"""Specs: windows -> BlockSpecs with their index maps."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilelang.codegen.pallas.plan.types import (
    ByIndex,
    ByRow,
    ByTile,
    Dim,
    Launch,
    Number,
    Window,
    WindowDim,
)
from tilelang.codegen.writer import Atom, Call, Group, Keyword, Node, flat, infix, statement
from tilelang.ir import Apply, Const, Type

from . import ops
from .expressions import Printer


@dataclass(frozen=True)
class Operand:
    """One array of a `pallas_call`: cut into blocks by its grid (window), or passed whole."""

    param: str
    argument: str
    window: Window | None


def operands(launch: Launch) -> tuple[list[Operand], list[Operand]]:
    """Inputs and outputs in the order in which the kernel takes them."""
    if launch.form == "pipeline":
        inputs = dict.fromkeys(w.argument for w in launch.inputs)
        return (
            [Operand(name, name, None) for name in inputs],
            [Operand(w.argument, w.argument, None) for w in launch.outputs],
        )
    cut = [Operand(w.ref, w.argument, w) for w in launch.inputs if w.stream is None]
    streamed = dict.fromkeys(w.argument for w in launch.inputs if w.stream is not None)
    return (
        [*cut, *(Operand(name, name, None) for name in streamed)],
        [
            Operand(w.ref, w.argument, w) if w.stream is None else Operand(w.array, w.array, None)
            for w in launch.outputs
        ],
    )


def stream_spec(printer: Printer, window: Window, first: Node) -> Node:
    """The spec of a window of a pipeline inside the step, whose steps count from `first`."""
    axis = window.stream or ""
    index = printer.names.axes[axis]
    axes = dict(printer.names.axes)
    if first != Atom("0"):
        axes[axis] = f"({flat(first)} + {index})"
    mapped = printer.scope()
    mapped.names = replace(printer.names, axes=axes)
    return _spec(window, _block(window), _index_map([index], _entries(mapped, window)))


def _block(window: Window) -> Node:
    """The block shape."""

    def extent(dim: WindowDim, size: int | None) -> Node:
        exact = isinstance(dim, ByRow)
        return Call("pl.BoundedSlice", (Atom(str(size)),)) if exact else Atom(str(size))

    return Group(tuple(map(extent, window.dims, window.block)))


def _index_map(params: list[str], entries: tuple[Node, ...]) -> Node:
    """`lambda n: (a, b)`: printed like a call, it breaks like one; no window has a single entry."""
    assert len(entries) > 1
    return Call(f"lambda {', '.join(params)}: " if params else "lambda: ", entries)


def _spec(window: Window, block: Node, index_map: Node) -> Node:
    mode = ()
    if window.buffers is not None and window.buffers != 2:
        mode = (Keyword("pipeline_mode", Call("pl.Buffered", (Atom(str(window.buffers)),))),)
    return Call("pl.BlockSpec", (block, index_map, *mode))


def block_spec(printer: Printer, launch: Launch, window: Window, prefetched: bool) -> Node:
    """`pl.BlockSpec(block, index_map)` of one window."""
    params = [printer.names.step if d.axis is None else _param(printer, d) for d in launch.dims]
    if prefetched:
        params = params or ["_"]
        params += [*launch.scalars, *prefetched_list(printer, launch)]
    mapped = _mapped(printer, launch, window)
    return _spec(window, _block(window), _index_map(params, _entries(mapped, window)))


def prefetched_list(printer: Printer, launch: Launch) -> list[str]:
    """What a grid prefetches besides scalars: the columns of the work list, and its length."""
    if not launch.worklist or launch.table is None:
        return []
    names = printer.names
    return [*names.columns.values(), f"{names.steps}_of"]


def _param(printer: Printer, dim: Dim) -> str:
    assert dim.axis is not None
    return printer.names.axes[dim.axis]


def _mapped(printer: Printer, launch: Launch, window: Window | None = None) -> Printer:
    """A printer in which axes read the step table, as an index map must."""
    axes = dict(printer.names.axes)
    for track in launch.table.tracks if launch.table else ():
        if window is not None and track.name == window.track:
            row = f"{printer.names.columns[track.name]}[{printer.names.step}]"
            axes |= dict.fromkeys(track.axes, row)
    for position, column in enumerate(launch.table.outer if launch.table else ()):
        if launch.table is not None and launch.table.steps == "rectangle":
            axes[column.axis] = f"{printer.names.word('at')}({printer.names.step})[1][{position}]"
        else:
            axes[column.axis] = f"{printer.names.columns[column.axis]}[{printer.names.step}]"
    mapped = printer.scope()
    mapped.names = replace(printer.names, axes=axes)
    for dim in launch.moving:
        base = launch.axis(dim).base
        if base is not None:
            axes[dim] = f"({mapped.text(base)} + {axes[dim]})"
        elif launch.axis(dim).first:
            axes[dim] = f"({axes[dim]} + {launch.axis(dim).first})"
    return mapped


def _entries(mapped: Printer, window: Window) -> tuple[Node, ...]:
    """Which block of every dimension a step sees."""
    pairs = zip(window.dims, window.numbers, strict=True)
    return tuple(_entry(mapped, dim, number) for dim, number in pairs)


def _entry(mapped: Printer, dim: WindowDim, number: Number) -> Node:
    match dim:
        case ByRow(axis):
            index = mapped.names.columns[axis].removesuffix("_of")
            return Atom(f"{index}_rows({mapped.names.step})")
        case ByTile() | ByIndex():
            return Atom(_bare(flat(mapped.number(number))))
        case _:
            return mapped.number(number)


def print_rows(printer: Printer, lines: list[str], launch: Launch) -> None:
    """`def tm_rows(n)`: the rows of a tile that begins with its range, as far as that goes.

    A step that stands for an empty range gets a row that exists.
    """
    names, mapped = printer.names, _mapped(printer, launch)
    columns = launch.table.columns if launch.table else ()
    for column in columns:
        axis = launch.axis(column.axis)
        if axis.length is None:
            continue
        first, size = Atom(mapped.names.axes[axis.name]), Const(axis.length, Type((), "int32"))
        end = mapped.node(Apply("minimum", (axis.end, size), Type((), "int32")))
        count = Call("jnp.minimum", (infix("-", end, first), Atom(str(axis.block))))
        if column.visit != "live":
            first = Call("jnp.minimum", (first, Atom(str(max(axis.length - 1, 0)))))
            count = Call("jnp.maximum", (count, Atom("1")))
        words = names.fresh("first"), names.fresh("count")
        lines.append(f"    def {names.axes[axis.name]}_rows({names.step}):")
        lines += statement(words[0], first, 8) + statement(words[1], count, 8)
        lines += [f"        return pl.ds({words[0]}, {words[1]})", ""]
        names.taken.difference_update(words)


def _bare(text: str) -> str:
    """Without the parentheses that only protect a sum."""
    inner = text[1:-1]
    whole = text.startswith("(") and text.endswith(")") and "(" not in inner and ")" not in inner
    return inner if whole else text


def semantics(launch: Launch, pipeline: bool) -> Node:
    """`dimension_semantics`: the pipeline's constants, or pallas_call's strings."""
    names = [d.semantics for d in launch.dims]
    if pipeline:
        return Group(tuple(Atom(f"pltpu.{n.upper()}") for n in names))
    return Group(tuple(Atom(f'"{n}"') for n in names))


def grid(launch: Launch, steps: str) -> Node:
    extents = [Atom(steps if d.extent is None else str(d.extent)) for d in launch.dims]
    return Group(tuple(extents))


def shaped(window: Window, whole: bool) -> Node:
    """The shape and dtype of an output; whole blocks under the interpreter."""
    pairs = zip(window.shape, window.whole if whole else window.shape, strict=True)
    extents = tuple(
        Atom(str(size) if size == padded else f"{padded} if interpret else {size}")
        for size, padded in pairs
    )
    return Call("jax.ShapeDtypeStruct", (Group(extents), ops.dtype(window.dtype)))
