"""A registered backward in JAX: every way to differentiate, and the words where there is none."""

from __future__ import annotations

import itertools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import checkify

import tilelang as tile
import tilelang.language as hl
from tests.gradients.kernels import (
    COLUMNS,
    CONFIG,
    OFFSETS,
    ROWS,
    case,
    configs_of,
    product,
    registered,
    twice,
)
from tilelang.codegen.pallas.plan import search as pallas_search
from tilelang.schedule.refusal import Refusal, Rule
from tilelang.transforms import legal

CASE = case()
X, W = jnp.asarray(CASE.x), jnp.asarray(CASE.w)


@pytest.fixture(scope="module")
def made():
    return registered()


def loss(kernel):
    def run(x, w, scale=2.0):
        y, total = kernel(x, w, jnp.asarray(OFFSETS), scale)
        return (y * CASE.dy).sum() + (total * CASE.dtotal).sum()

    return run


def scanned(f):
    return lambda x, w: jax.lax.scan(lambda c, _: (c + f(x, w), None), 0.0, None, length=2)[0] / 2


def batched(f):
    def run(x, w):
        return jax.vmap(f, (0, None))(jnp.stack([x, x]), w).sum() / 2

    return run


def both(f):
    return jax.grad(f, (0, 1))(X, W)


HOW = {
    "grad": both,
    "jit of grad": lambda f: jax.jit(jax.grad(f, (0, 1)))(X, W),
    "grad of jit": lambda f: both(jax.jit(f)),
    "vjp": lambda f: jax.vjp(f, X, W)[1](jnp.float32(1)),
    "value_and_grad": lambda f: jax.value_and_grad(f, (0, 1))(X, W)[1],
    "checkpoint": lambda f: both(jax.checkpoint(f)),
    "scan": lambda f: both(scanned(f)),
    "cond": lambda f: both(lambda x, w: jax.lax.cond(x[0, 0] < 9, f, lambda x, w: 0.0, x, w)),
    "vmap of grad": lambda f: [
        g[1] for g in jax.vmap(jax.grad(f, (0, 1)), (0, None))(jnp.stack([2 * X, X]), W)
    ],
    "grad of vmap": lambda f: both(batched(f)),
    "used twice": lambda f: [g / 2 for g in both(lambda x, w: f(x, w) + f(x, w))],
    "without a jit": lambda f: _without_jit(f),
    "ahead of time": lambda f: jax.jit(jax.grad(f, (0, 1))).lower(X, W).compile()(X, W),
    "donated": lambda f: jax.jit(jax.grad(f, (0, 1)), donate_argnums=0)(X + 0, W),
}


def _without_jit(f):
    with jax.disable_jit():
        return both(f)


@pytest.mark.parametrize("how", HOW)
def test_right(made, how):
    for found, wanted in zip(HOW[how](loss(made.kernel)), CASE.gradients(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_nothing_is_computed_for_what_is_frozen(made):
    made.asked.clear()
    jax.grad(loss(made.kernel), 1)(X, W)
    jax.grad(loss(made.kernel))(X, jax.lax.stop_gradient(W))
    jax.vjp(lambda x: loss(made.kernel)(x, W), X)
    assert made.asked == ["w", "x"]


def test_static_arguments_reach_backward(made):
    found = jax.grad(lambda x, w: loss(made.kernel)(x, w, 3.0), (0, 1))(X, W)
    for one, wanted in zip(found, CASE.gradients(3.0), strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-5)


def test_a_result_that_the_loss_does_not_use(made):
    found = jax.grad(lambda x: (made.kernel(x, W, OFFSETS)[0] * CASE.dy).sum())(X)
    wanted = case().gradients()[0] - 2 * CASE.dtotal[:, None] * CASE.w * _inside()
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def _inside():
    rows = np.arange(ROWS)[:, None]
    return (rows >= OFFSETS[0]) & (rows < OFFSETS[-1])


def test_gradients_have_the_dtypes_of_their_arguments(made):
    x = X.astype(jnp.bfloat16)
    found = jax.grad(loss(made.kernel), (0, 1))(x, W)
    assert [g.dtype for g in found] == [jnp.bfloat16, jnp.float32]
    for one, wanted in zip(found, CASE.gradients(), strict=True):
        np.testing.assert_allclose(one.astype(np.float32), wanted, rtol=0.05, atol=0.1)


def test_integers_have_no_gradient(made):
    offsets = jnp.asarray(OFFSETS)
    _, pull = jax.vjp(lambda x, o: made.kernel(x, W, o)[0], X, offsets)
    dx, do = pull(jnp.ones((ROWS, COLUMNS)))
    assert (dx.shape, do.dtype) == (X.shape, jax.dtypes.float0)


FORWARD_MODE = {
    "jvp": lambda f: jax.jvp(f, (X, W), (X, W)),
    "jit of jvp": lambda f: jax.jit(lambda x: jax.jvp(f, (x, W), (x, W)))(X),
    "jvp of jit": lambda f: jax.jvp(jax.jit(f), (X, W), (X, W)),
    "linearize": lambda f: jax.linearize(f, X, W)[1](X, W),
    "jacfwd": lambda f: jax.jacfwd(f)(X, W),
    "hessian": lambda f: jax.hessian(f)(X, W),
}


@pytest.mark.parametrize("how", FORWARD_MODE)
def test_forward_mode_is_refused(made, how):
    with pytest.raises(tile.CallError) as caught:
        FORWARD_MODE[how](loss(made.kernel))
    assert str(caught.value) == (
        "kernel product has no derivative in forward mode\n"
        "  hint: use reverse mode: jax.grad, jax.vjp, jax.jacrev"
    )


def transposed(f, x):
    return jax.linear_transpose(f, x)(f(x))


def tangents(f, x):
    """The gradient of a function whose tangents are computed by f."""
    outer = jax.custom_jvp(lambda x: f(x).sum())
    outer.defjvp(lambda primals, given: (outer(*primals), f(*given).sum()))
    return jax.grad(outer)(x)


@pytest.mark.parametrize("how", [transposed, tangents])
def test_a_transposition_is_refused(made, how):
    """JAX's own words name a primitive of JAX, and neither the kernel nor what helps."""
    for run in (made.kernel, jax.jit(made.kernel)):
        with pytest.raises(tile.CallError) as caught:
            how(lambda x, run=run: run(x, CASE.w, OFFSETS)[0], jnp.asarray(CASE.x))
        assert str(caught.value) == (
            "kernel product is transposed as a linear function, by jax.linear_transpose or in the "
            "tangents of a custom_jvp\n"
            "  hint: jax.vjp(f, x)[1] is the transpose of a linear f; instead of jax.custom_jvp "
            "use jax.custom_vjp, or neither: the kernel has a gradient"
        )


def with_backward(backward, forward=None):
    kernel = tile.kernel(product)
    kernel.def_vjp(backward=backward, forward=forward)
    return lambda: jax.grad(lambda x: kernel(x, W, OFFSETS)[0].sum())(X)


WRONG = {
    "a tuple": (
        with_backward(lambda saved, dy, dt: (dy, dy)),
        "the backward of kernel product returns a tuple of 2\n"
        "  hint: return a dictionary: {'x': gradient, ...}",
    ),
    "of an argument that there is not": (
        with_backward(lambda saved, dy, dt: {"x": dy, "y": dy}),
        "the backward of kernel product gives a gradient of 'y'\n"
        "  hint: the arguments that have gradients are x, w",
    ),
    "of integers": (
        with_backward(lambda saved, dy, dt: {"x": dy, "offsets": dy}),
        "the backward of kernel product gives a gradient of 'offsets'\n"
        "  hint: the arguments that have gradients are x, w",
    ),
    "none of what is wanted": (
        with_backward(lambda saved, dy, dt: {"w": dy}),
        "the backward of kernel product gives no gradient of 'x'\n"
        "  hint: return 'x': None if it is zero",
    ),
    "of another shape": (
        with_backward(lambda saved, dy, dt: {"x": dy[0]}),
        "the backward of kernel product gives a gradient of x of shape [24], "
        "and x has shape [20, 24]",
    ),
    "forward alone": (
        with_backward(lambda saved, dy, dt: {"x": dy}, forward=lambda x, w, o, s: x),
        "the forward of kernel product returns a",
    ),
    "other results": (
        with_backward(lambda saved, dy, dt: {"x": dy}, forward=lambda x, w, o, s: (x, ())),
        "the forward of kernel product returns results of shape none, "
        "and the kernel's have shape [20, 24], [20]\n"
        "  hint: return what the kernel returns, then what backward needs",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_registrations(wrong):
    run, message = WRONG[wrong]
    with pytest.raises(tile.CallError) as caught:
        run()
    assert str(caught.value).startswith(message)


def test_one_registration():
    made = registered()
    with pytest.raises(tile.CallError) as caught:
        made.kernel.vjp(lambda saved, dy, dt: {})
    assert str(caught.value) == (
        "kernel product has a backward already\n  hint: register one, where the kernel is defined"
    )


def test_a_gradient_that_is_zero():
    run = with_backward(lambda saved, dy, dt: {"x": None})
    np.testing.assert_array_equal(run(), np.zeros_like(X))


def test_nan_is_found_in_a_gradient(made):
    bad = X.at[0, 0].set(jnp.nan)
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        jax.grad(loss(made.kernel), 1)(bad, W)
    check = checkify.checkify(lambda x: jax.grad(loss(made.kernel))(x, W), checkify.float_checks)
    assert check(X)[0].get() is None


@tile.kernel
def scaled_sum(x, w):
    """The backward needs the sum, which the forward saves."""
    y = hl.zeros(x.shape, dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        total = hl.zeros([t], dtype=hl.float32)
        for u in hl.tile(x.shape[1]):
            total = total + hl.exp(x[t, u]).sum(1)
        y[t, :] = w[t][:, None] * x[t, :] / total[:, None]
    return y


@pytest.mark.parametrize(("part", "output"), [("forward", "saved_total"), ("backward", "d_x")])
def test_what_is_derived_and_has_no_plan_is_said_to_be(monkeypatch, part, output):
    """What saves more than the kernel makes may have none where the kernel has one."""
    plan, kernel = pallas_search.plan, tile.kernel(scaled_sum.__wrapped__)

    def refused(problem, config, target):
        if any(t.name == output for t in problem.ir.tensors if t.role == "output"):
            return Refusal(Rule.CONFIG, f"no room for {output}", hint="use smaller blocks")
        return plan(problem, config, target)

    monkeypatch.setattr(pallas_search, "plan", refused)
    with pytest.raises(tile.PlanError) as caught:
        jax.grad(lambda x: kernel(x, jnp.ones(24)).sum())(jnp.ones((24, 8)))
    assert caught.value.what == (
        f"the {part} that was derived of kernel scaled_sum has no plan: no room for {output}"
    )
    assert caught.value.hint == (
        "write the backward yourself, and register it with @scaled_sum.vjp; or use smaller blocks"
    )


@tile.kernel
def decayed(x, decay, offsets):
    """Linear attention of groups, in which queries, keys and values are one."""
    y = hl.zeros(x.shape, dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        state = hl.zeros([x.shape[1], x.shape[1]], dtype=hl.float32)
        for t in hl.grid(offsets[g], offsets[g + 1]):
            state = state * decay[t] + x[t, :][:, None] * x[t, :][None, :]
            y[t, :] = (x[t, :][:, None] * state).sum(0)
    return y


def test_what_was_derived_is_refused_by_the_name_of_its_author():
    """Nobody knows decayed_d_state, and nothing could be registered for it, were it refused."""

    def loss(x, decay):
        return (decayed(x, decay, np.array([0, 2, 5])) ** 2).sum()

    x, decay = jnp.ones((5, 8)), jnp.full(5, 0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(legal, "stored_once", lambda ir, name: name == "y")
        with pytest.raises(tile.CallError) as caught:
            jax.grad(lambda x: sum((g**2).sum() for g in jax.grad(loss, (0, 1))(x, decay)))(x)
    error = caught.value
    assert error.what.startswith(
        "the gradient of kernel decayed has no backward: "
        "the gradient of the gradient of kernel decayed cannot be derived: "
    )
    assert error.loc is not None and error.loc.text.strip().startswith("for t in hl.grid(")
    assert error.hint.startswith(
        "write the backward yourself, of kernels that have gradients, and register it with "
        "@decayed.vjp; or "
    )


def test_a_gradient_of_the_gradient_of_a_state():
    """The states of a loop that ran back have places, too: those of its indices, turned around."""
    offsets, rng = np.array([0, 2, 2, 5]), np.random.default_rng(0)
    x, decay = (jnp.asarray(rng.standard_normal(s), jnp.float32) for s in ((6, 4), (6,)))

    def plain(x, decay, offsets):
        y = jnp.zeros_like(x)
        for begin, end in itertools.pairwise(offsets):
            state = jnp.zeros((4, 4))
            for t in range(begin, end):
                state = state * decay[t] + x[t][:, None] * x[t][None, :]
                y = y.at[t].set(x[t] @ state)
        return y

    def second(kernel):
        first = jax.grad(lambda x, d: (kernel(x, d, offsets) ** 2).sum(), (0, 1))
        return jax.grad(lambda x, d: sum((g**2).sum() for g in first(x, d)), (0, 1))(x, decay)

    for found, wanted in zip(second(decayed), second(plain), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * float(abs(wanted).max()))


def test_a_forward_that_saves_nothing_is_the_kernel_with_its_config(monkeypatch):
    used = configs_of(monkeypatch)
    made = jax.grad(lambda x: tile.kernel(twice, config=CONFIG)(x).sum())(jnp.ones(40))
    assert (made == 2).all()
    assert used.pop("twice") == CONFIG and set(used.values()) == {None}


@tile.kernel
def taps(x, w):
    """A convolution: each tap of w is a block of its own."""
    y = hl.zeros([x.shape[0], w.shape[2]], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        acc = hl.zeros([t, w.shape[2]], dtype=hl.float32)
        for k in hl.static_range(w.shape[0]):
            inside = t.index + k < x.shape[0]
            rows = hl.load(x, [t.index + k, slice(None)], mask=inside[:, None], other=0)
            acc = hl.dot(rows, w[k, :, :], acc=acc)
        y[t, :] = acc
    return y


def test_parts_of_one_array_in_one_loop():
    kernel = tile.kernel(taps.__wrapped__)
    keys = jax.random.split(jax.random.key(0), 3)
    shapes = ((40, 8), (3, 8, 4), (40, 4))
    x, w, dy = (jax.random.normal(key, shape) for key, shape in zip(keys, shapes, strict=True))

    def exact(x, w):
        rows = jnp.pad(x, ((0, 2), (0, 0)))
        return sum(rows[k : k + 40] @ w[k] for k in range(3))

    found, wanted = (jax.vjp(f, x, w)[1](dy) for f in (kernel, exact))
    for mine, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-5, atol=1e-5)
    kernels = re.findall(r"^def (\w*_d_w\w*)", kernel.grad_source(x, w), re.M)
    assert len(kernels) == 1, "the blocks of w are stored in one array"
