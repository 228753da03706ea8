"""Views that random kernels draw: the same elements, whatever form they are read in."""

from __future__ import annotations

import numpy as np
import pytest

from tests.fuzzing.compose import compose, means_something, seeds_of
from tests.fuzzing.gradients import drawn
from tests.fuzzing.inputs import case
from tests.fuzzing.program import Axis, Load, Pick, Program, Store, Tensor, parts
from tests.fuzzing.shrink import candidates
from tests.fuzzing.small import nest
from tests.fuzzing.text import source
from tests.fuzzing.trial import OK, try_kernel, try_reference
from tests.fuzzing.view import Place, Step, View
from tilelang.codegen.pallas.emit import host

GROUP, ROWS = Axis("g", "grid", 3), Axis("t", "tile", 5)
COLUMNS = Axis("c", "full", 8)
INDEX = (Pick("g"), Pick("t"), Pick("c"))
JOINED = View("v", "x", (Step("join", (0,)), Step("permute", (1, 0))))
HALVES = View("v", "x", (Step("split", (2, 4)), Step("new", (0,))))
SPLIT = View("v", "x", (Step("split", (0, 3)),))


def reading(view: View, returned: View) -> Program:
    """y = x, by a view; and y is returned in another form."""
    store = Store("y", INDEX, Load("x", INDEX, view.name))
    tensors = (
        Tensor("x", (3, 5, 8), "float32", "input"),
        Tensor("y", (3, 5, 8), "float32", "output", 0.0),
    )
    body = nest((GROUP, ROWS), (store,))
    return Program((GROUP, ROWS, COLUMNS), tensors, body, (view, returned))


@pytest.mark.parametrize(
    "view, line, load",
    [
        (JOINED, "x.reshape(x.shape[0] * x.shape[1], x.shape[2]).T",
         "v[:, g * x.shape[1] + t.index].T"),
        (HALVES, "x.reshape(x.shape[0], x.shape[1], x.shape[2] // 4, 4).unsqueeze(0)",
         "v[0, g, t, :, :].reshape(t, 8)"),
        (SPLIT, "x.reshape(x.shape[0] // 3, 3, x.shape[1], x.shape[2])",
         "v[g // 3, g % 3, t, :]"),
    ],
)  # fmt: skip
def test_what_is_read_by_a_view(view: View, line: str, load: str) -> None:
    turned = View("r", "y", (Step("permute", (2, 0, 1)),), "alone")
    program = reading(view, turned)
    text = source(program)
    assert f"    v = {line}\n" in text and f"y[g, t, :] = {load}\n" in text
    assert text.endswith("    return r\n") and program.results[0].shape == (8, 3, 5)
    given = case(program, 0)
    np.testing.assert_array_equal(given.results["r"], given.arguments["x"].transpose(2, 0, 1))
    assert try_kernel(program, None, (0, 1)) == OK
    assert try_reference(program, (0,), (1, 4)) == OK


def test_a_result_and_a_view_of_it() -> None:
    program = reading(SPLIT, View("r", "y", (Step("new", (1,)),), "beside"))
    assert source(program).endswith("    return y, r\n")
    assert [t.name for t in program.results] == ["y", "r"]
    able = (p for p in candidates(program) if means_something(p))
    smaller = {source(p).rpartition("return ")[2] for p in able}
    assert {"y\n", "y, r\n"} <= smaller  # one without each view


def test_what_no_view_can_say() -> None:
    tile, whole = Place("t", "t.index", (("t", 0),)), Place(":", "", (("c", 0),), True)
    for step, places in ((Step("join", (0,)), (tile, whole)), (Step("split", (0, 2)), (tile,))):
        with pytest.raises(ValueError):
            View("v", "x", (step,)).index(places, (4, 4)[: len(places)])
    assert not means_something(reading(View("v", "x", (Step("split", (1, 2)),)), SPLIT))


@pytest.mark.slow
def test_views_are_drawn() -> None:
    programs = [compose(seed).program for seed in seeds_of(8000, 30, "viewed")]
    assert all(p.views for p in programs)
    views = [v for p in programs for v in p.views]
    assert {s.how for v in views for s in v.steps} == {"permute", "new", "join", "split"}
    assert {v.returned for v in views} == {"", "alone", "beside"}
    changed = {t.name for p in programs for t in p.tensors if t.role == "changed"}
    assert any(v.tensor in changed for v in views)
    assert any(p.view for program in programs for p in parts(program.body) if isinstance(p, Store))
    assert any(drawn(seed)[0].views for seed in range(8000, 8020))


@pytest.mark.slow
def test_a_view_that_is_stale_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views of arguments that are stored to, printed before the loops alone: wrong once."""
    seeds = seeds_of(8400, 12, "rewritten")
    programs = [p for s in seeds if (p := compose(s).program).views]
    behind = host._read_behind
    monkeypatch.setattr(host, "_read_behind", lambda p, n: behind(p, n) if n < 0 else set())
    found = [try_kernel(program, None, (0, 1)).kind for program in programs]
    assert "wrong" in found
