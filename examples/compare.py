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
    title: str,
    kernel: Callable[..., Any],
    arguments: Sequence[Any],
    expected: np.ndarray | tuple[np.ndarray, ...],
) -> None:
    """Prints the largest difference to `expected`, relative to its largest value.

    NumPy arrays among the arguments become tensors or arrays of the framework; everything else is
    passed as it is.  A kernel with several results has a line for each.
    """
    for framework, convert in _frameworks():
        given = [convert(a) if isinstance(a, np.ndarray) else a for a in arguments]
        results = kernel(*given)
        for result, exact in zip(_several(results), _several(expected), strict=True):
            found = np.asarray(result).astype(np.float64)
            largest = float(np.abs(exact).max(initial=0)) or 1.0
            error = float(np.abs(found - exact).max(initial=0)) / largest
            print(f"{title:<32} {framework:<6} shape {found.shape}  relative error {error:.1e}")


def _several(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def _frameworks() -> Iterator[tuple[str, Callable[[np.ndarray], Any]]]:
    if torch is not None:
        yield "torch", torch.from_numpy
    if jnp is not None:
        yield "JAX", jnp.asarray
