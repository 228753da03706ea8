"""Masks: which lanes the statements of a step leave out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilelang.errors import Loc
from tilelang.ir import Apply

from .axis import LeftOut, Mask
from .physical import Inner, InRange, PStmt, Write, parts_of


def masks(stmt: PStmt) -> Iterator[tuple[Mask | LeftOut, Loc | None]]:
    """The masks that a statement applies, and the author's line."""
    for inner in stmt.body if isinstance(stmt, Inner) else ():
        yield from masks(inner)
    own = replace(stmt, body=()) if isinstance(stmt, Inner) else stmt
    for part in parts_of(own):
        if isinstance(part, InRange):
            yield part.mask, stmt.loc
        elif isinstance(part, Apply):
            for reason, array in part.masks:
                yield LeftOut(array, reason), part.loc or stmt.loc
    rows = own.rows if isinstance(own, Write) else None
    if rows is not None:
        yield LeftOut(rows.array, "picked"), stmt.loc
