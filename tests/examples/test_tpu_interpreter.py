"""The jagged examples in Pallas's TPU interpreter, which is stricter than the one that calls use.

Buffers are NaN until they are written, an access outside of a buffer raises, and copies that race
with a read or a write are found.  It is slow, so that a few layouts have to do.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from tests import checks, interpreter
from tests.frameworks import from_jax
from tests.ragged import Space, every_stratum, wild_offsets
from tests.subjects import JAGGED
from tests.tiers import share

races = pytest.importorskip(
    "jax._src.pallas.mosaic.interpret.interpret_pallas_call",
    reason="this JAX keeps the races that it found somewhere else",
)

pytestmark = pytest.mark.slow
SPACE = Space(rows=40, groups=4, block=16)
LAYOUTS = [
    la
    for la in every_stratum(SPACE, seed=3)
    if la.stratum in ("edges and empties", "gaps on both sides", "all empty")
]
each = pytest.mark.parametrize("subject", share(JAGGED, 3, rest="thorough"))


@pytest.fixture(autouse=True)
def fresh_interpreter():
    """Its memory is shared by the whole process, and is left as it was by an exception."""
    yield
    pltpu.reset_tpu_interpret_mode_state()


@functools.cache
def _call(name: str, steps: str = "table"):
    """An example in that interpreter; one program for both tests of it."""
    subject = next(s for s in JAGGED if s.name == name)
    config = tile.Config(subject.blocks, loop_type="outer_pipeline", steps=steps)
    strict = pltpu.InterpretParams(detect_races=True)
    kernel = tile.kernel(subject.kernel.__wrapped__, interpret=strict, checks=False)

    def call(*arguments) -> np.ndarray:
        result = from_jax(kernel, arguments, config=config)
        assert not races.races.races_found
        return result

    return call


@each
def test_layouts(subject):
    arrays = subject.arrays("float32", rows=SPACE.rows, groups=SPACE.groups)
    assert checks.every_layout(subject, _call(subject.name), arrays, LAYOUTS, "float32") == []


def test_layouts_with_guarded_steps():
    subject = JAGGED[0]
    arrays = subject.arrays("float32", rows=SPACE.rows, groups=SPACE.groups)
    call = _call(subject.name, "rectangle")
    assert checks.every_layout(subject, call, arrays, LAYOUTS[:2], "float32") == []


@each
def test_wrong_offsets_reach_no_memory_of_others(subject):
    arrays = subject.arrays("float32", rows=SPACE.rows, groups=SPACE.groups)
    call, wild = _call(subject.name), wild_offsets(SPACE)
    for name in ("anything", "huge"):
        assert checks.unchecked(subject, call, arrays, wild[name]) == [], name


@tile.kernel
def swapped(x):
    for t in hl.tile(x.shape[1]):
        x[0, t, :], x[1, t, :] = x[1, t, :], x[0, t, :]
    return x


def test_arrays_that_are_changed_end_inside_of_a_block():
    x = np.arange(2 * 21 * 4, dtype=np.float32).reshape(2, 21, 4)
    found = interpreter.strictly(swapped, 0)(x.copy(), config=tile.Config({"t": 16}))
    np.testing.assert_array_equal(found, x[::-1])


WILD = ("jagged_sum", "grouped_gemm", "jagged_layer_norm", "varlen_attention", "segment_reduction")


@pytest.mark.parametrize("form", interpreter.WILD)
@pytest.mark.parametrize("name", share(WILD, 2, rest="thorough"))
def test_wrong_offsets_in_every_loop_type(name, form):
    subject = next(s for s in JAGGED if s.name == name)
    program = interpreter.Program(subject, form, interpreter.WILD_SPACE)
    if (form == "within" and not subject.within) or interpreter.refused(program):
        pytest.skip(f"{name} has no such form")
    assert interpreter.run_wild(program, 0, ("anything", "huge", "to and fro")).findings == ()
