"""certain(ir) -> the loads and stores that happen wherever the loops around them run.

Each is a tensor with an index, of which the call asks whether it stays inside; `Limit` is one
dimension of it, as the bound of a position.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

from ..analysis.placed import Place, placed
from ..errors import Loc
from ..ir import (
    Expr,
    Index,
    KernelIR,
    Load,
    Loop,
    Store,
    definitions,
    inlined,
    loads,
    map_index,
    statement_exprs,
)
from .points import Where, tested


@dataclass(frozen=True)
class Limit:
    """A dimension of a tensor, as the bound of a position; `order` is the tensor's place."""

    tensor: str
    dim: int
    rank: int
    size: int
    order: int
    loc: Loc | None = field(default=None, compare=False)  # of the reference

    @property
    def unit(self) -> str:
        """What one position of the dimension is called."""
        if self.dim == 0:
            return "rows" if self.rank > 1 else "elements"
        return "columns" if self.rank == 2 else f"positions (dimension {self.dim})"

    def __str__(self) -> str:
        return f"the {self.size} {self.unit} of {self.tensor}"


@dataclass(frozen=True)
class CheckedReference:
    """A tensor and its index that are evaluated whenever the loops around it run.

    where  and these conditions hold
    """

    tensor: str
    index: tuple[Index, ...]
    around: Place
    loc: Loc | None
    where: Where = frozenset()

    def map(self, fn: Callable[[Expr], Expr]) -> CheckedReference:
        where = frozenset((fn(condition), holds) for condition, holds in self.where)
        return replace(self, index=tuple(map_index(e, fn) for e in self.index), where=where)

    @property
    def asked(self) -> frozenset[str]:
        """Axes of whose tiles the conditions ask."""
        return frozenset(axis for condition, _ in self.where for axis in tested(condition))

    def limit(self, dim: int, ir: KernelIR) -> Limit:
        """The dimension as a bound."""
        tensor = ir.tensor(self.tensor)
        shape, order = tensor.shape, ir.tensors.index(tensor)
        return Limit(tensor.name, dim, len(shape), shape[dim], order, self.loc)


def evident(references: Iterable[CheckedReference], ir: KernelIR) -> Iterator[CheckedReference]:
    """The same with the names in indices and conditions written out."""
    values = definitions(ir.body)
    yield from (found.map(lambda expr: inlined(expr, values)) for found in references)


def certain(ir: KernelIR) -> Iterator[CheckedReference]:
    """Loads and stores that happen wherever their mask, if it is a scalar, holds.

    The frontend turns a dynamic `if` into such masks.  A select excuses nothing: both of its arms
    are read, here as in the reference.  A mask of lanes may leave out any of them.
    """
    bounds = {a.name: (a.begin, a.end) for a in ir.axes}
    for stmt, around in placed(ir.body):
        here = [(e, around) for e in statement_exprs(stmt)]
        if isinstance(stmt, Loop):
            inside = (*around, stmt.axis)
            here = [(e, around) for e in (*bounds[stmt.axis], *(c.init for c in stmt.carries))]
            here += [(c.next, inside) for c in stmt.carries]
        elif isinstance(stmt, Store):
            yield from _masked(stmt, around, stmt.loc)
        for expr, place in here:
            for load in loads(expr):
                yield from _masked(load, place, load.loc or stmt.loc)


def _masked(access: Load | Store, around: Place, loc: Loc | None) -> Iterator[CheckedReference]:
    if access.mask is None:
        yield CheckedReference(access.tensor, access.index, around, loc)
    elif not access.mask.type.rank:
        where = frozenset({(access.mask, True)})
        yield CheckedReference(access.tensor, access.index, around, loc, where)
