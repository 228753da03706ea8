"""Predictions of compiled examples: everything resolved, sane, and near published measurements.

Evidence: libtpu, ahead of time; no TPU is used, and nothing is run.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilelang as tile
from examples.dense.matmul import make_kernel
from tests.aot.written import needs_libtpu
from tests.autotune.measured import GUIDE
from tests.subjects import SUBJECTS
from tilelang.autotune.model import Compiler, Prediction, predict, steering
from tilelang.codegen.pallas.chips import CHIPS
from tilelang.runtime.lowering import Lowered

NAMED = {subject.name: subject for subject in SUBJECTS}
# What each is here for: a table of steps; a loop inside; a table of pages in scalar memory; two
# launches, gathered rows and copies of XLA; both cores of v5p; blocks that offsets place.
EXAMPLES = ("grouped_gemm", "jagged_attention", "paged_attention", "moe", "softmax", "jagged_sum")


# On 7x XLA waits in its own gathers for what the executor does not know; our kernel's are resolved.
OURS = {("moe", "tpu:7x"): tile.Config(gathers="inside")}


def lowered(name: str, target: str) -> Lowered:
    config = OURS.get((name, target))
    return NAMED[name].kernel.lower(*NAMED[name].cases[0], target=target, config=config)


def integers(of: Lowered, skewed: bool) -> dict[str, np.ndarray]:
    """Values for what steers a kernel: groups of very different lengths, or all of them empty."""
    found = {}
    for name in steering(of):
        shape = of.ir.tensor(name).shape
        ends = np.array([0, 0, 3, 700, 700, 701, 1000, 1024, 1024])
        grows = "offset" in name and shape == ends.shape
        found[name] = (ends if skewed else 0 * ends) if grows else np.zeros(shape, np.int32)
    return found


def asked(name: str, target: str, at: Path, compiler: Compiler, skewed: bool = True) -> Prediction:
    of = lowered(name, target)
    return predict(of, {}, integers(of, skewed), folder=at, compiler=compiler)


def check(found: Prediction) -> None:
    assert found.notes == {}, str(found)
    assert 0 < found.limit < found.seconds < 1e-3
    for kernel in found.runs[0].kernels:
        copies = sum(s for why, s in kernel.stalls.items() if why != "units")
        assert kernel.compute + copies == pytest.approx(kernel.seconds)
        assert 0 <= kernel.matrix < 1


@needs_libtpu
def test_skewed_and_empty_groups(tmp_path: Path) -> None:
    with Compiler.started() as compiler:
        full = asked("grouped_gemm", "tpu:v6e", tmp_path, compiler)
        empty = asked("grouped_gemm", "tpu:v6e", tmp_path, compiler, skewed=False)
    check(full)
    assert empty.notes == {}
    assert empty.runs[0].kernels[0].matrix < full.runs[0].kernels[0].matrix
    assert empty.runs[0].kernels[0].written >= 1024 * 512 * 2  # zeros, all the same
    assert 2e-6 < full.seconds < 20e-6


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize("target", ["tpu:v5e", "tpu:v5p", "tpu:v6e", "tpu:7x"])
def test_every_scalar_of_our_kernels_is_resolved(target: str, tmp_path: Path) -> None:
    with Compiler.started() as compiler:
        for name in EXAMPLES:
            check(asked(name, target, tmp_path, compiler))
            assert asked(name, target, tmp_path, compiler, skewed=False).notes == {}


@needs_libtpu
@pytest.mark.slow
def test_two_cores_share_the_work_of_v5p(tmp_path: Path) -> None:
    """Each moves its half at once, and both are counted."""
    of = lowered("softmax", "tpu:v5p")
    (kernel,) = predict(of, {}, {}, folder=tmp_path).runs[0].kernels
    whole = sum(np.prod(t.shape) * 2 for t in of.ir.tensors if t.role == "input")
    assert kernel.read == kernel.written == whole
    assert kernel.seconds < (kernel.read + kernel.written) / CHIPS["v5p"].bandwidth


@needs_libtpu
@pytest.mark.slow
def test_published_measurements(tmp_path: Path) -> None:
    """JAX's guide on v5e, the cost of a call taken off: within 5 %, by their median within 3 %."""
    ratios = []
    for one in GUIDE:
        x: Any = tile.spec((one.size, one.size), "bfloat16")
        blocks = tile.Config({"tm": one.m, "tn": one.n, "tk": one.k})
        of = make_kernel().lower(x, x, config=blocks, target="tpu:v5e")
        found = predict(of, {}, {}, folder=tmp_path, timeout=400)
        assert found.notes == {}
        ratios.append(found.seconds / one.kernel)
    assert all(0.95 <= ratio <= 1.05 for ratio in ratios), ratios
    assert abs(statistics.median(ratios) - 1) < 0.03, ratios
