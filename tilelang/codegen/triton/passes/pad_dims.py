"""Pad dims: a static length that Triton has no tile of becomes an axis of its own.

    x[t, 0:200]   ->   x[t, full200]        200 positions in 256 lanes

Tiles have a power of two of lanes, and a product sums over at least 16, or 32 of one byte.  As an
axis, such a length is masked by the same rules as the last tile of a loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilelang.ir import Apply, Dim, Expr, KernelIR, Span, Type, every_expr, statements
from tilelang.ir.names import fresh, names_in
from tilelang.ir.traversal import rebuilding
from tilelang.language.dtypes import itemsize


def least(product: Apply) -> int:
    """Positions that one matrix instruction sums over, of operands like these."""
    return 32 if itemsize(product.args[0].type.dtype) == 1 else 16


@dataclass(frozen=True)
class Padded:
    """A dimension of `size` positions in `lanes` lanes."""

    size: int
    lanes: int


@dataclass(frozen=True)
class PaddedIR:
    """The kernel with named dimensions, and what each of them stands for."""

    ir: KernelIR
    dims: Mapping[str, Padded]

    def named(self, size: int) -> Dim:
        """The dimension of a static part of that many positions."""
        return next((name for name, d in self.dims.items() if d.size == size), size)


def power_of_two(n: int) -> int:
    """The least power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()


def pad_dims(ir: KernelIR) -> PaddedIR:
    """The kernel in which every length left is a power of two that products can sum over."""
    exprs = list(every_expr(ir.body))
    sizes = {d for e in exprs for d in e.type.shape if isinstance(d, int)}
    sizes |= {
        i.stop - i.start
        for s in statements(ir.body)
        for i in getattr(s, "index", ())
        if isinstance(i, Span)
    }
    short: dict[int, int] = {}
    for dim, lanes in (found for e in exprs for found in _summed(e)):
        if isinstance(dim, int) and 1 < dim < lanes:
            short[dim] = max(lanes, short.get(dim, 0))
    taken = names_in(ir)
    dims = {
        fresh(f"full{n}", taken): Padded(n, max(power_of_two(n), short.get(n, 1)))
        for n in sorted(sizes)
        if n and (n & (n - 1) or n in short)
    }
    named = PaddedIR(ir, dims)
    return replace(named, ir=_renamed(ir, named)) if dims else named


def _summed(expr: Expr) -> tuple[tuple[Dim, int], ...]:
    """The dimension that a product sums over, as both operands have it, and its least lanes."""
    if not (isinstance(expr, Apply) and expr.op == "dot"):
        return ()
    contract: tuple[int, int] = expr.attr("contract")
    dims = (a.type.shape[d] for a, d in zip(expr.args, contract, strict=True))
    return tuple((dim, least(expr)) for dim in dims)


def _renamed(ir: KernelIR, named: PaddedIR) -> KernelIR:
    def change(expr: Expr) -> Expr | None:
        dims = expr.type.shape
        shape = tuple(named.named(d) if isinstance(d, int) else d for d in dims)
        return None if shape == dims else replace(expr, type=Type(shape, expr.type.dtype))

    return ir.mapped(rebuilding(change))
