"""calls(function, specs, known) -> what each pallas_call is given, as far as it can be computed.

The host function is evaluated on the CPU around its kernels: offsets may be narrowed, reshaped or
made into a list of steps before a kernel gets them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.extend import core

from .program import Program

Values = list[Any]  # None: not known
MOST = 1 << 22  # elements of an array that is worth computing
INSIDE = ("jaxpr", "call_jaxpr", "fun_jaxpr")


@dataclass(frozen=True)
class PallasCall:
    """The operands of one kernel: their shapes, and the integers among them that are known."""

    shapes: tuple[tuple[int, ...], ...]
    arrays: Mapping[int, np.ndarray]


def calls(
    function: Callable[..., Any], specs: Sequence[Any], known: Mapping[int, np.ndarray]
) -> list[PallasCall]:
    """Every pallas_call in order; `known` are the arguments that have values, by position."""
    closed = jax.make_jaxpr(function)(*specs)
    found: list[PallasCall] = []
    with jax.default_device(jax.devices("cpu")[0]):
        inputs = [known.get(place) for place in range(len(specs))]
        _evaluate(closed.jaxpr, closed.consts, inputs, found)
    return found


def matched(program: Program, found: list[PallasCall]) -> Mapping[int, np.ndarray]:
    """The arrays of the call that a program was compiled from, which is taken from the list."""
    inputs = {p.index: p.shape for p in program.parameters if not p.output}
    for place, call in enumerate(found):
        if all(i < len(call.shapes) and call.shapes[i] == shape for i, shape in inputs.items()):
            return found.pop(place).arrays
    return {}


def _evaluate(jaxpr: Any, consts: Sequence[Any], inputs: Values, found: list[PallasCall]) -> Values:
    """The results of a jaxpr; notes the kernels that it calls."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, inputs, strict=True))

    def read(variable: Any) -> Any:
        return variable.val if isinstance(variable, core.Literal) else values.get(variable)

    for equation in jaxpr.eqns:
        given = [read(variable) for variable in equation.invars]
        values.update(zip(equation.outvars, _results(equation, given, found), strict=True))
    return [read(variable) for variable in jaxpr.outvars]


def _results(equation: Any, given: Values, found: list[PallasCall]) -> Values:
    unknown: Values = [None] * len(equation.outvars)
    if equation.primitive.name == "pallas_call":
        shapes = tuple(tuple(v.aval.shape) for v in equation.invars)
        arrays = {place: np.asarray(a) for place, a in enumerate(given) if a is not None}
        integers = {place: a for place, a in arrays.items() if a.dtype.kind in "iub"}
        found.append(PallasCall(shapes, integers))
        return unknown
    inner = next((equation.params[name] for name in INSIDE if name in equation.params), None)
    if inner is not None and equation.primitive.name not in ("scan", "while", "cond"):
        jaxpr, consts = getattr(inner, "jaxpr", inner), getattr(inner, "consts", ())
        return _evaluate(jaxpr, consts, given, found)
    if any(v is None for v in given) or any(v.aval.size > MOST for v in equation.outvars):
        return unknown
    results = equation.primitive.bind(*given, **equation.params)
    return list(results) if equation.primitive.multiple_results else [results]
