"""separate_gathers: every load row by row is a statement of its own, without its mask."""

from __future__ import annotations

from dataclasses import replace

from tests.passes.becomes import becomes, stays
from tests.schedule.written import Writing, add, full, mul, total
from tilelang.codegen.pallas.passes.separate_gathers import separate_gathers
from tilelang.ir import Along, Const, Gather, KernelIR, Loop, Store, Type, Var
from tilelang.language import build
from tilelang.language.shapes import expand_dims

WHOLE = slice(None)


def picked(masked: bool = False) -> KernelIR:
    """y[t] = x[ids[t]] * 2, where ids[t] >= 0"""
    k = Writing()
    k.input("ids", 64, dtype="int32")
    k.input("x", 32, 128)
    k.output("y", 64, 128)
    with k.tile("t", 0, 64):
        ids = k.load("ids", "t")
        mask = expand_dims(build.binary("ge", ids, 0, None), 1, None) if masked else None
        k.store("y", "t", WHOLE, value=mul(k.load("x", Gather(ids), WHOLE, mask=mask), 2.0))
    return k.ir()


def test_a_load_row_by_row_gets_a_statement():
    becomes(
        picked(),
        separate_gathers,
        """
        for t in tile(64):
            y[t, 0:128] = x[rows(ids[t]), 0:128] * 2.0
        """,
        """
        for t in tile(64):
            rows_1: float32[t, 128] = x[rows(ids[t]), 0:128]
            y[t, 0:128] = rows_1 * 2.0
        """,
    )


def test_its_mask_is_a_select():
    becomes(
        picked(masked=True),
        separate_gathers,
        """
        for t in tile(64):
            y[t, 0:128] = load(x[rows(ids[t]), 0:128], mask=expand_dims(ids[t] >= 0, axis=1), other=0) * 2.0
        """,
        """
        for t in tile(64):
            rows_1: int32[t] = ids[t]
            rows_2: float32[t, 128] = x[rows(ids[t]), 0:128]
            y[t, 0:128] = where(expand_dims(rows_1 >= 0, axis=1), rows_2, 0) * 2.0
        """,
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
        """
        for g in grid(1):
            for t in tile(64) carrying s_in = full([128], float32, value=0.0):
                s_new: float32[128] = s_in + sum(x[rows(ids[t]), 0:128], axis=0)
                next s_in = s_new
            after s_out = s_in
            y[0:128] = s_out
        """,
        """
        for g in grid(1):
            for t in tile(64) carrying s_in = full([128], float32, value=0.0):
                rows_1: float32[t, 128] = x[rows(ids[t]), 0:128]
                s_new: float32[128] = s_in + sum(rows_1, axis=0)
                next s_in = s_new
            after s_out = s_in
            y[0:128] = s_out
        """,
    )


def started() -> KernelIR:
    """Picked rows that a loop doubles, which begins with them as they are loaded."""
    k = Writing()
    k.input("ids", 64, dtype="int32")
    k.input("x", 32, 128)
    k.output("y", 64, 128)
    with k.tile("t", 0, 64):
        with k.grid("g", 0, 3):
            s = k.carried("s", k.load("x", Gather(k.load("ids", "t")), WHOLE))
            k.becomes(s, mul(s, 2.0))
        k.store("y", "t", WHOLE, value=k.after("s", s))
    return k.ir()


def test_what_a_loop_begins_with_is_gathered_before_it():
    becomes(
        started(),
        separate_gathers,
        """
        for t in tile(64):
            for g in grid(3) carrying s_in = x[rows(ids[t]), 0:128]:
                s_new: float32[t, 128] = s_in * 2.0
                next s_in = s_new
            after s_out = s_in
            y[t, 0:128] = s_out
        """,
        """
        for t in tile(64):
            rows_1: float32[t, 128] = x[rows(ids[t]), 0:128]
            for g in grid(3) carrying s_in = rows_1:
                s_new: float32[t, 128] = s_in * 2.0
                next s_in = s_new
            after s_out = s_in
            y[t, 0:128] = s_out
        """,
    )


def test_a_name_that_a_loop_carries_is_not_taken():
    becomes(
        _renamed(summed("s")),
        separate_gathers,
        """
        for g in grid(1):
            for t in tile(64) carrying s_in = full([128], float32, value=0.0):
                s_new: float32[128] = s_in + sum(x[rows(ids[t]), 0:128], axis=0)
                next s_in = s_new
            after rows_1 = s_in
            y[0:128] = rows_1
        """,
        """
        for g in grid(1):
            for t in tile(64) carrying s_in = full([128], float32, value=0.0):
                rows_2: float32[t, 128] = x[rows(ids[t]), 0:128]
                s_new: float32[128] = s_in + sum(rows_2, axis=0)
                next s_in = s_new
            after rows_1 = s_in
            y[0:128] = rows_1
        """,
    )


def _renamed(ir: KernelIR) -> KernelIR:
    """The kernel with what its inner loop leaves called rows_1."""
    (outer,) = ir.body
    inner, store = outer.body
    assert isinstance(inner, Loop) and isinstance(store, Store)
    (carry,) = inner.carries
    inner = replace(inner, carries=(replace(carry, out="rows_1"),))
    left = replace(store, value=Var("rows_1", carry.init.type))
    return replace(ir, body=(replace(outer, body=(inner, left)),))


def test_blocks_stay():
    k = Writing()
    k.input("x", 64, 128)
    k.output("y", 64, 128)
    with k.tile("t", 0, 64):
        k.store("y", "t", WHOLE, value=mul(k.load("x", "t", WHOLE), 2.0))
    stays(k.ir(), separate_gathers)


def test_whether_a_row_is_stored_is_read_where_the_row_is():
    k = Writing()
    k.input("ids", 64, dtype="int32")
    k.input("keep", 64, dtype="bool")
    k.input("x", 64, 128)
    k.output("y", 32, 128)
    with k.tile("t", 0, 56):
        moved = Along("t", Const(8, Type((), "int32")))
        kept = expand_dims(k.load("keep", moved), 1, None)
        value = k.load("x", "t", WHOLE)
        k.store("y", Gather(k.load("ids", moved)), WHOLE, value=value, mask=kept)
    becomes(
        k.ir(),
        separate_gathers,
        """
        for t in tile(56):
            y[rows(ids[t + 8]), 0:128] = x[t, 0:128] where expand_dims(keep[t + 8], axis=1)
        """,
        """
        for t in tile(56):
            y[rows(ids[rows(t.index + 8)]), 0:128] = x[t, 0:128] where \
expand_dims(keep[rows(t.index + 8)], axis=1)
        """,
    )
