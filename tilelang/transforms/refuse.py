"""Underivable: why a gradient cannot be derived, and where in the author's file."""

from __future__ import annotations

from ..errors import GradientError, Loc
from ..ir import KernelIR


class Underivable(Exception):
    """What stands in the way; `said_of` makes it the error that the author sees."""

    def __init__(self, what: str, loc: Loc | None) -> None:
        super().__init__(what)
        self.what, self.loc = what, loc

    def said_of(self, kernel: KernelIR) -> GradientError:
        """The same with the kernel's name, and what to do instead."""
        hint = f"write the backward yourself, and register it with @{kernel.name}.vjp"
        what = f"the gradient of kernel {kernel.name} cannot be derived: {self.what}"
        return GradientError(what, self.loc or kernel.loc, hint)
