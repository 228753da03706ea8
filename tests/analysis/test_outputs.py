"""Which outputs are covered, revisited and read; accesses and index widths."""

from __future__ import annotations

import pytest
import sympy

from tests.analysis import kernels
from tests.analysis.build import (
    INT,
    Draft,
    add,
    carry,
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
from tilelang.analysis import analyze
from tilelang.analysis.symbols import position, table
from tilelang.ir import Along, Const, Gather, Span

ALL = Span(0, 48)


def y(ir):
    return analyze(ir).output("y")


def test_static_sweeps_cover():
    d = Draft(y=(64, 48))
    assert y(d.kernel(d.tile("tm", 0, 64, d.tile("tn", 0, 48, store("y", "tm", "tn"))))).covered
    d = Draft(y=(4, 48))
    assert y(d.kernel(d.grid("g", 0, 4, store("y", g, ALL)))).covered
    d = Draft(y=(8, 4, 48))
    assert y(kernels.flattened_heads()).covered


def test_a_ragged_loop_beside_a_store_does_not_matter():
    assert y(kernels.jagged_sum()).covered


def test_a_shifted_sweep_covers():
    d = Draft(y=(64,))
    moved = Along("tm", Const(-3, INT))
    assert y(d.kernel(d.tile("tm", 3, 67, store("y", moved)))).covered


@pytest.mark.parametrize(
    "build",
    [
        lambda d: d.tile("tm", 0, 63, store("y", "tm", ALL)),
        lambda d: d.tile("tm", 1, 64, store("y", "tm", ALL)),
        lambda d: d.tile("tm", 0, 64, store("y", "tm", Span(0, 47))),
        lambda d: d.tile("tm", *OFFSETS_OF_0, store("y", "tm", ALL)),
        lambda d: d.tile(
            "tm", 0, 64, store("y", "tm", ALL, mask=op("gt", load("n", 0), 0, dtype="bool"))
        ),
        lambda d: d.tile("tm", 0, 64, d.grid("h", 0, load("n", 0), store("y", "tm", ALL))),
        lambda d: d.grid("h", 0, load("n", 0), d.tile("tm", 0, 64, store("y", "tm", ALL))),
        lambda d: d.tile("tm", 0, 64, store("y", Gather(load("idx", "tm")), ALL)),
        lambda d: d.grid("g", 0, 64, store("y", op("mod", g, 32), ALL)),
        lambda d: d.grid("g", 0, 64, store("y", mul(g, 1), g)),
        lambda d: d.grid(
            "g", 0, 4, d.tile("tm", mul(g, 16), add(mul(g, 16), 15), store("y", "tm", ALL))
        ),
    ],
)
def test_not_covered(build):
    d = Draft(y=(64, 48), n=(1,), offsets=(5,), idx=(64,))
    assert not y(d.kernel(build(d))).covered


OFFSETS_OF_0 = load("offsets", 0), load("offsets", 1)


def test_a_diagonal_is_not_covered():
    d = Draft(y=(48, 48))
    assert not y(d.kernel(d.grid("g", 0, 48, store("y", g, g)))).covered


def test_what_is_read_before_it_is_covered_is_seen():
    assert not y(kernels.increment()).covered


def test_what_a_later_launch_reads_is_covered():
    d = Draft(y=(64,), z=(64,))
    first = d.tile("ta", 0, 64, store("y", "ta"))
    second = d.tile("tb", 0, 64, store("z", "tb", value=floats("y", "tb")))
    fact = y(d.kernel(first, second))
    assert fact.covered and fact.read


def test_what_an_earlier_launch_reads_is_not():
    d = Draft(y=(64,), z=(64,))
    first = d.tile("ta", 0, 64, store("z", "ta", value=floats("y", "ta")))
    second = d.tile("tb", 0, 64, store("y", "tb"))
    assert not y(d.kernel(first, second)).covered


def test_injective_and_revisited():
    fact = y(kernels.grouped_gemm())
    assert (fact.injective, fact.revisited, fact.read) == (("g", "tm", "tn"), (), False)
    fact = y(kernels.separate_ranges())
    assert (fact.injective, fact.revisited) == (("tm",), ("g",))


def test_a_store_in_the_reduction_loop_is_revisited():
    d = Draft(x=(64, 32), y=(64,))
    total = op("sum", floats("x", "tm", "tk"), shape=("tm",), axis=1, keepdim=False)
    value = add(floats("y", "tm"), total)
    ir = d.kernel(d.tile("tm", 0, 64, d.tile("tk", 0, 32, store("y", "tm", value=value))))
    fact = y(ir)
    assert (fact.injective, fact.revisited, fact.read) == (("tm",), ("tk",), True)


# ---------------------------------------------------------------- accesses


def test_access_maps():
    facts = analyze(kernels.grouped_gemm())
    x, w = (next(a for a in facts.accesses if a.tensor == name) for name in "xw")
    assert x.map == (position("tm"), position("tk")) and x.axes == ("tm", "tk")
    assert w.axes == ("g", "tk", "tn") and not w.writes
    bounds = [a.map for a in facts.accesses if a.tensor == "offsets"]
    assert bounds == [(position("g"),), (position("g") + 1,)]


def test_access_map_of_a_moved_tile():
    access = next(a for a in analyze(kernels.shifted()).accesses if a.writes)
    moved = position("tm") + table("offsets")(position("g"))
    assert access.map == (moved, sympy.S.Zero) and access.axes == (None, None)


def test_access_map_of_a_gather():
    access = next(a for a in analyze(kernels.scatter()).accesses if a.writes)
    assert access.map[0] is None and access.axes == (None, None)


def test_a_negative_constant_counts_from_the_end():
    d = Draft(x=(64,), y=(4,))
    ir = d.kernel(d.grid("g", 0, 4, store("y", g, value=floats("x", Const(-1, INT)))))
    access = next(a for a in analyze(ir).accesses if a.tensor == "x")
    assert access.map == (sympy.Integer(63),)


def test_carried_values_are_read_in_the_loop():
    d = Draft(y=(64,))
    step = carry("acc", floats("y", 0), add(var("acc"), floats("y", 1)))
    facts = analyze(d.kernel(d.grid("g", 0, 4, d.grid("h", 0, 4, store("y", h), carries=[step]))))
    assert "reads y, which another h may have stored" in facts.axis("h").why


# ---------------------------------------------------------------- index widths


def width(ir, tensor):
    return next((w.largest, w.fits_int32) for w in analyze(ir).widths if w.tensor == tensor)


def test_size_of_a_tensor_bounds_its_offsets():
    assert width(kernels.grouped_gemm(), "x") == (64 * 32, True)


@pytest.mark.parametrize(("rows", "fits"), [(2**21 - 1, True), (2**21, False)])
def test_a_large_tensor(rows, fits):
    d = Draft(y=(rows, 1024))
    ir = d.kernel(d.tile("tm", 0, rows, store("y", "tm", Span(0, 1024))))
    assert width(ir, "y") == (rows * 1024, fits)


def flat(*terms):
    d = Draft(n=(4,), perm=(64,), x=(1000,), y=(4,))
    return d.kernel(d.grid("g", 0, 4, d.grid("h", 0, 8, store("y", g, value=floats("x", *terms)))))


def test_arithmetic_is_bounded_by_the_ranges():
    assert width(flat(sub(mul(g, 8), h)), "x") == (1000, True)


def test_a_difference_may_overflow_on_the_way():
    largest, fits = width(flat(sub(mul(g, 2**30), mul(h, 2**30))), "x")
    assert largest >= 2**31 and not fits


def test_a_sum_of_positions_is_bounded_by_the_dimension():
    assert width(flat(add(mul(load("perm", g), 2**20), h)), "x") == (1000, True)


def test_a_scaled_load_that_is_reduced_again_is_not_bounded():
    scaled = op("mod", mul(load("perm", g), 2**20), 1000)
    assert width(flat(scaled), "x")[1] is False


def test_names_are_looked_through():
    d = Draft(perm=(64,), x=(1000,), y=(4,))
    value = floats("x", op("mod", var("far", INT), 1000))
    body = let("far", mul(load("perm", g), 2**20)), store("y", g, value=value)
    assert width(d.kernel(d.grid("g", 0, 4, *body)), "x")[1] is False


def test_positions_of_a_gather():
    d = Draft(x=(1000,), y=(64,))
    place = op("mod", mul(load("perm", "tm"), 2**20), 1000)
    d.tensors.append(Draft.tensor("perm", (64,)))
    ir = d.kernel(d.tile("tm", 0, 64, store("y", "tm", value=floats("x", Gather(place)))))
    assert width(ir, "x")[1] is False
