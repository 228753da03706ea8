"""Derivative: a kernel's gradient as kernels: one forward that saves, and launches that use it.

Every array of the backward program has one name, and all kernels of it call that array so: the
parameters of the original kernel (by the name of the parameter's tensor), what it returns, what the
forward kernel saves, one cotangent for each thing that is returned, and the results of launches.

    arrays = {**arguments, **zip(derivative.forward.returns, forward(...)), **cotangents}
    for launch in derivative.launches:
        results = run(launch.kernel, [arrays[name] for name in launch.operands])
        arrays.update(zip(launch.results, results))
    gradient of x = arrays[derivative.gradient("x")]
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import KernelIR


@dataclass(frozen=True)
class GradientLaunch:
    """One kernel of the backward program: all of its parameters are arrays, by their names.

    It returns a tuple, also of one result.
    """

    kernel: KernelIR

    @property
    def operands(self) -> tuple[str, ...]:
        """The arrays that it reads, in the order of its parameters."""
        return tuple(p.tensor for p in self.kernel.params if p.tensor is not None)

    @property
    def results(self) -> tuple[str, ...]:
        """The arrays that it makes, in the order in which it returns them."""
        return self.kernel.returns


@dataclass(frozen=True)
class Derivative:
    """A kernel's gradient: what the forward kernel saves, and the launches that use it.

    forward     the kernel with the arrays that it saves as further outputs: it returns a tuple of
                what the kernel returns, then `saved`.  The original IR where nothing is saved
    saved       names of those further outputs
    launches    in order; each reads arguments, outputs, saved arrays, cotangents and results of
                earlier launches.  None where nothing that is wanted depends on an argument
    gradients   (argument, array that holds its gradient); of its shape and dtype.  An argument that
                is wanted and is not here has no gradient (integers), or one of zeros: `zeros`
    zeros       wanted float arguments that no result depends on: their gradient is zero
    cotangents  names of the cotangents, one for each name in the kernel's `returns`; those of
                integers, and of results that do not matter, are never read
    """

    forward: KernelIR
    saved: tuple[str, ...]
    launches: tuple[GradientLaunch, ...]
    gradients: tuple[tuple[str, str], ...]
    cotangents: tuple[str, ...]
    zeros: tuple[str, ...] = ()

    def gradient(self, argument: str) -> str | None:
        """The array that holds the gradient of an argument, if one does."""
        return dict(self.gradients).get(argument)
