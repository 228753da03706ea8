"""Random kernels, and values that threads pass through memory.

TRITON_INTERPRET=1 pytest tests/gpu/test_fuzz.py
pytest -m gpu tests/gpu/test_fuzz.py
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.fuzzing.compose import compose, means_something
from tests.fuzzing.mixed import mixed
from tests.fuzzing.repeated import repeated
from tests.fuzzing.small import grouped, small
from tests.fuzzing.stepped import stepped
from tests.fuzzing.trial import OK
from tests.gpu import machine
from tilelang.codegen.source import Source
from tilelang.codegen.triton.passes import tile_wholes
from tilelang.codegen.triton.plan import access, body, scope
from tilelang.codegen.triton.plan.problem import Prepared
from tilelang.ir import Apply, every_expr, integers

if machine.LACKS:
    pytest.skip(machine.LACKS, allow_module_level=True)

from tests.gpu.fuzz import configs, try_gpu, try_wild

pytestmark = machine.MARKS
watching = pytest.mark.skipif(
    not machine.INTERPRETS, reason="what programs do to memory is seen in Triton's interpreter only"
)

X = np.arange(16, dtype=np.float32)
ROWS = np.random.default_rng(0).integers(0, 16, (4, 16)).astype(np.int32)


@pytest.mark.parametrize("seed", [673065, 673112, 673161, 673204])
def test_random_kernels_whose_products_are_all_in_loops(seed, monkeypatch):
    """As if every operand that is taken whole were too large."""
    monkeypatch.setattr(tile_wholes, "WIDE", 0)
    monkeypatch.setattr(tile_wholes, "NARROW", 0)
    program = compose(seed, sized=False).program
    for config in list(configs(program, random.Random(seed), 1)):
        assert try_gpu(program, config, (1000 * seed, 1000 * seed + 1)).kind in ("ok", "refused")


@pytest.mark.parametrize("seed", [1, 3, 14, 16, 3286, 500, 504])  # the first five were wrong once
def test_random_kernels(seed):
    program = compose(seed, sized=False).program
    ways = list(configs(program, random.Random(seed), 2))
    for config in ways:
        assert try_gpu(program, config, (1000 * seed, 1000 * seed + 1)).kind in ("ok", "refused")
    assert try_wild(program, ways[-1], (1000 * seed,)).kind in ("ok", "same", "refused")


@tile.kernel
def stored_then_updated(x, rows):
    y = hl.zeros([16], dtype=hl.float32)
    for k in hl.grid(4):
        for t in hl.tile(16, block_size=16):
            y[t] = x[t]
        for u in hl.tile(16, block_size=16):
            hl.atomic_add(y, [rows[k, u]], x[u])
    return y


@tile.kernel
def loaded_then_updated(x, rows):
    y = hl.zeros([16], dtype=hl.float32)
    z = hl.zeros([4, 16], dtype=hl.float32)
    for k in hl.grid(4):
        for t in hl.tile(16, block_size=16):
            z[k, t] = y[t]
            hl.atomic_add(y, [rows[k, t]], x[t])
    return y, z


@tile.kernel
def updated_then_loaded(x, rows):
    y = hl.zeros([16], dtype=hl.float32)
    z = hl.zeros([4, 16], dtype=hl.float32)
    for k in hl.grid(4):
        for t in hl.tile(16, block_size=16):
            hl.atomic_add(y, [rows[k, t]], x[t])
            z[k, t] = y[t]
    return y, z


@tile.kernel
def updated_then_stored(x, rows):
    y = hl.zeros([16], dtype=hl.float32)
    for k in hl.grid(4):
        for t in hl.tile(16, block_size=16):
            hl.atomic_add(y, [rows[k, t]], x[t])
            y[t] = 1.0
    return y


@tile.kernel
def scattered_then_loaded(x, rows):
    y = hl.zeros([16], dtype=hl.float32)
    for k in hl.grid(4):
        for t in hl.tile(16, block_size=16):
            y[rows[k, t]] = y[t] + x[t]
    return y


ORDERED = (
    stored_then_updated,
    loaded_then_updated,
    updated_then_loaded,
    updated_then_stored,
    scattered_then_loaded,
)


def run(source):
    """Results of a module on these arguments, and what is wrong with its use of memory."""
    with machine.watched(0) as faults:
        made = machine.host(source)(X.copy(), ROWS.copy())
    return made if isinstance(made, tuple) else (made,), faults


@pytest.mark.parametrize("kernel", ORDERED, ids=lambda k: k.__name__)
def test_threads_wait_for_each_other(kernel):
    source = kernel.lower(X, ROWS, target=machine.TARGET).source
    made, faults = run(source)
    exact = kernel.reference(X.copy(), ROWS.copy())
    for one, other in zip(made, exact if isinstance(exact, tuple) else (exact,), strict=True):
        np.testing.assert_allclose(one, np.asarray(other), rtol=1e-6)
    assert faults == []


@watching
@pytest.mark.parametrize("kernel", ORDERED, ids=lambda k: k.__name__)
def test_a_missing_barrier_is_seen(kernel):
    source = kernel.lower(X, ROWS, target=machine.TARGET).source
    planted = source.text.replace("tl.debug_barrier()", "pass")
    assert planted != source.text
    assert "no barrier" in run(Source(planted, source.entry))[1][0]


PLANTED = {  # a bug in a store of jagged rows -> what is said of it
    ("tl.store(y_ptr", "tl.store(y_ptr + 1000"): "outside of every array",
    ("mask=t_in", "mask=t_at < 20"): "another program",
}


@tile.kernel
def doubled(x, offsets):
    y = hl.zeros([x.shape[0]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t] = x[t] * 2.0
    return y


@watching
@pytest.mark.parametrize("change", PLANTED, ids=lambda c: c[1])
def test_a_wrong_access_is_seen(change):
    x, offsets = np.ones(20, np.float32), np.array([0, 3, 3, 20], np.int32)
    source = doubled.lower(x, offsets, target=machine.TARGET).source
    text = "".join(
        line.replace(*change) if "store" in line or "mask" not in line else line
        for line in source.text.splitlines(keepends=True)
    )
    assert text != source.text
    for module, wrong in ((source, False), (Source(text, source.entry), True)):
        with machine.watched(0) as faults:
            machine.host(module)(x.copy(), offsets.copy())
        assert bool(faults) == wrong
    assert PLANTED[change] in faults[0]


# ---------------------------------------------------------------- masks that are left out


def paged_groups(rng):
    """Sums of groups of whole pages, whose rows a step may divide."""
    return stepped(grouped(rng), rng)


def of_two(expr, number, leaf=lambda _: False, exact=integers.is_multiple):
    """Takes what is a multiple of half a number for one of it."""
    return exact(expr, max(number // 2, 1), leaf)


def first_of_each(mask, *_):
    """One condition of each dimension alone."""
    found = {}
    for term in access.conjuncts(mask):
        base, axes = access._spread_from(term)
        found.setdefault((base.type.rank, axes), term)
    first, *rest = found.values()
    for term in rest:
        first = access.both(first, term)
    return first


def mixed_rows(rng):
    """Products that run along the rows of their result, which boxes bring."""
    return mixed(small(rng), rng)


def summed_alone(self):
    """Dimensions of operands that results have not."""
    every = [e for e in every_expr(self.ir.body) if isinstance(e, Apply)]
    return frozenset(
        d for e in every for a in e.args for d in a.type.shape if d not in e.type.shape
    )


LEFT_OUT = {
    "masks of tiles that end within a step": (paged_groups, integers, "is_multiple", of_two),
    "all but one condition of a dimension": (repeated, scope, "by_dimension", first_of_each),
    "rows that are summed and kept": (mixed_rows, Prepared, "reduced", property(summed_alone)),
    "masks of lanes that store to the same row": (
        repeated, body, "_along", lambda *_: access.compare("eq", integers.const(0), 0)
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", LEFT_OUT)
def test_random_kernels_notice_what_is_left_out(what, monkeypatch):
    draw, owner, name, wrong = LEFT_OUT[what]
    every = (draw(random.Random(n)) for n in range(12))
    programs = [p for p in every if p is not None and means_something(p)][:6]
    config = tile.Config(indexing="descriptor") if draw is mixed_rows else None
    assert {try_gpu(p, config, (0, 1)).kind for p in programs} <= {"ok", "refused"}
    monkeypatch.setattr(owner, name, wrong)
    assert {try_gpu(p, config, (0, 1)).kind for p in programs} & {"wrong", "memory"}


def test_short_sums_have_the_lanes_of_a_product():
    program = compose(1, sized=False).program
    assert try_gpu(program, None, (1000,)) == OK
