"""flat_scalars: loads from scalar memory lie in their arrays; wide matrices take a row each."""

from __future__ import annotations

from tests.passes.becomes import becomes, loops, stays
from tests.schedule.written import Writing, mul
from tilelang.codegen.pallas.passes.flat_scalars import flat_scalars
from tilelang.codegen.pallas.target import Target
from tilelang.ir import Gather, KernelIR
from tilelang.ir.verify import verify
from tilelang.passes.inline_indices import inline_indices

WHOLE = slice(None)
V6E = Target.of("tpu:v6e")


def flat(ir: KernelIR) -> KernelIR:
    return flat_scalars(ir, V6E)


def looked_up(rows: int) -> KernelIR:
    """A range that begins at slot[g, 1], in a matrix of `rows` rows of 3 numbers."""
    k = Writing()
    k.input("slot", rows, 3, dtype="int32")
    k.input("x", 64)
    k.output("y", 64)
    with k.grid("g", 0, 4) as g:
        begin = k.let("begin", k.load("slot", g, 1))
        with k.tile("t", begin, k.load("slot", g, 2), 64):
            k.store("y", "t", value=mul(k.load("x", "t"), 2.0))
    return inline_indices(k.ir())


def test_a_matrix_that_padding_would_blow_up_is_flat():
    becomes(
        looked_up(200),
        flat,
        """
        for g in grid(4):
            begin: int32[] = slot[g, 1]
            for t in tile(slot[g, 1], slot[g, 2], max_extent=64):
                y[t] = x[t] * 2.0
        """,
        """
        for g in grid(4):
            begin: int32[] = slot_flat[g * 3 + 1]
            for t in tile(slot_flat[g * 3 + 1], slot_flat[g * 3 + 2], max_extent=64):
                y[t] = x[t] * 2.0
        """,
    )
    assert "slot_flat: int32[600] = slot.reshape(600)" in str(flat(looked_up(200)))


def test_a_small_matrix_stays():
    stays(looked_up(20), flat)


def test_ranges_read_numbers_of_what_blocks_are_read_of():
    """Each is read where it lies for that: in scalar memory, and in a window."""
    k = Writing()
    k.input("n", 64, dtype="int32")
    k.output("y", 64, dtype="int32")
    with k.grid("g", 0, 4) as g, k.tile("t", 0, k.load("n", g), 64):
        k.store("y", "t", value=mul(k.load("n", "t"), k.load("n", g)))
    becomes(
        k.ir(),
        flat,
        """
        for g in grid(4):
            for t in tile(0, n[g], max_extent=64):
                y[t] = n[t] * n[g]
        """,
        """
        for g in grid(4):
            for t in tile(0, n_flat[g], max_extent=64):
                y[t] = n[t] * n[g]
        """,
    )


def test_positions_are_numbers_of_what_blocks_are_read_of():
    k = Writing()
    k.input("n", 8, dtype="int32")
    k.input("x", 64)
    k.output("y", 8, 8)
    with k.grid("g", 0, 8) as g:
        k.store("y", g, WHOLE, value=mul(k.load("n", WHOLE), k.load("x", k.load("n", g))))
    becomes(
        k.ir(),
        flat,
        """
        for g in grid(8):
            y[g, 0:8] = cast(n[0:8], float32) * x[n[g]]
        """,
        """
        for g in grid(8):
            y[g, 0:8] = cast(n[0:8], float32) * x[n_flat[g]]
        """,
    )


def test_rows_that_are_picked_are_inside():
    k = Writing()
    k.input("ids", 64, dtype="int32")
    k.input("rank", 8, dtype="int32")
    k.input("x", 32, 128)
    k.output("y", 64, 128)
    with k.tile("t", 0, 64):
        place = k.load("rank", Gather(k.load("ids", "t")))
        k.store("y", "t", WHOLE, value=k.load("x", Gather(place), WHOLE))
    becomes(
        k.ir(),
        flat,
        """
        for t in tile(64):
            y[t, 0:128] = x[rows(rank[rows(ids[t])]), 0:128]
        """,
        """
        for t in tile(64):
            y[t, 0:128] = x[rows(rank[rows(minimum(maximum(ids[t], 0), 7))]), 0:128]
        """,
    )


def test_it_must_run_after_the_indices_are_written_out():
    """A position by a name is not seen to be read from memory, and is not brought inside."""
    k = Writing()
    k.input("ids", 64, dtype="int32")
    k.input("rank", 8, dtype="int32")
    k.input("x", 32, 128)
    k.output("y", 64, 128)
    with k.tile("t", 0, 64):
        place = k.let("place", k.load("ids", "t"))
        index = Gather(k.load("rank", Gather(place)))
        k.store("y", "t", WHOLE, value=k.load("x", index, WHOLE))
    assert "minimum" not in loops(verify(flat(k.ir())))
    assert "minimum" in loops(verify(flat(inline_indices(k.ir()))))
