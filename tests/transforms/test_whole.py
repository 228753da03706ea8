"""over_whole: loops over what is taken whole, by `:`, and a mesh splits them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.partitions import divided
from tests.transforms.wholes import (
    whole_argmax,
    whole_norm,
    whole_product,
    whole_softmax,
    whole_softmax_at_once,
    whole_sums,
)
from tilelang.analysis import analyze
from tilelang.ir import every_loop
from tilelang.ir.verify import verify
from tilelang.reference import evaluate
from tilelang.transforms.partition import factors
from tilelang.transforms.whole import over_whole, taken_whole

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((24, 12), np.float32), RNG.standard_normal((3, 12, 8), np.float32)
OFFSETS = np.array([0, 10, 10, 21], np.int32)
PRODUCT, SUMS = {"x": X, "w": W, "offsets": OFFSETS}, {"x": X, "offsets": OFFSETS}
CASES = {
    "product": (whole_product, PRODUCT, ("x", 1)),
    "columns of a product": (whole_product, PRODUCT, ("w", 2)),
    "sums": (whole_sums, SUMS, ("x", 1)),
    "norm": (whole_norm, {"x": X, "scale": X[0]}, ("x", 1)),
    "softmax": (whole_softmax, {"x": X}, ("y", 1)),
    "softmax at once": (whole_softmax_at_once, {"x": X}, ("x", 1)),
}


def ir_of(kernel, arrays):
    return kernel.lower(*arrays.values(), target="tpu:v6e").ir


@pytest.mark.parametrize("case", CASES)
def test_the_loops_do_the_same(case: str) -> None:
    kernel, arrays, place = CASES[case]
    ir = ir_of(kernel, arrays)
    made = verify(over_whole(ir, place))
    added = {loop.axis for loop in every_loop(made.body)} - {a.name for a in ir.axes}
    assert added, "no loop was added"
    for name, found in evaluate(made, arrays).items():
        np.testing.assert_allclose(found, evaluate(ir, arrays)[name], 1e-5, 1e-5)
    (factor,) = (f for f in factors(made, analyze(made)) if place in f.dims)
    assert factor.axes == added


@pytest.mark.parametrize("case", CASES)
def test_parts_of_what_is_taken_whole(case: str) -> None:
    kernel, arrays, place = CASES[case]
    ir = ir_of(kernel, arrays)
    assert place in taken_whole(ir)
    assert list(divided(ir, arrays)) == []


def test_what_needs_a_whole_row_stays() -> None:
    ir = ir_of(whole_argmax, {"x": X})
    assert over_whole(ir, ("x", 1)) is ir


def test_rows_that_a_loop_goes_through_stay() -> None:
    ir = ir_of(whole_norm, {"x": X, "scale": X[0]})
    assert over_whole(ir, ("x", 0)) is ir
