"""What a reference shows of a block: the shape of it, and single rows among others."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import assert_never

from tilelang import ir
from tilelang.codegen.pallas.plan.windows.choose import Arrays
from tilelang.codegen.pallas.plan.windows.types import Columns, Packed, Window
from tilelang.ir import Dim
from tilelang.language.dtypes import itemsize

FEW = 4  # register tiles that a row is as quickly selected from as found among
NONE: Mapping[str, Dim] = MappingProxyType({})


def rows_read(arrays: Arrays, window: Window, dim: Packed, place: int) -> int:
    """Of a block with a single position that is meant, how many are looked at.

    A register tile; of numbers of 32 bits the row alone, which TPUs load and store wherever it is.
    `place` counts dimensions from the last one: 1.
    """
    size = itemsize(window.dtype)
    tile = arrays.target.tile(place, size)
    if place != 2 or dim.rows <= FEW * tile:
        return dim.rows
    if size == 4:
        return 1
    return tile if dim.rows % tile == 0 else dim.rows


def block_shape(
    arrays: Arrays, tensor: str, index: tuple[ir.Index, ...], held: Mapping[str, Dim] = NONE
) -> tuple[tuple[Dim, ...], dict[int, Packed]]:
    """The shape of the part of a block that a reference means, packed rows all there.

    The second are the dimensions of it in which a single one of those rows is meant.
    """
    window = arrays.find(tensor, index)
    shape: list[Dim] = []
    packed: dict[int, Packed] = {}
    entries = arrays.entries(tensor, index)
    for d, (entry, dim) in enumerate(zip(entries, window.dims, strict=True)):
        match entry:
            case ir.At(expr) if isinstance(dim, Packed):
                rows = rows_read(arrays, window, dim, len(entries) - d)
                packed[len(shape)] = Packed(expr, rows, dim.whole and rows == dim.rows)
                shape.append(rows)
            case ir.At():
                pass
            case ir.Along(axis):
                shape.append(held.get(axis, axis))
            case ir.Span(first, stop):
                shape.append(stop - first)
            case Columns(_, size):
                shape.append(size)
            case ir.Gather():
                raise AssertionError(f"rows of {tensor} are fetched one by one")
            case _:
                assert_never(entry)
    return tuple(shape), packed
