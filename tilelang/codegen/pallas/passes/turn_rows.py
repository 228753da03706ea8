"""Turn rows: lanes that go to other rows, by one row of all or a column of them.

x.reshape(2, 4), of a row      ->   cat([x[None, :4], x[None, 4:]], 0)
x.reshape(8), of two rows      ->   cat([x[0, :], x[1, :]], 0)

Mosaic cuts the lanes of each row in several, or joins several rows that are all of one block; what
crosses rows otherwise it follows in whole registers, and in columns, of which it makes anything.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from tilelang.ir import Apply, Dim, Expr, KernelIR
from tilelang.ir.traversal import rebuild_body
from tilelang.language.shapes import concat, expand_dims, narrow, reshape

LANES = 128  # of a register
MOST_ROWS = 64  # which are put beside each other one by one


def turn_rows(ir: KernelIR) -> KernelIR:
    """The kernel without reshapes that bring lanes to other rows of registers."""
    return replace(ir, body=rebuild_body(ir.body, _turned))


def _turned(expr: Expr) -> Expr | None:
    if not isinstance(expr, Apply) or expr.op != "reshape":
        return None
    (value,), after = expr.args, expr.type.shape
    if not _crosses_rows(value.type.shape, after):
        return None
    rows = [_row(value, place) for place in itertools.product(*map(_range, value.type.shape[:-1]))]
    return reshape(_cut(concat(rows, 0, expr.loc), int(after[-1])), after, expr.loc)


def _crosses_rows(before: tuple[Dim, ...], after: tuple[Dim, ...]) -> bool:
    """Whether lanes of a row go to others, and there are few enough to take them one by one."""
    if not before or not after or any(isinstance(n, str) for n in before):
        return False  # tiles stay whole
    before, after = ((1, *shape) if len(shape) == 1 else shape for shape in (before, after))
    rows, lanes = math.prod(map(int, before[:-1])), int(before[-1])
    cut = before[:-1] == after[: len(before) - 1]
    joined = after[:-1] == before[: len(after) - 1]
    registers = lanes % LANES == int(after[-1]) % LANES == 0
    return (
        lanes not in (1, after[-1]) and 0 < rows <= MOST_ROWS and not (cut or joined or registers)
    )


def _row(value: Expr, place: tuple[int, ...]) -> Expr:
    """All lanes of one row."""
    for dim, at in enumerate(place):
        value = narrow(value, dim, at, at + 1, None)
    return reshape(value, value.type.shape[-1:], None)


def _cut(row: Expr, lanes: int) -> Expr:
    """Rows of so many lanes of one row; where they are many, a column of all of them."""
    count = int(row.type.shape[0])
    if lanes == 1 or count > MOST_ROWS * lanes:
        return expand_dims(row, 1, None)
    begins = range(0, count, lanes)
    return concat(
        [expand_dims(narrow(row, 0, b, b + lanes, None), 0, None) for b in begins], 0, None
    )


def _range(length: Dim) -> range:
    return range(int(length))
