"""over_whole(kernel, place): loops over a dimension of a tensor that is taken whole, by `:`.

    y[t, :] = dot(x[t, :], w[g, :, :])   ->   for k in tile(512) carrying acc = 0:
                                                  next acc = acc + dot(x[t, k], w[g, k, :])
                                              y[t, :] = acc

What brings its positions together is a loop over tiles of them, and what keeps them apart is, too.
So it can be split as any loop can.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..analysis import analyze
from ..analysis.facts import Facts
from ..ir import Apply, KernelIR, Span, every_access
from ..passes.drop_unused import used
from ..passes.static_lanes import Key, StaticLanes
from ..passes.tile_columns import tile_columns
from ..passes.tile_sums import tile_sums
from .partition import Factor, factors
from .stages import staged


def over_whole(kernel: KernelIR, place: tuple[str, int]) -> KernelIR:
    """The kernel with loops over a dimension of a tensor; as it is where it has no such form."""
    lanes = StaticLanes(kernel)
    along = {*lanes.along(*place)}
    if not along:
        return kernel

    def summed(expr: Apply) -> bool:
        return not along.isdisjoint(lanes.over(expr))

    def columns(_: KernelIR, lanes: StaticLanes) -> Iterable[Key]:
        return [key for key in lanes.along(*place) if key not in lanes.mixed]

    made = tile_sums(kernel, summed)
    made = made if made is kernel else used(made)
    return tile_columns(made, columns)[0]


def taken_whole(ir: KernelIR) -> list[tuple[str, int]]:
    """The dimensions of tensors that are taken by `:` somewhere."""
    every = every_access(ir.body, ir.axes)
    places = ((a.tensor, d) for a in every for d, e in enumerate(a.index) if isinstance(e, Span))
    return list(dict.fromkeys(places))


def splittable(ir: KernelIR, facts: Facts) -> tuple[Factor, ...]:
    """What a mesh may split: the kernel as it is, its stages, or loops over what is taken whole."""
    found = list(_splittable(ir, facts))
    for place in taken_whole(ir):
        made = None if any(place in f.dims for f in found) else looped(ir, place)
        found += [] if made is None else [f for f in _splittable(*made) if place in f.dims]
    return tuple(found)


def _splittable(ir: KernelIR, facts: Facts) -> Iterator[Factor]:
    return (f for f in factors(ir, facts) if f.kind or staged(ir, facts, [f]))


def looped(ir: KernelIR, place: tuple[str, int]) -> tuple[KernelIR, Facts] | None:
    """The kernel with loops over a dimension that it takes whole, where these may be split."""
    made = over_whole(ir, place)
    if made is ir:
        return None
    facts = analyze(made)
    may = any(place in factor.dims for factor in _splittable(made, facts))
    return (made, facts) if may else None
