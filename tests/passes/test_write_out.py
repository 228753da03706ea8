"""write_out: loops of one step are their bodies, loops of none what they begin with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.passes.becomes import becomes, stays
from tests.schedule.written import INT, Writing, add, full, mul
from tilelang.ir import Const, KernelIR
from tilelang.ir.verify import BrokenIR, verify
from tilelang.passes.write_out import write_out


def summed() -> KernelIR:
    """for once: s = 0.5; for i: s += x[i]; for j: s *= 2; y[0] = s"""
    k = Writing()
    k.input("x", 8)
    k.output("y", 8)
    with k.grid("once", 0, 2):
        with k.grid("i", 3, 4) as i:
            s = k.carried("s", full((), 0.5))
            k.becomes(s, add(s, k.load("x", i)))
        with k.grid("j", 0, 2):
            p = k.carried("p", k.after("s", s))
            k.becomes(p, mul(p, 2.0))
        k.store("y", 0, value=k.after("p", p))
    return k.ir()


def without(once: set[str], never: set[str], index: dict[str, int]):
    values = {axis: Const(value, INT) for axis, value in index.items()}
    return lambda ir: replace(ir, body=write_out(ir.body, once, never, values))


def test_a_loop_of_one_step_is_its_body():
    becomes(
        summed(),
        without({"i"}, set(), {"i": 3}),
        """<b1>""",
        """<a1>""",
    )


def test_a_loop_of_no_steps_is_what_it_begins_with():
    becomes(
        summed(),
        without(set(), {"i"}, {}),
        """<b2>""",
        """<a2>""",
    )


def test_loops_that_vanish_in_a_row():
    becomes(
        summed(),
        without({"i"}, {"j"}, {"i": 3}),
        """<b3>""",
        """<a3>""",
    )


def test_other_loops_stay():
    stays(summed(), without(set(), set(), {}))


def test_an_index_without_its_number_is_found():
    with pytest.raises(BrokenIR, match="an index of i is read outside of its loop"):
        verify(without({"i"}, set(), {})(summed()))
