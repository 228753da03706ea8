"""Rewrites of whole kernels that users apply: gradients.  Every target plans the results."""

from .reverse import derive as derive
from .types import Derivative as Derivative
from .types import Launch as Launch
