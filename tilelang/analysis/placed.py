"""placed(body): every statement of a kernel with the loop axes around it, outermost first."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir import KernelIR, Loop, Stmt

Place = tuple[str, ...]


def placed(body: tuple[Stmt, ...], around: Place = ()) -> Iterator[tuple[Stmt, Place]]:
    """Statements in program order, loops before their bodies; a loop is placed outside itself."""
    for stmt in body:
        yield stmt, around
        if isinstance(stmt, Loop):
            yield from placed(stmt.body, (*around, stmt.axis))


def loops(ir: KernelIR) -> dict[str, tuple[Loop, Place]]:
    """Axis name -> its loop and the axes around it."""
    return {stmt.axis: (stmt, around) for stmt, around in placed(ir.body) if isinstance(stmt, Loop)}
