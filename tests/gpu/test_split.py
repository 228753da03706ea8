"""Split reductions: TRITON_INTERPRET=1 pytest tests/gpu/test_split.py; on a GPU: pytest -m gpu"""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
from tests import checks
from tests.gpu import machine, reductions
from tests.ragged import Space, every_stratum, wild_offsets
from tests.subjects import SUBJECTS

if machine.LACKS:
    pytest.skip(machine.LACKS, allow_module_level=True)

pytestmark = machine.MARKS
SPACE = Space(45, 4, 16)
RAGGED = ("jagged_sum", "jagged_mean", "segment_reduction", "transposed_grouped_gemm")
DENSE = (
    "matmul", "matmul_bias_relu", "long_sum", "batched_matmul", "split_k_matmul",
    "transposed_matmul", "weight_only_matmul", "quantized_matmul", "dense_attention_backward",
)  # fmt: skip
SAMPLE = ("jagged_sum", "matmul", "split_k_matmul")


def of(names):
    found = [next(s for s in SUBJECTS if s.name == name) for name in names]
    thorough = [() if s.name in SAMPLE else pytest.mark.thorough for s in found]
    return [pytest.param(s, marks=m, id=s.name) for s, m in zip(found, thorough, strict=True)]


@pytest.mark.parametrize("parts", [pytest.param(2, marks=pytest.mark.thorough), 7])
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("subject", of(DENSE))
def test_dense(subject, dtype, parts):
    if dtype in subject.dtypes:
        run, arguments = machine.small(subject, split=parts), subject.arrays(dtype)
        assert checks.right(subject, run, subject.arguments(arguments), dtype) == ""


@pytest.mark.parametrize("parts", [pytest.param(2, marks=pytest.mark.thorough), 7])
@pytest.mark.parametrize("dtype", ["float32", pytest.param("bfloat16", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("subject", of(RAGGED))
def test_every_layout(subject, dtype, parts):
    if dtype in subject.dtypes:
        run = machine.small(subject, split=parts)
        arrays = subject.arrays(dtype, rows=SPACE.rows, groups=SPACE.groups)
        layouts = every_stratum(subject.ragged.space(SPACE))
        assert checks.every_layout(subject, run, arrays, layouts, dtype) == []


@pytest.mark.parametrize("subject", of(RAGGED))
def test_neighbours_and_wild_offsets(subject):
    run = machine.small(subject, split=3)
    arrays = subject.arrays("float32", rows=SPACE.rows, groups=SPACE.groups)
    space = subject.ragged.space(SPACE)
    assert checks.neighbours(subject, run, arrays, every_stratum(space)[-2:]) == []
    for name, offsets in wild_offsets(space).items():
        assert checks.unchecked(subject, run, arrays, offsets) == [], name


# ---------------------------------------------------------------- kernels of their own

RNG = np.random.default_rng(0)
X = RNG.standard_normal((45, 20)).astype(np.float32)
N = RNG.integers(-1000, -3, 45).astype(np.int32)
LAYOUTS = [
    np.array(offsets, np.int32)
    for offsets in (
        [0, 7, 7, 38, 45], [0, 0, 0, 0, 0], [0, 45, 45, 45, 45], [3, 4, 20, 21, 40],
        [0, 1, 2, 3, 4],
    )
]  # fmt: skip
OWN = {
    "extremes": (reductions.extremes, X, {"tf": 16, "tm": 4}),
    "numbers": (reductions.numbers, N, {"tm": 4}),
    "tile_sums": (reductions.tile_sums, X, {"tm": 4}),
}


def agrees(kernel, *args, parts, blocks):
    found = machine.call(kernel, tile.Config(blocks, split=parts))(*args)
    wanted = kernel.reference(*args)
    for one, other in zip(checks.parts(found), checks.parts(wanted), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("parts", [3, pytest.param(16, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("name", OWN)
def test_own(name, parts):
    kernel, x, blocks = OWN[name]
    for offsets in LAYOUTS:
        agrees(kernel, x, offsets, parts=parts, blocks=blocks)


def test_nan_and_infinity_are_kept():
    x = X.copy()
    x[3, 0], x[20, 1], x[44, 2] = np.nan, np.inf, -np.inf
    for offsets in LAYOUTS[:3]:
        agrees(reductions.extremes, x, offsets, parts=3, blocks={"tf": 16, "tm": 4})


def test_weights_that_all_rows_share():
    """As their gradient is derived: a loop that runs once holds the sum over all rows."""
    agrees(reductions.weights, X, X[:, ::-1].copy(), parts=3, blocks={"tm": 4})


def test_a_range_that_begins_later():
    w = RNG.standard_normal((20, 5)).astype(np.float32)
    for parts in (2, 3):
        agrees(reductions.products, X, w, parts=parts, blocks={"tm": 16, "tk": 4})


def test_every_run_gives_the_same_bits():
    run = machine.call(reductions.extremes, tile.Config({"tf": 16, "tm": 4}, split=5))
    first, again = run(X, LAYOUTS[0]), run(X, LAYOUTS[0])
    assert all(a.tobytes() == b.tobytes() for a, b in zip(first, again, strict=True))
