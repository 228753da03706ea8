"""Rows of a tile that are mixed with each other: what they mean, under the default config."""

from __future__ import annotations

import random
from itertools import islice

import numpy as np
import pytest

from tests.fuzzing.compose import compose, means_something
from tests.fuzzing.inputs import case
from tests.fuzzing.meaning import evaluate
from tests.fuzzing.mixed import mixed
from tests.fuzzing.program import (
    Axis,
    Load,
    Loop,
    Mixed,
    Pick,
    Program,
    Store,
    Tensor,
    Update,
    fitted,
    parts,
)
from tests.fuzzing.small import small
from tests.fuzzing.text import source
from tests.fuzzing.trial import try_kernel


def drawn(seed: int) -> Program | None:
    rng = random.Random(seed)
    made = mixed(small(rng), rng)
    return made if made is not None and means_something(made) else None


PROGRAMS = tuple(islice((made for seed in range(300) if (made := drawn(seed)) is not None), 12))


def of_rows(how: str, twice: bool = False) -> Program:
    """y[t, :] is x[t, :] so mixed, in tiles of 16 rows."""
    axes = (Axis("t", "tile", 24, block=16), Axis("c", "full", 4))
    place = (Pick("t"), Pick("c"))
    tensors = (Tensor("x", (), "float32", "input"), Tensor("y", (), "float32", "output", 0.0))
    body = Loop("t", (Store("y", place, Mixed("t", how, Load("x", place), twice=twice)),))
    return fitted(Program(axes, tensors, (body,)))


def by_hand(how: str, x: np.ndarray) -> np.ndarray:
    match how:
        case "upto":
            return np.cumsum(x, 0)
        case "below":
            return np.cumsum(x, 0) - x
        case "after":
            return np.cumsum(x[::-1], 0)[::-1]
        case "distance":
            at = np.arange(len(x))
            return np.exp(-((at[:, None] - at) ** 2) / 16) @ x
    scores = np.exp(x @ x.T)
    return scores / scores.sum(1, keepdims=True) @ x


@pytest.mark.parametrize("how", ["upto", "below", "after", "distance", "softmax"])
@pytest.mark.parametrize("twice", [False, True])
def test_what_they_mean(how, twice):
    program = of_rows(how, twice)
    x = np.random.default_rng(0).standard_normal((24, 4))
    rows = (x[:16], x[16:])
    weights = [by_hand(how, np.eye(len(own))) for own in rows]
    if how == "softmax":  # whose weights are of the rows
        scores = [np.exp(own @ own.T) for own in rows]
        weights = [s / s.sum(1, keepdims=True) for s in scores]
    wanted = [w @ (w @ own if twice else own) for w, own in zip(weights, rows, strict=True)]
    if not twice:
        np.testing.assert_allclose(
            np.concatenate([by_hand(how, own) for own in rows]), [*wanted[0], *wanted[1]]
        )
    np.testing.assert_allclose(evaluate(program, {"x": x}).results["y"], np.concatenate(wanted))


def test_the_text_has_the_tile_twice():
    text = source(of_rows("upto"))
    assert "hl.dot(hl.where(t.index[:, None] >= t.index[None, :], 1.0, 0.0), x[t, :])" in text
    assert "for t in hl.tile(24, block_size=16):" in text


def test_no_result_goes_by_the_block():
    assert not any(case(p, seed).depends for p in PROGRAMS for seed in range(3))


def test_some_carry_what_was_before():
    carried = [
        p
        for p in PROGRAMS
        if any(s.name == "before" for s in parts(p.body) if isinstance(s, Update))
    ]
    assert 0 < len(carried) < len(PROGRAMS)


def test_random_kernels_have_some():
    assert any("mixed" in compose(seed).changes for seed in range(300))


def test_they_are_right():
    found = [try_kernel(program, None, range(2)).kind for program in PROGRAMS]
    assert {*found} <= {"ok", "refused"} and found.count("ok") > 5
