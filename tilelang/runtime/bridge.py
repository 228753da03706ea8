"""Values of each framework -> what the jitted function takes, and its results back.

On the CPU a jitted function takes NumPy arrays as they are: without a copy where the memory is
aligned, and with any strides.  So torch tensors enter as NumPy views (1 us each, where
`jax.dlpack.from_dlpack` costs 20-30 us).  Handing out a result waits for it, so that nothing of
torch's or NumPy's that was passed in is read after the call has returned.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from ..errors import CallError, RaggedValueError
from ..ir import Tensor, TensorSpec
from ..language.dtypes import itemsize
from .tensors import Described, describe

Read = Callable[[Any], Any]

INT32 = np.iinfo(np.int32)
SMALL = 1 << 20  # bytes
# torch cannot export these to NumPy; the same bytes as integers can be.
REINTERPRETED = {
    "bfloat16": ("int16", ml_dtypes.bfloat16),
    "float8_e4m3fn": ("uint8", ml_dtypes.float8_e4m3fn),
    "float8_e5m2": ("uint8", ml_dtypes.float8_e5m2),
}


def torch() -> Any:
    """The torch module: a caller who passes tensors has imported it."""
    return sys.modules["torch"]


def torch_to_numpy(name: str, dtype: str) -> Read:
    """A reader of CPU tensors of that dtype: a view of the same memory, detached."""
    carrier, view = REINTERPRETED.get(dtype, ("", None))
    integer = getattr(torch(), carrier) if carrier else None
    functional = torch()._is_functional_tensor  # its own memory holds nothing, and torch reads it

    def read(tensor: Any) -> np.ndarray:
        try:
            if functional(tensor):
                raise TypeError("it is functionalised")
            if integer is None or view is None:
                return _array(tensor, tensor.requires_grad)
            bits = tensor.resolve_neg().detach().view(integer)
            return _array(bits, tensor.requires_grad).view(view)
        except Exception as error:  # modes and subclasses of torch raise errors of any kind
            describe(name, tensor)  # says more of what it knows
            raise CallError(
                f"{name} has no memory to read: {error}",
                hint="torch.func transforms of kernels are not supported; pass a plain tensor",
            ) from None

    return read


def numpy_to_torch(dtype: str, array: np.ndarray) -> Any:
    """A tensor of an array of that dtype: of its memory if it may be written to, else of a copy."""
    whole = np.require(array, None, ("C", "W"))  # torch has no negative strides
    if dtype not in REINTERPRETED:
        return torch().from_numpy(whole)
    carrier = REINTERPRETED[dtype][0]
    return torch().from_numpy(whole.view(carrier)).view(getattr(torch(), dtype))


def _array(tensor: Any, trained: bool) -> np.ndarray:
    """A view of its memory; FSDP frees that of parameters, which `numpy` makes torch forbid."""
    if tensor.is_neg():
        return tensor.numpy(force=True)
    return np.from_dlpack(tensor.detach()) if trained else tensor.numpy()


def narrowed(name: str, array: np.ndarray) -> np.ndarray:
    """int64 values as int32; RaggedValueError names the first that does not fit."""
    if array.size and (array.min() < INT32.min or array.max() > INT32.max):
        wrong = (array < INT32.min) | (array > INT32.max)
        place = tuple(int(i) for i in np.argwhere(wrong)[0])
        index = f"[{', '.join(map(str, place))}]" if place else ""
        raise RaggedValueError(
            f"{name}{index} = {array[place]} does not fit in int32",
            hint="kernels compute indices in 32 bits",
        )
    return array.astype(np.int32)


def reader(name: str, spec: TensorSpec, home: str, copy: bool) -> Read | None:
    """How to turn an argument into an operand; None if it is one already.

    `copy` protects NumPy memory that an unfinished JAX computation would go on reading.
    """
    wide = spec.dtype == "int64"
    match home:
        case "torch":
            read = torch_to_numpy(name, spec.dtype)
            return (lambda value: narrowed(name, read(value))) if wide else read
        case "numpy" | "jax" if wide:
            return lambda value: narrowed(name, np.asarray(value))
        case "numpy" if copy:
            return np.array
        case "numpy":
            return np.asarray  # also turns subclasses (matrix, memmap) into plain arrays
        case "traced" if wide:
            return saturated
        case _:
            return None


def saturated(array: Any) -> Any:
    """int64 values of a traced array as int32, the nearest one where it does not fit.

    Nothing can be raised for a value that is not there yet; a saturated offset is out of every
    array, where a wrapped one could be in it.
    """
    numpy = sys.modules["jax"].numpy
    return numpy.clip(array, INT32.min, INT32.max).astype(numpy.int32)


def writer(framework: str) -> Callable[[str, Any, Any], None]:
    """How to copy a result back into an argument that the kernel stores to."""
    return _write_torch if framework == "torch" else _write_numpy


def _write_torch(name: str, tensor: Any, result: Any) -> None:
    store_to_torch(name, tensor, torch().from_dlpack(result))


def store_to_torch(name: str, tensor: Any, result: Any) -> None:
    """The same of a tensor; CallError where several elements of the argument are one in memory."""
    try:
        with torch().no_grad():
            tensor.copy_(result)
    except RuntimeError as error:
        raise CallError(
            f"{name} cannot be written to: {error}", hint=f"pass {name}.clone()"
        ) from None


def _write_numpy(name: str, array: np.ndarray, result: Any) -> None:
    if not array.flags.writeable:
        what = f"{name} is a read-only NumPy array, and the kernel stores to it"
        raise CallError(what, hint=f"pass {name}.copy()")
    array[...] = np.asarray(result)


def exporter(framework: str, result: Tensor) -> Read | None:
    """How to hand a result out, in memory that its owner may change; None for JAX.

    A copy of a small result is cheaper than the exchange of a large one: dlpack costs 30 us here.
    """
    if framework == "jax":
        return None
    if framework == "numpy":
        return _copied
    if prod(result.shape) * itemsize(result.dtype) > SMALL:
        return torch().from_dlpack
    from_numpy = torch().from_numpy
    if result.dtype not in REINTERPRETED:
        return lambda array: from_numpy(_copied(array))
    return lambda array: numpy_to_torch(result.dtype, _copied(array))


def _copied(array: Any) -> np.ndarray:
    """A copy of a result; JAX hands out what is there on the spot, and the rest by a thread."""
    return np.array(array.block_until_ready())


def host_array(name: str, value: Any, described: Described) -> np.ndarray:
    """An argument's values as a NumPy array; CallError if it has none."""
    if described.home in ("traced", "shape"):
        what = "traced by JAX" if described.home == "traced" else "a shape without data"
        raise CallError(f"{name} is {what}: the reference needs the data")
    if described.home == "torch":
        return torch_to_numpy(name, described.spec.dtype)(value.cpu())
    return np.asarray(value)
