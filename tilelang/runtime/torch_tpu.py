"""tpu_op(name, kernel) -> the kernel as an operation of torch on TPUs, by TorchTPU's `jax_op`.

TorchTPU exports a function of JAX arrays for the TPU and registers what that gives as an operation
of torch.  It reads types from the function's signature: each array is annotated as one, and
whatever else is static.  `function_of` is the kernel with such a signature.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ..errors import CallError
from .signature import Signature

STATIC = {"bool": bool, "int": int, "float": float, "str": str}


def tpu_op(name: str, kernel: Any, results: int = 1, **options: Any) -> Any:
    """The kernel as the operation `name`, "namespace::name", of torch tensors on a TPU.

    results  how many tensors the kernel returns
    options  what else `jax_op` takes: donate_argnums, mesh, input_partition_specs ...

    A parameter that is no tensor is annotated with bool, int, float or str, or has such a default.
    The operation has no gradient; TorchTPU's interface is experimental.
    """
    try:
        jax_op = import_module("torch_tpu._internal.pallas").jax_op
    except ModuleNotFoundError:
        raise CallError(
            "tpu_op needs TorchTPU, which is not installed",
            hint="pip install 'raggedtile[torch-tpu]', on Python 3.12 or later",
        ) from None
    return jax_op(name, function_of(kernel, results), **options)


def function_of(kernel: Any, results: int = 1) -> Callable[..., Any]:
    """The kernel as a plain function of JAX arrays that says the types of all that it takes."""
    import jax

    known: Signature = kernel.signature
    written = kernel.__annotations__
    array = jax.Array

    def call(*given: Any, **named: Any) -> Any:
        return kernel(*given, **named)

    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.POSITIONAL_OR_KEYWORD
            if place < known.positional
            else inspect.Parameter.KEYWORD_ONLY,
            default=known.defaults.get(name, inspect.Parameter.empty),
            annotation=_static(written.get(name), known.defaults.get(name)) or array,
        )
        for place, name in enumerate(known.names)
    ]
    made = array if results == 1 else tuple[(array,) * results]
    call.__name__ = call.__qualname__ = known.kernel
    vars(call)["__signature__"] = inspect.Signature(parameters, return_annotation=made)
    return call


def _static(annotation: Any, default: object) -> type | None:
    """The type of a parameter that is no tensor; None for a tensor."""
    found = STATIC.get(getattr(annotation, "__name__", annotation))
    return found or STATIC.get(type(default).__name__)
