"""The search reads rules and needs: what would help is tried, and a mistake is the author's."""

from __future__ import annotations

import pytest

import tilelang as tile
import tilelang.language as hl
from tests.subjects import SUBJECTS
from tests.test_golden import TARGET
from tilelang.errors import PlanError
from tilelang.schedule.refusal import Need, Refusal, Refused, Rule, attempted


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


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_the_default_config_says_all_that_was_chosen(subject):
    low = subject.kernel.lower(*subject.cases[-2], target=TARGET)
    again = subject.kernel.lower(*subject.cases[-2], target=TARGET, config=low.config)
    assert again.source.text == low.source.text
    assert low.config == subject.kernel.default_config(*subject.cases[-2], target=TARGET)


def test_only_refusals_are_values():
    def refuse() -> int:
        raise Refused(Rule.MEMORY, "no room", needs=Need("vmem", 8, "smaller"))

    def mistake() -> int:
        raise PlanError("wrong in any form")

    assert attempted(lambda: 3) == 3
    assert attempted(refuse) == Refusal(Rule.MEMORY, "no room", needs=Need("vmem", 8, "smaller"))
    with pytest.raises(PlanError, match="wrong in any form"):
        attempted(mistake)
