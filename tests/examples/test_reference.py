"""The meaning of every example: tile by tile in NumPy, it equals the independent expression.

Whatever the block sizes are, and in whatever order the parallel loops run.  No device, no plan.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

from tests import checks
from tests.ragged import Space, every_stratum, wrong_layouts
from tests.subjects import DENSE, JAGGED, Subject
from tests.tiers import FIFTH, HALF, share

SPACE = Space(rows=40, groups=4, block=8)  # as in test_tpu_interpreter: XLA compiles once
BLOCKS = (12, 24, 128)  # of which the last one holds most of these arrays whole
STRATA = {12: slice(None), 24: slice(0, None, 2), 128: slice(1, None, 2)}  # two blocks for each


def _reference(subject: Subject, block: int, seed: int | None):
    blocks = dict.fromkeys(subject.blocks, block)
    return functools.partial(subject.kernel.reference, blocks=blocks, seed=seed)


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("subject", share(JAGGED, 12, rest=FIFTH))
def test_jagged(subject, block):
    arrays = subject.arrays("float32", rows=SPACE.rows, groups=SPACE.groups)
    wrong = []
    for seed, layout in enumerate(every_stratum(SPACE, seed=block)[STRATA[block]]):
        call = _reference(subject, block, seed)
        wrong += checks.every_layout(subject, call, arrays, [layout], "float32")
    assert wrong == []


@pytest.mark.parametrize("subject", share(JAGGED, 3, 1, HALF))
def test_jagged_in_other_dtypes(subject):
    layouts = every_stratum(SPACE)[::3]
    for dtype in subject.dtypes[1:]:
        arrays = subject.arrays(dtype, rows=SPACE.rows, groups=SPACE.groups)
        call = _reference(subject, 16, 1)
        assert checks.every_layout(subject, call, arrays, layouts, dtype) == []


@pytest.mark.parametrize("subject", JAGGED, ids=str)
def test_wrong_offsets_raise(subject):
    arrays = subject.arrays("float32", rows=SPACE.rows, groups=SPACE.groups)
    ragged = checks.ragged_of(subject)
    for layout in wrong_layouts(ragged.space(SPACE), ragged.offsets):
        with pytest.raises(ValueError, match="offsets"):
            subject.kernel.reference(*subject.arguments(arrays, layout))


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("subject", share(DENSE, 3, rest="thorough"))
def test_dense(subject, block):
    for seed in (None, 0, 1, 2):
        arguments = (*subject.arrays("float32", seed=seed or 0), *subject.static)
        call = _reference(subject, block, seed)
        assert checks.right(subject, call, arguments, "float32") == ""


@pytest.mark.parametrize("subject", DENSE, ids=str)
def test_dense_in_other_dtypes(subject):
    for dtype in subject.dtypes[1:]:
        arguments = (*subject.arrays(dtype), *subject.static)
        assert checks.right(subject, _reference(subject, 16, 1), arguments, dtype) == ""


def test_shuffling_changes_nothing_at_all():
    """Parallel loops carry nothing, so that not even the rounding depends on their order."""
    subject = JAGGED[0]
    arrays = subject.arrays("float32", rows=SPACE.rows, groups=SPACE.groups)
    offsets = every_stratum(SPACE)[-1].offsets
    in_order, shuffled = (_reference(subject, 8, seed)(*arrays, offsets) for seed in (None, 5))
    np.testing.assert_array_equal(in_order, shuffled)
