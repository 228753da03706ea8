"""vmap from JAX and torch, and `Kernel.batched`: one launch, or one element after the other."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.frameworks import NEEDS_TORCH, torch
from tilelang.errors import CallError
from tilelang.runtime import lowering
from tilelang.schedule.refusal import Refusal, Rule

needs_torch = pytest.mark.skipif(torch is None, reason=NEEDS_TORCH)
RNG = np.random.default_rng(0)
XS = RNG.standard_normal((3, 20), np.float32)
FACTORS = np.array([2.0, -1.0, 0.5], np.float32)
OFFSETS = np.array([[0, 3, 20], [5, 5, 6], [0, 0, 0]], np.int32)


def scaled(x, factor, offsets):
    """y[r] = x[r] * factor + g for the rows of group g; factor is a number on the device."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            y[t] = x[t] * factor[()] + g
    return y


def of_one(x, factor, offsets):
    rows = np.arange(len(x))
    groups = np.searchsorted(offsets, rows, "right") - 1
    inside = (groups >= 0) & (rows < offsets[-1])
    return np.where(inside, x * factor + groups, 0).astype(np.float32)


EXPECTED = np.stack([of_one(*each) for each in zip(XS, FACTORS, OFFSETS, strict=True)])


@pytest.fixture(scope="module")
def kernel():
    return tile.kernel(scaled)


def given(make=np.asarray):
    return make(XS), make(FACTORS), make(OFFSETS)


def same(found, expected=EXPECTED):
    np.testing.assert_array_equal(np.asarray(found), expected)


def test_vmap(kernel):
    same(jax.vmap(kernel)(*given(jnp.asarray)))
    same(jax.jit(jax.vmap(kernel))(*given(jnp.asarray)))
    moved = jax.vmap(kernel, (-1, 0, -1), 1)(XS.T, FACTORS, OFFSETS.T)
    same(moved.T)
    with jax.enable_x64(True):
        same(jax.vmap(kernel)(*given(jnp.asarray)))
    with jax.disable_jit():
        same(jax.vmap(kernel)(*given(jnp.asarray)))


def test_vmap_is_one_operation(kernel):
    run = jax.jit(jax.vmap(jax.vmap(kernel, (0, None, None)), (None, 0, 0)))
    text = run.trace(*given(jnp.asarray)).lower(lowering_platforms=("tpu",)).as_text()
    assert text.count("tpu_custom_call") == 1 and "while" not in text


def test_vmap_of_vmap(kernel):
    run = jax.vmap(jax.vmap(kernel, (None, 0, None)), (0, None, 0), 2)
    found = np.asarray(run(*given(jnp.asarray)))
    for n, m in np.ndindex(3, 3):
        same(found[m, :, n], of_one(XS[n], FACTORS[m], OFFSETS[n]))


@needs_torch
def test_torch_vmap(kernel):
    arguments = given(torch.from_numpy)
    same(torch.func.vmap(kernel)(*arguments))
    moved = torch.func.vmap(kernel, (-1, 0, 1), 1)(arguments[0].T, arguments[1], arguments[2].T)
    same(moved.T)
    mixed = torch.func.vmap(lambda x, f: kernel(x * 1, f, OFFSETS[0]) + 0)
    same(mixed(*arguments[:2])[0], EXPECTED[0])
    run = torch.func.vmap(torch.func.vmap(kernel, (None, 0, None)), (0, None, 0), 2)
    found = run(*arguments).numpy()
    for n, m in np.ndindex(3, 3):
        same(found[m, :, n], of_one(XS[n], FACTORS[m], OFFSETS[n]))


@needs_torch
def test_torch_gradients_are_not_lost(kernel):
    x, factors, offsets = (t.clone() for t in given(torch.from_numpy))
    x.requires_grad_()
    factors.requires_grad_()
    torch.func.vmap(kernel)(x, factors, offsets).sum().backward()
    inside = np.stack([(np.arange(20) >= o[0]) & (np.arange(20) < o[-1]) for o in OFFSETS])
    np.testing.assert_array_equal(x.grad, inside * FACTORS[:, None])
    np.testing.assert_allclose(factors.grad, (inside * XS).sum(1), rtol=1e-5)


def incremented(x):
    for t in hl.tile(x.shape[0]):
        x[t] = x[t] + 1.0


@tile.kernel
def shares(x, factor, offsets):
    """Of the exponentials of each group, whose sum forward saves."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        total = hl.zeros([], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            total = total + hl.exp(x[t]).sum()
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            y[t] = factor[()] * hl.exp(x[t]) / total
    return y


@needs_torch
@pytest.mark.filterwarnings("error:There is a performance drop")
def test_torch_vmap_of_gradients_is_one_launch_for_each_part(monkeypatch):
    """Without a rule for a batch torch calls the operation of a part for each of its elements."""
    asked, run = [], tile.Kernel._run_part

    def counted(self, config, target, parsed, tensors, checked):
        asked.append([tuple(t.shape) for t in tensors])
        return run(self, config, target, parsed, tensors, checked)

    monkeypatch.setattr(tile.Kernel, "_run_part", counted)
    x, factors, offsets = given(torch.from_numpy)

    def loss(x, factor, offsets):
        return (shares(x, factor, offsets) ** 2).sum()

    found = torch.func.vmap(torch.func.grad(loss, (0, 1)))(x, factors, offsets)
    assert all(shapes[0][0] == len(x) for shapes in asked), asked
    launches = len(asked)
    for n in range(len(x)):
        one = torch.func.grad(loss, (0, 1))(x[n], factors[n], offsets[n])
        for mine, whole in zip(one, found, strict=True):
            torch.testing.assert_close(whole[n], mine)
    assert len(asked) == (1 + len(x)) * launches


@needs_torch
def test_torch_does_not_batch_stores():
    x, kernel = torch.zeros(3, 20), tile.kernel(incremented)
    with pytest.raises(CallError) as caught:
        torch.func.vmap(kernel)(x)
    assert str(caught.value) == (
        "incremented stores to x, which torch.func.vmap does not batch\n"
        "  hint: store to a new output and return it, or call incremented.batched('x', ...)"
    )
    assert kernel.batched("x")(x) is None
    assert (x == 1).all()


def test_batched(kernel):
    whole = kernel.batched("x", "factor", "offsets")
    assert whole is kernel.batched("x", "factor", "offsets")
    same(whole(*given()))
    same(whole(*given(jnp.asarray)))
    same(jax.jit(whole)(*given(jnp.asarray)))
    same(whole.reference(*given()))
    same(kernel.batched("x")(XS, FACTORS[0], OFFSETS[0])[0], EXPECTED[0])
    twice = kernel.batched("factor").batched("x", "offsets")
    same(twice(XS, FACTORS, OFFSETS)[1, 1], EXPECTED[1])
    assert whole(XS[:0], FACTORS[:0], OFFSETS[:0]).shape == (0, 20)
    assert jax.vmap(kernel, (0, None, 0))(XS[:0], FACTORS[0], OFFSETS[:0]).shape == (0, 20)


def test_offsets_of_every_element_are_checked(kernel):
    wrong = OFFSETS.copy()
    wrong[1, 2] = 21
    with pytest.raises(ValueError, match=r"^offsets\[1, 2\] = 21 is past the 20 columns of x"):
        kernel.batched("x", "offsets")(XS, FACTORS[0], wrong)


MISTAKES = {
    "no name": (
        lambda k: k.batched(),
        "which arguments of scaled are batched?\n  hint: name some of x, factor, offsets",
    ),
    "an unknown name": (
        lambda k: k.batched("w"),
        "scaled has no parameter 'w' to batch\n  hint: name some of x, factor, offsets",
    ),
    "a number": (
        lambda k: k.batched("factor")(XS[0], FACTORS[0, ...], OFFSETS[0]),
        "factor has no dimension and cannot be batched\n  hint: leave it out",
    ),
    "different sizes": (
        lambda k: k.batched("x", "offsets")(XS, FACTORS[0], OFFSETS[:2]),
        "batched arguments have different numbers of elements: x has 3, offsets has 2",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes(kernel, mistake):
    call, text = MISTAKES[mistake]
    with pytest.raises(CallError) as caught:
        call(kernel)
    assert str(caught.value) == text


# ------------------------------------------------------------ where the kernel of all is refused


def refusing_kernel(monkeypatch):
    """A kernel of which no batch can be planned."""
    real = lowering.lowered

    def lowered(ir, facts, config, target):
        if any(axis.name.startswith("batch") for axis in ir.axes):
            return Refusal(Rule.FORM, "no batches today")
        return real(ir, facts, config, target)

    monkeypatch.setattr(lowering, "lowered", lowered)
    return tile.kernel(scaled)


@pytest.fixture
def refusing(monkeypatch):
    return refusing_kernel(monkeypatch)


def test_one_element_after_the_other(refusing):
    same(jax.vmap(refusing)(*given(jnp.asarray)))
    same(refusing.batched("x", "factor", "offsets")(*given()))
    same(jax.jit(refusing.batched("x", "factor", "offsets"))(*given(jnp.asarray)))
    found = jax.vmap(jax.vmap(refusing, (None, 0, None)), (0, None, 0))(*given(jnp.asarray))
    same(found[1, 1], EXPECTED[1])
    if torch is not None:
        arguments = given(torch.from_numpy)
        same(torch.func.vmap(refusing)(*arguments))
        gradient = torch.func.grad(lambda *each: (refusing(*each) ** 2).sum())
        own = [gradient(*each) for each in zip(*arguments, strict=True)]
        same(torch.func.vmap(gradient)(*arguments), torch.stack(own).numpy())


def test_explain_says_so():
    """Scalar memory holds the offsets of one element, and not those of all."""
    kernel = tile.kernel(target="tpu:v6e")(scaled)
    x, factor, offsets = ((64, 20), "float32"), ((), "float32"), ((64, 4097), "int32")
    specs = (tile.spec(*x), tile.spec(*factor), tile.spec(*offsets))
    text = kernel.batched("x", "offsets").explain(*specs)
    assert text.startswith(
        "one element after the other, because the kernel of all is refused:\n"
        "scaled reads single numbers of tensors that take 4,194,564 bytes of scalar memory; "
    )
    assert "\n\nkernel scaled(x: float32[20], factor: float32[], offsets: int32[4097])" in text
