"""Heads in columns and rows that lie elsewhere: what is drawn of them, printed, and evaluated."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.fuzzing.compose import compose, means_something
from tests.fuzzing.headed import headed
from tests.fuzzing.meaning import evaluate
from tests.fuzzing.program import (
    Axis,
    Binary,
    Load,
    Loop,
    Pick,
    Program,
    Store,
    Tensor,
    Term,
    parts,
)
from tests.fuzzing.relocated import relocated
from tests.fuzzing.text import source
from tests.fuzzing.view import Step, View

HEAD, ROWS, COLUMNS = Axis("h", "grid", 4), Axis("t", "tile", 5), Axis("c", "full", 8)


def of_head(*terms: Term, shift: int = 0) -> Program:
    """y[h, t, :] is one of the heads of x, whose columns are two of them or more."""
    where = (Pick("t"), Pick("c", shift, terms=terms))
    store = Store("y", (Pick("h"), Pick("t"), Pick("c")), Load("x", where, "v"))
    tensors = (
        Tensor("s", (4,), "int32", "index", limit=4),
        Tensor("x", (5, 32), "float32", "input"),
        Tensor("y", (4, 5, 8), "float32", "output", 0.0),
    )
    body = (Loop("h", (Loop("t", (store,)),)),)
    return Program(
        (HEAD, ROWS, COLUMNS), tensors, body, (View("v", "x", (Step("split", (1, 8)),)),)
    )


HEADS = {
    "v[t, h, :]": (of_head(Term("h", factor=8)), (0, 1, 2, 3)),
    "v[t, (h // 2), :]": (of_head(Term("h", factor=8, share=2)), (0, 0, 1, 1)),
    "v[t, (h // 2) + 1, :]": (of_head(Term("h", factor=8, share=2), shift=8), (1, 1, 2, 2)),
    "v[t, 3 - h, :]": (of_head(Term("h", factor=-8), shift=24), (3, 2, 1, 0)),
    "v[t, s[h], :]": (of_head(Term("h", "s", 8)), (3, 0, 0, 2)),
    "v[t, 2, :]": (of_head(shift=16), (2, 2, 2, 2)),
}


@pytest.mark.parametrize("text", HEADS)
def test_a_head_of_columns(text: str) -> None:
    program, heads = HEADS[text]
    assert f"    y[h, t, :] = {text}\n" in source(program)
    x, s = np.arange(160.0).reshape(5, 32), np.array([3, 0, 0, 2])
    found = evaluate(program, {"s": s, "x": x}).results["y"]
    np.testing.assert_array_equal(found, x.reshape(5, 4, 8).transpose(1, 0, 2)[list(heads)])


def test_what_is_no_head() -> None:
    """Columns from 4 on are no row of 8; without a view, a loop's are not in the language."""
    assert not means_something(of_head(Term("h", factor=4)))
    plain = of_head(Term("h", factor=8))
    assert means_something(plain)
    load = next(p for p in parts(plain.body) if isinstance(p, Load))
    store = Store("y", (Pick("h"), Pick("t"), Pick("c")), Load("x", load.index))
    body = (Loop("h", (Loop("t", (store,)),)),)
    assert not means_something(Program(plain.axes, plain.tensors, body))


def test_heads_are_drawn() -> None:
    programs = [relocated(random.Random(seed)) for seed in range(60)]
    made = [headed(p, random.Random(n)) for n, p in enumerate(programs)]
    found = [p for p in made if p is not None and means_something(p)]
    assert len(found) > 15
    for program in found:  # every load of an array that has heads is of one
        loads = [p for p in parts(program.body) if isinstance(p, Load)]
        seen = {load.tensor for load in loads if load.view}
        assert seen and all(load.view for load in loads if load.tensor in seen)
    views = [v for p in found for v in p.views]
    assert {s.how for v in views for s in v.steps} == {"split", "permute", "join"}
    picks = [pick for p in found for pick in parts(p.body) if isinstance(pick, Pick) and pick.terms]
    assert any(t.tensor for pick in picks for t in pick.terms)
    assert any(p.back for program in programs for p in parts(program.body) if isinstance(p, Pick))


def test_every_load_of_an_array_is_of_a_head() -> None:
    both = Binary("*", *(Load("x", (Pick("t", shift), Pick("c"))) for shift in (0, 1)))
    body = (Loop("h", (Loop("t", (Store("y", (Pick("h"), Pick("t"), Pick("c")), both),)),)),)
    tensors = (Tensor("x", (6, 8), "float32", "input"), of_head().tensors[-1])
    program = Program((HEAD, ROWS, COLUMNS), tensors, body)
    made = [headed(program, random.Random(seed)) for seed in range(8)]
    texts = [source(p) for p in made if p is not None]
    assert texts and all(text.count("_view[") >= 2 and " x[" not in text for text in texts)


@pytest.mark.slow
def test_both_are_among_the_programs() -> None:
    changes = {c for seed in range(6_750_000, 6_750_060) for c in compose(seed).changes}
    assert {"headed", "relocated"} <= changes
