"""compare(title, kernel, arguments, expected): runs a kernel from torch and from JAX.

What every example's `main()` calls.  A framework that is not installed is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

try:
    import torch
except ImportError:
    torch = None
try:
    import jax.numpy as jnp
except ImportError:
    jnp = None


def compare(
    title: str, kernel: Callable[..., Any], arguments: Sequence[Any], expected: np.ndarray
) -> None:
    """Prints the largest difference to `expected`, relative to its largest value.

    NumPy arrays among the arguments become tensors or arrays of the framework; everything else is
    passed as it is.
    """
    largest = float(np.abs(expected).max(initial=0)) or 1.0
    for framework, convert in _frameworks():
        given = [convert(a) if isinstance(a, np.ndarray) else a for a in arguments]
        result = np.asarray(kernel(*given)).astype(np.float64)
        error = float(np.abs(result - expected).max(initial=0)) / largest
        print(f"{title:<32} {framework:<6} shape {result.shape}  relative error {error:.1e}")


def _frameworks() -> Iterator[tuple[str, Callable[[np.ndarray], Any]]]:
    if torch is not None:
        yield "torch", torch.from_numpy
    if jnp is not None:
        yield "JAX", jnp.asarray
