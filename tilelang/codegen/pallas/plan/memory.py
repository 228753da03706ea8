"""Memory: the bytes that a launch needs, buffer by buffer, before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilelang.codegen.pallas.target import MIB, Target, padded_bytes, scalar_bytes
from tilelang.ir import KernelIR, Type
from tilelang.schedule.refusal import Need, Refused, Rule

from .axis import AxisPlan
from .body.gathers import extents
from .physical import Bind, Inner, PStmt, parts_of
from .types import Memory, Scratch, Section, Table
from .windows.types import Window

Axes = Mapping[str, AxisPlan]


def estimate(
    kernel: KernelIR,
    target: Target,
    axes: Axes,
    windows: Iterable[Window],
    scratch: Iterable[Scratch],
    sections: Iterable[Section],
    table: Table | None,
    scalars: tuple[str, ...],
) -> Memory:
    """The memory model: windows times buffers, scratch, the largest temporaries, tables.

    Temporaries are modelled as the named values of a section, and twice the largest value that it
    computes: the compiler keeps a few values of that size alive and spills the rest.  It may run
    all iterations of a loop within the step side by side: each further one has a value more.
    Checked against the compiler's own sums in tests of the compile matrix.
    """
    parts = [
        (w.ref, padded_bytes(w.shown, w.dtype, target) * (w.buffers or 2))
        for w in windows
        if not w.far
    ]
    held = (s for s in scratch if s.dtype != "semaphore")
    parts += [(s.name, padded_bytes(s.shape, s.dtype, target)) for s in held]
    parts.append(("temporaries", max((_temporaries(axes, s, target) for s in sections), default=0)))
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


def _temporaries(axes: Axes, section: Section, target: Target) -> int:
    def size(value: Type) -> int:
        dtype = "int8" if value.dtype == "bool" else value.dtype
        return padded_bytes(extents(value, axes), dtype, target) if value.shape else 0

    def largest(*body: PStmt) -> int:
        return max((size(e.type) for stmt in body for e in parts_of(stmt)), default=0)

    named = sum(size(stmt.value.type) for stmt in section.body if isinstance(stmt, Bind))
    loops = ((_iterations(axes, stmt) - 1) * largest(stmt) for stmt in section.body)
    repeated = max(loops, default=0)  # one loop after the other: scratch holds what they hand on
    return named + 2 * largest(*section.body) + repeated


def _iterations(axes: Axes, stmt: PStmt) -> int:
    """How many iterations of loops within the step a statement stands for."""
    if not isinstance(stmt, Inner) or axes[stmt.axis].place != "within":
        return 1
    inside = max((_iterations(axes, s) for s in stmt.body), default=1)
    return inside * (axes[stmt.axis].tiles or 1)


def with_margin(vmem: int) -> int:
    """A quarter more than predicted: kernels needed up to 1.23 of it (docs/compile-matrix.md)."""
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
