"""Placement: where each loop runs for each loop_type, and the exact refusals."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.written import (
    INT,
    Writing,
    add,
    edge,
    expected,
    full,
    mul,
    planned,
    run,
    total,
)
from tilelang.codegen.pallas.plan import placement
from tilelang.codegen.pallas.plan.types import Plan
from tilelang.errors import PlanError
from tilelang.ir import Along, Const, KernelIR
from tilelang.language import build
from tilelang.schedule.config import Config

WHOLE = slice(None)
BLOCKS = {"tm": 16, "tn": 32, "tk": 64}
LOOP_TYPES = ("grid", "outer_pipeline", "fori_loop", "unroll")


def matmul() -> KernelIR:
    k = Writing("matmul")
    k.input("x", 50, 200)
    k.input("w", 200, 72)
    k.output("y", 50, 72, fill=None)
    with k.tile("tm", 0, 50), k.tile("tn", 0, 72):
        with k.tile("tk", 0, 200):
            acc = k.carried("acc", full(("tm", "tn"), 0.0))
            operands = k.load("x", "tm", "tk"), k.load("w", "tk", "tn")
            k.becomes(acc, add(acc, build.dot(*operands, None, (1, 0))))
        k.store("y", "tm", "tn", value=k.after("acc", acc))
    return k.ir()


def ragged() -> KernelIR:
    k = Writing("ragged")
    begin, end = k.offsets("offsets", 4)
    k.input("x", 50, 128)
    k.output("y", 50, 128)
    with k.grid("g", 0, 4), k.tile("tm", begin, end):
        k.store("y", "tm", WHOLE, value=mul(k.load("x", "tm", WHOLE), 2.0))
    return k.ir()


def two_passes() -> KernelIR:
    k = Writing("two_passes")
    begin, end = k.offsets("offsets", 4)
    k.input("x", 50, 128)
    k.output("y", 50, 128)
    with k.grid("g", 0, 4):
        with k.tile("tm", begin, end):
            acc = k.carried("acc", full((128,), 0.0))
            k.becomes(acc, add(acc, total(k.load("x", "tm", WHOLE), 0)))
        with k.tile("tn", begin, end):
            value = add(k.load("x", "tn", WHOLE), k.after("acc", acc))
            k.store("y", "tn", WHOLE, value=value)
    return k.ir()


def places(plan: Plan) -> dict[str, str]:
    (launch,) = plan.launches
    return {a.name: a.place for a in launch.axes}


def dims(plan: Plan) -> list[tuple[str | None, int | None, str]]:
    (launch,) = plan.launches
    return [(d.axis, d.extent, d.semantics) for d in launch.dims]


DENSE_DIMS = [("tm", 4, "parallel"), ("tn", 3, "parallel"), ("tk", 4, "arbitrary")]


@pytest.mark.parametrize("loop_type", LOOP_TYPES)
def test_dense_loops(loop_type: str) -> None:
    plan = planned(matmul(), Config(BLOCKS, loop_type=loop_type))
    inside = loop_type in ("fori_loop", "unroll")
    assert places(plan) == {"tm": "dim", "tn": "dim", "tk": "inner" if inside else "dim"}
    # with tk inside the step, w is the larger one to fetch again: tn comes first
    assert dims(plan) == (DENSE_DIMS[1::-1] if inside else DENSE_DIMS)
    assert plan.launches[0].form == ("pipeline" if loop_type == "outer_pipeline" else "grid")


@pytest.mark.parametrize("loop_type", LOOP_TYPES)
def test_dense_results(loop_type: str) -> None:
    rng, ir, config = np.random.default_rng(0), matmul(), Config(BLOCKS, loop_type=loop_type)
    arrays = {
        "x": rng.standard_normal((50, 200), np.float32),
        "w": rng.standard_normal((200, 72), np.float32),
    }
    np.testing.assert_allclose(
        run(ir, arrays, config)["y"], arrays["x"] @ arrays["w"], rtol=1e-4, atol=1e-4
    )


def test_static_loops_default_to_a_grid_and_ragged_ones_to_a_pipeline() -> None:
    assert planned(matmul()).launches[0].form == "grid"
    plan = planned(ragged(), Config({"tm": 16}))
    assert plan.launches[0].form == "pipeline"
    assert places(plan) == {"g": "table", "tm": "table"}
    assert dims(plan) == [(None, None, "arbitrary")]


def test_a_ragged_axis_inside_the_step() -> None:
    plan = planned(ragged(), Config({"tm": 16}, loop_type="fori_loop"))
    assert places(plan) == {"g": "dim", "tm": "inner"}


REFUSED = {
    "grid": (
        "loop_type='grid' needs static bounds, but those of tm are read from memory",
        "use loop_type='outer_pipeline'",
    ),
    "unroll": (
        "loop_type='unroll' needs static bounds, but those of tm are read from memory",
        "use loop_type='outer_pipeline' or 'fori_loop'",
    ),
}


@pytest.mark.parametrize("loop_type", REFUSED)
@pytest.mark.parametrize("make", [ragged, two_passes])
def test_a_loop_type_that_cannot_be_honoured(loop_type: str, make) -> None:
    if (loop_type, make) == ("grid", two_passes):
        return  # its loops stand inside the step, so that the dims around them are static
    with pytest.raises(PlanError) as caught:
        planned(make(), Config({"tm": 16}, loop_type=loop_type))
    assert (caught.value.what, caught.value.hint) == REFUSED[loop_type]
    assert caught.value.loc is not None
    assert caught.value.loc.text.strip() == "for tm in hl.tile(...):"


def test_loops_in_a_row_are_phases_of_the_table() -> None:
    plan = planned(two_passes(), Config({"tm": 16, "tn": 16}))
    assert places(plan) == {"g": "table", "tm": "table", "tn": "table"}
    table = plan.launches[0].table
    assert table is not None
    assert [(c.axis, c.phase) for c in table.columns] == [("g", None), ("tm", 0), ("tn", 1)]


def test_loops_over_one_range_have_one_block() -> None:
    for config in (Config(), Config({"tm": 16}), Config({"tn": 16})):
        blocks = dict(planned(two_passes(), config).blocks)
        assert blocks["tm"] == blocks["tn"]
    assert dict(planned(two_passes(), Config({"tm": 16, "tn": 32})).blocks)["tn"] == 32


def test_loops_in_a_row_may_run_inside_the_step() -> None:
    plan = planned(two_passes(), Config({"tm": 16, "tn": 16}, loop_type="fori_loop"))
    assert places(plan) == {"g": "dim", "tm": "inner", "tn": "inner"}


def test_two_cores_need_an_axis_that_owns_its_outputs() -> None:
    with pytest.raises(PlanError) as caught:
        planned(ragged(), Config({"tm": 64}, cores=2))
    assert caught.value.what == (
        "cores=2, but no parallel axis of ragged owns its output blocks: all steps share the "
        "blocks of y"
    )
    with pytest.raises(PlanError) as caught:
        planned(ragged(), Config({"tm": 16}, loop_type="worklist", cores=2))
    assert caught.value.what == "cores=2, but no parallel axis of ragged owns its output blocks"
    assert planned(ragged(), Config({"tm": 16}, cores=2)).launches[0].cores == 2  # of its table
    assert planned(matmul(), Config(BLOCKS, cores=2)).launches[0].cores == 2
    with pytest.raises(PlanError) as caught:
        planned(matmul(), Config(cores=2), "tpu:v6e")
    assert caught.value.what == "cores=2, but tpu:v6e runs a program on 1 core"


def test_steps_without_a_table() -> None:
    with pytest.raises(PlanError) as caught:
        planned(matmul(), Config(BLOCKS, steps="rectangle"))
    assert caught.value.what == (
        "steps='rectangle', but no loop of matmul is ragged: there is no table"
    )


def test_tiles_are_cut_where_outputs_are_stored() -> None:
    k = Writing("shifted")
    k.input("x", 128, 128)
    k.output("y", 128, 128, fill=None)
    offset = Const(64, INT)
    with k.tile("tm", 0, 64):
        k.store("y", Along("tm", offset), WHOLE, value=k.load("x", "tm", WHOLE))
    plan = planned(k.ir(), Config({"tm": 16}))
    (launch,) = plan.launches
    assert launch.axis("tm").shift == offset and launch.axis("tm").first == 4
    assert [w.ref for w in launch.windows] == ["x_ref", "x_1_ref", "y_ref"]


def test_loops_of_one_step_are_written_out() -> None:
    plan = planned(matmul(), Config({"tm": 64, "tn": 128, "tk": 256}))
    assert places(plan) == {"tm": "single", "tn": "single", "tk": "single"}
    assert dims(plan) == []


def sums(to: str = "end") -> KernelIR:
    """Row sums of x[i, j] over j < the end of the tile of i: what one tile of j holds is masked."""
    k = Writing("sums")
    k.input("x", 100, 100)
    k.output("y", 100)
    with k.tile("tm", 0, 100):
        with k.tile("tk", 0, edge("tm", to)):
            acc = k.carried("acc", full(("tm",), 0.0))
            k.becomes(acc, add(acc, total(k.load("x", "tm", "tk"), 1)))
        k.store("y", "tm", value=k.after("acc", acc))
    return k.ir()


ONE_TILE = Config({"tm": 32, "tk": 100})


def _sums(block: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(0).standard_normal((100, 100), np.float32)
    ends = np.minimum((np.arange(100) // block + 1) * block, 100)
    want = np.where(np.arange(100) < ends[:, None], x, 0).sum(1)
    return run(sums(), {"x": x}, Config({"tm": block, "tk": 100}))["y"], want


def test_a_range_that_moves_within_one_tile_needs_no_table() -> None:
    plan = planned(sums(), ONE_TILE)
    assert places(plan) == {"tm": "dim", "tk": "single"}
    assert plan.launches[0].table is None
    np.testing.assert_allclose(*_sums(32), rtol=1e-4, atol=1e-4)


def test_a_range_in_one_tile_that_may_be_empty_keeps_its_table() -> None:
    assert places(planned(sums("begin"), ONE_TILE)) == {"tm": "table", "tk": "table"}


def test_planted_one_tile_without_its_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "_at_edge", lambda *_: True)
    got, want = _sums(48)
    assert not np.allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("begin", [64, 60, 127])
@pytest.mark.parametrize("block", [48, 256])
def test_a_range_that_does_not_begin_at_a_tile(begin: int, block: int) -> None:
    k = Writing("part")
    k.input("x", 256, 128)
    k.output("y", 256, 128, fill=7)
    with k.tile("tm", begin, 200):
        k.store("y", "tm", WHOLE, value=mul(k.load("x", "tm", WHOLE), 2.0))
    ir, config = k.ir(), Config({"tm": block})
    x = np.random.default_rng(0).standard_normal((256, 128), np.float32)
    want = expected(ir, {"x": x}, config)["y"]
    np.testing.assert_array_equal(run(ir, {"x": x}, config)["y"], want)
