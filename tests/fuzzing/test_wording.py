"""Messages name what the author wrote."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.fuzzing import campaign
from tests.fuzzing.program import Axis, Load, Pick, Program, Store, Tensor, fitted
from tests.fuzzing.small import nest
from tests.fuzzing.trial import Outcome
from tests.fuzzing.wording import foreign

OVER = Axis("t", "tile", 8)
COPY = fitted(
    Program(
        (OVER,),
        (Tensor("x1_in", (), "float32", "input"), Tensor("y", (), "float32", "output", 0.0)),
        nest((OVER,), (Store("y", (Pick("t"),), Load("x1_in", (Pick("t"),))),)),
    )
)


def test_names_that_nobody_wrote_are_found() -> None:
    """x1_in is an argument, and t_1 the block of a second loop over t."""
    said = "depends on where_3 and %acc of kernel_1_kernel, not x1_in, t or t_1"
    assert foreign(said, COPY) == {"where_3", "%acc", "kernel_1_kernel"}


def test_a_refusal_with_such_a_name_is_a_fault() -> None:
    found = campaign._worded(COPY, Outcome("refused", "PlanError: this depends on i_2"))
    assert found.kind == "crash" and found.detail.startswith("i_2: names that nobody wrote")
    right = Outcome("refused", "PlanError: this depends on t")
    assert campaign._worded(COPY, right) == right


@tile.kernel
def widening(x):
    y = hl.zeros([4], dtype=hl.float32)
    for _ in hl.grid(1):
        total = hl.zeros([4], dtype=hl.float32)
        for t in hl.tile(8):
            total = total + x[t, :].sum(0)
        y[:] = total
    return y


def test_values_that_loops_carry_are_called_as_their_author_calls_them() -> None:
    with pytest.raises(tile.TypingError) as caught:
        widening.source(np.zeros((8, 3), np.float32), target="tpu:v6e")
    assert caught.value.what == (
        "add needs equal lengths: dimension -1 is 4 in total (float32[4]) and 3 in a value of type "
        "float32[3]"
    )
