"""arguments(program, seed) -> Case: what to call a random kernel with, and what must come out.

Everything that the kernel's meaning does not read is NaN or Inf, or the largest integer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from tests.fuzzing.meaning import evaluate
from tests.fuzzing.program import Program, Tensor
from tests.numerics import as_dtype
from tests.ragged import STRATA, Space, wrong_offsets

BLOCK = 16  # whose edges offsets are drawn at
BLOCKS = (3, 8)  # in which a program is evaluated besides that in one piece


@dataclass(frozen=True)
class Case:
    """Arguments by name, results in float64 (NaN: unspecified), and what the offsets are like.

    illegal  what is read or written outside of an array: the call must be refused; no results then
    depends  whether the results depend on the tiles: the call must be refused
    """

    arguments: Mapping[str, np.ndarray]
    results: Mapping[str, np.ndarray]
    layout: str
    illegal: str = ""
    depends: bool = False


def case(program: Program, seed: int, blocks: Sequence[int] = BLOCKS) -> Case:
    """Random arguments; every tensor of offsets is of a stratum of its own."""
    rng = np.random.default_rng(seed)
    drawn = {t.name: _drawn(t, rng) for t in program.arguments}
    drawn |= _apart(program, rng)
    arguments = {name: array for name, (array, _) in drawn.items()}
    layout = "; ".join(f"{name}: {text}" for name, (_, text) in drawn.items() if text)
    layout = layout or "no offsets"
    try:
        found = evaluate(program, arguments)
        others = [evaluate(program, arguments, block).results for block in blocks]
    except IndexError as error:
        return Case(arguments, {}, layout, str(error))
    hidden = {
        t.name: _hidden(arguments[t.name], found.read[t.name].reshape(t.given))
        if t.role == "input"
        else None
        for t in program.arguments
    }
    given = {n: arguments[n] if array is None else array for n, array in hidden.items()}
    depends = any(not _same(found.results[n], r) for other in others for n, r in other.items())
    return Case(given, found.results, layout, depends=depends)


def wild(program: Program, seed: int) -> tuple[Mapping[str, np.ndarray], str] | None:
    """Arguments with one tensor of offsets or indices that is wrong, and in words how."""
    rng = np.random.default_rng([seed, 1])
    whole = [t for t in program.arguments if t.role in ("offsets", "index")]
    own = [t for t in whole if t.dtype == "int32"]
    if not own:
        return None
    arguments = {t.name: _drawn(t, rng)[0] for t in program.arguments}
    arguments |= {name: array for name, (array, _) in _apart(program, rng).items()}
    tensor = own[int(rng.integers(len(own)))]
    if tensor.role == "offsets":
        space = Space(tensor.limit, tensor.shape[0] - 1, BLOCK)
        able = wrong_offsets(space) if space.groups > 1 else {}
        able = {"all past the end": arguments[tensor.name] + space.rows + 1, **able}
        name = str(rng.choice(list(able)))
        bad = able[name]
    else:
        name, bad = "one index", arguments[tensor.name].copy()
        bad[tuple(int(rng.integers(n)) for n in bad.shape)] = rng.choice(
            [-1, -9, tensor.limit, tensor.limit + 7, 2**31 - 1, -(2**31)]
        )
    arguments[tensor.name] = bad.astype(np.int32)
    return arguments, f"{tensor.name}: {name} {bad.tolist()}"


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    """Up to what rounding a sum in another order does."""
    return np.allclose(one, other, rtol=2.0**-6, atol=2.0**-6, equal_nan=True)


def _drawn(tensor: Tensor, rng: np.random.Generator) -> tuple[np.ndarray, str]:
    """Values, and in words which offsets or indices they are."""
    if tensor.role == "offsets":
        stratum = str(rng.choice(list(STRATA)))
        space = Space(tensor.limit, tensor.shape[0] - 1, BLOCK)
        offsets = STRATA[stratum](rng, space)
        return offsets, f"{stratum} {offsets.tolist()}"
    if tensor.role == "index":
        values = rng.integers(0, tensor.limit, tensor.shape).astype(tensor.dtype)
        return np.asarray(values), f"{values.tolist()}"
    if tensor.dtype == "bool":
        return rng.random(tensor.given) < 0.5, ""
    if tensor.whole or "int" in tensor.dtype:
        least = 0 if tensor.dtype == "uint8" else -3
        drawn = np.asarray(rng.integers(least, 4, tensor.given))
        return drawn.astype(getattr(ml_dtypes, tensor.dtype, tensor.dtype)), ""
    return as_dtype(rng.standard_normal(tensor.given, np.float32), tensor.dtype), ""


def _apart(program: Program, rng: np.random.Generator) -> dict[str, tuple[np.ndarray, str]]:
    """Begins and lengths of ranges: groups in any order, or ranges that may have rows in common.

    And orders of loops: most go through all positions, or some, and come to none twice.
    """
    found = {}
    for axis in (a for a in program.axes if a.order and program.turns(a) <= a.size):
        if rng.random() < 0.6:
            order = rng.permutation(axis.size)[: program.turns(axis)].astype(np.int32)
            found[axis.order] = order, f"{order.tolist()}"
    for begins, counts in sorted({(a.offsets, a.counts) for a in program.axes if a.counts}):
        tensor = program.tensor(begins)
        rows, groups = tensor.limit - 1, tensor.shape[0]
        first = rng.integers(0, rows + 1, groups)
        many = rng.integers(0, rows - first + 1)
        stratum = "any"
        if rng.random() < 0.6:
            stratum = str(rng.choice(list(STRATA)))
            offsets = STRATA[stratum](rng, Space(rows, groups, BLOCK))
            order = rng.permutation(groups)
            first, many = offsets[:-1][order], np.diff(offsets)[order]
        for name, array in ((begins, first), (counts, many)):
            found[name] = array.astype(np.int32), f"{stratum} {array.tolist()}"
    return found


def _hidden(array: np.ndarray, read: np.ndarray) -> np.ndarray:
    if array.dtype.kind == "b":
        return array | ~read
    if array.dtype.kind in "iu":
        return np.where(read, array, np.iinfo(array.dtype).max).astype(array.dtype)
    bad = np.resize([np.nan, np.inf, -np.inf, np.nan], array.shape)
    return np.where(read, array, bad.astype(array.dtype))
