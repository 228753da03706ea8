"""Vectors are columns where tiles have fewer rows than a register has lanes.

Evidence: text, values in the interpreter, and what the real compiler takes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.compile_cache import CachedWorker
from tests.passes.becomes import again, floats
from tests.vmem import needed
from tilelang.codegen.pallas.passes import numbers_as_rows
from tilelang.codegen.pallas.plan import vectors

OFFSETS = np.array([0, 3, 3, 70, 71, 300], np.int32)
LABELS = np.arange(300, dtype=np.int32) * 7 % 50
KEEP = np.arange(300) % 3 > 0
TARGETS = pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])


@tile.kernel
def weighted(x, w, offsets):
    """y[r] = the sum of the row r of a group, by the number that is beside it."""
    y = hl.zeros([x.shape[0]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=8):
            y[t] = (x[t, :] * w[t][:, None]).sum(1)
    return y


@tile.kernel
def in_place(x, y):
    for t in hl.tile(x.shape[0], block_size=16):
        y[t] = y[t] * 0.5 + x[t, :].sum(1)


@tile.kernel
def some(x, keep):
    """Rows that a mask leaves out keep 7; counts of 8 bits beside."""
    y = hl.full([x.shape[0]], 7.0, dtype=x.dtype)
    n = hl.zeros([x.shape[0]], dtype=hl.int8)
    for t in hl.tile(x.shape[0], block_size=32):
        hl.store(y, [t], x[t, :].sum(1), mask=keep[t])
        n[t] = (x[t, :] > 0).to(hl.int32).sum(1).to(hl.int8)
    return y, n


@tile.kernel
def of_heads(x):
    """A vector for each head, and sums over tiles of columns."""
    H, B, D = x.shape
    y = hl.zeros([H, B], dtype=x.dtype)
    for h in hl.grid(H):
        for t in hl.tile(B, block_size=8):
            acc = hl.zeros([t], dtype=hl.float32)
            for d in hl.tile(D):
                acc = acc + x[h, t, d].sum(1)
            y[h, t] = acc
    return y


@tile.kernel
def cross_entropy(logits, labels):
    """Whole rows of a vocabulary."""
    loss = hl.zeros([logits.shape[0]], dtype=hl.float32)
    for t in hl.tile(logits.shape[0]):
        z = logits[t, :].to(hl.float32)
        most = z.amax(1)
        lse = most + hl.log(hl.exp(z - most[:, None]).sum(1))
        hit = hl.arange(logits.shape[1])[None, :] == labels[t][:, None]
        loss[t] = lse - hl.where(hit, z, 0).sum(1)
    return loss


@tile.kernel
def likeliest(logits):
    y = hl.zeros([logits.shape[0]], dtype=hl.int32)
    for t in hl.tile(logits.shape[0]):
        y[t] = logits[t, :].argmax(1)
    return y


@tile.kernel
def likeliest_one(logits):
    y = hl.zeros([logits.shape[0]], dtype=hl.int32)
    for b in hl.grid(logits.shape[0]):
        y[b] = logits[b, :].argmax(0)
    return y


@tile.kernel
def columns(x):
    """Tiles of columns have no other place: a matrix is no vector."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[1], block_size=8):
        y[:, t] = x[:, t] * 2
    return y


def test_a_vector_is_a_column_of_smaller_tiles():
    text = weighted.source(floats(300, 50), floats(300), OFFSETS, target="tpu:v5e")
    assert "w = w.reshape((300, 1))" in text
    assert "jax.ShapeDtypeStruct((304 if interpret else 300, 1), jnp.float32)" in text
    assert "y.reshape((300,))" in text


@TARGETS
def test_values(target):
    x, w = floats(300, 50), floats(300)
    got = again(weighted)(x, w, OFFSETS, target=target)
    np.testing.assert_allclose(got, (x * w[:, None]).sum(1), rtol=1e-4, atol=1e-4)
    y = w.copy()
    again(in_place)(x, y, target=target)
    np.testing.assert_allclose(y, w / 2 + x.sum(1), rtol=1e-4, atol=1e-4)
    got, counts = again(some)(x, KEEP, target=target)
    np.testing.assert_allclose(got, np.where(KEEP, x.sum(1), 7), rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(counts, (x > 0).sum(1))
    heads = floats(3, 300, 20)
    got = again(of_heads)(heads, target=target)
    np.testing.assert_allclose(got, heads.sum(2), rtol=1e-4, atol=1e-4)
    got = again(cross_entropy)(x, LABELS, config=tile.Config({"t": 8}), target=target)
    want = np.log(np.exp(x).sum(1)) - x[np.arange(300), LABELS]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


def test_a_matrix_is_refused():
    with pytest.raises(tile.PlanError, match="a block of 8 for t cannot be cut from a dimension"):
        columns.lower(tile.spec((16, 300), "float32"), target="tpu:v5e")


@pytest.mark.parametrize("kernel", [likeliest, likeliest_one])
def test_the_default_is_a_config_as_any_other(kernel):
    """Rows of which 128 do not fit into memory."""
    spec = tile.spec((300, 131_072), "float32")
    made = kernel.lower(spec, target="tpu:v5p")
    assert dict(made.config.blocks).popitem()[1] == 8
    assert kernel.lower(spec, target="tpu:v5p", config=made.config).source == made.source


@needs_libtpu
@pytest.mark.parametrize("target", ["tpu:v5p", "tpu:7x"])
def test_rows_of_a_vocabulary_compile(target):
    logits, labels = tile.spec((256, 131_072), "float32"), tile.spec((256,), "int32")
    compiled(cross_entropy, logits, labels, target=target)
    compiled(likeliest, logits, target=target)


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize("target, size", [("tpu:v5e", 8192), ("tpu:7x", 16_384)])
def test_what_argmax_takes(target, size):
    config = tile.Config({"t": 128})
    made = likeliest.lower(tile.spec((256, size), "float32"), target=target, config=config)
    (launch,) = made.plan.launches
    assert 0.85 < launch.memory.vmem / needed(made, CachedWorker()) < 1.2


def test_planted_a_vector_that_nobody_reshapes(monkeypatch):
    """Arrays come as the author knows them."""
    monkeypatch.setattr(
        numbers_as_rows, "_with_one", lambda tensor: replace(tensor, shape=(*tensor.shape, 1))
    )
    with pytest.raises(ValueError, match=r"pad_width|same number of dimensions"):
        test_values("tpu:v5e")


def test_planted_a_matrix_as_a_vector(monkeypatch):
    """Its rows would fill a register for each number."""
    monkeypatch.setattr(vectors, "_is_vector", lambda index: True)
    with pytest.raises(pytest.fail.Exception):
        test_a_matrix_is_refused()
