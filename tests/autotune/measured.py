"""Published times of matrix products on TPUs: data that the model is held against.

JAX's guide to matrix products (jax-ml/jax, docs/pallas/tpu/matmul.ipynb, the outputs of its cells):
bfloat16 on one v5e, `timeit` around a call that waits for its result.  So the cost of a call is in
each figure; of the guide's smallest product it is nearly everything.
"""

from __future__ import annotations

from dataclasses import dataclass

# What a call costs beside the kernel: XLA's product of 1024 x 1024 x 1024 takes 119.4 us there, of
# which 10.9 us are its operations at the chip's peak.
CALL = 119.4e-6 - 10.9e-6


@dataclass(frozen=True)
class Measured:
    """x [size, size] @ y [size, size] in blocks of m x n, k at a time."""

    size: int
    m: int
    n: int
    k: int
    seconds: float

    @property
    def kernel(self) -> float:
        """Seconds without the call."""
        return self.seconds - CALL


GUIDE = (
    Measured(4096, 512, 1024, 1024, 889.09e-6),
    Measured(8192, 512, 1024, 1024, 6099.43e-6),
    Measured(4096, 128, 128, 128, 11771.52e-6),
)
