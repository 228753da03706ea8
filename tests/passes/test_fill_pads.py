"""fill_pads: lanes outside of a range are neutral where they are reduced."""

from __future__ import annotations

from tests.passes.becomes import becomes, on_chain, stays
from tests.schedule.written import Writing, add, full, mul, positions, total
from tilelang.analysis.masks import masked_reads
from tilelang.ir import Const, Expr, KernelIR, Type
from tilelang.language import build, shapes
from tilelang.passes.fill_pads import fill_pads

WHOLE = slice(None)
PARTIAL = on_chain(lambda levels, leaf: fill_pads(levels, leaf, {"t"}))


def largest(x: Expr) -> Expr:
    return build.reduce("max", x, 0, False, None)


def reduced(value, *uses) -> KernelIR:
    """rows = value(x[t]), and the sum over tiles of every use."""
    k = Writing()
    k.input("x", 50, 128)
    k.output("y", 128)
    with k.tile("t", 0, 50):
        rows = k.let("rows", value(k.load("x", "t", WHOLE)))
        acc = k.carried("acc", full((128,), 0.0))
        found = uses[0](rows)
        for use in uses[1:]:
            found = mul(found, use(rows))
        k.becomes(acc, add(acc, found))
    return k.ir()


def chosen(other: float):
    """x where it is positive, else `other`"""
    number = Const(other, Type((), "float32"))
    return lambda x: build.where(build.binary("gt", x, 0.0, None), x, number, None)


def test_a_value_reduced_in_one_way_is_masked_where_it_is_made():
    becomes(
        reduced(lambda x: mul(x, 2.0), lambda x: total(x, 0)),
        PARTIAL,
        """
        for t in tile(50) carrying acc_in = full([128], float32, value=0.0):
            rows: float32[t, 128] = x[t, 0:128] * 2.0
            acc_new: float32[128] = acc_in + sum(rows, axis=0)
            next acc_in = acc_new
        after acc_out = acc_in
        """,
        """
        for t in tile(50) carrying acc_in = full([128], float32, value=0.0):
            rows: float32[t, 128] = where(expand_dims(in_range(axis=t), axis=1), x[t, 0:128] * 2.0, 0.0)
            acc_new: float32[128] = acc_in + sum(rows, axis=0)
            next acc_in = acc_new
        after acc_out = acc_in
        """,
    )


def test_a_value_reduced_in_two_ways_is_masked_where_it_is_used():
    becomes(
        reduced(lambda x: mul(x, 2.0), lambda x: total(x, 0), largest),
        PARTIAL,
        """
        for t in tile(50) carrying acc_in = full([128], float32, value=0.0):
            rows: float32[t, 128] = x[t, 0:128] * 2.0
            acc_new: float32[128] = acc_in + sum(rows, axis=0) * max(rows, axis=0)
            next acc_in = acc_new
        after acc_out = acc_in
        """,
        """
        for t in tile(50) carrying acc_in = full([128], float32, value=0.0):
            rows: float32[t, 128] = x[t, 0:128] * 2.0
            acc_new: float32[128] = acc_in + sum(where(expand_dims(in_range(axis=t), axis=1), rows, 0.0), axis=0) * max(where(expand_dims(in_range(axis=t), axis=1), rows, -inf), axis=0)
            next acc_in = acc_new
        after acc_out = acc_in
        """,
    )


def test_a_select_with_the_same_fill_takes_the_mask_in():
    becomes(
        reduced(chosen(0.0), lambda x: total(x, 0)),
        PARTIAL,
        """
        for t in tile(50) carrying acc_in = full([128], float32, value=0.0):
            rows: float32[t, 128] = where(x[t, 0:128] > 0.0, x[t, 0:128], 0.0)
            acc_new: float32[128] = acc_in + sum(rows, axis=0)
            next acc_in = acc_new
        after acc_out = acc_in
        """,
        """
        for t in tile(50) carrying acc_in = full([128], float32, value=0.0):
            rows: float32[t, 128] = where(x[t, 0:128] > 0.0 and expand_dims(in_range(axis=t), axis=1), x[t, 0:128], 0.0)
            acc_new: float32[128] = acc_in + sum(rows, axis=0)
            next acc_in = acc_new
        after acc_out = acc_in
        """,
    )


def test_a_select_with_another_fill_is_selected_again():
    becomes(
        reduced(chosen(1.0), lambda x: total(x, 0)),
        PARTIAL,
        """
        for t in tile(50) carrying acc_in = full([128], float32, value=0.0):
            rows: float32[t, 128] = where(x[t, 0:128] > 0.0, x[t, 0:128], 1.0)
            acc_new: float32[128] = acc_in + sum(rows, axis=0)
            next acc_in = acc_new
        after acc_out = acc_in
        """,
        """
        for t in tile(50) carrying acc_in = full([128], float32, value=0.0):
            rows: float32[t, 128] = where(expand_dims(in_range(axis=t), axis=1), where(x[t, 0:128] > 0.0, x[t, 0:128], 1.0), 0.0)
            acc_new: float32[128] = acc_in + sum(rows, axis=0)
            next acc_in = acc_new
        after acc_out = acc_in
        """,
    )


def test_a_mask_of_the_authors_stays_where_it_is():
    """Others use what it leaves out."""
    k = Writing()
    k.input("x", 50, 128)
    k.output("y", 50, 128)
    with k.tile("t", 0, 50):
        rows = k.let("rows", mul(k.load("x", "t", WHOLE), 2.0))
        last = shapes.expand_dims(build.binary("eq", positions("t"), 49, None), 1, None)
        zero = Const(0.0, Type((), "float32"))
        own = k.let("own", total(build.where(last, rows, zero, None), 0))
        k.store("y", "t", WHOLE, value=add(rows, own))
    becomes(
        k.ir(),
        PARTIAL,
        """
        for t in tile(50):
            rows: float32[t, 128] = x[t, 0:128] * 2.0
            own: float32[128] = sum(where(expand_dims(t.index == 49, axis=1), rows, 0.0), axis=0)
            y[t, 0:128] = rows + own
        """,
        """
        for t in tile(50):
            rows: float32[t, 128] = x[t, 0:128] * 2.0
            own: float32[128] = sum(where(expand_dims(t.index == 49, axis=1) and expand_dims(in_range(axis=t), axis=1), rows, 0.0), axis=0)
            y[t, 0:128] = rows + own
        """,
    )


def test_whole_tiles_stay():
    ir = reduced(lambda x: mul(x, 2.0), lambda x: total(x, 0), largest)
    stays(ir, on_chain(lambda levels, leaf: fill_pads(levels, leaf, set())))


def test_what_relied_on_lanes_that_are_filled_otherwise_is_masked():
    """Where loads leave out lanes, 0 * x of them is 0, until a maximum asks for -inf there."""
    k = Writing()
    k.input("x", 50, 128)
    k.input("w", 50)
    k.output("y", 128)
    with k.tile("t", 0, 50):
        rows = k.let("rows", mul(k.load("x", "t", WHOLE), 2.0))
        acc = k.carried("acc", full((128,), 0.0))
        weights = shapes.expand_dims(k.load("w", "t"), 1, None)
        found = add(total(mul(weights, rows), 0), largest(rows))
        k.becomes(acc, add(acc, found))
    becomes(
        k.ir(),
        on_chain(lambda levels, leaf: fill_pads(levels, leaf, {"t"}, masked_reads)),
        """
        for t in tile(50) carrying acc_in = full([128], float32, value=0.0):
            rows: float32[t, 128] = x[t, 0:128] * 2.0
            acc_new: float32[128] = acc_in + (sum(expand_dims(w[t], axis=1) * rows, axis=0) + max(rows, axis=0))
            next acc_in = acc_new
        after acc_out = acc_in
        """,
        """
        for t in tile(50) carrying acc_in = full([128], float32, value=0.0):
            rows: float32[t, 128] = where(expand_dims(in_range(axis=t), axis=1), x[t, 0:128] * 2.0, -inf)
            acc_new: float32[128] = acc_in + (sum(where(expand_dims(in_range(axis=t), axis=1), expand_dims(w[t], axis=1) * rows, 0.0), axis=0) + max(rows, axis=0))
            next acc_in = acc_new
        after acc_out = acc_in
        """,
    )
