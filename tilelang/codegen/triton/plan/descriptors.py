"""Descriptors: which loads hardware may copy as boxes of an array, and where boxes are cut off.

    x[tm, tk] of x (4096, 512)      boxes of 128 x 64, up to row 4096
    k[tk, h, :] summed over tk      boxes of 64 x 1 x 128, up to the end of this group's range

What a box has behind the end that its descriptor was told is zero, so with the range's end it holds
exactly what a masked load does.  The array's end is enough where no sum runs along the dimension:
rows of a neighbour then stay in lanes that nobody stores.  An end of 0 would be one of 2**32 to the
hardware, and no tile lies before it, so an end is at least 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tilelang.ir import (
    Along,
    Apply,
    At,
    Dim,
    Expr,
    Index,
    Load,
    Span,
    Var,
    every_expr,
    read_by,
)
from tilelang.language.dtypes import itemsize

from .problem import Prepared
from .steps import every_step
from .strides import single, strides
from .types import Descriptor, Fetch, For, Guard, Let, Read, Step

ALIGNMENT = 16  # bytes of pointers, strides, starts and rows of a box
LONGEST, DEEPEST = 256, 5  # positions of a box along a dimension, and dimensions
COPIED = frozenset(
    {"float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "int8", "uint8", "int32"}
)
PRODUCTS = frozenset({"dot", "multiply"})  # before matrix_products and after
THROUGH = PRODUCTS | frozenset({"sum", "max", "min", "argmax", "argmin"})  # results, not operands


@dataclass(frozen=True)
class End:
    """Where boxes are cut off along a dimension: at a position, or where a range ends, or both."""

    limit: int | None
    axis: str | None = None


@dataclass(frozen=True)
class Boxes:
    """How a load goes through a descriptor; `start` is the load's index."""

    root: str
    strides: tuple[int, ...]
    box: tuple[int, ...]
    start: tuple[Index, ...]
    ends: tuple[End, ...]
    why: str


def box_of(kernel: Prepared, load: Load, stored: frozenset[str]) -> Boxes | str:
    """How a load goes through a descriptor, or why it does not."""
    root, size = kernel.ir.root(load.tensor), itemsize(load.type.dtype)
    shape = kernel.ir.tensor(load.tensor).shape
    apart = single(strides(kernel.ir, load.tensor))
    if load.mask is not None or load.other != 0:
        return "elements of it are masked"
    if root in stored or kernel.ir.tensor(root).mutated:
        return "the kernel stores to it"
    if load.type.dtype not in COPIED or len(shape) > DEEPEST:
        return f"it is {load.type.dtype} of {len(shape)} dimensions"
    if apart is None:
        return "a dimension of it does not lie in one row"
    *outer, inner = apart
    if inner != 1 or any(stride * size % ALIGNMENT for stride in outer):
        return f"its rows do not begin at multiples of {ALIGNMENT} bytes"
    dims = iter(load.type.shape)
    box: list[int] = []
    ends: list[End] = []
    for entry, length in zip(load.index, shape, strict=True):
        scalar = isinstance(entry, At) and not entry.expr.type.shape
        reason = "" if scalar else _refused(kernel, entry)
        if reason:
            return reason
        dim = None if scalar else next(dims)
        box.append(1 if dim is None else kernel.width(dim))
        ends.append(_end(kernel, entry, dim, length))
    if (
        box[-1] * size < ALIGNMENT
        or max(box) > LONGEST
        or not _aligned(kernel, load.index[-1], size)
    ):
        return f"boxes of {' x '.join(map(str, box))} are not copied"
    axes = [kernel.ir.axis(end.axis).user for end in ends if end.axis is not None]
    why = f"up to the end of {' and '.join(axes)}" if axes else "up to the array's end"
    return Boxes(root, apart, tuple(box), load.index, tuple(ends), why)


def _refused(kernel: Prepared, entry: Index) -> str:
    """Why positions along a dimension do not make a box; empty if they do."""
    match entry:
        case Span():
            return ""
        case Along(axis, None) if kernel.step(axis) == kernel.lanes(axis):
            return ""
        case Along(axis, None):
            return f"tiles of {kernel.ir.axis(axis).user} are {kernel.step(axis)} long"
        case _:
            return "its rows are picked one by one"


def _end(kernel: Prepared, entry: Index, dim: Dim | None, length: int) -> End:
    match entry:
        case Span(_, stop) if dim is not None and kernel.is_partial(dim):
            return End(stop)
        case Along(axis) if kernel.is_partial(axis) and axis in kernel.reduced:
            return End(length if any(kernel.leaves(entry, length)) else None, axis)
        case _:
            return End(length)


def _aligned(kernel: Prepared, entry: Index, size: int) -> bool:
    """Whether boxes begin at multiples of 16 bytes along the last dimension."""
    match entry:
        case Span(start, _):
            return start * size % ALIGNMENT == 0
        case Along(axis):
            return kernel.is_multiple(kernel.range(axis)[0], ALIGNMENT // size)
        case _:
            return False


# ---------------------------------------------------------------- which loads


def operands(kernel: Prepared) -> frozenset[Load]:
    """Tiles that products are computed from: what is worth a copy into shared memory."""
    every = (e for e in every_expr(kernel.ir.body) if isinstance(e, Apply))
    products = [e for e in every if e.op in PRODUCTS]
    return frozenset(
        load
        for product in products
        for side in product.args[:2]
        for load in _sources(side, kernel)
        if len(load.type.shape) > 1
    )


def _sources(expr: Expr, kernel: Prepared) -> Iterator[Load]:
    match expr:
        case Load():
            yield expr
        case Var(name) if name in kernel.defined:
            yield from _sources(kernel.defined[name], kernel)
        case Apply(op, args) if op not in THROUGH:
            for arg in args:
                yield from _sources(arg, kernel)
        case _:
            pass


# ---------------------------------------------------------------- where they are made


def outside(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps with each descriptor made once, before the loops that its ends do not depend on."""
    out: list[Step] = []
    made: dict[Descriptor, str] = {}
    names: dict[str, str] = {}
    for step in steps:
        moved: list[Descriptor] = []
        if isinstance(step, For | Guard):
            body = outside(step.body)
            moved = [s for s in body if isinstance(s, Descriptor) and _moves(s, step)]
            step = replace(step, body=tuple(s for s in body if s not in moved))
        for one in (*moved, step):
            if isinstance(one, Descriptor):
                first = made.setdefault(replace(one, name="", loc=None), one.name)
                names[one.name] = first
                if first != one.name:
                    continue
            out.append(one)
    return _renamed(tuple(out), names) if any(a != b for a, b in names.items()) else tuple(out)


def _moves(descriptor: Descriptor, around: For | Guard) -> bool:
    """Whether a descriptor may be made before the body that it stands in."""
    read = set(read_by(descriptor.shape))
    if isinstance(around, Guard):
        return not read
    return read.isdisjoint(_defined(around))


def _defined(loop: For) -> set[str]:
    inner = (s for s in every_step((loop,)) if isinstance(s, Let | Read | Fetch | For))
    carried = (c.name for s in every_step((loop,)) if isinstance(s, For) for c in s.carries)
    return {*(s.name for s in inner), *carried}


def _renamed(steps: tuple[Step, ...], names: Mapping[str, str]) -> tuple[Step, ...]:
    """The steps with other names of descriptors."""

    def renamed(step: Step) -> Step:
        if isinstance(step, For | Guard):
            return replace(step, body=_renamed(step.body, names))
        if isinstance(step, Fetch):
            return replace(step, descriptor=names.get(step.descriptor, step.descriptor))
        return step

    return tuple(map(renamed, steps))
