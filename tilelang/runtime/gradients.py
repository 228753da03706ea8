"""registered(...), derived(...) -> Gradient: how a kernel is differentiated, whoever wrote it.

A gradient is the same thing to JAX and to torch: two functions over arrays of whichever framework
calls.  `forward` computes the results and what the other needs; `backward` makes of that, and of
the cotangents of the results, the gradients of the arguments.

    @grouped_gemm.vjp                                one that the author registered
    def gradients(saved, dy): ...
    derive(kernel, facts, wanted)                    one that the compiler derived
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import CallError, GradientError
from ..ir import KernelIR
from ..transforms import Derivative
from ..transforms.refuse import with_gradients
from .parsed import FORWARD, Remembered

Arrays = Sequence[Any]


@dataclass(frozen=True, eq=False)
class Gradient:
    """Two functions over the arrays of one framework.

    forward   tensor arguments in order -> the kernel's results in order, and what is saved: a tree
              of tuples, lists and dictionaries
    backward  (saved, cotangents, wanted) -> a gradient for each wanted argument, None where it is
              zero.  A cotangent is an array of its result's shape and dtype, None of an integer's
    """

    forward: Callable[[Arrays], tuple[tuple[Any, ...], Any]]
    backward: Callable[[Any, Arrays, frozenset[str]], Mapping[str, Any]]


# ---------------------------------------------------------------- written by the author


@dataclass(frozen=True)
class Registration:
    """What `@kernel.vjp` was given.

    forward   the kernel's arguments -> (what the kernel returns, what to save); None: the kernel
              itself, which saves its arguments by name
    backward  (saved, *cotangents) -> {argument: gradient, a function that makes it, or None}
    """

    forward: Callable[..., Any] | None
    backward: Callable[..., Any]


def registered(
    registration: Registration,
    kernel: Callable[..., Any],
    parsed: Remembered,
    statics: Mapping[str, Any],
) -> Gradient:
    """The author's gradient of a kernel; `statics` are the arguments that are no tensors."""
    ir, name = parsed.ir, parsed.ir.name

    def forward(arrays: Arrays) -> tuple[tuple[Any, ...], Any]:
        given = {**statics, **dict(zip(parsed.arguments, arrays, strict=True))}
        values = {p.name: given[p.name] for p in ir.params}
        if registration.forward is None:
            return _flat(name, kernel(*values.values()), ir), values
        made = registration.forward(*values.values())
        if not isinstance(made, tuple) or len(made) != 2:
            raise CallError(
                f"the forward of kernel {name} returns {_kind(made)}",
                hint="return two things: what the kernel returns, and what backward needs",
            )
        return _flat(name, made[0], ir), made[1]

    def backward(saved: Any, cotangents: Arrays, wanted: frozenset[str]) -> Mapping[str, Any]:
        return _chosen(name, registration.backward(saved, *cotangents), ir, wanted)

    return Gradient(forward, backward)


def _kind(value: object) -> str:
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else f"a {type(value).__name__}"


def _flat(name: str, results: Any, ir: KernelIR) -> tuple[Any, ...]:
    """What the author's forward returned for the kernel's results, one by one."""
    single = ir.structure == "single"
    found = (results,) if single else tuple(results) if isinstance(results, tuple | list) else ()
    shapes = [tuple(getattr(r, "shape", ("no array",))) for r in found]
    wanted = [ir.tensor(r).shape for r in ir.returns]
    if len(shapes) != len(wanted) or not all(map(_fits, shapes, wanted)):
        raise CallError(
            f"the forward of kernel {name} returns results of shape {_list(shapes)}, "
            f"and the kernel's have shape {_list(wanted)}",
            hint="return what the kernel returns, then what backward needs",
        )
    return found


def _fits(shape: Sequence[Any], wanted: Sequence[int]) -> bool:
    """Sizes that are symbols are not asked: that would fix them."""
    pairs = zip(shape, wanted, strict=False)
    return len(shape) == len(wanted) and all(a == b for a, b in pairs if type(a) is int)


def _list(shapes: Sequence[Sequence[Any]]) -> str:
    return ", ".join(str(list(s)) for s in shapes) or "none"


def _chosen(name: str, made: Any, ir: KernelIR, wanted: frozenset[str]) -> dict[str, Any]:
    """The wanted ones of the gradients that the author's backward gave."""
    floats = with_gradients(ir)
    if not isinstance(made, Mapping):
        raise CallError(
            f"the backward of kernel {name} returns {_kind(made)}",
            hint=f"return a dictionary: {{{floats[0]!r}: gradient, ...}}",
        )
    wrong = next((n for n in made if n not in floats and made[n] is not None), None)
    if wrong is not None:
        raise CallError(
            f"the backward of kernel {name} gives a gradient of {wrong!r}",
            hint=f"the arguments that have gradients are {', '.join(floats)}",
        )
    missing = next((n for n in floats if n in wanted and n not in made), None)
    if missing is not None:
        raise CallError(
            f"the backward of kernel {name} gives no gradient of {missing!r}",
            hint=f"return {missing!r}: None if it is zero",
        )
    found = {n: made[n]() if callable(made[n]) else made[n] for n in floats if n in wanted}
    for n, gradient in found.items():
        if gradient is not None and not hasattr(gradient, "shape"):
            raise CallError(
                f"the backward of kernel {name} gives {_kind(gradient)} as the gradient of {n}",
                hint=f"return an array of the shape of {n}, or None if it is zero",
            )
    return found


# ---------------------------------------------------------------- derived by the compiler

# (which part, arrays in the order of its parameters) -> its results in order
Run = Callable[[int, Arrays], Arrays]


def derived(parsed: Remembered, wanted: frozenset[str], run: Run) -> Gradient:
    """The derived gradient of a kernel; `run` computes its parts: FORWARD, and launch 0, 1, ..."""
    derivative = parsed.derivative(wanted)
    read = {name for launch in derivative.launches for name in launch.operands}

    def forward(arrays: Arrays) -> tuple[tuple[Any, ...], Any]:
        results = tuple(run(FORWARD, arrays))
        known = dict(zip(parsed.arguments, arrays, strict=True))
        known |= dict(zip(derivative.forward.returns, results, strict=True))
        saved = {name: array for name, array in known.items() if name in read}
        return results[: len(derivative.cotangents)], saved

    def backward(saved: Any, cotangents: Arrays, asked: frozenset[str]) -> Mapping[str, Any]:
        known = {**saved, **dict(zip(derivative.cotangents, cotangents, strict=True))}
        sources = {name: derivative.gradient(name) for name in asked}
        needed = _needed(derivative, {s for s in sources.values() if s is not None})
        for part, launch in enumerate(derivative.launches):
            if part in needed:
                made = run(part, [known[name] for name in launch.operands])
                known |= dict(zip(launch.results, made, strict=True))
        return {name: None if s is None else known[s] for name, s in sources.items()}

    return Gradient(forward, backward)


def _needed(derivative: Derivative, arrays: set[str]) -> set[int]:
    """The launches that some arrays rest on."""
    found, wanted = set[int](), set(arrays)
    for part in reversed(range(len(derivative.launches))):
        launch = derivative.launches[part]
        if wanted.intersection(launch.results):
            found.add(part)
            wanted.update(launch.operands)
    return found


# ---------------------------------------------------------------- words


def refused(kernel: str, error: GradientError, needs: str = "", otherwise: str = "") -> CallError:
    """The error of a differentiation: there is no backward, why not, and what to do."""
    return CallError(
        f"{error.of or f'kernel {kernel}'} has no backward{needs}: {error.what}",
        error.loc,
        "; or ".join(h for h in (error.hint, otherwise) if h),
    )


def misshapen(kernel: str, name: str, shape: Sequence[Any], wanted: Sequence[Any]) -> CallError:
    """A gradient of another shape than its argument has."""
    return CallError(
        f"the backward of kernel {kernel} gives a gradient of {name} of shape {list(shape)}, "
        f"and {name} has shape {list(wanted)}"
    )
