"""Width: how wide a program is, which the defaults choose and every stage of the plan reads."""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.codegen.triton.target import Target

from .pipe import Pipe


@dataclass(frozen=True)
class Width:
    """How wide a program is, and how it multiplies float32.

    interiors  whether loops of products are cut into tiles without masks and the rest: not where
               all registers are taken, of which two loops need more (attention backward, and
               attention where warps multiply by themselves)
    flat       whether each program takes one result after another, as one loop
    resident   how many programs stay on a processor, if each takes several; 0: one for each result
    paired     whether operands in flight leave shared memory for a second program: fewer are, then
    boxes      whether descriptors copy operands, though nothing is copied ahead
    repeats    whether it takes several at all
    registers  what each thread of a launch with products may take; None: what the compiler thinks
    tight      whether so little is left that rows of any length are multiplied in parts
    """

    warps: int
    stages: int
    precision: str
    products: bool
    interiors: bool = True
    flat: bool = False
    resident: int = 0
    paired: bool = False
    boxes: bool = False
    registers: int | None = None
    repeats: bool = False
    tight: bool = False

    def pipe(self, target: Target) -> Pipe:
        """How operands reach the products."""
        form = {"repeats": self.repeats, "tight": self.tight}
        return Pipe(target, self.warps, self.stages, self.precision, **form)
