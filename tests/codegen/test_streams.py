"""loop_type="emit_pipeline": the innermost loops stream blocks through pipelines of their own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests import checks
from tests.frameworks import from_jax
from tests.ragged import Space, every_stratum
from tests.subjects import DENSE, JAGGED, Subject

SPACE = Space(rows=72, groups=5, block=16)
LAYOUTS = every_stratum(SPACE)
STREAMED = tile.Config({"tm": 16, "tf": 128}, loop_type="emit_pipeline")


@tile.kernel
def normalised(x, offsets):
    """softmax over the rows of every group: statistics in one loop, results in another."""
    M, F = x.shape
    y = hl.zeros([M, F], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tf in hl.tile(F):
            m = hl.full([tf], float("-inf"), dtype=hl.float32)
            total = hl.zeros([tf], dtype=hl.float32)
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                v = x[tm, tf].to(hl.float32)
                new = hl.maximum(m, v.amax(0))
                total = total * hl.exp(m - new) + hl.exp(v - new[None, :]).sum(0)
                m = new
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                v = x[tm, tf].to(hl.float32)
                y[tm, tf] = (hl.exp(v - m[None, :]) / total[None, :]).to(y.dtype)
    return y


def by_hand(x: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    y = np.zeros(x.shape)
    for begin, end in itertools.pairwise(offsets):
        rows = np.exp(x[begin:end].astype(np.float64) - x[begin:end].max(0, initial=-np.inf))
        y[begin:end] = rows / rows.sum(0)
    return y


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


STREAMING = (  # dense kernels with an ordered loop inside
    "matmul",
    "matmul_bias_relu",
    "long_sum",
    "batched_matmul",
    "layer_norm_long",
    "flash_attention",
    "flash_attention_causal",
    "cross_entropy",
)


@pytest.mark.thorough
@pytest.mark.parametrize("subject", [s for s in JAGGED if s.name != "moe"], ids=str)
def test_every_layout(subject: Subject) -> None:
    config = tile.Config(subject.blocks, loop_type="emit_pipeline")
    arrays = subject.arrays("float32", rows=SPACE.rows, groups=SPACE.groups)

    def call(*arguments) -> np.ndarray:
        return from_jax(subject.kernel, arguments, config=config)

    assert checks.every_layout(subject, call, arrays, LAYOUTS[::2], "float32") == []


@pytest.mark.parametrize("subject", [s for s in DENSE if s.name in STREAMING], ids=str)
def test_dense(subject: Subject) -> None:
    config = tile.Config(subject.blocks, loop_type="emit_pipeline")

    def call(*arguments) -> np.ndarray:
        return from_jax(subject.kernel, arguments, config=config)

    arguments = (*subject.arrays("float32"), *subject.static)
    assert checks.right(subject, call, arguments, "float32") == ""


def test_rows_that_two_groups_share_are_read_back() -> None:
    x = floats(72, 300)
    for layout in LAYOUTS:
        hidden = x.copy()
        hidden[: layout.offsets[0]] = hidden[layout.offsets[-1] :] = np.nan
        result = normalised(hidden, layout.offsets, config=STREAMED)
        np.testing.assert_allclose(
            result, by_hand(x, layout.offsets), rtol=1e-5, atol=1e-6, err_msg=str(layout)
        )


@tile.kernel
def smoothed(x, offsets):
    """Loops in a row that contain loops: no phases of a step table."""
    M, F = x.shape
    y = hl.zeros([M, F], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        total = 0.0
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            for tf in hl.tile(F):
                total += x[tm, tf].sum()
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            for tf in hl.tile(F):
                y[tm, tf] = x[tm, tf] - total
    return y


def test_what_does_not_fit_streams_by_default() -> None:
    small = tile.spec((512, 256), "float32"), tile.spec((9,), "int32")
    large = tile.spec((1 << 17, 4096), "float32"), tile.spec((257,), "int32")
    for target in ("tpu:v5e", "tpu:v6e"):
        assert smoothed.default_config(*small, target=target).loop_type == "fori_loop"
        assert smoothed.default_config(*large, target=target).loop_type == "emit_pipeline"


def test_a_kernel_with_nothing_to_stream_says_so() -> None:
    subject = next(s for s in DENSE if s.name == "softmax")
    with pytest.raises(tile.TileError, match="no loop of softmax is left to run inside the step"):
        subject.kernel.source(
            *subject.arrays("float32"), config=tile.Config(loop_type="emit_pipeline")
        )


def test_rows_picked_one_by_one_are_not_streamed() -> None:
    """Eight rows share a block of the output: the next step would read it back too early."""
    with pytest.raises(tile.TileError, match="may share blocks of y"):
        running_rows.source(floats(20, 256), config=tile.Config(loop_type="emit_pipeline"))


@tile.kernel
def running_rows(x):
    """Sums of all rows so far."""
    y = hl.empty_like(x)
    for tn in hl.tile(x.shape[1]):
        acc = hl.zeros([tn], dtype=hl.float32)
        for i in hl.grid(x.shape[0]):
            acc = acc + x[i, tn]
            y[i, tn] = acc
    return y
