"""Several parts of a value along a static dimension, each of them a `narrow`.

op(loc, x, ...) -> (Expr, ...)
"""

from __future__ import annotations

from itertools import accumulate, pairwise

from ..errors import TypingError
from ..ir import Expr
from . import shapes
from .build import binary, unary
from .values import Site, Value, as_expr, called, one_axis


def chunk(loc: Site, x: Value, chunks: object, dim: object = 0) -> tuple[Expr, ...]:
    """Parts of equal length along a static dimension; the last one is what is left, as in torch.

    >>> hl.chunk(np.float32([1, 2, 3]), 2)
    (array([1., 2.], dtype=float32), array([3.], dtype=float32))
    """
    value, place, size = _static(loc, x, dim, "chunk")
    if not isinstance(chunks, int) or chunks < 1:
        raise TypingError(f"chunk: {chunks!r} parts", loc, "how many is an int, at least 1")
    return _by_lengths(loc, value, place, -(-size // chunks) if size else 1)


def torch_split(loc: Site, x: Value, sizes: object, dim: object = 0) -> tuple[Expr, ...]:
    """torch.split and jax.lax.split: the length of each part, or one length for all."""
    value, place, size = _static(loc, x, dim, "split")
    if isinstance(sizes, tuple | list) and all(isinstance(s, int) and s >= 0 for s in sizes):
        if sum(sizes) != size:
            what = f"split: parts of {', '.join(map(str, sizes))} of dimension {place}"
            raise TypingError(f"{what} of {called(value)}, which is {size} long", loc)
        return _between(loc, value, place, [0, *accumulate(sizes)])
    if isinstance(sizes, int) and sizes > 0:
        return _by_lengths(loc, value, place, sizes)
    hint = "an int above 0, or a list of ints that add up to the length of the dimension"
    raise TypingError(f"split: parts of {sizes!r}", loc, hint)


def jnp_split(
    loc: Site, x: Value, indices_or_sections: object, axis: object = 0
) -> tuple[Expr, ...]:
    """jnp.split and np.split: how many equal parts, or where the parts after the first begin."""
    value, place, size = _static(loc, x, axis, "split")
    cuts = indices_or_sections
    if isinstance(cuts, tuple | list) and all(isinstance(cut, int) for cut in cuts):
        bounds = [0, *cuts, size]
        if bounds == sorted(bounds):
            return _between(loc, value, place, bounds)
    if isinstance(cuts, int) and cuts > 0 and size % cuts == 0:
        return _by_lengths(loc, value, place, size // cuts) if size else (value,) * cuts
    hint = "how many equal parts, an int that divides the length, or where parts begin, in order"
    what = f"split: {cuts!r} of dimension {place} of {called(value)}, which is {size} long"
    raise TypingError(what, loc, hint)


def glu(loc: Site, x: Value, axis: object = -1) -> Expr:
    """a * sigmoid(b) of the two halves a and b of a dimension: F.glu, jax.nn.glu.

    >>> hl.glu(np.float32([1, 2, 0, 0]))
    array([0.5, 1. ], dtype=float32)
    """
    value, place, size = _static(loc, x, axis, "glu")
    if size % 2:
        what = f"glu of dimension {place} of {called(value)}, which is {size} long"
        raise TypingError(what, loc, "its length is even: half of it gates the other half")
    first, gate = _between(loc, value, place, [0, size // 2, size])
    return binary("mul", first, unary("sigmoid", gate, loc), loc)


def _static(loc: Site, x: Value, axis: object, op: str) -> tuple[Expr, int, int]:
    """The value, the place of the dimension that is meant, and its length."""
    value = as_expr(x, loc)
    place = one_axis(axis, value.type.rank, loc, op)
    size = value.type.shape[place]
    if isinstance(size, str):
        hint = f"loop over the parts: hl.tile(begin, end) instead of {size}"
        raise TypingError(f"{op}: axis {size} of {called(value)} is a tile", loc, hint)
    return value, place, size


def _by_lengths(loc: Site, value: Expr, place: int, length: int) -> tuple[Expr, ...]:
    size = value.type.shape[place]
    assert isinstance(size, int)
    return _between(loc, value, place, [*range(0, max(size, 1), length), size])


def _between(loc: Site, value: Expr, place: int, cuts: list[int]) -> tuple[Expr, ...]:
    return tuple(shapes.narrow(value, place, a, b, loc) for a, b in pairwise(cuts))
