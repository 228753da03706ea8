"""What Mosaic cannot lay out of narrow values: choices of sums, and rows made of lanes.

Evidence: libtpu, ahead of time, and Pallas's interpreter; no TPU is used.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.passes.becomes import again
from tilelang.codegen.pallas.plan.body import registers

GENERATIONS = ("v5e", "v5p", "v6e", "7x")


@tile.kernel
def row_softmax(x, w, d, offsets):
    """Rows weighed by products with rows of their own, heads as a batch."""
    _, H, D = x.shape
    out = hl.zeros([offsets.shape[0] - 1, H, D], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        m = hl.full([H], -1e30, dtype=hl.float32)
        total = hl.zeros([H], dtype=hl.float32)
        acc = hl.zeros([H, D], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            s = hl.einsum("thd,thd->th", x[t, :, :], w[t, :, :])
            new = hl.maximum(m, s.amax(0))
            p = hl.exp(s - new[None, :])
            total = total * hl.exp(m - new) + p.sum(0)
            acc = acc * hl.exp(m - new)[:, None] + (p[:, :, None] * x[t, :, :]).sum(0)
            m = new
        out[g, :, :] = acc / hl.maximum(total, 1e-20)[:, None]
    return out


@tile.kernel
def outer(x, w, d, offsets):
    """Products of every number of a row with every number of another."""
    T, H, D = x.shape
    y = hl.zeros([T, H, D, D], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :, :, :] = x[t, :, :][:, :, :, None] * w[t, :, :][:, :, None, :]
    return y


@tile.kernel
def by_sums(x, w, d, offsets):
    """A choice by sums over heads."""
    y = hl.zeros(d.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = hl.where(x[t, :, :].sum(1) > 0.1, d[t, :], 0)
    return y


@tile.kernel
def of_largest(x, w, d, offsets):
    """A choice of what was the largest of heads."""
    y = hl.zeros(d.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = hl.where(d[t, :] > 0.1, x[t, :, :].amax(1) + d[t, :], d[t, :])
    return y


@tile.kernel
def chosen_row(x, w, d, offsets):
    """A row, where those of a tile have large sums."""
    y = hl.zeros(d.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            large = d[t, :].to(hl.float32).sum(1) > 0.1
            y[t, :] = hl.where(large[:, None], d[0, :][None, :], 0)
    return y


@tile.kernel
def cut_lanes(x, w, d, offsets):
    """Wide numbers that begin at another lane than the first, with every number of a row."""
    _, H, D = x.shape
    y = hl.zeros(d.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            cut = w[t, :, :].to(hl.float32).reshape(t, H * D)[:, 3 : 3 + D] * 2
            y[t, :] = (cut[:, :, None] * d[t, :][:, None, :]).sum(1)
    return y


@tile.kernel
def lanes_first(x, w, d, offsets):
    """Lanes of a row as a dimension in front of two others, at single positions of those."""
    G = offsets.shape[0] - 1
    y = hl.zeros([d.shape[1], G, 2], dtype=d.dtype)
    for h in hl.grid(2):
        for g in hl.grid(G):
            most = hl.full([d.shape[1]], -4.0, dtype=hl.float32)
            for t in hl.tile(offsets[g], offsets[g + 1]):
                most = hl.maximum(most, x[t, h, :].to(hl.float32).amax(0))
            y[:, g, h] = most.to(y.dtype)
    return y


KERNELS = (row_softmax, outer, by_sums, of_largest, chosen_row, cut_lanes, lanes_first)


def given() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    shapes = ((40, 2, 128), (40, 2, 128), (40, 128))
    x, w, d = ((rng.integers(-8, 9, shape) / 8).astype(ml_dtypes.bfloat16) for shape in shapes)
    return x, w, d, np.array([0, 0, 5, 33, 40], np.int32)


@needs_libtpu
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
@pytest.mark.parametrize(
    "generation",
    [g if g in ("v5e", "v6e") else pytest.param(g, marks=pytest.mark.slow) for g in GENERATIONS],
)
def test_they_compile(kernel, generation) -> None:
    compiled(kernel, *given(), target=f"tpu:{generation}")


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_they_are_right(kernel) -> None:
    exact = np.asarray(kernel.reference(*given())).astype(np.float64)
    for target in ("cpu", "tpu:v6e"):
        found = np.asarray(again(kernel)(*given(), target=target)).astype(np.float64)
        np.testing.assert_allclose(found, exact, rtol=0.02, atol=0.02)


def test_how_a_choice_reads() -> None:
    source = str(of_largest.source(*given(), target="tpu:v6e"))
    assert "axis=1) + d_ref[...]).astype(jnp.float32), d_ref" in " ".join(source.split())


def test_how_rows_of_lanes_read() -> None:
    of_tpu, of_cpu = (str(outer.source(*given(), target=t)) for t in ("tpu:v5e", "cpu"))
    assert "transpose" in of_tpu or "swapaxes" in of_tpu
    assert "transpose" not in of_cpu and "swapaxes" not in of_cpu


# By default a step runs all of h, and turns columns, which any compiler takes.
FORMS = {"lanes_first": tile.Config(loop_type="fori_loop")}


@needs_libtpu
@pytest.mark.parametrize(
    ("kernel", "target"),
    [
        (row_softmax, "tpu:v6e"), (outer, "tpu:v5e"), (by_sums, "tpu:v5e"),
        (of_largest, "tpu:v6e"), (chosen_row, "tpu:v6e"), (cut_lanes, "tpu:v6e"),
        (lanes_first, "tpu:v5e"),
    ],
    ids=lambda p: getattr(p, "__name__", p),
)  # fmt: skip
def test_planted_they_are_left(monkeypatch, kernel, target) -> None:
    monkeypatch.setattr(registers, "_laid_out", lambda expr, values: expr)
    with pytest.raises(tile.CompileError):
        compiled(again(kernel), *given(), target=target, config=FORMS.get(kernel.__name__))
