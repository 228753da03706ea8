"""Fold empty: what is made of nothing is made without loads.

    x[0:0, t].sum(0)   ->   full([t], 0)

Sums and products over a dimension of no elements are their neutral value; a tile that lies at
another position of an array without elements than the tile that a step is at has none of them, and
a single position never one: every lane of such a load is what the author gave for the lanes that
are not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..analysis.uses import cut, references, uses_of
from ..ir import Along, Apply, At, Expr, Gather, Index, KernelIR, Load, Scalar
from ..ir.traversal import reduced, rewrite_body

NEUTRAL = {"sum": 0, "dot": 0, "any": False, "all": True}


def fold_empty(ir: KernelIR) -> KernelIR:
    """The kernel in which nothing is read or reduced along a dimension of length zero."""
    if all(0 not in tensor.shape for tensor in ir.tensors):
        return ir
    uses = uses_of(ir, references(ir.body))
    offsets = {axis: {u.offset for u in cut(found)} for axis, found in uses.items()}

    def change(expr: Expr) -> Expr | None:
        match expr:
            case Apply(op) if op in NEUTRAL and _over_nothing(expr):
                value = NEUTRAL[op]
            case Load() if _nowhere(ir, expr, offsets):
                value = _absent(expr)
            case _:
                return None
        return Apply("full", (), expr.type, (("value", value),), expr.loc)

    return replace(ir, body=rewrite_body(ir.body, change))


def _absent(load: Load) -> Scalar:
    """What lanes are that are not there."""
    return load.other


def _nowhere(ir: KernelIR, load: Load, offsets: Mapping[str, set[Expr | None]]) -> bool:
    """Whether nothing is there to be read, and another array says where tiles are.

    Under a mask it always does: what is read there cuts no range.
    """
    sizes, masked = ir.tensor(load.tensor).shape, load.mask is not None
    return any(
        _outside(entry, offsets, masked)
        for entry, n in zip(load.index, sizes, strict=True)
        if n == 0
    )


def _outside(entry: Index, offsets: Mapping[str, set[Expr | None]], masked: bool) -> bool:
    """Whether an index of a dimension of length zero picks nothing of it, in any step."""
    match entry:
        case Along(axis, offset):
            return masked or offset not in offsets[axis]
        case At() | Gather():
            return True
        case _:
            return False


def _over_nothing(expr: Apply) -> bool:
    return any(arg.type.shape[dim] == 0 for arg, dim in reduced(expr))
