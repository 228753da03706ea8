"""Masks that leave everything out, and stores that begin before their array: drawn, and seen."""

from __future__ import annotations

import ast
from dataclasses import replace

from tests.fuzzing.compose import compose
from tests.fuzzing.program import (
    Axis,
    Let,
    Load,
    Loop,
    Mask,
    Masked,
    Number,
    Pick,
    Program,
    Reduce,
    Ref,
    Statement,
    Store,
    Tensor,
    Update,
    fitted,
    parts,
)
from tests.fuzzing.small import nest
from tests.fuzzing.text import source
from tests.fuzzing.trial import OK, try_kernel
from tests.fuzzing.view import Step, View
from tilelang.codegen.pallas.plan import placement
from tilelang.passes import fold_empty

SEEDS = range(8)
GROUP, OVER = Axis("g", "grid", 3), Axis("t", "tile", 40, of="g", length="n")
LENGTHS = Tensor("n", (3,), "int32", "index", limit=41)
PLACE = Pick("t", through="ids")
NOTHING = Program(
    (Axis("t", "tile", 24),),
    (
        Tensor("ids", (24,), "int32", "index", limit=9),
        Tensor("x", (), "float32", "input"),
        Tensor("y", (), "float32", "output", 0.0),
    ),
    nest(
        (Axis("t", "tile", 24),),
        (Store("y", (Pick("t"),), Masked(Load("x", (PLACE,)), (Mask(PLACE, 0),), 7.0)),),
    ),
)


def early(beside: bool) -> Program:
    """y[g, t - 8] = x[t] where that is one of 22 places; perhaps with a sum of all of x[t]."""
    place, rows = Pick("t", shift=-8), Load("x", (Pick("t"),))
    store = Store("y", (Pick("g"), place), rows, masks=(Mask(place, 22),))
    body: tuple[Statement, ...] = (Loop("t", (store,)),)
    if beside:
        carry = Update("acc", "sum", Reduce("sum", "t", rows))
        last = Store("z", (Pick("g"),), Ref("acc"))
        body = (Let("acc", (), Number(0.0)), Loop("t", (store, carry)), last)
    tensors = (
        LENGTHS,
        Tensor("x", (), "float32", "input"),
        Tensor("y", (), "float32", "output", 0.0),
        *((Tensor("z", (), "float32", "output", 0.0),) if beside else ()),
    )
    return fitted(Program((GROUP, OVER), tensors, nest((GROUP,), body)))


def test_an_array_of_which_nothing_is_read_has_no_rows() -> None:
    program = fitted(NOTHING)
    assert program.tensor("x").shape == (0,)
    assert "hl.load(x, [ids[t]], mask=(ids[t] < 0), other=7.0)" in source(program)
    assert try_kernel(program, None, SEEDS) == OK


def test_planted_zeros_where_nothing_is(monkeypatch) -> None:
    monkeypatch.setattr(fold_empty, "_absent", lambda load: 0)
    assert "24 of 24 wrong" in try_kernel(fitted(NOTHING), None, SEEDS).detail


def test_rows_that_are_stored_further_on_are_all_that_a_loop_does() -> None:
    assert try_kernel(early(beside=False), None, SEEDS) == OK
    found = try_kernel(early(beside=True), None, SEEDS)
    assert found.kind == "refused" and "goes on where y has no place" in found.detail


def test_planted_loops_that_stop_where_an_array_does(monkeypatch) -> None:
    monkeypatch.setattr(placement, "check_left_over", lambda problem, axes: None)
    found = try_kernel(early(beside=True), None, SEEDS)
    assert found.kind == "wrong" and found.detail.startswith("z:")


def test_both_are_drawn() -> None:
    programs = [compose(seed).program for seed in range(812105, 812200)]
    assert any(0 in t.shape for p in programs for t in p.tensors)
    ragged = [(p, {a.name for a in p.axes if a.offsets or a.length}) for p in programs]
    stores = [(s, own) for p, own in ragged for s in parts(p.body) if isinstance(s, Store)]
    assert any(m.pick.axis in own and m.pick.shift < 0 for s, own in stores for m in s.masks)


def test_a_mask_of_what_is_seen_in_another_form_and_of_bools() -> None:
    """y[t, c] = hl.load(x.T, [c, t], mask=t < 9, other=True)"""
    tile, columns = Axis("t", "tile", 24), Axis("c", "full", 8)
    load = Load("x", (Pick("t"), Pick("c")), "v")
    store = Store("y", (Pick("t"), Pick("c")), Masked(load, (Mask(Pick("t"), 9),), 7.0))
    tensors = Tensor("x", (), "bool", "input"), Tensor("y", (), "float32", "output", 0.0)
    program = fitted(Program((tile, columns), tensors, nest((tile,), (store,))))
    program = replace(program, views=(View("v", "x", (Step("permute", (1, 0)),)),))
    assert "hl.load(v, [slice(None), t], mask=(t.index < 9)[None, :], other=True)" in source(
        program
    )
    assert try_kernel(program, None, SEEDS) == OK


def test_a_number_is_stored_under_no_mask_of_lanes():
    """6833650: the text was none; such a program is drawn again."""
    ast.parse(source(compose(6833650).program))
