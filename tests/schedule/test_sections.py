"""Sections: a value of one section that another reads is copied if cheap, moved, or kept."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.written import Writing, add, expected, full, mul, planned, printed, run, total
from tilelang.codegen.pallas.plan.types import AtDim, Ends, Runs
from tilelang.ir import KernelIR
from tilelang.language import build
from tilelang.schedule.config import Config

WHOLE = slice(None)
CONFIG = Config({"tm": 16, "tk": 64})


def reduction(before, after) -> KernelIR:
    """value = before(a[tm]); acc = sum of x[tm, tk]; y[tm] = after(acc, value)"""
    k = Writing("reduction")
    k.input("a", 48, 128)
    k.input("x", 48, 256)
    k.output("y", 48, 128, fill=None)
    with k.tile("tm", 0, 48):
        value = k.let("value", before(k.load("a", "tm", WHOLE)))
        with k.tile("tk", 0, 256):
            acc = k.carried("acc", full(("tm", 1), 0.0))
            part = build.reduce("sum", k.load("x", "tm", "tk"), 1, True, None)
            k.becomes(acc, add(acc, part))
        k.store("y", "tm", WHOLE, value=after(k.after("acc", acc), value))
    return k.ir()


CHEAP = reduction(lambda a: mul(a, 2.0), add)
COSTLY = reduction(lambda a: build.unary("exp", a, None), add)


def test_a_cheap_value_is_computed_again() -> None:
    (launch,) = planned(CHEAP, CONFIG).launches
    assert [s.name for s in launch.scratch] == ["acc_in"]
    assert printed(CHEAP, CONFIG).text.count("value = a_ref[...] * 2.0") == 1


def test_a_costly_value_moves_to_the_section_that_reads_it() -> None:
    (launch,) = planned(COSTLY, CONFIG).launches
    assert [s.name for s in launch.scratch] == ["acc_in"]
    assert printed(COSTLY, CONFIG).text.count("jnp.exp") == 1


def test_a_costly_value_that_every_step_reads_is_kept() -> None:
    k = Writing("kept")
    k.input("a", 48, 64)
    k.input("x", 64, 256)
    k.output("y", 48, 256, fill=None)
    with k.tile("tm", 0, 48):
        value = k.let("value", build.unary("exp", k.load("a", "tm", WHOLE), None))
        with k.tile("tk", 0, 256):
            acc = k.carried("acc", full((), 0.0))
            k.becomes(acc, add(acc, 1.0))
            product = build.dot(value, k.load("x", WHOLE, "tk"), None, (1, 0))
            k.store("y", "tm", "tk", value=add(product, acc))
    ir = k.ir()
    (launch,) = planned(ir, CONFIG).launches
    assert {s.name: s.shape for s in launch.scratch}["value"] == (16, 64)
    rng = np.random.default_rng(0)
    arrays = {"a": rng.standard_normal((48, 64)), "x": rng.standard_normal((64, 256))}
    arrays = {n: a.astype(np.float32) for n, a in arrays.items()}
    np.testing.assert_allclose(
        run(ir, arrays, CONFIG)["y"], expected(ir, arrays, CONFIG)["y"], rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize("ir", [CHEAP, COSTLY])
@pytest.mark.parametrize("loop_type", ["grid", "outer_pipeline", "fori_loop", "unroll"])
def test_results(ir: KernelIR, loop_type: str) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.standard_normal((48, 128), np.float32),
        "x": rng.standard_normal((48, 256), np.float32),
    }
    config = Config({"tm": 16, "tk": 64}, loop_type=loop_type)
    np.testing.assert_allclose(
        run(ir, arrays, config)["y"], expected(ir, arrays, config)["y"], rtol=1e-4, atol=1e-4
    )


def test_what_stands_around_an_ordered_axis_runs_at_its_ends() -> None:
    (launch,) = planned(COSTLY, CONFIG).launches
    conditions = [s.conditions for s in launch.sections]
    assert conditions == [(AtDim("tk", "first"),), (), (AtDim("tk", "last"),)]


def weighted(init: float, factor: float) -> KernelIR:
    """out[g]: acc = acc * factor + the sum of each row's tile"""
    k = Writing("weighted")
    begin, end = k.offsets("offsets", 5)
    k.input("x", 48, 128)
    k.output("out", 5, 128, fill=None)
    with k.grid("g", 0, 5) as g:
        with k.tile("tm", begin, end):
            acc = k.carried("acc", full((128,), init))
            before = acc if factor == 1 else mul(acc, factor)
            k.becomes(acc, add(before, total(k.load("x", "tm", WHOLE), 0)))
        k.store("out", g, WHOLE, value=k.after("acc", acc))
    return k.ir()


def test_sections_of_a_ragged_axis_run_at_the_ends_of_its_range() -> None:
    (launch,) = planned(weighted(1.0, 1.0), Config({"tm": 16})).launches
    places = [[c for c in s.conditions if isinstance(c, Ends)] for s in launch.sections]
    assert places == [
        [Ends(("g",), ("tm",), "first")],
        [],
        [Ends(("g",), ("tm",), "last")],
    ]


def test_a_step_for_an_empty_range_changes_no_accumulator() -> None:
    """A sum adds nothing there; anything else runs only where the range holds the tile."""
    plain = planned(weighted(1.0, 1.0), Config({"tm": 16})).launches[0]
    scaled = planned(weighted(1.0, 2.0), Config({"tm": 16})).launches[0]
    assert not any(isinstance(c, Runs) for s in plain.sections for c in s.conditions)
    assert [c for s in scaled.sections for c in s.conditions if isinstance(c, Runs)] == [Runs("tm")]


@pytest.mark.parametrize("factor", [1.0, 2.0])
@pytest.mark.parametrize("steps", ["table", "rectangle"])
def test_empty_groups_keep_the_initial_value(factor: float, steps: str) -> None:
    ir, config = weighted(3.0, factor), Config({"tm": 16}, steps=steps)
    x = np.random.default_rng(0).standard_normal((48, 128), np.float32)
    for offsets in ([0, 16, 16, 16, 32, 32], [5, 5, 5, 5, 5, 5], [48] * 6, [0, 0, 0, 0, 0, 16]):
        arrays = {"x": x, "offsets": np.array(offsets, np.int32)}
        want = np.full((5, 128), 3.0)
        for g in range(5):
            own = x[offsets[g] : offsets[g + 1]]
            want[g] = want[g] * factor + own.sum(0) if len(own) else want[g]
        np.testing.assert_allclose(run(ir, arrays, config)["out"], want, rtol=1e-4, atol=1e-4)
