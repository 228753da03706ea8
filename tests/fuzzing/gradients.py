"""try_gradient(program, seeds) -> Outcome: a random kernel's derivative against its meaning.

Along a random direction of every argument, the derivative is compared with the difference of the
meaning at two near points in float64.  Derived kernels run in the NumPy reference, in blocks that
are not those of the forward kernel.
"""

from __future__ import annotations

import functools
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import ml_dtypes
import numpy as np

import tilelang as tile
from tests.derivatives import derived, launched
from tests.fuzzing.compose import VIEWED, compose, means_something
from tests.fuzzing.elsewhere import broken, gradients_elsewhere
from tests.fuzzing.inputs import Case, case
from tests.fuzzing.meaning import evaluate
from tests.fuzzing.program import Load, Native, Program, Reduce, Store, Tensor, parts
from tests.fuzzing.text import source
from tests.fuzzing.trained import trained
from tests.fuzzing.trial import OK, Outcome, failure, loaded
from tests.fuzzing.views import viewed
from tests.numerics import as_dtype
from tests.partitions import divided
from tilelang.errors import GradientError
from tilelang.ir import KernelIR
from tilelang.language.dtypes import is_float
from tilelang.transforms import Derivative

STEP = 1e-3  # the meaning rounds casts to float32
TOLERANCE = 3e-3
DEVIATIONS = 3  # of what is rounded by up to half a unit, each within it
BLOCKS = (3, 16)
COLUMNS = 0.3  # of the inputs that may
IGNORED = Counter[str]()


def wide(program: Program) -> Program:
    """The program in float32: rounded results have no differences to compare with.

    Inputs that are only loaded keep their dtypes: they are cast as they come, and so are their
    gradients at the end.
    """
    met = [p for p in parts(program.body) if isinstance(p, Native)]
    met += [p.value for p in parts(program.body) if isinstance(p, Reduce) and p.native]
    rounded = {p.tensor for p in parts(tuple(met)) if isinstance(p, Load)}
    tensors = (
        t if t.role == "input" and t.name not in rounded else _widened(t) for t in program.tensors
    )
    return replace(program, tensors=tuple(tensors))


def _widened(tensor: Tensor) -> Tensor:
    return replace(tensor, dtype="float32") if "float" in tensor.dtype else tensor


def given_as_columns(program: Program, rng: random.Random) -> Program:
    """Some inputs come with their last two dimensions as one: the kernel sees heads in columns."""
    able = [t.name for t in program.tensors if t.role == "input" and len(t.shape) > 1]
    able = [name for name in able if rng.random() < COLUMNS]
    tensors = tuple(replace(t, heads=t.name in able) for t in program.tensors)
    return replace(program, tensors=tensors)


@dataclass(frozen=True)
class _Pulled:
    """One call, random cotangents of its results, and by block the gradient of every argument.

    calls  the kernels that made them, with their arguments
    """

    seed: int
    given: Case
    cotangents: Sequence[np.ndarray]
    found: Mapping[int, Mapping[str, np.ndarray]]
    calls: Sequence[tuple[KernelIR, Mapping[str, np.ndarray]]]


def try_gradient(program: Program, seeds: Sequence[int], ways: Counter[str] = IGNORED) -> Outcome:
    """The first thing that is wrong; "refused" where the derivation says no.

    `ways` counts what came of the same gradients from JAX, in a bucket and on a mesh.
    """
    try:
        with loaded(program) as kernel:
            first = case(program, seeds[0])
            ir, made = derived(kernel, list(first.arguments.values()))
            names = {p.name: p.tensor for p in ir.params if p.tensor}
            every = (made.forward, *(launch.kernel for launch in made.launches))
            rule = next(filter(None, map(broken, every)), "")
            if rule:
                return Outcome("wrong", rule)
            for seed in seeds:
                pulled = _pulled(program, made, names, seed)
                if pulled is None:
                    continue
                found = _compared(program, pulled) or _in_parts(pulled)
                found = found or _elsewhere(program, kernel, pulled, ways)
                if found:
                    return Outcome("wrong", f"{found}; {pulled.given.layout}", seed)
    except GradientError as no:
        return Outcome("refused", no.what.partition("cannot be derived: ")[2] or no.what)
    except Exception as error:  # whatever is raised is what is being looked for
        return failure(error)
    return OK


def _pulled(
    program: Program, made: Derivative, names: Mapping[str, str], seed: int
) -> _Pulled | None:
    """The gradients on the arguments of a seed; None where calls with them are refused."""
    given = case(program, seed)
    if given.illegal or given.depends:
        return None
    arrays = {names[n]: a for n, a in given.arguments.items() if n in names}
    rng = np.random.default_rng(seed)
    outputs = {t.name for t in program.outputs}
    rereads = any(
        (isinstance(p, Load) and p.tensor in outputs) or (isinstance(p, Store) and p.combine)
        for p in parts(program.body)
    )
    dead = 0.0 if rereads else np.nan  # what was read from memory that nobody wrote is stored, too
    cotangents = [_cotangent(given.results[t.name], t.dtype, rng, dead) for t in program.results]
    floats = {n: t for n, t in names.items() if arrays[t].dtype.kind in "fV"}
    found = dict[int, Mapping[str, Any]]()
    for block in BLOCKS:
        known, calls = launched(made, arrays, cotangents, block)
        every = {argument: known[name] for argument, name in made.gradients}
        found[block] = {
            n: np.float64(every.get(t, np.zeros(arrays[t].shape))) for n, t in floats.items()
        }
    return _Pulled(seed, given, cotangents, found, calls)


def _compared(program: Program, pulled: _Pulled) -> str:
    """What is wrong with the gradients by the differences of the meaning; "" if nothing is."""
    clean = {n: _finite(np.asarray(a, np.float64)) for n, a in pulled.given.arguments.items()}
    rng = np.random.default_rng([pulled.seed, 7])
    for name in pulled.found[BLOCKS[0]]:
        direction = rng.standard_normal(clean[name].shape)
        dtype = pulled.given.arguments[name].dtype
        numeric = functools.cache(
            functools.partial(_difference, program, clean, name, direction, pulled.cotangents)
        )
        for block, every in pulled.found.items():
            found = _unlike(every[name], dtype, direction, numeric)
            if found:
                return f"d_{name}: {found}, block {block}"
    return ""


def _unlike(
    gradient: np.ndarray,
    dtype: np.dtype,
    direction: np.ndarray,
    numeric: Callable[[float], tuple[float, float]],
) -> str:
    """How a gradient that was rounded to `dtype` is not the difference; "" if it is.

    Every element may be half a unit in its last place off: along a random direction their sum is
    that of independent errors, of which DEVIATIONS are allowed.

    Positions that jump on both sides of a step look like a slope, and like another one of half of
    it: where the gradient seems wrong, the difference is no surer than these two are near.
    """
    exact = float((gradient * direction).sum())
    found, unsure = numeric(STEP)
    kind = ml_dtypes.finfo(dtype)
    half = (float(kind.eps) * np.abs(gradient) + float(kind.smallest_subnormal)) / 2
    allowed = unsure + TOLERANCE * (1 + np.linalg.norm(gradient))
    allowed += DEVIATIONS * float(np.linalg.norm(half))
    if not np.isfinite(found) or abs(exact - found) <= allowed:
        return ""
    nearer, kink = numeric(STEP / 2)
    if abs(exact - found) <= allowed + 2 * abs(nearer - found) + max(kink - unsure, 0):
        return ""
    return f"{exact:.6g}, numeric {found:.6g} to {unsure:.1g}"


def _in_parts(pulled: _Pulled) -> str:
    """Where a kernel of the backward is not the sum of its parts; "" if all are."""
    return next((wrong for call in pulled.calls for wrong in divided(*call)), "")


def _elsewhere(program: Program, kernel: tile.Kernel, pulled: _Pulled, ways: Counter[str]) -> str:
    """What is wrong with the gradients that JAX gives; "" if nothing is."""
    outcomes = gradients_elsewhere(
        program, kernel, pulled.given, pulled.cotangents, pulled.found[BLOCKS[-1]], pulled.seed
    )
    ways.update(f"{way} {outcome.kind}" for way, outcome in outcomes.items())
    bad = (f"{way}: {o}" for way, o in outcomes.items() if o.kind not in ("ok", "refused"))
    return next(bad, "")


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
    length: float,
) -> tuple[float, float]:
    """The derivative along a direction, and how sure that is: what differs from side to side.

    In each result: where several elements are equal, a maximum has another slope on either side,
    and in a sum of cotangents of both signs these cancel out.  A result of float32 has an error of
    its own, which a small step makes large: that of STEP is allowed.
    """
    size, detached = 0.0, list[np.ndarray]()

    def loss(step: float) -> np.ndarray:
        nonlocal size
        moved = {**clean, name: clean[name] + step * direction}
        held = iter(detached)  # as they were: in the order in which they are asked for
        results = evaluate(program, moved, detached=lambda _: next(held)).results
        pairs = zip(program.results, cotangents, strict=True)
        terms = [np.nan_to_num(results[t.name]) * np.nan_to_num(c) for t, c in pairs]
        every = np.concatenate([t.ravel() for t in terms])
        size = max(size, float(np.abs(every).sum()))
        return every

    def remembered(array: np.ndarray) -> np.ndarray:
        detached.append(array)
        return array

    evaluate(program, clean, detached=remembered)
    below, here, above = loss(-length), loss(0.0), loss(length)
    left, right = (here - below) / length, (above - here) / length
    return float((left + right).sum()) / 2, float(np.abs(left - right).sum()) + 1e-6 * size / STEP


def drawn(seed: int) -> tuple[Program, tuple[str, ...]]:
    """The program of a seed that is differentiated, and what of training code it was given."""
    program = wide(compose(seed).program)
    made, names = trained(program, random.Random(f"trained {seed}"))
    program, names = (made, names) if names and means_something(made) else (program, ())
    rng = random.Random(f"viewed {seed} in training")
    seen = viewed(program, rng) if not program.views and rng.random() < VIEWED else None
    if seen and means_something(seen):
        program, names = seen, (*names, "viewed")
    heads = given_as_columns(program, random.Random(f"columns {seed}"))
    names = (*names, *(["columns"] if heads != program else []))
    narrow = any(t.dtype in ("bfloat16", "float16") for t in program.arguments)
    return heads, (*names, *(["narrow"] if narrow else []))


def campaign(seeds: Sequence[int]) -> int:
    """Prints every failure and the counts; 1 if anything is wrong."""
    counts: Counter[str] = Counter()
    added: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    ways: Counter[str] = Counter()
    start = time.perf_counter()
    for number, seed in enumerate(seeds):
        if number and number % 50 == 0:
            so_far = f"{number} kernels: {dict(counts)}"
            print(f"{so_far}, {time.perf_counter() - start:.0f} s", flush=True)
        program, names = drawn(seed)
        added.update(names)
        outcome = try_gradient(program, [1000 * seed, 1000 * seed + 1], ways)
        counts[outcome.kind] += 1
        if outcome.kind == "refused":
            reasons[re.sub(r"\b[a-z]+_?\d+\b", "*", outcome.detail)] += 1
        elif outcome != OK:
            wrong = f"seed {seed}: {outcome.kind.upper()} {outcome.detail}"
            print(f"{wrong}\n\n{source(program)}\n", flush=True)
        jax.clear_caches()
    print(f"{len(seeds)} kernels: {dict(counts)}, {time.perf_counter() - start:.0f} s")
    print(f"calls differentiated by JAX: {dict(ways)}")
    print(f"of training code: {dict(added)}")
    print("\n".join(f"  {n:5} {why}" for why, n in reasons.most_common(12)))
    return int(any(kind not in ("ok", "refused") for kind in counts))
