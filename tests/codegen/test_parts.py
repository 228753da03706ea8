"""Two cores share the rows of a step table: no block is stored by both, in any order.

Evidence: Pallas's interpreter, which runs one core after the other; libtpu, ahead of time, for what
v5p accepts.  No TPU is used.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import replace

import numpy as np
import pytest

import tilelang as tile
from examples.jagged.jagged_layer_norm import jagged_layer_norm
from examples.jagged.jagged_to_padded import jagged_to_padded
from examples.jagged.padded_to_jagged import padded_to_jagged
from tests import checks, two_cores
from tests.aot.written import needs_libtpu
from tests.compile_cache import TPU, shared
from tests.planted.trial import named, runnable
from tests.ragged import Layout, Space, every_stratum
from tests.subjects import JAGGED, Subject
from tests.tiers import share
from tilelang.aot import compile_lowered
from tilelang.codegen.pallas.plan.parts import Parts
from tilelang.codegen.pallas.plan.steps.moves import Order
from tilelang.codegen.pallas.plan.steps.parts import parts_of_table
from tilelang.codegen.pallas.plan.types import Dim, Launch, Number, Plan
from tilelang.codegen.pallas.plan.verify import verify
from tilelang.errors import InternalError
from tilelang.ir import At, GridIndex, Load, TileScalar, Type, Var
from tilelang.ir.integers import INT, const
from tilelang.runtime.lowering import Lowered

SPACE = Space(rows=72, groups=5, block=16)
LAYOUTS = every_stratum(SPACE)
TABLE = {"loop_type": "outer_pipeline", "steps": "table"}
# Subject, and the config in which two cores share its table
CONVERSIONS = ("jagged_to_padded", "padded_to_jagged")
HOSTILE = {
    "all rows in one group": [0, 0, 72, 72, 72, 72],
    "all rows in the last group": [0, 0, 0, 0, 0, 72],
    "one row": [0, 0, 1, 1, 1, 1],
    "the last row": [71, 71, 71, 71, 71, 72],
    "no row": [0, 0, 0, 0, 0, 0],
    "boundaries in the middle of blocks": [0, 8, 24, 40, 56, 72],
    "many boundaries in one block": [32, 34, 36, 38, 40, 47],
    "a boundary in the middle of the rows": [0, 1, 36, 36, 71, 72],
    "boundaries of blocks": [0, 16, 32, 32, 48, 64],
}


def arguments_of(subject: Subject, layout: Layout = LAYOUTS[0]) -> tuple[object, ...]:
    return subject.arguments(subject.arrays("float32", rows=72, groups=5), layout)


def configs(subject: Subject) -> dict[str, tile.Config]:
    """By the heads that a step has, and by blocks of groups."""
    found = {"": tile.Config(subject.blocks, **TABLE, cores=2)}
    if subject.within:
        found["within"] = tile.Config(subject.blocks, **TABLE, cores=2, within=subject.within)
    if subject.groups:
        blocks = subject.blocks_in("groups")
        found["groups"] = tile.Config(blocks, loop_type="outer_pipeline", cores=2)
    return found


@functools.cache
def lowered(name: str, how: str) -> Lowered | None:
    """None where no table is shared."""
    subject = named(name)
    try:
        found = subject.kernel.lower(*arguments_of(subject), config=configs(subject)[how])
    except tile.PlanError:
        return None
    return found if two_cores.has_parts(found.source.text) else None


ALL = [
    pytest.param(
        s, how, id=f"{s.name} {how}", marks=() if s.name in CONVERSIONS else pytest.mark.slow
    )
    for s in JAGGED
    for how in configs(s)
]


def sharing(name: str, how: str) -> Lowered:
    found = lowered(name, how)
    if found is None:
        pytest.skip("its cores share no table")
    return found


@pytest.mark.parametrize(
    ("name", "how"),
    [*itertools.product(CONVERSIONS, ("", "groups")), ("jagged_attention", "within"),
     ("jagged_dense_add", "")],
)  # fmt: skip
def test_these_examples_share_their_tables(name, how):
    assert lowered(name, how) is not None


@pytest.mark.parametrize(("subject", "how"), ALL)
def test_in_both_orders(subject, how):
    """On every layout, and with what other groups hold hidden behind NaN and Inf."""
    found, arrays = sharing(subject.name, how), subject.arrays("float32", rows=72, groups=5)
    for text in (found.source.text, two_cores.other_order(found.source.text)):
        call = runnable(found, text)
        assert checks.every_layout(subject, call, arrays, LAYOUTS, "float32") == []


@pytest.mark.parametrize(("subject", "how"), ALL)
def test_every_number_is_stored_by_one_core(subject, how):
    found = sharing(subject.name, how)
    each = [runnable(found, two_cores.alone(found.source.text, core)) for core in (0, 1)]
    for layout in LAYOUTS:
        assert two_cores.stored_once(each, arguments_of(subject, layout)) == "", layout


PIECES = {"t": 16}, {"t": 8, "b": 2}, {"t": 24, "b": 1}


@pytest.mark.parametrize("blocks", share(PIECES, 3))
@pytest.mark.parametrize("kernel", [jagged_to_padded, padded_to_jagged], ids=CONVERSIONS)
def test_hostile_conversions(kernel, blocks):
    rng, back = np.random.default_rng(0), kernel is padded_to_jagged
    array = rng.standard_normal((5, 72, 128) if back else (72, 128)).astype(np.float32)
    config = tile.Config(blocks, loop_type="outer_pipeline", cores=2)
    found = kernel.lower(array, np.zeros(6, np.int32), 72, config=config)
    text = found.source.text
    assert two_cores.has_parts(text)
    orders = [runnable(found, order) for order in (text, two_cores.other_order(text))]
    each = [runnable(found, two_cores.alone(text, core)) for core in (0, 1)]
    for what, offsets in HOSTILE.items():
        exact = np.zeros((72, 128) if back else (5, 72, 128), np.float32)
        for b, (begin, end) in enumerate(itertools.pairwise(offsets)):
            if back:
                exact[begin:end] = array[b, : end - begin]
            else:
                exact[b, : end - begin] = array[begin:end]
        given = (array, np.array(offsets, np.int32), 72)
        assert all((np.asarray(call(*given)) == exact).all() for call in orders), what
        assert two_cores.stored_once(each, given) == "", what


def test_both_cores_have_rows():
    """What is spread evenly is shared evenly, but for a block."""
    rng = np.random.default_rng(0)
    for kernel in (jagged_to_padded, padded_to_jagged):
        back = kernel is padded_to_jagged
        array = rng.standard_normal((8, 32, 128) if back else (256, 128)).astype(np.float32)
        given = (array, np.arange(0, 257, 32, dtype=np.int32), 256 if back else 32)
        found = kernel.lower(*given, config=tile.Config({"t": 16}, **TABLE, cores=2))
        for core in (0, 1):
            call = runnable(found, two_cores.alone(found.source.text, core))
            assert np.isfinite(np.asarray(call(*given))).mean() == 0.5


# ---------------------------------------------------------------- what is planned


BOXED = (tile.spec((32768, 512), "bfloat16"), tile.spec((129,), "int32"), 1024)
BACK = (tile.spec((128, 1024, 512), "bfloat16"), tile.spec((129,), "int32"), 32768)
NORMED = (
    tile.spec((32768, 512), "bfloat16"), tile.spec((512,), "bfloat16"),
    tile.spec((512,), "bfloat16"), tile.spec((129,), "int32"),
)  # fmt: skip


def test_a_chip_with_one_core_has_no_parts():
    for target in ("tpu:v5e", "tpu:v6e", "tpu:7x", None):
        (launch,) = jagged_to_padded.lower(*BOXED, target=target).plan.launches
        assert (launch.cores, launch.parts) == (1, "")


def test_parts_are_asked_for_and_left_out():
    (launch,) = jagged_to_padded.lower(*BOXED, target="tpu:v5p").plan.launches
    assert launch.cores == 2 and isinstance(launch.parts, Parts)
    one = tile.Config({"t": 128}, **TABLE, cores=1)
    (launch,) = jagged_to_padded.lower(*BOXED, target="tpu:v5p", config=one).plan.launches
    assert (launch.cores, launch.parts) == (1, "")


def test_explain_says_how_cores_share_a_table():
    text = jagged_to_padded.explain(*BOXED, target="tpu:v5p")
    assert "  2 cores: each has a part of the steps, which begins a block of out\n" in text


def test_explain_says_why_one_core_has_all_steps():
    config = tile.Config({"tm": 128}, **TABLE)
    text = jagged_layer_norm.explain(*NORMED, target="tpu:v5p", config=config)
    assert "  on one core: blocks of y move with a loop that runs in order\n" in text


def refused(plan: Plan, launch: Launch, **changes: object) -> str:
    with pytest.raises(InternalError) as caught:
        verify(replace(plan, launches=(replace(launch, **changes),)))
    return caught.value.what.removeprefix("internal error: ")


def test_parts_are_verified():
    config = tile.Config({"t": 128}, **TABLE)
    plan = padded_to_jagged.lower(*BACK, target="tpu:v5p", config=config).plan
    (launch,) = plan.launches
    assert isinstance(launch.parts, Parts) and launch.table is not None
    assert verify(plan) is plan
    twice = replace(launch.table, steps="rectangle")
    wrong = "a part of the table is not all that a core does"
    assert refused(plan, launch, table=twice).startswith(wrong)
    assert refused(plan, launch, cores=1) == wrong
    around = (Dim("b", 4, "parallel"), *launch.dims)
    assert refused(plan, launch, dims=around) == wrong
    ((ref, _),) = launch.parts.turns
    for turns in ((), ((ref, ()),), ((ref, (Number(GridIndex("b")),)),)):
        changed = replace(launch.parts, turns=turns)
        wrong = "a block of y may be written by two cores"
        assert refused(plan, launch, parts=changed) == wrong
    ordered = [replace(a, kind="ordered") if a.name == "t" else a for a in launch.axes]
    wrong = "a block of y goes on from one part to the next"
    assert refused(plan, launch.with_axes(ordered)) == wrong
    for name in ("share", "later", "on"):
        changed = replace(launch.parts, **{name: Var("nobody", INT)})
        wrong = "a part of the table reads the value nobody where nothing defines it"
        assert refused(plan, launch, parts=changed) == wrong


def test_every_reason_is_said():
    config = tile.Config({"t": 128}, **TABLE)
    (launch,) = padded_to_jagged.lower(*BACK, target="tpu:v5p", config=config).plan.launches
    table, axes = launch.table, {a.name: a for a in launch.axes}
    assert table is not None
    order, (out,) = Order(axes, (), ("b", "t"), ()), launch.outputs

    def said(*, order=order, table=table, dims=launch.dims, also=(), **changes):
        windows = (*launch.inputs, *also, replace(out, **changes))
        called = dict.fromkeys((w.ref for w in windows), "y")
        found = parts_of_table(table, dims, windows, order, 2, called)
        return found if isinstance(found, str) else ""

    assert said() == ""
    ordered = {**axes, "t": replace(axes["t"], kind="ordered")}
    around = (Dim("b", 4, "arbitrary"), *launch.dims)
    assert said(dims=around) == "every iteration of b goes through all steps"
    assert said(table=replace(table, rows=1)) == "there is one step"
    assert said(also=(replace(out, ref="z_ref"),)) == "y is written to in several ways"
    copied = "steps copy to y themselves, not by blocks that cores could share"
    assert said(far=True) == said(stream="t") == said(flows=True) == copied
    again = "a block of y may be shown again after others"
    picked = Load("offsets", (At(GridIndex("b")),), Type((), "int32"))
    assert said(numbers=(Number(picked), *out.numbers[1:])) == again
    assert said(numbers=(Number(TileScalar("t", "begin")), *out.numbers[1:])) == again
    moves = "blocks of y move with a loop that runs in order"
    assert said(order=replace(order, axes=ordered)) == moves
    still = (Number(const(0)),) * len(out.numbers)
    assert said(numbers=still) == "all steps share the blocks of y"


# ---------------------------------------------------------------- libtpu


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_v5p_compiles_conversions(dtype):
    offsets = tile.spec((129,), "int32")
    for blocks in ({"t": 128}, {"t": 256, "b": 4}):
        config = tile.Config(blocks, loop_type="outer_pipeline")
        for kernel, shape, size in (
            (jagged_to_padded, (32768, 512), 1024),
            (padded_to_jagged, (128, 1024, 512), 32768),
        ):
            found = kernel.lower(
                tile.spec(shape, dtype), offsets, size, config=config, target="tpu:v5p"
            )
            assert two_cores.has_parts(found.source.text)
            compile_lowered(found, worker=shared(TPU))


@needs_libtpu
@pytest.mark.slow
def test_v5p_compiles_every_example_that_shares_a_table():
    for subject in JAGGED:
        arguments = subject.cases[-2]
        for within in {None, subject.within or None}:
            config = tile.Config(**TABLE, cores=2, within=within)
            try:
                found = subject.kernel.lower(*arguments, config=config, target="tpu:v5p")
            except tile.PlanError:
                continue
            if two_cores.has_parts(found.source.text):
                compile_lowered(found, worker=shared(TPU))
