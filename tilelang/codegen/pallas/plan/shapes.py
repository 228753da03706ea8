"""Shapes: what the text of a step would compute fits, or a plan is not printed.

Operands broadcast to the result as JAX's do, and scratch memory has the shape and the dtype of what
is kept in it.
"""

from __future__ import annotations

from typing import assert_never

from tilelang.ir import Apply, Type
from tilelang.language.op import ELEMENTWISE

from . import physical
from .physical import PExpr
from .types import Launch


def broadcasts(launch: Launch, expr: PExpr) -> bool:
    """Whether the operands of an elementwise operation broadcast to its result."""
    if not (isinstance(expr, Apply) and expr.op in ELEMENTWISE):
        return True
    result = _sizes(launch, expr.type)
    return all(_fits(_sizes(launch, arg.type), result) for arg in expr.args)


def holds(launch: Launch, keep: physical.Keep) -> bool:
    """Whether the scratch memory of a value has its shape, after the iteration that owns it."""
    held = next((s.shape for s in launch.scratch if s.name == keep.name), ())
    several = (keep.together,) if keep.together else ()
    own = held[len(keep.at) :] if keep.part is None else (keep.part.block, *held[1:])
    return (*several, *own) == _sizes(launch, keep.value.type)


def held_as(launch: Launch, kept: physical.Kept | physical.Keep) -> bool:
    """Whether the scratch memory of a value has its dtype."""
    kind = kept.type if isinstance(kept, physical.Kept) else kept.value.type
    return any(s.name == kept.name and s.dtype == kind.dtype for s in launch.scratch)


def shows(launch: Launch, read: physical.Read) -> bool:
    """Whether what is read of a block has the shape of its value."""
    found = next((w for w in launch.windows if w.ref == read.ref), None)
    if found is None or read.turned:
        return True
    pairs = zip(found.shown, read.select, strict=True)
    return tuple(n for p in pairs for n in _selected(launch, *p)) == _sizes(launch, read.type)


def _selected(launch: Launch, size: int, select: physical.Select) -> tuple[int, ...]:
    """How long the dimension is that is left of one of `size`; of one position none is."""
    match select:
        case physical.All():
            return (size,)
        case physical.Part(start, stop):
            return (stop - start,)
        case physical.Step(name, block):  # a tile near its range is no part that is counted
            axis = launch.axis(name) if name else None
            return (axis.size if axis is not None and axis.near is not None else block,)
        case physical.Row(_, together):
            return (together,) if together else ()
        case _:
            assert_never(select)


def _sizes(launch: Launch, kind: Type) -> tuple[int, ...]:
    return tuple(d if isinstance(d, int) else launch.axis(d).size for d in kind.shape)


def _fits(given: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """From the last dimension on, every one is that of the result, or 1."""
    pairs = zip(reversed(given), reversed(result), strict=False)
    return len(given) <= len(result) and all(a in (1, b) for a, b in pairs)
