"""Memory: the bytes that a launch needs, buffer by buffer, before anything is compiled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilelang.codegen.pallas.target import MIB, Target, padded_bytes, scalar_bytes
from tilelang.ir import KernelIR, Type
from tilelang.schedule.refusal import Need, Refused, Rule

from .axis import AxisPlan
from .physical import Bind, Inner, PStmt, parts_of
from .types import Memory, Scratch, Section, Table
from .windows.types import Window


def estimate(
    ir: KernelIR,
    target: Target,
    axes: Mapping[str, AxisPlan],
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
    parts = []
    for window in windows:
        if window.far:
            continue
        block = tuple(b for b in window.block if b is not None)
        size = padded_bytes(block, window.dtype, target) * (window.buffers or 2)
        parts.append((window.ref, size))
    held = [s for s in scratch if s.dtype != "semaphore"]
    parts += [(s.name, padded_bytes(s.shape, s.dtype, target)) for s in held]
    parts.append(("temporaries", _temporaries(axes, sections, target)))
    vmem = sum(size for _, size in parts)
    smem = sum(scalar_bytes(ir.tensor(name).shape) for name in scalars)
    if table is not None and table.steps == "table":
        smem += table.rows * table.width * 4
    _check_scalars(ir, target, scalars, smem)
    return Memory(tuple(parts), vmem, smem, _limit(ir, target, vmem, tuple(parts)))


def _check_scalars(ir: KernelIR, target: Target, scalars: tuple[str, ...], smem: int) -> None:
    """PlanError if the tensors of which single numbers are read do not fit scalar memory."""
    if smem <= target.smem or target.name == "cpu":  # the interpreter has room for any
        return
    each = {name: scalar_bytes(ir.tensor(name).shape) for name in scalars}
    sums = ", ".join(f"{n} {size:,}" for n, size in sorted(each.items(), key=lambda p: -p[1]))
    raise Refused(
        Rule.MEMORY,
        f"{ir.name} reads single numbers of tensors that take {smem:,} bytes of scalar memory; "
        f"{target} has {target.smem:,}",
        ir.loc,
        "make matrices flat, because each of their rows takes at least 512 bytes, or split the "
        f"kernel; the sum is: {sums}",
    )


def _temporaries(axes: Mapping[str, AxisPlan], sections: Iterable[Section], target: Target) -> int:
    def size(value: Type) -> int:
        return _value_bytes(value, axes, target)

    def largest(body: Iterable[PStmt]) -> int:
        return max((size(e.type) for stmt in body for e in parts_of(stmt)), default=0)

    found = [0]
    for section in sections:
        named = sum(size(stmt.value.type) for stmt in section.body if isinstance(stmt, Bind))
        repeated = sum((_iterations(axes, s) - 1) * largest((s,)) for s in section.body)
        found.append(named + 2 * largest(section.body) + repeated)
    return max(found)


def _iterations(axes: Mapping[str, AxisPlan], stmt: PStmt) -> int:
    """How many iterations of loops within the step a statement stands for."""
    if not isinstance(stmt, Inner) or axes[stmt.axis].place != "within":
        return 1
    inside = max((_iterations(axes, s) for s in stmt.body), default=1)
    return inside * (axes[stmt.axis].tiles or 1)


def _value_bytes(value: Type, axes: Mapping[str, AxisPlan], target: Target) -> int:
    shape = tuple(d if isinstance(d, int) else axes[d].block or 1 for d in value.shape)
    dtype = "int8" if value.dtype == "bool" else value.dtype
    return padded_bytes(shape, dtype, target) if shape else 0


def _limit(
    ir: KernelIR, target: Target, vmem: int, parts: tuple[tuple[str, int], ...]
) -> int | None:
    """What to ask the compiler for: nothing while the default is ample, else a quarter more."""
    if vmem * 5 // 4 <= target.vmem_default:
        return None
    asked = -(-vmem * 5 // 4 // MIB) * MIB
    if asked <= target.vmem_physical:
        return asked
    if vmem <= target.vmem_physical * 9 // 10:
        return target.vmem_physical
    sums = ", ".join(f"{name} {size:,}" for name, size in sorted(parts, key=lambda p: -p[1]))
    raise Refused(
        Rule.MEMORY,
        f"{ir.name} needs {vmem:,} bytes of vector memory, {target} has {target.vmem_physical:,}",
        ir.loc,
        f"use smaller blocks; the sum is: {sums}",
        Need("vmem", vmem, "smaller"),
    )
