"""Numbers: the scalars of a plan, for many steps at once.

offsets[g + 1] // 128    with g = [0, 1, 2] and offsets = [0, 300, 300, 500]    [2, 2, 3]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from tilelang.codegen.pallas.plan.axis import AxisPlan
from tilelang.codegen.pallas.plan.physical import PExpr, Rest, ScalarRead, Tiles
from tilelang.ir import Apply, At, Const, GridIndex, Load, TileScalar, Var

Number = np.ndarray | int
Numbers = Mapping[str, np.ndarray]

_MEANS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "floordiv": np.floor_divide,
        "mod": np.mod,
        "minimum": np.minimum,
        "maximum": np.maximum,
        "neg": np.negative,
        "where": np.where,
        "lt": np.less,
        "le": np.less_equal,
        "gt": np.greater,
        "ge": np.greater_equal,
        "eq": np.equal,
        "ne": np.not_equal,
        "logical_and": np.logical_and,
        "logical_or": np.logical_or,
        "logical_not": np.logical_not,
        "cast": lambda number: number,
    }
)


@dataclass(frozen=True)
class Places:
    """Where many steps are.

    axes     what is known of every loop
    arrays   integers that the kernel reads, as far as they have values
    indices  axis -> the number of its tile (or its index) in every step
    names    lines of ranges -> their values in every step
    """

    axes: Mapping[str, AxisPlan]
    arrays: Numbers
    indices: Mapping[str, Number] = field(default_factory=dict)
    names: Mapping[str, Number] = field(default_factory=dict)


def value(expr: PExpr, at: Places) -> Number | None:
    """What a scalar is in every step; None where data decides that has no values."""
    match expr:
        case Const():
            return int(expr.value)
        case GridIndex(axis):
            return _index(axis, at)
        case TileScalar(axis, what):
            return value(at.axes[axis].tile.scalar(what), at)
        case Var(name):
            return at.names.get(name)
        case Load(tensor, index):
            return _read(tensor, [e.expr if isinstance(e, At) else None for e in index], at)
        case ScalarRead(array, index):
            return _read(array, index, at)
        case Tiles(position, block):
            found = value(position, at)
            return None if found is None else found // block
        case Rest(position, block):
            found = value(position, at)
            return None if found is None else found % block
        case Apply(op, args):
            return _applied(op, args, at)
        case _:
            return None


def _index(axis: str, at: Places) -> Number | None:
    found = at.indices.get(axis)
    if found is not None or axis not in at.axes:
        return found
    return at.axes[axis].first if at.axes[axis].place == "single" else None


def _applied(op: str, args: tuple[PExpr, ...], at: Places) -> Number | None:
    means = _MEANS.get(op)
    found = [value(a, at) for a in args]
    return None if means is None or any(f is None for f in found) else means(*found)


def _read(array: str, index: Any, at: Places) -> Number | None:
    data = at.arrays.get(array)
    if data is None or data.ndim != len(index):
        return None
    found = [f for e in index if e is not None and (f := value(e, at)) is not None]
    if len(found) < len(index):
        return None
    kept = (np.clip(f, 0, size - 1) for f, size in zip(found, data.shape, strict=True))
    return data[tuple(kept)]
