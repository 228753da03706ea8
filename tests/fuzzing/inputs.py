"""arguments(program, seed) -> Case: what to call a random kernel with, and what must come out.

Everything that the kernel's meaning does not read is NaN or Inf, or the largest integer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tests.fuzzing.meaning import evaluate
from tests.fuzzing.program import Program, Tensor
from tests.numerics import as_dtype
from tests.ragged import STRATA, Space

BLOCK = 16  # whose edges offsets are drawn at


@dataclass(frozen=True)
class Case:
    """Arguments by name, results in float64 (NaN: unspecified), and what the offsets are like."""

    arguments: Mapping[str, np.ndarray]
    results: Mapping[str, np.ndarray]
    layout: str


def case(program: Program, seed: int) -> Case:
    """Random arguments; every tensor of offsets is of a stratum of its own."""
    rng = np.random.default_rng(seed)
    drawn = {t.name: _drawn(t, rng) for t in program.arguments}
    arguments = {name: array for name, (array, _) in drawn.items()}
    found = evaluate(program, arguments)
    hidden = {
        t.name: _hidden(arguments[t.name], found.read[t.name]) if t.role == "input" else None
        for t in program.arguments
    }
    given = {n: arguments[n] if array is None else array for n, array in hidden.items()}
    layout = "; ".join(f"{name}: {text}" for name, (_, text) in drawn.items() if text)
    return Case(given, found.results, layout or "no offsets")


def _drawn(tensor: Tensor, rng: np.random.Generator) -> tuple[np.ndarray, str]:
    """Values, and in words which offsets they are."""
    if tensor.role == "offsets":
        stratum = str(rng.choice(list(STRATA)))
        space = Space(tensor.limit, tensor.shape[0] - 1, BLOCK)
        offsets = STRATA[stratum](rng, space)
        return offsets, f"{stratum} {offsets.tolist()}"
    if tensor.role == "index":
        return rng.integers(0, tensor.limit, tensor.shape).astype(np.int32), ""
    if tensor.dtype == "int32":
        return rng.integers(-3, 4, tensor.shape).astype(np.int32), ""
    return as_dtype(rng.standard_normal(tensor.shape, np.float32), tensor.dtype), ""


def _hidden(array: np.ndarray, read: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "i":
        return np.where(read, array, np.iinfo(array.dtype).max).astype(array.dtype)
    bad = np.resize([np.nan, np.inf, -np.inf, np.nan], array.shape)
    return np.where(read, array, bad.astype(array.dtype))
