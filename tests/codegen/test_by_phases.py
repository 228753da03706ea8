"""First products of all iterations of a loop within the step stand before what waits for them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged import paged_attention
from tests.ragged import Space, every_stratum
from tilelang import ir
from tilelang.codegen.pallas.plan import physical
from tilelang.codegen.pallas.plan.axis import AxisPlan
from tilelang.codegen.pallas.plan.body.by_phases import by_phases
from tilelang.codegen.pallas.plan.physical import Bind, Keep, Kept, PStmt
from tilelang.codegen.pallas.target import TARGETS
from tilelang.errors import Loc

SPACE = Space(rows=72, groups=5, block=16)
T, D, N = 72, 8, 24


@tile.kernel
def recurrent(x, w, offsets):
    """A state is multiplied before it changes; the results are compared, and multiplied again."""
    y = hl.zeros(x.shape, dtype=hl.float32)
    for a, b in hl.grid([x.shape[0], x.shape[1]]):
        for g in hl.grid(offsets.shape[0] - 1):
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                state = hl.zeros([tm, D], dtype=hl.float32)
                for tk in hl.tile(N, block_size=8):
                    mixed = hl.dot(state, w[a, b, 0:8, :])
                    scores = hl.dot(x[a, b, tm, :], w[a, b, tk, :].T) + mixed.sum(-1)[:, None]
                    best = hl.minimum(scores.amax(-1), 3.0)
                    state = hl.minimum(state + best[:, None], 4.0)
                y[a, b, tm, :] = hl.dot(state, w[a, b, 8:16, :])
    return y


def recurred(x, w, offsets, block):
    y = np.zeros(x.shape)
    for begin, end in itertools.pairwise(offsets):
        for h in np.ndindex(*x.shape[:2]):
            state = np.zeros((end - begin, D))
            for k in range(0, N, block):
                mixed = (state @ w[h][:8]).sum(1)
                scores = x[h][begin:end] @ w[h][k : k + block].T + mixed[:, None]
                state = np.minimum(state + np.minimum(scores.max(1), 3)[:, None], 4)
            y[h][begin:end] = state @ w[h][8:16]
    return y


@tile.kernel
def shared(x, w, offsets):
    """A quotient is multiplied first, and again by what waits for that."""
    y = hl.zeros(x.shape, dtype=hl.float32)
    for a, b in hl.grid([x.shape[0], x.shape[1]]):
        for g in hl.grid(offsets.shape[0] - 1):
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                acc = hl.zeros([tm, D], dtype=hl.float32)
                for tk in hl.tile(N):
                    part = x[a, b, tm, :] / (w[a, b, 0, :][None, :] + 8.0)
                    scores = hl.dot(part, w[a, b, tk, :].T)
                    acc = acc + part * scores.sum(-1)[:, None]
                y[a, b, tm, :] = acc
    return y


X = np.random.default_rng(0).integers(-3, 4, (2, 2, T, D)).astype(np.float32)
W = np.random.default_rng(1).integers(-3, 4, (2, 2, N, D)).astype(np.float32)
CUTS = np.array([0, 5, 5, 40, 72], np.int32)


def result():
    return (recurred(X, W, CUTS, 8),)


@pytest.mark.parametrize("within", [("a", "b"), ("b",), ()], ids=str)
def test_states_that_products_read_and_that_change(within):
    config = tile.Config({"tm": 16}, within=within)
    for layout in every_stratum(SPACE):
        found = recurrent(X, W, layout.offsets, config=config)
        np.testing.assert_array_equal(found, recurred(X, W, layout.offsets, 8))


def test_what_first_products_and_the_rest_read():
    config = tile.Config({"tm": 16, "tk": 8}, within=("a", "b"))
    part = X / (W[:, :, :1] + 8.0)
    total = (part @ W.swapaxes(2, 3)).sum(-1)
    np.testing.assert_allclose(
        shared(X, W, np.array([0, 30, 30, T], np.int32), config=config),
        part * total[..., None],
        rtol=1e-5,
        atol=1e-3,
    )


def test_small_steps_run_all_heads_unless_the_config_says_no():
    arguments = paged_attention.CASES[0]
    explained = paged_attention.paged_attention.explain(*arguments, target="tpu:v6e")
    assert "keeps scores_3: float32[8, " in explained  # of the last of four pages
    assert "products of all iterations, before what waits for them" in explained
    alone = paged_attention.paged_attention.source(
        *arguments, target="tpu:v6e", config=tile.Config(within=())
    )
    assert "for h in range(" not in str(alone)


# ---------------------------------------------------------------- when it is legal, and a gain

LOC = Loc("k.py", 1, 0, 1, "")
H = ir.GridIndex("h")
TILE, COLUMN = ir.Type((16, 128), "float32"), ir.Type((16, 1), "float32")


def heads(count: int = 4) -> dict[str, AxisPlan]:
    zero, end = ir.integers.const(0), ir.integers.const(count)
    return {"h": AxisPlan("h", "h", "parallel", "", "within", zero, end, LOC, 0, count, count)}


def read(ref: str) -> physical.Read:
    return physical.Read(ref, (physical.Row(H), physical.All(), physical.All()), TILE)


def dot(left: physical.PExpr, right: physical.PExpr) -> ir.Apply:
    return ir.Apply("dot", (left, right), TILE, (("contract", (1, 1)),))  # type: ignore[arg-type]


def top(value: physical.PExpr) -> ir.Apply:
    return ir.Apply("max", (value,), COLUMN, (("axis", 1), ("keepdim", True)))  # type: ignore[arg-type]


def local(name: str) -> ir.Var:
    return ir.Var(name, TILE)


STATE = Kept("state", TILE, (H,))
PRODUCT = Bind("s", dot(read("q_ref"), read("k_ref")), LOC, "s")
PEAK = Keep("peak", top(local("s")), LOC, (H,))


def split(*stmts: PStmt, count: int = 4, taken: frozenset[str] = frozenset()):
    return by_phases(stmts, heads(count), (H,), TARGETS["tpu:v6e"], taken)


def test_a_product_and_what_waits_for_it():
    found = split(PRODUCT, PEAK)
    assert found is not None
    place = Kept("s", TILE, (H,))
    assert found.first == (Keep("s", PRODUCT.value, LOC, (H,)),)
    assert found.rest == (replace(PEAK, value=top(place)),)
    assert found.kept == (place,)


def test_what_the_first_phase_reads_itself_is_a_local_besides():
    """Whatever is long to compute, and read in both phases, is known in both."""
    part = Bind("part", top(read("q_ref")), LOC, "part")
    product = replace(PRODUCT, value=dot(local("part"), read("k_ref")))
    found = split(part, product, Keep("state", top(dot(local("part"), local("s"))), LOC, (H,)))
    assert found is not None
    column = Kept("part", COLUMN, (H,))
    assert found.first[:2] == (part, Keep("part", ir.Var("part", COLUMN), LOC, (H,)))
    assert column in found.kept
    assert not {"part", "s"} & {n for s in found.rest for n in physical.names_read(s)}


def test_its_place_has_a_name_of_its_own():
    found = split(PRODUCT, PEAK, taken=frozenset({"s"}))
    assert found is not None and found.kept[0].name == "s_all"


def test_nothing_waits_for_it():
    assert split(PRODUCT, Keep("state", local("s"), LOC, (H,))) is None
    assert split(PEAK) is None


def test_one_iteration_has_nothing_to_wait_with():
    assert split(PRODUCT, PEAK, count=1) is None


def test_products_that_take_too_much_memory():
    wide = ir.Type((1024, 1024), "float32")
    value = dot(read("q_ref"), read("k_ref"))
    product = replace(PRODUCT, value=replace(value, type=wide))
    assert split(product, PEAK) is None


def test_its_own_value_may_change_behind_it_and_not_before():
    product = replace(PRODUCT, value=dot(STATE, read("k_ref")))
    change = Keep("state", top(local("s")), LOC, (H,))
    assert split(product, change) is not None
    assert split(Keep("state", read("q_ref"), LOC, (H,)), product, PEAK) is None


def test_a_block_that_some_iteration_writes_is_not_read_early():
    everything = (physical.All(),) * 3
    store = physical.Write("q_ref", everything, read("k_ref"), LOC)
    assert split(PRODUCT, PEAK, store) is None


def test_what_a_loop_makes_does_not_move():
    loop = physical.Inner("h", "fori_loop", (), (Bind("x", read("q_ref"), LOC, ""),), LOC)
    product = replace(PRODUCT, value=dot(local("x"), read("k_ref")))
    assert split(loop, product, PEAK) is None
