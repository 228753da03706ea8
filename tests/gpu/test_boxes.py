"""Boxes that hold what masked loads do: rows of a neighbour enter no sum.

TRITON_INTERPRET=1 pytest tests/gpu/test_boxes.py
pytest -m gpu tests/gpu/test_boxes.py
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.gpu import machine
from tests.ragged import Space, covered, every_stratum, poison
from tilelang.codegen.triton.plan.problem import Prepared
from tilelang.ir import Apply, every_expr

if machine.LACKS:
    pytest.skip(machine.LACKS, allow_module_level=True)

pytestmark = machine.MARKS
SPACE = Space(45, 4, 16)


@tile.kernel
def chunked(q, k, v, offsets):
    """Attention within tiles of 16: the result has the rows that its sum runs over."""
    out = hl.zeros(v.shape, dtype=v.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=16):
            p = hl.softmax(hl.dot(q[t, :], k[t, :].T), dim=1)
            out[t, :] = hl.dot(p.to(v.dtype), v[t, :]).to(out.dtype)
    return out


@tile.kernel
def summed_up(q, k, v, offsets):
    """Running sums by a triangle of ones, twice: a product that has t in both operands, too."""
    out = hl.zeros(v.shape, dtype=v.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=16):
            upto = hl.where(t.index[:, None] >= t.index[None, :], 1.0, 0.0)
            twice = hl.dot(upto, upto).to(v.dtype)
            out[t, :] = hl.dot(twice, v[t, :] + q[t, :] * k[t, :]).to(out.dtype)
    return out


def _chunked(q, k, v):
    s = q @ k.T
    p = np.exp(s - s.max(1, keepdims=True))
    return p / p.sum(1, keepdims=True) @ v


def _summed_up(q, k, v):
    return np.cumsum(np.cumsum(v + q * k, 0), 0)


def _right(
    kernel: tile.Kernel,
    chunk: Callable[..., np.ndarray],
    offsets: np.ndarray,
    config: tile.Config | None,
) -> None:
    """Whether rows are what NumPy gives, where everything in no group is NaN or infinite."""
    rng, rows = np.random.default_rng(0), SPACE.rows
    plain = [rng.standard_normal((rows, 16), np.float32) for _ in range(3)]
    given = [poison(a, covered(offsets, rows)) for a in plain]
    made = machine.call(kernel, config)(*given, offsets)
    wanted = np.zeros((rows, 16))
    for begin, end in itertools.pairwise(offsets):
        for first in range(begin, end, 16):
            own = slice(first, min(first + 16, end))
            wanted[own] = chunk(*(a[own].astype(np.float64) for a in plain))
    np.testing.assert_allclose(made, wanted, rtol=1e-3, atol=1e-3)


KERNELS: dict[str, tuple[tile.Kernel, Callable[..., np.ndarray]]] = {
    "chunked": (chunked, _chunked),
    "summed_up": (summed_up, _summed_up),
}


@pytest.mark.parametrize("indexing", [None, "descriptor"])
@pytest.mark.parametrize("name", KERNELS)
def test_no_neighbour_enters_a_sum_over_rows_of_its_result(name, indexing):
    kernel, chunk = KERNELS[name]
    config = tile.Config(indexing=indexing) if indexing else None
    for layout in every_stratum(SPACE)[::2]:
        _right(kernel, chunk, layout.offsets, config)


def test_planted_dimensions_that_results_have_are_not_summed(monkeypatch):
    def kept(self):
        every = (e for e in every_expr(self.ir.body) if isinstance(e, Apply))
        shapes = [(a.type.shape, e.type.shape) for e in every for a in e.args]
        return frozenset(d for of, left in shapes for d in of if d not in left)

    monkeypatch.setattr(Prepared, "reduced", property(kept))
    layouts, config = every_stratum(SPACE)[::2], tile.Config(indexing="descriptor")
    for kernel, chunk in KERNELS.values():
        with pytest.raises(AssertionError, match="nan"):
            for layout in layouts:
                _right(tile.Kernel(kernel.__wrapped__), chunk, layout.offsets, config)
