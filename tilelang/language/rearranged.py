"""Shape ops in their spellings.

op(loc, x, ...) -> Expr
"""

from __future__ import annotations

from ..errors import TypingError
from ..ir import Expr
from . import shapes
from .values import Site, Value, as_expr, called, dims, many_axes, one_axis


def swapaxes(loc: Site, x: Value, axis1: object, axis2: object) -> Expr:
    """Two dimensions exchanged: torch.transpose, jnp.swapaxes.

    >>> hl.swapaxes(np.zeros((2, 3), np.float32), 0, 1).shape
    (3, 2)
    """
    value = as_expr(x, loc)
    rank = value.type.rank
    i, j = (one_axis(a, rank, loc, "transpose") for a in (axis1, axis2))
    return shapes.transpose(value, [{i: j, j: i}.get(d, d) for d in range(rank)], loc)


def permute(loc: Site, x: Value, axes: object) -> Expr:
    """Dimension i of the result is dimension axes[i] of x.

    >>> hl.permute(np.zeros((2, 3, 4), np.float32), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return shapes.transpose(x, axes if isinstance(axes, tuple | list) else (axes,), loc)


def reversed_axes(loc: Site, x: Value, axes: object = None) -> Expr:
    """jnp.transpose: dimensions in the given order, or reversed."""
    value = as_expr(x, loc)
    return permute(loc, value, tuple(reversed(range(value.type.rank))) if axes is None else axes)


def transpose(loc: Site, x: Value, *axes: object) -> Expr:
    """Two dimensions exchanged, as in torch; or an order of all of them; or all reversed.

    >>> hl.transpose(np.zeros((2, 3, 4), np.float32), 0, 2).shape
    (4, 3, 2)
    """
    if len(axes) == 2:
        return swapaxes(loc, x, *axes)
    if len(axes) == 1 and isinstance(axes[0], tuple | list):
        return permute(loc, x, axes[0])
    return reversed_axes(loc, x, axes or None)


def permute_method(loc: Site, x: Value, *dims: object) -> Expr:
    """x.permute(2, 0, 1) or x.permute((2, 0, 1))."""
    return permute(loc, x, _one_sequence(dims))


def matrix_transpose(loc: Site, x: Value) -> Expr:
    """The last two dimensions exchanged: x.mT.

    >>> hl.matrix_transpose(np.zeros((2, 3, 4), np.float32)).shape
    (2, 4, 3)
    """
    return swapaxes(loc, x, -1, -2)


def t(loc: Site, x: Value) -> Expr:
    """x.t(): the transpose of a matrix."""
    value = as_expr(x, loc)
    if value.type.rank > 2:
        raise TypingError(f"t: {called(value)} is not a matrix", loc, "write x.mT")
    return reversed_axes(loc, value)


def moveaxis(loc: Site, x: Value, source: object, destination: object) -> Expr:
    """One dimension moved to another place.

    >>> hl.moveaxis(np.zeros((2, 3, 4), np.float32), 0, -1).shape
    (3, 4, 2)
    """
    value = as_expr(x, loc)
    rank = value.type.rank
    start, stop = (one_axis(a, rank, loc, "moveaxis") for a in (source, destination))
    order = [d for d in range(rank) if d != start]
    return shapes.transpose(value, [*order[:stop], start, *order[stop:]], loc)


def unsqueeze(loc: Site, x: Value, axis: object) -> Expr:
    """New dimensions of length 1.

    >>> hl.unsqueeze(np.float32([1, 2]), -1).shape
    (2, 1)
    """
    value = as_expr(x, loc)
    if not isinstance(axis, tuple | list):
        return shapes.expand_dims(value, axis, loc)
    for place in many_axes(axis, value.type.rank + len(axis), loc, "expand_dims"):
        value = shapes.expand_dims(value, place, loc)
    return value


def squeeze(loc: Site, x: Value, axis: object = None) -> Expr:
    """Without dimensions of length 1: the given ones, or every one.

    >>> hl.squeeze(np.zeros((1, 3, 1), np.float32)).shape
    (3,)
    """
    return shapes.squeeze(x, axis, loc)


def reshape(loc: Site, x: Value, shape: object) -> Expr:
    """The same elements under another shape; a tile axis stays one whole dimension.

    >>> hl.reshape(np.zeros((2, 6), np.float32), [2, 3, -1]).shape
    (2, 3, 2)
    """
    return shapes.reshape(x, dims(shape, loc, "reshape"), loc)


def reshape_method(loc: Site, x: Value, *shape: object) -> Expr:
    """x.reshape(2, 3), x.view(2, 3) or with a tuple."""
    return reshape(loc, x, _one_sequence(shape))


def flatten(loc: Site, x: Value, start_dim: object = 0, end_dim: object = -1) -> Expr:
    """Dimensions start_dim to end_dim as one.

    >>> hl.flatten(np.zeros((2, 3, 4), np.float32), 1).shape
    (2, 12)
    """
    value = as_expr(x, loc)
    shape, rank = value.type.shape, value.type.rank
    if rank == 0:
        return shapes.expand_dims(value, 0, loc)
    first, last = (one_axis(a, rank, loc, "flatten") for a in (start_dim, end_dim))
    return shapes.reshape(value, (*shape[:first], -1, *shape[last + 1 :]), loc)


def broadcast_to(loc: Site, x: Value, shape: object) -> Expr:
    """x repeated along new dimensions and along those of length 1; -1 keeps one.

    >>> hl.broadcast_to(np.float32([[1], [2]]), [2, 3]).shape
    (2, 3)
    """
    return shapes.broadcast(x, dims(shape, loc, "broadcast_to"), loc)


def expand_method(loc: Site, x: Value, *shape: object) -> Expr:
    """x.expand(2, 3) or x.expand((2, 3))."""
    return shapes.broadcast(x, dims(_one_sequence(shape), loc, "expand"), loc)


def expand_as(loc: Site, x: Value, y: Value) -> Expr:
    """x.expand_as(y)."""
    return shapes.broadcast(x, as_expr(y, loc).type.shape, loc)


def _one_sequence(given: tuple[object, ...]) -> tuple[object, ...]:
    """Dimensions given one by one, or as one sequence."""
    if len(given) == 1 and isinstance(given[0], tuple | list):
        return tuple(given[0])
    return given


def concatenate(loc: Site, values: object, axis: object = 0) -> Expr:
    """The values one after the other along a static dimension.

    >>> hl.cat([np.float32([1, 2]), np.float32([3])])
    array([1., 2., 3.], dtype=float32)
    """
    return shapes.concat(values, axis, loc)


def narrow(loc: Site, x: Value, dim: object, start: object, length: object) -> Expr:
    """`length` elements from `start` on along a static dimension: x[:, start : start + length].

    >>> hl.narrow(np.float32([1, 2, 3, 4]), 0, 1, 2)
    array([2., 3.], dtype=float32)
    """
    value = as_expr(x, loc)
    size = value.type.shape[one_axis(dim, value.type.rank, loc, "narrow")]
    if not isinstance(start, int) or not isinstance(length, int):
        hint = "begin and length are ints, or lengths of dimensions"
        raise TypingError("narrow: a part whose bounds are not known while compiling", loc, hint)
    begin = start + size if start < 0 and isinstance(size, int) else start
    return shapes.narrow(value, dim, begin, begin + length, loc)


def stack(loc: Site, values: object, axis: object = 0) -> Expr:
    """The values side by side along a new dimension.

    >>> hl.stack([np.float32([1, 2]), np.float32([3, 4])], axis=1)
    array([[1., 3.],
           [2., 4.]], dtype=float32)
    """
    if not isinstance(values, tuple | list):
        raise TypingError("stack needs a list of values", loc, "hl.stack([a, b], dim=0)")
    return shapes.concat([shapes.expand_dims(v, axis, loc) for v in values], axis, loc)


def broadcast_in_dim(loc: Site, x: Value, shape: object, broadcast_dimensions: object) -> Expr:
    """jax.lax.broadcast_in_dim: dimension i of x becomes broadcast_dimensions[i] of `shape`."""
    value = as_expr(x, loc)
    target = dims(shape, loc, "broadcast_in_dim")
    places = many_axes(broadcast_dimensions, len(target), loc, "broadcast_in_dim")
    if len(places) != value.type.rank:
        what = f"broadcast_in_dim: {len(places)} dimensions are given for {called(value)}"
        raise TypingError(what, loc)
    for place in range(len(target)):
        if place not in places:
            value = shapes.expand_dims(value, place, loc)
    return shapes.broadcast(value, target, loc)
