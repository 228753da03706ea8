"""keep_inside: positions that were not proved are clamped for loads and asked for stores."""

from __future__ import annotations

from tests.passes.becomes import becomes, loops, stays
from tests.schedule.written import Writing, add, mul
from tilelang.analysis import analyze
from tilelang.ir import KernelIR
from tilelang.ir.verify import verify
from tilelang.language import build
from tilelang.passes.inline_indices import inline_indices
from tilelang.passes.keep_inside import keep_inside

WHOLE = slice(None)


def kept(ir: KernelIR) -> KernelIR:
    return keep_inside(ir, analyze(ir))


def picked(by: int = 0, masked: bool = False) -> KernelIR:
    """y[to[i], :] = x[to[i] + by, :]"""
    k = Writing()
    k.input("x", 6, 128)
    k.input("to", 4, dtype="int32")
    k.output("y", 6, 128)
    with k.grid("i", 0, 4) as i:
        to = k.load("to", i)
        mask = build.binary("lt", i, 3, None) if masked else None
        k.store("y", to, WHOLE, value=k.load("x", add(to, by) if by else to, WHOLE), mask=mask)
    return k.ir()


def test_loads_are_clamped_and_stores_are_asked():
    becomes(
        picked(1),
        kept,
        """
        for i in grid(4):
            y[to[i], 0:128] = x[to[i] + 1, 0:128]
        """,
        """
        for i in grid(4):
            y[minimum(maximum(to[i], 0), 5), 0:128] = x[minimum(maximum(to[i] + 1, 0), 5), 0:128] where to[i] >= 0 and to[i] < 6
        """,
    )


def test_a_condition_joins_that_of_the_author():
    becomes(
        picked(masked=True),
        kept,
        """
        for i in grid(4):
            y[to[i], 0:128] = x[to[i], 0:128] where i < 3
        """,
        """
        for i in grid(4):
            y[minimum(maximum(to[i], 0), 5), 0:128] = x[minimum(maximum(to[i], 0), 5), 0:128] where to[i] >= 0 and to[i] < 6 and i < 3
        """,
    )


def test_positions_that_bound_a_range_are_clamped():
    k = Writing()
    k.input("which", 4, dtype="int32")
    k.input("x", 64)
    k.output("y", 64)
    k.input("offsets", 3, dtype="int32")
    with k.grid("g", 0, 4) as g:
        at = k.load("which", g)
        with k.tile("t", k.load("offsets", at), k.load("offsets", add(at, 1)), 64):
            k.store("y", "t", value=mul(k.load("x", "t"), 2.0))
    becomes(
        k.ir(),
        kept,
        """
        for g in grid(4):
            for t in tile(offsets[which[g]], offsets[which[g] + 1], max_extent=64):
                y[t] = x[t] * 2.0
        """,
        """
        for g in grid(4):
            for t in tile(offsets[minimum(maximum(which[g], 0), 2)], offsets[minimum(maximum(which[g] + 1, 0), 2)], max_extent=64):
                y[t] = x[t] * 2.0
        """,
    )


def test_what_was_proved_stays():
    k = Writing()
    k.input("x", 6)
    k.output("y", 6)
    with k.grid("i", 0, 5) as i:
        k.store("y", i, value=k.load("x", add(i, 1)))
    stays(k.ir(), kept)


def test_facts_speak_of_positions_as_they_were_written():
    """Run after the indices were written out, it finds nothing proved and clamps everything."""
    k = Writing()
    k.input("x", 6)
    k.output("y", 6)
    with k.grid("i", 0, 6) as i:
        at = k.let("at", add(i, 0))
        k.store("y", at, value=k.load("x", at))
    ir, facts = k.ir(), analyze(k.ir())
    early = verify(inline_indices(keep_inside(ir, facts)))
    late = verify(keep_inside(inline_indices(ir), facts))
    assert "maximum" not in loops(early)
    assert "maximum" in loops(late)
