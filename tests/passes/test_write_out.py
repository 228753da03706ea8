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
        """
        for once in grid(2):
            for i in grid(3, 4) carrying s_in = full([], float32, value=0.5):
                s_new: float32[] = s_in + x[i]
                next s_in = s_new
            after s_out = s_in
            for j in grid(2) carrying p_in = s_out:
                p_new: float32[] = p_in * 2.0
                next p_in = p_new
            after p_out = p_in
            y[0] = p_out
        """,
        """
        for once in grid(2):
            s_new: float32[] = full([], float32, value=0.5) + x[3]
            for j in grid(2) carrying p_in = s_new:
                p_new: float32[] = p_in * 2.0
                next p_in = p_new
            after p_out = p_in
            y[0] = p_out
        """,
    )


def test_a_loop_of_no_steps_is_what_it_begins_with():
    becomes(
        summed(),
        without(set(), {"i"}, {}),
        """
        for once in grid(2):
            for i in grid(3, 4) carrying s_in = full([], float32, value=0.5):
                s_new: float32[] = s_in + x[i]
                next s_in = s_new
            after s_out = s_in
            for j in grid(2) carrying p_in = s_out:
                p_new: float32[] = p_in * 2.0
                next p_in = p_new
            after p_out = p_in
            y[0] = p_out
        """,
        """
        for once in grid(2):
            for j in grid(2) carrying p_in = full([], float32, value=0.5):
                p_new: float32[] = p_in * 2.0
                next p_in = p_new
            after p_out = p_in
            y[0] = p_out
        """,
    )


def test_loops_that_vanish_in_a_row():
    becomes(
        summed(),
        without({"i"}, {"j"}, {"i": 3}),
        """
        for once in grid(2):
            for i in grid(3, 4) carrying s_in = full([], float32, value=0.5):
                s_new: float32[] = s_in + x[i]
                next s_in = s_new
            after s_out = s_in
            for j in grid(2) carrying p_in = s_out:
                p_new: float32[] = p_in * 2.0
                next p_in = p_new
            after p_out = p_in
            y[0] = p_out
        """,
        """
        for once in grid(2):
            s_new: float32[] = full([], float32, value=0.5) + x[3]
            y[0] = s_new
        """,
    )


def test_other_loops_stay():
    stays(summed(), without(set(), set(), {}))


def test_an_index_without_its_number_is_found():
    with pytest.raises(BrokenIR, match="an index of i is read outside of its loop"):
        verify(without({"i"}, set(), {})(summed()))
