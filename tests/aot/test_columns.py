"""Rows weighted by a column each compile by default: the columns are spread ahead, and memory has
what waits for them."""

from __future__ import annotations

import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tilelang.aot import GENERATIONS
from tilelang.codegen.pallas.plan import memory
from tilelang.errors import CompileError


@tile.kernel
def weighted(z, gate):
    """y[t] = z[t] times the sum of gate[t], as a sum of products."""
    y = hl.empty(z.shape, dtype=z.dtype)
    for t in hl.tile(z.shape[0]):
        acc = hl.zeros([t, z.shape[1]], dtype=hl.float32)
        for k in hl.static_range(gate.shape[1]):
            acc += gate[t, k][:, None] * z[t, :].to(hl.float32)
        y[t, :] = acc.to(y.dtype)
    return y


@tile.kernel
def scaled(z, gate):
    """y[t] = z[t] times the product of gate[t]."""
    y = hl.empty(z.shape, dtype=z.dtype)
    for t in hl.tile(z.shape[0]):
        rows = z[t, :].to(hl.float32)
        for k in hl.static_range(gate.shape[1]):
            rows = rows * gate[t, k][:, None]
        y[t, :] = rows.to(y.dtype)
    return y


@tile.kernel
def at_once(z, gate):
    """y[t] = z[t] times the sum of gate[t], in the store itself."""
    y = hl.empty(z.shape, dtype=z.dtype)
    for t in hl.tile(z.shape[0]):
        rows = z[t, :].to(hl.float32)
        few = gate[t, 0][:, None] * rows + gate[t, 1][:, None] * rows
        y[t, :] = (
            few
            + gate[t, 2][:, None] * rows
            + gate[t, 3][:, None] * rows
            + gate[t, 4][:, None] * rows
            + gate[t, 5][:, None] * rows
            + gate[t, 6][:, None] * rows
            + gate[t, 7][:, None] * rows
        ).to(y.dtype)
    return y


def given(lanes: int, dtype: str, count: int) -> tuple[tile.TensorSpec, tile.TensorSpec]:
    return tile.spec((16384, lanes), dtype), tile.spec((16384, count), "float32")


@needs_libtpu
@pytest.mark.parametrize("count", [2, 4, 8])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_many_columns_of_long_rows(generation: str, count: int) -> None:
    assert compiled(weighted, *given(1024, "bfloat16", count), target=f"tpu:{generation}")
    assert compiled(scaled, *given(384, "float32", count), target=f"tpu:{generation}")


@needs_libtpu
@pytest.mark.parametrize("generation", GENERATIONS)
def test_columns_that_meet_in_a_store(generation: str) -> None:
    assert compiled(at_once, *given(1024, "bfloat16", 8), target=f"tpu:{generation}")


@needs_libtpu
def test_planted_columns_that_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_columns", lambda life, largest, sizes: 0)
    with pytest.raises(CompileError, match="do not fit into vector memory"):
        compiled(tile.Kernel(weighted._fn), *given(1024, "bfloat16", 8), target="tpu:v5p")


def test_few_columns_and_short_rows_take_what_they_did() -> None:
    def temporaries(lanes: int, count: int) -> int:
        config = tile.Config({"t": 256})
        lowered = weighted.lower(*given(lanes, "float32", count), target="tpu:v6e", config=config)
        (launch,) = lowered.plan.launches
        return dict(launch.memory.parts)[memory.TEMPORARIES]

    assert temporaries(1024, 1) == memory.RESERVED + 256 * 1024  # a quarter of a block
    assert temporaries(256, 8) == memory.RESERVED + 256 * 256
    assert temporaries(1024, 8) > memory.RESERVED + 3 * 256 * 1024 * 4
