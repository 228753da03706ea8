"""Loops in a row are launches of their own: one more makes planning longer by what it takes."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.passes.becomes import again
from tilelang.codegen.pallas.plan import search


@tile.kernel
def greatest(x, count: hl.constexpr):
    """The greatest of every row, and that plus 1, 2, ..., each in a loop of its own."""
    y = hl.zeros([count, x.shape[0]], dtype=hl.float32)
    for n in range(count):
        for i in hl.grid(x.shape[0]):
            y[n, i] = x[i, :].amax(0) + n
    return y


def test_plans_are_as_many_as_loops(monkeypatch) -> None:
    """And every loop has the block that it has alone: 5 loops took 12 s, each one more six times
    as long as those before it."""
    counts, whole, planned = list[int](), search.plan, 0

    def counted(*arguments):
        nonlocal planned
        planned += 1
        return whole(*arguments)

    monkeypatch.setattr(search, "plan", counted)
    for count in (1, 3, 5, 7):
        planned = 0
        rows = tile.spec((600, 37), "float32")
        config = again(greatest).default_config(rows, count, target="tpu:v5e")
        assert set(dict(config.blocks).values()) == {600} and len(config.blocks) == count
        counts.append(planned)
    added = np.diff(counts)
    assert added.max() <= 2 * added.min() + 2


@pytest.mark.parametrize("target", [None, "tpu:v5e"])
def test_values(target) -> None:
    x = np.random.default_rng(0).standard_normal((37, 5)).astype(np.float32)
    found = again(greatest)(x, 4, target=target)
    np.testing.assert_allclose(found, x.max(1) + np.arange(4)[:, None], rtol=1e-6)
