"""What a builder is given: values, Python numbers, axes, shapes and dtypes, checked and typed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import Loc, TypingError
from ..ir import Apply, Const, Dim, Expr, GridIndex, Load, Tensor, TileIndex, TileScalar, Type, Var
from .dtypes import (
    REFUSED,
    SUPPORTED,
    canonical,
    default_dtype,
    is_float,
    is_integer,
    promote,
    to_numpy,
)
from .handles import BlockHandle, MethodHandle, TensorHandle, TileHandle

Number = bool | int | float
Site = Loc | None  # where a call stands in the file of the author; None outside of a kernel
Value = Expr | Number


class ValuesIndices(NamedTuple):
    """What torch.max(x, dim) returns."""

    values: Expr
    indices: Expr


EXPRS = (Const, Var, GridIndex, TileIndex, TileScalar, Load, Apply)
_KINDS = ("bool", "int32", "float32")  # weak numbers, from the least to the most general


def const(value: Number, like: str | None = None) -> Const:
    """A Python number; of dtype `like` if given.  Weak: it does not promote others.

    >>> const(2, like="bfloat16").type.dtype
    'bfloat16'
    """
    number = _plain_number(value)
    return retype(Const(number, Type((), default_dtype(number)), weak=True), like, None)


def _plain_number(value: Number) -> Number:
    """bool, int or float itself, not a subclass such as np.float64 or an IntEnum."""
    if isinstance(value, bool):
        return value
    return int(value) if isinstance(value, int) else float(value)


def retype(number: Const, dtype: str | None, loc: Site) -> Const:
    """The number in another dtype; it must fit."""
    if dtype is None:
        return number
    value = number.value
    if is_float(dtype):
        value = float(value)
    elif is_integer(dtype):
        limits = np.iinfo(to_numpy(dtype))
        if not (limits.min <= value <= limits.max and value == int(value)):
            whole = math.isfinite(value) and value == int(value)
            legal = f"{'is' if whole else 'holds whole numbers from'} {limits.min} to {limits.max}"
            raise TypingError(f"{value} does not fit {dtype}", loc, f"{dtype} {legal}")
        value = int(value)
    return Const(value, Type((), dtype), number.weak)


def as_expr(value: object, loc: Site) -> Expr:
    """A value of the kernel or a number as an expression; anything else is an error."""
    value = number_of(value, loc)
    if isinstance(value, EXPRS):
        return value
    if isinstance(value, bool | int | float):
        return const(value)
    if isinstance(value, np.generic | np.ndarray) and value.ndim == 0:
        return _numpy_scalar(value, loc)
    raise _not_a_value(value, loc)


def number_of(value: Any, loc: Site) -> Any:
    """An argument without dimensions as the number that it holds; other values as they are."""
    if isinstance(value, TensorHandle) and not value.tensor.shape and value.tensor.role == "input":
        dtype = "int32" if value.tensor.dtype == "int64" else value.tensor.dtype
        return Load(value.tensor.name, (), Type((), dtype), loc=loc)
    return value


def _numpy_scalar(value: np.generic | np.ndarray, loc: Site) -> Const:
    if value.dtype.name in ("int64", "float64"):  # what NumPy makes of any Python number
        return const(value.item())
    return Const(value.item(), Type((), dtype_name(value.dtype, loc)))


def used_whole(tensor: Tensor, loc: Site) -> tuple[str, Site, str]:
    """What is wrong with a tensor in an expression, where, and what to write."""
    if not tensor.shape:
        hint = f"the number that it holds is {tensor.name}[()], in a loop"
        return f"{tensor.name} is used whole, as if it were a value", loc, hint
    part = ", ".join(["tile", *[":"] * (len(tensor.shape) - 1)])
    hint = f"load a part of it in a loop: for tile in hl.tile({tensor.name}.shape[0]): "
    hint += f"... {tensor.name}[{part}] ..."
    hint += f"; in one, all of it is {tensor.name}[{', '.join(':' * len(tensor.shape))}]"
    if tensor.role == "output":
        hint = f"return it, and compute with it after the call; else {hint}"
    return f"{tensor.name} is used whole, as if it were a value", loc, hint


def _not_a_value(value: object, loc: Site) -> TypingError:
    how = "values are loaded from tensors, made by hl.full and hl.arange, or Python numbers"
    match value:
        case TileHandle(_, user):
            hint = f"{user}.index is the positions that it covers, {user}.begin the first of them"
            return TypingError(f"tile {user} is used as a value", loc, hint)
        case TensorHandle(tensor):
            return TypingError(*used_whole(tensor, loc))
        case MethodHandle(_, name):
            what = f"the method {name} is used as a value"
            return TypingError(what, loc, f"call it: .{name}(...)")
        case BlockHandle(name):
            hint = "a tile's own length is tile.block_size"
            return TypingError(f"block size {name} is used as a value", loc, hint)
        case str():
            return TypingError(f"the string {value!r} is used as a value", loc, how)
        case ValuesIndices():
            hint = "take one of .values and .indices; hl.amax and hl.amin give the values alone"
            return TypingError("a pair of values is used as one value", loc, hint)
        case tuple() | list():
            hint = "hl.cat or hl.stack makes one value of several"
            return TypingError("a sequence is used as one value", loc, hint)
        case _ if hasattr(value, "shape") and hasattr(value, "dtype"):
            what = "an array from outside of the kernel is used as a value"
            hint = "pass it to the kernel as an argument, and load the part that this step needs"
            return TypingError(what, loc, hint)
        case _:
            return TypingError(f"a {type(value).__name__} is used as a value", loc, how)


def called(expr: Expr) -> str:
    """How a message calls a value: its name if it has one, and its type."""
    match expr:
        case Load(tensor):
            return f"{tensor} ({expr.type})"
        case Var(name):
            return f"{name} ({expr.type})"
        case Const(value):
            return f"the number {value}"
        case TileIndex(axis):
            return f"{axis}.index ({expr.type})"
        case Apply("cast", (arg,)):
            return called(arg)
        case _:
            return f"a value of type {expr.type}"


def name_of(expr: Expr, otherwise: str) -> str:
    """The name in a message, or `otherwise` for a value that has none."""
    match expr:
        case Load(name) | Var(name):
            return name
        case Apply("cast", (arg,)):
            return name_of(arg, otherwise)
        case _:
            return otherwise


def converted(expr: Expr, dtype: str, loc: Site) -> Expr:
    """The value in another dtype, by an operation unless it has it."""
    if expr.type.dtype == dtype:
        return expr
    return Apply("cast", (expr,), Type(expr.type.shape, dtype), (), loc)


# ---------------------------------------------------------------- dtypes


def dtype_name(obj: object, loc: Site) -> str:
    """The canonical name of a dtype that values of a kernel can have."""
    name = canonical(obj)
    if name in SUPPORTED:
        return str(name)
    if name is None:
        raise TypingError(f"{obj!r} is not a dtype", loc, "write hl.float32, hl.bfloat16, hl.int32")
    raise TypingError(f"{name} is not a dtype that a kernel computes with", loc, REFUSED[name])


def common(exprs: Sequence[Expr], loc: Site) -> str:
    """The dtype that operands are cast to before an operation; numbers are weak."""
    strong = [e.type.dtype for e in exprs if not _is_weak(e)]
    weak = [e.type.dtype for e in exprs if _is_weak(e)]
    kind = max(weak, key=_KINDS.index, default="bool") if set(weak) <= set(_KINDS) else "float32"
    if not strong:
        return kind
    try:
        dtype = strong[0]
        for other in strong[1:]:
            dtype = promote(dtype, other)
    except TypingError as error:
        raise TypingError(error.what, loc, error.hint) from None
    if kind == "float32" and not is_float(dtype):
        return "float32"
    return "int32" if kind == "int32" and dtype == "bool" else dtype


def _is_weak(expr: Expr) -> bool:
    return isinstance(expr, Const) and expr.weak


# ---------------------------------------------------------------- axes and shapes


def one_axis(axis: object, rank: int, loc: Site, what: str) -> int:
    """A dimension number from 0, given one from -rank to rank - 1."""
    if isinstance(axis, bool) or not isinstance(axis, int | np.integer):
        hint = "a dimension is named by its number, such as dim=0 or axis=-1"
        shown = f"a value of type {axis.type}" if isinstance(axis, EXPRS) else repr(axis)
        raise TypingError(f"{what}: {shown} is not a dimension", loc, hint)
    if not -rank <= axis < rank:
        dims = "dimension" if rank == 1 else "dimensions"
        allowed = f"dimensions are 0 to {rank - 1}, or -{rank} to -1" if rank else "it has none"
        raise TypingError(f"{what}: no dimension {axis} in a value of {rank} {dims}", loc, allowed)
    return int(axis) % rank


def many_axes(axis: object, rank: int, loc: Site, what: str) -> tuple[int, ...]:
    """Dimension numbers from 0, ascending; None means all."""
    if axis is None:
        return tuple(range(rank))
    given = tuple(axis) if isinstance(axis, tuple | list) else (axis,)
    axes = tuple(one_axis(a, rank, loc, what) for a in given)
    twice = next((a for a in axes if axes.count(a) > 1), None)
    if twice is not None:
        raise TypingError(f"{what}: dimension {twice} is given twice", loc)
    return tuple(sorted(axes))


def one_dim(dim: object, loc: Site, what: str) -> Dim:
    """A dimension of a shape: a tile stands for its axis, a Python int for itself."""
    match dim:
        case TileHandle(axis) | TileScalar(axis, "block_size"):
            return axis
        case Const(value):
            return one_dim(value, loc, what)
        case BlockHandle(name):
            hint = "use the tile: hl.zeros([tile], dtype=hl.float32)"
            raise TypingError(f"{what}: block size {name} does not say which axis", loc, hint)
        case bool() | float():
            raise TypingError(f"{what}: {dim!r} is not a length", loc, "lengths are ints and tiles")
        case int() | np.integer():
            return int(dim)
        case _:
            if isinstance(dim, EXPRS):
                hint = "a shape is made of Python ints and tiles; loop over a data-dependent length"
                raise TypingError(f"{what}: a length is not known while compiling", loc, hint)
            raise TypingError(f"{what}: {dim!r} is not a length", loc, "lengths are ints and tiles")


def dims(shape: object, loc: Site, what: str) -> tuple[Dim, ...]:
    """A shape given as one dimension or a sequence; -1 stays for the caller to resolve."""
    many = isinstance(shape, tuple | list)
    entries: Iterable[object] = shape if many else (shape,)
    return tuple(one_dim(d, loc, what) for d in entries)


def no_negative(shape: tuple[Dim, ...], loc: Site, what: str) -> tuple[Dim, ...]:
    """The shape, if every static length is at least 0."""
    for dim in shape:
        if isinstance(dim, int) and dim < 0:
            raise TypingError(f"{what}: a length of {dim}", loc, "lengths are 0 or more")
    return shape


def show(shape: Sequence[Dim]) -> str:
    """A shape as messages print it: [tm, 64]."""
    return f"[{', '.join(map(str, shape))}]"


def broadcast_shapes(exprs: Sequence[Expr], loc: Site, what: str) -> tuple[Dim, ...]:
    """The common shape of operands, aligned at the right; 1 repeats, an axis matches itself."""
    rank = max((e.type.rank for e in exprs), default=0)
    return tuple(_common_dim(exprs, place, loc, what) for place in range(-rank, 0))


def _common_dim(exprs: Sequence[Expr], place: int, loc: Site, what: str) -> Dim:
    having = [e for e in exprs if e.type.rank >= -place]
    first = next((e for e in having if e.type.shape[place] != 1), having[0])
    for other in having:
        if other.type.shape[place] not in (1, first.type.shape[place]):
            raise _mismatch(first, other, place, loc, what)
    return first.type.shape[place]


def _mismatch(a: Expr, b: Expr, place: int, loc: Site, what: str) -> TypingError:
    x, y = a.type.shape[place], b.type.shape[place]
    if isinstance(x, str) and isinstance(y, str):
        return TypingError(
            f"{what} combines two different axes: {x} of {called(a)} and {y} of {called(b)}",
            loc,
            f"axes match by name, not by length: index both with the same tile, "
            f"or put them in different dimensions with {name_of(a, 'value')}[:, None]",
        )
    if isinstance(x, int) and isinstance(y, int):
        return TypingError(
            f"{what} needs equal lengths: dimension {place} is {x} in {called(a)} "
            f"and {y} in {called(b)}",
            loc,
            "a dimension of length 1, made by [:, None], is repeated as needed",
        )
    (tiled, axis), (plain, length) = ((a, x), (b, y)) if isinstance(x, str) else ((b, y), (a, x))
    return TypingError(
        f"{what} combines axis {axis} of {called(tiled)} with a dimension of length {length} "
        f"of {called(plain)}",
        loc,
        f"index that dimension of {name_of(plain, 'the other')} with the tile {axis} too",
    )
