"""Bugs planted in the step tables of ranges inside of ranges; a program of theirs must notice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilelang.analysis import axes
from tilelang.codegen.pallas.emit import worklist
from tilelang.schedule.problem import Problem


@dataclass(frozen=True)
class Broken:
    """One wrong function in the place of a right one, and the program and form that show it."""

    what: str
    owner: Any
    name: str
    wrong: Any
    program: str
    form: dict[str, str]

    def __str__(self) -> str:
        return self.what


BROKEN = (
    Broken(
        "unused rows of the list ask for tiles", worklist, "_spare",
        lambda printer, table, position: position > 1,
        "some_groups", {"loop_type": "worklist"},
    ),
    Broken(
        "unused rows of the list ask for every index of a grid", worklist, "_spare",
        lambda printer, table, position: False,
        "moved_over_groups", {"loop_type": "worklist"},
    ),
    Broken(
        "max_extent taken for a bound of positions", Problem, "shift",
        lambda problem, axis: next((u.offset for u in problem.uses(axis)), None),
        "positions_alone", {},
    ),
    Broken(
        "tiles that count from their range said to rise over all ranges", axes, "_placed",
        lambda axis, references: True, "added_alone", {"loop_type": "worklist"},
    ),
)  # fmt: skip
