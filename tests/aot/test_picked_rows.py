"""Gathers and scatters compile, from small tables and from ones that no vector memory holds."""

from __future__ import annotations

import pytest

import tilelang as tile
from tests.aot.written import compiled, needs_libtpu
from tests.codegen.test_gather import combined, matrices_of, rows_of
from tests.codegen.test_scatter import added_rows, scattered_blocks, scattered_rows

TARGETS = ("tpu:v5e", pytest.param("tpu:7x", marks=pytest.mark.slow))
TABLES = ((300, 200), (4099, 640), (131072, 4096))


@needs_libtpu
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("table", TABLES, ids=str)
def test_gathers(table: tuple[int, int], dtype: str, target: str) -> None:
    x, index = tile.spec(table, dtype), tile.spec((1024,), "int32")
    assert compiled(rows_of, x, index, target=target)
    assert compiled(combined, x, tile.spec((1024, 2), "int32"), target=target)
    matrices = tile.spec((table[0], 5, table[1] // 5), dtype)
    assert compiled(matrices_of, matrices, index, target=target)


@needs_libtpu
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(61, 200), (4096, 1024)], ids=str)
def test_scatters(shape: tuple[int, int], dtype: str, target: str) -> None:
    x, index = tile.spec(shape, dtype), tile.spec(shape[:1], "int32")
    for kernel in (scattered_rows, scattered_blocks, added_rows):
        assert compiled(kernel, x, index, target=target)
