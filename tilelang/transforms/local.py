"""local(ir, split) -> the kernel that each device runs when factors are split into so many parts.

Numbers that the author's host code computed from sizes stay those of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from .. import ir
from ..ir import definitions as assigned
from ..ir import exprs_of, inlined, map_body
from ..ir.integers import INT
from ..ir.traversal import loads, map_range
from .multiples import uncast
from .partition import FOLDS, Factor
from .positions import limits, of_whole


def local(kernel: ir.KernelIR, split: Mapping[Factor, int]) -> ir.KernelIR:
    """What each device runs when each of these factors is split into so many parts."""
    parts = {place: n for factor, n in split.items() for place in factor.dims}
    edges = {place: n for factor, n in split.items() for place in factor.edges}
    axes = {axis: factor.size // n for factor, n in split.items() for axis in factor.axes}
    sums = {t: d for factor in split if factor.kind in FOLDS for t, d in factor.added}

    def shape(tensor: ir.Tensor) -> tuple[int, ...]:
        places = [((tensor.name, dim), size) for dim, size in enumerate(tensor.shape)]
        return tuple(
            (size - 1) // edges[place] + 1 if place in edges else size // parts.get(place, 1)
            for place, size in places
        )

    values, given = assigned(kernel.body), more(kernel, split)
    firsts = {axis: _number(name) for name, f in given.firsts.items() for axis in f.axes}
    visit, numbered = of_whole(firsts, {of: twin for twin, of in given.wholes.items()})

    def partial_sums(stmt: ir.Stmt) -> ir.Body:
        if isinstance(stmt, ir.Store) and stmt.tensor in sums and stmt.combine is None:
            stmt = replace(stmt, value=uncast(inlined(stmt.value, values)))
        return (numbered(stmt),)

    def ranged(axis: ir.Axis) -> ir.Axis:
        """The axis on one device: of a ragged range what it has of it."""
        if axis.name not in axes:
            return map_range(axis, visit)
        shorter, own = _shorter(axis, axes[axis.name]), axes[axis.name]
        if axis.static is not None:
            return shorter
        factor = next(f for f in split if axis.name in f.axes)
        begin, end = (inlined(bound, values) for bound in (axis.begin, axis.end))
        part = _OwnRange(factor, firsts.get(axis.name), visit)
        low, high = part.limit(begin, "maximum", 0), part.limit(end, "minimum", own)
        return replace(shorter, begin=low, end=high)

    def part(tensor: ir.Tensor) -> ir.Tensor:
        own, view = shape(tensor), tensor.view
        if view is not None and view.how == "reshape":
            view = replace(view, arg=own)
        return replace(tensor, shape=own, dtype=sums.get(tensor.name, tensor.dtype), view=view)

    return replace(
        kernel,
        params=(*kernel.params, *(ir.Param(name, name) for name in given.names)),
        tensors=(
            *map(part, kernel.tensors),
            *(replace(kernel.tensor(of), name=twin, shape=shape(kernel.tensor(of)))
              for twin, of in given.wholes.items()),
            *(ir.Tensor(name, (1,), "int32", "input", kernel.loc) for name in given.firsts),
        ),
        axes=tuple(map(ranged, kernel.axes)),
        body=tuple(s for s in map_body(kernel.body, partial_sums) if isinstance(s, ir.Loop)),
    )  # fmt: skip


@dataclass(frozen=True)
class More:
    """Arguments that the kernel of one device has more, by name.

    wholes  of which tensor each is: offsets as numbers, which are not clipped
    firsts  of which factor each says where the device's part begins
    """

    wholes: Mapping[str, str]
    firsts: Mapping[str, Factor]

    @property
    def names(self) -> tuple[str, ...]:
        """All of them, in order."""
        return (*self.wholes, *self.firsts)


def more(kernel: ir.KernelIR, split: Collection[Factor]) -> More:
    """What the kernel of one device is given besides its shards."""
    clipped = {name for factor in split for name in factor.clipped}
    read = {load.tensor for e in _numbers(kernel, split) for load in loads(e)}
    return More(
        {f"{name}_of_all": name for name in sorted(clipped & read)},
        {f"first_of_{min(f.axes)}": f for f in split if f.counted},
    )


def _numbers(kernel: ir.KernelIR, split: Collection[Factor]) -> Iterator[ir.Expr]:
    """Everything but the offsets that the ranges of devices are clipped to."""
    values = assigned(kernel.body)
    clipped = {axis: factor.clipped for factor in split for axis in factor.axes}
    yield from exprs_of(kernel.body, (axis for axis in kernel.axes if axis.name not in clipped))
    for axis in (axis for axis in kernel.axes if axis.name in clipped):
        for bound in (axis.begin, axis.end):
            for limit in limits(inlined(bound, values)):
                if not isinstance(limit, ir.Load) or limit.tensor not in clipped[axis.name]:
                    yield limit


def _number(name: str) -> ir.Load:
    return ir.Load(name, (ir.At(ir.Const(0, INT)),), INT)


@dataclass(frozen=True)
class _OwnRange:
    """Bounds of a ragged axis, in positions of one device.

    first  where its part begins, if a bound is computed; `visit` makes numbers those of the whole
    """

    factor: Factor
    first: ir.Expr | None
    visit: Callable[[ir.Expr], ir.Expr]

    def limit(self, bound: ir.Expr, op: str, most: int) -> ir.Expr:
        """The bound, which is 0 or more, or the device's size or less; offsets are clipped before.

        Minima and maxima stay outside: it is by them that ranges are known.
        """
        match bound:
            case ir.Apply("minimum" | "maximum", (a, b)):
                return replace(bound, args=(self.limit(a, op, most), self.limit(b, op, most)))
            case ir.Load(tensor) if tensor in self.factor.clipped:
                return replace(self.visit(bound), tensor=tensor)
            case _:
                assert self.first is not None, "a computed bound counts from the first position"
                own = ir.Apply("sub", (self.visit(bound), self.first), INT)
                return ir.Apply(op, (own, ir.Const(most, INT)), INT)


def _shorter(axis: ir.Axis, size: int) -> ir.Axis:
    most = None if axis.max_extent is None else min(axis.max_extent, size)
    if axis.static is None:
        return replace(axis, max_extent=most)
    return replace(axis, end=ir.Const(size, INT), max_extent=most)
