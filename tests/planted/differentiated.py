"""Bugs planted in how gradients reach JAX and torch, and the check that must notice each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sympy
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

import tilelang as tile
from tests.gradients.kernels import OFFSETS, case, product, registered
from tests.gradients.test_operation_names import base, by_closure
from tests.planted.modes import Broken
from tilelang.runtime import gradients, jax_gradient, torch_gradient, torch_ops, torch_shapes
from tilelang.runtime.torch_shapes import rule_for
from tilelang.runtime.written_down import digest

CASE = case()
X, W, STARTS = (torch.from_numpy(a) for a in (CASE.x, CASE.w, OFFSETS))


def _close(found: Sequence[Any], scale: float = 2.0) -> bool:
    pairs = zip(found, CASE.gradients(scale), strict=True)
    return all(np.allclose(np.asarray(a), b, rtol=1e-4, atol=1e-4) for a, b in pairs)


def right_in_torch() -> bool:
    kernel = registered().kernel
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    y, total = kernel(x, w, STARTS)
    loss = (y * torch.from_numpy(CASE.dy)).sum()
    (loss + (total * torch.from_numpy(CASE.dtotal)).sum()).backward()
    return _close((x.grad, w.grad))


def right_in_jax() -> bool:
    kernel = registered().kernel

    def loss(x: Any, w: Any) -> Any:
        y, total = kernel(x, w, OFFSETS)
        return (y * CASE.dy).sum() + (total * CASE.dtotal).sum()

    return _close(jax.grad(loss, (0, 1))(jnp.asarray(CASE.x), jnp.asarray(CASE.w)))


def frozen_in_torch() -> bool:
    made = registered()
    made.kernel(X.clone().requires_grad_(), W, STARTS)[0].sum().backward()
    return made.asked == ["x"]


def frozen_in_jax() -> bool:
    made = registered()
    jax.grad(lambda x: made.kernel(x, CASE.w, OFFSETS)[0].sum())(jnp.asarray(CASE.x))
    return made.asked == ["x"]


def _with(backward: Any, forward: Any = None) -> tile.Kernel:
    kernel = tile.kernel(product)
    kernel.def_vjp(backward=backward, forward=forward)
    return kernel


def left_out_is_no_zero() -> bool:
    x = X.clone().requires_grad_()
    try:
        _with(lambda saved, dy, dt: {})(x, W, STARTS)[0].sum().backward()
    except tile.CallError:
        return True
    return False


def unused_results_have_zeros() -> bool:
    seen = list[Any]()
    kernel = _with(lambda saved, dy, dt: seen.append(dt) or {"x": dy})
    kernel(X.clone().requires_grad_(), W, STARTS)[0].sum().backward()
    return seen[0] is not None and bool((seen[0] == 0).all())


def cotangents_have_strides() -> bool:
    seen = list[Any]()
    kernel = _with(lambda saved, dy, dt: seen.append(dy.stride()) or {"x": dy})
    kernel(X.clone().requires_grad_(), W, STARTS)[0].sum().backward()
    return seen == [(X.shape[1], 1)]


def dtypes_of_gradients() -> bool:
    kernel = _with(lambda saved, dy, dt: {"x": dy.astype(np.float32)})
    x = jnp.asarray(CASE.x, jnp.bfloat16)
    found = jax.grad(lambda x: kernel(x, CASE.w, OFFSETS)[0].astype(np.float32).sum())(x)
    return found.dtype == jnp.bfloat16


def saved_in_order() -> bool:
    run, seen = tile.kernel(product), list[Any]()

    def forward(x: Any, w: Any, offsets: Any, scale: float) -> Any:
        y, total = run(x, w, offsets, scale)
        return (y, total), (w * 3, y, x, total * 2)

    kernel = _with(lambda saved, dy, dt: seen.extend(saved) or {"x": dy}, forward)
    y, total = kernel(X.clone().requires_grad_(), W, STARTS)
    y.sum().backward()
    wanted = W * 3, y, X, total * 2
    return all(torch.equal(a, b) for a, b in zip(seen, wanted, strict=True))


def second_gradients_are_whole() -> bool:
    run = tile.kernel(product)
    kernel = _with(
        lambda twice, dy, dt: {"x": dy * twice, "w": None},
        lambda x, w, o, s: (run(x, w, o, s), 2 * w),
    )
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    (dx,) = torch.autograd.grad(kernel(x, w, STARTS)[0].sum(), x, create_graph=True)
    try:
        torch.autograd.grad((dx + w).sum(), w)
    except tile.CallError:
        return True
    return False


def second_gradients_are_of_cotangents() -> bool:
    """Where they are computed again."""
    run = tile.kernel(product)
    kernel = _with(
        lambda saved, dy, dt: {"x": dy * saved[0], "w": None},
        lambda x, w, o, s: (run(x, w, o, s), (2 * w, o)),
    )
    x, w, dy = (t.clone().requires_grad_() for t in (X, W, torch.from_numpy(CASE.dy)))
    (dx,) = torch.autograd.grad((kernel(x, w, STARTS)[0] * dy).sum(), x, create_graph=True)
    found = torch.autograd.grad(dx.sum(), dy, allow_unused=True)[0]
    return found is not None and np.allclose(found, 2 * CASE.w)


def _of_arguments_alone(
    call: Any, found: Any, arguments: Any, cotangents: Any, wanted: Any
) -> list[Any]:
    return again(
        call, found, arguments, [c if c is None else c.detach() for c in cotangents], wanted
    )


again = torch_gradient._again


def forward_mode_is_refused() -> bool:
    kernel = registered().kernel
    x = jnp.asarray(CASE.x)
    try:
        jax.hessian(lambda x: kernel(x, CASE.w, OFFSETS)[0].sum())(x)
    except tile.CallError:
        return True
    return False


def gradients_of_operations() -> bool:
    kernel = registered().kernel
    traced = torch.jit.trace(lambda x: kernel(x, W, STARTS)[0], (X,))
    x = X.clone().requires_grad_()
    traced(x).sum().backward()
    return x.grad is not None and bool((x.grad[:16] == 2 * W[:16]).all())


def shapes_of_other_sizes() -> bool:
    class Symbol:
        expr, hint = sympy.Symbol("rows"), 20
        node: Any

        def __int__(self) -> int:
            return 20

    rows: Any = Symbol()
    rows.node = rows
    return rule_for((rows,), lambda s: ((-(-s[0] // 64) * 64,),)).symbols == ()


def unrolled_sizes_are_fixed() -> bool:
    class Symbol:
        expr, hint = sympy.Symbol("columns"), 3
        node: Any

        def __int__(self) -> int:
            return 3

    columns: Any = Symbol()
    columns.node = columns
    return rule_for((columns,), lambda s: ((8,),), lambda s: s[0]).symbols == ()


def operations_are_named_by_meaning() -> bool:
    """Two kernels of a factory have two names, in both orders."""
    names = [_named(n) for n in (2, 3, 3, 2)]
    return names == names[::-1] and names[0] != names[1]


def _named(factor: int) -> str:
    kernel = by_closure(factor)
    kernel(X[0])
    (callee,) = (c for made in kernel._torches.values() for c in made.callees.values())
    (operation,) = callee.operations.values()
    return base(str(operation.overload).split(".")[1])


def offsets_are_no_constants() -> bool:
    kernel = registered().kernel
    traced = make_fx(lambda x, o: kernel(x, W, o)[0])(X, STARTS)
    other = torch.tensor([0, 1, 2, 3], dtype=torch.int32)
    return torch.equal(traced(X, other), kernel(X, W, other)[0])


def _swapped(name: str, made: Any, ir: Any, wanted: Any) -> Any:
    found = gradients_chosen(name, made, ir, wanted)
    return dict(zip(reversed(list(found)), found.values(), strict=True))


def _everything(name: str, made: Any, ir: Any, wanted: Any) -> Any:
    return gradients_chosen(name, made, ir, frozenset(made)) if made else {}


def checkpoints_run_forward() -> bool:
    """What runs forward again while backward runs is no backward."""
    kernel, x = _saving(), X.clone().requires_grad_()
    y = checkpoint(lambda x: kernel(x, W, STARTS)[0], x, use_reentrant=False)
    y.sum().backward()
    return torch.equal(x.grad, torch.full_like(X, 3.0))


def cotangents_at_once() -> bool:
    kernel, x = registered().kernel, X.clone().requires_grad_()
    y, dy = kernel(x, W, STARTS)[0], torch.from_numpy(CASE.dy)
    twice = torch.autograd.grad(y, x, torch.stack([dy, 2 * dy]), is_grads_batched=True)[0]
    return torch.equal(twice[1], 2 * twice[0])


def _saving() -> tile.Kernel:
    """A kernel whose forward saves what is neither an argument nor a result."""
    return _with(
        lambda three, dy, dtotal: {"x": dy * three, "w": None},
        lambda x, w, o, s: (tile.kernel(product)(x, w, o, s), torch.full_like(x, 3.0)),
    )


def _in_any_order(call: Any, places: Any, tensors: Any) -> Any:
    leaves, tree = call.saved[0]
    back = iter(tensors[::-1])
    found = [next(back) if isinstance(x, torch_gradient._SavedPlace) else x for x in leaves]
    return torch.utils._pytree.tree_unflatten(found, tree)


def _all_inside(ctx: Any, *cotangents: Any) -> Any:
    with torch_gradient._inside_backward():
        return backward_of_call(ctx, *cotangents)


def _as_it_is(cotangent: Any, shape: Any, dtype: Any, device: Any) -> Any:
    return cotangent


backward_of_call = torch_gradient._Gradient.backward
step_of_a_size = torch_shapes._step
gradients_chosen: Callable[..., Any] = gradients._chosen

BROKEN = (
    Broken("gradients are swapped, in torch", gradients, "_chosen", _swapped, right_in_torch),
    Broken("gradients are swapped, in JAX", gradients, "_chosen", _swapped, right_in_jax),
    Broken("unwanted gradients are computed, in torch", gradients, "_chosen", _everything,
           frozen_in_torch),
    Broken("unwanted gradients are computed, in JAX", gradients, "_chosen", _everything,
           frozen_in_jax),
    Broken("a gradient that is left out is zero", gradients, "_chosen",
           lambda name, made, ir, wanted: {n: made.get(n) for n in wanted}, left_out_is_no_zero),
    Broken("the cotangent of an unused result is None", torch_gradient, "_full", _as_it_is,
           unused_results_have_zeros),
    Broken("cotangents come as torch expands them", torch_gradient, "_full", _as_it_is,
           cotangents_have_strides),
    Broken("gradients keep their own dtype", jax_gradient, "_checked",
           lambda name, operand, made, wanted: made, dtypes_of_gradients),
    Broken("saved tensors come back in another order", torch_gradient, "_saved", _in_any_order,
           saved_in_order),
    Broken("several cotangents at once are one", torch_gradient, "_for_each",
           lambda run, cotangents: run(cotangents), cotangents_at_once),
    Broken("a checkpoint runs forward as a part of backward", torch_gradient._Gradient, "backward",
           _all_inside, checkpoints_run_forward),
    Broken("second gradients are a part of the whole", torch_gradient, "_again",
           lambda call, found, *given: list(found), second_gradients_are_whole),
    Broken("second gradients are those of arguments", torch_gradient, "_again",
           _of_arguments_alone, second_gradients_are_of_cotangents),
    Broken("forward mode meets JAX's own words", jax_gradient, "_is_float", lambda array: False,
           forward_mode_is_refused),
    Broken("operations have no gradient", torch_ops, "wants_gradient", lambda tensors: False,
           gradients_of_operations),
    Broken("one guess of a shape is enough", torch_shapes, "_tested",
           lambda rule, shapes_of: True, shapes_of_other_sizes),
    Broken("what is unrolled may be any number", torch_shapes, "_step",
           lambda *given: step_of_a_size(*given[:-1], lambda sizes: 0), unrolled_sizes_are_fixed),
    Broken("calls in a trace are computed at once", torch_ops, "unusual", lambda tensors: False,
           offsets_are_no_constants),
    Broken("operations have the names of their texts", torch_ops, "digest",
           lambda *parts: digest(parts[0]), operations_are_named_by_meaning),
)  # fmt: skip
