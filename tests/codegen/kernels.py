"""Kernels of every form that is printed: grids, tables, rectangles, inner loops, launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

import tilelang as tile
import tilelang.language as hl


@tile.kernel
def matmul(x, w, b):
    """y = relu(x @ w + b)"""
    M, K = x.shape
    N = w.shape[1]
    y = hl.empty([M, N], dtype=x.dtype)
    for tm, tn in hl.tile([M, N]):
        acc = hl.zeros([tm, tn], dtype=hl.float32)
        for tk in hl.tile(K):
            acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
        y[tm, tn] = hl.relu(acc + b[tn][None, :])
    return y


@tile.kernel
def attention(q, k, v, q_offsets, kv_offsets):
    """softmax(q k^T) v and its log-sum-exp within every group."""
    H, T, D = q.shape
    out = hl.zeros([H, T, D], dtype=q.dtype)
    lse = hl.full([H, T], -1.0, dtype=hl.float32)
    for h in hl.grid(H):
        for g in hl.grid(q_offsets.shape[0] - 1):
            for tm in hl.tile(q_offsets[g], q_offsets[g + 1]):
                query = q[h, tm, :]
                m = hl.full([tm], float("-inf"), dtype=hl.float32)
                mass = hl.zeros([tm], dtype=hl.float32)
                acc = hl.zeros([tm, D], dtype=hl.float32)
                for tk in hl.tile(kv_offsets[g], kv_offsets[g + 1]):
                    s = hl.dot(query, k[h, tk, :].T)
                    m_new = hl.maximum(m, s.amax(1))
                    p = hl.exp(s - m_new[:, None])
                    alpha = hl.exp(m - m_new)
                    mass = mass * alpha + p.sum(1)
                    acc = hl.dot(p, v[h, tk, :], acc=acc * alpha[:, None])
                    m = m_new
                out[h, tm, :] = acc / mass[:, None]
                lse[h, tm] = m + hl.log(mass)
    return out, lse


@tile.kernel
def centered(x, offsets):
    """Every group without its sum: two loops in sequence; n says how many rows it has."""
    B, D = offsets.shape[0] - 1, x.shape[1]
    y = hl.full([x.shape[0], D], 3.0, dtype=x.dtype)
    n = hl.empty([B], dtype=hl.int32)
    for b in hl.grid(B):
        total = hl.zeros([D], dtype=hl.float32)
        for tm in hl.tile(offsets[b], offsets[b + 1]):
            total = total + x[tm, :].sum(0)
        for tm in hl.tile(offsets[b], offsets[b + 1]):
            y[tm, :] = x[tm, :] - total[None, :]
        n[b] = offsets[b + 1] - offsets[b]
    return y, n


@tile.kernel
def shifted(x, offsets):
    """Rows relative to the beginning of their group, and their place in it."""
    y = hl.zeros_like(x)
    place = hl.full([x.shape[0]], -1, dtype=hl.int32)
    for g in hl.grid(offsets.shape[0] - 1):
        start = offsets[g]
        for tm in hl.tile(0, offsets[g + 1] - start, max_extent=x.shape[0]):
            y[start + tm.index, :] = x[start + tm.index, :] * 2
            place[start + tm.index] = tm.index
    return y, place


@tile.kernel
def launches(x, scale, offsets):
    """Three launches on one output."""
    T, D = x.shape
    y = hl.zeros([T, D], dtype=x.dtype)
    for tm in hl.tile(T):
        y[tm, :] = x[tm, :] + 1
    for g in hl.grid(offsets.shape[0] - 1):
        for tn in hl.tile(offsets[g], offsets[g + 1]):
            y[tn, :] = y[tn, :] + x[tn, :] * scale[g]
    for tk in hl.tile(10, 20):
        y[tk, :] = y[tk, :] * 10
    return y


@tile.kernel
def rows_by_index(table, index, offsets):
    """Rows of a table, picked by an index array, per group."""
    y = hl.zeros([index.shape[0], table.shape[1]], dtype=table.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            rows = table[index[tm], :]
            y[tm, :] = rows * 2
    return y


@tile.kernel
def awkward(steps, n, offsets, tm_first):
    """Names that the generated code would like to have for itself."""
    _before, after = n.shape
    x_ref = hl.zeros([offsets.shape[0] - 1, after], dtype=hl.float32)
    for step in hl.grid(offsets.shape[0] - 1):
        seen = hl.zeros([after], dtype=hl.float32)
        for tm in hl.tile(offsets[step], offsets[step + 1]):
            tm_mask = n[tm, :] * steps[tm][:, None]
            seen = seen + tm_mask.sum(0) * tm_first[step]
        x_ref[step, :] = seen
    return x_ref


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


OFFSETS = np.array([0, 7, 7, 20, 33, 50], np.int32)
OTHERS = np.array([0, 0, 9, 40, 40, 70], np.int32)
INDEX = np.random.default_rng(0).integers(0, 20, 50).astype(np.int32)


@dataclass(frozen=True)
class Case:
    """A kernel, its arguments, and the configs in which it is printed."""

    kernel: tile.Kernel
    arguments: tuple[np.ndarray, ...]
    blocks: Mapping[str, int] = field(default_factory=dict)
    forms: tuple[dict[str, object], ...] = ({}, {"steps": "rectangle"}, {"loop_type": "fori_loop"})

    @property
    def configs(self) -> list[tile.Config]:
        return [tile.Config(self.blocks, **form) for form in self.forms]  # type: ignore[arg-type]


DENSE: tuple[dict[str, object], ...] = tuple(
    {"loop_type": t} for t in ("grid", "outer_pipeline", "fori_loop", "unroll")
)
CASES = {
    "matmul": Case(
        matmul,
        (_floats(50, 200), _floats(200, 72), _floats(72)),
        {"tm": 16, "tn": 32, "tk": 64},
        (*DENSE, {"buffers": 1}, {"cores": 2}),
    ),
    "attention": Case(
        attention,
        (_floats(2, 50, 32), _floats(2, 70, 32), _floats(2, 70, 32), OFFSETS, OTHERS),
        {"tm": 16, "tk": 16},
    ),
    "centered": Case(centered, (_floats(50, 128), OFFSETS), {"tm": 16}, ({},)),
    "shifted": Case(shifted, (_floats(50, 128), OFFSETS), {"tm": 16}),
    "launches": Case(
        launches, (_floats(50, 128), _floats(5), OFFSETS), {"tm": 16, "tn": 16, "tk": 8}, ({},)
    ),
    "rows_by_index": Case(rows_by_index, (_floats(20, 128), INDEX, OFFSETS), {"tm": 16}),
    "awkward": Case(awkward, (_floats(50), _floats(50, 64), OFFSETS, _floats(5)), {"tm": 16}),
}
