"""Typed constructors of shape and creation ops.  A tile axis stays one whole dimension."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..errors import TypingError
from ..ir import Apply, Const, Dim, Expr, TileIndex, TileScalar, Type
from . import values
from .dtypes import default_dtype
from .values import Site, Value, as_expr, called, const, converted, dtype_name, one_axis, show


def _shaped(op: str, x: Expr, shape: tuple[Dim, ...], loc: Site, **attrs: object) -> Apply:
    return Apply(op, (x,), Type(shape, x.type.dtype), tuple(attrs.items()), loc)


def expand_dims(x: Value, axis: object, loc: Site) -> Expr:
    """A new dimension of length 1 at `axis` of the result."""
    value = as_expr(x, loc)
    place = one_axis(axis, value.type.rank + 1, loc, "expand_dims")
    shape = value.type.shape
    return _shaped("expand_dims", value, (*shape[:place], 1, *shape[place:]), loc, axis=place)


def squeeze(x: Value, axis: object, loc: Site) -> Expr:
    """Without the given dimensions (None: every one) of length 1."""
    value = as_expr(x, loc)
    shape = value.type.shape
    if axis is None:
        axes = tuple(i for i, d in enumerate(shape) if d == 1)
    else:
        axes = values.many_axes(axis, value.type.rank, loc, "squeeze")
    for place in reversed(axes):
        if shape[place] != 1:
            what = f"squeeze: dimension {place} of {called(value)} is {shape[place]}, not 1"
            raise TypingError(what, loc)
        shape = (*shape[:place], *shape[place + 1 :])
        value = _shaped("squeeze", value, shape, loc, axis=place)
    return value


def transpose(x: Value, perm: Sequence[object], loc: Site) -> Expr:
    """Dimension i of the result is dimension perm[i] of x."""
    value = as_expr(x, loc)
    rank = value.type.rank
    if len(perm) != rank:
        what = f"permute: {len(perm)} dimensions are given for {called(value)}"
        raise TypingError(what, loc, f"name each of its {rank} dimensions once")
    order = tuple(one_axis(p, rank, loc, "permute") for p in perm)
    if len(set(order)) != rank:
        raise TypingError(f"permute: {show(order)} names a dimension twice", loc)
    if order == tuple(range(rank)):
        return value
    shape = tuple(value.type.shape[p] for p in order)
    return _shaped("transpose", value, shape, loc, perm=order)


def broadcast(x: Value, want: tuple[Dim, ...], loc: Site) -> Expr:
    """The value repeated to the shape `want`; -1 keeps a dimension as it is."""
    value = as_expr(x, loc)
    have = value.type.shape
    missing = len(want) - len(have)
    if missing < 0:
        what = f"broadcast: {called(value)} has more dimensions than {show(want)}"
        raise TypingError(what, loc)
    target = (*want[:missing], *(h if w == -1 else w for h, w in zip(have, want[missing:])))
    values.no_negative(target, loc, "broadcast")
    for place, (h, w) in enumerate(zip(have, target[missing:])):
        if h not in (1, w):
            what = f"broadcast: dimension {place} of {called(value)} is {h}, not 1 or {w}"
            raise TypingError(what, loc, "only dimensions of length 1 are repeated")
    if target == have:
        return value
    return full(target, value, None, loc) if not have else _shaped("broadcast", value, target, loc)


def as_rank(x: Expr, rank: int, loc: Site) -> Expr:
    """The value with dimensions of length 1 in front, up to `rank`."""
    for _ in range(rank - x.type.rank):
        x = expand_dims(x, 0, loc)
    return x


def concat(parts: object, axis: object, loc: Site) -> Expr:
    """The values one after the other along `axis`, which must have a static length in each."""
    if not isinstance(parts, tuple | list) or not parts:
        raise TypingError("cat needs a list of values", loc, "hl.cat([a, b], dim=-1)")
    exprs = [as_expr(p, loc) for p in parts]
    place = one_axis(axis, exprs[0].type.rank, loc, "cat")
    dtype = values.common(exprs, loc)
    for other in exprs:
        _fits_beside(exprs[0], other, place, loc)
    if len(exprs) == 1:
        return exprs[0]
    shape = exprs[0].type.shape
    length = sum(d for e in exprs if isinstance(d := e.type.shape[place], int))
    args = tuple(converted(e, dtype, loc) for e in exprs)
    result = Type((*shape[:place], length, *shape[place + 1 :]), dtype)
    return Apply("concat", args, result, (("axis", place),), loc)


def narrow(x: Value, axis: object, start: int, stop: int, loc: Site) -> Expr:
    """The elements from `start` on and before `stop` along a static dimension."""
    value = as_expr(x, loc)
    place = one_axis(axis, value.type.rank, loc, "narrow")
    size = value.type.shape[place]
    if isinstance(size, str):
        hint = f"mask what is not meant, with {size}.index; or loop over the part: "
        hint += f"hl.tile(begin, end) instead of {size}"
        raise TypingError(f"a part of axis {size} of {called(value)}", loc, hint)
    if not 0 <= start <= stop <= size:
        what = f"narrow: {start} to {stop} of dimension {place} of {called(value)}"
        raise TypingError(f"{what}, which is {size} long", loc)
    if (start, stop) == (0, size):
        return value
    shape = (*value.type.shape[:place], stop - start, *value.type.shape[place + 1 :])
    if start == stop:
        return full(shape, 0, value.type.dtype, loc)
    return _shaped("narrow", value, shape, loc, axis=place, start=start, stop=stop)


def _fits_beside(first: Expr, other: Expr, place: int, loc: Site) -> None:
    if isinstance(axis := (*other.type.shape, 0)[place], str) and place < other.type.rank:
        hint = "the length of a tile is not known; cat along a static dimension"
        raise TypingError(f"cat along axis {axis} of {called(other)}", loc, hint)
    rest = [tuple(d for i, d in enumerate(e.type.shape) if i != place) for e in (first, other)]
    if first.type.rank != other.type.rank or rest[0] != rest[1]:
        what = f"cat along dimension {place}: {called(first)} and {called(other)} do not fit"
        raise TypingError(what, loc, "all other dimensions must be the same")


# ---------------------------------------------------------------- reshape


def reshape(x: Value, want: tuple[Dim, ...], loc: Site) -> Expr:
    """The same elements under another shape; tile axes keep their order and stay whole."""
    value = as_expr(x, loc)
    have = value.type.shape
    if sum(d == -1 for d in want) > 1:
        raise TypingError("reshape: only one length can be -1", loc)
    target = _resolved(have, want)
    if target is None or _segments(have) != _segments(target):
        raise _bad_reshape(value, want, loc)
    return value if target == have else _shaped("reshape", value, target, loc)


def _segments(shape: tuple[Dim, ...]) -> list[Dim]:
    """Products of the static lengths between tile axes, and the axes: what a reshape keeps."""
    out: list[Dim] = [1]
    for dim in shape:
        if isinstance(dim, str):
            out += [dim, 1]
        else:
            out[-1] = int(out[-1]) * dim
    return out


def _resolved(have: tuple[Dim, ...], want: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
    """The target shape with -1 replaced; None if nothing fits there."""
    if -1 not in want:
        return want
    place = want.index(-1)
    absent: list[Dim] = [d for d in have if isinstance(d, str) and d not in want]
    rest = _rest(have, want, place)
    for candidate in absent or ([] if rest is None else [rest]):
        target = (*want[:place], candidate, *want[place + 1 :])
        if _segments(have) == _segments(target):
            return target
    return None


def _rest(have: tuple[Dim, ...], want: tuple[Dim, ...], place: int) -> int | None:
    """The length that is left for -1 between the tile axes around it; None if there is none."""
    segment = sum(isinstance(d, str) for d in want[:place])
    given, total = _segments(tuple(1 if d == -1 else d for d in want)), _segments(have)
    divisor = int(given[2 * segment])
    if len(given) != len(total) or divisor == 0:
        return None
    return int(total[2 * segment]) // divisor


def _bad_reshape(value: Expr, want: tuple[Dim, ...], loc: Site) -> TypingError:
    what = f"reshape: {called(value)} does not fit {show(want)}"
    axes = [d for d in value.type.shape if isinstance(d, str)]
    if not axes:
        count = math.prod(int(d) for d in value.type.shape)
        return TypingError(what, loc, f"it has {count} elements")
    if [d for d in want if isinstance(d, str)] == axes and -1 not in want:
        return TypingError(what, loc, "the lengths between its tile axes must multiply to the same")
    named = "axis " + axes[0] if len(axes) == 1 else "axes " + ", ".join(axes)
    hint = f"{named} cannot be split, merged or reordered; reshape the static dimensions only"
    return TypingError(what, loc, hint)


# ---------------------------------------------------------------- creation


def full(shape: tuple[Dim, ...], value: Value, dtype: object | None, loc: Site) -> Expr:
    """The same scalar everywhere; of the scalar's dtype if none is given."""
    target = values.no_negative(shape, loc, "full")
    scalar = as_expr(value, loc)
    if scalar.type.rank:
        what = f"full: {called(scalar)} is not a scalar"
        raise TypingError(what, loc, "hl.broadcast_to repeats a value along new dimensions")
    name = scalar.type.dtype if dtype is None else dtype_name(dtype, loc)
    if isinstance(scalar, Const):
        number = bool(scalar.value) if name == "bool" else values.retype(scalar, name, loc).value
        return Apply("full", (), Type(target, name), (("value", number),), loc)
    return Apply("full", (converted(scalar, name, loc),), Type(target, name), (), loc)


def arange(start: object, stop: object, step: object, dtype: object | None, loc: Site) -> Expr:
    """start, start + step, ... below stop; numbers that are known while compiling."""
    begin, end, by = (_static(v, loc) for v in (start, stop, step))
    if by == 0:
        raise TypingError("arange: a step of 0", loc)
    length = max(math.ceil((end - begin) / by), 0)
    default = default_dtype(begin + by)
    name = default if dtype is None else dtype_name(dtype, loc)
    first, by = (const(v, like=name).value for v in (begin, by))
    return Apply("arange", (), Type((length,), name), (("start", first), ("step", by)), loc)


def _static(value: object, loc: Site) -> int | float:
    if isinstance(value, Const):
        value = value.value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    hint = "tile.index is the positions of a tile"
    raise TypingError("arange: the length is not known while compiling", loc, hint)


def lanes(dim: Dim, loc: Site) -> Expr:
    """0, 1, 2, ... along one dimension: a static length or a tile, which counts from its begin."""
    if isinstance(dim, int):
        return arange(0, dim, 1, None, loc)
    kind = Type((dim,), "int32")
    return Apply("sub", (TileIndex(dim, kind), TileScalar(dim, "begin")), kind, (), loc)
