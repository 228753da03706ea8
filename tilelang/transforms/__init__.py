"""Rewrites of kernels: gradients, batches, partitions."""

from .gradient_text import source as source
from .reverse import derive as derive
from .types import Derivative as Derivative
from .types import Launch as Launch
