"""drop_unused: only what a store depends on is left."""

from __future__ import annotations

from dataclasses import replace

from tests.passes.becomes import becomes, stays
from tests.schedule.written import Writing, add, full, mul
from tilelang.ir import KernelIR
from tilelang.passes.drop_unused import drop_unused


def used(ir: KernelIR) -> KernelIR:
    return replace(ir, body=drop_unused(ir.body))


def counted(stored: bool) -> KernelIR:
    """for i: n = 0; for j: n += x[j]; y[i] = n or x[i]"""
    k = Writing()
    k.input("x", 8)
    k.output("y", 8)
    with k.grid("i", 0, 8) as i:
        k.let("unread", mul(k.load("x", i), 3.0))
        with k.grid("j", 0, 8) as j:
            n = k.carried("n", full((), 0.0))
            other = k.carried("other", full((), 1.0))
            k.becomes(n, add(n, k.load("x", j)))
            k.becomes(other, mul(other, n))
        k.store("y", i, value=k.after("n", n) if stored else k.load("x", i))
    return k.ir()


def test_a_loop_that_nothing_needs_goes():
    becomes(
        counted(False),
        used,
        """
        for i in grid(8):
            unread: float32[] = x[i] * 3.0
            for j in grid(8) carrying n_in = full([], float32, value=0.0), other_in = full([], float32, value=1.0):
                n_new: float32[] = n_in + x[j]
                other_new: float32[] = other_in * n_in
                next n_in = n_new
                next other_in = other_new
            after n_out = n_in
            after other_out = other_in
            y[i] = x[i]
        """,
        """
        for i in grid(8):
            y[i] = x[i]
        """,
    )


def test_what_feeds_a_store_stays():
    becomes(
        counted(True),
        used,
        """
        for i in grid(8):
            unread: float32[] = x[i] * 3.0
            for j in grid(8) carrying n_in = full([], float32, value=0.0), other_in = full([], float32, value=1.0):
                n_new: float32[] = n_in + x[j]
                other_new: float32[] = other_in * n_in
                next n_in = n_new
                next other_in = other_new
            after n_out = n_in
            after other_out = other_in
            y[i] = n_out
        """,
        """
        for i in grid(8):
            for j in grid(8) carrying n_in = full([], float32, value=0.0):
                n_new: float32[] = n_in + x[j]
                next n_in = n_new
            after n_out = n_in
            y[i] = n_out
        """,
    )
    stays(used(counted(True)), used)
