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
        """<b1>""",
        """<a1>""",
    )


def test_what_feeds_a_store_stays():
    becomes(
        counted(True),
        used,
        """<b2>""",
        """<a2>""",
    )
    stays(used(counted(True)), used)
