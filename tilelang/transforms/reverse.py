"""derive(kernel, facts, wanted) -> Derivative: a kernel's gradient, as kernels."""

from __future__ import annotations

from ..analysis.facts import Facts
from ..errors import GradientError
from ..ir import KernelIR
from .types import Derivative


def derive(kernel: KernelIR, facts: Facts, wanted: frozenset[str]) -> Derivative:
    """The gradients of the wanted arguments; GradientError where they cannot be derived."""
    what = f"the gradient of kernel {kernel.name} is not derived yet"
    raise GradientError(what, kernel.loc, f"write it yourself: @{kernel.name}.vjp")
