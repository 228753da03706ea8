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
def sums_of_the_tile(x):
    """What is carried goes by the tile, whose length the author registers: one length only."""
    y, block = hl.zeros(x.shape, dtype=hl.float32), hl.register_block_size(16, 16)
    for tn in hl.tile(x.shape[1], block_size=block):
        acc = hl.full([], 0.0, dtype=hl.float32)
        for i in hl.grid(x.shape[0]):
            y[i, tn] = x[i, tn] * acc
            acc = acc + x[i, tn].sum(0)
    return y


def test_what_is_carried_by_registered_tiles_of_one_length():
    def function(x):
        sums = jnp.pad(x, ((0, 0), (0, 8))).reshape(x.shape[0], -1, 16).sum(2)
        before = jnp.cumsum(sums, 0) - sums
        return (x * jnp.repeat(before, 16, 1)[:, : x.shape[1]],)

    x = np.random.default_rng(3).standard_normal((6, 40)).astype(np.float32)
    _agrees(sums_of_the_tile, function, (x,))


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


@tile.kernel
def most_alike(q, d, offsets):
    """For each query the largest product with a row of a document; and of one row by itself."""
    Q, G = q.shape[0], offsets.shape[0] - 1
    y = hl.zeros([G, Q], dtype=hl.float32)
    z = hl.zeros([Q], dtype=hl.float32)
    for g in hl.grid(G):
        for t in hl.tile(Q):
            m = hl.full([t], float("-inf"), dtype=hl.float32)
            for s in hl.tile(offsets[g], offsets[g + 1], max_extent=d.shape[0]):
                m = hl.maximum(m, hl.dot(q[t, :], d[s, :].T).amax(1))
            y[g, t] = m
    for t in hl.tile(Q):
        z[t] = hl.exp(q[t, :]).amax(1)
    return y, z


@tile.kernel
def largest(x, offsets):
    """The largest of numbers of memory: what is saved of them has the same bits everywhere."""
    G, D = offsets.shape[0] - 1, x.shape[1]
    y = hl.zeros([G, D], dtype=hl.float32)
    for g in hl.grid(G):
        m = hl.full([D], float("-inf"), dtype=hl.float32)
        for s in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            m = hl.maximum(m, x[s, :].amax(0))
        y[g, :] = m
    return y


ALIKE = (tile.spec((20, 8), "float32"), tile.spec((22, 8), "float32"), tile.spec((4,), "int32"))


def given(launch):
    """The arrays that a launch of a backward reads."""
    return {t.name for t in launch.kernel.tensors if t.role == "input"}


def test_no_result_is_compared_with_what_is_computed_again():
    """Rounded in other blocks, a result is none of the products that it is the largest of."""
    ir, made = derived(most_alike, ALIKE)
    assert made.saved == () and made.forward is ir
    for launch in made.launches:
        assert not given(launch) & {"y", "z"}, launch.kernel.name


def test_results_of_another_rounding_pass_all_gradients_on():
    rng = np.random.default_rng(4)
    q, d = (rng.standard_normal(s).astype(np.float32) for s in ((20, 8), (22, 8)))
    _, made = derived(most_alike, ALIKE)
    cotangents = [rng.standard_normal(s).astype(np.float32) for s in ((3, 20), (20,))]
    cotangents[0][1] = 0  # of a document without rows
    found = gradients(made, named(made.forward, (q, d, OFFSETS)), cotangents, 8)

    def loss(q, d):
        y = jnp.stack([(q @ d[a:b].T).max(1) for a, b in ((0, 5), (5, 22))])
        return (y * cotangents[0][[0, 2]]).sum() + (jnp.exp(q).max(1) * cotangents[1]).sum()

    for name, wanted in zip("qd", jax.grad(loss, (0, 1))(q, d), strict=True):
        np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-5)


def test_the_largest_of_numbers_of_memory_is_read():
    _, made = derived(largest, (tile.spec((22, 8), "float32"), tile.spec((4,), "int32")))
    (launch,) = made.launches
    assert "y" in given(launch)


@tile.kernel
def averages_before(x, w, offsets):
    """Every row's average of its group, stored at the row before: the first one has none."""
    y = hl.empty([x.shape[0] - 1], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            total = hl.zeros([t], dtype=hl.float32)
            acc = hl.zeros([t], dtype=hl.float32)
            for s in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
                p = hl.exp(x[t][:, None] * x[s][None, :])
                total = total + p.sum(1)
                acc = acc + (p * w[s][None, :]).sum(1)
            hl.store(y, [t - 1], acc / total, mask=t.index >= 1)
    return y


def test_what_a_mask_leaves_out_of_the_results_is_not_lost():
    """Random kernel 7900059: the sums of the first row were saved at -1, and read as 0 / 0."""
    rng, rows = np.random.default_rng(0), OFFSETS[-1]
    x, w = rng.standard_normal((2, rows), np.float32)
    cotangent = rng.standard_normal(rows - 1, np.float32)

    def loss(x, w):
        ends = np.searchsorted(OFFSETS, np.arange(rows), side="right")
        p = jnp.where(ends[:, None] == ends[None, :], jnp.exp(x[:, None] * x[None, :]), 0.0)
        return (((p @ w) / p.sum(1))[1:] * cotangent).sum()

    ir, made = derived(averages_before, (x, w, OFFSETS))
    found = gradients(made, named(ir, (x, w, OFFSETS)), [cotangent], block=4)
    for name, wanted in zip("xw", jax.grad(loss, (0, 1))(x, w), strict=True):
        np.testing.assert_allclose(found[name], wanted, atol=1e-5)
