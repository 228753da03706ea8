"""updates: an atomic store holds what it adds, without a load of what is there."""

from __future__ import annotations

from dataclasses import replace

from tests.passes.becomes import becomes, stays
from tests.schedule.written import Writing, add
from tilelang.codegen.triton.passes.updates import updates
from tilelang.ir import Gather, KernelIR, Loop, Store


def summed(atomic: bool) -> KernelIR:
    """y[ids[t]] += x[t], in any order of the iterations where it is atomic."""
    k = Writing()
    k.input("x", 64)
    k.input("ids", 64, dtype="int32")
    k.output("y", 8)
    with k.tile("t", 0, 64):
        rows = Gather(k.load("ids", "t"))
        k.store("y", rows, value=add(k.load("y", rows), k.load("x", "t")))
    ir = k.ir()
    (loop,) = ir.body
    assert isinstance(loop, Loop)
    (store,) = loop.body
    assert isinstance(store, Store)
    store = replace(store, combine="add" if atomic else None)
    return replace(ir, body=(replace(loop, body=(store,)),))


def test_what_is_there_is_not_loaded():
    becomes(
        summed(True),
        updates,
        """
        for t in tile(64):
            y[rows(ids[t])] = y[rows(ids[t])] + x[t]
        """,
        """
        for t in tile(64):
            y[rows(ids[t])] = x[t]
        """,
    )


def test_a_store_that_is_not_atomic_stays():
    stays(summed(False), updates)
