"""Properties of ragged kernels, for layouts and shapes that hypothesis draws.

Layouts are drawn for compiled kernels: hypothesis shrinks offsets to the smallest that fail.
Block sizes are drawn for the NumPy reference, where another one costs nothing.  `tests.fuzz` runs
more layouts, in bulk.
"""

from __future__ import annotations

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilelang as tile
from tests import checks, fuzz
from tests.frameworks import from_jax
from tests.ragged import (
    STRATA,
    Layout,
    Space,
    covered,
    draw_layouts,
    every_stratum,
    second_rows,
)
from tests.subjects import JAGGED, Subject
from tests.tiers import HALF, share

SPACE = Space(rows=72, groups=5, block=16)
SHAPES = ((0, 2), (1, 1), (7, 4), (33, 3))  # rows and groups; XLA compiles once for each


def sorted_offsets(rows: int, groups: int) -> st.SearchStrategy[np.ndarray]:
    """Any offsets of as many groups, sorted; edges of tiles are drawn more often."""
    edges = sorted({0, rows, *range(0, rows, 8), *range(1, rows, 16), *range(15, rows, 16)})
    place = st.one_of(st.sampled_from(edges), st.integers(0, rows))
    return st.lists(place, min_size=groups + 1, max_size=groups + 1).map(
        lambda places: np.array(sorted(places), np.int32)
    )


def layouts(subject: Subject, rows: int, groups: int) -> st.SearchStrategy[Layout]:
    """Any layout, with as many tensors of offsets as the kernel has."""
    two = checks.ragged_of(subject).offsets == 2
    second = sorted_offsets(second_rows(rows), groups) if two else st.none()
    return st.builds(Layout, st.just("drawn"), sorted_offsets(rows, groups), second)


def compiled(subject: Subject):
    """A call with the kernel's small blocks, and its arguments."""

    def call(*arguments):
        return from_jax(subject.kernel, arguments, config=subject.small)

    return call, subject.arrays("float32", rows=SPACE.rows, groups=SPACE.groups)


@pytest.mark.parametrize("subject", share(JAGGED, 6, rest=HALF))
@settings(max_examples=25)
@given(data=st.data())
def test_any_layout(subject, data):
    call, arrays = compiled(subject)
    layout = data.draw(layouts(subject, SPACE.rows, SPACE.groups))
    assert checks.every_layout(subject, call, arrays, [layout], "float32") == []


@pytest.mark.parametrize("subject", share(JAGGED, 6, rest=("slow", "slow", "thorough")))
@settings(max_examples=10)
@given(data=st.data())
def test_neighbours_never_leak(subject, data):
    call, arrays = compiled(subject)
    layout = data.draw(layouts(subject, SPACE.rows, SPACE.groups))
    assert checks.neighbours(subject, call, arrays, [layout]) == []


@pytest.mark.parametrize("subject", share(JAGGED, 6, 1, HALF))
@settings(max_examples=15)
@given(data=st.data())
def test_any_block_in_the_reference(subject, data):
    rows, groups = data.draw(st.sampled_from(SHAPES))
    seed = data.draw(st.integers(0, 9))
    blocks = {a: data.draw(st.integers(b // 4, 2 * b), a) for a, b in subject.blocks.items()}
    layout = data.draw(layouts(subject, rows, groups))
    arrays = subject.arrays("float32", seed=seed, rows=rows, groups=groups)
    call = functools.partial(subject.kernel.reference, blocks=blocks, seed=seed)
    assert checks.every_layout(subject, call, arrays, [layout], "float32") == []


# ---------------------------------------------------------------- the fuzzer


def test_the_fuzzer_counts_what_it_ran(capsys):
    command = ["--layouts", "7", "--seed", "7", "--only", "jagged_mean", "--programs", "2"]
    assert fuzz.main(command) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].startswith("7 layouts, 2 programs, seed 7: 0 wrong; 0 configs left out")
    assert [int(line.split(" layouts")[0].split()[-1]) for line in lines[:-1]] == [4, 3]


def test_the_fuzzer_finds_a_wrong_kernel(monkeypatch, capsys):
    subject = next(s for s in JAGGED if s.name == "jagged_sum")

    def late(x, offsets, *, config):
        """Leaves out the first row of every group."""
        return subject.kernel(x, jnp.minimum(offsets + 1, len(x)), config=config)

    monkeypatch.setattr(fuzz, "JAGGED", (dataclasses.replace(subject, kernel=late),))
    assert fuzz.main(["--layouts", "20", "--programs", "1"]) == 1
    printed = capsys.readouterr().out
    assert "WRONG one giant [0," in printed and " 0 wrong;" not in printed.splitlines()[-1]


def test_a_config_that_an_example_cannot_have_is_left_out(monkeypatch, capsys):
    monkeypatch.setattr(fuzz, "JAGGED", JAGGED[:1])
    fits = {"default": fuzz.CONFIGS["default"], "grid": lambda s: tile.Config(loop_type="grid")}
    monkeypatch.setattr(fuzz, "CONFIGS", fits)
    assert fuzz.main(["--layouts", "8"]) == 0
    printed = capsys.readouterr().out
    assert "left out: loop_type='grid' needs static bounds" in printed
    monkeypatch.setattr(fuzz, "MUST", ("default", "grid"))
    assert fuzz.main(["--layouts", "8"]) == 1


def test_every_kernel_is_fuzzed_in_every_dtype_and_config():
    ran = fuzz.programs()
    assert {(p.subject.name, p.dtype, p.form) for p in ran} == {
        (s.name, dtype, form)
        for s in JAGGED
        for dtype in s.dtypes
        for form in fuzz.CONFIGS
        if form != "within" or s.within
    }
    assert len(ran) >= 300


def test_a_sample_is_drawn_by_the_seed():
    assert fuzz.sample(40, 1) == fuzz.sample(40, 1) != fuzz.sample(40, 2)
    assert len(set(fuzz.sample(40, 1))) == 40
    assert fuzz.sample(0, 1) == list(range(len(fuzz.programs())))


# ---------------------------------------------------------------- the layouts themselves


@given(
    st.sampled_from(sorted(STRATA)),
    st.builds(Space, st.integers(0, 60), st.integers(1, 9), st.integers(1, 20)),
    st.integers(0, 2**32),
)
def test_layouts_are_legal(stratum, space, seed):
    offsets = STRATA[stratum](np.random.default_rng(seed), space)
    assert offsets.shape == (space.groups + 1,) and offsets.dtype == np.int32
    assert (np.diff(offsets) >= 0).all()
    assert offsets[0] >= 0 and offsets[-1] <= space.rows


@pytest.mark.parametrize("seed", range(10))
def test_layouts_are_what_they_are_called(seed):
    rng = np.random.default_rng(seed)
    drawn = {name: draw(rng, SPACE) for name, draw in STRATA.items()}
    sizes = {name: np.diff(offsets) for name, offsets in drawn.items()}
    assert sizes["empty first"][0] == 0 and sizes["empty last"][-1] == 0
    assert (sizes["empty middle"][1:-1] == 0).any()
    assert not sizes["all empty"].any()
    assert sorted(sizes["one giant"]) == [0] * (SPACE.groups - 1) + [SPACE.rows]
    assert (sizes["all of size 1"] == 1).all()
    assert (drawn["aligned"] % SPACE.block == 0).all()
    assert drawn["gap before"][0] > 0 and drawn["gap after"][-1] < SPACE.rows
    assert np.ptp(drawn["crowded"]) <= SPACE.block
    assert covered(drawn["every row in a group"], SPACE.rows).all()


def test_the_same_seed_draws_the_same_layouts():
    first, second = (list(draw_layouts(fuzz.SPACES[0], 40, 3)) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert str(one) == str(other)
    assert {la.stratum for la in every_stratum(fuzz.SPACES[0])} == set(STRATA)


def test_the_two_tensors_of_offsets_are_independent():
    drawn = list(draw_layouts(SPACE, 45, 3))
    assert all(la.tensors(2)[1][-1] <= second_rows(SPACE.rows) for la in drawn)
    strata = {(la.stratum, tuple(la.tensors(2)[1])) for la in drawn}
    assert len(strata) > 40
    empty = [(np.diff(la.offsets) == 0, np.diff(la.tensors(2)[1]) == 0) for la in drawn]
    assert any((first & ~second).any() for first, second in empty)
    assert any((second & ~first).any() for first, second in empty)
