"""Values that are compared, and what is kept of the greatest: some go by the block."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from tests.fuzzing.compose import compose, means_something
from tests.fuzzing.inputs import case
from tests.fuzzing.limited import limited
from tests.fuzzing.program import Program, Update, Where, parts
from tests.fuzzing.ranked import ranked
from tests.fuzzing.trial import try_kernel

BLOCKS = (2, 3, 4, 8)


def compared(seed: int) -> Program | None:
    """The program of a seed with a comparison, if it has a value for that."""
    made = limited(compose(seed).program, random.Random(seed))
    return made if made is not None and means_something(made) else None


def depends(program: Program, seeds: int) -> bool:
    return any(case(program, seed, BLOCKS).depends for seed in range(seeds))


def test_every_kind_of_value_is_compared():
    found = [made for seed in range(60) if (made := compared(seed)) is not None]
    pairs = [p for made in found for p in parts(made.body) if isinstance(p, Where)]
    kinds = Counter(type(p.left).__name__ for p in pairs)
    assert {"Load", "Ref", "Reduce"} <= kinds.keys() and len(found) > 40
    assert {type(p.right).__name__ for p in pairs} >= {"Load", "Number"}


def test_random_kernels_have_some():
    changes = [compose(seed).changes for seed in range(120)]
    assert any("limited" in found for found in changes)
    updates = (p for seed in range(120) for p in parts(compose(seed).program.body))
    assert any(isinstance(p, Update) and isinstance(p.value, Where) for p in updates)


@pytest.mark.parametrize("seeds", [range(10), range(10, 20)], ids=str)
def test_what_is_kept_of_the_greatest(seeds):
    """Right in every block, or refused: and about half of them are."""
    kinds = Counter()
    for seed in seeds:
        program = ranked(random.Random(seed))
        kind = try_kernel(program, None, range(3)).kind
        assert kind == ("refused" if depends(program, 12) else "ok")
        kinds[kind] += 1
    assert min(kinds["ok"], kinds["refused"]) > 1


def test_numbers_of_a_rank_are_tied():
    program = ranked(random.Random(0))
    given = case(program, 0, ()).arguments
    arrays = [given[t.name] for t in program.arguments if t.role == "input"]
    assert arrays and all(len(np.unique(a[np.isfinite(a)])) < a.size / 2 for a in arrays)
