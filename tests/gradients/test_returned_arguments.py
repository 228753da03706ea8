"""Gradients of kernels that return arguments, as they are or in another shape, beside results."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import tilelang as tile
import tilelang.language as hl

RNG = np.random.default_rng(0)
X, W = RNG.standard_normal((4, 3), np.float32), RNG.standard_normal(3, np.float32)
OFFSETS = np.array([0, 1, 4], np.int32)


@tile.kernel
def beside(x, w, offsets):
    """Integers, an argument, a result and both in other shapes, also one that is not read."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = x[t, :] * x[t, :]
    return offsets, x, y, x.T, y.reshape(2, -1), w.reshape(1, 3), x


def expected(x, w, offsets):
    y = x * x
    return offsets, x, y, x.T, y.reshape(2, -1), w.reshape(1, 3), x


def of_all(library, results):
    return sum((library.sin(r) * n).sum() for n, r in enumerate(results) if n)


def of_the_result(library, results):
    return library.sin(results[2]).sum()


LOSSES = [of_all, of_the_result]


@pytest.mark.parametrize("loss", LOSSES)
def test_in_jax(loss):
    def gradients(run):
        def of(x, w):
            return loss(jnp, run(x, w, OFFSETS))

        batch = jax.vmap(jax.grad(of), (0, None))(jnp.stack([X, 2 * X]), W)
        return *jax.grad(of, (0, 1))(X, W), batch

    for one, other in zip(gradients(beside), gradients(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def eager(run):
    return run


def compiled(run):
    torch._dynamo.reset()
    return torch.compile(run, backend="aot_eager", fullgraph=True)


def exported(run):
    class Module(torch.nn.Module):
        def forward(self, x, w, offsets):
            return run(x, w, offsets)

    given = torch.from_numpy(X), torch.from_numpy(W), torch.from_numpy(OFFSETS)
    return torch.export.export(Module(), given).module()


@pytest.mark.parametrize("made", [eager, compiled, exported])
@pytest.mark.parametrize("loss", LOSSES)
def test_in_torch(made, loss):
    def gradients(run):
        x, w = torch.tensor(X, requires_grad=True), torch.tensor(W, requires_grad=True)
        value = loss(torch, run(x, w, torch.from_numpy(OFFSETS)))
        first = torch.autograd.grad(value, (x, w), create_graph=True, materialize_grads=True)
        if made is compiled:  # torch does not support it
            return first
        return *first, *torch.autograd.grad(first[0].square().sum(), x)

    for one, other in zip(gradients(made(beside)), gradients(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_in_transforms_of_torch():
    def gradients(run):
        def of(x, w):
            return of_all(torch, run(x, w, torch.from_numpy(OFFSETS)))

        x, w = torch.from_numpy(X), torch.from_numpy(W)
        batch = torch.func.vmap(torch.func.grad(of), (0, None))(torch.stack([x, 2 * x]), w)
        return *torch.func.grad(of, (0, 1))(x, w), batch

    for one, other in zip(gradients(beside), gradients(expected), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_a_registered_backward_is_given_the_gradient_of_what_is_returned():
    kernel = tile.kernel(beside.__wrapped__)
    kernel.vjp(lambda saved, d_offsets, dx, dy, *rest: {"x": dx + dy * 2 * saved["x"], "w": None})

    def of(x):
        _, first, y, *_ = kernel(x, W, OFFSETS)
        return (3 * first + y).sum()

    np.testing.assert_allclose(jax.grad(of)(jnp.asarray(X)), 3 + 2 * X, rtol=1e-6)
    x = torch.tensor(X, requires_grad=True)
    _, first, y, *_ = kernel(x, torch.from_numpy(W), torch.from_numpy(OFFSETS))
    (3 * first + y).sum().backward()
    torch.testing.assert_close(x.grad, 3 + 2 * torch.from_numpy(X))
