"""A registered backward in torch: every way to differentiate, and the words where there is none."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.autograd import forward_ad

import tilelang as tile
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
from tilelang.errors import GradientError
from tilelang.runtime import parsed, torch_ops

CASE = case()
X, W, STARTS = (torch.from_numpy(a) for a in (CASE.x, CASE.w, OFFSETS))
DY, DTOTAL = torch.from_numpy(CASE.dy), torch.from_numpy(CASE.dtotal)


@pytest.fixture(scope="module")
def made():
    return registered()


def loss(kernel, x, w, offsets=STARTS, scale=2.0):
    y, total = kernel(x, w, offsets, scale)
    return (y * DY).sum() + (total * DTOTAL).sum()


def leaves():
    return X.clone().requires_grad_(), W.clone().requires_grad_()


def backward(kernel, times=1):
    x, w = leaves()
    for _ in range(times):
        loss(kernel, x, w).backward()
    return x.grad / times, w.grad / times


def retained(kernel):
    x, w = leaves()
    value = loss(kernel, x, w)
    value.backward(retain_graph=True)
    value.backward()
    return x.grad / 2, w.grad / 2


def used_twice(kernel):
    x, w = leaves()
    found = torch.autograd.grad(loss(kernel, x, w) + loss(kernel, x, w), (x, w))
    return [g / 2 for g in found]


def checkpointed(kernel):
    x, w = leaves()
    torch.utils.checkpoint.checkpoint(
        lambda x, w: loss(kernel, x, w), x, w, use_reentrant=False
    ).backward()
    return x.grad, w.grad


def in_a_module(kernel):
    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(W.clone())

        def forward(self, x):
            return loss(kernel, x, self.w)

    layer, x = Layer(), X.clone().requires_grad_()
    layer(x).backward()
    return x.grad, layer.w.grad


def func_grad_of_vmap(kernel):
    def batched(x, w):
        f = torch.func.vmap(lambda x, w: loss(kernel, x, w), (0, None))
        return f(torch.stack([x, x]), w).sum() / 2

    return torch.func.grad(batched, (0, 1))(X, W)


def func_vmap(kernel):
    f = torch.func.grad(lambda x, w: loss(kernel, x, w), (0, 1))
    return [g[1] for g in torch.func.vmap(f, (0, None))(torch.stack([2 * X, X]), W)]


def cotangents_at_once(kernel):
    x, w = leaves()
    several = [torch.stack([2 * c, c]) for c in (DY, DTOTAL)]
    found = torch.autograd.grad(kernel(x, w, STARTS), (x, w), several, is_grads_batched=True)
    return [each[1] for each in found]


HOW = {
    "backward": backward,
    "backward twice": lambda k: backward(k, times=2),
    "retained graph": retained,
    "autograd.grad": lambda k: torch.autograd.grad(loss(k, *(xw := leaves())), xw),
    "used twice": used_twice,
    "int64 offsets": lambda k: torch.autograd.grad(loss(k, *(xw := leaves()), STARTS.long()), xw),
    "checkpoint": checkpointed,
    "a module": in_a_module,
    "func.grad": lambda k: torch.func.grad(lambda x, w: loss(k, x, w), (0, 1))(X, W),
    "func.vjp": lambda k: torch.func.vjp(lambda x, w: loss(k, x, w), X, W)[1](torch.tensor(1.0)),
    "vmap of func.grad": func_vmap,
    "cotangents at once": cotangents_at_once,
    "func.grad of vmap": func_grad_of_vmap,
}


@pytest.mark.parametrize("how", HOW)
def test_right(made, how):
    for found, wanted in zip(HOW[how](made.kernel), CASE.gradients(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["derived", "registered"])
def test_cotangents_at_once_are_one_batch(made, kind, monkeypatch):
    """One launch for each kernel of the gradient, which may be differentiated again."""
    kernel, batches = made.kernel if kind == "registered" else tile.kernel(product), []
    real = torch_ops._in_one
    monkeypatch.setattr(torch_ops, "_in_one", lambda c, *g: batches.append(c.name) or real(c, *g))
    x, w = leaves()
    y, _ = kernel(x, w, STARTS)  # the loss does not use the other result
    several = torch.stack([3 * DY, 0 * DY, DY])
    found = torch.autograd.grad(y, (x, w), several, is_grads_batched=True, retain_graph=True)
    for n, scale in enumerate((3, 0, 1)):
        wanted = torch.autograd.grad(y, (x, w), scale * DY, retain_graph=True)
        torch.testing.assert_close([g[n] for g in found], list(wanted))
    assert len(batches) == {"derived": 1, "registered": 2}[kind]
    (dx,) = torch.autograd.grad(y, x, several, is_grads_batched=True, create_graph=True)
    torch.testing.assert_close(torch.autograd.grad(dx[2].sum(), w)[0], dx[2].detach() / w.detach())


def test_nothing_is_computed_for_what_is_frozen(made):
    made.asked.clear()
    x, w = leaves()
    loss(made.kernel, x, W).backward()
    loss(made.kernel, X, w).backward()
    assert made.asked == ["x", "w"]
    with torch.no_grad():
        assert not loss(made.kernel, x, w).requires_grad
    assert not loss(made.kernel, X, W).requires_grad


def test_cotangents_of_no_stride(made):
    """The gradient of a sum is one number, expanded."""
    seen = []
    kernel = tile.kernel(product)
    kernel.def_vjp(backward=lambda saved, dy, dt: seen.append((dy, dt)) or {"x": dy.view(-1, 1)})
    x = X.clone().requires_grad_()
    with pytest.raises(tile.CallError, match=r"of shape \[480, 1\], and x has shape \[20, 24\]"):
        kernel(x, W, STARTS)[0].sum().backward()
    ((dy, dtotal),) = seen
    assert (dy.stride(), dtotal.stride()) == ((COLUMNS, 1), (1,))
    assert (dy == 1).all()
    assert (dtotal == 0).all()  # the loss does not use it
    (x2,) = torch.autograd.grad(made.kernel(x, W, STARTS)[0].sum(), x)
    (x3,) = torch.autograd.grad((made.kernel(x, W, STARTS)[0] * torch.ones(ROWS, COLUMNS)).sum(), x)
    assert torch.equal(x2, x3)


def test_gradients_have_the_dtypes_of_their_arguments(made):
    x, w = X.bfloat16().requires_grad_(), W.clone().requires_grad_()
    loss(made.kernel, x, w).backward()
    assert (x.grad.dtype, w.grad.dtype) == (torch.bfloat16, torch.float32)
    np.testing.assert_allclose(x.grad.float(), CASE.gradients()[0], rtol=0.05, atol=0.1)


def test_autocast_changes_nothing(made):
    x, w = leaves()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y, _ = made.kernel(x, w, STARTS)
    assert y.dtype == torch.float32


@pytest.mark.parametrize("given", [3.0, np.zeros((20, 24), np.float32)])
def test_a_gradient_that_is_no_tensor(given):
    kernel = tile.kernel(product)
    kernel.def_vjp(backward=lambda saved, dy, dt: {"x": given, "w": None})
    x, w = leaves()
    with pytest.raises(tile.CallError, match="the backward of kernel product gives a"):
        kernel(x, w, STARTS)[0].sum().backward()


def test_what_is_zero_and_what_is_left_out():
    kernel = tile.kernel(product)
    kernel.def_vjp(backward=lambda saved, dy, dt: {"x": None, "w": dy})
    x, w = leaves()
    kernel(x, w, STARTS)[0].sum().backward()
    assert x.grad is None
    assert (w.grad == 1).all()
    other = tile.kernel(product)
    other.def_vjp(backward=lambda saved, dy, dt: {"w": dy})
    with pytest.raises(tile.CallError, match="gives no gradient of 'x'"):
        other(x, w, STARTS)[0].sum().backward()


def test_a_forward_that_saves_what_is_no_argument():
    order = []
    kernel, run = tile.kernel(product), tile.kernel(product)

    def forward(x, w, offsets, scale):
        y, total = run(x, w, offsets, scale)
        return (y, total), {"twice": 2 * y, "y": y, "rest": ("a", x, 2 * total)}

    def back(saved, dy, dtotal):
        order.append(saved)
        return {"x": dy, "w": dy}

    kernel.def_vjp(forward=forward, backward=back)
    x, w = leaves()
    y, total = kernel(x, w, STARTS)
    y.sum().backward()
    (saved,) = order
    assert torch.equal(saved["twice"], 2 * y)
    assert torch.equal(saved["y"], y)
    assert saved["rest"][0] == "a"
    assert torch.equal(saved["rest"][1], x)
    assert torch.equal(saved["rest"][2], 2 * total)


def test_a_forward_that_saves_nothing_is_the_kernel_with_its_config(monkeypatch):
    used, x = configs_of(monkeypatch), torch.ones(40, requires_grad=True)
    tile.kernel(twice, config=CONFIG)(x).sum().backward()
    assert (x.grad == 2).all()
    assert used.pop("twice") == CONFIG and set(used.values()) == {None}


def test_gradients_of_gradients():
    """What else forward saved is computed again, or refused where an argument was not kept."""
    made, inner = registered(), registered()
    made.kernel._registration = None

    def rule(saved, dy, dtotal):
        _, w, offsets = saved
        return {"x": lambda: inner.kernel(dy, w, offsets)[0], "w": None}

    made.kernel.def_vjp(
        forward=lambda x, w, o, s: (inner.kernel(x, w, o), (x, w, o)), backward=rule
    )
    x, w = leaves()
    (dx,) = torch.autograd.grad((made.kernel(x, w, STARTS)[0] * DY).sum(), x, create_graph=True)
    (twice,) = torch.autograd.grad((dx * X).sum(), w)
    inside = np.zeros((ROWS, 1), np.float32)
    inside[OFFSETS[0] : OFFSETS[-1]] = 2.0
    np.testing.assert_allclose(twice, inside * CASE.dy * CASE.x, rtol=1e-5, atol=1e-5)

    extra = saving()
    (dx,) = torch.autograd.grad((extra(x, w, STARTS)[0] * DY).sum(), x, create_graph=True)
    np.testing.assert_allclose(dx.detach(), CASE.dy * CASE.w * 2, rtol=1e-5)
    with pytest.raises(tile.CallError) as caught:
        torch.autograd.grad(dx.sum(), w)
    error = caught.value
    assert error.what == (
        "kernel product is differentiated twice, which takes what its forward saved: that would be "
        "computed again of offsets, and offsets was not kept"
    )
    assert error.loc is not None and error.loc.text.startswith("def product(")
    assert error.hint == (
        "kept are arguments that require a gradient, and what a registered forward saves; or use "
        "JAX, where forward is differentiated too"
    )


def test_what_forward_saved_is_computed_again():
    """Where all arguments were kept; by a rule of the author's or of the compiler's."""
    inner, extra = registered(), tile.kernel(product)
    extra.def_vjp(
        forward=lambda x, w, o, s: (inner.kernel(x, w, o), (w * w, o)),
        backward=lambda saved, dy, dtotal: {"x": dy * saved[0], "w": None},
    )
    x, w = leaves()
    dy = DY.clone().requires_grad_()
    (dx,) = torch.autograd.grad((extra(x, w, STARTS)[0] * dy).sum(), x, create_graph=True)
    of_w, of_dy = torch.autograd.grad((dx * X).sum(), (w, dy))
    np.testing.assert_allclose(of_w, CASE.dy * CASE.x * CASE.w * 2, rtol=1e-5)
    np.testing.assert_allclose(of_dy, CASE.x * CASE.w**2, rtol=1e-5)


def saving():
    """Its forward saves what is no argument and no result."""
    inner, extra = registered(), tile.kernel(product)
    extra.def_vjp(
        forward=lambda x, w, o, s: (inner.kernel(x, w, o), w * 2),
        backward=lambda twice_w, dy, dtotal: {"x": dy * twice_w, "w": None},
    )
    return extra


def test_a_checkpoint_of_a_kernel_alone():
    """Its forward runs again while its backward asks for what was saved, and saves the same."""
    extra, (x, w) = saving(), leaves()
    y = torch.utils.checkpoint.checkpoint(
        lambda x, w: extra(x, w, STARTS)[0], x, w, use_reentrant=False
    )
    (y * DY).sum().backward()
    np.testing.assert_allclose(x.grad, CASE.dy * CASE.w * 2, rtol=1e-5)


def test_vmap_of_gradients_for_which_forward_saves():
    """What refuses second gradients had no rule for a batch: torch said so in its own words."""
    extra = saving()
    found = torch.func.vmap(torch.func.grad(lambda x, w: (extra(x, w, STARTS)[0] * DY).sum()))(
        torch.stack([X, 2 * X]), torch.stack([W, 3 * W])
    )
    for factor, dx in zip((1, 3), found, strict=True):
        np.testing.assert_allclose(dx, CASE.dy * CASE.w * 2 * factor, rtol=1e-5)


def test_forward_mode_of_a_gradient_is_refused(made):
    def loss(x):
        return made.kernel(x, W, STARTS)[0].sum()

    with pytest.raises(tile.CallError, match="kernel product has no derivative in forward mode\n"):
        torch.func.hessian(loss)(X)


def test_forward_mode_is_refused(made):
    with forward_ad.dual_level():
        x = forward_ad.make_dual(X, X)
        with pytest.raises(tile.CallError) as caught:
            made.kernel(x, W, STARTS)
    assert str(caught.value) == (
        "kernel product has no derivative in forward mode, and x carries a tangent\n"
        "  hint: use reverse mode: backward(), torch.func.grad, torch.func.vjp"
    )
    with pytest.raises(tile.CallError):
        torch.func.jvp(lambda x: made.kernel(x, W, STARTS)[0], (X,), (X,))


def test_what_has_neither(monkeypatch):
    def refuse(ir, facts, wanted, author):
        raise GradientError("it cannot be", ir.body[0].loc, "write it yourself: @product.vjp")

    monkeypatch.setattr(parsed, "derive", refuse)
    kernel, (x, _) = tile.kernel(product), leaves()
    with pytest.raises(tile.CallError) as caught:
        kernel(x, W, STARTS)
    what, _, line, caret, hint = str(caught.value).splitlines()
    assert what == "kernel product has no backward, and x requires grad: it cannot be"
    assert line.strip() == "for g in hl.grid(offsets.shape[0] - 1):"
    assert set(caret.strip()) == {"^"}
    assert hint == (
        "  hint: write it yourself: @product.vjp; or use torch.no_grad(), or pass x.detach()"
    )


def test_arguments_that_are_stored_to():
    @tile.kernel
    def add_to(y, x):
        for t in tile.language.tile(y.shape[0]):
            y[t] = y[t] + x[t]

    x, y = torch.ones(4, requires_grad=True), torch.zeros(4)
    with pytest.raises(tile.CallError) as caught:
        add_to(y, x)
    text = str(caught.value)
    assert text.startswith(
        "kernel add_to has no backward, and x requires grad: "
        "add_to stores to its argument y, which has no gradient then\n"
    )
    assert "y[t] = y[t] + x[t]" in text
    with torch.no_grad():
        add_to(y, x)
    assert (y == 1).all()


def jagged(*lengths):
    rows = [torch.randn(n, COLUMNS) for n in lengths]
    return torch.nested.nested_tensor(rows, layout=torch.jagged, requires_grad=True)


def test_jagged_tensors(made):
    nested = jagged(3, 0, 8)
    values, offsets = tile.from_njt(nested)
    y, _ = made.kernel(values, torch.ones_like(values), offsets)
    y.sum().backward()
    assert nested.grad.is_nested
    assert (nested.grad.values() == 2).all()
    with pytest.raises(tile.CallError) as caught:
        made.kernel(nested, W, STARTS)
    assert str(caught.value) == (
        "x is a nested torch tensor\n  hint: values, offsets = tile.from_njt(x)"
    )


def test_jagged_tensors_that_are_not():
    holes = torch.nested.narrow(
        torch.randn(2, 8, 4), 1, torch.tensor([0, 2]), torch.tensor([3, 4]), layout=torch.jagged
    )
    words = {
        "from_njt takes a jagged torch tensor, and this is a Tensor\n"
        "  hint: make one with torch.nested.nested_tensor(..., layout=torch.jagged)": X,
        "the jagged tensor has rows between its sequences, which offsets do not say\n"
        "  hint: pass from_njt(tensor.contiguous())": holes,
        "the jagged tensor is ragged along dimension 2\n"
        "  hint: transpose it, so that dimension 1 is the ragged one": jagged(2, 3).transpose(1, 2),
    }
    for message, value in words.items():
        with pytest.raises(tile.CallError) as caught:
            tile.from_njt(value)
        assert str(caught.value) == message
