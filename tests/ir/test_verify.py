"""Every rule of the IR that a pass could break, broken once; and no pass breaks one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.subjects import SUBJECTS
from tests.test_golden import TARGET
from tests.tiers import share
from tilelang.codegen.pallas.plan.normalised import normalised
from tilelang.codegen.pallas.target import Target
from tilelang.codegen.triton.plan.search import normalised as normalised_for_gpus
from tilelang.ir import (
    Apply,
    Assign,
    At,
    Const,
    GridIndex,
    KernelIR,
    Loop,
    Span,
    Store,
    Type,
    Var,
    statements,
    walk,
)
from tilelang.ir.traversal import rewrite_body, statement_exprs
from tilelang.ir.verify import BrokenIR, verify
from tilelang.schedule.problem import Problem


@tile.kernel
def sums(x, offsets):
    y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        total = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            rows = x[t, :] * 2
            total = total + rows.sum(0)
        y[g, :] = total
    return y


def written() -> KernelIR:
    return sums.lower(np.ones((20, 8), np.float32), np.array([0, 5, 20])).ir


def inner(ir: KernelIR) -> Loop:
    return next(s for s in ir.body[0].body if isinstance(s, Loop))


def with_inner(ir: KernelIR, loop: Loop) -> KernelIR:
    body = tuple(loop if isinstance(s, Loop) else s for s in ir.body[0].body)
    return replace(ir, body=(replace(ir.body[0], body=body),))


def renamed(ir: KernelIR) -> KernelIR:
    loop = inner(ir)
    made = next(s for s in loop.body if isinstance(s, Assign))
    return with_inner(ir, replace(loop, body=(*loop.body, made)))


def unassigned(ir: KernelIR) -> KernelIR:
    return with_inner(ir, replace(inner(ir), body=()))


def escaped(ir: KernelIR) -> KernelIR:
    index = GridIndex("t", Type((), "int32"))
    stored = replace(store(ir, index), value=Const(0.0, Type((), "float32")))
    return replace(ir, body=(replace(ir.body[0], body=(stored, *ir.body[0].body)),))


def store(ir: KernelIR, position: object) -> Store:
    (found,) = (s for s in ir.body[0].body if isinstance(s, Store))
    return replace(found, index=(At(position), *found.index[1:]))  # type: ignore[arg-type]


def changed_store(ir: KernelIR, found: Store) -> KernelIR:
    body = tuple(found if isinstance(s, Store) else s for s in ir.body[0].body)
    return replace(ir, body=(replace(ir.body[0], body=body),))


def retyped(ir: KernelIR) -> KernelIR:
    def change(expr):
        return replace(expr, type=Type((3,), "float32")) if isinstance(expr, Var) else None

    return replace(ir, body=rewrite_body(ir.body, change))


def carried(ir: KernelIR) -> KernelIR:
    loop = inner(ir)
    (carry,) = loop.carries
    other = Const(0.0, Type((), "float32"))
    return with_inner(ir, replace(loop, carries=(replace(carry, next=other),)))


FLOAT = Const(0.0, Type((), "float32"))
ROW, ROWS = Type((8,), "float32"), Type((2, 8), "float32")
BREAKS = {
    "is assigned twice": renamed,
    "is read before it is assigned": unassigned,
    "an index of t is read outside of its loop": escaped,
    "read as float32[3]": retyped,
    "begins as float32[8] and becomes float32[]": carried,
    "a position in y is float32[], not one integer": lambda ir: changed_store(ir, store(ir, FLOAT)),
    "y has 2 dimensions, the index 1": lambda ir: changed_store(
        ir, replace(store(ir, Const(0, Type((), "int32"))), index=(Span(0, 2),))
    ),
    "0:9 leaves y of length 8": lambda ir: changed_store(
        ir, replace(store(ir, FLOAT), index=(Span(0, 2), Span(0, 9)))
    ),
    "tensor z is not declared": lambda ir: replace(ir, returns=("z",)),
    "axis t is there twice": lambda ir: replace(ir, axes=(*ir.axes, ir.axis("t"))),
    "the loop over g is there twice": lambda ir: replace(ir, body=(*ir.body, *ir.body)),
    "add of float32[8] and float32[2, 8] is typed float32[8]": lambda ir: changed_store(
        ir,
        replace(
            store(ir, GridIndex("g", Type((), "int32"))),
            value=Apply("add", tuple(Apply("full", (FLOAT,), t) for t in (ROW, ROWS)), ROW),
        ),
    ),
    "float32 is stored to y, which is int8": lambda ir: replace(
        ir, tensors=tuple(replace(t, dtype="int8") if t.name == "y" else t for t in ir.tensors)
    ),
}


def test_what_the_frontend_makes_holds():
    assert verify(written()) == written()


@pytest.mark.parametrize("what", BREAKS)
def test_a_broken_rule_is_found(what):
    with pytest.raises(BrokenIR) as found:
        verify(BREAKS[what](written()))
    assert what in str(found.value)


@pytest.mark.parametrize("subject", share(SUBJECTS, 3, 1))
def test_no_pass_breaks_a_rule(subject):
    lowered = subject.kernel.lower(*subject.cases[-2], target=TARGET)
    problem = Problem(verify(lowered.ir), lowered.facts)
    for _, ir in (*normalised(problem, Target.of(TARGET)), *normalised_for_gpus(problem)):
        verify(ir)


def copies(ir: KernelIR) -> int:
    """How many operations stand in a statement beside an equal one that is another node."""
    total = 0
    for stmt in statements(ir.body):
        found = {
            id(e): e
            for v in statement_exprs(stmt)
            for e in walk(v)
            if isinstance(e, Apply) and e.args
        }
        total += len(found) - len(set(found.values()))
    return total


@tile.kernel
def shares(x, offsets):
    """log(sum(exp)) of every row: the maximum is used three times, and masked in the last tile."""
    y = hl.zeros([x.shape[0]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t] = hl.logsumexp(x[t, :] * hl.load(x, [g, 0], mask=g < 2, other=1.0), 1)
    return y


def test_what_is_shared_stays_shared_until_it_has_a_name():
    lowered = shares.lower(np.ones((40, 16), np.float32), np.int32([0, 3, 40]), target=TARGET)
    problem = Problem(lowered.ir, lowered.facts)
    before = copies(problem.ir)
    for name, ir in (*normalised(problem, Target.of(TARGET)), *normalised_for_gpus(problem)):
        assert copies(ir) <= before, name
