"""The search reads rules and needs: what would help is tried, and a mistake is the author's."""

from __future__ import annotations

import inspect

import pytest

import tilelang as tile
import tilelang.language as hl
from tests.subjects import SUBJECTS
from tests.test_golden import TARGET
from tests.tiers import share
from tilelang.analysis import analyze
from tilelang.codegen.pallas.plan import forms, search
from tilelang.codegen.pallas.target import Target
from tilelang.codegen.triton.plan import search as of_triton
from tilelang.codegen.triton.target import Target as GpuTarget
from tilelang.errors import PlanError
from tilelang.frontend import parse
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Need, Refusal, Refused, Rule, allowed, attempted


@tile.kernel
def scale(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm, td in hl.tile([offsets[g], 0], [offsets[g + 1], x.shape[1]]):
            y[tm, td] = x[tm, td] * 2
    return y


@tile.kernel
def two_places(x, y):
    for tm in hl.tile(x.shape[0] - 1):
        y[tm + 1, :] = x[tm, :]
        y[tm, :] = x[tm, :]
    return y


def rows(count: int, groups: int) -> tuple[object, ...]:
    return tile.spec((count, 128), "bfloat16"), tile.spec((groups + 1,), "int32")


@pytest.mark.parametrize("groups", [8, 4096])
@pytest.mark.parametrize("loop_type", [None, "outer_pipeline"])
def test_blocks_grow_while_the_table_does_not_fit(groups, loop_type):
    config = tile.Config(loop_type=loop_type)
    plan = scale.lower(*rows(1 << 24, groups), target=TARGET, config=config).plan
    (launch,) = plan.launches
    assert dict(plan.blocks)["tm"] >= 256
    assert launch.form == "pipeline"
    assert launch.table is not None and launch.table.rows * launch.table.width * 4 < 1_000_000


def test_a_block_that_was_asked_for_does_not_grow():
    config = tile.Config({"tm": 128}, loop_type="outer_pipeline")
    with pytest.raises(PlanError, match=r"the step table of scale needs 131,079 rows"):
        scale.lower(*rows(1 << 24, 8), target=TARGET, config=config)


def test_a_mistake_is_reported_as_such():
    spec = tile.spec((64, 128), "float32")
    for loop_type in (None, "grid", "emit_pipeline", "fori_loop"):
        with pytest.raises(PlanError, match="tm says where outputs are stored, at 2 different"):
            two_places.lower(spec, spec, target=TARGET, config=tile.Config(loop_type=loop_type))


@tile.kernel
def moved(x, offsets):
    """Rows of boxes, one after the other: a loop over groups that only copies rows."""
    y = hl.full([50, 130], 0.0, dtype=hl.float32)
    for g in hl.grid(5):
        for tm in hl.tile(offsets[g], hl.minimum(offsets[g + 1], offsets[g] + 1), block_size=32):
            y[tm, :] = x[g, tm.index - offsets[g], :]
    return y


@pytest.mark.parametrize("target", ["cpu", TARGET])
def test_what_the_search_tries_of_itself_refuses_no_kernel(target):
    """Rows that are moved together have blocks of their own: here, the author has another."""
    specs = tile.spec((5, 50, 130), "float32"), tile.spec((6,), "int32")
    assert dict(moved.lower(*specs, target=target).plan.blocks)["tm"] == 32


def one_place(x, y):
    for tm in hl.tile(x.shape[0]):
        y[tm, :] = x[tm, :]
    return y


def halved(x, y):
    for tm in hl.tile(x.shape[0]):
        y[tm, :] = x[tm, :].to(hl.float16).to(hl.float32)
    return y


def problem(kernel, shape: tuple[int, ...] = (64, 128)) -> Problem:
    fn = inspect.unwrap(kernel)
    ir = parse(fn, {"x": tile.spec(shape, "float32"), "y": tile.spec(shape, "float32")})
    return Problem(ir, analyze(ir))


LARGE = (1 << 10, 1 << 20)  # one row of a register tile is 32 MiB
ONCE, IN_EVERY_FORM = 1, 4


@pytest.mark.parametrize(
    ("kernel", "shape", "config", "rule", "count"),
    [
        (two_places, (64, 128), tile.Config(), Rule.KERNEL, ONCE),
        (halved, (64, 128), tile.Config(), Rule.KERNEL, 0),
        (one_place, (64, 128), tile.Config({"tq": 8}), Rule.CONFIG, ONCE),
        (one_place, (64, 128), tile.Config({"tm": 9}), Rule.CONFIG, ONCE),
        (one_place, (64, 128), tile.Config(within=("tm",)), Rule.CONFIG, ONCE),
        (one_place, (64, 128), tile.Config(windows="exact"), Rule.FORM, IN_EVERY_FORM),
        (one_place, LARGE, tile.Config(), Rule.FORM, IN_EVERY_FORM),
    ],
)
def test_other_forms_are_tried_where_they_may_help(kernel, shape, config, rule, count, monkeypatch):
    tried: list[object] = []
    real = forms._sized
    monkeypatch.setattr(forms, "_sized", lambda *asked: tried.append(asked) or real(*asked))
    found = search.plan(problem(kernel, shape), config, Target.of(TARGET))
    assert isinstance(found, Refusal)
    assert (found.rule, len(tried)) == (rule, count), found


def tl(x, y):
    """Its name is that of a module in what is generated for GPUs."""
    for tm in hl.tile(x.shape[0]):
        y[tm, :] = x[tm, :]
    return y


@pytest.mark.parametrize(
    ("kernel", "shape", "config", "rule"),
    [
        (tl, (64, 12), tile.Config(), Rule.KERNEL),
        (one_place, (64, 128), tile.Config(worklist="table"), Rule.CONFIG),
        (one_place, (64, 1 << 21), tile.Config(), Rule.CONFIG),
    ],
)
def test_a_plan_for_a_gpu_is_refused_as_a_value(kernel, shape, config, rule):
    found = of_triton.plan(problem(kernel, shape), config, GpuTarget.of("cuda:sm90"))
    assert isinstance(found, Refusal) and found.rule is rule, found


@pytest.mark.parametrize("subject", share(SUBJECTS, 3))
def test_the_default_config_says_all_that_was_chosen(subject):
    low = subject.kernel.lower(*subject.cases[-2], target=TARGET)
    again = subject.kernel.lower(*subject.cases[-2], target=TARGET, config=low.config)
    assert again.source.text == low.source.text
    assert low.config == subject.kernel.default_config(*subject.cases[-2], target=TARGET)


def test_only_refusals_are_values():
    def refuse() -> int:
        raise Refused(Rule.FORM, "no room", needs=Need("smaller"))

    def mistake() -> int:
        raise PlanError("wrong in any form")

    assert attempted(lambda: 3) == 3
    refusal = Refusal(Rule.FORM, "no room", needs=Need("smaller"))
    assert attempted(refuse) == refusal
    assert allowed(3) == 3
    with pytest.raises(PlanError, match="no room"):
        allowed(refusal)
    with pytest.raises(PlanError, match="wrong in any form"):
        attempted(mistake)
