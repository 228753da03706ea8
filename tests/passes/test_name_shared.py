"""name_shared: what a statement uses several times is computed once, under a new name."""

from __future__ import annotations

from tests.passes.becomes import becomes, loops, stays
from tests.schedule.written import Writing, add, full, mul, total
from tilelang.ir import KernelIR
from tilelang.ir.verify import verify
from tilelang.language import build
from tilelang.passes.inline_indices import inline_indices
from tilelang.passes.name_shared import name_shared

WHOLE = slice(None)


def squares(taken: str = "other") -> KernelIR:
    """y[t] = exp(x[t]) * exp(x[t]), one node used twice; `taken` is a name in use."""
    k = Writing()
    k.input("x", 64)
    k.output("y", 64)
    with k.tile("t", 0, 64):
        k.let(taken, full((), 1.0))
        e = build.unary("exp", k.load("x", "t"), None)
        k.store("y", "t", value=mul(e, e))
    return k.ir()


def test_a_shared_value_gets_a_name():
    becomes(
        squares(),
        name_shared,
        """
        for t in tile(64):
            other: float32[] = full([], float32, value=1.0)
            y[t] = exp(x[t]) * exp(x[t])
        """,
        """
        for t in tile(64):
            other: float32[] = full([], float32, value=1.0)
            y_exp: float32[t] = exp(x[t])
            y[t] = y_exp * y_exp
        """,
    )


def test_a_name_in_use_is_not_taken():
    becomes(
        squares("y_exp"),
        name_shared,
        """
        for t in tile(64):
            y_exp: float32[] = full([], float32, value=1.0)
            y[t] = exp(x[t]) * exp(x[t])
        """,
        """
        for t in tile(64):
            y_exp: float32[] = full([], float32, value=1.0)
            y_exp_1: float32[t] = exp(x[t])
            y[t] = y_exp_1 * y_exp_1
        """,
    )


def test_what_a_loop_carries_is_named_in_its_body():
    k = Writing()
    k.input("x", 64, 128)
    k.output("y", 128)
    with k.grid("g", 0, 1):
        with k.tile("t", 0, 64):
            s = k.carried("s", full((128,), 0.0))
            rows = k.load("x", "t", WHOLE)
            k.becomes(s, add(s, add(total(rows, 0), total(mul(rows, rows), 0))))
        k.store("y", WHOLE, value=k.after("s", s))
    becomes(
        k.ir(),
        name_shared,
        """
        for g in grid(1):
            for t in tile(64) carrying s_in = full([128], float32, value=0.0):
                s_new: float32[128] = s_in + (sum(x[t, 0:128], axis=0) + sum(x[t, 0:128] * x[t, 0:128], axis=0))
                next s_in = s_new
            after s_out = s_in
            y[0:128] = s_out
        """,
        """
        for g in grid(1):
            for t in tile(64) carrying s_in = full([128], float32, value=0.0):
                s_x: float32[t, 128] = x[t, 0:128]
                s_new: float32[128] = s_in + (sum(s_x, axis=0) + sum(s_x * s_x, axis=0))
                next s_in = s_new
            after s_out = s_in
            y[0:128] = s_out
        """,
    )


def test_scalars_and_equal_values_stay():
    """Equal is not shared: the author wrote it twice, and an index costs nothing."""
    k = Writing()
    k.input("x", 64)
    k.output("y", 64)
    with k.grid("i", 0, 64) as i:
        one = k.load("x", i)
        k.store("y", i, value=mul(one, one))
    stays(k.ir(), name_shared)


def test_it_must_run_before_passes_that_rebuild():
    """Sharing is that of nodes: a pass that rebuilds them leaves nothing to name."""
    late = verify(name_shared(inline_indices(squares())))
    assert "y_exp" not in loops(late)
    assert "y_exp" in loops(verify(inline_indices(name_shared(squares()))))
