"""What backward kernels read: few numbers, none of them rounded where that would count."""

from __future__ import annotations

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.dense.cross_entropy import cross_entropy
from examples.dense.flash_attention import flash_attention
from examples.jagged.jagged_attention import jagged_attention
from examples.jagged.jagged_attention_backward import attention_with_lse
from tests.derivatives import derived, gradients, named

OFFSETS = np.array([0, 5, 5, 22], np.int32)


def _spec(kernel, dtype):
    if kernel is cross_entropy:
        return tile.spec((24, 40), dtype), tile.spec((24,), "int32")
    q = tile.spec((2, 24, 8) if kernel is not flash_attention else (1, 2, 24, 8), dtype)
    return (q, q, q) if kernel is flash_attention else (q, q, q, tile.spec((4,), "int32"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("kernel", "saved"),
    [
        (attention_with_lse, ()),
        (jagged_attention, ("saved_log_total",)),
        (flash_attention, ("saved_log_total",)),
        (cross_entropy, ("saved_log_total",)),
    ],
    ids=["with_lse", "jagged", "flash", "cross_entropy"],
)
def test_a_softmax_saves_one_number_per_row(kernel, saved, dtype):
    """log(sum(exp)), or nothing where the kernel returns that; and nothing is divided by a sum."""
    _, made = derived(kernel, _spec(kernel, dtype))
    assert tuple(s for s in made.saved if s not in made.forward.returns[:1]) == saved
    text = kernel.grad_source(*_spec(kernel, dtype))
    backward = text[text.index("Part of the gradient") :]
    assert not re.search(r" / ", backward)


@tile.kernel
def apart(x, w):
    """The maximum and the sum in loops over rows of their own: nowhere are both known."""
    M, N = x.shape
    y = hl.zeros([M], dtype=hl.float32)
    z = hl.zeros([M], dtype=hl.float32)
    for tm in hl.tile(M):
        m = hl.full([tm], float("-inf"), dtype=hl.float32)
        for tn in hl.tile(N):
            m = hl.maximum(m, x[tm, tn].amax(-1))
        total = hl.zeros([tm], dtype=hl.float32)
        acc = hl.zeros([tm], dtype=hl.float32)
        for tn in hl.tile(N):
            p = hl.exp(x[tm, tn] - m[:, None])
            total = total + p.sum(-1)
            acc = acc + (p * w[tn][None, :]).sum(-1)
        y[tm] = acc / total
        z[tm] = hl.log(total) + m
    return y, z


@tile.kernel
def sines(x, w):
    """y is the rounded value, of which z has the sine."""
    M, N = x.shape
    K = w.shape[1]
    y = hl.zeros([M, K], dtype=x.dtype)
    z = hl.zeros([M, K], dtype=hl.float32)
    for tm, tk in hl.tile([M, K]):
        acc = hl.zeros([tm, tk], dtype=hl.float32)
        for tn in hl.tile(N):
            acc = hl.dot(x[tm, tn], w[tn, tk], acc=acc)
        y[tm, tk] = acc.to(x.dtype)
        z[tm, tk] = hl.sin(acc)
    return y, z


def _agrees(kernel, function, arguments, rtol=1e-5):
    arguments = tuple(map(np.asarray, arguments))
    ir, made = derived(kernel, arguments)
    results, pull = jax.vjp(function, *arguments)
    rng = np.random.default_rng(0)
    cotangents = [np.asarray(rng.standard_normal(r.shape), r.dtype) for r in results]
    wanted = pull(tuple(map(jnp.asarray, cotangents)))
    found = gradients(made, named(ir, arguments), cotangents, 8)
    for param, exact in zip(ir.params, wanted, strict=True):
        assert param.tensor
        exact = np.asarray(exact, np.float32)
        error = np.abs(np.asarray(found[param.tensor], np.float32) - exact).max()
        assert error <= rtol * (np.abs(exact).max() + 0.1)
    return made


def test_sums_of_loops_apart():
    """A maximum of one loop is the gauge of the sums of another; weights are of either sign."""
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((20, 40), np.float32) * 9, rng.standard_normal(40, np.float32)

    def function(x, w):
        return jax.nn.softmax(x, -1) @ w, jax.nn.logsumexp(x, -1)

    _agrees(apart, function, (x, w))


def test_what_is_no_product_is_not_rounded():
    """cos(acc) of a rounded acc would be wrong in its second digit."""
    rng = np.random.default_rng(2)
    x = jnp.asarray(rng.standard_normal((16, 32)) * 0.5, jnp.bfloat16)
    w = jnp.asarray(rng.standard_normal((32, 16)), jnp.bfloat16)

    def function(x, w):
        acc = jnp.dot(x, w, preferred_element_type=jnp.float32)
        return acc.astype(x.dtype), jnp.sin(acc)

    assert _agrees(sines, function, (x, w), rtol=0.02).saved == ("saved_acc",)


@tile.kernel
def in_chunks(x):
    """The logarithm of every row's sum of exponentials, eight rows at a time."""
    y = hl.empty([x.shape[0]], dtype=hl.float32)
    for k in hl.grid(3):
        for t in hl.tile(8):
            total = hl.zeros([t], dtype=hl.float32)
            for u in hl.tile(x.shape[1]):
                total = total + hl.exp(x[k * 8 + t.index, u]).sum(1)
            y[k * 8 + t.index] = hl.log(total)
    return y


def test_rows_of_every_chunk_are_saved():
    """The tile has the same positions in all of them; values lie where the result's rows do."""
    x = np.random.default_rng(0).standard_normal((24, 16)).astype(np.float32)
    dy = np.arange(24, dtype=np.float32)
    ir, made = derived(in_chunks, (x,))
    assert [made.forward.tensor(name).shape for name in made.saved] == [(3, 24)]
    found = gradients(made, named(ir, (x,)), [dy], 4)["x"]
    np.testing.assert_allclose(found, dy[:, None] * jax.nn.softmax(x, 1), rtol=1e-5)
