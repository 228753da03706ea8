"""gather_columns: one position of picked rows is a masked sum of whole rows."""

from __future__ import annotations

from tests.passes.becomes import becomes, loops, stays
from tests.schedule.written import Writing, mul
from tilelang.codegen.pallas.passes.gather_columns import gather_columns
from tilelang.codegen.pallas.passes.separate_gathers import separate_gathers
from tilelang.codegen.pallas.target import Target
from tilelang.ir import Gather, KernelIR
from tilelang.ir.verify import verify

WHOLE = slice(None)
V6E = Target.of("tpu:v6e")


def whole(ir: KernelIR) -> KernelIR:
    return gather_columns(ir, V6E)


def column(width: int, at: int | slice | None, dtype: str = "float32") -> KernelIR:
    """y[t] = table[ids[t], at] * 2; without `at` the column is read from memory, too"""
    k = Writing()
    k.input("ids", 64, dtype="int32")
    k.input("which", 1, dtype="int32")
    k.input("table", 32, width, dtype=dtype)
    shape = (64, width) if isinstance(at, slice) else (64,)
    k.output("y", *shape)
    with k.tile("t", 0, 64):
        place = k.load("which", 0) if at is None else at
        found = k.load("table", Gather(k.load("ids", "t")), place)
        k.store("y", "t", *shape[1:] and (WHOLE,), value=mul(found, 2.0))
    return k.ir()


def test_one_column_is_summed_from_its_register_tile():
    becomes(
        column(300, 130),
        whole,
        """
        for t in tile(64):
            y[t] = table[rows(ids[t]), 130] * 2.0
        """,
        """
        for t in tile(64):
            y[t] = sum(where(expand_dims(arange(128, 256) == 130, axis=0), table[rows(ids[t]), 128:256], 0), axis=1) * 2.0
        """,
    )


def test_a_column_of_the_last_register_tile_and_of_a_narrow_type():
    becomes(
        column(300, 299, "bfloat16"),
        whole,
        """
        for t in tile(64):
            y[t] = cast(table[rows(ids[t]), 299] * 2.0, float32)
        """,
        """
        for t in tile(64):
            y[t] = cast(cast(sum(where(expand_dims(arange(256, 300) == 299, axis=0), cast(table[rows(ids[t]), 256:300], float32), 0), axis=1), bfloat16) * 2.0, float32)
        """,
    )


def test_a_column_that_memory_says():
    becomes(
        column(8, None),
        whole,
        """
        for t in tile(64):
            y[t] = table[rows(ids[t]), which[0]] * 2.0
        """,
        """
        for t in tile(64):
            y[t] = sum(where(expand_dims(arange(8) == which[0], axis=0), table[rows(ids[t]), 0:8], 0), axis=1) * 2.0
        """,
    )


def test_whole_rows_stay():
    stays(column(8, WHOLE), whole)


def test_it_must_run_before_gathers_are_separated():
    early, late = separate_gathers(whole(column(8, 3))), whole(separate_gathers(column(8, 3)))
    assert "rows_1: float32[t, 8]" in loops(verify(early))
    assert "rows_1: float32[t, 8]" not in loops(verify(late))
