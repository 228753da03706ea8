"""How wrong a result may be.

The error of a kernel against float64 is at most twice the error that XLA makes in the same
computation with the same dtypes, plus a floor.  An error is the largest absolute difference.  The
floor is for data for which XLA happens to be exact; it is a fraction of the largest exact value:
half a unit in its last place for 16-bit floats, and eight units for float32, where the order of a
sum decides.  Integers are exact.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

FACTOR = 2.0
FLOORS = {"float32": 2.0**-20, "bfloat16": 2.0**-8, "float16": 2.0**-11, "int32": 0.0}


def error(result: np.ndarray, exact: np.ndarray) -> float:
    """The largest absolute difference; infinite if a result is not a number."""
    assert result.shape == exact.shape, f"shape {result.shape}, expected {exact.shape}"
    if not exact.size:
        return 0.0
    difference = np.abs(result.astype(np.float64) - exact).max()
    return float(difference) if np.isfinite(difference) else float("inf")


def allowed(baseline: np.ndarray, exact: np.ndarray, dtype: str) -> float:
    """How large the error may be, given what XLA computed."""
    return FACTOR * error(baseline, exact) + FLOORS[dtype] * float(np.abs(exact).max(initial=0))


def as_dtype(array: np.ndarray, dtype: str) -> np.ndarray:
    """Floats in a dtype, also one that is not NumPy's own; integers are small numbers.

    Arrays of integers are indices, and stay what they are.
    """
    if array.dtype.kind in "iub":
        return array
    if dtype == "int32":
        return np.rint(array * 100).astype(np.int32)
    return array.astype(getattr(ml_dtypes, dtype, dtype))
