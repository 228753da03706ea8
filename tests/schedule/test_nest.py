"""Nest: loops written out, the chain of levels, interchange, and what nothing reads."""

from __future__ import annotations

import numpy as np

from tests.schedule.written import INT, Writing, add, full, mul, printed, run
from tilelang.ir import Assign, Const, GridIndex, Loop, Store, Var, statements
from tilelang.ir.chain import Level, chain, interchange
from tilelang.passes.drop_unused import drop_unused
from tilelang.passes.write_out import write_out
from tilelang.schedule.config import Config

WHOLE = slice(None)


def summed(times: int) -> tuple[Loop, ...]:
    """for i: s = s + x[i]; then y[0] = s"""
    k = Writing()
    k.input("x", 8)
    k.output("y", 8)
    with k.grid("once", 0, 1):
        with k.grid("i", 3, 3 + times) as i:
            s = k.carried("s", full((), 0.5))
            k.becomes(s, add(s, k.load("x", i)))
        k.store("y", 0, value=mul(k.after("s", s), 2.0))
    return k.ir().body


def names_of(body: tuple) -> set[str]:
    return {
        e.name
        for stmt in statements(body)
        for e in ([stmt.value] if isinstance(stmt, Assign | Store) else [])
        for e in _vars(e)
    }


def _vars(expr) -> list[Var]:
    own = [expr] if isinstance(expr, Var) else []
    return own + [v for a in getattr(expr, "args", ()) for v in _vars(a)]


def test_a_loop_of_one_step_is_its_body() -> None:
    body = write_out(summed(1), {"once", "i"}, (), {"i": Const(3, INT)})
    assert [type(s) for s in body] == [Assign, Store]
    assert names_of(body) == {"s_new"}
    assert "GridIndex" not in repr(body)


def test_a_loop_of_no_steps_leaves_the_initial_value() -> None:
    (store,) = write_out(summed(0), {"once"}, {"i"}, {})
    assert isinstance(store, Store)
    assert names_of((store,)) == set()


def test_values_after_a_loop_written_out_are_those_of_its_last_statement() -> None:
    k = Writing()
    k.input("x", 8, 128)
    k.output("y", 8, 128)
    with k.tile("tm", 0, 8):
        with k.tile("tk", 0, 128):
            s = k.carried("s", full(("tm", 128), 1.0))
            k.becomes(s, add(s, k.load("x", "tm", WHOLE)))
        k.store("y", "tm", WHOLE, value=k.after("s", s))
    x = np.arange(1024, dtype=np.float32).reshape(8, 128)
    np.testing.assert_array_equal(run(k.ir(), {"x": x})["y"], x + 1)


def test_unread_assignments_carries_and_loops_go() -> None:
    k = Writing()
    k.input("x", 8)
    k.output("y", 8)
    with k.grid("i", 0, 8) as i:
        k.let("unread", k.load("x", i))
        with k.grid("j", 0, 8) as j:
            s = k.carried("s", full((), 0.0))
            k.becomes(s, add(s, k.load("x", j)))
        k.store("y", i, value=k.load("x", i))
    (loop,) = drop_unused(k.ir().body)
    assert [type(s) for s in loop.body] == [Store]


def test_a_carry_that_feeds_a_store_stays() -> None:
    body = summed(4)
    assert drop_unused(body) == body


def nest_of_three() -> Loop:
    k = Writing()
    k.output("y", 8, 8, 8)
    one = full((), 1.0)
    with k.grid("a", 0, 8) as a:
        k.let("before_b", one)
        with k.grid("b", 0, 8) as b:
            with k.grid("c", 0, 8) as c:
                k.store("y", a, b, c, value=one)
            k.let("after_c", one)
    return k.ir().body[0]


def test_the_chain_keeps_what_stands_before_and_after() -> None:
    levels, leaf = chain(nest_of_three(), lambda loop: False)
    assert [level.axis for level in levels] == ["a", "b", "c"]
    assert [[s.name for s in level.before] for level in levels] == [["before_b"], [], []]
    assert [[s.name for s in level.after] for level in levels] == [[], ["after_c"], []]
    assert [type(s) for s in leaf] == [Store]


def test_the_chain_stops_where_it_is_told() -> None:
    levels, leaf = chain(nest_of_three(), lambda loop: loop.axis == "c")
    assert [level.axis for level in levels] == ["a", "b"]
    assert [type(s) for s in leaf] == [Loop, Assign]


def test_the_chain_ends_at_two_loops_in_sequence() -> None:
    k = Writing()
    k.output("y", 8, 8)
    with k.grid("a", 0, 8) as a:
        for name in "bc":
            with k.grid(name, 0, 8):
                k.store("y", a, GridIndex(name), value=full((), 1.0))
    levels, leaf = chain(k.ir().body[0], lambda loop: False)
    assert [level.axis for level in levels] == ["a"]
    assert [s.axis for s in leaf if isinstance(s, Loop)] == ["b", "c"]


def levels_of(*names: str) -> tuple[Level, ...]:
    mark = {n: Assign(f"before_{n}", full((), 0.0), None, n) for n in names}  # type: ignore[arg-type]
    end = {n: Assign(f"after_{n}", full((), 0.0), None, n) for n in names}  # type: ignore[arg-type]
    return tuple(Level(n, (), (mark[n],), (end[n],)) for n in names)


def text(level: Level) -> tuple[str, list[str], list[str]]:
    return level.axis, [s.name for s in level.before], [s.name for s in level.after]


def test_interchange_moves_statements_to_the_loop_outside() -> None:
    levels, _ = interchange(levels_of("a", "b", "c"), (), {"b"})
    assert [text(level) for level in levels] == [
        ("", [], []),
        ("a", ["before_a", "before_b"], ["after_b", "after_a"]),
        ("c", ["before_c"], ["after_c"]),
    ]


def test_interchange_of_the_innermost_loop_adds_to_the_leaf() -> None:
    levels, leaf = interchange(levels_of("a", "b"), (), {"b"})
    assert [text(level) for level in levels] == [("", [], []), ("a", [], [])]
    assert [s.name for s in leaf] == ["before_a", "before_b", "after_b", "after_a"]


def test_interchange_of_every_loop_leaves_no_levels() -> None:
    levels, leaf = interchange(levels_of("a", "b"), (), {"a", "b"})
    assert [text(level) for level in levels] == [("", [], [])]
    assert [s.name for s in leaf] == ["before_a", "before_b", "after_b", "after_a"]


def test_a_loop_of_one_step_is_not_in_the_source() -> None:
    k = Writing()
    k.input("x", 8, 128)
    k.output("y", 8, 128, fill=None)
    with k.tile("tm", 0, 8):
        k.store("y", "tm", WHOLE, value=mul(k.load("x", "tm", WHOLE), 2.0))
    source = printed(k.ir(), Config({"tm": 8}), "tpu:v5e").text
    assert "grid=" not in source
    assert "program_id" not in source
