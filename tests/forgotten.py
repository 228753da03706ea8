"""forget(kernel): as if it had never been called."""

from __future__ import annotations

from tilelang import Kernel

FILED = "_launches", "_parses", "_entries", "_lowered", "_jax", "_part_launches", "_batches"


def forget(kernel: Kernel) -> None:
    """Whatever calls have filed; counts, and operations that torch knows, stay."""
    for name in FILED:
        setattr(kernel, name, type(getattr(kernel, name))())
    kernel._call = kernel._by_types
