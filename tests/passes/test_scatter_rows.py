"""scatter_rows: rows at positions that are read from memory go to large arrays one by one."""

from __future__ import annotations

from tests.passes.becomes import becomes, loops, stays
from tests.schedule.written import Writing, add, mul
from tilelang.codegen.pallas.passes.scatter_rows import scatter_rows
from tilelang.codegen.pallas.target import Target
from tilelang.ir import KernelIR
from tilelang.ir.verify import verify
from tilelang.language import build
from tilelang.passes.inline_indices import inline_indices

WHOLE = slice(None)
V6E = Target.of("tpu:v6e")
LARGE, SMALL = 1 << 16, 64


def far(ir: KernelIR) -> KernelIR:
    return scatter_rows(ir, V6E)


def stored(rows: int, part: slice = WHOLE, again: bool = False, masked: bool = False) -> KernelIR:
    """y[index[i], part] = 2 * x[i, part], or more than it was; where index[i] >= 0"""
    k = Writing()
    k.input("index", 32, dtype="int32")
    k.input("x", 32, 128)
    k.input("y", rows, 128, mutated=True)
    with k.grid("i", 0, 32) as i:
        at = k.load("index", i)
        kept = k.let("kept", build.binary("ge", at, 0, None)) if masked else None
        value = mul(k.load("x", i, part), 2.0)
        value = add(value, k.load("y", at, part)) if again else value
        k.store("y", at, part, value=value, mask=kept)
    return k.ir()


def test_a_row_is_scattered():
    becomes(
        stored(LARGE),
        far,
        """
        for i in grid(32):
            y[index[i], 0:128] = x[i, 0:128] * 2.0
        """,
        """
        for i in grid(32):
            y[rows(broadcast(index[i], [1])), 0:128] = x[i, 0:128] * 2.0
        """,
    )


def test_a_row_that_is_read_too_is_gathered():
    becomes(
        stored(LARGE, again=True, masked=True),
        far,
        """
        for i in grid(32):
            kept: bool[] = index[i] >= 0
            y[index[i], 0:128] = x[i, 0:128] * 2.0 + y[index[i], 0:128] where kept
        """,
        """
        for i in grid(32):
            kept: bool[] = index[i] >= 0
            y[rows(broadcast(index[i], [1])), 0:128] = x[i, 0:128] * 2.0 + squeeze(y[rows(broadcast(index[i], [1])), 0:128], axis=0) where index[i] >= 0
        """,
    )


def test_a_small_array_stays_in_blocks():
    stays(stored(SMALL), far)
    stays(stored(SMALL, again=True), far)


def test_it_must_run_after_the_indices_are_written_out():
    """A position by a name is not seen to be read from memory."""
    k = Writing()
    k.input("index", 32, dtype="int32")
    k.input("y", LARGE, 128, mutated=True)
    k.input("x", 32, 128)
    with k.grid("i", 0, 32) as i:
        at = k.let("at", k.load("index", i))
        k.store("y", at, WHOLE, value=k.load("x", i, WHOLE))
    assert "rows(" not in loops(verify(far(k.ir())))
    assert "rows(" in loops(verify(far(inline_indices(k.ir()))))
