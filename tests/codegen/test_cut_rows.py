"""Rows of lanes that a reshape cuts into short ones: memory has them as a whole, and holds them."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.passes.becomes import again
from tilelang.codegen.pallas.plan import memory


@tile.kernel
def neighbours_added(x, n: hl.constexpr):
    """Every n numbers in a row as one."""
    y = hl.empty([x.shape[0], x.shape[1] // n], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :].reshape(t, x.shape[1] // n, n).sum(2)
    return y


def kept(dtype: str, n: int, width: int, rows: int, target: str) -> int:
    config = tile.Config({"t": rows})
    x = tile.spec((4096, width), dtype)
    plan = again(neighbours_added).lower(x, n, target=target, config=config).plan
    return plan.launches[0].memory.vmem


@pytest.mark.parametrize("n", [2, 3])
def test_they_are_right(n: int) -> None:
    x = np.random.default_rng(0).standard_normal((70, 300), np.float32)
    found = np.asarray(again(neighbours_added)(x, n))
    np.testing.assert_allclose(found, x.reshape(70, -1, n).sum(2), rtol=1e-6, atol=1e-6)


# Of these libtpu 0.0.42.1 said what it needs, in MiB, because that is more than it has by default.
@pytest.mark.parametrize(
    ("dtype", "n", "width", "rows", "target", "taken"),
    [
        ("float32", 2, 300, 256, "tpu:v5e", 19.38),
        ("float32", 2, 256, 512, "tpu:v5e", 33.67),
        ("float32", 2, 256, 512, "tpu:v6e", 46.39),
        ("float32", 4, 512, 512, "tpu:v6e", 46.66),
        ("float32", 16, 1024, 512, "tpu:v5e", 18.23),
        ("bfloat16", 2, 300, 512, "tpu:v5e", 28.98),
        ("bfloat16", 2, 300, 512, "tpu:v6e", 39.02),
    ],
)
def test_as_much_is_kept_as_the_compiler_takes(dtype, n, width, rows, target, taken) -> None:
    assert taken <= kept(dtype, n, width, rows, target) / 2**20 <= 1.5 * taken


def test_planted_they_take_nothing(monkeypatch) -> None:
    monkeypatch.setattr(memory, "_spread", lambda value, sizes: 0)
    assert kept("float32", 2, 300, 256, "tpu:v5e") / 2**20 < 19.38


@needs_libtpu
@pytest.mark.parametrize("target", ["tpu:v5e", pytest.param("tpu:v6e", marks=pytest.mark.slow)])
def test_they_compile_by_default(target: str) -> None:
    compiled(neighbours_added, tile.spec((4096, 300), "float32"), 2, target=target)
