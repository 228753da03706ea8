"""Windows: array references -> the block that a step sees, and the part of it that is meant."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from tilelang.analysis.uses import IndexedSite, picks_rows
from tilelang.codegen.pallas.moves import edges, moved
from tilelang.codegen.pallas.plan.placement import Placed
from tilelang.codegen.pallas.plan.steps.moves import steady
from tilelang.codegen.pallas.plan.types import All, AxisPlan, Part, Row, Select, Step, Track
from tilelang.codegen.pallas.row_loads import gather_indices, read_in_blocks
from tilelang.codegen.pallas.target import Target
from tilelang.ir import (
    Along,
    At,
    Const,
    Expr,
    Gather,
    GridIndex,
    Index,
    KernelIR,
    Span,
    integers,
    walk,
)
from tilelang.ir.names import unique
from tilelang.ir.traversal import index_exprs, loads
from tilelang.language.dtypes import itemsize
from tilelang.schedule.refusal import Refused, Rule
from tilelang.schedule.rows import InTile, as_tile

from . import types as cut
from .changed import refuse_changed
from .columns import by_columns, columns_of
from .far_rows import picked_dims
from .hosts import as_array, host_array, several
from .shared import tracked
from .turned import turned_dim
from .types import Columns, Entry, HostArray, Key, Number, Turned, Window, WindowDim
from .unaligned import PARTS, block_number, cut_rows, edge, moved_along, rounded, shift
from .within import counted_inside, first_row

Where = tuple[str, tuple[Index, ...], int]  # tensor, index, and which part of a moved tile


@dataclass(frozen=True)
class Arrays:
    """How a launch sees the kernel's tensors.

    scalars   tensors that lie whole in scalar memory
    hosts     the array of every other tensor, as the host passes it
    resident  outputs of which every step sees all positions that an index read from memory may name
    read      tensors that are read
    windows   (tensor, dims) -> window, in order of first use
    places    the window of every reference
    tracks    what picks the blocks of loops in a row
    moved     tensors that rows of many groups go from or to
    several   of arrays that are written, the dimensions of which one step uses several positions
    edges     whether tiles that are moved by little take that from the block beside their own
    split     tensors whose rows are columns of an array, and of what shape that is
    noting    axes of which rows of the step table know, where moved tiles are cut from arrays
    rows      loops inside of the step that go through rows of the tile that it is at
    """

    ir: KernelIR
    target: Target
    axes: Mapping[str, AxisPlan]
    scalars: tuple[str, ...]
    hosts: Mapping[str, HostArray]
    resident: frozenset[str]
    read: frozenset[str]
    windows: Mapping[Key, Window]
    places: Mapping[Where, Window]
    tracks: tuple[Track, ...] = ()
    moved: frozenset[str] = frozenset()
    several: Mapping[str, frozenset[int]] = field(default_factory=dict)
    noting: frozenset[str] = frozenset()
    rows: Mapping[str, InTile] = field(default_factory=dict)
    edges: bool = True
    split: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def entries(self, tensor: str, index: tuple[Index, ...]) -> tuple[Entry, ...]:
        """The index of a tensor as an index of the array that the kernel sees."""
        if tensor in self.split:
            return columns_of(self.ir.tensor(tensor).shape, self.split[tensor], index)
        return as_array(self.hosts[tensor], index)

    @property
    def written(self) -> Collection[str]:
        """The tensors that are stored to."""
        return self.several.keys()

    def find(self, tensor: str, index: tuple[Index, ...], part: int = 0) -> Window:
        """The window that a reference is to; `part` of those that a moved tile lies in."""
        return self.places[tensor, index, part]


def survey(
    ir: KernelIR,
    target: Target,
    placed: Placed,
    found: Iterable[IndexedSite],
    resident: frozenset[str],
    lifted: frozenset[str] = frozenset(),
    widened: frozenset[str] = frozenset(),
) -> Arrays:
    """Chooses scalar memory or windows for every tensor that is referred to.

    What outputs and tables need of their windows is known once their windows are:

    resident  as in Arrays
    lifted    arrays with a dimension of length 1 before the last, so that a single row of them is a
              block of its own
    widened   arrays that are cast to 32 bits
    """
    seen, axes = tuple(dict.fromkeys(found)), placed.axes
    written = frozenset(r.tensor for r in seen if r.written)
    bounds = {load.tensor for a in axes.values() for e in a.made_of for load in loads(e)}
    vector = {r.tensor for r in seen if any(not isinstance(i, At) for i in r.index)}
    scalars = bounds.union(r.tensor for r in seen) - written - vector
    made = {p.tensor for r in seen for i in r.index for e in index_exprs(i) for p in loads(e)}
    scalars -= read_in_blocks(ir, scalars - made - bounds, target)
    scalars |= gather_indices(ir, seen) | edges(ir)
    refuse_changed(ir, axes, seen)
    indices: dict[str, list[tuple[Index, ...]]] = {}
    for reference in seen:
        if reference.tensor not in scalars:
            indices.setdefault(reference.tensor, []).append(reference.index)
    other = lifted | moved(ir)
    plain = {tensor: each for tensor, each in indices.items() if tensor not in other}
    split = by_columns(ir, axes, target, plain, written)
    hosts = {
        tensor: host_array(
            ir, axes, tensor, each, tensor in lifted, tensor in widened, split.get(tensor)
        )
        for tensor, each in indices.items()
    }
    used = tuple(t.name for t in ir.tensors if t.name in scalars)
    picked = {r.tensor for r in seen if r.written and picks_rows(r.index)}
    read = frozenset(r.tensor for r in seen if not r.written)
    cuts = not target.interpreted if placed.cuts is None else placed.cuts
    noting = frozenset(placed.columns if cuts else ())
    arrays = Arrays(
        ir, target, axes, used, hosts, resident | picked, read, {}, {}, (), moved(ir), {},
        noting, placed.rows, not placed.cuts, split,
    )  # fmt: skip
    several_of = {
        t: several(hosts[t], [arrays.entries(t, i) for i in indices[t]], target)
        for t in hosts
        if t in written
    }
    arrays = replace(arrays, several=several_of)
    windows, keys = _windows(arrays, seen, written)
    taken = {t.name for t in ir.tensors} | set(axes)
    windows, tracks = tracked(windows, placed.phases, taken)
    places = {place: windows[key] for place, key in keys.items()}
    return replace(arrays, windows=windows, places=places, tracks=tracks)


# ---------------------------------------------------------------- windows


def _windows(
    arrays: Arrays, seen: tuple[IndexedSite, ...], written: frozenset[str]
) -> tuple[dict[Key, Window], dict[Where, Key]]:
    """The windows in order of first use, and which of them every reference is to."""
    windows: dict[Key, Window] = {}
    places: dict[Where, Key] = {}
    for reference in seen:
        tensor, index = reference.tensor, reference.index
        if tensor not in arrays.hosts or (tensor, index, 0) in places:
            continue
        moved = moved_along(arrays.axes, index, reference.loc)
        for part in PARTS if moved is not None else PARTS[:1]:
            key = tensor, _dims(arrays, reference, part)
            places[tensor, index, part] = key
            if key in windows:
                continue
            number = sum(t == tensor for t, _ in windows)
            if number and tensor in written:
                raise Refused(
                    Rule.FORM,
                    f"{tensor} is stored and also used at another place in the same loop nest",
                    reference.loc,
                    "loop over the places with hl.grid, where vector memory holds the array, carry "
                    "over the loop what is read again, or split the kernel into two top-level "
                    "loops or outputs",
                )
            name = f"{tensor}_{number}" if number else tensor
            windows[key] = _window(arrays, reference, key[1], name, tensor in written)
    return windows, places


def _window(
    arrays: Arrays, to: IndexedSite, dims: tuple[WindowDim, ...], name: str, output: bool
) -> Window:
    host, ref = arrays.hosts[to.tensor], unique(arrays.ir, name, "ref")
    far = any(isinstance(d, cut.Fetched) for d in dims)
    pairs = zip(dims, host.shape, strict=True)
    return Window(
        ref=ref,
        array=host.name,
        shape=host.shape,
        dtype=host.dtype,
        dims=dims,
        numbers=tuple(_number(arrays.axes, dim, size, far) for dim, size in pairs),
        output=output,
        stream=None if far else _stream_of(arrays, to.index),
        far=far,
        turned=_turned(arrays, to, ref),
    )


def _turned(arrays: Arrays, to: IndexedSite, ref: str) -> Turned | None:
    """Where the block is kept with all positions of a loop within the step in front."""
    entries = arrays.entries(to.tensor, to.index)
    dim = turned_dim(arrays.axes, entries)
    if dim is None:
        return None
    entry = entries[dim]
    assert isinstance(entry, At)
    axis = next(e.axis for e in walk(entry.expr) if isinstance(e, GridIndex))
    user = arrays.axes[axis].user
    return Turned(f"{ref.removesuffix('_ref')}_by_{user}", dim, user)


def _stream_of(arrays: Arrays, index: tuple[Index, ...]) -> str | None:
    """The pipeline inside the step that moves along the index, if there is one."""
    for entry in index:
        names = {entry.axis} if isinstance(entry, Along) else set[str]()
        known = () if isinstance(entry, Gather) else index_exprs(entry)
        names |= {axis for e in known for axis in integers.axes(e)}
        for name in sorted(names):
            if arrays.axes[name].place == "stream":
                return name
    return None


def _number(axes: Mapping[str, AxisPlan], dim: WindowDim, size: int, far: bool) -> Number:
    """Which block of a dimension of `size` positions a step sees."""
    match dim:
        case cut.ByTile(name, block) if axes[name].limit > 1:
            return Number(_inside(axes[name], -(-size // block)))
        case cut.ByRow(name):
            return Number(GridIndex(name))
        case cut.ByIndex(expr) if far and not isinstance(expr, Const | GridIndex):
            return Number(integers.clamped(expr, size))
        case cut.ByIndex(expr) | cut.ByBlock(expr) | cut.Between(first=expr) | cut.Edge(_, expr):
            return Number(expr)
        case cut.Packed(expr, rows) if rows < size:
            return Number(expr, rows)
        case _:  # a constant: a block of few rows has no provable alignment
            return Number(integers.const(0))


def _inside(axis: AxisPlan, blocks: int) -> Expr:
    """The number of a tile among the blocks of an array.

    Shorter arrays have fewer than others, and a moved range may begin before all of them.
    """
    if axis.limit <= blocks and axis.first >= 0:
        return axis.number
    return integers.clamped(axis.number, blocks) if blocks > 1 else integers.const(0)


# ---------------------------------------------------------------- dimensions


def _dims(arrays: Arrays, to: IndexedSite, part: int = 0) -> tuple[WindowDim, ...]:
    host = arrays.hosts[to.tensor]
    entries = arrays.entries(to.tensor, to.index)
    turned, picked = turned_dim(arrays.axes, entries), picks_rows(entries)
    kept = to.tensor in arrays.resident
    if picked and moved_along(arrays.axes, to.index) is not None:
        raise Refused(
            Rule.FORM,
            f"rows of {to.tensor} are picked by an index array, at other columns than those of the "
            "tile",
            to.loc,
            "load the whole rows, or use the same columns for every array",
        )

    several = arrays.several.get(to.tensor, frozenset())

    def seen(inside: bool) -> tuple[WindowDim, ...]:
        whole = kept and not (inside and picked)  # rows in HBM are stored at once
        return tuple(
            cut.Whole(host.shape[d])
            if d == turned or (d in several and not _is_packed(entry, len(entries) - d))
            else _dim(arrays, to, entry, len(entries) - d, whole, inside, part)
            for d, entry in enumerate(entries)
        )

    near = seen(_stream_of(arrays, to.index) is not None)
    if not picked:
        return near
    index = as_array(host, to.index)  # rows of views are picked of no array that they are of
    return picked_dims(near, seen(True), index, host.shape, host.dtype, arrays.target, kept)


def _is_packed(entry: Entry, place: int) -> bool:
    """Whether it is one position of a dimension that registers hold several of, or a range."""
    return isinstance(entry, At | Span) and place <= 2


def _dim(
    arrays: Arrays, to: IndexedSite, entry: Entry, place: int, kept: bool, inside: bool, part: int
) -> WindowDim:
    """How the dimension at `place`, counted from the last, is cut.

    `kept`: a step sees all positions that an index read from memory may name.
    `inside`: loops inside the step are under way when it is cut.
    """
    host, entries = arrays.hosts[to.tensor], arrays.entries(to.tensor, to.index)
    size, rows = host.shape[-place], arrays.target.tile(place, itemsize(host.dtype))
    several = len(entries) - place in arrays.several.get(to.tensor, ())
    if (tile := tile_of(arrays, entry)) is not None and tile.size < size:
        return _tile_dim(tile, size)
    match entry:
        case Along(name, offset):
            axis = arrays.axes[name]
            far = shift(axis, offset)
            block = axis.size if far is None else moved_block(arrays, to.tensor, to.index, entry)
            if axis.place == "inner" and not inside:
                return cut.Whole(-(-size // block) * block)
            moved = axis.base if far is None else far
            if moved is not None and not inside and size > block:
                _known_in_time(arrays, to.tensor, axis, moved)
            if far is None and axis.size == size and host.source in arrays.moved:
                return cut.Whole(-(-size // rows) * rows if place == 2 else size)
            if far is None:
                return _tile_dim(axis, size)
            plain = arrays.edges and turned_dim(arrays.axes, entries) is None
            if plain and (beside := edge(axis, far, rows, size)) is not None:
                return beside if beside.after == (part == 1) else _tile_dim(axis, size)
            if _is_cut(arrays, to, axis, far, place):
                return cut_rows(axis, far, rows, size)
            return cut.ByBlock(block_number(axis, far, part, block, size), block)
        case At(expr):
            whole = not inside and counted_inside(arrays.axes, expr)
            whole = whole or (kept and not steady(expr))
            if place > 2:
                return cut.Whole(size) if whole else cut.ByIndex(expr)
            near = None if to.tensor in arrays.written else first_row(arrays.axes, expr, rows)
            if whole and near is not None:
                whole, expr = False, near
            whole = whole or size <= rows or several
            if several or (whole and isinstance(expr, Const)):  # whichever position is meant
                expr = integers.const(0)
            return cut.Packed(expr, size if whole else rows, whole)
        case Columns(number, columns):
            whole = not inside and counted_inside(arrays.axes, number)
            return cut.Whole(size) if whole else cut.ByBlock(number, columns)
        case Span() if several:
            return cut.Packed(integers.const(0), size, True)
        case Span() if place == 2 and host.source in arrays.moved:
            return cut.Whole(-(-size // rows) * rows)
        case _:
            return cut.Whole(size)


def tile_of(arrays: Arrays, entry: Entry) -> AxisPlan | None:
    """The tile of the step that a single position is a row of, if it is one."""
    if not isinstance(entry, At):
        return None
    tile = as_tile(arrays.rows, entry)
    return arrays.axes[tile.axis] if isinstance(tile, Along) else None


def _is_cut(arrays: Arrays, to: IndexedSite, axis: AxisPlan, far: Expr, place: int) -> bool:
    """Whether a step copies the rows that a moved tile has: those of a matrix, or of several.

    They are known when the step table is made, and whole registers of them are a tile.
    """
    host = arrays.hosts[to.tensor]
    entries = arrays.entries(to.tensor, to.index)
    plain = place == 2 and _is_in_registers(entries[-1], host.shape[-1], arrays.target)
    plain = plain and host.shape[-2] > axis.size
    plain = plain and all(isinstance(e, At) for e in entries[:-2])
    known = {a for e in (far, axis.begin, axis.end) for a in integers.axes(e)}
    if not plain or axis.base is not None or not known | {axis.name} <= arrays.noting:
        return False
    lies = host.source not in arrays.moved and host.dtype != "bool"
    whole = axis.size % arrays.target.tile(2, itemsize(host.dtype)) == 0
    return lies and whole and axis.length is None and not to.written


def _is_in_registers(entry: Entry, columns: int, target: Target) -> bool:
    """Whether what is read of a row's columns is whole registers, up to the last one."""
    match entry:
        case Columns(_, size):
            return size % target.lanes == 0
        case Span(start, stop):
            return start % target.lanes == 0 and (stop % target.lanes == 0 or stop == columns)
        case _:
            return isinstance(entry, Along)


def _known_in_time(arrays: Arrays, tensor: str, axis: AxisPlan, far: Expr) -> None:
    """Refused where a tile is moved by what a loop inside of the step counts."""
    found = (arrays.axes[a] for a in sorted(integers.axes(far)))
    late = next((a for a in found if a.place in ("inner", "within")), None)
    if late is not None:
        raise Refused(
            Rule.FORM,
            f"where a tile of {axis.user} begins in {tensor} depends on {late.user}, whose loop "
            "runs inside of the step",
            late.loc,
            "use another loop_type, or index it by a dimension of its own",
        )


def _tile_dim(axis: AxisPlan, size: int) -> WindowDim:
    if axis.place == "single" and axis.size == size:
        return cut.Whole(size)
    if axis.length is not None:
        return cut.ByRow(axis.name, axis.size)
    moving = () if axis.base is None else tuple(sorted(integers.axes(axis.base)))
    return cut.ByTile(axis.name, axis.size, moving)


# ---------------------------------------------------------------- what of a block is meant


def selects(
    arrays: Arrays, window: Window, index: tuple[Index, ...], tensor: str, part: int = 0
) -> tuple[Select, ...]:
    """Which part of the window's block a reference means; one entry per unsqueezed dimension.

    `part` as in Arrays.find.
    """
    axes, entries = arrays.axes, arrays.entries(tensor, index)
    out: list[Select] = []
    moved = moved_along(axes, index)
    shown = zip(entries, window.dims, window.shape, strict=True)
    for place, (entry, dim, size) in zip(range(len(entries), 0, -1), shown, strict=True):
        match entry, dim:
            case _, cut.ByIndex():
                continue
            case At(expr), cut.Whole():
                out.append(Row(expr))
            case At(), cut.ByTile() | cut.ByRow() if place > 2:
                out.append(Row(row_in_block(arrays, entry)))
            case Columns(number, columns), cut.Whole():
                out.append(_numbered("", columns, number, size))
            case Along(name, offset), cut.Whole() if entry == moved:
                far = shift(axes[name], offset)
                assert moved is not None and far is not None
                block = moved_block(arrays, tensor, index, moved)
                number = block_number(axes[name], far, part, block, size)
                out.append(_numbered(name, block, number, size))
            case Along(name), cut.Whole(held) if _in_parts(axes[name], held):
                axis = axes[name]
                tile = _inside(axis, -(-held // axis.size))
                out.append(Step(name, axis.size, None if tile == axis.number else tile))
            case Span(start, stop), _ if (start, stop) != (0, size):
                out.append(Part(start, stop))
            case _:
                out.append(All())
    return tuple(out)


def _numbered(axis: str, block: int, number: Expr, size: int) -> Select:
    """One of the parts of a dimension, which may be no more than one."""
    known = integers.value_of(number)
    if known is None:
        return Step(axis, block, number)
    return All() if block >= size else Part(known * block, (known + 1) * block)


def row_in_block(arrays: Arrays, entry: At) -> Expr:
    """Which position of a block a single position is: of a tile's, counted from its first one."""
    tile = tile_of(arrays, entry)
    return entry.expr if tile is None else integers.sub(entry.expr, tile.tile.origin)


def _in_parts(axis: AxisPlan, held: int) -> bool:
    """Whether the tile of a loop inside the step is one part of the positions that are there.

    All its tiles may lie in one block of a shorter array, and of this one in several.
    """
    return axis.place == "inner" and (axis.limit > 1 or held > axis.size)


def moved_block(arrays: Arrays, tensor: str, index: tuple[Index, ...], moved: Along) -> int:
    """How long the blocks are that a moved tile lies in, or is cut from."""
    known = arrays.places.get((tensor, index, 0))
    if known is not None and known.noted:
        return known.cut.block
    host, entries = arrays.hosts[tensor], arrays.entries(tensor, index)
    turned, dim = turned_dim(arrays.axes, entries), entries.index(moved)
    place = len(entries) - dim - (turned is not None and turned > dim)  # in the block as it is kept
    return rounded(arrays.axes[moved.axis], place, host.dtype, arrays.target)
