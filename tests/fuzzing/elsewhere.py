"""try_bucket, try_symbols, try_mesh, try_passes: a random kernel for more rows, for any number of
them, on devices, and after passes.

`gradients` of such a call are those of the framework, for random cotangents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
from jax.sharding import AxisType, PartitionSpec

import tilelang as tile
from tests.derivatives import parsed
from tests.fuzzing.inputs import Case, case
from tests.fuzzing.program import Program
from tests.fuzzing.text import lengths_by_shapes
from tests.fuzzing.trial import OK, Outcome, difference, failure, loaded
from tests.partitions import divided
from tilelang.analysis import analyze
from tilelang.codegen.pallas.plan.normalised import normalised
from tilelang.codegen.pallas.target import Target
from tilelang.codegen.triton.plan.search import normalised as normalised_for_gpus
from tilelang.ir import KernelIR
from tilelang.ir.verify import BrokenIR, verify
from tilelang.runtime.buckets import ragged_rows
from tilelang.schedule.problem import Problem
from tilelang.transforms.partition import factors

Arrays = Mapping[str, Any]
Call = Callable[..., Any]
TPU = "tpu:v6e"
NEAR = 2e-4  # of the largest gradient, as between two orders of a sum


@dataclass(frozen=True)
class Way:
    """How a kernel is called: with a context around, and arguments that were placed."""

    call: Call
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    place: Callable[[Arrays], Arrays] = dict

    def results(self, arrays: Arrays) -> tuple[Any, ...]:
        with self.around():
            made = self.call(*self.place(arrays).values())
        return made if isinstance(made, tuple) else (made,)

    def gradients(self, arrays: Arrays, cotangents: Sequence[np.ndarray]) -> dict[str, Any]:
        """Of the sum of the results times these numbers, by every argument of floats."""
        with self.around():
            given = self.place(arrays)
            floats = {n: a for n, a in given.items() if jnp.issubdtype(a.dtype, jnp.floating)}

            def loss(floats: Arrays) -> Any:
                made = self.call(*{**given, **floats}.values())
                made = made if isinstance(made, tuple) else (made,)
                pairs = zip(made, cotangents, strict=True)
                return sum(((r * c).sum() for r, c in pairs), jnp.zeros(()))  # may be of no floats

            return {n: np.asarray(g) for n, g in jax.grad(loss)(floats).items()}


def bucket(program: Program, kernel: tile.Kernel) -> Way:
    """The kernel of `program`, which says lengths as a user does, with its rows padded."""
    return Way(tile.kernel(kernel.__wrapped__, rows="bucket"))


def symbols(program: Program, kernel: tile.Kernel, seed: int) -> Way:
    """A program of `jax.export` in which ragged rows are symbols, one for each length."""
    served = tile.kernel(kernel.__wrapped__, rows="bucket")
    given = case(program, seed).arguments
    ir, _ = parsed(kernel, list(given.values()))
    rows = ragged_rows(ir)
    moving = {(p.name, d) for p in ir.params if p.tensor for d in rows[p.tensor]}
    # JAX has no symbols for lengths that may be 0
    lengths = sorted({given[name].shape[dim] for name, dim in moving} - {0})
    if not lengths:
        raise tile.CallError("no length of it may be a symbol")
    text, bounds = ", ".join(f"r{n}" for n in lengths), [f"r{n} <= {n + seed % 9}" for n in lengths]
    symbol = dict(zip(lengths, jax.export.symbolic_shape(text, constraints=bounds), strict=True))
    specs = [
        jax.ShapeDtypeStruct(
            [symbol.get(n, n) if (name, d) in moving else n for d, n in enumerate(a.shape)],
            jnp.asarray(a).dtype,
        )
        for name, a in given.items()
    ]
    made = jax.export.export(jax.jit(lambda *a: served(*a)), platforms=["cpu"])(*specs)
    return Way(lambda *arrays: made.call(*map(jnp.asarray, arrays)))


def mesh(program: Program, kernel: tile.Kernel, seed: int) -> Way:
    """One dimension of an argument split over two devices or three, or over one if that is all."""
    name, dim, count = _split(program, kernel, seed)
    over = jax.make_mesh((count,), ("d",), axis_types=(AxisType.Explicit,))

    def place(arrays: Arrays) -> Arrays:
        specs = dict.fromkeys(arrays, PartitionSpec()) | {name: PartitionSpec(*[None] * dim, "d")}
        return {n: jax.device_put(a, specs[n]) for n, a in arrays.items()}

    return Way(jax.jit(kernel), lambda: jax.set_mesh(over), place)


def _split(program: Program, kernel: tile.Kernel, seed: int) -> tuple[str, int, int]:
    """A dimension of an argument that may be split, if there is one, else any; and in how many."""
    ir, facts = parsed(kernel, list(case(program, seed).arguments.values()))
    able = {place for f in factors(ir, facts) if f.kind for place in f.dims}
    counts = range(min(2, jax.device_count()), jax.device_count() + 1)
    every = [
        (param.name, dim, count, (param.tensor, dim) in able)
        for param in ir.params
        if param.tensor
        for dim, size in enumerate(ir.tensor(param.tensor).shape)
        for count in counts
        if 0 not in ir.tensor(param.tensor).shape  # JAX 0.10.2 cannot read shards of nothing back
        if not size % count
    ]
    every = [place for place in every if place[-1]] or every
    if not every:
        raise tile.CallError("nothing is as long as two devices or three can share")
    name, dim, count, _ = every[int(np.random.default_rng([seed, 5]).integers(len(every)))]
    return name, dim, count


# ---------------------------------------------------------------- kernels


def broken(ir: KernelIR) -> str:
    """Which rule of the IR the first pass that breaks one breaks; "" if none does."""
    problem = Problem(ir, analyze(ir))
    for passes in (normalised(problem, Target.of(TPU)), normalised_for_gpus(problem)):
        with suppress(tile.TileError):  # what a pass refuses
            for name, made in passes:
                try:
                    verify(made)
                except BrokenIR as error:
                    return f"{name}, {ir.name}: {error}"
    return ""


def try_passes(program: Program, seeds: Sequence[int]) -> Outcome:
    """Whether every pass of both back ends leaves a kernel that follows the rules."""
    with loaded(program) as kernel:
        try:
            found = broken(parsed(kernel, list(case(program, seeds[0]).arguments.values()))[0])
        except Exception as error:  # whatever is raised is what is being looked for
            return failure(error)
    return Outcome("wrong", found) if found else OK


def try_bucket(program: Program, seeds: Sequence[int]) -> Outcome:
    """Whether a program for more rows does what the kernel means; refused if it cannot be one."""
    with loaded(program, lengths_by_shapes(program)) as kernel:
        return _like_meaning(program, bucket(program, kernel), seeds)


def try_symbols(program: Program, seeds: Sequence[int]) -> Outcome:
    """Whether a program for any number of rows does so, too."""
    with loaded(program, lengths_by_shapes(program)) as kernel:
        try:
            way = symbols(program, kernel, seeds[0])
        except Exception as error:  # as above
            return failure(error)
        return _like_meaning(program, way, seeds)


def try_mesh(program: Program, seeds: Sequence[int]) -> Outcome:
    """Whether the parts of a kernel together are the kernel: in NumPy all, and some on devices."""
    if any(t.role == "changed" for t in program.tensors):
        return Outcome("same")
    with loaded(program) as kernel:
        try:
            found = _in_parts(program, kernel, seeds[0])
            way = mesh(program, kernel, seeds[0])
        except Exception as error:  # whatever is raised is what is being looked for
            return failure(error)
        return Outcome("wrong", found, seeds[0]) if found else _like_meaning(program, way, seeds)


def _in_parts(program: Program, kernel: tile.Kernel, seed: int) -> str:
    given = case(program, seed)
    if given.illegal or given.depends:
        return ""
    ir, _ = parsed(kernel, list(given.arguments.values()))
    names = {p.name: p.tensor for p in ir.params if p.tensor}
    return next(divided(ir, {names[n]: a for n, a in given.arguments.items()}), "")


def _like_meaning(program: Program, way: Way, seeds: Sequence[int]) -> Outcome:
    for seed in seeds:
        given = case(program, seed)
        if given.illegal or given.depends:
            continue
        try:
            made = way.results(given.arguments)
        except Exception as error:  # as above
            return failure(error)
        found = _unlike(program, given, made)
        if found:
            return Outcome("wrong", f"{found}; {given.layout}", seed)
    return OK


def _unlike(program: Program, given: Case, made: Sequence[Any]) -> str:
    for tensor, result in zip(program.results, made, strict=True):
        problem = difference(tensor, np.asarray(result), given.results[tensor.name])
        if problem:
            return f"{tensor.name}: {problem}"
    return ""


# ---------------------------------------------------------------- gradients


def gradients_elsewhere(
    program: Program,
    kernel: tile.Kernel,
    given: Case,
    cotangents: Sequence[np.ndarray],
    exact: Arrays,
    seed: int,
) -> Mapping[str, Outcome]:
    """What came of the gradients that JAX gives of the kernel, in a bucket and on a mesh."""
    with loaded(program, lengths_by_shapes(program)) as by_shapes:
        ways = {
            "alone": lambda: Way(kernel),
            "bucket": lambda: bucket(program, by_shapes),
            "mesh": lambda: mesh(program, kernel, seed),
        }
        return {name: _gradients(way, given, cotangents, exact) for name, way in ways.items()}


def _gradients(
    way: Callable[[], Way], given: Case, cotangents: Sequence[np.ndarray], exact: Arrays
) -> Outcome:
    try:
        own = way().gradients(given.arguments, cotangents)
    except Exception as error:  # as above
        return failure(error)
    for argument, found in own.items():
        wanted = np.asarray(exact[argument], np.float64)
        rounding = 0.0 if found.dtype == np.float32 else float(ml_dtypes.finfo(found.dtype).eps)
        most = (NEAR + rounding) * (1 + np.abs(wanted).max(initial=0))
        if not np.allclose(found, wanted, rtol=0, atol=most):
            apart = np.abs(found - wanted).max(initial=0)
            return Outcome("wrong", f"d_{argument}: {apart:.3g} apart, {most:.3g} allowed")
    return OK
