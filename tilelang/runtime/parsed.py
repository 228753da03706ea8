"""Remembered: a kernel for one combination of shapes, and what is made of it when asked."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..analysis.facts import Facts
from ..errors import GradientError
from ..ir import KernelIR
from ..reads import Stamped
from ..transforms import Derivative, derive
from .lowering import our_fault, proved
from .written_down import digest

FORWARD = -1  # the part of a derivative that is no launch of its backward program


@dataclass(frozen=True, eq=False)
class Remembered:
    """A parsed kernel and the reads that it rests on; a key that stands for itself.

    texts        of the functions that it is made of
    specs        the arguments that it was parsed for, as far as a caller gave them
    derivatives  what was derived of it so far, by the arguments whose gradients are wanted
    parts        the kernels of those, by the same and by which they are
    derived      it is one of those: "backward", or "forward" if it saves what backward reads
    author       the name of the author's kernel that it was derived of
    alike        of one that goes by no tiles: what is saved for each is read in the same tiles
    """

    ir: KernelIR
    reads: Sequence[Stamped] = ()
    texts: Sequence[str] = ()
    element: tuple[Remembered, Collection[str]] | None = None  # of a batch; not shared
    specs: Mapping[str, Any] | None = None
    derivatives: dict[frozenset[str], Derivative] = field(default_factory=dict)
    parts: dict[tuple[frozenset[str], int], Remembered] = field(default_factory=dict)
    derived: str = ""
    author: str = ""
    alike: bool = False

    @functools.cached_property
    def facts(self) -> Facts:
        """What is true of it; ParseError for a mistake that the facts show."""
        facts = proved(self.ir)
        return replace(facts, fixed=()) if self.alike else facts

    @functools.cached_property
    def meaning(self) -> str:
        """Equal, in any process, where the text and all that was read with it are."""
        return digest(*self.texts, *self.reads)

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments that are tensors, in order."""
        return tuple(p.name for p in self.ir.params if p.tensor is not None)

    def derivative(self, wanted: frozenset[str]) -> Derivative:
        """The derived gradient; GradientError, at the author's line, where there is none."""
        if wanted not in self.derivatives:
            with our_fault(self.ir.name, self.ir.loc):
                self.derivatives[wanted] = derive(self.ir, self.facts, wanted, self.author)
        return self.derivatives[wanted]

    def rewritten(
        self, ir: KernelIR, element: tuple[Remembered, Collection[str]] | None = None
    ) -> Remembered:
        """A kernel that was made of it: a batch of this element, or what one device runs."""
        return replace(self, ir=ir, element=element, specs=None, derivatives={}, parts={})

    def part(self, wanted: frozenset[str], n: int) -> Remembered:
        """One kernel of the derived gradient: FORWARD, or a launch of the backward program."""
        if (wanted, n) not in self.parts:
            derivative = self.derivative(wanted)
            ir = derivative.forward if n == FORWARD else derivative.launches[n].kernel
            derived = "forward" if n == FORWARD else "backward"
            author = self.author or self.ir.name
            alike = not self.facts.fixed
            own = replace(self.rewritten(ir), derived=derived, author=author, alike=alike)
            self.parts[wanted, n] = self if ir is self.ir else own
        return self.parts[wanted, n]


def refuse_registered(ir: KernelIR, registered: bool) -> None:
    """GradientError for a batch whose elements have a backward that their author wrote."""
    if registered:
        raise GradientError(
            f"the backward that is registered for {ir.name} is of one element, not of a batch",
            hint="use jax.vmap or torch.func.vmap of the kernel itself",
        )
