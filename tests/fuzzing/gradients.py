"""try_gradient(program, seeds) -> Outcome: a random kernel's derivative against its meaning.

Along a random direction of every argument, the derivative is compared with the difference of the
meaning at two near points in float64.  Derived kernels run in the NumPy reference, in blocks that
are not those of the forward kernel.
"""

from __future__ import annotations

import dataclasses
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.derivatives import derived, gradients
from tests.fuzzing.compose import compose
from tests.fuzzing.inputs import case
from tests.fuzzing.meaning import evaluate
from tests.fuzzing.program import Load, Program, Store, parts
from tests.fuzzing.text import source
from tests.fuzzing.trial import OK, Outcome, failure, loaded
from tests.numerics import as_dtype
from tilelang.errors import GradientError
from tilelang.language.dtypes import is_float
from tilelang.transforms import Derivative

STEP = 1e-3  # the meaning rounds casts to float32
TOLERANCE = 3e-3
BLOCKS = (3, 16)


def wide(node: Any) -> Any:
    """The program in float32 throughout: rounded results have no differences to compare with."""
    if isinstance(node, tuple):
        return tuple(map(wide, node))
    if dataclasses.is_dataclass(node) and not isinstance(node, type):
        own = {f.name: wide(getattr(node, f.name)) for f in dataclasses.fields(node) if f.init}
        return dataclasses.replace(node, **own)
    return "float32" if node == "bfloat16" else node


def try_gradient(program: Program, seeds: Sequence[int]) -> Outcome:
    """The first thing that is wrong; "refused" where the derivation says no."""
    try:
        with loaded(program) as kernel:
            first = case(program, seeds[0])
            ir, made = derived(kernel, list(first.arguments.values()))
            names = {p.name: p.tensor for p in ir.params if p.tensor}
            for seed in seeds:
                found = _compared(program, made, names, seed)
                if found:
                    return Outcome("wrong", found, seed)
    except GradientError as no:
        return Outcome("refused", no.what.partition("cannot be derived: ")[2])
    except Exception as error:  # whatever is raised is what is being looked for
        return failure(error)
    return OK


def _compared(program: Program, made: Derivative, names: Mapping[str, str], seed: int) -> str:
    """What is wrong with the gradients on the arguments of a seed; "" if nothing is."""
    given = case(program, seed)
    if given.illegal or given.depends:
        return ""
    arrays = {names[n]: a for n, a in given.arguments.items() if n in names}
    clean = {n: _finite(np.asarray(a, np.float64)) for n, a in given.arguments.items()}
    rng = np.random.default_rng(seed)
    outputs = {t.name for t in program.outputs}
    rereads = any(
        (isinstance(p, Load) and p.tensor in outputs) or (isinstance(p, Store) and p.combine)
        for p in parts(program.body)
    )
    dead = 0.0 if rereads else np.nan  # what was read from memory that nobody wrote is stored, too
    cotangents = [_cotangent(given.results[t.name], t.dtype, rng, dead) for t in program.results]
    found = {b: gradients(made, arrays, cotangents, b) for b in BLOCKS}
    for name, tensor in names.items():
        if arrays[tensor].dtype.kind not in "fV":
            continue
        direction = rng.standard_normal(clean[name].shape)
        numeric, unsure = _difference(program, clean, name, direction, cotangents)
        for block, all_ in found.items():
            own = np.float64(all_.get(tensor, np.zeros(clean[name].shape)))
            exact = float((own * direction).sum())
            allowed = unsure + TOLERANCE * (1 + np.linalg.norm(own))
            if np.isfinite(numeric) and not abs(exact - numeric) <= allowed:
                numbers = f"{exact:.6g}, numeric {numeric:.6g} to {unsure:.1g}"
                return f"d_{name}: {numbers}, block {block}; {given.layout}"
    return ""


def _finite(array: np.ndarray) -> np.ndarray:
    return np.nan_to_num(array, posinf=0, neginf=0)


def _cotangent(result: np.ndarray, dtype: str, rng: np.random.Generator, dead: float) -> np.ndarray:
    """Random numbers; `dead`, where the result is not specified, must not be seen."""
    drawn = rng.standard_normal(result.shape)
    drawn = np.where(np.isnan(result), dead, drawn)
    return (
        as_dtype(drawn.astype(np.float32), dtype)
        if is_float(dtype)
        else np.zeros(result.shape, dtype)
    )


def _difference(
    program: Program,
    clean: Mapping[str, np.ndarray],
    name: str,
    direction: np.ndarray,
    cotangents: Sequence[np.ndarray],
) -> tuple[float, float]:
    """The derivative along a direction, and how sure that is: what differs from side to side.

    A result of float32 has an error of its own, which a small step makes large.
    """
    size = 0.0

    def loss(step: float) -> float:
        nonlocal size
        moved = {**clean, name: clean[name] + step * direction}
        results = evaluate(program, moved).results
        pairs = zip(program.results, cotangents, strict=True)
        terms = [np.nan_to_num(results[t.name]) * np.nan_to_num(c) for t, c in pairs]
        size = max(size, *(float(np.abs(t).sum()) for t in terms))
        return float(sum(t.sum() for t in terms))

    below, here, above = loss(-STEP), loss(0.0), loss(STEP)
    left, right = (here - below) / STEP, (above - here) / STEP
    return (left + right) / 2, abs(left - right) + 1e-6 * size / STEP


def campaign(seeds: Sequence[int]) -> int:
    """Prints every failure and the counts; 1 if anything is wrong."""
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    start = time.perf_counter()
    for seed in seeds:
        program = wide(compose(seed).program)
        outcome = try_gradient(program, [1000 * seed, 1000 * seed + 1])
        counts[outcome.kind] += 1
        if outcome.kind == "refused":
            reasons[re.sub(r"\b[a-z]+_?\d+\b", "*", outcome.detail)] += 1
        elif outcome != OK:
            print(f"seed {seed}: {outcome.kind.upper()} {outcome.detail}\n\n{source(program)}\n")
    print(f"{len(seeds)} kernels: {dict(counts)}, {time.perf_counter() - start:.0f} s")
    print("\n".join(f"  {n:5} {why}" for why, n in reasons.most_common(12)))
    return int(any(kind not in ("ok", "refused") for kind in counts))
