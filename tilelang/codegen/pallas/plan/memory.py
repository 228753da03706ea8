"""Memory: the bytes that a launch needs, buffer by buffer, before anything is compiled."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from tilelang.codegen.pallas.target import MIB, Target, padded_bytes, scalar_bytes
from tilelang.ir import Apply, KernelIR, Type
from tilelang.schedule.refusal import Need, Refused, Rule

from .axis import AxisPlan
from .body.gathers import extents
from .lives import Life
from .physical import GroupSum, Inner, PStmt
from .types import Form, Memory, Scratch, Section, Table
from .windows.types import Window

Axes = Mapping[str, AxisPlan]
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

    A grid keeps one buffer of a block that never moves.  Pipelines inside the step give their
    buffers back: those of the largest one count.  Checked against what the compiler took, in
    `make compile-matrix`.
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
    needs = (_temporaries(axes, s, target, form) for s in sections)
    parts.append(("temporaries", RESERVED + max(needs, default=0)))
    each = {name: scalar_bytes(kernel.tensor(name).shape) for name in scalars}
    smem = sum(each.values())
    if table is not None and table.steps == "table":
        smem += table.rows * table.width * 4
    if smem > target.smem and target.name != "cpu":  # the interpreter has room for any
        raise Refused(
            Rule.MEMORY,
            f"{kernel.name} reads single numbers of tensors that take {smem:,} bytes of scalar "
            f"memory; {target} has {target.smem:,}",
            kernel.loc,
            "make matrices flat, because each of their rows takes at least 512 bytes, or split the "
            f"kernel; the sum is: {_sum(each.items())}",
        )
    vmem = sum(size for _, size in parts)
    return Memory(tuple(parts), vmem, smem, _limit(kernel, target, vmem, parts))


def _sum(parts: Iterable[tuple[str, int]]) -> str:
    """What takes most comes first."""
    return ", ".join(f"{name} {size:,}" for name, size in sorted(parts, key=lambda p: -p[1]))


def _buffered(window: Window, form: Form, target: Target) -> int:
    """Bytes of a block and of those that are in flight."""
    still = form == "grid" and window.stream is None and not window.axes
    buffers = window.buffers or (1 if still else 2)
    return padded_bytes(window.shown, window.dtype, target) * buffers


def _temporaries(axes: Axes, section: Section, target: Target, form: Form) -> int:
    """Bytes of values that do not fit the registers, of those that are alive at once."""

    def size(value: Type) -> int:
        dtype = "int8" if value.dtype == "bool" else value.dtype
        return padded_bytes(extents(value, axes), dtype, target) if value.shape else 0

    return _alive(section.lives, Sizes(axes, size, form, target.wide))


@dataclass(frozen=True)
class Sizes:
    """How large values are; `wide`: the matrix units have 256 lanes."""

    axes: Axes
    of: Callable[[Type], int]
    form: Form
    wide: bool


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

    Values are computed register by register, in place of those that die: half of the smaller part
    is there besides.
    """
    if isinstance(life.stmt, Inner):
        turn = _alive(life.inside, sizes) + sum(sizes.of(c.next.type) for c in life.stmt.carries)
        return held + turn * _iterations(sizes.axes, life.stmt)
    largest = max(map(sizes.of, life.computed), default=0)
    copied = sum(_operands(product, sizes) for product in life.products)
    copied += sum(_parts(sums, sizes) for sums in life.sums)
    return max(held, largest) + min(held, largest) // 2 + copied


def _operands(dot: Apply, sizes: Sizes) -> int:
    """Bytes that a product makes of its operands: computed ones are stored first.

    The first one is laid out anew where it streams through the units more than once; units of 256
    lanes do that in a grid only.
    """
    left, right = dot.args
    made = sum(sizes.of(a.type) for a in (left, right) if isinstance(a, Apply))
    shape, (_, contracted) = extents(right.type, sizes.axes), dot.attr("contract")
    columns = math.prod(d for place, d in enumerate(shape) if place != contracted)
    straight = sizes.wide and (sizes.form == "pipeline" or columns <= 256)
    return made + (0 if straight or isinstance(left, Apply) else sizes.of(left.type))


def _parts(sums: GroupSum, sizes: Sizes) -> int:
    """Bytes of rows in float32 without what is not finite, of their parts, and of who is whose.

    The factors are what libtpu took.
    """
    rows = sizes.of(replace(sums.rows.type, dtype="float32"))
    quarters = 6 if sums.rows.type.dtype == "bfloat16" else 16
    return rows * quarters // 4 + sizes.of(replace(sums.member.type, dtype="int32"))


def _iterations(axes: Axes, stmt: PStmt) -> int:
    """How many iterations of loops within the step a statement stands for."""
    if not isinstance(stmt, Inner) or axes[stmt.axis].place != "within":
        return 1
    inside = max((_iterations(axes, s) for s in stmt.body), default=1)
    return inside * (axes[stmt.axis].tiles or 1) // stmt.together


def with_margin(vmem: int) -> int:
    """A quarter more than predicted, which may be too little by a few per cent."""
    return -(-vmem * 5 // 4)


def _limit(
    kernel: KernelIR, target: Target, vmem: int, parts: Iterable[tuple[str, int]]
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
        Rule.MEMORY,
        f"{kernel.name} needs {vmem:,} bytes of vector memory, {target} has "
        f"{target.vmem_physical:,}",
        kernel.loc,
        f"use smaller blocks; the sum is: {_sum(parts)}",
        Need("vmem", vmem, "smaller"),
    )
