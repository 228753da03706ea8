"""Modest: whether a plan takes no more vector memory than a kernel gets without asking for more."""

from __future__ import annotations

from .physical import Inner
from .types import Plan


def settled(planned: Plan) -> bool:
    """Whether no other form could do better.

    It is modest, or no step loops over blocks that lie in vector memory as a whole.
    """
    return modest(planned) or not any(
        isinstance(stmt, Inner) and launch.axis(stmt.axis).place != "within"
        for launch in planned.launches
        for section in launch.sections
        for stmt in section.body
    )


def modest(planned: Plan) -> bool:
    """Whether every launch fits the memory that a kernel gets without asking for more."""
    return all(launch.memory.limit is None for launch in planned.launches)
