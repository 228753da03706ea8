"""Looked up: what selects pick from a table, number by number, at positions that are a block.

    at = where(rel >= 1, bias[h, 1], bias[h, 0])
    at = where(rel >= 2, bias[h, 2], at) ...        number bias[h, clamp(rel, 0, 255)] of each lane

So the language says it, and so it is computed where nothing else is better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tilelang.ir import (
    Apply,
    Assign,
    At,
    Const,
    Expr,
    KernelIR,
    Load,
    Span,
    Stmt,
    Type,
    Var,
    integers,
)
from tilelang.ir.traversal import map_body
from tilelang.passes.drop_unused import drop_unused


@dataclass(frozen=True)
class LookedUp:
    """Numbers first ... last along a dimension of a table, at positions clamped to these.

    number  the last of them, as it is loaded and cast
    """

    number: Expr
    place: Expr
    dim: int
    first: int
    last: int

    @property
    def load(self) -> Load:
        found = load_of(self.number)
        assert found is not None
        return found

    def is_whole(self, kernel: KernelIR) -> bool:
        """Whether it is of all numbers of the table along that dimension."""
        size = kernel.tensor(self.load.tensor).shape[self.dim]
        return (self.first, self.last) == (0, size - 1)

    def row(self, tensor: str, length: int) -> Expr:
        """The first numbers along the dimension of a tensor like the table, cast as one is."""
        load, dim = self.load, self.dim
        index = (*load.index[:dim], Span(0, length), *load.index[dim + 1 :])
        row = replace(load, tensor=tensor, index=index, type=Type((length,), load.type.dtype))
        if self.number is load:
            return row
        return Apply("cast", (row,), Type((length,), self.number.type.dtype))

    def applied(self, op: str, *args: Expr) -> Expr:
        """An operation of a back end in place of the last select."""
        kind = replace(self.number.type, shape=self.place.type.shape)
        return Apply(op, args, kind, (), self.load.loc)


def with_tables(kernel: KernelIR, made: Callable[[LookedUp], Expr | None]) -> KernelIR:
    """The kernel with what `made` gives in place of selects, which may be none.

    Tables that it stores to stay: they are read when the selects are.
    """
    stored = kernel.stored()
    found: dict[str, LookedUp] = {}

    def change(stmt: Stmt) -> tuple[Stmt, ...]:
        if not isinstance(stmt, Assign):
            return (stmt,)
        picked = looked_up(stmt.value, found)
        if picked is None or kernel.root(picked.load.tensor) in stored:
            return (stmt,)
        found[stmt.name] = picked
        value = made(picked)
        return (stmt if value is None else replace(stmt, value=value),)

    body = map_body(kernel.body, change)
    if body == kernel.body:
        return kernel
    return replace(kernel, body=drop_unused(body, kernel.axes, found.keys()))


def looked_up(value: Expr, found: Mapping[str, LookedUp]) -> LookedUp | None:
    """What a select picks: the next number of those that are picked so far, or one of two.

    found  what names that were assigned before pick
    """
    match value:
        case Apply("where", (Apply("ge", (place, Const(least))), number, other)):
            pass
        case _:
            return None
    before = found.get(other.name) if isinstance(other, Var) else None
    if before is not None and before.place == place and before.last + 1 == least:
        if _next_dim(before.number, number, int(least)) != before.dim:
            return None
        return replace(before, number=number, last=before.last + 1)
    match other:
        case Apply("full" | "broadcast", (first,)):
            dim = _next_dim(first, number, int(least))
            return None if dim is None else LookedUp(number, place, dim, int(least) - 1, int(least))
        case _:
            return None


def _next_dim(before: Expr, number: Expr, place: int) -> int | None:
    """The dimension along which a number, at `place`, is the next one of a table."""
    one, other = load_of(before), load_of(number)
    if one is None or other is None or before.type != number.type or one.mask or other.mask:
        return None
    moved = [n for n, (a, b) in enumerate(zip(one.index, other.index)) if a != b]
    if one.tensor != other.tensor or len(moved) != 1 or one.type.shape:
        return None
    wanted = At(integers.const(place - 1)), At(integers.const(place))
    return moved[0] if (one.index[moved[0]], other.index[moved[0]]) == wanted else None


def load_of(number: Expr) -> Load | None:
    """The load of a number that may be cast."""
    match number:
        case Load():
            return number
        case Apply("cast", (Load() as load,)):
            return load
        case _:
            return None
