"""Gradients of kernels that read or return arrays in another shape, and of arrays without one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.tiers import share

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 8), np.float32)


@tile.kernel
def scaled(x, s):
    y = hl.empty(x.shape, dtype=x.dtype)
    z = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :] * s + hl.exp(s)
    for t in hl.tile(x.shape[0]):
        z[t, :] = x[t, :] * s
    return y, z


@tile.kernel
def total(x):
    y = hl.zeros([], dtype=x.dtype)
    for _ in hl.grid(1):
        acc = 0.0
        for t in hl.tile(x.shape[0]):
            acc = acc + (x[t, :] * x[t, :]).sum(1).sum(0)
        y[()] = acc
    return y


@tile.kernel
def layer(x, w):
    """tanh(x w^T) of rows in batches: arguments and the result are views."""
    B, S, D = x.shape
    rows, turned = x.reshape(B * S, D), w.T
    y = hl.empty([B * S, w.shape[0]], dtype=x.dtype)
    for tm, tn in hl.tile([B * S, w.shape[0]]):
        y[tm, tn] = hl.tanh(hl.dot(rows[tm, :], turned[:, tn]))
    return y.reshape(B, S, w.shape[0])


@tile.kernel
def columns(x):
    turned = x.permute(1, 0)
    y = hl.empty([x.shape[1], x.shape[0]], dtype=x.dtype)
    for t in hl.tile(x.shape[1]):
        y[t, :] = hl.softmax(turned[t, :], -1)
    return y.permute(1, 0)


@tile.kernel
def twice(x):
    """One array by two names."""
    flat = x.reshape(-1)
    y = hl.empty(x.shape, dtype=x.dtype)
    z = hl.empty(flat.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :] * 3
    for u in hl.tile(flat.shape[0]):
        z[u] = flat[u] * flat[u]
    return y, z


@tile.kernel
def forms(x):
    """One result in three shapes, and once more; it is read by the next launch, too."""
    y = hl.empty(x.shape, dtype=x.dtype)
    s = hl.empty([x.shape[0]], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = hl.exp(x[t, :])
    for t in hl.tile(x.shape[0]):
        s[t] = y[t, :].sum(1)
    return y.reshape(3, 2, 8), y, s, y.T, y


def exponentials(x):
    y = jnp.exp(x)
    return y.reshape(3, 2, 8), y, y.sum(1), y.T, y


CASES = {
    "a number, in two launches": (
        scaled, lambda x, s: (x * s + jnp.exp(s), x * s), (X, np.float32(0.5)),
    ),
    "a result without dimensions": (total, lambda x: (x * x).sum(), (X,)),
    "rows of batches": (
        layer, lambda x, w: jnp.tanh(x @ w.T), (X.reshape(2, 3, 8), X[:4].copy()),
    ),
    "turned": (columns, lambda x: jax.nn.softmax(x, 0), (X,)),
    "several forms": (forms, exponentials, (X,)),
    "two names": (twice, lambda x: (x * 3, (x * x).reshape(-1)), (X,)),
}  # fmt: skip


def pulled_back(run, arguments):
    def loss(*arrays):
        weighed = (
            jnp.cos(jnp.arange(r.size)).reshape(r.shape) * r for r in jax.tree.leaves(run(*arrays))
        )
        return sum(w.sum() for w in weighed)

    return jax.grad(loss, tuple(range(len(arguments))))(*arguments)


@pytest.mark.parametrize("case", share(CASES, 2))
def test_gradients_of_views(case):
    kernel, same, arguments = CASES[case]
    wanted = pulled_back(same, arguments)
    for found, exact in zip(pulled_back(kernel, arguments), wanted, strict=True):
        assert found.shape == exact.shape
        np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-5)


def test_in_torch():
    torch = pytest.importorskip("torch")
    x, s = torch.from_numpy(X).requires_grad_(), torch.tensor(0.5, requires_grad=True)
    y, z = scaled(x, s)
    (y.sum() + z.sum()).backward()
    assert x.grad is not None and s.grad is not None and s.grad.shape == ()
    assert torch.allclose(
        s.grad, torch.tensor(float(2 * X.sum() + X.size * np.exp(0.5))), rtol=1e-5
    )


def test_several_forms_in_torch():
    """One of them alone, all of them, and a gradient of a gradient."""
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(X).requires_grad_()
    forms(x)[3].sum().backward()
    assert torch.allclose(x.grad, x.exp())
    (first,) = torch.autograd.grad(sum(r.sum() for r in forms(x)), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.allclose(first, 5 * x.exp()) and torch.allclose(second, 5 * x.exp())


def test_a_batch_of_gradients():
    numbers = jnp.arange(3.0)
    found = jax.vmap(jax.grad(lambda s: scaled(X, s)[1].sum()))(numbers)
    np.testing.assert_allclose(found, np.full(3, X.sum()), rtol=1e-5)


def test_parts_of_one_array_are_added_in_float32():
    half = X.astype(jnp.bfloat16)
    found = twice.grad_source(half)
    assert "d_flat = hl.zeros([48], dtype=hl.float32)" in found


def test_a_view_of_what_is_made_is_refused():
    @tile.kernel
    def again(x):
        y = hl.empty(x.shape, dtype=x.dtype)
        flat = y.reshape(-1)
        z = hl.empty(flat.shape, dtype=x.dtype)
        for t in hl.tile(x.shape[0]):
            y[t, :] = x[t, :] * 3
        for u in hl.tile(flat.shape[0]):
            z[u] = flat[u] * flat[u]
        return z

    with pytest.raises(tile.CallError, match="flat is another view of what the kernel makes"):
        jax.grad(lambda x: again(x).sum())(X)


def test_an_argument_that_is_only_returned_in_another_shape_has_a_gradient():
    @tile.kernel
    def beside(x, w):
        y = hl.empty(x.shape, dtype=x.dtype)
        for t in hl.tile(x.shape[0]):
            y[t, :] = x[t, :] * 3
        return y, x.reshape(-1), w.T

    def loss(run, x, w):
        return sum((n * jnp.sin(r)).sum() for n, r in enumerate(run(x, w), 1))

    def expected(x, w):
        return x * 3, x.reshape(-1), w.T

    found = jax.grad(loss, (1, 2))(beside, X, X[:3])
    for one, other in zip(found, jax.grad(loss, (1, 2))(expected, X, X[:3]), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
