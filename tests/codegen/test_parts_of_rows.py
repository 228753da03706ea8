"""Parts of rows that an index array picks: stored, or refused before a compiler is asked."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tilelang.codegen.pallas.plan.body import scatters

IDS = np.array([3, 0, 6, 5, 1, 2], np.int32)


@tile.kernel
def part(ids, v, begin: hl.constexpr, end: hl.constexpr, columns: hl.constexpr):
    y = hl.zeros([7, columns], dtype=v.dtype)
    for t in hl.tile(ids.shape[0]):
        y[ids[t], begin:end] = v[t, :]
    return y


@pytest.mark.parametrize("begin, end", [(2, 3), (128, 256), (5, 200)])
def test_the_numbers(begin: int, end: int) -> None:
    v = np.arange(6 * (end - begin), dtype=np.float32).reshape(6, -1)
    wanted = np.zeros((7, 260), np.float32)
    wanted[IDS, begin:end] = v
    np.testing.assert_array_equal(part(IDS, v, begin, end, 260), wanted)


@needs_libtpu
@pytest.mark.parametrize(
    "begin, end, columns, dtype",
    [(5, 200, 260, "float32"), (130, 260, 260, "float32"), (2, 3, 128, "float32"),
     (2, 3, 260, "bfloat16"), (128, 256, 260, "bfloat16")],
)  # fmt: skip
def test_what_the_compiler_takes(begin: int, end: int, columns: int, dtype: str) -> None:
    v = tile.spec((6, end - begin), dtype)
    for target in ("tpu:v5e", "tpu:7x"):
        found = compiled(part, tile.spec((6,), "int32"), v, begin, end, columns, target=target)
        assert found.memory.code


@pytest.mark.parametrize("begin, end", [(2, 3), (100, 130), (128, 256)])
def test_what_it_does_not(begin: int, end: int) -> None:
    """Single rows of 32 bits have several registers each, of which the part would be one."""
    with pytest.raises(tile.PlanError) as found:
        v = tile.spec((6, end - begin), "float32")
        part.lower(tile.spec((6,), "int32"), v, begin, end, 260, target="tpu:v6e")
    assert str(found.value).startswith(
        "rows of y are picked by an index array, and 128 of its 260 columns, or fewer, are stored "
        "of each\n"
    )
    assert str(found.value).endswith("hint: store the whole rows, or more than 128 columns of them")


@needs_libtpu
def test_the_refusal_is_the_compilers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scatters, "_check_part", lambda *_: None)
    with pytest.raises(tile.CompileError):
        v = tile.spec((6, 1), "float32")
        again = tile.kernel(part.__wrapped__)
        compiled(again, tile.spec((6,), "int32"), v, 2, 3, 260, target="tpu:v6e")
