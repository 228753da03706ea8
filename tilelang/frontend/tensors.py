"""Tensors in host code: outputs that it makes, and views of tensors that it takes.

y = hl.zeros([M, N])     an output named y
xt = x.T                 a view named xt; a view of a view is a chain
"""

from __future__ import annotations

import math
from typing import Any, Literal

from .. import ir
from ..errors import Loc, ParseError
from ..language.calls import Builder, created
from ..language.handles import MethodHandle, TensorHandle
from ..language.values import const, dtype_name, retype, used_whole
from .hosting import is_value, on_device, static_int
from .scope import Arguments, Here, settled

How = Literal["reshape", "permute"]
RESHAPES = ("reshape", "expand_dims", "squeeze")
COPIES = ("clone", "copy")
METHODS = ("numel", "nelement", *COPIES)  # of whole tensors only


def current(here: Here, handle: TensorHandle) -> ir.Tensor:
    """The tensor of a handle as it is declared now."""
    return here.draft.tensors[handle.tensor.name]


# ---------------------------------------------------------------- outputs


def output(here: Here, kind: str, given: Arguments) -> TensorHandle | None:
    """Declares what a creation call in host code makes; None for what is like a value."""
    loc = given.loc
    asked = created(loc, kind, given.args, given.kwargs)
    if asked.like is not None and not isinstance(asked.like, TensorHandle):
        return None
    if here.condition is not None:
        what = "a tensor is made under a condition that is not known while compiling"
        raise ParseError(what, loc, "make it before the `if`")
    like = None if asked.like is None else asked.like.tensor
    sizes = asked.shape if asked.shape is not None else like.shape if like else ()
    shape = tuple(_length(loc, n) for n in sizes)
    dtype = dtype_name(asked.dtype or (like.dtype if like else None) or "float32", loc)
    name = here.draft.unique(here.wish or "out")
    made = ir.Tensor(name, shape, dtype, "output", loc, _fill(loc, asked.fill, dtype))
    here.draft.tensors[name] = made
    return TensorHandle(made)


def _length(loc: Loc, length: object) -> int:
    if on_device(length) and not isinstance(length, MethodHandle):
        hint = "make it as large as it can become; the loops then fill the part that is needed"
        raise ParseError("the shape of a tensor is not known while compiling", loc, hint)
    number = static_int(loc, length, "a length")
    if number < 0:
        raise ParseError(f"a tensor with a length of {number}", loc, "lengths are 0 or more")
    return number


def _fill(loc: Loc, fill: object, dtype: str) -> ir.Scalar | None:
    if fill is None:
        return None
    value = fill.value if isinstance(fill, ir.Const) else fill
    if not isinstance(value, bool | int | float):
        hint = "store the value in a loop"
        raise ParseError("the initial value of a tensor is not known while compiling", loc, hint)
    return bool(value) if dtype == "bool" else retype(const(value), dtype, loc).value


# ---------------------------------------------------------------- views


def called(here: Here, name: str, builder: Builder | None, given: Arguments) -> Any:
    """x.reshape(...), x.size(0), ...: methods of a whole tensor, which is the first argument."""
    tensor: ir.Tensor = given.args[0].tensor
    if name in ("numel", "nelement"):
        return math.prod(tensor.shape)
    if name in COPIES:
        hint = f"make an output, hl.empty_like({tensor.name}), and copy it tile by tile"
        raise ParseError(f"{tensor.name}.{name}() copies a whole tensor", given.loc, hint)
    if builder is None:
        raise ParseError(f"{tensor.name} has no method {name}", given.loc)
    return rearranged(here, builder, given)


def rearranged(here: Here, builder: Builder, given: Arguments) -> Any:
    """What a shape op makes of a tensor: a view; of another op on a whole tensor its error."""
    handle, *rest = given.args
    tensor: ir.Tensor = handle.tensor
    stand_in = ir.Var(tensor.name, ir.Type(tensor.shape, tensor.dtype))
    result = builder(given.loc, stand_in, *rest, **given.kwargs)
    if not is_value(result):
        if on_device(result):  # several values: no view is
            raise ParseError(*used_whole(tensor, given.loc))
        return result
    steps = _steps(result, stand_in)
    if steps is not None:
        for place, (how, arg) in enumerate(steps):
            wish = here.wish if place == len(steps) - 1 else None
            tensor = _view(here, given.loc, tensor, how, arg, wish)
        return TensorHandle(tensor)
    if isinstance(result, ir.Apply) and result.op == "broadcast":
        raise _repeated(tensor, given.loc)
    value = builder(given.loc, handle, *rest, **given.kwargs)
    if not tensor.shape:
        return settled(value)
    raise ParseError(*used_whole(tensor, given.loc))


def _repeated(tensor: ir.Tensor, loc: Loc) -> ParseError:
    """Why nothing is seen in more elements than it has, and what does the same."""
    index = ", ".join("0" if n == 1 else ":" for n in tensor.shape)
    hint = f"read v = {tensor.name}[{index}] in the loop: values are repeated where they are used "
    hint += "or stored, along dimensions in front of theirs; v[:, None] has one behind"
    return ParseError(f"a view of {tensor.name} would repeat elements", loc, hint)


def _steps(expr: ir.Expr, start: ir.Var) -> list[tuple[How, tuple[int, ...]]] | None:
    """The shape ops that lead from `start` to the expression; None if it holds anything else."""
    if expr == start:
        return []
    if not isinstance(expr, ir.Apply) or len(expr.args) != 1:
        return None
    before = _steps(expr.args[0], start)
    if before is None or (expr.op not in RESHAPES and expr.op != "transpose"):
        return None
    if expr.op == "transpose":
        perm: Any = expr.attr("perm")
        return [*before, ("permute", tuple(perm))]
    return [*before, ("reshape", tuple(int(d) for d in expr.type.shape))]


def _view(
    here: Here, loc: Loc, tensor: ir.Tensor, how: How, arg: tuple[int, ...], wish: str | None
) -> ir.Tensor:
    """One step, merged with the one before if both are of a kind."""
    draft = here.draft
    shape = arg if how == "reshape" else tuple(tensor.shape[p] for p in arg)
    while tensor.view is not None and tensor.view.how == how:
        arg = arg if how == "reshape" else tuple(tensor.view.arg[p] for p in arg)
        tensor = draft.tensors[tensor.view.source]
    if arg == (tensor.shape if how == "reshape" else tuple(range(len(tensor.shape)))):
        return tensor
    view = ir.View(tensor.name, how, arg)
    known = next((t for t in draft.tensors.values() if t.view == view), None)
    if known is not None:
        return known
    name = draft.unique(wish if wish and wish not in draft.names else f"{tensor.name}_view")
    draft.tensors[name] = ir.Tensor(name, shape, tensor.dtype, "view", loc, view=view)
    return draft.tensors[name]
