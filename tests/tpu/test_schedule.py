"""Generated steps have hardly more bundles than those of kernels by hand; nothing is wasted.

Evidence: libtpu, ahead of time; no TPU is used, and nothing is run.  docs/schedule.md has the rest.
"""

from __future__ import annotations

import pytest

from tests.aot.written import needs_libtpu
from tests.schedule_table import MOST, Measured, attention, gemm, measure

CELLS = (
    (gemm(2048, 512, 1024, 9, "bfloat16", tm=128, tn=512, tk=512), "v5e"),
    pytest.param(
        attention(4, 4096, 128, True, "bfloat16", tq=256, tk=512), "v6e", marks=pytest.mark.slow
    ),
)


@needs_libtpu
@pytest.mark.parametrize(("kernel", "generation"), CELLS)
def test_steps_are_as_short_as_by_hand(kernel: Measured, generation: str) -> None:
    found = measure(kernel, generation)
    assert 100 < found.ours.guarded + 100 < found.by_hand.step
    assert found.ratio <= MOST, f"{found.ours.step} bundles, {found.by_hand.step} by hand"
    assert found.dead == 0
    assert found.moved == 0
    assert found.steps > 10
