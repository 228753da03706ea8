"""Dtypes that a target does not compute in are refused with the line that asks for them."""

from __future__ import annotations

import pytest

import tilelang as tile
import tilelang.language as hl


@tile.kernel
def product(x, w):
    y = hl.zeros([x.shape[0], w.shape[1]], dtype=hl.float32)
    for tm in hl.tile(x.shape[0]):
        y[tm, :] = hl.dot(x[tm, :], w[:, :]).to(y.dtype)
    return y


def specs(dtype: str) -> tuple:
    return tile.spec((256, 256), dtype), tile.spec((256, 256), dtype)


@pytest.mark.parametrize("target", ["tpu:v4", "tpu:v5e", "tpu:v6e", "tpu:7x"])
def test_float16_is_for_the_cpu(target: str) -> None:
    assert product.source(*specs("float16"), target="cpu")
    with pytest.raises(tile.TileError, match=r"(?s)x is float16, and .* use bfloat16 or float32"):
        product.source(*specs("float16"), target=target)


def test_products_of_bytes() -> None:
    for dtype in ("int8", "float8_e4m3fn"):
        assert product.source(*specs(dtype), target="tpu:v5e")
        with pytest.raises(tile.TileError, match=r"(?s)tpu:v4 has no matrix product of .*hl.dot"):
            product.source(*specs(dtype), target="tpu:v4")
    with pytest.raises(tile.TileError, match="tpu:v6e has no matrix product of uint8 values"):
        product.source(*specs("uint8"), target="tpu:v6e")


@tile.kernel
def weighted(x, gate):
    y = hl.empty_like(x)
    for t in hl.grid(x.shape[0]):
        y[t, :] = x[t, :] * gate[t, 1]
    return y


def test_matrices_of_single_numbers_are_made_flat_where_they_fit_scalar_memory() -> None:
    def arguments(rows: int) -> tuple[tile.Spec, tile.Spec]:
        return tile.spec((rows, 256), "float32"), tile.spec((rows, 4), "float32")

    rows = tile.Config(loop_type="grid")  # one by one: tiles of them read columns, by default
    found = [weighted.source(*arguments(4096), config=c, target="tpu:v6e") for c in (rows, None)]
    assert "gate_flat[t * 4 + 1]" in str(found[0]) and "gate_flat" not in str(found[1])
    assert weighted.source(*arguments(300_000), target="cpu")
    for config in (rows, None):
        large = str(weighted.source(*arguments(300_000), config=config, target="tpu:v6e"))
        assert "gate_flat" not in large and "SMEM" not in large
    whole = tile.spec((300_000, 256), "float32"), tile.spec((300_000, 4), "int32")
    with pytest.raises(tile.TileError, match=r"(?s)4,800,\d\d\d bytes of scalar"):
        weighted.source(*whole, config=rows, target="tpu:v6e")
