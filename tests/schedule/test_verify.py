"""verify: a plan whose text would read what nothing defines does not get printed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.schedule.written import Writing, planned
from tilelang.codegen.pallas.plan.types import Column, InPhase, Plan, Table
from tilelang.codegen.pallas.plan.verify import verify
from tilelang.errors import InternalError
from tilelang.ir import GridIndex
from tilelang.schedule.config import Config


def ragged() -> Plan:
    k = Writing("ragged")
    begin, end = k.offsets("offsets", 4)
    k.input("x", 50, 128)
    k.output("y", 50, 128)
    with k.grid("g", 0, 4), k.tile("tm", begin, end):
        k.store("y", "tm", slice(None), value=k.load("x", "tm", slice(None)))
    return planned(k.ir(), Config({"tm": 16}))


def changed(plan: Plan, **changes: object) -> Plan:
    (launch,) = plan.launches
    return replace(plan, launches=(replace(launch, **changes),))


def table_of(plan: Plan) -> Table:
    (launch,) = plan.launches
    assert launch.table is not None
    return launch.table


def refused(plan: Plan) -> str:
    with pytest.raises(InternalError) as found:
        verify(plan)
    return found.value.what


def test_a_sound_plan_passes() -> None:
    plan = ragged()
    assert verify(plan) is plan


def test_a_window_behind_its_array() -> None:
    plan = ragged()
    (launch,) = plan.launches
    short = tuple(replace(w, shape=(20, 128)) for w in launch.windows)
    assert refused(changed(plan, windows=short)) == (
        "internal error: the window of x reads block 0 to 3 of 2 where nothing defines it"
    )


def test_a_column_that_is_missing() -> None:
    plan = ragged()
    table = table_of(plan)
    broken = changed(plan, table=replace(table, columns=table.columns[1:]))
    assert refused(broken) == (
        "internal error: the range of tm reads the number of g where nothing defines it"
    )


def test_columns_in_the_wrong_order() -> None:
    plan = ragged()
    table = table_of(plan)
    broken = changed(plan, table=replace(table, columns=table.columns[::-1]))
    assert "the range of tm reads the number of g" in refused(broken)


def test_a_stop_that_reads_its_own_tile() -> None:
    plan = ragged()
    table = table_of(plan)
    g, tm = table.columns
    wrong: Column = replace(tm, range=replace(tm.range, stop=GridIndex("tm")))
    assert refused(changed(plan, table=replace(table, columns=(g, wrong)))) == (
        "internal error: where tm begins or stops reads the number of tm where nothing defines it"
    )


def test_tiles_behind_the_last_range_that_no_cursor_counts() -> None:
    plan = ragged()
    table = table_of(plan)
    g, tm = table.columns
    assert tm.visit == "cover" and tm.cursor
    wrong = replace(tm, cursor=False)
    assert refused(changed(plan, table=replace(table, columns=(g, wrong)))) == (
        "internal error: the table reads the number of tiles of tm that have a row where nothing "
        "defines it"
    )


def test_blocks_that_no_window_shows() -> None:
    plan = ragged()
    (launch,) = plan.launches
    assert "reads the block" in refused(changed(plan, windows=launch.outputs))


def test_scalars_that_no_argument_holds() -> None:
    assert "the numbers of offsets" in refused(changed(ragged(), scalars=()))


def rows_of_two() -> Plan:
    k = Writing("two")
    begin, end = k.offsets("offsets", 4)
    k.input("x", 50, 128)
    k.output("y", 50, 128)
    k.output("z", 50, 128)
    with k.grid("g", 0, 4):
        with k.tile("t", begin, end):
            k.store("y", "t", slice(None), value=k.load("x", "t", slice(None)))
        with k.tile("s", begin, end):
            k.store("z", "s", slice(None), value=k.load("x", "s", slice(None)))
    return planned(k.ir(), Config({"t": 16, "s": 16}))


def test_a_loop_in_a_row_that_reads_the_tile_of_another() -> None:
    plan = rows_of_two()
    (launch,) = plan.launches
    assert verify(plan) is plan
    other = {InPhase(0): InPhase(1), InPhase(1): InPhase(0)}
    sections = tuple(
        replace(s, conditions=tuple(other.get(c, c) for c in s.conditions))  # type: ignore[arg-type]
        for s in launch.sections
    )
    assert "where nothing defines it" in refused(changed(plan, sections=sections))
