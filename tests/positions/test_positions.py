"""Scalar positions that may leave their arrays: every loop type, with checks and without."""

from __future__ import annotations

import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
from tests.positions.kernels import PROGRAMS
from tests.tiers import share

FORMS = {
    "default": tile.Config(),
    "grid": tile.Config(loop_type="grid"),
    "table": tile.Config(loop_type="outer_pipeline", steps="table"),
    "rectangle": tile.Config(loop_type="outer_pipeline", steps="rectangle"),
    "worklist": tile.Config(loop_type="worklist"),
    "emit_pipeline": tile.Config(loop_type="emit_pipeline"),
    "fori_loop": tile.Config(loop_type="fori_loop"),
    "unroll": tile.Config(loop_type="unroll"),
}
every = pytest.mark.parametrize("program", PROGRAMS, ids=str)
in_forms = pytest.mark.parametrize("form", FORMS)


def planned(program, form):
    """The kernel's text in a form; skips what the plan refuses."""
    try:
        return program.kernel().source(*program.arguments, config=FORMS[form])
    except tile.PlanError as refused:
        pytest.skip(refused.what)


@pytest.mark.parametrize("program", share(PROGRAMS, 4))
@in_forms
def test_without_checks_nothing_else_is_touched(program, form):
    if form != "default" and planned(program, form) == planned(program, "default"):
        pytest.skip("the default")
    call = program.kernel(checks=False)
    found = call(*program.arguments, config=FORMS[form])
    np.testing.assert_array_equal(np.asarray(found), program.meaning(*program.arguments))


@pytest.mark.slow
@every
@in_forms
def test_no_access_leaves_an_array(program, form):
    """The strict interpreter: memory is NaN until it is written, and nothing is out of bounds."""
    if form != "default" and planned(program, form) == planned(program, "default"):
        pytest.skip("the default")
    strict = pltpu.InterpretParams(
        dma_execution_mode="on_wait", out_of_bounds_reads="raise", uninitialized_memory="nan"
    )
    call = program.kernel(interpret=strict, checks=False, target="tpu:v6e")
    try:
        found = call(*program.arguments, config=FORMS[form])
    except tile.PlanError as refused:
        pytest.skip(refused.what)
    finally:
        pltpu.reset_tpu_interpret_mode_state()
    np.testing.assert_array_equal(np.asarray(found), program.meaning(*program.arguments))


@every
def test_a_call_refuses_what_the_reference_refuses(program):
    kernel = program.kernel()
    if not program.wild:
        expected = program.meaning(*program.arguments)
        np.testing.assert_array_equal(kernel.reference(*program.arguments), expected)
        np.testing.assert_array_equal(np.asarray(kernel(*program.arguments)), expected)
        return
    with pytest.raises(tile.RaggedValueError) as evaluated:
        kernel.reference(*program.arguments)
    if program.guarded:
        return
    with pytest.raises(tile.RaggedValueError) as called:
        kernel(*program.arguments)
    assert str(called.value) == str(evaluated.value)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.wild], ids=str)
def test_the_reference_without_checks_refuses_too(program):
    with pytest.raises(tile.RaggedValueError, match="of dimension 0, whose length is"):
        program.kernel(checks=False).reference(*program.arguments)
