"""Tensors in host code: outputs that it makes, and views of tensors that it takes.

y = hl.zeros([M, N])     an output named y
xt = x.T                 a view named xt; a view of a view is a chain
"""

from __future__ import annotations

import math
from typing import Any, Literal

from ..errors import Loc, ParseError
from ..ir import Apply, Const, Expr, Scalar, Tensor, Type, Var, View
from ..language.calls import Builder, created, property_of
from ..language.creation import Created
from ..language.handles import TensorHandle
from ..language.values import const, dtype_name
from .hosting import is_value, on_device, static_int
from .naming import settled
from .scope import Here

How = Literal["reshape", "permute"]
RESHAPES = ("reshape", "expand_dims", "squeeze")
COPIES = ("clone", "copy")


def current(here: Here, handle: TensorHandle) -> Tensor:
    """The tensor of a handle as it is declared now."""
    return here.draft.tensors[handle.tensor.name]


def root(here: Here, name: str) -> Tensor:
    """The array in memory that a tensor, or a view of one, names."""
    tensor = here.draft.tensors[name]
    return tensor if tensor.view is None else root(here, tensor.view.source)


# ---------------------------------------------------------------- outputs


def output(
    here: Here, loc: Loc, kind: str, args: list[Any], kwargs: dict[str, Any]
) -> TensorHandle | None:
    """Declares what a creation call in host code makes; None for what is like a value."""
    asked = created(loc, kind, args, kwargs)
    if asked.like is not None and not isinstance(asked.like, TensorHandle):
        return None
    if here.condition is not None:
        hint = "make it before the `if`"
        raise ParseError("a tensor is made under a condition that depends on data", loc, hint)
    like = asked.like.tensor if isinstance(asked.like, TensorHandle) else None
    shape = tuple(_length(loc, n) for n in _shape(asked, like))
    dtype = dtype_name(asked.dtype or (like.dtype if like else None) or "float32", loc)
    name = here.draft.unique(here.wish or "out")
    made = Tensor(name, shape, dtype, "output", loc, _fill(loc, asked.fill, dtype))
    here.draft.tensors[name] = made
    return TensorHandle(made)


def _shape(asked: Created, like: Tensor | None) -> tuple[object, ...]:
    if asked.shape is not None:
        return asked.shape
    return like.shape if like else ()


def _length(loc: Loc, length: object) -> int:
    if on_device(length):
        hint = "make it as large as it can become; the loops then fill the part that is needed"
        raise ParseError("the shape of a tensor depends on data", loc, hint)
    number = static_int(loc, length, "a length")
    if number < 0:
        raise ParseError(f"a tensor with a length of {number}", loc, "lengths are 0 or more")
    return number


def _fill(loc: Loc, fill: object, dtype: str) -> Scalar | None:
    if fill is None:
        return None
    value = fill.value if isinstance(fill, Const) else fill
    if not isinstance(value, bool | int | float):
        hint = "store the value in a loop"
        raise ParseError("the initial value of a tensor depends on data", loc, hint)
    return bool(value) if dtype == "bool" else const(value, like=dtype).value


# ---------------------------------------------------------------- attributes and views


def attribute(here: Here, loc: Loc, handle: TensorHandle, name: str) -> Any:
    """x.shape, x.dtype, x.T ...; KeyError for what is a method or nothing."""
    if name == "device":
        return f"{here.draft.frameworks.get(handle.tensor.name, 'kernel')} device"
    builder = property_of(name)
    if builder is None:
        raise KeyError(name)
    return rearranged(here, loc, handle, builder, [], {})


def called(
    here: Here,
    loc: Loc,
    handle: TensorHandle,
    name: str,
    builder: Builder,
    args: list[Any],
    kwargs: dict[str, Any],
) -> Any:
    """x.reshape(...), x.size(0), ...: methods of a whole tensor."""
    if name in COPIES:
        what = f"{handle.tensor.name}.{name}() copies a whole tensor"
        hint = f"make an output, hl.empty_like({handle.tensor.name}), and copy it tile by tile"
        raise ParseError(what, loc, hint)
    return rearranged(here, loc, handle, builder, args, kwargs)


def rearranged(
    here: Here,
    loc: Loc,
    handle: TensorHandle,
    builder: Builder,
    args: list[Any],
    kwargs: dict[str, Any],
) -> Any:
    """What a shape op makes of a tensor: a view; of another op on a whole tensor its error."""
    tensor = handle.tensor
    stand_in = Var(tensor.name, Type(tensor.shape, tensor.dtype))
    result = builder(loc, stand_in, *args, **kwargs)
    if not is_value(result):
        return result
    steps = _steps(result, stand_in)
    if steps is not None:
        return _view(here, loc, tensor, steps)
    value = builder(loc, handle, *args, **kwargs)
    if not tensor.shape:
        return settled(value)
    hint = f"load the part that this step needs: {tensor.name}[tile, :]"
    raise ParseError(f"{tensor.name} is used whole, as if it were a value", loc, hint)


def _steps(expr: Expr, start: Var) -> list[tuple[How, tuple[int, ...]]] | None:
    """The shape ops that lead from `start` to the expression; None if it holds anything else."""
    if expr == start:
        return []
    if not isinstance(expr, Apply) or len(expr.args) != 1:
        return None
    before = _steps(expr.args[0], start)
    if before is None or (expr.op not in RESHAPES and expr.op != "transpose"):
        return None
    if expr.op == "transpose":
        perm: Any = expr.attr("perm")
        return [*before, ("permute", tuple(perm))]
    return [*before, ("reshape", tuple(int(d) for d in expr.type.shape))]


def _view(
    here: Here, loc: Loc, tensor: Tensor, steps: list[tuple[How, tuple[int, ...]]]
) -> TensorHandle:
    for place, (how, arg) in enumerate(steps):
        wish = here.wish if place == len(steps) - 1 else None
        tensor = _one_view(here, loc, tensor, how, arg, wish)
    return TensorHandle(tensor)


def _one_view(
    here: Here, loc: Loc, tensor: Tensor, how: How, arg: tuple[int, ...], wish: str | None
) -> Tensor:
    """One step, merged with the one before if both are of a kind."""
    shape = arg if how == "reshape" else tuple(tensor.shape[p] for p in arg)
    while tensor.view is not None and tensor.view.how == how:
        arg = arg if how == "reshape" else tuple(tensor.view.arg[p] for p in arg)
        tensor = here.draft.tensors[tensor.view.source]
    if arg == (tensor.shape if how == "reshape" else tuple(range(len(tensor.shape)))):
        return tensor
    view = View(tensor.name, how, arg)
    known = next((t for t in here.draft.tensors.values() if t.view == view), None)
    if known is not None:
        return known
    free = wish is not None and wish not in here.draft.names
    name = here.draft.unique(wish if free and wish else f"{tensor.name}_view")
    made = Tensor(name, shape, tensor.dtype, "view", loc, view=view)
    here.draft.tensors[name] = made
    return made


def length(loc: Loc, handle: TensorHandle) -> int:
    """len(x)."""
    if not handle.tensor.shape:
        raise ParseError(f"{handle.tensor.name} has no dimensions, and so no length", loc)
    return handle.tensor.shape[0]


def numel(handle: TensorHandle) -> int:
    """How many elements the tensor has."""
    return math.prod(handle.tensor.shape)
