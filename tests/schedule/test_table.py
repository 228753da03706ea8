"""The step table: which rows the builder writes, and that no offsets make it write past them.

The builder is the generated one: its scalar loops run in plain Python on NumPy columns that know
their length.
"""

from __future__ import annotations

import functools
import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedule.written import Writing, add, full, mul, planned, printed, total
from tilelang.errors import PlanError
from tilelang.ir import GridIndex, KernelIR
from tilelang.schedule.config import Config

WHOLE = slice(None)
ROWS, GROUPS, BLOCK = 50, 5, 16
LIMIT = -(-ROWS // BLOCK)


def scaled(fill: float | None = 0, most: int | None = None) -> KernelIR:
    """y[tm] = 2 x[tm] for every group"""
    k = Writing("scaled")
    begin, end = k.offsets("offsets", GROUPS)
    k.input("x", ROWS, 128)
    k.output("y", ROWS, 128, fill=fill)
    with k.grid("g", 0, GROUPS), k.tile("tm", begin, end, most):
        k.store("y", "tm", WHOLE, value=mul(k.load("x", "tm", WHOLE), 2.0))
    return k.ir()


def summed() -> KernelIR:
    """out[g] = sum of x[tm]: an empty group needs a step"""
    k = Writing("summed")
    begin, end = k.offsets("offsets", GROUPS)
    k.input("x", ROWS, 128)
    k.output("out", GROUPS, 128, fill=None)
    with k.grid("g", 0, GROUPS) as g:
        with k.tile("tm", begin, end):
            acc = k.carried("acc", full((128,), 0.0))
            k.becomes(acc, add(acc, total(k.load("x", "tm", WHOLE), 0)))
        k.store("out", g, WHOLE, value=k.after("acc", acc))
    return k.ir()


def both() -> KernelIR:
    """y[tm] and, beside the loop, z[g]"""
    k = Writing("both")
    begin, end = k.offsets("offsets", GROUPS)
    k.input("x", ROWS, 128)
    k.output("y", ROWS, 128)
    k.output("z", GROUPS, 128, fill=None)
    with k.grid("g", 0, GROUPS) as g:
        k.store("z", g, WHOLE, value=full((128,), 1.0))
        with k.tile("tm", begin, end):
            k.store("y", "tm", WHOLE, value=mul(k.load("x", "tm", WHOLE), 2.0))
    return k.ir()


def squared() -> KernelIR:
    """y[tq] from every pair of tiles of a group, as attention visits them"""
    k = Writing("squared")
    begin, end = k.offsets("offsets", GROUPS)
    k.input("x", ROWS, 128)
    k.output("y", ROWS, 128)
    with k.grid("g", 0, GROUPS), k.tile("tq", begin, end):
        with k.tile("tk", begin, end):
            acc = k.carried("acc", full(("tq", 128), 0.0))
            row = total(k.load("x", "tk", WHOLE), 0)
            k.becomes(acc, add(acc, row))
        k.store("y", "tq", WHOLE, value=k.after("acc", acc))
    return k.ir()


def phased(sums: bool = False, most: int | None = None) -> KernelIR:
    """y[t] = x[t] - sum of x[tm], perhaps also out[g] = that sum: two loops in a row"""
    k = Writing("phased")
    begin, end = k.offsets("offsets", GROUPS)
    k.input("x", ROWS, 128)
    k.output("y", ROWS, 128)
    k.output("out", GROUPS, 128, fill=None)
    with k.grid("g", 0, GROUPS) as g:
        with k.tile("tm", begin, end, most):
            acc = k.carried("acc", full((128,), 0.0))
            k.becomes(acc, add(acc, total(k.load("x", "tm", WHOLE), 0)))
        with k.tile("tq", begin, end, most):
            summed_up = k.after("acc", acc)
            k.store("y", "tq", WHOLE, value=mul(k.load("x", "tq", WHOLE), summed_up))
        if sums:
            k.store("out", g, WHOLE, value=k.after("acc", acc))
    return k.ir()


KERNELS = {
    "cover": scaled(),
    "cover, short groups": scaled(most=BLOCK),
    "live": scaled(fill=None),
    "live, short groups": scaled(fill=None, most=BLOCK),
    "at least one": summed(),
    "beside": both(),
    "two ragged columns": squared(),
    "phases": phased(),
    "phases, short groups": phased(most=BLOCK),
    "phases, at least one": phased(sums=True),
    "phases, at least one, short groups": phased(sums=True, most=BLOCK),
}
BLOCKS = {"tm": BLOCK, "tq": BLOCK, "tk": BLOCK}


class Scalars:
    """What stands for jnp and jax.lax while the builder runs on Python integers."""

    maximum, minimum = staticmethod(max), staticmethod(min)

    @staticmethod
    def where(condition, a, b):
        return a if condition else b

    @staticmethod
    def div(a, b):
        return abs(a) // b * (1 if a >= 0 else -1)  # as lax.div: towards zero

    @staticmethod
    def fori_loop(first, stop, body, state):
        for i in range(first, stop):
            state = body(i, state)
        return state

    int32 = staticmethod(int)


class Bounded(list):
    """Memory that refuses what is outside of it; Python would count from the end."""

    def __getitem__(self, i):
        assert 0 <= i < len(self), f"read at {i} of {len(self)}"
        return super().__getitem__(i)

    def __setitem__(self, i, value):
        assert 0 <= i < len(self), f"write at {i} of {len(self)}"
        super().__setitem__(i, value)


def config_of(ir: KernelIR) -> Config:
    names = {a.name for a in ir.axes if a.kind == "tile"}
    return Config({n: b for n, b in BLOCKS.items() if n in names})


@functools.cache
def builder(name: str):
    """offsets -> rows of the table, by the code in the generated kernel; and the rows it has."""
    ir = KERNELS[name]
    plan = planned(ir, config_of(ir))
    table = plan.launches[0].table
    assert table is not None
    text = printed(ir, config_of(ir)).text
    body = re.search(r"# Step table.*?\n(    def .*?)\n\n    def step", text, re.DOTALL)
    assert body is not None
    columns = [f"{c.axis}_of" for c in table.outer]
    columns += ["phase_of", *(f"{t.name}_of" for t in table.tracks)] if table.tracks else []
    assert len(columns) == table.width
    source = f"def build(offsets, {', '.join(columns)}):\n{body[1]}\n    return steps\n"
    scope: dict = {"jnp": Scalars, "jax": type("jax", (), {"lax": Scalars})}
    exec(compile(source, "<builder>", "exec"), scope)

    def rows(offsets) -> list[tuple[int, ...]]:
        written = [Bounded([None] * table.rows) for _ in columns]
        count = scope["build"](Bounded(map(int, offsets)), *written)
        assert 0 <= count <= table.rows
        return list(zip(*(list(c)[:count] for c in written), strict=True))

    return rows


sorted_offsets = st.lists(st.integers(0, ROWS), min_size=GROUPS + 1, max_size=GROUPS + 1).map(
    sorted
)
garbage = st.lists(
    st.sampled_from([-(2**31), -17, -1, 0, 1, 15, 16, 17, 49, 50, 51, 63, 64, 65, 200, 2**31 - 1])
    | st.integers(-60, 120),
    min_size=GROUPS + 1,
    max_size=GROUPS + 1,
)


def tiles(offsets, g: int) -> range:
    """Tiles that hold a row of the group."""
    begin, end = offsets[g], offsets[g + 1]
    return range(begin // BLOCK, -(-end // BLOCK)) if end > begin else range(0)


@pytest.mark.parametrize("name", KERNELS)
@given(offsets=sorted_offsets)
def test_rows_bound_the_steps_of_sorted_offsets(name: str, offsets: list[int]) -> None:
    assert None not in itertools.chain.from_iterable(builder(name)(offsets))


@pytest.mark.parametrize("name", KERNELS)
@given(offsets=garbage)
def test_no_offsets_make_the_builder_write_past_the_table(name: str, offsets: list[int]) -> None:
    builder(name)(offsets)


@pytest.mark.parametrize("name", KERNELS)
@given(offsets=garbage | sorted_offsets)
def test_every_tile_exists(name: str, offsets: list[int]) -> None:
    for g, *rest in builder(name)(offsets):
        assert 0 <= g < GROUPS
        assert all(0 <= tile < LIMIT for tile in rest)


@given(offsets=sorted_offsets)
def test_a_live_table_has_the_tiles_of_every_group_in_order(offsets: list[int]) -> None:
    expected = [(g, t) for g in range(GROUPS) for t in tiles(offsets, g)]
    assert builder("live")(offsets) == expected


@given(offsets=sorted_offsets)
def test_loops_in_a_row_have_their_rows_one_after_the_other(offsets: list[int]) -> None:
    """The statistics of a group, then its results; tiles of no group get results, too."""
    rows = builder("phases")(offsets)
    statistics = [(g, t) for g, phase, t, _ in rows if phase == 0]
    assert statistics == [(g, t) for g in range(GROUPS) for t in tiles(offsets, g)]
    results = [(g, t) for g, phase, _, t in rows if phase == 1]
    assert [r for r in results if r[1] in tiles(offsets, r[0])] == statistics
    assert {t for _, t in results} == set(range(LIMIT))
    assert [(g, phase) for g, phase, *_ in rows] == sorted((g, phase) for g, phase, *_ in rows)


@pytest.mark.parametrize("name", [n for n in KERNELS if n.startswith("phases")])
@given(offsets=sorted_offsets)
def test_blocks_of_the_results_are_visited_once_and_in_order(name: str, offsets: list[int]) -> None:
    """In rows of the statistics the output is at the tile of the next result, or of the last."""
    rows = builder(name)(offsets)
    shown = [t for *_, t in rows]
    assert shown == sorted(shown)
    for (g, phase, *_, t), following in itertools.pairwise(rows):
        if phase == 0 and following[0] == g:
            assert following[-1] == t
    for _, phase, tile, result in rows:
        assert phase == 0 or tile == result


@given(offsets=sorted_offsets)
def test_of_loops_in_a_row_the_last_one_has_a_step_in_every_group(offsets: list[int]) -> None:
    rows = builder("phases, at least one")(offsets)
    assert {g for g, phase, *_ in rows if phase == 1} == set(range(GROUPS))


@given(offsets=sorted_offsets)
def test_a_covering_table_also_visits_every_tile_of_no_group(offsets: list[int]) -> None:
    rows = builder("cover")(offsets)
    live = [(g, t) for g in range(GROUPS) for t in tiles(offsets, g)]
    assert [row for row in rows if row in live] == live
    assert [t for t, _ in itertools.groupby(t for _, t in rows)] == list(range(LIMIT))


@given(offsets=sorted_offsets)
def test_an_empty_group_gets_one_step_where_it_needs_one(offsets: list[int]) -> None:
    rows = builder("at least one")(offsets)
    for g in range(GROUPS):
        own = [t for group, t in rows if group == g]
        assert own == list(tiles(offsets, g)) or (len(own) == 1 and not tiles(offsets, g))
    assert [g for g, _ in rows] == sorted(g for g, _ in rows)


@given(offsets=sorted_offsets)
def test_two_ragged_columns_visit_every_pair(offsets: list[int]) -> None:
    rows = builder("two ragged columns")(offsets)
    expected = [
        (g, q, k) for g in range(GROUPS) for q in tiles(offsets, g) for k in tiles(offsets, g)
    ]
    assert [row for row in rows if row in expected] == expected


def test_steps_that_share_a_tile_are_neighbours() -> None:
    rows = builder("cover")([3, 3, 20, 20, 21, 40])
    assert [t for t, _ in itertools.groupby(t for _, t in rows)] == [0, 1, 2, 3]


def test_a_table_that_does_not_fit_is_refused_with_the_sum() -> None:
    k = Writing("long")
    k.input("offsets", 3, dtype="int32")
    g = GridIndex("g")
    k.input("x", 1 << 21, 128)
    k.output("y", 1 << 21, 128)
    with k.grid("g", 0, 2), k.tile("tm", k.load("offsets", g), k.load("offsets", add(g, 1))):
        k.store("y", "tm", WHOLE, value=k.load("x", "tm", WHOLE))
    with pytest.raises(PlanError) as caught:
        planned(k.ir(), Config({"tm": 8}, loop_type="outer_pipeline"), "tpu:v5e")
    assert caught.value.what == (
        "the step table of long needs 262,145 rows of 2 numbers, 2,097,160 bytes; tpu:v5e has "
        "1,023,988 bytes of scalar memory left"
    )
    assert caught.value.hint.startswith("use larger blocks, give hl.tile(..., max_extent=)")
    by_default = planned(k.ir(), Config({"tm": 8}), "tpu:v5e")
    assert by_default.config.loop_type == "emit_pipeline"  # which needs no table
    on_a_laptop = planned(k.ir(), Config({"tm": 8}, loop_type="outer_pipeline"), "cpu")
    assert on_a_laptop.launches[0].table is not None  # which has no memory that could be short


def test_the_rectangle_has_max_extent_tiles_for_every_group() -> None:
    config = Config({"tm": BLOCK}, steps="rectangle")
    for most, tiles_each in ((None, LIMIT), (BLOCK, 2), (2 * BLOCK, 3)):
        table = planned(scaled(most=most), config).launches[0].table
        assert table is not None
        assert (table.steps, table.rows) == ("rectangle", GROUPS * tiles_each)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_written_is_what_is_planned(seed: int) -> None:
    rng = np.random.default_rng(seed)
    offsets = np.sort(rng.integers(0, ROWS + 1, GROUPS + 1))
    plan = planned(KERNELS["cover"], config_of(KERNELS["cover"]))
    table = plan.launches[0].table
    assert table is not None
    assert table.rows == LIMIT + GROUPS - 1
    assert len(builder("cover")(offsets)) <= table.rows
