"""Beside: several iterations of the last grid dimension that are one step.  Data only."""

from __future__ import annotations

from dataclasses import dataclass

from tilelang.ir import Apply, Expr, GridIndex, Type, Var, integers
from tilelang.ir.integers import INT

from .axis import AxisPlan
from .physical import PStmt

LATER = Var("beside.later", INT)  # how many iterations behind the first one of a step


@dataclass(frozen=True)
class Beside:
    """How a step has several iterations: with loops, or without where each turns once at most.

    axis, total  the dimension, and how many iterations it has
    count        of those in a step
    short        the loops as they are then, with tiles that most ranges fit
    turns        how often the one turns that does so most often, over the lines of `ends`
    ends         loops whose ranges these are: those of the same range are alike
    body         the statements with short loops
    """

    axis: str
    total: int
    count: int
    short: tuple[AxisPlan, ...]
    turns: Expr
    ends: tuple[AxisPlan, ...]
    body: tuple[PStmt, ...]

    @property
    def whole(self) -> bool:
        """Whether every step has as many."""
        return self.total % self.count == 0

    @property
    def later(self) -> Expr:
        """The index of one of them: of the last there is, for those that there are not."""
        index: Expr = integers.add(GridIndex(self.axis), LATER)
        return index if self.whole else integers.minimum(index, self.total - 1)

    @property
    def stop(self) -> Expr:
        """The first index behind those of the step."""
        index = integers.add(GridIndex(self.axis), integers.const(self.count))
        return index if self.whole else integers.minimum(index, self.total)

    @property
    def there(self) -> Expr:
        """Whether the step has as many as others, where not all have."""
        last = integers.add(GridIndex(self.axis), integers.const(self.count))
        return Apply("le", (last, integers.const(self.total)), Type((), "bool"))
