"""Moved rows as data: those of many groups, between tiles of rows that follow each other and boxes.

    a tile    |. . a a a a b b b c|        groups a, b and c begin anywhere in it
    boxes     |a a a a|b b b 0|c 0 0 0|

What is said of a group is over Lane, which of its block's it is, and over names of lines before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilelang.ir import Expr, Type, Var
from tilelang.ir.integers import INT
from tilelang.language.dtypes import itemsize

BEGIN = Var("group.begin", INT)  # where the rows of a group begin
FIRST_ROW = Var("group.first", INT)  # the first one of them that is in the tile
STOP_ROW = Var("group.stop", INT)  # the one behind the last that is


@dataclass(frozen=True)
class MovedRows:
    """The block that is stored, with the rows of all groups of a block in their places.

    source      the Read of the block that they come from
    begin, first, stop  what BEGIN, FIRST_ROW and STOP_ROW are
    live        whether a group has any row in the tile
    by          how far a row lies behind in the source of where it is stored
    here        of a row among those that follow each other, where it is stored: less than that
    groups      the loop whose lanes are groups, and `count` how many there are
    to_box      whether rows go to boxes
    name        the scratch memory that they go through, `some` at a time
    """

    source: Any
    begin: Expr
    first: Expr
    stop: Expr
    live: Expr
    by: Expr
    here: tuple[Expr, Expr]
    groups: str
    count: Expr
    to_box: bool
    name: str
    some: int
    type: Type

    @property
    def exprs(self) -> tuple[Expr, ...]:
        """Everything that it is computed of."""
        ends = (self.begin, self.first, self.stop, self.live, self.by, *self.here, self.count)
        return (self.source, *ends)

    @property
    def held(self) -> tuple[int, int, int]:
        """The shape of the scratch memory: 32 bits of 128 columns are a row."""
        words, columns = 4 // itemsize(self.type.dtype), self.type.shape[-1]
        assert isinstance(columns, int)
        return (-(-columns // 128), 3 * self.some // words + 16, 128)


@dataclass(frozen=True)
class RowsFrom:
    """The rows of a block from row `start` on, which may be any one, and lie outside of it.

    What those hold that the block does not have is anything.  All go through scratch memory `name`:
    as many rows as a tile has, then the block, then as many again; 32 bits of 128 columns are one.
    """

    source: Any
    start: Any
    name: str
    type: Type

    def held(self, rows: int, columns: int) -> tuple[int, int, int]:
        """The shape of the scratch memory for a tile of so many."""
        words, block = 4 // itemsize(self.type.dtype), self.source.type.shape[0]
        assert isinstance(block, int)
        return (-(-columns // 128), (rows + block + rows) // words + 8, 128)
