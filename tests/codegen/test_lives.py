"""How many blocks registers hold at once, and what defaults make of it: compiled, none spills."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.derived_matrix import parts
from tests.gpu import kernels
from tests.subjects import SUBJECTS
from tilelang.codegen.triton.plan.lives import most_alive
from tilelang.runtime.lowering import lower, target_of

X = np.ones((64, 32), np.float32)


def subject(name):
    return next(s for s in SUBJECTS if s.name == name)


@tile.kernel
def gated(q, k, v):
    y = hl.zeros(q.shape, dtype=hl.float32)
    for tq in hl.tile(q.shape[0]):
        acc = hl.zeros([tq, q.shape[1]], dtype=hl.float32)
        for tk in hl.tile(k.shape[0]):
            near = tq.index[:, None] >= tk.index[None, :]
            s = hl.dot(q[tq, :], k[tk, :].T)
            p = hl.sigmoid(s)
            g = p * (1.0 + s * (1.0 - p))
            d = hl.where(near, hl.dot(q[tq, :], v[tk, :].T) * g, 0.0)
            acc = acc + hl.dot(d, k[tk, :])
        y[tq, :] = acc
    return y


def test_what_is_read_once_more_is_alive():
    assert most_alive(gated.lower(X, X, X, target="cuda:sm90").ir) == 3  # s, p and g


@pytest.mark.parametrize(
    ("name", "target", "alive", "chosen"),
    [
        ("hstu_attention", "cuda:sm90", 4, [(8, (64, 64)), (8, (32, 64))]),
        ("hstu_attention", "cuda:sm100", 4, [(8, (64, 64)), (8, (32, 64))]),
        ("jagged_attention", "cuda:sm90", 3, [(4, (64, 64)), (4, (64, 64))]),
        ("jagged_attention", "cuda:sm100", 3, [(8, (128, 64)), (8, (64, 64))]),
    ],
)
def test_many_blocks_have_more_warps_or_fewer_rows(name, target, alive, chosen):
    one = subject(name)
    derived = {label: part for label, part in parts(one) if label != "saving"}
    found = {}
    for label, part in derived.items():
        plan = lower(part.ir, part.facts, None, target_of(target)).plan
        blocks = dict(plan.blocks)
        found[label == "d_q"] = plan.launches[-1].warps, (blocks["tq"], blocks["tk"])
    assert [found[True], found[False]] == chosen
    assert max(most_alive(part.ir) for part in derived.values()) == alive


@pytest.mark.parametrize(
    ("name", "target", "registers"),
    [
        ("grouped_gemm_gelu", "cuda:sm89", 255),
        ("grouped_gemm_gelu", "cuda:sm90", None),
        ("grouped_gemm", "cuda:sm89", 255),
        ("matmul", "cuda:sm89", None),
        ("varlen_attention", "cuda:sm80", 255),  # of 128 it spilled 8 bytes
    ],
)
def test_registers_of_rows_in_groups(name, target, registers):
    one = subject(name)
    launches = one.kernel.lower(*one.cases[-1], target=target).plan.launches
    assert [launch.max_registers for launch in launches] == [registers]


@pytest.mark.parametrize(("dtype", "most"), [("float32", 255), ("bfloat16", None)])
def test_registers_of_scores_of_ranges_by_ranges(dtype, most):
    """Of the 128 that ptxas aims for maxima of such scores spilled 16 bytes on sm_90."""
    args = *(tile.spec((4096, 128), dtype),) * 2, *(tile.spec((9,), "int32"),) * 2
    launches = kernels.outer_scores.lower(*args, target="cuda:sm90").plan.launches
    assert [launch.max_registers for launch in launches if launch.axes] == [most]


@tile.kernel
def ranks(x, offsets):
    """How many of a group are smaller: pairs of positions, which no array holds."""
    r = hl.zeros(x.shape, dtype=hl.int32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            n = hl.zeros([t], dtype=hl.int32)
            for u in hl.tile(offsets[g], offsets[g + 1]):
                n += (x[u][None, :] < x[t][:, None]).to(hl.int32).sum(1)
            r[t] = n
    return r


@tile.kernel
def turned(x):
    """Of what an array holds, lanes are as many as ever."""
    y = hl.empty([x.shape[1], x.shape[0]], dtype=x.dtype)
    for t, u in hl.tile(x.shape):
        y[u, t] = x[t, u].T
    return y


def test_pairs_of_positions_are_few():
    """64 x 512 of them spilled 1,192 bytes on sm_90."""
    args = tile.spec((65536,), "bfloat16"), tile.spec((65,), "int32")
    assert dict(ranks.default_config(*args, target="cuda:sm90").blocks) == {"t": 64, "u": 64}
    config = turned.default_config(tile.spec((4096, 4096), "bfloat16"), target="cuda:sm90")
    assert prod(n for _, n in config.blocks) == 32768


@tile.kernel
def appended(k, place, offsets):
    """Of several rows for a place the last one stays: ordered, and no sum."""
    y = hl.zeros([64, k.shape[1]], dtype=k.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[place[t], :] = k[t, :]
    return y


def test_rows_that_are_placed_are_no_reduction():
    """One warp for 16 rows, as for sums of groups, had 8 bytes on the stack on sm_80."""
    rows, ints = tile.spec((4096, 128), "bfloat16"), tile.spec((4096,), "int32")
    lowered = appended.lower(rows, ints, tile.spec((65,), "int32"), target="cuda:sm80")
    assert [(one.warps, one.stages) for one in lowered.plan.launches] == [(8, 1)]
    assert dict(lowered.plan.blocks) == {"t": 32}
