"""A kernel called from torch or from JAX with NumPy arguments; NumPy results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

try:
    import torch
except ImportError:  # as in the run with the newest JAX
    torch = None


def from_jax(function: Callable[..., Any], arguments: Sequence[Any], **options: Any) -> Any:
    """The result of a call with JAX arrays; a tuple if the kernel returns one."""
    given = [jnp.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments]
    result = function(*given, **options)
    return tuple(map(_of_jax, result)) if isinstance(result, tuple) else _of_jax(result)


def _of_jax(result: Any) -> np.ndarray:
    assert isinstance(result, jax.Array), f"a call with JAX arrays gave a {type(result).__name__}"
    return np.asarray(result)


AS_INTEGERS = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}


def from_torch(
    function: Callable[..., Any], arguments: Sequence[Any], device: Any = "cpu", **options: Any
) -> Any:
    """The result of a call with torch tensors on a device; a tuple if the kernel returns one."""
    assert torch is not None
    given = [to_torch(a).to(device) if isinstance(a, np.ndarray) else a for a in arguments]
    result = function(*given, **options)
    return tuple(map(_of_torch, result)) if isinstance(result, tuple) else _of_torch(result)


def _of_torch(result: Any) -> np.ndarray:
    assert isinstance(result, torch.Tensor), f"torch tensors gave a {type(result).__name__}"
    result = result.detach().cpu()
    name = str(result.dtype).removeprefix("torch.")
    if name in AS_INTEGERS:
        return result.view(getattr(torch, AS_INTEGERS[name])).numpy().view(getattr(ml_dtypes, name))
    return result.numpy()


def to_torch(array: np.ndarray) -> Any:
    """A tensor of the same dtype; torch does not know what NumPy has by ml_dtypes."""
    assert torch is not None
    name = array.dtype.name
    if name in AS_INTEGERS:
        return torch.from_numpy(array.view(AS_INTEGERS[name])).view(getattr(torch, name))
    return torch.from_numpy(array)


NEEDS_TORCH = "the example is spelled in torch, which is not installed"
needs_torch = pytest.mark.skipif(torch is None, reason="torch is not installed")
needs_examples_in_torch = pytest.mark.skipif(torch is None, reason=NEEDS_TORCH)
needs_triton = pytest.mark.skipif(
    find_spec("triton") is None, reason="triton is not installed: pip install 'raggedtile[triton]'"
)
