"""Rows: tables of narrow types that are worth a copy of 32 bits, in which any row moves alone."""

from __future__ import annotations

import math

from tilelang.ir import Gather
from tilelang.language.dtypes import itemsize

from .choose import Arrays
from .types import Fetched, Window


def rows_alone(arrays: Arrays) -> frozenset[str]:
    """Tables of which more would be moved in register tiles than their copies take."""
    windows: dict[str, list[Window]] = {}
    for (tensor, _), window in arrays.windows.items():
        windows.setdefault(tensor, []).append(window)
    picks = _picks(arrays)
    whole = {t for t in windows if arrays.hosts[t].name == t}
    return frozenset(t for t in whole if all(_worth(w, picks.get(t, 0)) for w in windows[t]))


def _picks(arrays: Arrays) -> dict[str, int]:
    """How many rows of each tensor are picked, if every place is passed once."""
    found: dict[str, int] = {}
    for tensor, index in dict.fromkeys((t, i) for t, i, _ in arrays.places):
        for entry in index:
            if isinstance(entry, Gather):
                (lanes,) = entry.expr.type.shape
                if isinstance(lanes, str):
                    lanes = arrays.axes[lanes].limit * arrays.axes[lanes].size
                found[tensor] = found.get(tensor, 0) + lanes
    return found


def _worth(window: Window, picks: int) -> bool:
    dim = window.dims[-2]
    if window.output or not isinstance(dim, Fetched):
        return False
    wider, table = 4 // itemsize(window.dtype), math.prod(window.shape[:-1])
    return dim.rows > 1 and picks * (dim.rows - wider) > table * (1 + wider)
