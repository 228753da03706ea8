"""differentiable(run, ...) -> run: a kernel that jax.grad, vjp and their like differentiate.

Reverse mode is `jax.custom_vjp`, told by JAX which arguments the loss depends on.  Forward mode is
refused: each float argument passes an identity whose tangent can be transposed, but not computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from ..errors import CallError, GradientError
from .gradients import Gradient, misshapen, refused

Resolve = Callable[[frozenset[str]], Gradient]


def differentiable(
    name: str, operands: Sequence[str], run: Callable[..., Any], single: bool, resolve: Resolve
) -> Callable[..., Any]:
    """`run` with a derivative; `resolve` finds the gradient for the arguments that want one."""
    call = jax.custom_vjp(run)
    forward = partial(_forward, name, tuple(operands), single, resolve)
    call.defvjp(forward, partial(_backward, name, tuple(operands), single), symbolic_zeros=True)

    def guarded(*arrays: Any) -> Any:
        return call(*[_argument.bind(a, kernel=name) if _is_float(a) else a for a in arrays])

    return guarded


def _is_float(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jnp.floating)


# ---------------------------------------------------------------- reverse mode


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class _Kept:
    """What backward needs besides arrays.

    shapes  shape and dtype of every wanted argument
    tree    the structure of what was saved, and `rest` its leaves that are no arrays, by place
    """

    gradient: Gradient
    shapes: Mapping[str, tuple[tuple[int, ...], Any]]
    tree: Any
    rest: Mapping[int, Any]


def _forward(
    name: str, operands: tuple[str, ...], single: bool, resolve: Resolve, *primals: Any
) -> Any:
    wanted = {
        operand: (p.value.shape, p.value.dtype)
        for operand, p in zip(operands, primals, strict=True)
        if p.perturbed and _is_float(p.value)
    }
    try:
        gradient = resolve(frozenset(wanted))
    except GradientError as error:
        stop = "use jax.lax.stop_gradient on its inputs, if no gradient is needed"
        raise refused(name, error, otherwise=stop) from None
    results, saved = gradient.forward([p.value for p in primals])
    leaves, tree = jax.tree_util.tree_flatten(saved)
    rest = {n: leaf for n, leaf in enumerate(leaves) if not _is_array(leaf)}
    arrays = [leaf for n, leaf in enumerate(leaves) if n not in rest]
    return results[0] if single else results, (_Kept(gradient, wanted, tree, rest), arrays)


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and hasattr(leaf, "shape")


def _backward(
    name: str, operands: tuple[str, ...], single: bool, residuals: Any, cotangents: Any
) -> tuple[Any, ...]:
    kept, arrays = residuals
    given = (cotangents,) if single else cotangents
    if all(isinstance(c, SymbolicZero) for c in given):
        return (None,) * len(operands)
    each = iter(arrays)
    leaves = [kept.rest[n] if n in kept.rest else next(each) for n in range(kept.tree.num_leaves)]
    saved = jax.tree_util.tree_unflatten(kept.tree, leaves)
    made = kept.gradient.backward(saved, [_full(c) for c in given], frozenset(kept.shapes))
    return tuple(_checked(name, o, made.get(o), kept.shapes.get(o)) for o in operands)


def _full(cotangent: Any) -> Any:
    """The cotangent as an array; None for integers, whose cotangents are nothing at all."""
    if cotangent.dtype == jax.dtypes.float0:
        return None
    if isinstance(cotangent, SymbolicZero):
        like: Any = cotangent.aval
        return jnp.zeros(like.shape, like.dtype)
    return cotangent


def _checked(name: str, operand: str, made: Any, wanted: tuple[tuple[int, ...], Any] | None) -> Any:
    """The gradient in the dtype of its argument; None is zero."""
    if made is None or wanted is None:
        return None
    shape, dtype = wanted
    if tuple(made.shape) != tuple(shape):
        raise misshapen(name, operand, made.shape, shape)
    return jnp.asarray(made, dtype)


# ---------------------------------------------------------------- forward mode

_argument = core.Primitive("tile_kernel_argument")  # an identity
_tangent = core.Primitive("tile_kernel_tangent")  # its tangent: transposed, and never computed


def _no_forward_mode(*args: Any, kernel: str, **params: Any) -> Any:
    raise CallError(
        f"kernel {kernel} has no derivative in forward mode",
        hint="use reverse mode: jax.grad, jax.vjp, jax.jacrev",
    )


def _jvp(primals: Any, tangents: Any, *, kernel: str) -> tuple[Any, Any]:
    (primal,), (tangent,) = primals, tangents
    zero = isinstance(tangent, ad.Zero)
    bound = tangent if zero else _tangent.bind(tangent, kernel=kernel)
    return _argument.bind(primal, kernel=kernel), bound


def _batched(args: Sequence[Any], dims: Sequence[Any], *, kernel: str) -> tuple[Any, Any]:
    return _argument.bind(*args, kernel=kernel), dims[0]


_argument.def_impl(lambda array, kernel: array)
_argument.def_abstract_eval(lambda array, kernel: array)
ad.primitive_jvps[_argument] = _jvp
batching.primitive_batchers[_argument] = _batched
mlir.register_lowering(_argument, lambda ctx, array, kernel: [array])

ad.deflinear2(_tangent, lambda cotangent, _, kernel: [cotangent])
_tangent.def_impl(_no_forward_mode)
_tangent.def_abstract_eval(lambda tangent, kernel: tangent)
batching.primitive_batchers[_tangent] = _no_forward_mode
mlir.register_lowering(_tangent, lambda ctx, tangent, kernel: _no_forward_mode(kernel=kernel))
