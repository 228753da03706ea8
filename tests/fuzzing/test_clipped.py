"""Sums over tiles of which only what is positive counts: they go by the block, and are refused."""

from __future__ import annotations

import random

from tests.fuzzing.clipped import clipped
from tests.fuzzing.compose import compose, means_something
from tests.fuzzing.program import Program, Unary, parts
from tests.fuzzing.trial import try_kernel


def drawn(seed: int) -> Program | None:
    """The program of a seed with such a sum, if it has sums over tiles."""
    made = clipped(compose(seed).program, random.Random(seed))
    return made if made is not None and means_something(made) else None


def test_something_is_put_around_a_sum():
    found = [made for seed in range(30) if (made := drawn(seed)) is not None]
    assert len(found) > 8
    assert all(any(isinstance(p, Unary) for p in parts(made.body)) for made in found)


def test_random_kernels_have_some():
    assert any("clipped" in compose(seed).changes for seed in range(300))


def test_they_are_refused():
    """These were taken: masks, conditions and unsigned numbers hid what they do."""
    for seed in (19, 45, 84):
        made = drawn(seed)
        assert made is not None and try_kernel(made, None, range(2)).kind == "refused"
