"""Uses: which dimensions of which arrays every axis indexes, in program order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ..errors import Loc
from ..ir import (
    Along,
    Apply,
    At,
    Expr,
    Gather,
    Index,
    KernelIR,
    Load,
    Stmt,
    Store,
    Var,
    statement_exprs,
    walk,
)
from ..ir.traversal import loads, statements
from ..language.dtypes import itemsize
from ..language.op import ELEMENTWISE

# what a number can be computed by beside others, each of its own lane
OF_LANES = ELEMENTWISE | {"in_range", "arange", "broadcast", "expand_dims"}


@dataclass(frozen=True)
class Use:
    """A tensor dimension that a tile axis moves along; `place` counts dimensions from the last."""

    tensor: str
    dim: int
    size: int
    place: int
    itemsize: int
    offset: Expr | None
    written: bool
    loose: bool = False


@dataclass(frozen=True)
class IndexedSite:
    """One load or store: the statement at `loc` reads `index` of a tensor, or writes it.

    picks  what is asked for each row by itself: where it is, and whether it is stored
    """

    tensor: str
    index: tuple[Index, ...]
    written: bool
    loc: Loc
    picks: tuple[Expr, ...]


def references(body: Iterable[Stmt]) -> Iterator[IndexedSite]:
    """Every load and store, in program order."""
    for stmt in statements(tuple(body)):
        for expr in statement_exprs(stmt):
            for load in loads(expr):
                yield IndexedSite(load.tensor, load.index, False, stmt.loc, picks(load))
        if isinstance(stmt, Store):
            yield IndexedSite(stmt.tensor, stmt.index, True, stmt.loc, picks(stmt))


def uses_of(
    ir: KernelIR,
    found: Iterable[IndexedSite],
    as_tile: Callable[[Index], Index] = lambda entry: entry,
) -> dict[str, tuple[Use, ...]]:
    """The dimensions that every axis indexes, at whatever offset, without repeats.

    as_tile  the tile that a single position of a block is a row of, where it is one
    """
    out: dict[str, dict[Use, None]] = {}
    for reference in found:
        tensor, index = ir.tensor(reference.tensor), reference.index
        blocks = reference.written or not all(isinstance(e, At) for e in index)
        for dim, entry in enumerate(index):
            entry = as_tile(entry) if blocks else entry
            if isinstance(entry, Along):
                use = Use(
                    tensor.name, dim, tensor.shape[dim], _place(index, dim),
                    itemsize(tensor.dtype), entry.offset, reference.written, entry.loose,
                )  # fmt: skip
                out.setdefault(entry.axis, {})[use] = None
    return {axis: tuple(each) for axis, each in out.items()}


def cut(every: Iterable[Use]) -> tuple[Use, ...]:
    """Of the dimensions that an axis indexes those that it cuts into tiles.

    Those are the ones that it indexes at one offset: where it is stored to, else where it begins.
    What it may leave has no say.
    """
    found = tuple(u for u in every if not u.loose or u.written)
    stored = [u.offset for u in found if u.written]
    plain = [None] if any(u.offset is None for u in found) else [u.offset for u in found]
    return tuple(u for u in found if u.offset == (stored or plain)[0])


def _place(index: tuple[Index, ...], dim: int) -> int:
    """The dimension counted from the last one, once single positions have moved to the front."""
    picked = [isinstance(entry, At) for entry in index]
    if any(picked[-2:]) and sum(picked) <= len(index) - 2:
        return 1 + picked[dim + 1 :].count(False)
    return len(index) - dim


def picks_rows(index: Iterable[object]) -> bool:
    """Whether an index array picks positions of a dimension."""
    return any(isinstance(entry, Gather) for entry in index)


def picks(site: Load | Store) -> tuple[Expr, ...]:
    """What is asked for each row by itself; rows are loaded without their mask, and then masked."""
    positions = tuple(entry.expr for entry in site.index if isinstance(entry, Gather))
    mask = site.mask if isinstance(site, Store) else None
    return positions if mask is None or not positions else (*positions, mask)


def reads_memory(expr: Expr) -> bool:
    """Whether a position is known only when the kernel runs."""
    return next(loads(expr), None) is not None


def of_vectors(expr: Expr) -> bool:
    """Whether it has what no scalar memory has: a result of whole vectors, or a carried value."""
    for part in walk(expr):
        match part:
            case Var():
                return True
            case Apply(op, args) if op not in OF_LANES and not (op == "full" and not args):
                return True
            case _:
                pass
    return False
