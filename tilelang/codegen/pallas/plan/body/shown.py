"""What a reference shows of a block: the shape of it, and single rows among others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import assert_never

from tilelang import ir
from tilelang.codegen.pallas.plan.windows.choose import Arrays, row_in_block
from tilelang.codegen.pallas.plan.windows.types import (
    ByRow,
    ByTile,
    Columns,
    Entry,
    Packed,
    Window,
    WindowDim,
)
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


def packed_in(arrays: Arrays, entry: Entry, dim: WindowDim, place: int) -> Packed | None:
    """The single position of a block that is meant, where it is one among others.

    It counts from where the array begins; from the first position of a tile that it is a row of.
    """
    match entry, dim:
        case ir.At(expr), Packed(_, rows, whole):
            return Packed(expr, rows, whole)
        case ir.At(), ByTile(_, block) | ByRow(_, block) if place <= 2:
            return Packed(row_in_block(arrays, entry), block, True)
        case _:
            return None


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
            case ir.At():
                place = len(entries) - d
                if (found := packed_in(arrays, entry, dim, place)) is not None:
                    rows = rows_read(arrays, window, found, place)
                    packed[len(shape)] = replace(
                        found, rows=rows, whole=found.whole and rows == found.rows
                    )
                    shape.append(rows)
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
