"""What the random kernels have come to draw: the text and the meaning of every dimension."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.fuzzing.campaign import _turns
from tests.fuzzing.changes import CHANGES
from tests.fuzzing.compose import compose
from tests.fuzzing.corpus import Entry, _read, written
from tests.fuzzing.inputs import case, wild
from tests.fuzzing.meaning import evaluate
from tests.fuzzing.narrow import narrowed
from tests.fuzzing.program import (
    Axis,
    Dot,
    If,
    Let,
    Load,
    Loop,
    Mask,
    Masked,
    Native,
    Number,
    Pick,
    Program,
    Reduce,
    Ref,
    Store,
    Swap,
    Tensor,
    Term,
    Update,
    fitted,
    parts,
)
from tests.fuzzing.small import lanes, paged, scaled_twice, small
from tests.fuzzing.tallied import KEEP, TALLY
from tests.fuzzing.text import source
from tests.fuzzing.trial import block_names, try_kernel, try_reference

CHUNKS = fitted(
    Program(
        (Axis("c", "grid", 3), Axis("t", "tile", 4), Axis("u", "tile", 5, length="n")),
        (
            Tensor("x", (), "float32", "input"),
            Tensor("n", (), "int32", "index", limit=6),
            Tensor("y", (), "float32", "changed"),
        ),
        (
            Loop(
                "c",
                (
                    Loop(
                        "t",
                        (
                            Let("acc", ("t",), Number(0.0)),
                            Loop(
                                "u",
                                (
                                    Update(
                                        "acc",
                                        "sum",
                                        Reduce(
                                            "sum",
                                            "u",
                                            Load(
                                                "x",
                                                (
                                                    Pick("t", 1, terms=(Term("c", "", 4),)),
                                                    Pick("u", factor=1),
                                                ),
                                            ),
                                        ),
                                    ),
                                ),
                            ),
                            If(
                                Term("c"),
                                2,
                                (
                                    Store(
                                        "y",
                                        (Pick("t", terms=(Term("c", "", 4),)),),
                                        Ref("acc"),
                                        "sum",
                                    ),
                                ),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    )
)
TEXT = """
def kernel(x, n, y):
    for c in hl.grid(3):
        for t in hl.tile(4):
            acc = hl.full([t], 0.0, dtype=hl.float32)
            for u in hl.tile(n[()], max_extent=5):
                acc = acc + x[c * 4 + t.index + 1, u].sum(1)
            if c < 2:
                y[c * 4 + t.index] = y[c * 4 + t.index] + acc
    return y
"""


def test_the_text_of_unusual_things():
    assert source(CHUNKS).endswith(TEXT[1:])


def test_the_meaning_of_unusual_things():
    assert [t.shape for t in CHUNKS.tensors] == [(13, 5), (), (12,)]
    x, y = np.arange(65.0).reshape(13, 5), np.arange(12.0)
    found = evaluate(CHUNKS, {"x": x, "n": np.asarray(2), "y": y})
    added = np.where(np.arange(12) < 8, x[1:, :2].sum(1), 0)
    np.testing.assert_array_equal(found.results["y"], y + added)


BEFORE = Pick("t", -2)
MASKED = fitted(
    Program(
        (Axis("g", "grid", 4), Axis("t", "tile", 9)),
        (Tensor("x", (), "int32", "input"), Tensor("y", (), "float32", "output", 1.0)),
        (
            Loop(
                "g",
                (
                    Loop(
                        "t",
                        (
                            Store(
                                "y",
                                (Pick("t"), Pick("g")),
                                Masked(Load("x", (BEFORE,)), (Mask(BEFORE, 5),), 3.0),
                                masks=(Mask(Pick("g"), 3), Mask(Pick("t"), 8, 1)),
                            ),
                        ),
                    ),
                ),
            ),
        ),
    )
)


def test_the_text_and_the_meaning_of_masks():
    from_on = "((t.index - 2 >= 0) & (t.index - 2 < 5))"
    loaded = f"hl.load(x, [t - 2], mask={from_on}, other=3).to(hl.float32)"
    mask = "(g < 3) & ((t.index >= 1) & (t.index < 8))"
    assert f"hl.store(y, [t, g], {loaded}, mask={mask})" in source(MASKED)
    assert [t.shape for t in MASKED.tensors] == [(5,), (8, 3)]
    found = evaluate(MASKED, {"x": np.arange(5.0)}).results["y"]
    np.testing.assert_array_equal(found, np.array([[1, 3, 0, 1, 2, 3, 4, 3]] * 3).T)


@pytest.mark.parametrize("block", [1, 3, 8])
def test_tiles_make_no_difference(block):
    arguments = case(CHUNKS, 0).arguments
    one, other = evaluate(CHUNKS, arguments), evaluate(CHUNKS, arguments, block)
    np.testing.assert_allclose(one.results["y"], other.results["y"])


def test_what_depends_on_the_tiles_is_known():
    """The last tile stays: of 7 rows in tiles of 3, one row."""
    column = Store("y", (), Reduce("sum", "t", Load("x", (Pick("t"),))))
    program = Program(
        (Axis("t", "tile", 7),),
        (Tensor("x", (7,), "float32", "input"), Tensor("y", (), "float32", "output", 0.0)),
        (Loop("t", (column,)),),
    )
    assert case(program, 0).depends and not case(CHUNKS, 0).depends


def test_what_reaches_outside_is_known():
    short = tuple(replace(t, short=1) if t.name == "x" else t for t in CHUNKS.tensors)
    assert case(fitted(replace(CHUNKS, tensors=short)), 1).illegal.startswith("x: ")


def test_wild_arguments_have_one_wrong_tensor():
    given = wild(CHUNKS, 3)
    assert given is not None and given[1].startswith("n: one index")
    assert not 0 <= given[0]["n"] <= 5


def test_a_call_that_must_be_refused(monkeypatch):
    """The text has a longer array than the description: a call that is accepted is told."""
    short = fitted(
        replace(CHUNKS, tensors=tuple(replace(t, short=t.name == "x") for t in CHUNKS.tensors))
    )
    calm = TEXT.replace("x[c * 4 + t.index + 1, u].sum(1)", "x[c * 4 + t.index, 0]")
    calm = calm.replace("n[()], max_extent=5", "4, block_size=4")
    text = "import tilelang as tile\nimport tilelang.language as hl\n\n\n@tile.kernel" + calm
    monkeypatch.setattr("tests.fuzzing.trial.source", lambda *_: text)
    seed = next(n for n in range(9) if case(short, n).illegal)
    assert try_reference(short, [seed], [2]).kind == "reference"
    assert try_kernel(short, None, [seed]).kind == "accepted"


def _picks(program: Program) -> list[Pick]:
    return [p for p in parts(program.body) if isinstance(p, Pick)]


COMPOSED: dict[str, Callable[[Program], bool]] = {
    "a factor": lambda p: any(k.factor > 1 for k in _picks(p)),
    "a position of numbers": lambda p: any(not k.axis for k in _picks(p)),
    "a moved tile": lambda p: any(k.shift and k.terms for k in _picks(p)),
    "an argument that changes": lambda p: any(t.role == "changed" for t in p.tensors),
    "a masked scatter": lambda p: any(
        s.masks and s.index[0].through for s in parts(p.body) if isinstance(s, Store)
    ),
    "a scatter that an array masks": lambda p: any(
        m.pick.through == KEEP for m in parts(p.body) if isinstance(m, Mask)
    ),
    "numbers of an argument that changes": lambda p: any(
        t.name == TALLY and t.role == "changed" for t in p.tensors
    ),
    "a number": lambda p: any(t.role == "index" and t.shape == () for t in p.tensors),
    "a masked store": lambda p: any(s.masks for s in parts(p.body) if isinstance(s, Store)),
    "a mask that begins": lambda p: any(m.first for m in parts(p.body) if isinstance(m, Mask)),
    "what lies before": lambda p: any(k.shift < 0 for k in _picks(p)),
    "causal without offsets": lambda p: any(a.until and not a.offsets for a in p.axes),
    "a length of each": lambda p: any(a.length and a.of for a in p.axes),
    "a range that is measured": lambda p: "arange(2)).amin(0), max_extent" in source(p),
    "carries that change places": lambda p: any(isinstance(s, Swap) for s in parts(p.body)),
    "a statistic": lambda p: any(
        isinstance(r, Reduce) and r.op in ("mean", "var", "argmax") for r in parts(p.body)
    ),
    **{
        f"if {what}": lambda p, what=what: any(
            i.what == what for i in parts(p.body) if isinstance(i, If)
        )
        for what in ("term", "begin", "rows")
    },
    **{
        f"store {how}": lambda p, how=how: any(
            s.combine == how for s in parts(p.body) if isinstance(s, Store)
        )
        for how in ("", "sum", "max")
    },
    "an update of places that an index array names": lambda p: any(
        s.combine and any(i.through for i in s.index) for s in parts(p.body) if isinstance(s, Store)
    ),
    **{
        f"a store {how} to a place that is computed": lambda p, how=how: any(
            any(i.derived for i in s.index) and s.combine == how
            for s in parts(p.body)
            if isinstance(s, Store)
        )
        for how in ("", "sum")
    },
    **{
        f"a load at a place of a {kind} that is computed": lambda p, kind=kind: any(
            i.derived and i.axis and p.axis(i.axis).kind == kind
            for load in parts(p.body)
            if isinstance(load, Load)
            for i in load.index
        )
        for kind in ("grid", "tile")
    },
    "numbers that an index array picks to store": lambda p: any(
        len(s.index) == 1 and s.index[0].through for s in parts(p.body) if isinstance(s, Store)
    ),
}


@pytest.mark.slow
def test_what_is_composed():
    """Every change and every unusual thing comes about; the rarest one among hundreds."""
    missing = {*CHANGES, *COMPOSED, "layered", "stepped", "tallied", "derived"}
    for seed in range(600):
        composed = compose(seed)
        ast.parse(source(composed.program))
        missing -= {*composed.changes, *(w for w, has in COMPOSED.items() if has(composed.program))}
        if not missing:
            break
    assert not missing


def test_the_corpus_keeps_what_a_program_is():
    for seed in range(10):
        entry = Entry(compose(seed).program, '{"loop_type": "worklist"}', (1, 2), "wrong: y", "x")
        assert _read(written(entry)) == entry


@pytest.mark.parametrize("seed", [1, 5])
def test_several_turns_of_a_loop_over_blocks_that_are_looked_up(seed):
    program = paged(random.Random(seed))
    first, *_ = _turns(program, block_names(program), random.Random(seed), 1)
    assert dict(first.blocks)["b"] == 2
    assert try_kernel(program, first, (0, 1)).kind == "ok"


# ---------------------------------------------------------------- narrower dtypes, numbered tiles


def test_arrays_of_narrower_dtypes_meet_as_they_are():
    programs = [narrowed(lanes(random.Random(n)), random.Random(n)) for n in range(40)]
    programs += [narrowed(small(random.Random(n)), random.Random(f"{n}")) for n in range(200)]
    drawn = {t.dtype for p in programs for t in p.arguments if t.role == "input"}
    assert drawn >= {"int8", "uint8", "bfloat16", "float16", "int32", "bool", "float32"}
    assert {t.dtype for p in programs for t in p.outputs} >= {"int8", "int32", "bool", "bfloat16"}
    assert any(isinstance(p, Native) for program in programs for p in parts(program.body))
    for program in programs:
        whole = {t.whole for t in program.arguments if t.role == "input"}
        assert not (whole == {False} and any(isinstance(p, Native) for p in parts(program.body)))


def test_numbers_of_tiles_are_positions():
    """scale[tk.id, tn.id] in the text, an element for each pair of blocks in the meaning."""
    drawn = (scaled_twice(random.Random(n)) for n in range(100))
    program = next(p for p in drawn if any(isinstance(x, Dot) for x in parts(p.body)))
    assert "scale[" in source(program) and "tk.id, tn.id]" in source(program)
    tn, tk = program.axis("tn"), program.axis("tk")
    assert program.tensor("scale").shape[-2:] == (-(-tk.size // tk.block), -(-tn.size // tn.block))
    assert try_kernel(program, None, (1, 2)).kind == "ok"
