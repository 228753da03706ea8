"""Bugs planted in the step tables of ranges inside of ranges; a program of theirs must notice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilelang.analysis import axes
from tilelang.codegen.pallas.emit import steps, worklist
from tilelang.codegen.pallas.plan import placement


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


def _one_cursor(printer: Any, table: Any, column: Any) -> str:
    return "seen"


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
        "the cursor of an outer column taken for that of an inner one", steps, "seen_name",
        _one_cursor, "tile_in_tile", {"loop_type": "outer_pipeline"},
    ),
    Broken(
        "an inner column keeps no cursor", steps, "_cursors",
        lambda printer, table, position: [], "tile_in_tile", {"loop_type": "outer_pipeline"},
    ),
    Broken(
        "max_extent taken for a bound of positions", placement, "shift_of",
        lambda ir, axis: None, "positions_alone", {},
    ),
    Broken(
        "tiles that count from their range said to rise over all ranges", axes, "_placed",
        lambda axis, references: True, "added_alone", {"loop_type": "worklist"},
    ),
)  # fmt: skip
