"""Single numbers of arrays that scalar memory has no room for: a step has the block of each."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import needs_libtpu
from tests.compile_cache import TPU, shared
from tests.passes.becomes import again
from tilelang.aot import compile_lowered
from tilelang.codegen.pallas import row_loads
from tilelang.errors import PlanError

RNG = np.random.default_rng(3)
B, V = 23, 20_003
LOGITS = RNG.standard_normal((B, V)).astype(np.float32)  # 1.8 MB, of which scalar memory has 1
IDS = RNG.integers(0, V, B).astype(np.int32)
MANY = RNG.standard_normal(300_001).astype(np.float32)
AT = RNG.integers(0, len(MANY), 40).astype(np.int32)
OFFSETS = np.array([0, 9, 9, 10, 40], np.int32)


@tile.kernel
def of_rows(x, ids):
    """The logit of an id of each row."""
    y = hl.empty([x.shape[0]], dtype=x.dtype)
    for b in hl.grid(x.shape[0]):
        y[b] = x[b, ids[b]]
    return y


@tile.kernel
def of_many(v, at):
    y = hl.empty([at.shape[0]], dtype=v.dtype)
    for b in hl.grid(at.shape[0]):
        y[b] = v[at[b]] * 2 - v[0]
    return y


@tile.kernel
def of_groups(v, at, offsets):
    """What is positive of each group, and how often."""
    G = offsets.shape[0] - 1
    y = hl.zeros([G], dtype=v.dtype)
    n = hl.zeros([G], dtype=hl.int32)
    for g in hl.grid(G):
        total, count = 0.0, 0
        for r in hl.grid(offsets[g], offsets[g + 1]):
            if v[at[r]] > 0:
                total += v[at[r]]
                count += 1
        y[g] = total
        n[g] = count
    return y, n


def positive(v, at, offsets):
    parts = [v[at[a:b]] for a, b in pairwise(offsets)]
    return [p[p > 0].sum() for p in parts], [(p > 0).sum() for p in parts]


CASES = {
    of_rows: ((LOGITS, IDS), LOGITS[np.arange(B), IDS]),
    of_many: ((MANY, AT), MANY[AT] * 2 - MANY[0]),
    of_groups: ((MANY, AT, OFFSETS), positive(MANY, AT, OFFSETS)),
}
kernels = pytest.mark.parametrize("kernel", CASES, ids=lambda kernel: kernel.__name__)


@kernels
@pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])
def test_values(kernel, target):
    arguments, expected = CASES[kernel]
    found = again(kernel)(*arguments, target=target)
    for one, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-5)


@kernels
@needs_libtpu
def test_they_compile(kernel):
    compile_lowered(kernel.lower(*CASES[kernel][0], target="tpu:v6e"), worker=shared(TPU))


@tile.kernel
def of_places(x, at):
    """Places that are floats: no block of them says where rows lie."""
    y = hl.empty([8, x.shape[1]], dtype=x.dtype)
    for b in hl.grid(8):
        y[b, :] = x[at[b].to(hl.int32), :]
    return y


def test_no_block_says_places():
    """Rows one by one are refused for their memory, as ever; tiles of them pick rows."""
    x, at = LOGITS[:, :200], np.arange(len(MANY), dtype=np.float32) % B
    one = tile.Config(loop_type="grid")
    with pytest.raises(PlanError, match="reads single numbers of tensors that take 1,200,004"):
        again(of_places).lower(x, at, target="tpu:v5e", config=one)
    for given in (at, at[:8]):
        np.testing.assert_array_equal(again(of_places)(x, given, target="tpu:v5e"), x[:8])


def test_few_numbers_stay_in_scalar_memory():
    text = str(of_rows.source(LOGITS[:, :500], IDS, target="tpu:v5e"))
    assert "memory_space=pltpu.SMEM" in text and "pl.Buffered" not in text


def test_planted_room_for_all(monkeypatch):
    monkeypatch.setattr(row_loads, "no_room", lambda *args: False)
    with pytest.raises(PlanError, match="reads single numbers of tensors that take"):
        again(of_rows).lower(*CASES[of_rows][0], target="tpu:v5e")
