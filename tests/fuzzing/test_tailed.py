"""Rows with numbers of their own beside their columns: what they mean, under the default config."""

from __future__ import annotations

import random
from itertools import islice

from tests.fuzzing.compose import compose, means_something
from tests.fuzzing.program import Pick, Program, Store, parts
from tests.fuzzing.small import small
from tests.fuzzing.tailed import tailed
from tests.fuzzing.trial import try_kernel


def drawn(seed: int) -> Program | None:
    rng = random.Random(seed)
    made = tailed(small(rng), rng)
    return made if made is not None and means_something(made) else None


PROGRAMS = tuple(islice((made for seed in range(200) if (made := drawn(seed)) is not None), 8))


def test_rows_have_a_number_before_their_columns():
    for program in PROGRAMS:
        stores = [p for p in parts(program.body) if isinstance(p, Store)]
        own = [s for s in stores if Pick("") in s.index]
        assert own
        for store in own:
            dim = store.index.index(Pick(""))
            others = [s.index[dim] for s in stores if s.tensor == store.tensor and s != store]
            assert any(pick.axis and pick.shift > 0 for pick in others)


def test_random_kernels_have_some():
    assert any("tailed" in compose(seed).changes for seed in range(300))


def test_they_are_right():
    found = [try_kernel(program, None, range(2)).kind for program in PROGRAMS]
    assert {*found} <= {"ok", "refused"} and found.count("ok") > 5
