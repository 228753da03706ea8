"""Gather tables: numbers that selects pick from a table are one load at positions that are a block.

    at = where(rel >= 1, bias[h, 1], bias[h, 0])
    at = where(rel >= 2, bias[h, 2], at) ...        ->   at = bias[h, clamp(rel, 0, 255)]

A GPU loads each lane from an address of its own.  By the compiler's figures for scores of 64 x 64,
selects from tables of 256 and of 64 numbers kept so much in registers that 2,080 bytes spilled on
sm_90.  Selects from a few numbers stay: they wait for no memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilelang.ir import Apply, Assign, At, Const, Expr, Gather, KernelIR, Load, Stmt, Var, integers
from tilelang.ir.traversal import map_body
from tilelang.passes.drop_unused import drop_unused

from .explicit_casts import apply

FEW = 4  # numbers that selects pick from: a guess, as nothing was timed


@dataclass(frozen=True)
class _Picked:
    """Numbers first ... last along a dimension of a table, at positions clamped to these.

    number  the last of them, as it is loaded and cast
    """

    number: Expr
    place: Expr
    dim: int
    first: int
    last: int

    @property
    def several(self) -> bool:
        return self.last - self.first >= FEW

    def loaded(self) -> Expr:
        """All lanes at once."""
        shape = self.place.type.shape
        held = integers.clamped(self.place, self.last + 1, self.first)
        load = _load_of(self.number)
        assert load is not None
        index = (*load.index[: self.dim], Gather(held), *load.index[self.dim + 1 :])
        made = replace(load, index=index, type=replace(load.type, shape=shape))
        return (
            made if self.number is load else apply("cast", (made,), self.number.type.dtype, shape)
        )


def gather_tables(ir: KernelIR) -> KernelIR:
    """The kernel with those loads; tables that it stores to are read when the selects are."""
    stored = ir.stored()
    found: dict[str, _Picked] = {}

    def change(stmt: Stmt) -> tuple[Stmt, ...]:
        if not isinstance(stmt, Assign):
            return (stmt,)
        picked = _picked(stmt.value, found)
        if picked is None or ir.root(_table(picked)) in stored:
            return (stmt,)
        found[stmt.name] = picked
        return (replace(stmt, value=picked.loaded()) if picked.several else stmt,)

    body = map_body(ir.body, change)
    if not any(picked.several for picked in found.values()):
        return ir
    return replace(ir, body=drop_unused(body, ir.axes))


def _table(picked: _Picked) -> str:
    load = _load_of(picked.number)
    assert load is not None
    return load.tensor


def _picked(value: Expr, found: Mapping[str, _Picked]) -> _Picked | None:
    """What a select picks: the next number of those that are picked so far, or one of two."""
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
            return None if dim is None else _Picked(number, place, dim, int(least) - 1, int(least))
        case _:
            return None


def _next_dim(before: Expr, number: Expr, place: int) -> int | None:
    """The dimension along which a number, at `place`, is the next one of a table."""
    one, other = _load_of(before), _load_of(number)
    if one is None or other is None or before.type != number.type or one.mask or other.mask:
        return None
    moved = [n for n, (a, b) in enumerate(zip(one.index, other.index)) if a != b]
    if one.tensor != other.tensor or len(moved) != 1 or one.type.shape:
        return None
    wanted = At(integers.const(place - 1)), At(integers.const(place))
    return moved[0] if (one.index[moved[0]], other.index[moved[0]]) == wanted else None


def _load_of(number: Expr) -> Load | None:
    match number:
        case Load():
            return number
        case Apply("cast", (Load() as load,)):
            return load
        case _:
            return None
