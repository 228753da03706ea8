"""Visits: when a block is seen first, packed rows, and outputs that nothing may define twice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.schedule.written import Writing, add, expected, full, mul, planned, run, total
from tilelang.codegen.pallas.plan.types import (
    AtDim,
    Condition,
    Number,
    Plan,
    RowStarts,
    Turns,
    Window,
)
from tilelang.errors import PlanError
from tilelang.ir import GridIndex, KernelIR
from tilelang.language import build
from tilelang.schedule.config import Config

WHOLE = slice(None)
LAYOUTS = [[0, 7, 7, 20, 50], [3, 3, 3, 3, 3], [0, 50, 50, 50, 50], [10, 12, 13, 13, 40]]


def outputs(plan: Plan) -> dict[str, Window]:
    return {w.ref: w for launch in plan.launches for w in launch.outputs}


def first_visits(plan: Plan) -> dict[str, tuple[Condition, ...]]:
    """The conditions of the sections that define a block, by window."""
    (launch,) = plan.launches
    return {s.title: s.conditions for s in launch.sections if s.title}


def visits(plan: Plan) -> dict[str, str]:
    (launch,) = plan.launches
    assert launch.table is not None
    return {c.axis: c.visit for c in launch.table.columns}


def rows_and_groups(*, rows: bool, groups: bool, fill: float | None = 5) -> KernelIR:
    """y[tm] = 2 x[tm] and z[g] = sum of x[tm], or one of them."""
    k = Writing("both")
    begin, end = k.offsets("offsets", 4)
    k.input("x", 50, 128)
    if rows:
        k.output("y", 50, 128, fill=fill)
    if groups:
        k.output("z", 4, 128, fill=fill)
    with k.grid("g", 0, 4) as g:
        with k.tile("tm", begin, end):
            x = k.load("x", "tm", WHOLE)
            if rows:
                k.store("y", "tm", WHOLE, value=mul(x, 2.0))
            acc = k.carried("acc", full((128,), 0.0))
            k.becomes(acc, add(acc, total(x, 0)))
        if groups:
            k.store("z", g, WHOLE, value=k.after("acc", acc))
    return k.ir()


CONFIG = Config({"tm": 16})


def test_a_filled_output_is_filled_when_the_tile_turns_and_every_tile_is_visited() -> None:
    plan = planned(rows_and_groups(rows=True, groups=False), CONFIG)
    assert outputs(plan)["y_ref"].init == "fill"
    assert first_visits(plan) == {"y_ref": (Turns((Number(GridIndex("tm")),)),)}
    assert visits(plan) == {"g": "live", "tm": "cover"}


def test_an_empty_output_needs_no_first_visit() -> None:
    plan = planned(rows_and_groups(rows=True, groups=False, fill=None), CONFIG)
    assert outputs(plan)["y_ref"].init == "none"
    assert first_visits(plan) == {}
    assert visits(plan) == {"g": "live", "tm": "live"}


def test_a_covered_output_is_not_filled() -> None:
    plan = planned(rows_and_groups(rows=False, groups=True), CONFIG)
    assert outputs(plan)["z_ref"].init == "none"
    assert visits(plan) == {"g": "live", "tm": "at_least_one"}


def test_what_is_stored_beside_the_loop_is_stored_for_empty_groups_too() -> None:
    ir = rows_and_groups(rows=True, groups=True)
    rng = np.random.default_rng(0)
    for layout in LAYOUTS:
        x = rng.standard_normal((50, 128), np.float32)
        arrays = {"x": x, "offsets": np.array(layout, np.int32)}
        for config in (CONFIG, Config({"tm": 16}, steps="rectangle")):
            got, want = run(ir, arrays, config), expected(ir, arrays, config)
            for name in "yz":
                np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-4)


def picked(rows: int, *, first: int = 0) -> KernelIR:
    """y[i] = 2 x[i], one row at a time"""
    k = Writing("picked")
    k.input("x", rows, 256)
    k.output("y", rows, 256, fill=3)
    with k.tile("tn", 0, 256), k.grid("i", first, rows) as i:
        k.store("y", i, "tn", value=mul(k.load("x", i, "tn"), 2.0))
    return k.ir()


@pytest.mark.parametrize(("rows", "first"), [(3, 0), (8, 0), (20, 0), (20, 3), (20, 8)])
def test_rows_of_a_matrix_share_a_block(rows: int, first: int) -> None:
    ir, config = picked(rows, first=first), Config({"tn": 128})
    plan = planned(ir, config, "tpu:v5e")
    assert outputs(plan)["y_ref"].block == (min(rows, 8), 128)
    x = np.random.default_rng(0).standard_normal((rows, 256), np.float32)
    np.testing.assert_array_equal(
        run(ir, {"x": x}, config)["y"], expected(ir, {"x": x}, config)["y"]
    )


def test_a_block_of_rows_is_defined_at_its_first_row() -> None:
    plan = planned(picked(20, first=3), Config({"tn": 128}))
    ((_, conditions),) = first_visits(plan).items()
    assert conditions == (RowStarts("i", Number(GridIndex("i"), 8), first=True),)


def test_an_axis_that_does_not_move_the_output_defines_it_at_its_first_step() -> None:
    k = Writing("repeated")
    k.input("x", 48, 256)
    k.output("y", 48, fill=1)
    with k.tile("tm", 0, 32), k.tile("tn", 0, 256):
        k.store("y", "tm", value=total(k.load("x", "tm", "tn"), 1))
    plan = planned(k.ir(), Config({"tm": 16, "tn": 128}))
    assert first_visits(plan) == {"y_ref": (AtDim("tn", "first"),)}


def unsorted() -> KernelIR:
    """y[tm] over ranges [starts[g], ends[g]) that may overlap"""
    k = Writing("unsorted")
    k.input("starts", 4, dtype="int32")
    k.input("ends", 4, dtype="int32")
    k.input("x", 50, 128)
    k.output("y", 50, 128, fill=0)
    g = GridIndex("g")
    with k.grid("g", 0, 4), k.tile("tm", k.load("starts", g), k.load("ends", g), 50):
        k.store("y", "tm", WHOLE, value=mul(k.load("x", "tm", WHOLE), 2.0))
    return k.ir()


def test_blocks_that_would_be_visited_again_are_refused() -> None:
    with pytest.raises(PlanError) as caught:
        planned(unsorted(), replace(CONFIG, loop_type="worklist"))
    assert str(caught.value).startswith(
        "blocks of y would be visited again after other blocks: iterations of g share them, and "
        "their ranges may overlap\n"
        '  File "kernel.py", line 6\n'
        "    for g in hl.grid(...):\n"
        "    ^^^^^^^^^^^^^^^^^^^^^^\n"
        "  hint: "
    )


def test_ranges_that_overlap_run_as_loops_inside_the_step() -> None:
    x = np.random.default_rng(0).standard_normal((50, 128), np.float32)
    for starts, ends in (([0, 10, 5, 40], [20, 12, 30, 50]), ([40, 0, 0, 7], [50, 50, 0, 7])):
        arrays = {"x": x, "starts": np.array(starts, np.int32), "ends": np.array(ends, np.int32)}
        np.testing.assert_array_equal(
            run(unsorted(), arrays, CONFIG)["y"], expected(unsorted(), arrays, CONFIG)["y"]
        )


def test_lse_beside_the_output() -> None:
    """lse[h, tm] next to out[h, tm, :]: a row of the matrix becomes a block of its own."""
    k = Writing("lse")
    begin, end = k.offsets("offsets", 4)
    k.input("x", 3, 50, 128)
    k.output("out", 3, 50, 128)
    k.output("lse", 3, 50, fill=-1)
    with k.grid("h", 0, 3) as h, k.grid("g", 0, 4), k.tile("tm", begin, end):
        x = k.let("value", k.load("x", h, "tm", WHOLE))
        k.store("out", h, "tm", WHOLE, value=mul(x, 2.0))
        k.store("lse", h, "tm", value=total(x, 1))
    ir = k.ir()
    assert outputs(planned(ir, CONFIG))["lse_ref"].block == (None, 1, 16)
    x = np.random.default_rng(0).standard_normal((3, 50, 128), np.float32)
    for layout in LAYOUTS:
        arrays = {"x": x, "offsets": np.array(layout, np.int32)}
        got, want = run(ir, arrays, CONFIG), expected(ir, arrays, CONFIG)
        for name in ("out", "lse"):
            np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-4)


def test_a_later_launch_keeps_what_an_earlier_one_wrote() -> None:
    k = Writing("twice")
    k.input("x", 64, 128)
    k.output("y", 64, 128, fill=0)
    with k.tile("ta", 0, 64):
        k.store("y", "ta", WHOLE, value=mul(k.load("x", "ta", WHOLE), 2.0))
    with k.tile("tb", 32, 64):
        k.store("y", "tb", WHOLE, value=mul(k.load("x", "tb", WHOLE), 3.0))
    ir, config = k.ir(), Config({"ta": 16, "tb": 16})
    assert planned(ir, config).launches[1].outputs[0].init == "existing"
    x = np.random.default_rng(0).standard_normal((64, 128), np.float32)
    want = np.concatenate([x[:32] * 2, x[32:] * 3])
    np.testing.assert_array_equal(run(ir, {"x": x}, config)["y"], want)


# ---------------------------------------------------------------- the order of grid dimensions


def rotated(heads: int, length: int) -> KernelIR:
    """y[h, t] = x[h, t] * cos[t]"""
    k = Writing("rotated")
    k.input("x", heads, length, 128)
    k.input("cos", length, 128)
    k.output("y", heads, length, 128, fill=None)
    with k.grid("h", 0, heads), k.tile("t", 0, length):
        x, cos = k.load("x", GridIndex("h"), "t", WHOLE), k.load("cos", "t", WHOLE)
        k.store("y", GridIndex("h"), "t", WHOLE, value=mul(x, cos))
    return k.ir()


def product(m: int, n: int) -> KernelIR:
    """x[m, 64] @ w[64, n]"""
    k = Writing("product")
    k.input("x", m, 64)
    k.input("w", 64, n)
    k.output("y", m, n, fill=None)
    with k.tile("tm", 0, m), k.tile("tn", 0, n):
        operands = k.load("x", "tm", WHOLE), k.load("w", WHOLE, "tn")
        k.store("y", "tm", "tn", value=build.dot(*operands, None, (1, 0)))
    return k.ir()


def dims(ir: KernelIR, **blocks: int) -> list[str | None]:
    (launch,) = planned(ir, Config(blocks)).launches
    return [d.axis for d in launch.dims]


def test_the_order_that_fetches_least_is_taken() -> None:
    assert dims(rotated(4, 64), t=16) == ["t", "h"]  # cos once for all heads
    assert dims(product(256, 64), tm=16, tn=16) == ["tn", "tm"]  # w once, and x for every tn
    assert dims(product(64, 256), tm=16, tn=16) == ["tm", "tn"]
    assert dims(product(64, 64), tm=16, tn=16) == ["tm", "tn"]  # no difference: the author's
