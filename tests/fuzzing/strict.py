"""try_strict(program, config, seeds): a random kernel, unchecked, in the strict TPU interpreter.

There memory is NaN until it is written, an access outside of a buffer raises, and copies that race
are found.  Half of the calls have offsets or positions that are wrong: what they give is what
`Kernel.reference` gives, if it takes them, and else no more than an access that stays inside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
from tests.fuzzing.counted import open_numbers
from tests.fuzzing.inputs import wild
from tests.fuzzing.program import Program
from tests.fuzzing.trial import OK, Outcome, _outcome, cases_of, difference, loaded, specified
from tests.interpreter import overlap, races_found, strictly


def try_strict(program: Program, config: tile.Config | None, seeds: Sequence[int]) -> Outcome:
    """The first thing that is wrong over these arguments, as they are and with a wrong tensor."""
    with loaded(program) as kernel:
        call = strictly(kernel, seeds[0])
        for seed, given in cases_of(program, kernel, config, seeds):
            if given.illegal or given.depends:
                continue
            found = _once(program, call, config, given.arguments, given.results)
            if found != OK:
                return Outcome(found.kind, f"{found.detail}; {given.layout}", seed)
        for seed in () if open_numbers(program) else seeds:
            if (drawn := wild(program, seed)) is None:
                break
            arguments, words = drawn
            made, refusal = _outcome(kernel.reference, [a.copy() for a in arguments.values()])
            pairs = zip(program.results, made, strict=refusal == OK)
            known = {t.name: specified(t, np.asarray(r)) for t, r in pairs}
            found = _once(program, call, config, arguments, known)
            if found != OK:
                return Outcome(found.kind, f"{found.detail}; {words}", seed)
    return OK


def _once(
    program: Program,
    kernel: tile.Kernel,
    config: tile.Config | None,
    arguments: Mapping[str, np.ndarray],
    known: Mapping[str, np.ndarray],
) -> Outcome:
    """One call; `known` is what must come out, of nothing if that is unknown."""
    kept = any(t.role == "changed" for t in program.tensors)
    values = [a.copy() if kept else jnp.asarray(a) for a in arguments.values()]
    try:
        made, found = _outcome(lambda *given: kernel(*given, config=config), values)
        if found != OK:
            return found
        if races_found() and not any(overlap(np.asarray(a)) for a in arguments.values()):
            return Outcome("wrong", "copies race with a read or a write")
    finally:  # memory and races are those of the whole process
        pltpu.reset_tpu_interpret_mode_state()
    for tensor, result in zip(program.results, made, strict=True):
        if tensor.name in known:
            problem = difference(tensor, np.asarray(result), known[tensor.name])
            if problem:
                return Outcome("wrong", f"{tensor.name}: {problem}")
    return OK
