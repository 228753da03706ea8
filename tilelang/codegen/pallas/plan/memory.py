"""Memory: the bytes that a launch needs, buffer by buffer, before anything is compiled."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from tilelang.codegen.pallas.target import MIB, Target, padded_bytes, scalar_bytes
from tilelang.errors import Loc
from tilelang.ir import Apply, KernelIR, Type
from tilelang.language.dtypes import itemsize
from tilelang.schedule.refusal import Need, Refused, Rule

from .axis import AxisPlan, extents
from .lives import Life
from .physical import Bind, GroupSum, Inner
from .types import Form, Launch, Memory, Plan, Scratch, Section, Table
from .windows.types import Whole, Window

Axes = Mapping[str, AxisPlan]
TEMPORARIES = "temporaries"
UNKNOWN = Memory((), 0, 0, None)  # of a launch whose windows are not all chosen
SHORT = 256  # lanes of rows, for which columns are spread when they are asked for
# What to write where single numbers do not fit scalar memory: flat rows are not filled up to lanes.
FLAT = "make matrices flat, because each of their rows takes at least 512 bytes"
BLOCKS = (
    "load numbers that are no positions or bounds as blocks, x[i, 0:1] for x[i, 0] and "
    "v.reshape(-1, 1)[i, :] for v[i]"
)
RESERVED = 128 * 1024  # bytes that libtpu keeps in every kernel: 72 to 110 KiB were seen


def estimate(
    kernel: KernelIR,
    target: Target,
    axes: Axes,
    form: Form,
    windows: Iterable[Window],
    scratch: Iterable[Scratch],
    sections: Iterable[Section],
    table: Table | None,
    scalars: tuple[str, ...],
) -> Memory:
    """The memory model: windows times buffers, scratch, the largest temporaries, tables.

    A grid keeps one buffer of a block that never moves, or comes in pieces.  Pipelines inside the
    step give their buffers back: those of the largest one count.  Checked against what the compiler
    took, in `make compile-matrix`.
    """
    near = [w for w in windows if not w.far]
    parts = [(w.ref, _buffered(w, form, target)) for w in near if w.stream is None]
    streams: dict[str, list[tuple[str, int]]] = {}
    for w in near:
        if w.stream is not None:
            streams.setdefault(w.stream, []).append((w.ref, _buffered(w, form, target)))
    parts += max(streams.values(), key=lambda each: sum(size for _, size in each), default=[])
    held = (s for s in scratch if s.dtype != "semaphore")
    parts += [(s.name, padded_bytes(s.shape, s.dtype, target)) for s in held]
    parts.append((TEMPORARIES, _temporaries(axes, sections, target, form)))
    steps = table.rows * table.width * 4 if table is not None and table.steps == "table" else 0
    smem = _scalars(kernel, target, scalars, steps)
    return _memory(kernel.name, kernel.loc, target, tuple(parts), smem)


def _scalars(kernel: KernelIR, target: Target, scalars: tuple[str, ...], steps: int) -> int:
    """Bytes of scalar memory, with the table of steps; refused with what helps if it has fewer."""
    shapes = {name: kernel.tensor(name).shape for name in scalars}
    each = {name: scalar_bytes(shape) for name, shape in shapes.items()} | {"the step table": steps}
    need = sum(each.values())
    if need <= target.smem or target.interpreted:  # the interpreter has room for any
        return need
    flat = sum(4 * math.prod(shape) for shape in shapes.values()) <= target.smem
    raise Refused(
        Rule.FORM,
        f"{kernel.name} reads single numbers of tensors that take {need:,} bytes of scalar "
        f"memory; {target} has {target.smem:,}",
        kernel.loc,
        (FLAT if flat else BLOCKS) + f", or split the kernel; the sum is: {_sum(each.items())}",
    )


def again(launch: Launch, target: Target) -> Memory:
    """The memory of a launch whose sections have changed, and nothing else."""
    axes = {a.name: a for a in launch.axes}
    size = _temporaries(axes, launch.sections, target, launch.form)
    parts = {**dict(launch.memory.parts), TEMPORARIES: size}
    return _memory(launch.name, launch.loc, target, tuple(parts.items()), launch.memory.smem)


def without_blocks(plan: Plan) -> Plan:
    """The plan with the memory of those arrays alone of which steps have all, whatever the blocks.

    Loops inside of a step go through arrays that are whole there.
    """

    def still(launch: Launch) -> Launch:
        cutting = (a for a in launch.axes if a.block is not None and a.place != "inner")
        cut = {use.tensor for a in cutting for use in plan.problem.uses(a.name)}
        whole = [w for w in launch.windows if all(isinstance(d, Whole) for d in w.dims)]
        kept = [w for w in whole if plan.array(w.array).source not in cut]
        parts = tuple((w.ref, padded_bytes(w.shape, w.dtype, plan.target)) for w in kept)
        memory = _memory(launch.name, launch.loc, plan.target, parts, launch.memory.smem)
        return replace(launch, memory=memory)

    return replace(plan, launches=tuple(map(still, plan.launches)))


def _memory(
    name: str, loc: Loc, target: Target, parts: tuple[tuple[str, int], ...], smem: int
) -> Memory:
    vmem = sum(size for _, size in parts)
    return Memory(parts, vmem, smem, _limit(name, loc, target, vmem, parts))


def _sum(parts: Iterable[tuple[str, int]]) -> str:
    """What takes most comes first."""
    return ", ".join(
        f"{name} {size:,}" for name, size in sorted(parts, key=lambda p: -p[1]) if size
    )


def _buffered(window: Window, form: Form, target: Target) -> int:
    """Bytes of a block and of those that are in flight."""
    still = window.flows or (form == "grid" and window.stream is None and not window.axes)
    buffers = window.buffers or (1 if still else 2)
    return padded_bytes(window.resident, window.dtype, target) * buffers


def _temporaries(axes: Axes, sections: Iterable[Section], target: Target, form: Form) -> int:
    """Bytes of values that do not fit the registers, of those that are alive at once."""

    def size(value: Type) -> int:
        dtype = "int8" if value.dtype == "bool" else value.dtype
        return padded_bytes(extents(value, axes), dtype, target) if value.shape else 0

    sizes = Sizes(axes, size, form, target.wide, target.ranked)
    return RESERVED + max((_alive(s.lives, sizes) for s in sections), default=0)


@dataclass(frozen=True)
class Sizes:
    """How large values are; `wide` and `ranked` are those of the target."""

    axes: Axes
    of: Callable[[Type], int]
    form: Form
    wide: bool
    ranked: int


def _alive(body: tuple[Life, ...], sizes: Sizes) -> int:
    """The most that is alive at once: a value from its statement to its last use."""
    ends: dict[int, int] = {}  # place of the last use -> bytes
    before = most = 0
    for place, life in enumerate(body):
        most = max(most, _during(life, before, sizes))
        before -= ends.pop(place, 0)
        if life.held is not None:
            value, end = life.held
            size = sizes.of(value)
            ends[end], before = ends.get(end, 0) + size, before + size
    return most


def _during(life: Life, held: int, sizes: Sizes) -> int:
    """What is alive while a statement runs, with `held` bytes around it.

    Values are computed register by register, in place of those that die, and go into stores and
    products from there: a quarter of the largest is kept for some time, or half of what is around,
    if that is less.  The fractions are those with which most kernels of docs/compile-matrix.md are
    within 15 % of what the compiler took, and none took more than 16 % more.  Rows with columns are
    computed as a whole first: of 64 x 65536 numbers libtpu took each, if two operations made it.
    """
    if isinstance(life.stmt, Inner):
        carried = sum(sizes.of(c.next.type) for c in life.stmt.carries)
        turn = carried + _ahead(life.stmt, sizes) + _alive(life.inside, sizes)
        return held + turn * _at_once(life, sizes.axes)
    largest = max(map(sizes.of, life.computed), default=0)
    whole = max(map(sizes.of, life.outer), default=0)
    copied = sum(_anew(product, sizes) for product in life.products)
    copied += sum(_parts(sums, sizes) for sums in life.sums)
    copied += sum(_spread(value, sizes) for value in life.spread)
    copied += sum(_ranked(value, lanes, sizes) for value, lanes in life.ranked)
    copied += _columns(life, largest, sizes)
    return max(held, largest // 4, whole) + min(held, largest) // 2 + copied


def _at_once(life: Life, axes: Axes) -> int:
    """How many iterations of a loop within the step may be alive together.

    The compiler runs them one after another, but where several products of one wait for each other
    it takes those of the next in between: of 8 iterations, paged attention on v5e had 3 and a half.
    """
    stmt = life.stmt
    assert isinstance(stmt, Inner)
    if axes[stmt.axis].place != "within" or sum(len(one.products) for one in life.inside) < 2:
        return 1
    return (axes[stmt.axis].tiles or 1) // stmt.together


def _anew(dot: Apply, sizes: Sizes) -> int:
    """Bytes of the operands of a product that are laid out anew.

    The first one is where it streams through the units more than once; units of 256 lanes do that
    in a grid only, and take what is computed as it comes.  Others have that stored first.
    """
    left, right = dot.args
    shape, (_, contracted) = extents(right.type, sizes.axes), dot.attr("contract")
    columns = math.prod(d for place, d in enumerate(shape) if place != contracted)
    straight = sizes.wide and (sizes.form == "pipeline" or columns <= 256)
    copied = 0 if straight or isinstance(left, Apply) else sizes.of(left.type)
    made = () if sizes.wide else (a.type for a in (left, right) if isinstance(a, Apply))
    return copied + sum(map(sizes.of, made))


def _spread(value: Type, sizes: Sizes) -> int:
    """Bytes of a value with few numbers in each row of lanes, which memory has as a whole.

    The factors are what libtpu 0.0.42.1 took, or a tenth less, of (t, 300) as (t, 150, 2), and of
    pieces of 2 to 64, where that was more than there is.
    """
    halves = 2 + sizes.wide + (itemsize(value.dtype) < 4)
    return sizes.of(value) * halves // 2


def _ranked(value: Type, lanes: bool, sizes: Sizes) -> int:
    """Bytes of numbers and their positions while the greatest of each row is looked for.

    Of (128, 16384) libtpu 0.0.42.1 kept both as a whole on v5e and v6e; 7x kept nothing of up to
    24,576 lanes, and both of 32,000.  Of columns it was a third of one.
    """
    size = sizes.of(value)
    return size // 3 if not lanes else 2 * size if size > sizes.ranked else 0


def _columns(life: Life, largest: int, sizes: Sizes) -> int:
    """Bytes of the columns that long rows are multiplied by, and of what waits for them.

    Columns are spread over lanes as early as they can be.  Of rows of 1,024 lanes, each read for a
    product with a column of its own, and added, libtpu 0.0.42.1 kept one of two, and up to 2.6 of
    more, besides the columns; of rows of two registers hardly any.
    """
    mixed, stmt = life.mixed, life.stmt
    assert not isinstance(stmt, Inner)
    if len(mixed.columns) < 2 or mixed.rows == 0:
        return 0
    if extents(stmt.value.type, sizes.axes)[-1] <= SHORT:
        return 0
    waiting = largest * min(10 * (mixed.rows - 1), 26) // 10
    return sum(sizes.of(column.type) for column in mixed.columns) + waiting


def _ahead(loop: Inner, sizes: Sizes) -> int:
    """Bytes of what the next turn hands over while one runs."""
    handed = (s.value.type for s in loop.body if isinstance(s, Bind) and s.name in loop.handed)
    return sum(map(sizes.of, handed))


def _parts(sums: GroupSum, sizes: Sizes) -> int:
    """Bytes of rows in float32 without what is not finite, of their parts, and of who is whose.

    The factors are what libtpu took.
    """
    rows = sizes.of(replace(sums.rows.type, dtype="float32"))
    quarters = 6 if sums.rows.type.dtype == "bfloat16" else 16
    return rows * quarters // 4 + sizes.of(replace(sums.member.type, dtype="int32"))


def with_margin(vmem: int) -> int:
    """A quarter more than predicted, which may be too little by a few per cent."""
    return -(-vmem * 5 // 4)


def _limit(
    name: str, loc: Loc, target: Target, vmem: int, parts: Iterable[tuple[str, int]]
) -> int | None:
    """What to ask the compiler for: nothing while the default is ample."""
    if with_margin(vmem) <= target.vmem_default:
        return None
    asked = -(-with_margin(vmem) // MIB) * MIB
    if asked <= target.vmem_physical:
        return asked
    if vmem <= target.vmem_physical * 9 // 10:  # few kernels need the margin; a tenth is a guess
        return target.vmem_physical
    raise Refused(
        Rule.FORM,
        f"{name} needs {vmem:,} bytes of vector memory, {target} has {target.vmem_physical:,}",
        loc,
        f"use smaller blocks; the sum is: {_sum(parts)}",
        Need("smaller"),
    )
