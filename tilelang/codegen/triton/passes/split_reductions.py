"""Split reductions: a loop that adds up a long range, as parts that a second launch adds up.

    for g:                                      for part in grid(4): for g:
        for t in tile(a, b) carrying s = x:         for t in tile(a + part * n, ...) carrying s = 0:
            next s = s + f(t)                           next s = s + f(t)
        y[g] = s                       ->           s_parts[part, g] = s
                                                for g_1:
                                                    for part_1 in grid(4) carrying s_1 = x:
                                                        next s_1 = s_1 + s_parts[part_1, g_1]
                                                    y[g_1] = s_1

n is a number of whole tiles, so that tiles are the same as before; the last parts may be empty.
Parts are added in their order, so that the result is the same in every run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import assert_never

from tilelang import ir
from tilelang.ir import integers, statements
from tilelang.ir.names import names_in, renamed_stmt, take
from tilelang.ir.traversal import map_body

OPS = ("add", "maximum", "minimum")  # that parts can be combined by
FLOATS = ("float32", "bfloat16", "float16")  # that have infinities
ELEMENTS = 2048  # of a tile of results: adding up reads much and computes little


@dataclass(frozen=True)
class Reduction:
    """A loop that combines its carries, each by its own op of OPS.

    around   the loops around it, from the top; each holds assignments, the next loop, and the
             innermost one what is done with the result; their ranges are known
    blocks   of the tile axes
    free     those around whose tiles may be others where the result is used
    """

    kernel: ir.KernelIR
    around: tuple[ir.Loop, ...]
    loop: ir.Loop
    ops: tuple[str, ...]
    blocks: Mapping[str, int]
    free: frozenset[str]

    @property
    def top(self) -> ir.Loop:
        return (*self.around, self.loop)[0]

    def step(self, axis: str) -> int:
        return self.blocks[axis] if self.kernel.axis(axis).kind == "tile" else 1

    def trips(self, axis: str) -> int:
        """How many tiles or indices an axis has at most."""
        return -(-self.extent(axis) // self.step(axis))

    def end(self, axis: str) -> int:
        """Where a known range ends."""
        static = self.kernel.axis(axis).static
        assert static is not None, "ranges around the loop are known"
        return static[1]

    def extent(self, axis: str) -> int:
        """How many positions an axis has at most."""
        found = self.kernel.axis(axis)
        return max(found.static[1] - found.static[0] if found.static else found.max_extent or 0, 0)


def split_reductions(found: Reduction, parts: int) -> ir.KernelIR:
    """The kernel with that loop in so many parts."""
    kernel, loop = found.kernel, found.loop
    taken = names_in(kernel) | {kernel.name}

    def named(wish: str) -> str:
        return take(wish, taken)

    part, fold = (_counted(named("part"), parts, loop) for _ in range(2))
    arrays = tuple(_array(found, c, named(f"{c.user}_parts"), parts) for c in loop.carries)
    names = {name: named(name) for name in _bound(found)}
    scalars, own = _shortened(found, part, parts, named)
    launches = _partial(found, part, scalars, arrays), _combined(found, fold, arrays, names)
    inputs = next(
        (n for n, t in enumerate(kernel.tensors) if t.role == "output"), len(kernel.tensors)
    )
    axes = tuple(own if a.name == own.name else a for a in kernel.axes)
    return replace(
        kernel,
        tensors=(*kernel.tensors[:inputs], *arrays, *kernel.tensors[inputs:]),
        axes=(*axes, part, fold, *_again(found, names)),
        body=tuple(b for s in kernel.body for b in (launches if s is found.top else (s,))),
    )


def _counted(name: str, count: int, loop: ir.Loop) -> ir.Axis:
    return ir.Axis(
        name, "grid", integers.const(0), integers.const(count), count, None, loop.loc, "part"
    )


def _shortened(
    found: Reduction, part: ir.Axis, parts: int, named: Callable[[str], str]
) -> tuple[tuple[ir.Assign, ...], ir.Axis]:
    """The range of one part, and the scalars that it is made of.

    That a part begins behind the whole range's begin is said by a maximum: sums of numbers that
    nobody checked may wrap, and the product of two unknown numbers proves nothing.
    """
    axis, index = found.kernel.axis(found.loop.axis), ir.GridIndex(part.name)
    step, scalars = found.step(axis.name), list[ir.Assign]()

    def scalar(what: str, value: ir.Expr) -> ir.Expr:
        if not isinstance(value, ir.Apply | ir.Load):
            return value
        name = named(f"{axis.user}_{what}")
        scalars.append(ir.Assign(name, value, axis.loc, name))
        return ir.Var(name, integers.INT)

    first, last = scalar("first", axis.begin), scalar("last", axis.end)
    length = integers.maximum(integers.sub(last, first), 0)
    rounded = integers.add(length, integers.const(parts * step - 1))
    each = scalar("length", integers.mul(integers.floordiv(rounded, parts * step), step))
    by = integers.value_of(each)
    moved = ir.Apply("mul", (index, each), integers.INT) if by is None else integers.mul(index, by)
    begin = integers.add(first, moved)
    if by is None:
        begin = scalar("part", ir.Apply("maximum", (begin, first), integers.INT))
    whole = axis.static is not None and found.extent(axis.name) % (parts * step) == 0
    end = integers.add(begin, each)
    end = end if whole else integers.minimum(end, last)
    most = -(-found.extent(axis.name) // (parts * step)) * step
    return tuple(scalars), replace(axis, begin=begin, end=end, max_extent=most)


# ---------------------------------------------------------------- the array of the parts


def _apart(found: Reduction, carry: ir.Carry) -> list[str]:
    """Axes around the loop that a carry has no dimension of: it has a value at each tile."""
    return [o.axis for o in found.around if o.axis not in carry.init.type.shape]


def _array(found: Reduction, carry: ir.Carry, name: str, parts: int) -> ir.Tensor:
    form = carry.init.type
    apart = (found.trips(a) for a in _apart(found, carry))
    along = (dim if isinstance(dim, int) else found.end(dim) for dim in form.shape)
    return ir.Tensor(name, (parts, *apart, *along), form.dtype, "output", carry.loc)


def _place(found: Reduction, carry: ir.Carry, part: ir.Axis) -> tuple[ir.Index, ...]:
    """Where a part of a carry is."""
    index: list[ir.Index] = [ir.At(ir.GridIndex(part.name))]
    for axis in map(found.kernel.axis, _apart(found, carry)):
        number: ir.Expr = ir.TileScalar(axis.name, "id")
        if axis.kind == "grid":
            number = integers.sub(ir.GridIndex(axis.name), axis.begin)
        index.append(ir.At(number))
    shape = carry.init.type.shape
    return (*index, *(ir.Along(d) if isinstance(d, str) else ir.Span(0, d) for d in shape))


# ---------------------------------------------------------------- the two launches


def _partial(
    found: Reduction, part: ir.Axis, scalars: tuple[ir.Assign, ...], arrays: tuple[ir.Tensor, ...]
) -> ir.Loop:
    """Every part by itself."""
    loop, carries, stores = found.loop, list[ir.Carry](), list[ir.Stmt]()
    for array, carry, op in zip(arrays, found.loop.carries, found.ops, strict=True):
        form = carry.init.type
        start = ir.Apply("full", (), form, (("value", _neutral(op, form.dtype)),))
        carries.append(replace(carry, init=start))
        value = ir.Var(carry.out, form)
        stores.append(ir.Store(array.name, _place(found, carry, part), value, carry.loc))
    body: tuple[ir.Stmt, ...] = (*scalars, replace(loop, carries=tuple(carries)), *stores)
    for outer in reversed(found.around):
        body = (replace(outer, body=(*_before(outer), *body)),)
    return ir.Loop(part.name, body, (), loop.loc)


def _neutral(op: str, dtype: str) -> ir.Scalar:
    """What changes nothing that it is combined with."""
    if op == "add":
        return 0 if "int" in dtype else 0.0
    if dtype in FLOATS:
        return -math.inf if op == "maximum" else math.inf
    bits = int(dtype.rpartition("int")[2])
    low = 0 if dtype.startswith("u") else -(1 << bits - 1)
    return low if op == "maximum" else low + (1 << bits) - 1


def _combined(
    found: Reduction, fold: ir.Axis, arrays: tuple[ir.Tensor, ...], names: Mapping[str, str]
) -> ir.Loop:
    """The parts together, and what came after the loop; under names of its own."""
    carries: list[ir.Carry] = []
    for array, carry, op in zip(arrays, found.loop.carries, found.ops, strict=True):
        form = carry.init.type
        load = ir.Load(array.name, _place(found, carry, fold), form, loc=carry.loc)
        both = ir.Apply(op, (ir.Var(carry.name, form), load), form, loc=carry.loc)
        carries.append(replace(carry, next=both))
    body: tuple[ir.Stmt, ...] = (ir.Loop(fold.name, (), tuple(carries), found.loop.loc),)
    for outer in reversed(found.around):
        after = outer.body[len(_before(outer)) + 1 :]
        body = (replace(outer, body=(*_before(outer), *body, *after)),)
    (only,) = map_body(body, lambda stmt: (renamed_stmt(stmt, names),))
    assert isinstance(only, ir.Loop)
    return only


def _before(loop: ir.Loop) -> tuple[ir.Stmt, ...]:
    """What stands before the only loop in a loop."""
    return loop.body[: next(n for n, s in enumerate(loop.body) if isinstance(s, ir.Loop))]


def _again(found: Reduction, names: Mapping[str, str]) -> list[ir.Axis]:
    """The axes around the loop once more, in smaller tiles where those are free."""
    axes = [found.kernel.axis(outer.axis) for outer in found.around]
    blocks = {a.name: found.blocks[a.name] for a in axes if a.kind == "tile"}
    smaller = {name: block for name, block in blocks.items() if name in found.free}
    while prod(smaller.values()) > ELEMENTS:
        smaller[max(smaller, key=lambda name: smaller[name])] //= 2
    blocks |= smaller
    return [replace(a, name=names[a.name], block=blocks.get(a.name)) for a in axes]


# ---------------------------------------------------------------- names


def _bound(found: Reduction) -> list[str]:
    """The axes and values that are bound in a nest."""
    names: list[str] = []
    for stmt in statements((found.top,)):
        match stmt:
            case ir.Assign():
                names.append(stmt.name)
            case ir.Loop():
                names += [stmt.axis, *(n for c in stmt.carries for n in (c.name, c.out))]
            case ir.Store():
                pass
            case _:
                assert_never(stmt)
    return names
