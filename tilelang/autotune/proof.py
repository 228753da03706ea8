"""wrong(expected, found, ...) -> str: how results differ from those of the default config.

Other blocks add up in another order, so that numbers differ by what the narrowest dtype in the
kernel rounds off.  Where the default stores nothing its results are poison (NaN), and there nothing
is asked of results that the kernel leaves open; everywhere else a NaN is one in both or a mistake.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir import KernelIR

# What sums of a few thousand terms lose: relative to the number, and to the array's own size.
ROUNDED = {"float32": 1e-4, "float16": 5e-3, "bfloat16": 3e-2}
COARSE = 0.25  # float8


def inexact(ir: KernelIR) -> float:
    """The relative difference that is no mistake: of the narrowest numbers that the kernel has."""
    floats = {t.dtype for t in ir.tensors if "float" in t.dtype}
    return max((ROUNDED.get(dtype, COARSE) for dtype in floats), default=0.0)


def left_open(ir: KernelIR) -> tuple[bool, ...]:
    """For each result, whether the kernel says nothing of elements that it does not store."""
    mutated = [t for t in ir.tensors if t.mutated]
    results = [*map(ir.tensor, ir.returns), *mutated]
    return tuple(t.role == "output" and t.fill is None for t in results)


def wrong(
    expected: Sequence[np.ndarray],
    found: Sequence[np.ndarray],
    open_results: Sequence[bool],
    tolerance: float,
) -> str:
    """The first difference, in words; "" if there is none."""
    if len(expected) != len(found) or len(expected) != len(open_results):
        return f"{len(found)} results instead of {len(expected)}"
    for number, (a, b, is_open) in enumerate(zip(expected, found, open_results, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {number} is {b.dtype}{list(b.shape)}, not {a.dtype}{list(a.shape)}"
        bad = _differing(a, b, is_open, tolerance)
        if bad.any():
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            return (
                f"result {number} differs from the default's in {int(bad.sum())} of {a.size} "
                f"elements; at {list(at)} it is {b[at]} and not {a[at]}"
            )
    return ""


def _differing(a: np.ndarray, b: np.ndarray, is_open: bool, tolerance: float) -> np.ndarray:
    if a.dtype.kind in "iub":
        return np.asarray(a != b)
    want, have = a.astype(np.float64), b.astype(np.float64)
    nan = np.isnan(want)
    finite = want[np.isfinite(want)]
    size = float(np.sqrt(np.mean(finite**2))) if finite.size else 0.0
    with np.errstate(invalid="ignore"):
        close = np.abs(want - have) <= tolerance * (np.abs(want) + size)
    same = close | (want == have) | (nan & (np.isnan(have) | is_open))
    return np.asarray(~same)
