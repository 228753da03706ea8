"""drop_detached: a plan is made of the kernel that computes the same."""

from __future__ import annotations

from tests.passes.becomes import becomes, stays
from tests.schedule.written import Writing, add, mul
from tilelang.language import build
from tilelang.passes.drop_detached import drop_detached


def written(detached: bool):
    k = Writing()
    k.input("x", 8)
    k.output("y", 8)
    with k.tile("t", 0, 8):
        x = k.load("x", "t")
        inner = build.unary("detach", add(x, 1.0), None) if detached else add(x, 1.0)
        value = build.unary("detach", mul(inner, x), None) if detached else mul(inner, x)
        k.store("y", "t", value=mul(value, x))
    return k.ir()


def test_only_what_is_detached_is_left():
    before = """
        for t in tile(8):
            y[t] = detach(detach(x[t] + 1.0) * x[t]) * x[t]
        """
    after = """
        for t in tile(8):
            y[t] = (x[t] + 1.0) * x[t] * x[t]
        """
    becomes(written(True), drop_detached, before, after)


def test_others_stay():
    stays(written(False), drop_detached)
