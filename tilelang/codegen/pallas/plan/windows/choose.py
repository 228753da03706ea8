"""Windows: array references -> the block that a step sees, and the part of it that is meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tilelang.analysis.uses import Reference, picks_rows
from tilelang.codegen.pallas.plan.placement import Placed
from tilelang.codegen.pallas.plan.steps.moves import steady
from tilelang.codegen.pallas.plan.types import (
    All,
    AxisPlan,
    ByBlock,
    ByIndex,
    ByRow,
    ByTile,
    Fetched,
    HostArray,
    Number,
    Packed,
    Part,
    Row,
    Select,
    Step,
    Track,
    Turned,
    Whole,
    Window,
    WindowDim,
)
from tilelang.codegen.pallas.row_loads import gather_indices
from tilelang.codegen.pallas.target import Target
from tilelang.errors import Loc
from tilelang.ir import (
    Along,
    At,
    Const,
    Expr,
    GridIndex,
    Index,
    KernelIR,
    Span,
    TileIndex,
    TileScalar,
    integers,
    walk,
)
from tilelang.ir.names import unique
from tilelang.ir.traversal import loads
from tilelang.language.dtypes import itemsize, wide_of
from tilelang.schedule.refusal import Refused, Rule

from .far_rows import picked_dims
from .shared import tracked
from .turned import takes_all, turned_dim
from .types import UNCUT
from .unaligned import block_number, moved_along, parts, rounded, shift

Key = tuple[str, tuple[WindowDim, ...]]
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
    """

    ir: KernelIR
    target: Target
    axes: Mapping[str, AxisPlan]
    scalars: tuple[str, ...]
    hosts: Mapping[str, HostArray]
    resident: frozenset[str]
    read: frozenset[str]
    windows: Mapping[tuple[str, tuple[WindowDim, ...]], Window]
    places: Mapping[Where, Window]
    tracks: tuple[Track, ...] = ()

    def find(self, tensor: str, index: tuple[Index, ...], part: int = 0) -> Window:
        """The window that a reference is to; `part` of those that a moved tile lies in."""
        return self.places[tensor, index, part]


@dataclass(frozen=True)
class Wishes:
    """What outputs and tables need of their windows, known once their windows are.

    lifted    arrays with a dimension of length 1 before the last, so that a single row of them is a
              block of its own
    widened   arrays that are cast to 32 bits
    resident  as in Arrays
    """

    lifted: frozenset[str] = frozenset()
    widened: frozenset[str] = frozenset()
    resident: frozenset[str] = frozenset()


def survey(
    ir: KernelIR,
    target: Target,
    placed: Placed,
    found: Iterable[Reference],
    wishes: Wishes,
) -> Arrays:
    """Chooses scalar memory or windows for every tensor that is referred to."""
    seen, axes = tuple(dict.fromkeys(found)), placed.axes
    written = frozenset(r.tensor for r in seen if r.written)
    scalars = _scalar_tensors(axes, seen, written) | gather_indices(ir, seen)
    indices: dict[str, list[tuple[Index, ...]]] = {}
    for reference in seen:
        if reference.tensor not in scalars:
            indices.setdefault(reference.tensor, []).append(reference.index)
    hosts = {
        tensor: _host_array(ir, axes, tensor, each, tensor in wishes.lifted)
        for tensor, each in indices.items()
    }
    hosts |= {t: _widened(ir, hosts[t]) for t in wishes.widened}
    used = tuple(t.name for t in ir.tensors if t.name in scalars)
    picked = {r.tensor for r in seen if r.written and picks_rows(r.index)}
    read = frozenset(r.tensor for r in seen if not r.written)
    arrays = Arrays(ir, target, axes, used, hosts, wishes.resident | picked, read, {}, {})
    windows, keys = _windows(arrays, seen, written)
    taken = {t.name for t in ir.tensors} | set(axes)
    windows, tracks = tracked(windows, placed.phases, taken)
    places = {place: windows[key] for place, key in keys.items()}
    return replace(arrays, windows=windows, places=places, tracks=tracks)


def _windows(
    arrays: Arrays, seen: tuple[Reference, ...], written: frozenset[str]
) -> tuple[dict[Key, Window], dict[Where, Key]]:
    """The windows in order of first use, and which of them every reference is to."""
    windows: dict[Key, Window] = {}
    places: dict[Where, Key] = {}
    for reference in seen:
        tensor, index = reference.tensor, reference.index
        if tensor not in arrays.hosts or (tensor, index, 0) in places:
            continue
        for part in parts(arrays.axes, index, reference.loc):
            key = tensor, _dims(arrays, tensor, index, reference.loc, part)
            places[tensor, index, part] = key
            if key in windows:
                continue
            number = sum(t == tensor for t, _ in windows)
            if number and tensor in written:
                raise Refused(
                    Rule.FORM,
                    f"{tensor} is stored and also used at another place in the same loop nest",
                    reference.loc,
                    "store to one output per place, or split the kernel into two top-level loops",
                )
            name = f"{tensor}_{number}" if number else tensor
            windows[key] = _window(arrays, reference, key[1], name, tensor in written)
    return windows, places


def _window(
    arrays: Arrays, to: Reference, dims: tuple[WindowDim, ...], name: str, output: bool
) -> Window:
    host, ref = arrays.hosts[to.tensor], unique(arrays.ir, name, "ref")
    pairs = zip(dims, host.shape, strict=True)
    return Window(
        ref=ref,
        array=host.name,
        shape=host.shape,
        dtype=host.dtype,
        dims=dims,
        numbers=tuple(_number(arrays.axes, dim, size, _far(dims)) for dim, size in pairs),
        output=output,
        stream=UNCUT if _far(dims) else _stream_of(arrays, to.index),
        turned=_turned(arrays, to.tensor, to.index, ref),
    )


def _scalar_tensors(
    axes: Mapping[str, AxisPlan], seen: tuple[Reference, ...], written: frozenset[str]
) -> set[str]:
    names = {r.tensor for r in seen} - written
    for axis in axes.values():
        names |= {load.tensor for e in (axis.begin, axis.end) for load in loads(e)} - written
    vector = {r.tensor for r in seen if any(not isinstance(i, At) for i in r.index)}
    return names - vector


def _host_array(
    ir: KernelIR,
    axes: Mapping[str, AxisPlan],
    name: str,
    indices: list[tuple[Index, ...]],
    lift: bool,
) -> HostArray:
    """Rank 1 becomes one row; single positions among the last two dimensions move to the front.

    Positions that a step takes all of stay where they are.
    """
    tensor = ir.tensor(name)
    shape, rank = tensor.shape, len(tensor.shape)
    dtype = "int32" if tensor.dtype == "int64" else tensor.dtype
    at = [
        d
        for d in range(rank)
        if all(isinstance(i[d], At) and not takes_all(axes, i[d]) for i in indices)
    ]
    if lift and rank >= 2:
        lifted = (*shape[:-1], 1, shape[-1])
        return HostArray(unique(ir, name, "rows"), name, None, lifted, dtype)
    if rank == 1:
        return HostArray(unique(ir, name, "row"), name, None, (1, *shape), dtype)
    if rank >= 3 and any(d >= rank - 2 for d in at) and len(at) <= rank - 2:
        order = (*at, *(d for d in range(rank) if d not in at))
        moved = tuple(shape[d] for d in order)
        return HostArray(unique(ir, name, "moved"), name, order, moved, dtype)
    return HostArray(name, name, None, shape, dtype)


def _widened(ir: KernelIR, host: HostArray) -> HostArray:
    return replace(host, name=unique(ir, host.source, "wide"), dtype=wide_of(host.dtype), wide=True)


def as_array(host: HostArray, index: tuple[Index, ...]) -> tuple[Index, ...]:
    """The index of a tensor as an index of the array that the kernel sees."""
    if host.permute is not None:
        return tuple(index[d] for d in host.permute)
    if len(host.shape) == len(index) + 1:
        return (*index[:-1], Span(0, 1), index[-1])
    return index


def _dims(
    arrays: Arrays, tensor: str, index: tuple[Index, ...], loc: Loc | None, part: int = 0
) -> tuple[WindowDim, ...]:
    host = arrays.hosts[tensor]
    entries = as_array(host, index)
    kept = tensor in arrays.resident
    turned = turned_dim(arrays.axes, entries)
    known = _stream_of(arrays, index) is not None

    picked = picks_rows(entries)
    if picked and moved_along(arrays.axes, index) is not None:
        raise Refused(
            Rule.FORM,
            f"rows of {tensor} are picked by an index array, at other columns than those of the "
            "tile",
            loc,
            "load the whole rows, or use the same columns for every array",
        )

    def cut(inside: bool) -> tuple[WindowDim, ...]:
        whole = kept and not (inside and picked)  # rows in HBM are stored at once
        return tuple(
            Whole(size)
            if d == turned
            else _dim(arrays, entry, size, len(entries) - d, host.dtype, whole, inside, part)
            for d, (entry, size) in enumerate(zip(entries, host.shape, strict=True))
        )

    if picked:
        return picked_dims(
            cut(known), cut(True), entries, host.shape, host.dtype, arrays.target, kept
        )
    return cut(known)


def _turned(arrays: Arrays, tensor: str, index: tuple[Index, ...], ref: str) -> Turned | None:
    """Where the block is kept with all positions of a loop within the step in front."""
    entries = as_array(arrays.hosts[tensor], index)
    dim = turned_dim(arrays.axes, entries)
    if dim is None:
        return None
    entry = entries[dim]
    assert isinstance(entry, At)
    axis = next(e.axis for e in walk(entry.expr) if isinstance(e, GridIndex))
    user = arrays.axes[axis].user
    return Turned(f"{ref.removesuffix('_ref')}_by_{user}", dim, user)


def _far(dims: tuple[WindowDim, ...]) -> bool:
    return any(isinstance(d, Fetched) for d in dims)


def _dim(
    arrays: Arrays,
    entry: Index,
    size: int,
    place: int,
    dtype: str,
    resident: bool,
    known: bool,
    part: int,
) -> WindowDim:
    """How one dimension is cut; `known`: loops inside the step are under way when it is cut."""
    match entry:
        case Along(name, offset):
            axis = arrays.axes[name]
            far = shift(axis, offset)
            if far is None:
                return _tile_dim(axis, size, known)
            block = rounded(axis, place, dtype, arrays.target)
            if axis.place == "inner" and not known:
                return Whole(-(-size // block) * block)
            return ByBlock(block_number(axis, far, part, block, size), block)
        case At(expr):
            inside = not known and _inside_step(arrays, expr)
            inside = inside or (resident and not steady(expr))
            if place > 2:
                return Whole(size) if inside else ByIndex(expr)
            rows = arrays.target.rows(itemsize(dtype)) if place == 2 else arrays.target.lanes
            whole = size <= rows or inside
            if whole and isinstance(expr, Const):  # one window, whichever position is meant
                expr = Const(0, expr.type)
            return Packed(expr, size if whole else rows, whole)
        case _:
            return Whole(size)


def _number(axes: Mapping[str, AxisPlan], dim: WindowDim, size: int, far: bool) -> Number:
    """Which block of a dimension of `size` positions a step sees."""
    match dim:
        case ByTile(name) if axes[name].limit > 1:
            axis = axes[name]
            once = integers.const(axis.first) if axis.base is None else axis.base
            return Number(once if axis.place == "single" else GridIndex(name))
        case ByRow(name):
            return Number(GridIndex(name))
        case ByIndex(expr) if far and not isinstance(expr, Const | GridIndex):
            return Number(integers.clamped(expr, size))
        case ByIndex(expr):
            return Number(expr)
        case ByBlock(expr):
            return Number(expr)
        case Packed(expr, rows) if rows < size:
            return Number(expr, rows)
        case _:  # a constant: a block of few rows has no provable alignment
            return Number(integers.const(0))


def _stream_of(arrays: Arrays, index: tuple[Index, ...]) -> str | None:
    """The pipeline inside the step that moves along the index, if there is one."""
    for entry in index:
        names = {entry.axis} if isinstance(entry, Along) else set()
        if isinstance(entry, At):
            names = {e.axis for e in walk(entry.expr) if isinstance(e, GridIndex | TileScalar)}
        for name in names:
            if arrays.axes[name].place == "stream":
                return name
    return None


def _tile_dim(axis: AxisPlan, size: int, known: bool) -> WindowDim:
    block = axis.block or 1
    if axis.place == "inner" and not known:
        return Whole(-(-size // block) * block)
    if axis.place == "single" and block == size:
        return Whole(size)
    if axis.length is not None:
        return ByRow(axis.name, block)
    moving = () if axis.base is None else tuple(sorted(integers.axes(axis.base)))
    return ByTile(axis.name, block, moving)


def _inside_step(arrays: Arrays, expr: Expr) -> bool:
    """Whether the position is known only inside the step: it depends on an inner loop."""
    for part in walk(expr):
        match part:
            case GridIndex(axis) | TileIndex(axis) | TileScalar(axis):
                if arrays.axes[axis].place in ("inner", "within"):
                    return True
            case _:
                pass
    return False


def selects(
    arrays: Arrays, window: Window, index: tuple[Index, ...], tensor: str, part: int = 0
) -> tuple[Select, ...]:
    """Which part of the window's block a reference means; one entry per unsqueezed dimension.

    `part` as in Arrays.find.
    """
    entries = as_array(arrays.hosts[tensor], index)
    out: list[Select] = []
    moved = moved_along(arrays.axes, index)
    for entry, dim, size in zip(entries, window.dims, window.shape, strict=True):
        match entry, dim:
            case _, ByIndex():
                continue
            case At(expr), Whole():
                out.append(Row(expr))
            case Along(axis, offset), Whole() if entry == moved:
                far = shift(arrays.axes[axis], offset)
                assert moved is not None and far is not None
                block = moved_block(arrays, tensor, index, moved)
                number = block_number(arrays.axes[axis], far, part, block, size)
                out.append(Step(axis, block, number))
            case Along(axis), Whole() if _inner_tiles(arrays.axes[axis]) > 1:
                out.append(Step(axis, arrays.axes[axis].block or 1))
            case Span(start, stop), _ if (start, stop) != (0, size):
                out.append(Part(start, stop))
            case _:
                out.append(All())
    return tuple(out)


def moved_block(arrays: Arrays, tensor: str, index: tuple[Index, ...], moved: Along) -> int:
    """How long the blocks are that a moved tile lies in."""
    host = arrays.hosts[tensor]
    entries = as_array(host, index)
    place = len(entries) - entries.index(moved)
    return rounded(arrays.axes[moved.axis], place, host.dtype, arrays.target)


def _inner_tiles(axis: AxisPlan) -> int:
    """Tiles of an axis that a loop inside the step runs over; 0 for other axes."""
    return axis.limit if axis.place == "inner" else 0
