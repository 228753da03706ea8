"""separate_gathers: every load row by row is a statement of its own, without its mask."""

from __future__ import annotations

from tests.passes.becomes import becomes, stays
from tests.schedule.written import Writing, add, full, mul, total
from tilelang.codegen.pallas.passes.separate_gathers import separate_gathers
from tilelang.ir import Gather, KernelIR
from tilelang.language import build

WHOLE = slice(None)


def picked(masked: bool = False) -> KernelIR:
    """y[t] = x[ids[t]] * 2, where ids[t] >= 0"""
    k = Writing()
    k.input("ids", 64, dtype="int32")
    k.input("x", 32, 128)
    k.output("y", 64, 128)
    with k.tile("t", 0, 64):
        ids = k.load("ids", "t")
        mask = build.expand_dims(build.binary("ge", ids, 0, None), 1, None) if masked else None
        k.store("y", "t", WHOLE, value=mul(k.load("x", Gather(ids), WHOLE, mask=mask), 2.0))
    return k.ir()


def test_a_load_row_by_row_gets_a_statement():
    becomes(
        picked(),
        separate_gathers,
        """<b1>""",
        """<a1>""",
    )


def test_its_mask_is_a_select():
    becomes(
        picked(masked=True),
        separate_gathers,
        """<b2>""",
        """<a2>""",
    )


def summed(name: str) -> KernelIR:
    """The sum of picked rows, in a value that the author called `name`."""
    k = Writing()
    k.input("ids", 64, dtype="int32")
    k.input("x", 32, 128)
    k.output("y", 128)
    with k.grid("g", 0, 1):
        with k.tile("t", 0, 64):
            s = k.carried(name, full((128,), 0.0))
            k.becomes(s, add(s, total(k.load("x", Gather(k.load("ids", "t")), WHOLE), 0)))
        k.store("y", WHOLE, value=k.after(name, s))
    return k.ir()


def test_what_a_loop_carries_is_gathered_in_its_body():
    becomes(
        summed("s"),
        separate_gathers,
        """<b3>""",
        """<a3>""",
    )


def test_a_name_that_a_loop_carries_is_not_taken():
    ir = summed("s")
    (outer,) = ir.body
    becomes(
        _renamed(ir),
        separate_gathers,
        """<b4>""",
        """<a4>""",
    )
    assert outer.axis == "g"


def _renamed(ir: KernelIR) -> KernelIR:
    """The kernel with what its inner loop leaves called rows_1."""


def test_blocks_stay():
    k = Writing()
    k.input("x", 64, 128)
    k.output("y", 64, 128)
    with k.tile("t", 0, 64):
        k.store("y", "t", WHOLE, value=mul(k.load("x", "t", WHOLE), 2.0))
    stays(k.ir(), separate_gathers)
