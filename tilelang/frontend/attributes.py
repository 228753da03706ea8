"""x.shape, tile.begin, value.T, module.name: what a dot means for each kind of value."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..errors import Loc, ParseError
from ..ir import Expr, TileIndex, TileScalar, Type
from ..language.calls import creation_method, method, property_of
from ..language.handles import BlockHandle, TensorHandle, TileHandle
from . import observed, tensors
from .hosting import is_value, reading
from .naming import settled
from .ranges import check_numbered
from .scope import Here, evaluate

TILE_SCALARS = ("begin", "end", "id", "count", "block_size")


@dataclass(frozen=True)
class Method:
    """x.name of a tensor or of a value, which is going to be called."""

    receiver: TensorHandle | Expr
    name: str


def attribute(here: Here, node: ast.Attribute) -> object:
    value = evaluate(_inner(here), node.value)
    return attribute_of(here, here.loc(node), value, node.attr)


def _inner(here: Here) -> Here:
    """y = hl.zeros(6).reshape(2, 3): the view is y, and what it is of y_base."""
    wish = here.wish
    return here if wish is None else replace(here, wish=f"{wish.removesuffix('_base')}_base")


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
        case Method():
            hint = f"call it: .{value.name}(...)"
            raise ParseError(f"the method {value.name} has no attribute {name}", loc, hint)
    if is_value(value):
        return _of_value(loc, value, name)
    return reading(loc, observed.attribute, value, name)


def _of_tensor(here: Here, loc: Loc, handle: TensorHandle, name: str) -> Any:
    try:
        return tensors.attribute(here, loc, handle, name)
    except KeyError:
        pass
    if name in ("numel", "nelement") or name in tensors.COPIES:
        return Method(handle, name)
    if method(name) is not None or creation_method(name) is not None:
        return Method(handle, name)
    raise _unknown(f"the tensor {handle.tensor.name}", name, loc)


def _of_tile(here: Here, loc: Loc, tile: TileHandle, name: str) -> Expr:
    if name == "index":
        return TileIndex(tile.axis, Type((tile.axis,), "int32"))
    if name not in TILE_SCALARS:
        hint = "a tile has .begin .end .index .id .count .block_size"
        raise ParseError(f"the tile {tile.user} has no attribute {name}", loc, hint)
    if name in ("id", "count"):
        check_numbered(here, tile, name, loc)
    return TileScalar(tile.axis, name)


def _of_value(loc: Loc, value: Expr, name: str) -> Any:
    builder = property_of(name)
    if builder is not None:
        return settled(builder(loc, value))
    if method(name) is not None or creation_method(name) is not None:
        return Method(value, name)
    raise _unknown("a value of the kernel", name, loc)


_HINTS = {
    "at": "store to a tensor with y[index] = value",
    "item": "a scalar of the kernel is used as it is",
    "tolist": "hl.static_range loops over indices that are known while compiling",
    "numpy": "a kernel computes with its own values only",
    "cuda": "the kernel runs where its arguments are",
    "cpu": "the kernel runs where its arguments are",
    "backward": "write the backward pass as a kernel of its own",
}


def _unknown(what: str, name: str, loc: Loc) -> ParseError:
    names = [n for n in _KNOWN if method(n) or property_of(n)]
    close = difflib.get_close_matches(name, names, 1)
    hint = _HINTS.get(name, f"did you mean .{close[0]}?" if close else "")
    if name.endswith("_") and method(name.rstrip("_")) is not None:
        hint = f"values do not change: write v = v.{name.rstrip('_')}(...)"
    return ParseError(f"{what} has no attribute {name}", loc, hint)


# fmt: off
_KNOWN = (
    "shape", "dtype", "ndim", "T", "mT", "sum", "mean", "max", "min", "amax", "amin", "argmax",
    "argmin", "any", "all", "reshape", "view", "permute", "transpose", "unsqueeze", "squeeze",
    "expand", "flatten", "to", "astype", "float", "half", "bfloat16", "int", "exp", "log", "sqrt",
    "rsqrt", "abs", "sigmoid", "relu", "tanh", "softmax", "size", "dim", "contiguous", "matmul",
    "clamp", "where",
)
# fmt: on


ATTRIBUTES: Mapping[type[ast.expr], Callable[[Here, Any], object]] = {ast.Attribute: attribute}
