"""try_kernel(program, config, seeds) -> Outcome: whether a random kernel does what it means."""

from __future__ import annotations

import contextlib
import importlib.util
import itertools
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import tilelang as tile
from tests.compile_cache import TPU, shared
from tests.fuzzing.counted import cut, open_numbers
from tests.fuzzing.inputs import Case, case, wild
from tests.fuzzing.meaning import evaluate
from tests.fuzzing.program import If, Load, Masked, Pick, Program, Store, Tensor, parts
from tests.fuzzing.text import NUMBERS, source
from tests.fuzzing.undefined import undefined
from tilelang.aot import compile_lowered
from tilelang.errors import InternalError
from tilelang.reference import GARBAGE

# Of the largest exact value: kernels compute in float32 from at most a few thousand terms.
TOLERANCE = {"float32": 2e-4, "bfloat16": 2.0**-6, "float16": 2.0**-9}
TOLERANCE |= {"float8_e4m3fn": 2.0**-3, "float8_e5m2": 2.0**-2}
AT_THE_CALL = ("RaggedValueError: ", "CallError: ")  # refusals of values, not of the kernel
FAULT = "inside of tilelang"  # in the message of an error that is a fault of the compiler


@dataclass(frozen=True)
class Outcome:
    """What happened.

    kind    "ok", "wrong", "crash", "refused" (with a reason at the user's line), "reference" (the
            NumPy reference does not agree with the meaning), "uncompiled" (by the TPU compiler),
            "accepted" (a call that must be refused: it reaches outside of an array, or its result
            depends on the blocks)
    detail  the first line of the error, or where the result is wrong
    seed    of the arguments, -1 if it is not about one
    """

    kind: str
    detail: str = ""
    seed: int = -1

    @property
    def label(self) -> str:
        """What a smaller kernel must have in common with this one."""
        if self.kind == "uncompiled":
            return f"{self.kind} {self.detail.partition('does not compile: ')[2][:60]}"
        return f"{self.kind} {self.detail.split(':')[0]}" if self.kind == "crash" else self.kind


OK = Outcome("ok")
Call = Callable[..., Any]


def try_kernel(program: Program, config: tile.Config | None, seeds: Sequence[int]) -> Outcome:
    """The first thing that goes wrong over these arguments, under the default config if None."""
    with loaded(program) as kernel:
        try:
            cases = cases_of(program, kernel, config, seeds)
        except Exception as error:  # as in a call
            return failure(error)
        return _cases(program, kernel, config, cases)


def cases_of(
    program: Program,
    kernel: tile.Kernel,
    config: tile.Config | None,
    seeds: Sequence[int],
    target: str | None = None,
) -> list[tuple[int, Case]]:
    """The arguments of these seeds, and what must come out in the blocks of the config."""
    if open_numbers(program):
        known = config or kernel.default_config(*_specs(program), target=target)
        program = cut(program, dict(known.blocks))
    return [(seed, case(program, seed)) for seed in seeds]


def try_configs(
    program: Program, configs: Sequence[tile.Config | None], seeds: Sequence[int]
) -> list[Outcome]:
    """The same of each config; "same" for one that gives the text of an earlier one."""
    found, texts, cases = [], set(), None
    with loaded(program) as kernel:
        for config in configs:
            try:
                text = kernel.source(*_specs(program), config=config)
                if cases is None or open_numbers(program):
                    cases = cases_of(program, kernel, config, seeds)
            except Exception as error:  # as in a call
                found.append(failure(error))
                continue
            found.append(OK if text not in texts else Outcome("same"))
            if text not in texts:
                found[-1] = _cases(program, kernel, config, cases)
            texts.add(text)
    return found


def _cases(
    program: Program,
    kernel: tile.Kernel,
    config: tile.Config | None,
    cases: Sequence[tuple[int, Case]],
) -> Outcome:
    for seed, given in cases:
        found = _once(program, lambda *a: kernel(*a, config=config), given, seed)
        if found != OK:
            return found
    return OK


def try_wild(program: Program, config: tile.Config | None, seeds: Sequence[int]) -> Outcome:
    """Whether a call refuses what `Kernel.reference` refuses, and else does the same."""
    with loaded(program) as kernel:
        for seed in seeds:
            drawn = wild(program, seed)
            if drawn is None:
                return Outcome("same")
            arguments, words = drawn
            found = _like_reference(program, kernel, config, list(arguments.values()))
            if found != OK:
                return Outcome(found.kind, f"{found.detail}; {words}", seed)
    return OK


def _like_reference(
    program: Program, kernel: tile.Kernel, config: tile.Config | None, values: list[np.ndarray]
) -> Outcome:
    expected, refusal = _outcome(kernel.reference, [v.copy() for v in values])
    if refusal.kind == "crash":
        return Outcome("reference", refusal.detail)
    made, answer = _outcome(lambda *a: kernel(*a, config=config), [v.copy() for v in values])
    if answer.kind == "crash":
        return answer
    if refusal != OK and _leaves_out_lanes(program):
        return OK
    if refusal != OK:
        return OK if answer != OK else Outcome("accepted", f"reference: {refusal.detail}")
    for tensor, result, exact in zip(program.results, made, expected, strict=False):
        problem = difference(tensor, np.asarray(result), specified(tensor, np.asarray(exact)))
        if problem:
            return Outcome("wrong", f"not as reference: {tensor.name}: {problem}")
    return OK


def specified(tensor: Tensor, found: np.ndarray) -> np.ndarray:
    """What `Kernel.reference` gives, with NaN where nothing was written: integers and bools have
    none, and a bool that was not written is True there."""
    exact = found.astype(np.float64)
    if tensor.role != "output" or tensor.fill is not None or found.dtype.kind not in "iub":
        return exact
    byte = 1 if found.dtype.kind == "b" else GARBAGE
    garbage = np.frombuffer(bytes([byte]) * found.itemsize, found.dtype)
    return np.where(found == garbage, np.nan, exact)


def try_batched(program: Program, seeds: Sequence[int]) -> Outcome:
    """Whether a call for a batch is a call for each of its elements.

    Bit for bit, but that a CPU may fuse `1 - a * b` in one of them and round it in the other.
    """
    names = batched_names(program, seeds[0])
    if not names:
        return Outcome("same")
    cases = [case(program, seed).arguments for seed in seeds]
    mixed = [{n: (one if n in names else cases[0])[n] for n in one} for one in cases]
    with loaded(program) as kernel:
        able = [(one, done) for one in mixed if (done := _of_element(program, kernel, one))]
        if not able:
            return Outcome("same")
        given = [
            np.stack([one[name] for one, _ in able]) if name in names else shared
            for name, shared in cases[0].items()
        ]
        made, answer = _outcome(kernel.batched(*names), [g.copy() for g in given])
        if answer != OK:
            return Outcome("crash", f"batch of {', '.join(names)}: {answer.detail}")
        for element, (_, expected) in enumerate(able):
            for tensor, result, (one, known) in zip(program.results, made, expected, strict=True):
                mine = np.asarray(result)[element]
                if not _same(mine[known], one[known]):
                    where = f"element {element} of a batch of {', '.join(names)}"
                    return Outcome("wrong", f"{tensor.name}: not as alone, {where}", seeds[element])
    return OK


def _same(mine: np.ndarray, alone: np.ndarray) -> bool:
    """Whether they differ by no more than the roundings of intermediate values."""
    a, b = (each.astype(np.float64) for each in (mine, alone))
    scale = max(1.0, float(np.abs(b[np.isfinite(b)]).max(initial=0)))
    return np.allclose(a, b, rtol=0, atol=1e-6 * scale, equal_nan=True)


def batched_names(program: Program, seed: int) -> list[str]:
    """Some of the arguments, and all that the kernel changes."""
    rng = np.random.default_rng([seed, 3])
    names = [t.name for t in program.arguments if t.role == "changed" or rng.random() < 0.6]
    return names or [t.name for t in program.arguments[:1]]


def _of_element(
    program: Program, kernel: tile.Kernel, arguments: Mapping[str, np.ndarray]
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The results of one element, and where they are specified; none if the call is refused."""
    try:
        exact = evaluate(program, arguments).results
    except IndexError:
        return []
    made, answer = _outcome(kernel, [a.copy() for a in arguments.values()])
    if answer != OK:
        return []
    known = [~np.isnan(exact[t.name]) for t in program.results]
    return list(zip(map(np.asarray, made), known, strict=True))


def _leaves_out_lanes(program: Program) -> bool:
    """Whether lanes are under a mask, an index array is read where a condition goes by the blocks,
    or places are computed, which checks do not know: a call refuses nothing that it may leave out.
    """
    if any(isinstance(p, Pick) and p.derived for p in parts(program.body)):
        return True
    ifs = (p for p in parts(program.body) if isinstance(p, If))
    by_block = tuple(p for p in ifs if p.what == "begin")
    if any(isinstance(p, Pick) and p.through for p in parts(by_block)):
        return True
    found: list[Load | Store] = [p.load for p in parts(program.body) if isinstance(p, Masked)]
    found += [p for p in parts(program.body) if isinstance(p, Store) and p.masks]
    held = {pick.axis for access in found for pick in access.index} - {""}
    return any(program.axis(name).kind == "tile" for name in held)


def _outcome(call: Call, values: list[np.ndarray]) -> tuple[tuple[Any, ...], Outcome]:
    """The results of a call, or what it raised."""
    try:
        made = call(*values)
    except Exception as error:  # whatever is raised is what is being looked for
        return (), failure(error)
    return made if isinstance(made, tuple) else (made,), OK


def try_reference(program: Program, seeds: Sequence[int], blocks: Sequence[int]) -> Outcome:
    """The same of `Kernel.reference` at each of these blocks, with its parallel loops shuffled."""
    tiles = [a.name for a in program.axes if a.kind == "tile" and not a.block]
    with loaded(program) as kernel:
        for seed, block in itertools.product(seeds, blocks):
            given = case(cut(program, dict.fromkeys(tiles, block)), seed)
            if given.depends:
                continue
            sizes = dict.fromkeys(tiles, block)

            def call(*arguments: Any, sizes: dict[str, int] = sizes, seed: int = seed) -> Any:
                return kernel.reference(*map(np.asarray, arguments), blocks=sizes, seed=seed)

            found = _once(program, call, given, seed)
            if found.kind not in ("ok", "refused"):
                return Outcome("reference", f"block {block}: {found.detail}", seed)
            if found.kind == "refused":
                return found
    return OK


_OPEN: dict[str, tile.Kernel] = {}


@contextlib.contextmanager
def loaded(program: Program, lengths: Mapping[str, str] = NUMBERS) -> Iterator[tile.Kernel]:
    """The kernel of a program, from a file that is there as long as it is used.

    Inside of another one for the same program it is that kernel: parsed and compiled once.
    """
    text = source(program, lengths)
    if text in _OPEN:
        yield _OPEN[text]
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random_kernel.py"
        path.write_text(text, encoding="utf-8")
        name = f"random_kernel_{Path(folder).name}"
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
            _OPEN[text] = module.kernel
            yield module.kernel
        finally:
            _OPEN.pop(text, None)
            del sys.modules[name]


def block_names(program: Program) -> tuple[str, ...]:
    """The blocks that a config may choose; none if even the default config is refused."""
    with loaded(program) as kernel, contextlib.suppress(tile.TileError):
        return tuple(dict(kernel.default_config(*_specs(program)).blocks))
    return ()


def failure(error: Exception) -> Outcome:
    """What an exception means: a reason is one thing, a fault is another."""
    if isinstance(error, tile.CompileError):
        return Outcome("uncompiled", error.what.splitlines()[0])
    fault = isinstance(error, InternalError) or FAULT in str(error)
    if isinstance(error, tile.TileError) and not fault:
        return Outcome("refused", f"{type(error).__name__}: {error.what.splitlines()[0]}")
    cause = error.__cause__ if isinstance(error, tile.TileError) else None
    raised = cause or error
    lines = str(raised).strip().splitlines() or [""]
    return Outcome("crash", f"{type(raised).__name__}: {lines[0][:160]}")


def _once(program: Program, call: Call, given: Case, seed: int) -> Outcome:
    """One call; one that must be refused is right if it is."""
    kept = any(t.role == "changed" for t in program.tensors)
    values = [a.copy() if kept else jnp.asarray(a) for a in given.arguments.values()]
    try:
        made = call(*values)
    except Exception as error:  # whatever is raised is what is being looked for
        found = failure(error)
        return OK if given.illegal and found.detail.startswith(AT_THE_CALL) else found
    if given.illegal and _leaves_out_lanes(program):
        return OK
    if given.illegal or given.depends:
        why = given.illegal or "the result depends on the blocks"
        return Outcome("accepted", f"{why}; {given.layout}", seed)
    results = made if isinstance(made, tuple) else (made,)
    for tensor, result in zip(program.results, results, strict=True):
        problem = difference(tensor, np.asarray(result), given.results[tensor.name])
        if problem:
            return Outcome("wrong", f"{tensor.name}: {problem}; {given.layout}", seed)
    return OK


def difference(tensor: Tensor, result: np.ndarray, exact: np.ndarray) -> str:
    """Where a result is not what it must be; "" if nowhere.

    NaN is unspecified.  An infinity is one result among others: it says nothing of their scale.
    """
    if result.dtype.name != tensor.dtype or result.shape != tensor.shape:
        return f"{result.dtype.name}{list(result.shape)}"
    specified = ~np.isnan(exact)
    scale = max(1.0, float(np.abs(exact[np.isfinite(exact)]).max(initial=0)))
    made = result.astype(np.float64)
    with np.errstate(invalid="ignore"):
        near = (made == exact) | (np.abs(made - exact) <= TOLERANCE.get(tensor.dtype, 0) * scale)
    bad = specified & ~near
    if not bad.any():
        return ""
    first = tuple(int(i) for i in np.argwhere(bad)[0])
    found = f"{result[first]}, exact {exact[first]:.6g}"
    return f"{int(bad.sum())} of {bad.size} wrong; at {list(first)}: {found}"


def try_text(program: Program, target: str) -> Outcome:
    """Whether what is printed for a device that is not here defines every name that it reads, and
    whether it is explained, for arguments that are known."""
    given = case(program, 0).arguments.values()
    with loaded(program) as kernel:
        try:
            names = undefined(kernel.source(*_specs(program), target=target))
            kernel.explain(*given, target=target)
        except Exception as error:  # as in a call
            return failure(error)
    return OK if not names else Outcome("crash", f"NameError: {', '.join(sorted(names))}")


def try_compiler(program: Program, target: str) -> Outcome:
    """Whether the real TPU compiler takes the kernel in its default config; nothing is run."""
    with loaded(program) as kernel:
        try:
            lowered = kernel.lower(*_specs(program), target=target)
            compile_lowered(lowered, worker=shared(TPU))
        except Exception as error:  # as above
            return failure(error)
    return OK


def _specs(program: Program) -> list[tile.TensorSpec]:
    return [tile.spec(t.shape, t.dtype) for t in program.arguments]
