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
        """<b1>""",
        """<a1>""",
    )


def test_a_name_in_use_is_not_taken():
    becomes(
        squares("y_exp"),
        name_shared,
        """<b2>""",
        """<a2>""",
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
        """<b3>""",
        """<a3>""",
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
