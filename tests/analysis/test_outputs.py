"""Which outputs are covered: every element is written before one is read."""

from __future__ import annotations

import pytest

from tests.analysis import kernels
from tests.analysis.build import (
    INT,
    Draft,
    add,
    carry,
    floats,
    g,
    h,
    load,
    mul,
    op,
    store,
    var,
)
from tilelang.analysis import analyze
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
    assert y(d.kernel(first, second)).covered


def test_what_an_earlier_launch_reads_is_not():
    d = Draft(y=(64,), z=(64,))
    first = d.tile("ta", 0, 64, store("z", "ta", value=floats("y", "ta")))
    second = d.tile("tb", 0, 64, store("y", "tb"))
    assert not y(d.kernel(first, second)).covered


def test_a_negative_constant_counts_from_the_end():
    d = Draft(y=(64,))
    value = floats("y", Const(-1, INT))
    facts = analyze(d.kernel(d.grid("g", 0, 63, store("y", g, value=value))))
    assert facts.axis("g").kind == "parallel"


def test_carried_values_are_read_in_the_loop():
    d = Draft(y=(64,))
    step = carry("acc", floats("y", 0), add(var("acc"), floats("y", 1)))
    facts = analyze(d.kernel(d.grid("g", 0, 4, d.grid("h", 0, 4, store("y", h), carries=[step]))))
    assert "reads y, which another h may have stored" in facts.axis("h").why
