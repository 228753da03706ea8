"""verify: a plan whose text would read what nothing defines does not get printed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args, get_type_hints

import pytest

import tilelang as tile
from examples.dense.flash_attention import flash_attention
from examples.jagged.jagged_softmax import jagged_softmax
from examples.jagged.jagged_sum import jagged_sum
from examples.jagged.jagged_to_padded import jagged_to_padded
from examples.jagged.segment_reduction import segment_reduction
from tests.codegen.test_comes_back import added
from tests.codegen.test_edges import causal
from tests.schedule.written import Writing, planned
from tests.subjects import SUBJECTS
from tilelang import ir
from tilelang.codegen.pallas.emit import emit
from tilelang.codegen.pallas.plan import physical
from tilelang.codegen.pallas.plan.rewriting import rewrite
from tilelang.codegen.pallas.plan.steps.names import COUNT, seen
from tilelang.codegen.pallas.plan.types import Column, InPhase, Launch, Plan, Table
from tilelang.codegen.pallas.plan.verify import verify
from tilelang.errors import InternalError
from tilelang.ir import GridIndex
from tilelang.ir.integers import add, const
from tilelang.schedule.config import Config

FULL = (("value", 0.0),)


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


def only_range() -> Plan:
    """One loop over a range from memory makes the table, which has less rows than x has tiles."""
    k = Writing("only")
    k.input("ends", 2, dtype="int32")
    begin, end = (k.load("ends", const(n)) for n in (0, 1))
    k.input("x", 64, 128)
    k.output("y", 1, 128, fill=None)
    with k.grid("g", 0, 1) as g:
        with k.tile("t", begin, end, 16):
            acc = k.carried("acc", ir.Apply("full", (), ir.Type((128,), "float32"), FULL))
            rows = k.load("x", "t", slice(None))
            row = ir.Apply("sum", (rows,), acc.type, (("axis", 0), ("keepdim", False)))
            k.becomes(acc, ir.Apply("add", (acc, row), acc.type))
        k.store("y", g, slice(None), value=k.after("acc", acc))
    return planned(k.ir(), Config({"t": 16}))


def test_rows_that_nothing_has_counted_yet() -> None:
    plan = only_range()
    (column,) = table_of(plan).columns
    assert table_of(plan).capped and column.visits is not None
    stop = add(column.visits.first, COUNT)
    wrong = replace(column, visits=replace(column.visits, stop=stop))
    broken = changed(plan, table=replace(table_of(plan), columns=(wrong,)))
    assert refused(broken) == (
        "internal error: what of t has a row reads the value steps.count where nothing defines it"
    )
    with pytest.raises(KeyError, match=r"steps\.count"):  # and no name would be made up for it
        emit(broken)


def test_tiles_that_no_cursor_has_seen() -> None:
    plan = ragged()
    g, tm = table_of(plan).columns
    assert g.visits is not None
    wrong = replace(g, visits=replace(g.visits, stop=seen("tm")))
    assert "reads the value" in refused(
        changed(plan, table=replace(table_of(plan), columns=(wrong, tm)))
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


def summed() -> Plan:
    k = Writing("summed")
    k.input("x", 32, 256)
    k.output("y", 32, fill=None)
    with k.tile("tm", 0, 32):
        with k.tile("tn", 0, 256):
            acc = k.carried("acc", ir.Apply("full", (), ir.Type(("tm",), "float32"), FULL))
            x = k.load("x", "tm", "tn")
            row = ir.Apply("sum", (x,), acc.type, (("axis", 1), ("keepdim", False)))
            k.becomes(acc, ir.Apply("add", (acc, row), acc.type))
        k.store("y", "tm", value=k.after("acc", acc))
    return planned(k.ir(), Config({"tm": 16, "tn": 128}))


def test_scratch_memory_of_another_shape() -> None:
    plan = summed()
    (launch,) = plan.launches
    (acc,) = launch.scratch
    assert acc.shape == (16, 128)
    assert refused(changed(plan, scratch=(replace(acc, shape=(16, 1)),))) == (
        f"internal error: a value has another shape than {acc.name}"
    )


def test_scratch_memory_of_another_dtype() -> None:
    plan = summed()
    (launch,) = plan.launches
    (acc,) = launch.scratch
    narrow = changed(plan, scratch=(replace(acc, dtype="bfloat16"),))
    assert refused(narrow) == f"internal error: a value has another dtype than {acc.name}"


def test_operands_that_do_not_meet() -> None:
    plan = summed()
    (launch,) = plan.launches

    def narrow(expr: physical.PExpr) -> physical.PExpr:
        kept = isinstance(expr, physical.Kept)
        return replace(expr, type=replace(expr.type, shape=("tm", 64))) if kept else expr

    sections = tuple(
        replace(s, body=tuple(rewrite(stmt, narrow) for stmt in s.body)) for s in launch.sections
    )
    assert "has operands of shapes that do not meet" in refused(changed(plan, sections=sections))


# ---------------------------------------------------------------- everything that is printed

EXPRS = get_args(physical.PExpr)
STATEMENTS = (
    *get_args(physical.PStmt),
    *get_args(physical.Select),
    physical.PutRows,
    physical.InnerCarry,
)  # of which test_rewriting asks the same
NOBODY = ir.Var("nobody", ir.Type((), "int32"))
STEPS = {
    "table": Config(loop_type="outer_pipeline"),
    "rectangle": Config(loop_type="outer_pipeline", steps="rectangle"),
    "worklist": Config(loop_type="worklist"),
    "inside": Config(loop_type="emit_pipeline"),
    "exact": Config(windows="exact"),
}
PLANS = {
    "grouped_gemm": ("table", "rectangle", "worklist"),
    "jagged_softmax": ("table", "worklist", "inside"),
    "paged_attention": ("rectangle", "inside"),
    "varlen_attention": ("exact",),
    "split_k_matmul": ("table",),
    "jagged_dense_add": ("table",),
    "jagged_sum": ("table",),
}


def held() -> Plan:
    config = Config({"tf": 256, "tm": 64}, loop_type="fori_loop", windows="flowing")
    rows = tile.spec((1024, 256), "bfloat16"), tile.spec((65,), "int32")
    return segment_reduction.lower(*rows, target="tpu:v6e", config=config).plan


def frames_added() -> Plan:
    frames, starts = tile.spec((5, 24, 128), "float32"), tile.spec((5,), "int32")
    config = Config({"t": 16}, loop_type="outer_pipeline")
    return added.lower(frames, starts, 72, target="tpu:v6e", config=config).plan


def test_results_that_are_held_where_steps_may_run_on_two_cores() -> None:
    plan = held()
    (launch,) = plan.launches
    assert verify(plan) is plan and [w.held for w in launch.outputs] == [True, True]
    dims = tuple(replace(d, semantics="parallel") for d in launch.dims)
    assert "all of sums is held where other cores would have their own" in refused(
        changed(plan, dims=dims)
    )


# Of tiles that are moved, tables that offsets could overfill, and lists that may be empty.
UNMET = {("AxisPlan", "shift"), ("Column", "capped"), ("Table", "shown")}


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where a plan holds expressions, whatever its fields are called."""
    if isinstance(node, EXPRS):
        yield path
    elif isinstance(node, tuple):
        for position, item in enumerate(node):
            yield from places(item, (*path, position))
    elif is_dataclass(node):
        for field in fields(node):
            yield from places(getattr(node, field.name), (*path, field.name))


def put(node: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    head, *rest = path
    if isinstance(head, int):
        return (*node[:head], put(node[head], tuple(rest), value), *node[head + 1 :])
    return replace(node, **{head: put(getattr(node, head), tuple(rest), value)})


def some_plans() -> Iterator[Plan]:
    for subject in SUBJECTS:
        for form in PLANS.get(subject.name, ()):
            arguments = subject.cases[-2]
            yield subject.kernel.lower(*arguments, target="tpu:v6e", config=STEPS[form]).plan
    yield rows_of_two()
    large = tile.spec((1, 2, 4096, 128), "bfloat16")
    yield flash_attention.lower(large, large, large, True, target="tpu:v6e").plan
    pieces = Config({"tm": 64}, loop_type="fori_loop", windows="flowing")
    rows = tile.spec((1024, 256), "bfloat16"), tile.spec((9,), "int32")
    yield jagged_softmax.lower(*rows, target="tpu:v6e", config=pieces).plan
    turns = Config({"g": 8, "tm": 64}, loop_type="fori_loop", windows="flowing")
    yield jagged_sum.lower(*rows, target="tpu:v6e", config=turns).plan
    columns = Config({"tf": 128, "tm": 64}, loop_type="fori_loop", windows="flowing")
    yield jagged_softmax.lower(*rows, target="tpu:v6e", config=columns).plan
    yield held()
    short = tile.spec((32768, 512), "bfloat16"), tile.spec((2049,), "int32")
    yield jagged_softmax.lower(*short, target="tpu:v6e").plan  # groups side by side
    boxed = Config({"t": 128}, loop_type="outer_pipeline", steps="table")
    yield jagged_to_padded.lower(*rows, 128, target="tpu:v5p", config=boxed).plan  # on two cores
    yield frames_added()
    twice = Config({"t": 128}, loop_type="outer_pipeline", windows="aligned")
    yield jagged_to_padded.lower(*rows, 128, target="tpu:v6e", config=twice).plan
    taps = tile.spec((2, 256), "float32")  # the register tile beside a block
    yield causal.lower(rows[0], taps, rows[1], target="tpu:v6e", config=Config({"t": 64})).plan


def test_every_expression_that_is_printed_is_verified() -> None:
    for plan in some_plans():
        text, launch = str(emit(plan)), plan.launches[0]
        some: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
        for path in places(launch):
            some.setdefault(tuple(p for p in path if isinstance(p, str)), []).append(path)
        for path in (path for found in some.values() for path in (found[0], found[-1])):
            broken = replace(plan, launches=(put(launch, path, NOBODY), *plan.launches[1:]))
            try:
                verify(broken)
            except InternalError:
                continue
            assert printed_of(broken) == text, path  # nothing is printed there


def printed_of(plan: Plan) -> str:
    with contextlib.suppress(KeyError):  # a name that the printer does not know
        return str(emit(plan))
    return ""


def holders(kind: Any, seen: set[Any]) -> Iterator[tuple[str, str]]:
    """The fields that may hold an expression, of a type and of those in its fields."""
    if kind in seen:
        return
    seen.add(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        for name, hint in get_type_hints(kind).items():
            if any(e in flattened(hint) for e in EXPRS):
                yield kind.__name__, name
            for part in flattened(hint):
                yield from () if part in EXPRS else holders(part, seen)


def flattened(hint: Any) -> list[Any]:
    return [hint, *(p for a in get_args(hint) for p in flattened(a))]


def owners(launch: Launch) -> Iterator[tuple[str, str]]:
    for path in places(launch):
        names = [i for i, part in enumerate(path) if isinstance(part, str)]
        node: Any = launch
        for part in path[: names[-1]]:
            node = node[part] if isinstance(part, int) else getattr(node, part)
        yield type(node).__name__, path[names[-1]]


def test_those_plans_have_every_field_that_holds_an_expression() -> None:
    of_statements = {c.__name__ for c in (*EXPRS, *STATEMENTS)}
    every = {h for h in holders(Launch, set()) if h[0] not in of_statements}
    met = {owner for plan in some_plans() for launch in plan.launches for owner in owners(launch)}
    assert every - met == UNMET
