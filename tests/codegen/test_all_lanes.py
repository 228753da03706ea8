"""Columns that are carried fill all lanes of registers: which do, and that nothing changes."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.ragged import Space, every_stratum
from tests.subjects import SUBJECTS
from tests.tiers import HALF, share
from tilelang.language.dtypes import itemsize

SPACE = Space(rows=72, groups=5, block=16)
FORMS = ({}, {"loop_type": "fori_loop"}, {"loop_type": "emit_pipeline"}, {"loop_type": "worklist"})


@tile.kernel
def weighted(x, y, offsets):
    """The mean of y over the rows of a group, weighted by exp(x x^T), and what is known of it."""
    T, D = y.shape
    out = hl.zeros([T, D], dtype=hl.float32)
    log = hl.zeros([T], dtype=hl.float32)
    count = hl.zeros([T], dtype=hl.int32)
    for g in hl.grid(offsets.shape[0] - 1):
        for tq in hl.tile(offsets[g], offsets[g + 1]):
            m = hl.full([tq], -math.inf, dtype=hl.float32)
            total = hl.zeros([tq], dtype=hl.float32)
            seen = hl.zeros([tq], dtype=hl.int32)
            acc = hl.zeros([tq, D], dtype=hl.float32)
            for tk in hl.tile(offsets[g], offsets[g + 1]):
                scores = hl.dot(x[tq, :], x[tk, :].T)
                m_new = hl.maximum(m, scores.amax(-1))
                seen = hl.where(m_new > m, 1, seen)
                alpha = hl.exp(m - m_new)
                p = hl.exp(scores - m_new[:, None])
                total = total * alpha + p.sum(-1)
                acc = hl.dot(p, y[tk, :], acc=acc * alpha[:, None])
                m = m_new
            out[tq, :] = acc / total[:, None]
            log[tq] = m + hl.log(total)
            count[tq] = seen
    return out, log, count


def exactly(x, y, offsets):
    out, log, count = np.zeros(y.shape), np.zeros(len(y)), np.zeros(len(y), int)
    for begin, end in itertools.pairwise(offsets):
        if begin < end:
            scores = x[begin:end].astype(np.float64) @ x[begin:end].astype(np.float64).T
            log[begin:end] = np.log(np.exp(scores).sum(1))
            out[begin:end] = np.exp(scores - log[begin:end, None]) @ y[begin:end]
            count[begin:end] = 1
    return out, log, count


@pytest.mark.parametrize(
    ("form", "width", "block"),
    list(zip(FORMS, (40, 128, 256, 192), (16, 128, 32, 64), strict=True)),
    ids=str,
)
def test_against_wider_narrower_and_odd_values(form, width, block):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((72, 8), np.float32)
    y = rng.standard_normal((72, width), np.float32)
    config = tile.Config({"tq": 16, "tk": block}, **form)
    for layout in every_stratum(SPACE):
        found = weighted(x, y, layout.offsets, config=config)
        wanted = exactly(x, y, layout.offsets)
        for ours, right in zip(found, wanted, strict=True):
            np.testing.assert_allclose(np.asarray(ours), right, atol=3e-5)


@tile.kernel
def prefixes(x, z, offsets):
    """y[r] = z[r] times the sum of the sums of x[r] up to every 128 columns; n, the last."""
    T, D = z.shape
    y, n = hl.zeros([T, D], dtype=hl.float32), hl.zeros([T], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            total = hl.zeros([tm], dtype=hl.float32)
            acc = hl.zeros([tm, D], dtype=hl.float32)
            for tk in hl.tile(x.shape[1], block_size=128):
                total = total + x[tm, tk].sum(-1)
                acc = acc + total[:, None] * z[tm, :]
            y[tm, :] = acc
            n[tm] = total
    return y, n


X, Z = np.random.default_rng(1).integers(-4, 5, (2, 72, 256)).astype(np.float32)
CUTS = np.array([0, 5, 5, 40, 72], np.int32)


def prefixed():
    """Whole numbers, so that results are exact."""
    sums = X.reshape(72, 2, 128).sum(2).cumsum(1)
    return Z * sums.sum(1)[:, None], sums[:, -1]


def test_how_a_width_is_met():
    x, offsets = tile.spec((4096, 128), "float32"), tile.spec((9,), "int32")

    def text(width: int) -> str:
        y = tile.spec((4096, width), "float32")
        config = tile.Config({"tq": 256, "tk": 512})
        return str(weighted.source(x, y, offsets, target="tpu:v6e", config=config))

    assert "acc_ref[...] * alpha +" in text(128).replace("\n", " ").replace("  ", "")
    assert "acc_ref[...] * alpha[:, :64]" in text(64)
    assert "acc_ref[...] * jnp.tile(alpha, (1, 3))" in text(384)
    assert "acc_ref[...] * alpha[:, :1]" in text(320)
    assert "jnp.where(m_new > m, 1, seen_ref[...])" in text(128)


@pytest.mark.parametrize("subject", share(SUBJECTS, 6, rest=HALF, ids=lambda s: s.name))
def test_no_column_that_is_carried_has_one_lane(subject):
    for launch in subject.kernel.lower(*subject.cases[-2], target="tpu:v6e").plan.launches:
        narrow = [s for s in launch.scratch if s.shape[-1:] == (1,) and s.shape[-2:] != (1, 1)]
        assert [s for s in narrow if s.dtype != "semaphore" and itemsize(s.dtype) == 4] == []
