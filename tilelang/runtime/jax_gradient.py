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
from jax.core import Tracer
from jax.custom_derivatives import SymbolicZero
from jax.extend import core
from jax.interpreters import ad, batching, mlir

from ..errors import CallError, GradientError
from .gradients import Gradient, misshapen, refused
from .jax_compat import sharded_like, sharding_of, varying_alike

Shape = tuple[tuple[int, ...], Any, Any]
Resolve = Callable[[frozenset[str]], Gradient]


def differentiable(
    name: str, operands: Sequence[str], run: Callable[..., Any], single: bool, resolve: Resolve
) -> Callable[..., Any]:
    """`run` with a derivative; `resolve` finds the gradient for the arguments that want one."""
    call = jax.custom_vjp(run)
    forward = partial(_forward, name, tuple(operands), single, resolve)
    call.defvjp(forward, partial(_backward, name, tuple(operands), single), symbolic_zeros=True)

    def guarded(*arrays: Any) -> Any:
        alike = varying_alike(arrays)  # out here JAX adds up the gradients of what is shared
        results = call(*[_argument.bind(a, kernel=name) if _is_float(a) else a for a in alike])
        return jax.tree.map(partial(_result.bind, kernel=name), results)

    return guarded


def _is_float(array: Any) -> bool:
    return jnp.issubdtype(array.dtype, jnp.floating)


# ---------------------------------------------------------------- reverse mode


@jax.tree_util.register_static
@dataclass(frozen=True, eq=False)
class _Kept:
    """What backward needs besides arrays.

    shapes  shape, dtype and sharding of every argument that has a gradient
    only    the arguments that it was found for, if it was not found for all of those
    tree    the structure of what was saved, and `rest` its leaves that are no arrays, by place
    """

    gradient: Gradient
    shapes: Mapping[str, Shape]
    only: frozenset[str] | None
    tree: Any
    rest: Mapping[int, Any]


def _forward(
    name: str, operands: tuple[str, ...], single: bool, resolve: Resolve, *primals: Any
) -> Any:
    shapes = {
        operand: (p.value.shape, p.value.dtype, sharding_of(p.value))
        for operand, p in zip(operands, primals, strict=True)
        if _is_float(p.value)
    }
    perturbed = [p.perturbed for p in primals]
    wanted = frozenset(o for o, p in zip(operands, perturbed, strict=True) if p and o in shapes)
    try:
        gradient, only = _found(resolve, frozenset(shapes), wanted)
    except GradientError as error:
        stop = "use jax.lax.stop_gradient on its inputs, if no gradient is needed"
        raise refused(name, error, otherwise=stop) from None
    results, saved = gradient.forward([p.value for p in primals])
    leaves, tree = jax.tree_util.tree_flatten(saved)
    rest = {n: leaf for n, leaf in enumerate(leaves) if not _is_array(leaf)}
    # JAX leaves out residuals that are arguments, and in a program that it traced before it may
    # know of those of another trace: nothing is an argument itself
    arrays = [_fresh(name, leaf) for n, leaf in enumerate(leaves) if n not in rest]
    kept = _Kept(gradient, shapes, only, tree, rest)
    return results[0] if single else results, (kept, arrays, _marked(operands, wanted))


def _fresh(name: str, leaf: Any) -> Any:
    """What is traced is passed through an identity; arrays that are there are what they are."""
    return _argument.bind(leaf, kernel=name) if isinstance(leaf, Tracer) else leaf


def _found(
    resolve: Resolve, floats: frozenset[str], wanted: frozenset[str]
) -> tuple[Gradient, frozenset[str] | None]:
    """The gradient for all arguments, or else for those that are wanted.

    JAX remembers the structure of what is saved by the program alone, whatever is wanted of it: so
    it is the same for everything that is wanted, wherever that is possible.
    """
    try:
        return resolve(floats), None
    except GradientError:
        return resolve(wanted), wanted


def _marked(operands: Sequence[str], wanted: frozenset[str]) -> Any:
    """An array without elements whose shape says which arguments are wanted.

    It comes with the arrays that were saved for them, which static values may not.
    """
    return jnp.zeros((0, sum(1 << n for n, o in enumerate(operands) if o in wanted)), jnp.int8)


def _asked(operands: Sequence[str], mark: Any) -> frozenset[str]:
    return frozenset(o for n, o in enumerate(operands) if mark.shape[-1] >> n & 1)


def _is_array(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and hasattr(leaf, "shape")


def _backward(
    name: str, operands: tuple[str, ...], single: bool, residuals: Any, cotangents: Any
) -> tuple[Any, ...]:
    kept, arrays, mark = residuals
    wanted = _asked(operands, mark)
    given = (cotangents,) if single else cotangents
    if all(isinstance(c, SymbolicZero) for c in given):
        return (None,) * len(operands)
    if kept.only is not None and kept.only != wanted:
        raise CallError(
            f"the gradient of kernel {name} was found for {', '.join(sorted(kept.only))} only, and "
            f"is asked for {', '.join(sorted(wanted))} of the same traced program",
            hint="use jax.lax.stop_gradient on the other arguments, and trace it for each",
        )
    each = iter(arrays)
    leaves = [kept.rest[n] if n in kept.rest else next(each) for n in range(kept.tree.num_leaves)]
    saved = jax.tree_util.tree_unflatten(kept.tree, leaves)
    made = kept.gradient.backward(saved, [_full(c) for c in given], wanted)
    shapes = {o: shape for o, shape in kept.shapes.items() if o in wanted}
    return tuple(_checked(name, o, made.get(o), shapes.get(o)) for o in operands)


def _full(cotangent: Any) -> Any:
    """The cotangent as an array; None for integers, whose cotangents are nothing at all."""
    if cotangent.dtype == jax.dtypes.float0:
        return None
    if isinstance(cotangent, SymbolicZero):
        like: Any = cotangent.aval
        return jnp.zeros(like.shape, like.dtype)
    return cotangent


def _checked(name: str, operand: str, made: Any, wanted: Shape | None) -> Any:
    """The gradient in the dtype of its argument, sharded as that is; None is zero."""
    if made is None or wanted is None:
        return None
    shape, dtype, sharding = wanted
    if tuple(made.shape) != tuple(shape):
        raise misshapen(name, operand, made.shape, shape)
    return sharded_like(jnp.asarray(made, dtype), sharding)


# ---------------------------------------------------------------- forward mode

_argument = core.Primitive("tile_kernel_argument")  # an identity
_result = core.Primitive("tile_kernel_result")  # another, which is not transposed
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


def _batched(identity: Any, args: Any, dims: Any, *, kernel: str) -> tuple[Any, Any]:
    return identity.bind(*args, kernel=kernel), dims[0]


def _jvp_of_result(primals: Any, tangents: Any, *, kernel: str) -> tuple[Any, Any]:
    return _result.bind(*primals, kernel=kernel), tangents[0]


def _not_transposed(*args: Any, kernel: str) -> Any:
    raise CallError(
        f"kernel {kernel} is transposed as a linear function, by jax.linear_transpose or in the "
        "tangents of a custom_jvp",
        hint="jax.vjp(f, x)[1] is the transpose of a linear f; instead of jax.custom_jvp use "
        "jax.custom_vjp, or neither: the kernel has a gradient",
    )


for _identity, _rule in ((_argument, _jvp), (_result, _jvp_of_result)):
    _identity.def_impl(lambda array, kernel: array)
    _identity.def_abstract_eval(lambda array, kernel: array)
    ad.primitive_jvps[_identity] = _rule
    batching.primitive_batchers[_identity] = partial(_batched, _identity)
    mlir.register_lowering(_identity, lambda ctx, array, kernel: [array])
ad.primitive_transposes[_result] = _not_transposed

ad.deflinear2(_tangent, lambda cotangent, _, kernel: [cotangent])
_tangent.def_impl(_no_forward_mode)
_tangent.def_abstract_eval(lambda tangent, kernel: tangent)
batching.primitive_batchers[_tangent] = _no_forward_mode
mlir.register_lowering(_tangent, lambda ctx, tangent, kernel: _no_forward_mode(kernel=kernel))
