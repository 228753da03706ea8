"""Random kernels: a share of them on every run of the tests, and the tool itself."""

from __future__ import annotations

import ast

import numpy as np
import pytest

import tilelang as tile
from tests.fuzzing.campaign import BAD, Plan, Trial, explore, main, replayed, summary
from tests.fuzzing.compose import compose, means_something
from tests.fuzzing.corpus import entries
from tests.fuzzing.draw import draw
from tests.fuzzing.inputs import case
from tests.fuzzing.meaning import evaluate
from tests.fuzzing.program import (
    Axis,
    Binary,
    Dot,
    Let,
    Load,
    Loop,
    Number,
    Pick,
    Program,
    Reduce,
    Ref,
    Seen,
    Store,
    Tensor,
    TileNumber,
    Update,
    parts,
)
from tests.fuzzing.shrink import candidates, smaller
from tests.fuzzing.text import source
from tests.fuzzing.trial import (
    OK,
    Outcome,
    difference,
    specified,
    try_kernel,
    try_reference,
    try_text,
)
from tests.fuzzing.undefined import undefined
from tilelang.codegen.pallas.plan import defaults, verify
from tilelang.runtime import explain

SEEDS = (2000, 2001, 2002, 2003, 2004, 2006, 2007, 2008, 2010, 2011)

# y[g] = the sum of x[offsets[g] : offsets[g + 1]] * scale[g], from 1 on; z = x
SUMS = Program(
    axes=(Axis("g", "grid", 3), Axis("tm", "tile", 7, "offsets", "g")),
    tensors=(
        Tensor("offsets", (4,), "int32", "offsets", limit=7),
        Tensor("x", (7,), "float32", "input"),
        Tensor("scale", (3,), "float32", "input"),
        Tensor("y", (3,), "float32", "output", 0.0),
        Tensor("z", (7,), "float32", "output"),
    ),
    body=(
        Loop(
            "g",
            (
                Let("acc", (), Number(1.0)),
                Loop(
                    "tm",
                    (
                        Update(
                            "acc",
                            "sum",
                            Reduce(
                                "sum",
                                "tm",
                                Binary("*", Load("x", (Pick("tm"),)), Load("scale", (Pick("g"),))),
                            ),
                        ),
                        Store("z", (Pick("tm"),), Load("x", (Pick("tm"),))),
                    ),
                ),
                Store("y", (Pick("g"),), Ref("acc")),
            ),
        ),
    ),
)
INF = float("inf")
TEXT = """import tilelang as tile
import tilelang.language as hl


@tile.kernel
def kernel(offsets, x, scale):
    y = hl.full([3], 0.0, dtype=hl.float32)
    z = hl.empty([7], dtype=hl.float32)
    for g in hl.grid(3):
        acc = 1.0
        for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=7):
            acc = acc + (x[tm] * scale[g]).sum(0)
            z[tm] = x[tm]
        y[g] = acc
    return y, z
"""


LOADED = Load("x", (Pick("tm"), Pick("tk")))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_random_kernel_does_what_it_means(seed):
    failed = [str(t) for t in explore(seed, Plan(configs=1, trials=0)) if t.outcome.kind in BAD]
    assert failed == [], source(compose(seed).program)


@pytest.mark.parametrize("entry", entries(), ids=lambda e: e.name)
def test_what_was_wrong_once(entry):
    found = replayed(entry)
    if entry.open and found.kind in BAD:
        pytest.xfail(f"{entry.open}: {found.detail}")
    assert found.kind not in BAD, f"{found}\n{source(entry.program)}"


# ------------------------------------------------------------ the description


def test_the_text_of_a_program():
    assert source(SUMS) == TEXT


def test_the_meaning_of_a_program():
    x = np.arange(7, dtype=np.float32)
    arguments = {
        "offsets": np.array([1, 3, 3, 6]),
        "x": x,
        "scale": np.array([1, 10, 100], np.float32),
    }
    found = evaluate(SUMS, arguments)
    np.testing.assert_array_equal(found.results["y"], [1 + 3, 1, 1 + 100 * (3 + 4 + 5)])
    np.testing.assert_array_equal(found.results["z"], [np.nan, 1, 2, 3, 4, 5, np.nan])
    np.testing.assert_array_equal(found.read["x"], [0, 1, 1, 1, 1, 1, 0])
    np.testing.assert_array_equal(found.read["scale"], [1, 0, 1])


def test_a_causal_loop():
    """y[tm] = the sum of x[tm, tk] over tk in tm - 2 to tm, within the group."""
    inner = Update("acc", "sum", Reduce("sum", "tk", Seen("tk", LOADED, 0.0)))
    body = (
        Let("acc", ("tm",), Number(0.0)),
        Loop("tk", (inner,)),
        Store("y", (Pick("tm"),), Ref("acc")),
    )
    program = Program(
        (
            *SUMS.axes,
            Axis("tk", "tile", 7, "offsets", "g", until="tm", window=2),
        ),
        (
            Tensor("offsets", (4,), "int32", "offsets", limit=7),
            Tensor("x", (7, 7), "float32", "input"),
            Tensor("y", (7,), "float32", "output", 0.0),
        ),
        (Loop("g", (Loop("tm", body),)),),
    )
    lines = source(program).splitlines()
    head = "for tk in hl.tile(hl.maximum(offsets[g], tm.begin - 2), "
    head += "hl.minimum(offsets[g + 1], tm.end), max_extent=7):"
    assert lines[-4].strip() == head
    mask = "(tk.index[None, :] <= tm.index[:, None]) & (tk.index[None, :] + 2 >= tm.index[:, None])"
    assert f"hl.where(({mask}), x[tm, tk], 0.0)" in lines[-3]
    x = np.arange(49.0).reshape(7, 7)
    found = evaluate(program, {"offsets": np.array([0, 5, 5, 7]), "x": x})
    expected = [x[i, max(i - 2, 5 if i > 4 else 0) : i + 1].sum() for i in range(7)]
    np.testing.assert_array_equal(found.results["y"], expected)
    assert try_kernel(program, None, range(4)) == OK
    assert try_reference(program, [3], [2]) == OK


def test_what_is_not_read_is_hidden():
    for seed in range(20):
        given = case(SUMS, seed)
        begin, end = given.arguments["offsets"][[0, -1]]
        x = given.arguments["x"]
        assert np.isfinite(x[begin:end]).all()
        assert not np.isfinite(x[:begin]).any() and not np.isfinite(x[end:]).any()


def test_every_seed_gives_one_program_with_a_meaning():
    texts = set()
    for seed in range(80):
        program = draw(seed)
        assert program == draw(seed) and program.outputs
        assert means_something(program)
        ast.parse(source(program))
        texts.add(source(program))
    assert len(texts) == 80


def test_what_is_drawn():
    programs = [draw(seed) for seed in range(300)]
    kinds = {type(part).__name__ for p in programs for part in parts(p.body)}
    assert kinds >= {"Dot", "Even", "Let", "Load", "Position", "Reduce", "Store", "Unary", "Update"}
    axes = [axis for p in programs for axis in p.axes]
    assert any(a.local for a in axes) and any(not a.bounded for a in axes)
    assert any(a.kind == "grid" and a.offsets for a in axes)
    assert any(a.until and a.window for a in axes) and "Seen" in kinds
    assert any(len([s for s in p.body if isinstance(s, Loop)]) > 1 for p in programs)
    picks = [part for p in programs for part in parts(p.body) if isinstance(part, Pick)]
    assert any(p.shift for p in picks) and any(p.through for p in picks)
    assert any(p.start for p in picks)


def test_numbers_of_tiles_are_drawn():
    """Of loops whose block_size the author gives: what products and sums take in is times them."""
    programs = [compose(seed).program for seed in range(740180, 740310)]
    numbered = [p for p in programs if any(isinstance(x, TileNumber) for x in parts(p.body))]
    assert len(numbered) >= 3
    axes = {p.axis(x.axis).block for p in numbered for x in parts(p.body) if type(x) is TileNumber}
    assert 0 not in axes and 128 in axes


# ------------------------------------------------------------ failures


# y[t, n] = x[t, :] @ w[:, n], of which x is times one more than the number of its tile of 128
COUNTED = Binary("*", Load("x", (Pick("t"), Pick("k"))), Binary("+", TileNumber("k"), Number(1.0)))
TAKEN = Update("acc", "sum", Dot("k", COUNTED, Load("w", (Pick("k"), Pick("n")))))
NUMBERED = Program(
    axes=(Axis("t", "tile", 8), Axis("n", "tile", 16), Axis("k", "tile", 256, block=128)),
    tensors=(
        Tensor("x", (8, 256), "float32", "input"),
        Tensor("w", (256, 16), "float32", "input"),
        Tensor("y", (8, 16), "float32", "output"),
    ),
    body=(
        Loop(
            "t",
            (
                Loop(
                    "n",
                    (
                        Let("acc", ("t", "n"), Number(0.0)),
                        Loop("k", (TAKEN,)),
                        Store("y", (Pick("t"), Pick("n")), Ref("acc")),
                    ),
                ),
            ),
        ),
    ),
)


def test_planted_a_block_size_that_is_not_kept(monkeypatch):
    assert try_kernel(NUMBERED, None, [0]) == OK
    monkeypatch.setattr(defaults, "_open", lambda problem, name: problem.bounds(name) is None)
    monkeypatch.setattr(verify, "_fixed_blocks", lambda plan: None)
    assert try_kernel(NUMBERED, None, [0]).kind == "wrong"


def test_planted_a_name_that_nothing_defines(monkeypatch):
    """Of a text for a device that is not here, which is printed and not run."""
    assert try_text(SUMS, "tpu:v6e") == OK
    printed = tile.Kernel.source

    def wrong(*given, **options):
        return printed(*given, **options).replace("tm_first = ", "tm_last = ")

    monkeypatch.setattr(tile.Kernel, "source", wrong)
    assert try_text(SUMS, "tpu:v6e") == Outcome("crash", "NameError: tm_first")


def test_planted_a_range_of_loops_that_were_turned(monkeypatch):
    """Of whose waste nothing is known before they run; `explain` was a KeyError."""
    turned = next(e.program for e in entries() if e.failed.endswith("KeyError: k1"))
    assert try_text(turned, "tpu:v6e") == OK
    found = explain.loops

    def planted(ir):
        return {name: (loop, Everywhere(around)) for name, (loop, around) in found(ir).items()}

    monkeypatch.setattr(explain, "loops", planted)
    assert try_text(turned, "tpu:v6e") == Outcome("crash", "KeyError: 'k1'")


class Everywhere(tuple):
    """The loops around one, as if each were among them."""

    def __contains__(self, _):
        return True


def test_names_that_nothing_defines_are_found():
    text = """
import jax
def f(a):
    b = a
    def g():
        return b + jax.x + len({})
    return g
"""
    assert undefined(text.format("f")) == set()
    assert undefined(text.format("n")) == {"n"}


def test_a_right_kernel_passes():
    assert try_kernel(SUMS, None, range(8)) == OK
    assert try_reference(SUMS, [3], [2]) == OK


def test_a_wrong_result_is_seen(monkeypatch):
    """The kernel is printed with a mistake: its description does not know of it."""
    wrong = TEXT.replace("acc = 1.0", "acc = 0.0")
    monkeypatch.setattr("tests.fuzzing.trial.source", lambda *_: wrong)
    for found in (try_kernel(SUMS, None, [0]), try_reference(SUMS, [0], [4])):
        assert "y: 3 of 3 wrong" in found.detail
    assert try_kernel(SUMS, None, [0]).kind == "wrong"
    assert try_reference(SUMS, [0], [4]).kind == "reference"


@pytest.mark.parametrize(
    ("result", "exact", "wrong"),
    [
        ([INF, -INF, 1.0], [INF, -INF, 1.0], ""),
        ([INF, 1.0], [-INF, 1.0], "1 of 2 wrong; at [0]: inf, exact -inf"),
        ([1.0, 1.0], [INF, 1.0], "1 of 2 wrong; at [0]: 1.0, exact inf"),
        ([INF, 7.0], [INF, 1.0], "1 of 2 wrong; at [1]: 7.0, exact 1"),
        ([np.nan, 1.0], [INF, 1.0], "1 of 2 wrong; at [0]: nan, exact inf"),
        ([3.0, 1.0], [np.nan, 1.0], ""),
    ],
)
def test_an_infinity_excuses_nothing(result, exact, wrong):
    """It is what must come out where it must, and elsewhere it makes nothing near."""
    tensor = Tensor("y", (len(exact),), "float32", "output", 0.0)
    assert difference(tensor, np.array(result, np.float32), np.array(exact)) == wrong


@pytest.mark.parametrize("fill", [None, 0.0])
def test_a_bool_that_nothing_wrote_says_nothing(fill):
    """It is True where `Kernel.reference` runs, and whatever was there where a call does."""
    found = specified(Tensor("y", (2,), "bool", "output", fill), np.array([True, False]))
    assert np.isnan(found[0]) == (fill is None) and found[1] == 0


def test_a_refusal_is_no_failure(monkeypatch):
    refused = TEXT.replace("acc = 1.0", "while True: pass")
    monkeypatch.setattr("tests.fuzzing.trial.source", lambda *_: refused)
    found = try_kernel(SUMS, None, [0])
    assert found.kind == "refused" and found.detail.startswith("ParseError: ")


def test_a_failure_is_made_as_small_as_it_gets():
    """Of a large kernel, the store to one output is what fails."""
    program = draw(7)
    output = program.outputs[-1].name

    def fails(candidate: Program) -> bool:
        stores = [p for p in parts(candidate.body) if isinstance(p, Store)]
        return means_something(candidate) and output in {s.tensor for s in stores}

    smallest = smaller(program, fails, trials=1000)
    assert [t.name for t in smallest.outputs] == [output]
    assert not any(isinstance(p, Update | Load) for p in parts(smallest.body))
    assert len(source(smallest)) < len(source(program)) / 2


def test_smaller_programs_mean_something_mostly():
    found = list(candidates(draw(7)))
    assert len(found) > 10
    assert sum(map(means_something, found)) > 0.8 * len(found)


def test_the_summary():
    refused = [Outcome("refused", f"x_{n} needs {n} bytes") for n in (3, 40)]
    trials = [
        Trial(7, "default", OK, cases=4),
        Trial(7, "t=8", refused[0]),
        Trial(8, "default", refused[1]),
        Trial(8, "reference", Outcome("wrong", "y: all"), cases=2),
    ]
    assert summary(trials) == [
        "2 kernels, 4 trials: 1 right, 1 wrong, 0 crash, 0 reference, 0 accepted, 0 uncompiled, "
        "2 refused; 6 cases",
        "refused under the default config: 1 of 2",
        "      1 x_* needs * bytes (seed 8)",
        "refused under the other configs: 1 of 1",
        "      1 x_* needs * bytes (seed 7)",
    ]


def test_the_command(capsys, monkeypatch):
    assert main(["kernels", "--count", "1", "--seed", str(SEEDS[0]), "--configs", "0"]) == 0
    assert "1 kernels, 9 trials: " in capsys.readouterr().out
    monkeypatch.setattr(
        "tests.fuzzing.campaign.try_configs", lambda *a, **k: [Outcome("wrong", "y: all")]
    )
    monkeypatch.setattr(
        "tests.fuzzing.campaign.try_kernel", lambda *a, **k: Outcome("wrong", "y: all")
    )
    command = ["kernels", "--count", "1", "--configs", "0", "--trials", "1"]
    assert main([*command, "--seed", str(SEEDS[0])]) == 1
    printed = capsys.readouterr().out
    assert f"seed {SEEDS[0]}, default: WRONG y: all" in printed and "@tile.kernel" in printed
