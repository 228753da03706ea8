"""Every bug planted in the proofs about positions and stores is noticed by a check of these."""

from __future__ import annotations

import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
from tests.analysis.test_positions import ADDED, DEPENDS, WRONG, arrays
from tests.planted.positions import MUTATIONS
from tests.positions.kernels import PROGRAMS

REFUSED = {fn.__name__: (fn, specs) for fn, specs, *_ in (*WRONG, *DEPENDS, *ADDED)}
PLAIN = {fn.__name__ for fn, *_ in DEPENDS}  # their form alone says so
RUN = {str(program): program for program in PROGRAMS}


def noticed(name):
    """Whether the check of that name complains."""
    if name in REFUSED:
        fn, specs = REFUSED[name]
        try:
            tile.kernel(fn).source(*arrays(specs))
        except tile.ParseError as refusal:
            # another proof stands behind this one: of positions, or what numbers show
            shown = name in PLAIN and refusal.hint.startswith("store what the loop of")
            return "takes in" in refusal.what or shown
        return True
    program = RUN[name]
    strict = pltpu.InterpretParams(out_of_bounds_reads="raise", uninitialized_memory="nan")
    try:
        call = program.kernel(interpret=strict, checks=False, target="tpu:v6e")
        found = np.asarray(call(*program.arguments))
    except Exception:  # out of bounds
        return True
    finally:
        pltpu.reset_tpu_interpret_mode_state()
    return not np.array_equal(found, program.meaning(*program.arguments))


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_a_planted_bug_is_noticed(mutation, monkeypatch):
    assert not noticed(mutation.seen_by)
    monkeypatch.setattr(mutation.owner, mutation.name, mutation.wrong)
    assert noticed(mutation.seen_by)
