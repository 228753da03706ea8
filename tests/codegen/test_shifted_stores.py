"""Stores at an index with an offset or a factor: what a block's first visit is follows the block.

`tests.codegen.shifted` has the stores.  Each is compared with the evaluated kernel, for every fill,
in place, in every loop type that takes it, and for types of which 8, 16 and 32 rows make a block.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.codegen import shifted
from tests.codegen.shifted import DENSE, EVERY, FORMS, RAGGED, STARTS, G, Shifted
from tests.planted.bug import Bug
from tests.planted.shifted import SHIFTED
from tests.planted.stale import skip_hidden
from tests.planted.trial import runnable
from tests.tiers import share
from tilelang.codegen.pallas.plan import launch
from tilelang.codegen.pallas.plan.steps import revisits
from tilelang.codegen.pallas.plan.windows import outputs
from tilelang.errors import PlanError

DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "int8": np.int8}
NAMED = {str(s): s for s in EVERY}
LAYOUTS = [
    np.array(layout, np.int32)
    for layout in (
        np.minimum(np.arange(G + 1) * 2, STARTS),
        [0] * 7 + [STARTS] * (G - 6),
        [3] * (G + 1),
        [2, 2, 3, 9, 9, 9, 10, 11, 12, 12, 20, 20, 21, 22, 30, 31, 31, 32, 33, 37, 39],
    )
]
each = pytest.mark.parametrize("store", EVERY, ids=str)


def drawn(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(DTYPES[dtype])


def config(store: Shifted, form: str) -> tile.Config:
    return tile.Config(dict(store.blocks), **FORMS[form])


def wrong(store: Shifted, form: str, fill: float | None, dtype: str, call: Any = None) -> list[int]:
    """The layouts whose result is not that of the evaluated kernel."""
    kernel = store.kernel(fill)
    call = call or functools.partial(kernel, config=config(store, form))
    found = []
    for number, offsets in enumerate(LAYOUTS if store.ragged else LAYOUTS[:1]):
        x = drawn(store.source, dtype, number)
        got, want = np.asarray(call(x, offsets)), np.asarray(kernel.reference(x, offsets))
        if fill is None:  # only rows that are stored mean something
            other = np.asarray(store.kernel(5).reference(x, offsets))
            stored = other == np.asarray(store.kernel(3).reference(x, offsets))
            got, want = np.where(stored, got, other), other
        if not np.array_equal(got.astype(np.float64), want.astype(np.float64)):
            found.append(number)
    return found


@each
def test_rows_that_no_step_stores_keep_the_fill(store):
    assert wrong(store, "default", 3, "float32") == []


@pytest.mark.thorough
@each
@pytest.mark.parametrize("fill", [0, None])
def test_fills(store, fill):
    assert wrong(store, "default", fill, "float32") == []


IN_PLACE = tuple(
    s for s in EVERY if str(s) in ("next_row", "backwards", "sums_of_two", "group_sums")
)


@pytest.mark.parametrize("store", IN_PLACE, ids=str)
@pytest.mark.parametrize("form", ["default", "fori_loop"])
def test_in_place(store, form):
    kernel, x = store.in_place(), drawn(store.source, "float32")
    for offsets in LAYOUTS if store.ragged else LAYOUTS[:1]:
        got = drawn(store.result, "float32", 9)
        want = kernel.reference(x, offsets, got)
        kernel(x, offsets, got, config=config(store, form))
        np.testing.assert_array_equal(got, want)


def takes(store: Shifted, form: str) -> bool:
    """Whether the kernel has such a form, which planning tells without running anything."""
    offsets = LAYOUTS[0]
    try:
        store.kernel(3).source(drawn(store.source, "float32"), offsets, config=config(store, form))
    except PlanError:
        return False
    return True


@pytest.mark.parametrize("store", RAGGED, ids=str)
def test_every_ragged_store_has_its_loop_types(store):
    forms = {form for form in FORMS if takes(store, form)}
    assert forms >= {"default", "table", "rectangle", "worklist", "fori_loop"}


@pytest.mark.parametrize("form", ["rectangle", "worklist", "emit_pipeline", "fori_loop"])
@pytest.mark.parametrize("name", ["group_sums", "odd_group_sums", "centred_sums"])
def test_loop_types(name, form):
    assert wrong(NAMED[name], form, 3, "float32") == []


@pytest.mark.parametrize("form", ["table", "rectangle", "worklist"])
@pytest.mark.parametrize("name", ["group_lanes", "later_group_lanes"])
def test_rows_of_several_groups_share_blocks_of_lanes(name, form):
    assert wrong(NAMED[name], form, 3, "float32") == []


@pytest.mark.thorough
@pytest.mark.parametrize("form", [f for f in FORMS if f != "default"])
@each
def test_every_loop_type(store, form):
    if takes(store, form):
        assert wrong(store, form, 3, "float32") == []


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
@pytest.mark.parametrize("name", ["next_row", "odd_rows", "group_sums"])
def test_narrow_types_have_blocks_of_more_rows(name, dtype):
    assert wrong(NAMED[name], "default", 3, dtype) == []


@pytest.mark.thorough
@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
@each
def test_narrow_types(store, dtype):
    assert wrong(store, "default", 3, dtype) == []


# ---------------------------------------------------------------- stricter than a call


def strict(store: Shifted, form: str) -> Any:
    """The kernel in Pallas's TPU interpreter, in which memory is NaN until it is written."""
    wrapped = store.kernel(3).__wrapped__
    params = pltpu.InterpretParams(detect_races=True, out_of_bounds_reads="raise")
    kernel: Any = tile.kernel(wrapped, interpret=params, checks=False)
    return functools.partial(kernel, config=config(store, form))


def in_whole_blocks(store: Shifted) -> Shifted:
    """The store to an output of whole blocks: JAX 0.10.2's TPU interpreter gives an output that
    shares the memory of an input the rows that it padded the input with."""
    *outer, rows, columns = store.result
    return dataclasses.replace(store, result=(*outer, -(-rows // 8) * 8, columns))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["table", "emit_pipeline", "fori_loop"])
@pytest.mark.parametrize(
    "name",
    share(["next_row", "odd_rows", "backwards", "group_sums", "tile_sums"], 2, 1, "thorough"),
)
def test_in_the_strict_interpreter(name, form):
    store = in_whole_blocks(NAMED[name])
    if not takes(store, form):
        pytest.skip("no such form")
    try:
        assert wrong(store, form, 3, "float32", strict(store, form)) == []
    finally:
        pltpu.reset_tpu_interpret_mode_state()


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize("name", ["next_row", "backwards", "group_sums", "sums_round"])
def test_the_real_compiler_takes_them(name):
    store = NAMED[name]
    x, offsets = tile.spec(store.source, "float32"), tile.spec((G + 1,), "int32")
    assert compiled(store.kernel(3), x, offsets, target="tpu:v6e") is not None


# ---------------------------------------------------------------- what is refused


def message(kernel: Any, x: np.ndarray) -> str:
    with pytest.raises(PlanError) as caught:
        kernel.source(x, config=tile.Config(loop_type="grid"))
    lines = [line for line in str(caught.value).splitlines() if not line.startswith("  File")]
    return "\n".join(lines)


@tile.kernel
def twice(x):
    y = hl.zeros([60, 256], dtype=x.dtype)
    for b in hl.grid(4):
        for i in hl.grid(30):
            y[(b + i) // 2, 0:128] = x[b, i, 0:128]
    return y


@tile.kernel
def thirds(x):
    y = hl.zeros([60, 256], dtype=x.dtype)
    for b in hl.grid(4):
        for i in hl.grid(2):
            y[(2 * b + i) // 3, 0:128] = x[b, i, 0:128]
    return y


def test_a_block_that_comes_again_is_refused():
    assert message(twice, drawn((4, 30, 256), "float32")) == (
        "blocks of y would be visited again after other blocks, since its index does not rise or "
        "fall with the loops, and a store leaves part of a block as it was\n"
        "    y[(b + i) // 2, 0:128] = x[b, i, 0:128]\n"
        "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "  hint: let the loops go through y in the order of its dimensions, or use "
        "loop_type='fori_loop'"
    )


def test_a_first_visit_that_no_step_can_tell_is_refused():
    assert message(thirds, drawn((4, 2, 256), "float32")) == (
        "whether a step is the first at its block of y depends on several loops at once\n"
        "    y[(2 * b + i) // 3, 0:128] = x[b, i, 0:128]\n"
        "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
        "  hint: let one loop go through each dimension of y, or use loop_type='fori_loop'"
    )


@pytest.mark.parametrize(("kernel", "count"), [(twice, 30), (thirds, 2)], ids=["twice", "thirds"])
@pytest.mark.parametrize("form", ["default", "fori_loop"])
def test_the_hint_helps(kernel, count, form):
    x = drawn((4, count, 256), "float32")
    got = kernel(x, config=tile.Config(**FORMS[form]))
    np.testing.assert_array_equal(np.asarray(got), kernel.reference(x))


# ---------------------------------------------------------------- planted bugs


def lowered(planted: Bug) -> Any:
    store = NAMED[planted.subject]
    arguments = drawn(store.source, "float32"), LAYOUTS[0]
    return store.kernel(3).lower(*arguments, config=config(store, planted.form))


@pytest.mark.parametrize("planted", SHIFTED, ids=str)
def test_a_planted_bug_is_caught(planted):
    low, store = lowered(planted), NAMED[planted.subject]
    call = runnable(low, planted.plant(low.source.text))
    found = wrong(store, planted.form, 3, "float32", call)
    if not found and "visit" in planted.what:
        skip_hidden()
    assert found != []


def _of_the_axis(window, order, axis):
    """Taken for a block of its own: a row of several in one."""
    return all(a in window.axes for a in order.around(axis) if a in order.columns)


def test_planted_a_sweep_of_rows_that_share_a_block(monkeypatch):
    """What follows such steps is asked of them too: with that question left out they lose rows."""
    for module in (revisits, outputs):
        monkeypatch.setattr(module, "owns_around", _of_the_axis)
    assert not takes(NAMED["group_lanes"], "table")
    swept = launch.replace
    monkeypatch.setattr(
        launch, "replace", lambda one, **new: one if "swept" in new else swept(one, **new)
    )
    assert wrong(NAMED["group_lanes"], "table", 3, "float32") != []


def test_every_store_is_listed_once():
    assert len(NAMED) == len(EVERY) == len(DENSE) + len(RAGGED)
    assert all(getattr(shifted, name) is s.stores for name, s in NAMED.items())
