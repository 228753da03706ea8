"""Making values: zeros, full, arange and their kin, in their spellings.

Before the loops the same calls declare output tensors; `created` reads their arguments for both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..errors import TypingError
from ..ir import Const, Expr, TileScalar
from . import shapes
from .build import cast
from .dtypes import DType, canonical
from .handles import TensorHandle, TileHandle
from .op import documentation
from .values import Site, Value, as_expr, const, dims, dtype_name, one_axis, one_dim, retype

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


Reader = Callable[..., Created]


def _filled(fill: object) -> Reader:
    def read(
        loc: Site,
        *sizes: object,
        shape: object = None,
        dtype: object = None,
        device: Place = None,
        requires_grad: bool = False,
    ) -> Created:
        given = list(sizes if shape is None else (*sizes, shape))
        if dtype is None and len(given) > 1 and canonical(given[-1]) is not None:
            dtype = given.pop()  # jnp.zeros(shape, dtype)
        return Created(_one_shape(given, loc), fill, _name(dtype, loc) or "float32")

    return read


def _one_shape(sizes: list[object], loc: Site) -> tuple[object, ...]:
    """torch.zeros(2, 3) and jnp.zeros((2, 3))."""
    if len(sizes) == 1 and isinstance(sizes[0], tuple | list):
        return tuple(sizes[0])
    if not sizes:
        raise TypingError("a shape is missing", loc, "hl.zeros([tm, tn], dtype=hl.float32)")
    return tuple(sizes)


def _name(dtype: object, loc: Site) -> str | None:
    return None if dtype is None else dtype_name(dtype, loc)


def _full(
    loc: Site,
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


def _like(fill: object) -> Reader:
    def read(
        loc: Site,
        x: object,
        dtype: object = None,
        shape: object = None,
        device: Place = None,
        requires_grad: bool = False,
    ) -> Created:
        sizes = None if shape is None else _one_shape([shape], loc)
        return Created(sizes, fill, _name(dtype, loc), x)

    return read


def _full_like(
    loc: Site,
    x: object,
    fill_value: object,
    dtype: object = None,
    shape: object = None,
    device: Place = None,
    requires_grad: bool = False,
) -> Created:
    return _like(fill_value)(loc, x, dtype, shape)


def _new(fill: object) -> Reader:
    def read(
        loc: Site, x: object, *shape: object, dtype: object = None, device: Place = None
    ) -> Created:
        return Created(_one_shape(list(shape), loc), fill, _name(dtype, loc), x)

    return read


def _new_full(
    loc: Site,
    x: object,
    shape: object,
    fill_value: object,
    dtype: object = None,
    device: Place = None,
) -> Created:
    return _new(fill_value)(loc, x, shape, dtype=dtype)


READERS: Mapping[str, Reader] = {
    "zeros": _filled(0),
    "ones": _filled(1),
    "empty": _filled(None),
    "full": _full,
    "zeros_like": _like(0),
    "ones_like": _like(1),
    "empty_like": _like(None),
    "full_like": _full_like,
    "new_zeros": _new(0),
    "new_ones": _new(1),
    "new_empty": _new(None),
    "new_full": _new_full,
}

DOCS: Mapping[str, str] = {
    "zeros": """Zeros, of float32 unless a dtype is given.
    >>> hl.zeros([2], dtype=hl.int32)
    array([0, 0], dtype=int32)""",
    "ones": """Ones, of float32 unless a dtype is given.
    >>> hl.ones([2])
    array([1., 1.], dtype=float32)""",
    "empty": """As an output: memory that is not set; as a value: zeros.
    >>> hl.empty([2, 3]).shape
    (2, 3)""",
    "full": """The same number everywhere, of the number's dtype unless one is given.
    >>> hl.full([2], 7.0)
    array([7., 7.], dtype=float32)""",
    "zeros_like": """Zeros in the shape and dtype of x.
    >>> hl.zeros_like(np.int32([1, 2]))
    array([0, 0], dtype=int32)""",
    "ones_like": """Ones in the shape and dtype of x.
    >>> hl.ones_like(np.int32([1, 2]))
    array([1, 1], dtype=int32)""",
    "empty_like": """`empty` in the shape and dtype of x.
    >>> hl.empty_like(np.int32([1, 2])).shape
    (2,)""",
    "full_like": """The same number everywhere, in the shape and dtype of x.
    >>> hl.full_like(np.int32([1, 2]), 7)
    array([7, 7], dtype=int32)""",
}


def creator(name: str) -> Callable[..., Expr]:
    """zeros, full_like, ... as values; with the signature of the call that reads the arguments."""
    read = READERS[name]

    @functools.wraps(read)
    def made(loc: Site, *args: object, **kwargs: object) -> Expr:
        return _made(loc, read(loc, *args, **kwargs))

    made.__doc__ = documentation(DOCS.get(name), made)
    made.__name__ = name
    return made


def _made(loc: Site, asked: Created) -> Expr:
    """The value that a creation call inside a loop makes; `empty` is zeros there."""
    if isinstance(asked.like, TensorHandle):
        what = f"a value as large as the whole tensor {asked.like.tensor.name}"
        hint = "in a loop, make a value of a tile's shape: hl.zeros([tile, 64])"
        raise TypingError(what, loc, hint)
    like = None if asked.like is None else as_expr(asked.like, loc).type
    dtype = like.dtype if asked.dtype is None and like is not None else asked.dtype
    if asked.shape is not None:
        shape = dims(asked.shape, loc, "full")
    else:
        shape = () if like is None else like.shape
    return shapes.full(shape, as_expr(0 if asked.fill is None else asked.fill, loc), dtype, loc)


def arange(
    loc: Site,
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
        value = shapes.lanes(one_dim(start, loc, "arange"), loc)
        return value if dtype is None else cast(value, dtype, loc)
    begin, end = (0, start) if stop is None else (start, stop)
    return shapes.arange(begin, end, step, dtype, loc)


def iota(loc: Site, dtype: object, size: object) -> Expr:
    """jax.lax.iota: 0, 1, 2, ... of a dtype."""
    return cast(shapes.lanes(one_dim(size, loc, "iota"), loc), dtype, loc)


def broadcasted_iota(loc: Site, dtype: object, shape: object, dimension: object) -> Expr:
    """jax.lax.broadcasted_iota: the position along one dimension.

    >>> hl.broadcasted_iota(hl.int32, [2, 3], 1)
    array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    """
    target = dims(shape, loc, "iota")
    place = one_axis(dimension, len(target), loc, "iota")
    row = shapes.as_rank(cast(shapes.lanes(target[place], loc), dtype, loc), len(target), loc)
    order = list(range(len(target) - 1))
    moved = shapes.transpose(row, [*order[:place], len(order), *order[place:]], loc)
    return shapes.broadcast(moved, target, loc)


def strong(loc: Site, x: Value, dtype: object = None, device: Place = None) -> Expr:
    """A number with a dtype of its own, as torch.tensor and jnp.asarray make it."""
    value = as_expr(x, loc)
    if isinstance(value, Const):
        number = retype(value, value.type.dtype if dtype is None else dtype_name(dtype, loc), loc)
        return Const(number.value, number.type)
    return value if dtype is None else cast(value, dtype, loc)


def shape_of(loc: Site, x: Expr) -> tuple[int | TileHandle, ...]:
    """x.shape: ints, and tiles for the dimensions that run along one."""
    return tuple(TileHandle(d, d) if isinstance(d, str) else d for d in x.type.shape)


def size_of(loc: Site, x: Expr, dim: object = None) -> object:
    """x.size() and x.size(0)."""
    shape = shape_of(loc, x)
    return shape if dim is None else shape[one_axis(dim, len(shape), loc, "size")]


def rank_of(loc: Site, x: Expr) -> int:
    """x.ndim."""
    return x.type.rank


def dtype_of(loc: Site, x: Expr) -> DType:
    """x.dtype."""
    return DType(x.type.dtype)
