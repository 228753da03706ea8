"""Rewrites of kernels: gradients, batches, partitions.  Every target plans the results."""

from .gradient_text import source as source
from .legal import refuse_changed_arguments as refuse_changed_arguments
from .reverse import derive as derive
from .types import Derivative as Derivative
from .types import GradientLaunch as GradientLaunch
