"""Offsets: integers that stand for those that a call will bring.

Ranges are from half to one and a half of the mean, and begin anywhere in a tile:

    offsets of 4 groups over 100 rows    [0, 13, 43, 69, 100]

Uneven ones are as those between random cuts: a twentieth is longer than three times the mean.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilelang.ir import Axis, Expr, KernelIR, Load
from tilelang.ir.traversal import walk
from tilelang.schedule.problem import Problem

GOLDEN = 0.6180339887  # its multiples fill [0, 1) evenly, whatever their number


def typical(problem: Problem, uneven: bool = False) -> dict[str, np.ndarray]:
    """Values for the integers that bound loops: offsets where they are sorted, else lengths."""
    found: dict[str, np.ndarray] = {}
    ir, ordered = problem.ir, problem.facts.sorted
    for axis in ir.axes:
        for name in _read(axis.begin, axis.end):
            tensor = ir.tensor(name)
            if name in found or len(tensor.shape) != 1 or tensor.shape[0] == 0:
                continue
            total = extent(problem, axis)
            if tensor.view is not None and tensor.view.how == "spans":
                found[name] = spans(extent(problem, axis), *tensor.view.arg, uneven=uneven)
            elif name in ordered and tensor.shape[0] > 1:
                rows = _rows(problem, axis, name) or total
                found[name] = spread(rows, tensor.shape[0] - 1, uneven)
            elif _bounds_alone(ir, name):
                found[name] = lengths(total, tensor.shape[0])
    return found


def _rows(problem: Problem, axis: Axis, name: str) -> int | None:
    """How many rows there are for all ranges, where tiles that count from 0 lie at offsets."""
    if name in _read(axis.begin):
        return None
    uses = problem.all_uses(axis.name)
    return max((u.size for u in uses if u.offset and name in _read(u.offset)), default=None)


def extent(problem: Problem, axis: Axis) -> int:
    """How long a range can be."""
    return problem.extent(axis.name) if axis.kind == "tile" else (axis.max_extent or 1)


def spans(total: int, block: int, groups: int, uneven: bool = False) -> np.ndarray:
    """Where blocks of so many of those ranges begin, then where they end."""
    offsets = spread(total, groups, uneven)
    first = offsets[:-1:block]
    return np.concatenate([first, first[1:], offsets[-1:]])


def spread(total: int, groups: int, uneven: bool = False) -> np.ndarray:
    """Offsets of `groups` ranges that cover `total` rows."""
    even = np.arange(groups) * GOLDEN % 1.0
    shares = np.cumsum(-np.log1p(-even) if uneven else 0.5 + even)
    ends = np.floor(shares / shares[-1] * total).astype(np.int64)
    return np.concatenate([np.zeros(1, np.int64), ends])


def lengths(most: int, count: int) -> np.ndarray:
    """Lengths that are three quarters of the longest on average."""
    shares = 0.5 + np.arange(count) * GOLDEN % 1.0 / 2
    return np.ceil(shares * most).astype(np.int64)


def _bounds_alone(ir: KernelIR, name: str) -> bool:
    """Whether a loop ends at what is read, and begins at a number."""
    return any(isinstance(a.end, Load) and a.end.tensor == name for a in ir.axes)


def _read(*exprs: Expr) -> Iterator[str]:
    for expr in exprs:
        yield from (e.tensor for e in walk(expr) if isinstance(e, Load))
