"""Making values: zeros, full, arange and their kin, in their spellings.

Before the loops the same calls declare output tensors; `created` reads their arguments for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import Loc, TypingError
from ..ir import Const, Expr, TileScalar
from .build import (
    Value,
    arange,
    as_expr,
    as_rank,
    broadcast,
    cast,
    const,
    full,
    lanes,
    transpose,
)
from .dtypes import DType, canonical
from .handles import TensorHandle, TileHandle
from .values import Number, dims, dtype_name, one_axis, one_dim, retype

# The arguments that say where the memory is: the kernel's own device, whatever they name.
Place = object


@dataclass(frozen=True)
class Created:
    """What a creation call asks for.

    shape  as it was written (ints, tiles); None for the shape of `like`
    fill   the number everywhere; None for `empty`
    dtype  None if it was not given: that of `like`, or of a computed `fill`
    like   the tensor or value whose shape and dtype are the defaults
    """

    shape: tuple[object, ...] | None
    fill: object | None
    dtype: str | None
    like: object | None = None


def _filled(fill: Number | None) -> Callable[..., Created]:
    def read(
        loc: Loc | None,
        *sizes: object,
        shape: object = None,
        dtype: object = None,
        device: Place = None,
        requires_grad: bool = False,
    ) -> Created:
        given = sizes if shape is None else (*sizes, shape)
        *rest, kind = _dtype_last(given) if dtype is None else (*given, dtype)
        return Created(_one_shape(rest, loc), fill, _name(kind, loc) or "float32")

    return read


def _dtype_last(arguments: tuple[object, ...]) -> tuple[object, ...]:
    """jnp.zeros(shape, dtype): the arguments with the dtype, or None, at the end."""
    if len(arguments) > 1 and canonical(arguments[-1]) is not None:
        return arguments
    return (*arguments, None)


def _one_shape(sizes: list[object], loc: Loc | None) -> tuple[object, ...]:
    """torch.zeros(2, 3) and jnp.zeros((2, 3))."""
    if len(sizes) == 1 and isinstance(sizes[0], tuple | list):
        return tuple(sizes[0])
    if not sizes:
        raise TypingError("a shape is missing", loc, "hl.zeros([tm, tn], dtype=hl.float32)")
    return tuple(sizes)


def _name(dtype: object, loc: Loc | None) -> str | None:
    return None if dtype is None else dtype_name(dtype, loc)


def _read_full(
    loc: Loc | None,
    shape: object,
    fill_value: object,
    dtype: object = None,
    device: Place = None,
    requires_grad: bool = False,
) -> Created:
    name = _name(dtype, loc)
    if name is None and isinstance(fill_value, bool | int | float):
        name = const(fill_value).type.dtype
    return Created(_one_shape([shape], loc), fill_value, name)


def _like(fill: Number | None) -> Callable[..., Created]:
    def read(
        loc: Loc | None,
        x: object,
        dtype: object = None,
        shape: object = None,
        device: Place = None,
        requires_grad: bool = False,
    ) -> Created:
        sizes = None if shape is None else _one_shape([shape], loc)
        return Created(sizes, fill, _name(dtype, loc), x)

    return read


def _read_full_like(
    loc: Loc | None,
    x: object,
    fill_value: object,
    dtype: object = None,
    shape: object = None,
    device: Place = None,
    requires_grad: bool = False,
) -> Created:
    sizes = None if shape is None else _one_shape([shape], loc)
    return Created(sizes, fill_value, _name(dtype, loc), x)


def _new(fill: Number | None) -> Callable[..., Created]:
    def read(
        loc: Loc | None, x: object, *shape: object, dtype: object = None, device: Place = None
    ) -> Created:
        return Created(_one_shape(list(shape), loc), fill, _name(dtype, loc), x)

    return read


def _read_new_full(
    loc: Loc | None,
    x: object,
    shape: object,
    fill_value: object,
    dtype: object = None,
    device: Place = None,
) -> Created:
    return Created(_one_shape([shape], loc), fill_value, _name(dtype, loc), x)


READERS: Mapping[str, Callable[..., Created]] = {
    "zeros": _filled(0),
    "ones": _filled(1),
    "empty": _filled(None),
    "full": _read_full,
    "zeros_like": _like(0),
    "ones_like": _like(1),
    "empty_like": _like(None),
    "full_like": _read_full_like,
    "new_zeros": _new(0),
    "new_ones": _new(1),
    "new_empty": _new(None),
    "new_full": _read_new_full,
}

MEANINGS: Mapping[str, str] = {
    "zeros": """Zeros, of float32 unless a dtype is given.

    >>> hl.zeros([2], dtype=hl.int32)
    array([0, 0], dtype=int32)
    """,
    "ones": """Ones, of float32 unless a dtype is given.

    >>> hl.ones([2])
    array([1., 1.], dtype=float32)
    """,
    "empty": """As an output: memory that is not set; as a value: zeros.

    >>> hl.empty([2, 3]).shape
    (2, 3)
    """,
    "full": """The same number everywhere, of the number's dtype unless one is given.

    >>> hl.full([2], 7.0)
    array([7., 7.], dtype=float32)
    """,
    "zeros_like": """Zeros in the shape and dtype of x.

    >>> hl.zeros_like(np.int32([1, 2]))
    array([0, 0], dtype=int32)
    """,
    "ones_like": """Ones in the shape and dtype of x.

    >>> hl.ones_like(np.int32([1, 2]))
    array([1, 1], dtype=int32)
    """,
    "empty_like": """`empty` in the shape and dtype of x.

    >>> hl.empty_like(np.int32([1, 2])).shape
    (2,)
    """,
    "full_like": """The same number everywhere, in the shape and dtype of x.

    >>> hl.full_like(np.int32([1, 2]), 7)
    array([7, 7], dtype=int32)
    """,
}


def made(loc: Loc | None, asked: Created) -> Expr:
    """The value that a creation call inside a loop makes; `empty` is zeros there."""
    like = _like_expr(asked.like, loc)
    dtype = asked.dtype
    if dtype is None and like is not None:
        dtype = like.type.dtype
    if asked.shape is not None:
        shape = dims(asked.shape, loc, "full")
    else:
        shape = () if like is None else like.type.shape
    return full(shape, 0 if asked.fill is None else asked.fill, dtype, loc)  # type: ignore[arg-type]


def _like_expr(like: object, loc: Loc | None) -> Expr | None:
    if isinstance(like, TensorHandle):
        hint = "in a loop, make a value of a tile's shape: hl.zeros([tile, 64])"
        raise TypingError(f"a value as large as the whole tensor {like.tensor.name}", loc, hint)
    return None if like is None else as_expr(like, loc)


def ranged(
    loc: Loc | None,
    start: object,
    stop: object = None,
    step: object = 1,
    dtype: object = None,
    device: Place = None,
) -> Expr:
    """start, start + step, ... below stop; of a tile, 0, 1, ... along its axis.

    >>> hl.arange(3)
    array([0, 1, 2], dtype=int32)
    """
    if stop is None and isinstance(start, TileHandle | TileScalar):
        value = lanes(one_dim(start, loc, "arange"), loc)
        return value if dtype is None else cast(value, dtype, loc)
    begin, end = (0, start) if stop is None else (start, stop)
    return arange(begin, end, step, dtype, loc)


def iota(loc: Loc | None, dtype: object, size: object) -> Expr:
    """jax.lax.iota: 0, 1, 2, ... of a dtype."""
    return cast(lanes(one_dim(size, loc, "iota"), loc), dtype, loc)


def broadcasted_iota(loc: Loc | None, dtype: object, shape: object, dimension: object) -> Expr:
    """jax.lax.broadcasted_iota: the position along one dimension.

    >>> hl.broadcasted_iota(hl.int32, [2, 3], 1)
    array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    """
    target = dims(shape, loc, "iota")
    place = one_axis(dimension, len(target), loc, "iota")
    row = as_rank(cast(lanes(target[place], loc), dtype, loc), len(target), loc)
    order = list(range(len(target) - 1))
    return broadcast(transpose(row, [*order[:place], len(order), *order[place:]], loc), target, loc)


def strong(loc: Loc | None, x: Value, dtype: object = None, device: Place = None) -> Expr:
    """A number with a dtype of its own, as torch.tensor and jnp.asarray make it."""
    value = as_expr(x, loc)
    if isinstance(value, Const):
        name = value.type.dtype if dtype is None else dtype_name(dtype, loc)
        return Const(retype(value, name, loc).value, retype(value, name, loc).type)
    return value if dtype is None else cast(value, dtype, loc)


def shape_of(loc: Loc | None, x: Expr) -> tuple[int | TileHandle, ...]:
    """x.shape: ints, and tiles for the dimensions that run along one."""
    return tuple(TileHandle(d, d) if isinstance(d, str) else d for d in x.type.shape)


def size_of(loc: Loc | None, x: Expr, dim: object = None) -> object:
    """x.size() and x.size(0)."""
    shape = shape_of(loc, x)
    return shape if dim is None else shape[one_axis(dim, len(shape), loc, "size")]


def rank_of(loc: Loc | None, x: Expr) -> int:
    """x.ndim."""
    return x.type.rank


def dtype_of(loc: Loc | None, x: Expr) -> DType:
    """x.dtype."""
    return DType(x.type.dtype)
