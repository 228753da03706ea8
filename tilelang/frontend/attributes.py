"""x.shape, tile.begin, value.T, module.name: what a dot means for each kind of value."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from functools import cached_property
from typing import Any

from ..errors import Loc, ParseError
from ..ir import Expr, Load, TileIndex, TileScalar, Type, integers
from ..language.calls import creation_method, method, property_of
from ..language.handles import BlockHandle, MethodHandle, TensorHandle, TileHandle
from . import observed, tensors
from .hosting import is_value, on_device, reading
from .inlining import inlinable, inline
from .instead import in_language, instead_of
from .positions import check_numbered
from .scope import Arguments, Here, Rules, evaluate, settled

TILE_SCALARS = ("begin", "end", "id", "count", "block_size")


def attribute(here: Here, node: ast.Attribute) -> object:
    inner = here
    if here.wish is not None:  # y = hl.zeros(6).reshape(2, 3): the view is y, and it is of y_base
        inner = replace(here, wish=f"{here.wish.removesuffix('_base')}_base")
    return attribute_of(here, here.loc(node), evaluate(inner, node.value), node.attr)


def attribute_of(here: Here, loc: Loc, value: Any, name: str) -> Any:
    """value.name."""
    match value:
        case TensorHandle():
            return _of_tensor(here, loc, value, name)
        case TileHandle():
            return _of_tile(here, loc, value, name)
        case BlockHandle(block):
            hint = "the length of a tile is tile.block_size"
            raise ParseError(f"block size {block} has no attribute {name}", loc, hint)
        case MethodHandle():
            hint = f"call it: .{value.name}(...)"
            raise ParseError(f"the method {value.name} has no attribute {name}", loc, hint)
        case _:
            pass  # a value, or an object of the author's
    if is_value(value):
        builder = property_of(name)
        return _method(value, name, loc) if builder is None else settled(builder(loc, value))
    found = inspect.getattr_static(type(value), name, None)
    if isinstance(found, property | cached_property) and on_device(value):
        whose = observed.attribute(type(value), name)
        getter = observed.attribute(whose, "fget" if isinstance(found, property) else "func")
        if (body := inlinable(getter)) is not None:
            return inline(here, body[0], Arguments([value], {}, loc, name))
    return reading(loc, observed.attribute, value, name)


def _of_tensor(here: Here, loc: Loc, handle: TensorHandle, name: str) -> Any:
    if name == "device":
        return "device"  # where the kernel runs: one and the same for whatever arguments
    if (builder := property_of(name)) is not None:
        return tensors.rearranged(here, builder, Arguments([handle], {}, loc, name))
    return _method(handle, name, loc)


def _of_tile(here: Here, loc: Loc, tile: TileHandle, name: str) -> Expr:
    if name == "index":
        return TileIndex(tile.axis, Type((tile.axis,), "int32"))
    if name not in TILE_SCALARS:
        hint = "a tile has .begin .end .index .id .count .block_size"
        raise ParseError(f"the tile {tile.user} has no attribute {name}", loc, hint)
    if name in ("id", "count"):
        check_numbered(here, tile, name, loc)
    return _block_size(here, tile) if name == "block_size" else TileScalar(tile.axis, name)


def _block_size(here: Here, tile: TileHandle) -> Expr:
    """What the author fixed, of short ranges too; else it is the config's."""
    fixed = here.draft.axes[tile.axis].fixed
    return TileScalar(tile.axis, "block_size") if fixed is None else integers.const(fixed)


def _method(receiver: TensorHandle | Expr, name: str, loc: Loc) -> MethodHandle:
    if method(name) is not None or creation_method(name) is not None:
        return MethodHandle(receiver, name)
    what, given = "a value of the kernel", receiver.tensor if isinstance(receiver, Load) else "y"
    if isinstance(receiver, TensorHandle):
        if name in tensors.METHODS:
            return MethodHandle(receiver, name)
        given = receiver.tensor.name.removesuffix("_base")
        what = f"the tensor {given}"
    known = [n for n in _KNOWN if method(n) or property_of(n)]
    hint = _HINTS.get(name) or in_language(name, given) or instead_of(name, known, ".")
    if name.endswith("_") and method(name.rstrip("_")) is not None:
        hint = f"values do not change: write v = v.{name.rstrip('_')}(...)"
    raise ParseError(f"{what} has no attribute {name}", loc, hint)


_HINTS = {
    "at": "y[index] = value stores to a tensor, hl.atomic_add(y, [index], value) adds to it",
    "requires_grad_": "gradients are of the whole kernel: of its arguments, where it is called",
    "item": "a scalar of the kernel is used as it is",
    "tolist": "hl.static_range loops over indices that are known while compiling",
    "numpy": "a kernel computes with its own values only",
    "cuda": "the kernel runs where its arguments are",
    "cpu": "the kernel runs where its arguments are",
    "backward": "write the backward pass as a kernel of its own",
}
# fmt: off
_KNOWN = (
    "shape", "dtype", "ndim", "T", "mT", "sum", "mean", "max", "min", "amax", "amin", "argmax",
    "argmin", "any", "all", "reshape", "view", "permute", "transpose", "unsqueeze", "squeeze",
    "expand", "flatten", "to", "astype", "float", "half", "bfloat16", "int", "exp", "log", "sqrt",
    "rsqrt", "abs", "sigmoid", "relu", "tanh", "softmax", "size", "dim", "contiguous", "matmul",
    "clamp", "where",
)
# fmt: on
RULES: Rules = {ast.Attribute: attribute}
