"""Derived gradients, end to end: jax.grad and backward() just work, and training converges."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import tilelang as tile
import tilelang.language as hl
from examples.dense.matmul import matmul
from examples.jagged.grouped_gemm import grouped_gemm
from examples.jagged.jagged_attention import jagged_attention
from examples.jagged.jagged_softmax import jagged_softmax
from tests.gradients.kernels import OFFSETS as STARTS
from tests.gradients.kernels import case, product

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def softmax(x, offsets):
    y = jnp.zeros_like(x)
    for begin, end in itertools.pairwise(offsets):
        y = y.at[begin:end].set(jax.nn.softmax(x[begin:end], axis=0)) if begin < end else y
    return y


def attention(q, k, v, offsets):
    y = jnp.zeros_like(v)
    for begin, end in itertools.pairwise(offsets):
        if begin < end:
            scores = q[:, begin:end] @ k[:, begin:end].swapaxes(1, 2) * q.shape[2] ** -0.5
            y = y.at[:, begin:end].set(jax.nn.softmax(scores, -1) @ v[:, begin:end])
    return y


OFFSETS = np.array([0, 7, 7, 8, 30], np.int32)
CASES = {
    "matmul": (matmul, (normal(24, 16), normal(16, 40)), lambda x, y: x @ y),
    "jagged_softmax": (jagged_softmax, (normal(34, 8), OFFSETS), softmax),
    "jagged_attention": (jagged_attention, (*normal(3, 1, 34, 8), OFFSETS), attention),
}
SLOW = {"jagged_attention"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in CASES]
)
def test_examples(name):
    kernel, arguments, expected = CASES[name]
    places = tuple(n for n, a in enumerate(arguments) if a.dtype == np.float32)
    weights = normal(*expected(*arguments).shape)
    wanted = jax.grad(lambda *a: (expected(*a) * weights).sum(), places)(*arguments)
    given = [jnp.asarray(a) for a in arguments]
    found = jax.jit(jax.grad(lambda *a: (kernel(*a) * weights).sum(), places))(*given)
    tensors = [torch.from_numpy(a.copy()) for a in arguments]
    for n in places:
        tensors[n].requires_grad_()
    (kernel(*tensors) * torch.from_numpy(weights)).sum().backward()
    for n, of_jax, right in zip(places, found, wanted, strict=True):
        np.testing.assert_allclose(of_jax, right, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(tensors[n].grad, right, rtol=1e-4, atol=1e-5)


@tile.kernel
def scaled(x, w, offsets):
    """y[r] = exp(x[r] * w) for rows in groups; other rows are zero."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            y[tm, :] = hl.exp(x[tm, :] * w[tm, :])
    return y


def arguments(rows):
    generator = torch.Generator().manual_seed(rows)
    x, w = torch.randn(2, rows, 8, generator=generator) / 4
    return x.requires_grad_(), w.requires_grad_(), torch.tensor([0, 5, 5, 16])


def plain(x, w, offsets):
    rows = torch.arange(len(x))[:, None]
    return torch.where((rows >= offsets[0]) & (rows < offsets[-1]), torch.exp(x * w), 0)


def test_compiled_for_every_number_of_rows():
    torch._dynamo.reset()
    run = torch.compile(
        lambda x, w, o: torch.relu(scaled(x, w, o) - 1),
        backend="aot_eager", fullgraph=True, dynamic=True,
    )  # fmt: skip
    for rows in (20, 33):
        found, wanted = arguments(rows), arguments(rows)
        run(*found).sum().backward()
        torch.relu(plain(*wanted) - 1).sum().backward()
        torch.testing.assert_close(found[0].grad, wanted[0].grad)
        torch.testing.assert_close(found[1].grad, wanted[1].grad)


def test_torch_func():
    x, w, offsets = (t.detach() for t in arguments(20))
    found = torch.func.grad(lambda x, w: scaled(x, w, offsets).sum(), (0, 1))(x, w)
    wanted = torch.func.grad(lambda x, w: plain(x, w, offsets).sum(), (0, 1))(x, w)
    torch.testing.assert_close(found, wanted)


def test_gradients_of_gradients():
    """Right, or refused with words; never a part of it."""
    x, w, offsets = arguments(20)

    def twice(kernel):
        (dx,) = torch.autograd.grad(kernel(x, w, offsets).sum(), x, create_graph=True)
        return torch.autograd.grad((dx * dx).sum(), (x, w))

    torch.testing.assert_close(twice(scaled), twice(plain))
    values = [jnp.asarray(t.detach().numpy()) for t in (x, w, offsets)]
    first = jax.grad(lambda x, w: scaled(x, w, values[2]).sum())
    second = jax.grad(lambda x, w: (first(x, w) ** 2).sum(), (0, 1))(*values[:2])
    for one, other in zip(second, twice(plain), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_nothing_is_derived_for_what_is_frozen():
    kernel = tile.kernel(scaled._fn)
    x, w, offsets = arguments(20)
    kernel(x, w.detach(), offsets).sum().backward()
    (parse,) = {p for _, p in _parses(kernel)}
    assert list(parse.derivatives) == [frozenset({"x"})]


def _parses(kernel):
    return [(key[0], key[0]) for key in kernel._lowered if key[0].derivatives]


def test_forward_mode_is_refused():
    x, w, offsets = (t.detach().numpy() for t in arguments(20))
    with pytest.raises(tile.CallError, match=r"^kernel scaled has no derivative in forward mode"):
        jax.jvp(lambda x: scaled(x, w, offsets), (x,), (x,))


def _train_jax(layer, x, w, y, offsets):
    step = jax.jit(jax.value_and_grad(lambda w: ((layer(x, w, offsets) - y) ** 2).sum() / len(x)))
    losses = []
    for _ in range(30):
        loss, gradient = step(w)
        w = w - 0.05 * gradient
        losses.append(float(loss))
    return losses


def test_training_converges_alike():
    """Grouped layers fit targets, in JAX and in torch, as the frameworks' own operations do."""
    offsets, rows, k, n = np.array([0, 20, 20, 44, 60], np.int32), 60, 8, 6
    x, w, true = normal(rows, k), 0.1 * normal(4, k, n), normal(4, k, n)
    group = np.searchsorted(offsets[1:], np.arange(rows), side="right")
    y = np.einsum("rk,rkn->rn", x, true[group])
    expected = _train_jax(
        lambda x, w, o: jnp.einsum("rk,rkn->rn", x, w[group]), *map(jnp.asarray, (x, w, y, offsets))
    )
    found = _train_jax(grouped_gemm, *map(jnp.asarray, (x, w, y, offsets)))
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    assert found[-1] < 0.5 * found[0]

    weights = torch.nn.Parameter(torch.from_numpy(w.copy()))
    optimiser, losses = torch.optim.SGD([weights], lr=0.05), []
    for _ in range(30):
        optimiser.zero_grad()
        made = grouped_gemm(torch.from_numpy(x), weights, torch.from_numpy(offsets))
        loss = ((made - torch.from_numpy(y)) ** 2).sum() / rows
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    np.testing.assert_allclose(losses, expected, rtol=1e-4)


def test_a_derivation_and_a_registration_agree():
    """The kernel whose backward other tests register, without one."""
    given = case()
    x, w = (torch.from_numpy(a).clone().requires_grad_() for a in (given.x, given.w))
    y, total = tile.kernel(product)(x, w, torch.from_numpy(STARTS))
    loss = (y * torch.from_numpy(given.dy)).sum()
    (loss + (total * torch.from_numpy(given.dtotal)).sum()).backward()
    for found, wanted in zip((x.grad, w.grad), given.gradients(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@tile.kernel
def gated_boxes(x, w, offsets, L: hl.constexpr):
    """Rows, times tanh of a sum over tiles of their columns, in boxes: rows of a box begin at 0."""
    G = offsets.shape[0] - 1
    out = hl.zeros([G, L, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(G):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=L):
            gate = hl.zeros([t], dtype=hl.float32)
            for d in hl.tile(x.shape[1]):
                gate = gate + (x[t, d] * w[d][None, :]).sum(1)
            for d in hl.tile(x.shape[1]):
                out[g, t.index - offsets[g], d] = x[t, d] * hl.tanh(gate)[:, None]
    return out


@pytest.mark.parametrize("offsets", [[3, 9, 9, 24], [0, 0, 30, 30], [29, 30, 30, 30]])
def test_what_is_saved_lies_where_results_are_stored(offsets):
    """A launch cuts a tile at one place, so that what forward saves is moved as its result is."""
    x, w, L = normal(30, 6), normal(6), 30

    def exact(x, w):
        y = x * jnp.tanh(x @ w)[:, None]
        ends = itertools.pairwise(offsets)
        return jnp.stack([jnp.zeros((L, 6)).at[: e - b].set(y[b:e]) for b, e in ends])

    weights = normal(3, L, 6)
    found = jax.grad(lambda *a: (gated_boxes(*a, jnp.asarray(offsets), L) * weights).sum(), (0, 1))
    right = jax.grad(lambda *a: (exact(*a) * weights).sum(), (0, 1))
    for mine, other in zip(found(x, w), right(x, w), strict=True):
        np.testing.assert_allclose(mine, other, atol=2e-4)
