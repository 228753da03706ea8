"""Rewrites of whole kernels that users apply: gradients.  KernelIR to KernelIR, for every target."""

from .reverse import derive as derive
from .types import Derivative as Derivative
from .types import Launch as Launch
