"""Kernel -> what each axis is, and the sentence that says why."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tilelang as tile
import tilelang.language as hl
from tests.analysis import kernels
from tests.analysis.build import (
    F32,
    INT,
    Draft,
    add,
    begin,
    carry,
    end,
    floats,
    g,
    h,
    let,
    load,
    mul,
    op,
    store,
    sub,
    var,
)
from tests.derivatives import parsed
from tilelang.analysis import analyze
from tilelang.ir import Along, At, Const, Gather, GridIndex, Span, Tensor, TileScalar, Type, View

ALL = Span(0, 48)
SORTED = "y rows of different g are disjoint because offsets is sorted"


@tile.kernel
def row_and_largest(x, o):
    y = hl.zeros([x.shape[0], 17])
    for i in hl.grid(o.shape[0] - 1):
        for t in hl.tile(o[i], o[i + 1]):
            y[t, 0:16] = x[t, :]
            y[t, 16] = x[t, :].amax(1)
    return y


def sentences(ir):
    return {a.name: f"{a.kind}: {a.why}" for a in analyze(ir).axes}


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (
            kernels.grouped_gemm,
            {
                "g": f"parallel: {SORTED}",
                "tm": "parallel: each tm writes its own rows of y",
                "tn": "parallel: each tn writes its own columns of y",
                "tk": "ordered: carries acc, a sum",
            },
        ),
        (
            kernels.jagged_attention,
            {
                "g": f"parallel: {SORTED}",
                "h": "parallel: each h writes its own slices of y",
                "tq": "parallel: each tq writes its own rows of y",
                "tk": "ordered: carries m, l, acc",
            },
        ),
        (
            kernels.separate_ranges,
            {
                "g": "ordered: ranges [starts[g], ends[g]) of tm may overlap",
                "tm": "parallel: each tm writes its own rows of y",
            },
        ),
        (
            kernels.shifted,
            {"g": f"parallel: {SORTED}", "tm": "parallel: each tm writes its own rows of y"},
        ),
        (
            kernels.fixed_ranges,
            {
                "g": "parallel: each g writes its own rows of y",
                "tm": "parallel: each tm writes its own rows of y",
            },
        ),
        (
            kernels.flattened_heads,
            {
                "g": "parallel: each g writes its own elements of y",
                "tn": "parallel: each tn writes its own slices of y",
            },
        ),
        (
            kernels.scatter,
            {"tm": "ordered: a scatter through rows may hit one row of y twice"},
        ),
        (
            kernels.permuted_rows,
            {"g": "ordered: perm[g] may name the same element of y twice"},
        ),
        (
            kernels.permuted_groups,
            {
                "g": "ordered: ranges [offsets[perm[g]], offsets[perm[g] + 1]) of tm may overlap",
                "tm": "parallel: each tm writes its own rows of y",
            },
        ),
        (
            kernels.narrowed,
            {"g": f"parallel: {SORTED}", "tm": "parallel: each tm writes its own rows of y"},
        ),
        (
            kernels.conditional_range,
            {"g": f"parallel: {SORTED}", "tm": "parallel: each tm writes its own rows of y"},
        ),
        (
            kernels.jagged_sum,
            {
                "g": "parallel: each g writes its own rows of y",
                "tf": "parallel: each tf writes its own columns of y",
                "tm": "ordered: carries acc, a sum",
            },
        ),
        (
            kernels.three_levels,
            {
                "h": "parallel: y rows of different h are disjoint because offsets and splits"
                " are sorted",
                "g": f"parallel: {SORTED}",
                "tm": "parallel: each tm writes its own rows of y",
            },
        ),
        (kernels.increment, {"tm": "parallel: each tm writes its own rows of y"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_kernels(kernel, expected):
    assert sentences(kernel()) == expected


def only(ir, axis):
    return sentences(ir)[axis]


@pytest.mark.parametrize("distance", [1, -1])
def test_reading_a_neighbour_that_is_stored_orders(distance):
    why = only(kernels.neighbour(distance), "tm")
    assert why == "ordered: reads y, which another tm may have stored"


def test_store_that_does_not_move_orders():
    d = Draft(y=(64, 48))
    ir = d.kernel(d.grid("g", 0, 4, store("y", 0, ALL)))
    assert only(ir, "g") == "ordered: the same elements of y are stored again"


def test_a_loop_that_runs_once_repeats_nothing():
    d = Draft(y=(64, 48))
    assert only(d.kernel(d.grid("g", 2, 3, store("y", 0, ALL))), "g") == "parallel: it runs once"


def test_store_along_a_static_tile_under_a_grid_is_repeated():
    d = Draft(y=(64, 48))
    ir = d.kernel(d.grid("g", 0, 4, d.tile("tm", 0, 64, store("y", "tm", ALL))))
    assert only(ir, "g") == "ordered: the same elements of y are stored again"


def test_two_stores_one_row_apart_order():
    d = Draft(y=(64,))
    moved = Along("tm", Const(1, INT))
    ir = d.kernel(d.tile("tm", 0, 63, store("y", "tm"), store("y", moved)))
    assert only(ir, "tm") == "ordered: two stores to y may touch the same element in different tm"


def test_two_stores_to_the_same_map_or_to_different_halves_are_apart():
    d = Draft(y=(64, 48))
    body = store("y", "tm", Span(0, 24)), store("y", "tm", Span(24, 48)), store("y", "tm", ALL)
    ir = d.kernel(d.tile("tm", 0, 64, *body))
    assert only(ir, "tm") == "parallel: each tm writes its own rows of y"


def test_two_stores_to_other_columns_say_nothing_of_columns():
    """Those are apart whatever the order of the rows is."""
    ir = parsed(row_and_largest, (tile.spec((40, 16), "float32"), tile.spec((6,), "int32")))[0]
    assert sentences(ir)["i"] == "parallel: y rows of different i are disjoint because o is sorted"


def test_two_stores_to_static_halves_still_repeat_themselves():
    d = Draft(y=(64, 48))
    ir = d.kernel(d.grid("g", 0, 4, store("y", 0, ALL), store("y", 1, ALL)))
    assert only(ir, "g") == "ordered: the same elements of y are stored again"


def test_descending_index_is_injective():
    d = Draft(y=(4, 48))
    ir = d.kernel(d.grid("g", 0, 4, store("y", sub(3, g), ALL)))
    assert only(ir, "g") == "parallel: each g writes its own rows of y"


def test_interleaved_stores_are_not_proved():
    d = Draft(y=(64, 48))
    ir = d.kernel(d.grid("g", 0, 4, store("y", mul(g, 2), ALL), store("y", add(g, 1), ALL)))
    assert only(ir, "g") == "ordered: two stores to y may touch the same element in different g"


def test_colliding_sum_of_two_indices():
    d = Draft(y=(64, 48))
    ir = d.kernel(d.grid("g", 0, 4, d.grid("h", 0, 3, store("y", add(g, h), ALL))))
    assert only(ir, "g") == "ordered: y of different g could not be proved to be disjoint"
    assert only(ir, "h") == "parallel: each h writes its own rows of y"


def test_flat_index_with_a_stride_is_injective_in_both():
    d = Draft(y=(64, 48))
    ir = d.kernel(d.grid("g", 0, 4, d.grid("h", 0, 3, store("y", add(mul(g, 3), h), ALL))))
    assert {a.kind for a in analyze(ir).axes} == {"parallel"}


def test_flat_index_with_too_small_a_stride_is_not():
    d = Draft(y=(64, 48))
    ir = d.kernel(d.grid("g", 0, 4, d.grid("h", 0, 4, store("y", add(mul(g, 3), h), ALL))))
    assert only(ir, "g").startswith("ordered: ")


def test_quotient_alone_is_not_injective():
    d = Draft(y=(64, 48))
    ir = d.kernel(d.grid("g", 0, 4, store("y", op("floordiv", g, 2), ALL)))
    assert only(ir, "g").startswith("ordered: ")


def test_three_digits_of_one_index():
    d = Draft(y=(5, 3, 2))
    digits = op("floordiv", g, 6), op("mod", op("floordiv", g, 2), 3), op("mod", g, 2)
    facts = analyze(d.kernel(d.grid("g", 0, 30, store("y", *digits))))
    assert facts.axis("g").kind == "parallel"
    assert facts.output("y").covered


def test_digits_of_different_radix_do_not_count():
    d = Draft(y=(8, 4))
    digits = op("floordiv", g, 4), op("mod", g, 3)
    assert only(d.kernel(d.grid("g", 0, 32, store("y", *digits))), "g").startswith("ordered: ")


def test_two_positions_of_one_outer_tile_meet():
    """y[t + g] under one tile t: t = 0, g = 1 is t = 1, g = 0, whatever the tiles are."""
    d = Draft(y=(64,))
    ir = d.kernel(d.tile("tm", 0, 60, d.grid("g", 0, 4, store("y", Along("tm", g)))))
    assert only(ir, "g") == "ordered: y of different g could not be proved to be disjoint"


def test_subtiles_of_a_tile():
    d = Draft(y=(64, 48))
    inner = d.tile("ts", begin("tm"), end("tm"), store("y", "ts", ALL))
    facts = analyze(d.kernel(d.tile("tm", 0, 64, inner)))
    assert [a.kind for a in facts.axes] == ["parallel", "parallel"]
    assert facts.axis("ts").nonempty


def test_overlapping_subtiles():
    d = Draft(y=(64, 48))
    inner = d.tile("ts", begin("tm"), add(end("tm"), 1), store("y", "ts", ALL))
    ir = d.kernel(d.tile("tm", 0, 63, inner))
    assert only(ir, "tm") == "ordered: ranges [tm.begin, tm.end + 1) of ts may overlap"


@pytest.mark.parametrize("what", ["begin", "end", "id"])
def test_one_element_per_tile(what):
    d = Draft(y=(65,))
    ir = d.kernel(d.tile("tm", 0, 64, store("y", TileScalar("tm", what))))
    assert only(ir, "tm") == "parallel: each tm writes its own elements of y"


@pytest.mark.parametrize("what", ["count", "block_size"])
def test_constants_of_a_tile_do_not_move(what):
    d = Draft(y=(65,))
    ir = d.kernel(d.tile("tm", 0, 64, store("y", TileScalar("tm", what))))
    assert only(ir, "tm").startswith("ordered: ")


def test_range_of_two_groups_overlaps():
    d = Draft(offsets=(6,), y=(64, 48))
    bounds = load("offsets", g), load("offsets", add(g, 2))
    ir = d.kernel(d.grid("g", 0, 4, d.tile("tm", *bounds, store("y", "tm", ALL))))
    assert only(ir, "g") == "ordered: ranges [offsets[g], offsets[g + 2]) of tm may overlap"


def test_range_widened_by_one_row_overlaps():
    d = Draft(offsets=(5,), y=(64, 48))
    bounds = load("offsets", g), add(load("offsets", add(g, 1)), 1)
    ir = d.kernel(d.grid("g", 0, 4, d.tile("tm", *bounds, store("y", "tm", ALL))))
    assert only(ir, "g") == "ordered: ranges [offsets[g], offsets[g + 1] + 1) of tm may overlap"


def test_shift_by_another_groups_start_overlaps():
    d = Draft(offsets=(5,), starts=(4,), y=(64, 48))
    length = sub(load("offsets", add(g, 1)), load("offsets", g))
    rows = Along("tm", load("starts", g))
    ir = d.kernel(d.grid("g", 0, 4, d.tile("tm", 0, length, store("y", rows, ALL))))
    assert only(ir, "g").startswith("ordered: ")


def test_offsets_that_the_kernel_stores_to_are_not_trusted():
    d = Draft(offsets=(5,), y=(64, 48))
    bounds = load("offsets", g), load("offsets", add(g, 1))
    body = d.tile("tm", *bounds, store("y", "tm", ALL))
    ir = d.kernel(d.grid("g", 0, 4, body, store("offsets", g, value=Const(0, INT))))
    facts = analyze(ir)
    assert facts.axis("g").kind == "ordered"
    assert "reads offsets, which another g may have stored" in facts.axis("g").why
    assert facts.sorted == ()


def test_a_gather_beside_a_moving_dimension_is_apart():
    d = Draft(idx=(64,), y=(4, 64))
    rows = load("idx", "tm")
    ir = d.kernel(d.grid("g", 0, 4, d.tile("tm", 0, 64, store("y", g, Gather(rows)))))
    assert only(ir, "g") == "parallel: each g writes its own rows of y"
    assert only(ir, "tm") == "ordered: a scatter through idx may hit one row of y twice"


def updated(combine, *, other="add", offset=None):
    """hl.atomic_add(y, [0, tn], ...) in tiles of rows, and a second update of the same columns."""
    d = Draft(x=(64, 48), y=(1, 48), z=(1, 48))

    def update(tensor, how):
        place = (Const(0, INT), "tn")
        value = op(how, floats(tensor, *place), floats("x", g, "tn"))
        return replace(store(tensor, *place, value=value), combine=how)

    body = [
        update("y", combine),
        update(*other) if isinstance(other, tuple) else update("z", other),
    ]
    return d.kernel(d.grid("g", 0, 64, d.tile("tn", 0, 48, *body)))


def test_atomic_updates_are_ordered():
    facts = analyze(updated("add"))
    assert facts.axis("g").kind == "ordered"
    assert facts.axis("g").why.startswith("updates elements of y that another g may update too")
    assert facts.axis("tn").kind == "parallel"


def test_updates_by_different_ops_are_ordered():
    assert analyze(updated("add", other=("y", "maximum"))).axis("g").kind == "ordered"


def test_an_update_and_a_plain_read():
    d = Draft(y=(64,))
    value = op("add", floats("y", 0), floats("y", g))
    ir = d.kernel(d.grid("g", 0, 64, replace(store("y", 0, value=value), combine="add")))
    fact = analyze(ir).axis("g")
    assert "reads y, which another g may have stored" in fact.why


def test_store_at_a_carried_position():
    d = Draft(y=(64,))
    step = carry("n", Const(0, INT), add(var("n", INT), 1))
    ir = d.kernel(d.grid("g", 0, 4, store("y", At(var("n", INT))), carries=[step]))
    assert only(ir, "g").startswith("ordered: carries n, a sum; ")


def test_a_value_named_in_the_loop_differs_between_iterations():
    """%count is loaded from a tensor that the kernel stores to: one name, many values."""
    d = Draft(n=(1,), y=(64, 48))
    body = (
        let("count", load("n", 0)),
        store("y", add(var("count", INT), g), ALL),
        store("n", 0, value=add(var("count", INT), 1)),
    )
    why = only(d.kernel(d.grid("g", 0, 4, *body)), "g")
    assert why.startswith("ordered: ")
    assert "reads n, which another g may have stored" in why


def test_a_value_named_outside_the_loop_is_the_same_for_all_iterations():
    d = Draft(n=(1,), y=(64, 48))
    rows = d.grid("g", 0, 4, store("y", add(var("first", INT), g), ALL))
    ir = d.kernel(d.grid("h", 0, 1, let("first", load("n", 0)), rows, store("n", 0)))
    assert only(ir, "g") == "parallel: each g writes its own rows of y"


def test_masks_do_not_make_a_store_injective():
    d = Draft(y=(64, 48))
    mask = op("eq", g, 0, dtype="bool")
    ir = d.kernel(d.grid("g", 0, 4, store("y", 0, ALL, mask=mask)))
    assert only(ir, "g") == "ordered: the same elements of y are stored again"


def test_several_outputs_share_a_clause():
    d = Draft(y=(64, 48), z=(64, 48))
    ir = d.kernel(d.tile("tm", 0, 64, store("y", "tm", ALL), store("z", "tm", ALL)))
    assert only(ir, "tm") == "parallel: each tm writes its own rows of y and z"


def test_an_axis_without_effect():
    d = Draft(x=(64,))
    ir = d.kernel(d.tile("tm", 0, 64, let("v", floats("x", "tm"))))
    assert only(ir, "tm") == "parallel: carries nothing and stores nothing"


# ---------------------------------------------------------------- views


def view(d, name, how, arg, shape):
    d.tensors.append(
        Tensor(name, shape, "float32", "view", d.tensors[0].loc, None, View("y", how, arg))
    )


def test_store_through_a_transposed_view():
    d = Draft(y=(64, 48))
    view(d, "yt", "permute", (1, 0), (48, 64))
    body = store("yt", ALL, "tm"), store("y", "tm", ALL)
    facts = analyze(d.kernel(d.tile("tm", 0, 64, *body)))
    assert facts.axis("tm").kind == "parallel"
    assert facts.output("y").covered and facts.output("yt").covered


def test_transposed_read_of_what_is_stored():
    d = Draft(y=(64, 64))
    view(d, "yt", "permute", (1, 0), (64, 64))
    value = floats("yt", "tm", Span(0, 64))
    ir = d.kernel(d.tile("tm", 0, 64, store("y", "tm", Span(0, 64), value=value)))
    assert only(ir, "tm") == "ordered: reads yt, which another tm may have stored"


def test_reshaped_read_of_what_is_stored():
    d = Draft(y=(64, 48))
    view(d, "flat", "reshape", (3072,), (3072,))
    value = floats("flat", "tm")
    ir = d.kernel(d.tile("tm", 0, 64, store("y", "tm", 0, value=value)))
    assert only(ir, "tm") == "ordered: reads flat, which another tm may have stored"


# ---------------------------------------------------------------- ranges in facts


def test_range_facts_of_attention():
    facts = analyze(kernels.jagged_attention())
    q, kv = facts.axis("tq"), facts.axis("tk")
    assert (q.depends, q.ragged, q.rises) == (("g",), True, ("g",))
    assert not q.nonempty and kv.nonempty
    assert (kv.depends, kv.rises) == (("g", "tq"), ("g",))
    assert facts.sorted == ("offsets",)


def test_range_facts_of_static_axes():
    facts = analyze(kernels.grouped_gemm())
    inner = facts.axis("tk")
    assert (inner.ragged, inner.nonempty) == (False, True)


def test_a_range_that_depends_on_an_axis():
    fact = analyze(kernels.fixed_ranges()).axis("tm")
    assert (fact.ragged, fact.rises, fact.nonempty) == (True, ("g",), True)


def test_shifted_ranges_are_disjoint_where_they_index():
    assert analyze(kernels.shifted()).axis("tm").rises == ("g",)


def test_a_dense_copy_of_a_shifted_range_has_no_common_shift():
    d = Draft(offsets=(5,), x=(64,), y=(4, 64))
    start, last = load("offsets", g), load("offsets", add(g, 1))
    value = floats("x", Along("tm", start))
    ir = d.kernel(
        d.grid("g", 0, 4, d.tile("tm", 0, sub(last, start), store("y", g, "tm", value=value)))
    )
    assert analyze(ir).axis("tm").rises == ()


def test_conditional_ranges_may_be_empty():
    fact = analyze(kernels.conditional_range()).axis("tm")
    assert not fact.nonempty and fact.ragged and fact.rises == ("g",)


def test_sliding_window_runs_at_least_once():
    fact = analyze(kernels.sliding_window()).axis("tk")
    assert fact.nonempty and fact.depends == ("g", "tq")


def test_an_empty_static_range():
    d = Draft(y=(64, 48))
    assert not analyze(d.kernel(d.tile("tm", 0, 0, store("y", "tm", ALL)))).axis("tm").nonempty


# ---------------------------------------------------------------- moving an axis outwards


def test_column_tiles_may_move_out_of_a_ragged_loop():
    facts = analyze(kernels.grouped_gemm())
    assert {a.name for a in facts.axes if a.independent} == {"g", "tn"}


def test_an_axis_parallel_only_for_fixed_outer_indices_may_not_move():
    """y[g + h]: parallel in h for each g, and yet h = 0, g = 1 meets h = 1, g = 0."""
    d = Draft(y=(64, 48))
    ir = d.kernel(d.grid("g", 0, 4, d.grid("h", 0, 3, store("y", add(g, h), ALL))))
    fact = analyze(ir).axis("h")
    assert fact.kind == "parallel" and not fact.independent


def test_a_read_at_another_outer_index_keeps_an_axis_in_place():
    """y[g, t] = y[g - 1, t + 1] is parallel in t and must not have t outermost."""
    d = Draft(y=(64, 48))
    value = floats("y", sub(g, 1), Along("tn", Const(1, INT)))
    ir = d.kernel(d.grid("g", 1, 4, d.tile("tn", 0, 47, store("y", g, "tn", value=value))))
    fact = analyze(ir).axis("tn")
    assert fact.kind == "parallel" and not fact.independent
    assert analyze(ir).axis("g").kind == "ordered"


def test_stores_beside_a_loop_keep_it_in_place():
    """With tn outermost, z[tm] would be stored once per column tile."""
    d = Draft(y=(64, 48), z=(64,))
    columns = d.tile("tn", 0, 48, store("y", "tm", "tn"))
    fact = analyze(d.kernel(d.tile("tm", 0, 64, columns, store("z", "tm")))).axis("tn")
    assert fact.kind == "parallel" and not fact.independent


def test_reads_beside_a_loop_keep_it_in_place():
    d = Draft(y=(64, 48))
    columns = d.tile("tn", 0, 48, store("y", "tm", "tn"))
    rows = d.tile("tm", 0, 64, columns, let("row", floats("y", "tm", ALL)))
    assert not analyze(d.kernel(rows)).axis("tn").independent


def test_user_names_in_sentences():
    d = Draft(y=(64, 48))
    ir = d.kernel(d.grid("g_1", 0, 4, store("y", GridIndex("g_1"), ALL), user="group"))
    assert only(ir, "g_1") == "parallel: each group writes its own rows of y"


def test_carry_of_a_loop_without_stores():
    d = Draft(x=(64,), y=(1,))
    kind = Type((), "float32")
    part = op("max", floats("x", "tm"), shape=(), axis=0, keepdim=False)
    loop = d.tile(
        "tm", 0, 64, carries=[carry("best", Const(0.0, F32), op("maximum", var("best"), part))]
    )
    ir = d.kernel(d.grid("g", 0, 1, loop, store("y", g, value=var("best_out", kind))))
    assert only(ir, "tm") == "ordered: carries best, a maximum"
