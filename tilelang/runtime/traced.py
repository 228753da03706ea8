"""traced(run, arrays, platform): the jaxpr of generated code, with the products that a CPU has.

XLA's CPU has no code for a product of bfloat16 whose left operand lies turned.  It widens those
that it is given, but its simplifications turn others that it has already looked at, and what they
leave ends in "Unsupported element type for DotThunk".  Products of small floats are in float32
there from the start: it holds every product of two of them, so no digit is another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend import core
from jax.lax import DotAlgorithmPreset


def traced(run: Callable[..., Any], arrays: Sequence[Any], platform: str) -> Any:
    """The closed jaxpr of `run` for arrays like these."""
    closed = jax.make_jaxpr(run)(*arrays)
    return _widened(closed) if platform == "cpu" else closed


def _widened(value: Any) -> Any:
    """A parameter of an operation in which all products of small floats are float32's."""
    match value:
        case core.Jaxpr():  # first: from JAX 0.12 on a closed one is such, too
            return value.replace(eqns=[_operation(eqn) for eqn in value.eqns])
        case core.ClosedJaxpr():
            return value.replace(jaxpr=_widened(value.jaxpr))
        case tuple() if any(isinstance(v, core.ClosedJaxpr | core.Jaxpr) for v in value):
            return tuple(map(_widened, value))
        case _:
            return value


def _operation(eqn: Any) -> Any:
    params = {name: _widened(value) for name, value in eqn.params.items()}
    if eqn.primitive.name == "dot_general" and all(_small(v.aval.dtype) for v in eqn.invars):
        params["precision"] = DotAlgorithmPreset.F32_F32_F32  # JAX casts the operands itself
    return eqn.replace(params=params)


def _small(dtype: Any) -> bool:
    return jax.numpy.issubdtype(dtype, jax.numpy.floating) and dtype.itemsize < 4
