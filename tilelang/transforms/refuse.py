"""Underivable: why a gradient cannot be derived, and where in the author's file."""

from __future__ import annotations

from ..errors import GradientError, Loc
from ..ir import KernelIR
from ..language.dtypes import is_float


class Underivable(Exception):
    """What stands in the way; `said_of` makes it the error that the author sees."""

    def __init__(self, what: str, loc: Loc | None) -> None:
        super().__init__(what)
        self.what, self.loc = what, loc

    def said_of(self, kernel: KernelIR, author: str) -> GradientError:
        """The same with the name of the author's kernel, and what to do instead.

        `author` is that name where the kernel was derived.
        """
        of = f"the gradient of kernel {author}" if author else f"kernel {kernel.name}"
        form = "of kernels that have gradients" if author else _form(kernel)
        register = f"and register it with @{author or kernel.name}.vjp"
        hint = f"write the backward yourself, {form}, {register}"
        what = f"the gradient of {of} cannot be derived: {self.what}"
        return GradientError(what, self.loc or kernel.loc, hint, of)


def with_gradients(kernel: KernelIR) -> list[str]:
    """The arguments that have gradients."""
    return [p.name for p in kernel.params if p.tensor and is_float(kernel.tensor(p.tensor).dtype)]


def _form(kernel: KernelIR) -> str:
    """What the backward of a kernel is given, and returns."""
    given = ", ".join(("saved", *(f"d_{name}" for name in kernel.returns)))
    made = ", ".join(f'"{name}": ...' for name in with_gradients(kernel))
    return f"a function of ({given}) that returns {{{made}}}"
