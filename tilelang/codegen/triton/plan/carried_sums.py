"""Carried sums: shared memory of what is computed with sums that another loop has added up.

    for n: total += x[m, n].sum(1)      threads add up what they loaded, one number of each row at a
    for n: y[m, n] = x[m, n] - total    time, and meet when the loop ends: there, total is known

What is copied ahead is computed with where those sums are.  It passes through memory at once but
for registers that hold the same numbers there and where it is stored; of these sm_80 and sm_89
make accesses of 16 bytes first.  Formulas are Triton 3.6's, as its figures for norms of 16 and 64
rows in tiles of 64 and 256 columns of float32 say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from tilelang.ir import Apply, Expr, KernelIR, Load, Loop, Store, Var, meant, reached
from tilelang.language.dtypes import itemsize
from tilelang.language.op import REDUCTIONS

from .pipe import Pipe
from .reductions import WIDE, at_once, lanes_along, lanes_of

MATRIX = 2  # dimensions
COMBINES = ("add", "maximum", "minimum")


def carried_bytes(
    ir: KernelIR, loop: Loop, blocks: Mapping[str, int], pipe: Pipe, made: Mapping[str, Expr]
) -> int:
    """The most that one of the stores of a loop passes."""
    stores = (s for s in loop.body if isinstance(s, Store) and s.value.type.rank == MATRIX)
    return max((_bytes(ir, s.value, blocks, pipe, made) for s in stores), default=0)


def _bytes(
    ir: KernelIR, value: Expr, blocks: Mapping[str, int], pipe: Pipe, made: Mapping[str, Expr]
) -> int:
    parts = list(reached(value, made))
    wide = [at_once(ir, e) for e in parts if isinstance(e, Load) and e.type.rank > 1]
    first = next((e for e in _added(made) if e in parts), None) if wide else None
    if first is None:
        return 0
    shape, size = _shape(value, blocks), itemsize(value.type.dtype)
    stored = _registers(shape, shape, pipe.warps, WIDE // size)
    rows = _shape(first.args[0], blocks)
    same = stored & _registers(shape, rows, pipe.warps, max(wide), apart=True)
    together = 0 if pipe.target.boxes else (WIDE // size).bit_length() - 1
    return prod(shape) * size >> max(len(same) - together, 0)


def _shape(value: Expr, blocks: Mapping[str, int]) -> list[int]:
    return [lanes_of(d, blocks) for d in value.type.shape]


def _added(made: Mapping[str, Expr]) -> Iterator[Apply]:
    """Sums of the rows of a matrix, or extremes, that loops add to what they carry.

    Nothing defines what is carried in.
    """
    for value in made.values():
        match value:
            case Apply(op, (Var(name), other) | (other, Var(name))) if op in COMBINES:
                sum_ = meant(other, made)
                if name not in made and isinstance(sum_, Apply) and _is_of_rows(sum_):
                    yield sum_
            case _:
                pass  # nothing that is added


def _is_of_rows(expr: Apply) -> bool:
    rows = expr.op in REDUCTIONS and expr.args[0].type.rank == MATRIX
    return rows and expr.attr("axis") == MATRIX - 1


def _registers(
    shape: list[int], loaded: list[int], warps: int, wide: int, apart: bool = False
) -> set[tuple[int, int]]:
    """Which bits of the places of a matrix are registers, in the layout of one that is loaded.

    apart  what one thread loads at once is added up by itself
    """
    bits: set[tuple[int, int]] = set()
    for d, (own, threads, along) in enumerate(lanes_along(loaded, warps, wide)):
        first = 1 if apart else own
        every = (1 << n for n in range(shape[d].bit_length() - 1))
        bits |= {(d, b) for b in every if not first <= b < first * threads * along}
    return bits
