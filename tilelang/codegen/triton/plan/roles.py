"""Roles: what the axes of a kernel do in its products."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from tilelang import ir
from tilelang.codegen.triton.passes.pad_dims import power_of_two
from tilelang.ir import definitions, every_expr, every_store, multiplied
from tilelang.ir.traversal import dots
from tilelang.language.dtypes import itemsize


@dataclass(frozen=True)
class Roles:
    """What the axes of a kernel do in its products.

    fused     a product is an operand of another one, as in attention
    itemsize  bytes of the widest operand of any: beside products of float32 others are cheap
    """

    of: Mapping[str, frozenset[str]]  # tile axis -> of "rows", "columns", "summed", "batch"
    count: int
    fused: bool
    itemsize: int

    @property
    def backward(self) -> bool:
        """So many results and operands that registers hold small blocks of them."""
        return self.fused and self.count >= 4


def products(kernel: ir.KernelIR) -> list[ir.Apply]:
    """Every product of the kernel."""
    return list(dots(every_expr(kernel.body)))


def summed(dot: ir.Apply) -> ir.Dim:
    """The dimension that a product sums over."""
    contract: tuple[int, int] = dot.attr("contract")
    return dot.args[0].type.shape[contract[0]]


def widest(kernel: ir.KernelIR, over: str | None = None) -> int:
    """Columns of the widest result that no block cuts; of those that are sums over an axis."""
    dots = (dot for dot in products(kernel) if over in (None, summed(dot)))
    columns = (dot.type.shape[-1] for dot in dots)
    return max((power_of_two(dim) for dim in columns if isinstance(dim, int)), default=1)


def sums_scores(kernel: ir.KernelIR, found: Roles) -> bool:
    """Whether scores are sums over tiles, beside which registers hold wide results of 64 rows.

    By the compiler's figures for 512 columns on 8 warps of sm_90: of 64 rows, which warps multiply
    together, none spill beside up to 32 keys, or pages of 64; of scores of whole rows 536 bytes.
    """
    own = [axis for axis, role in found.of.items() if role == {"summed"}]
    return found.fused and any(widest(kernel, axis) < widest(kernel) for axis in own)


def longest_row(kernel: ir.KernelIR) -> int:
    """Numbers beside each position of a tile in the longest value that is no product's."""
    made = definitions(kernel.body)

    def numbers(value: ir.Apply) -> int:
        whole = [d for d in value.type.shape if isinstance(d, int)]
        return prod(map(power_of_two, whole)) if len(whole) < value.type.rank else 1

    rows = [e for e in every_expr(kernel.body) if isinstance(e, ir.Apply) and numbers(e) > 1]
    for row in sorted(rows, key=numbers, reverse=True):
        if not multiplied(row, made):
            return numbers(row)
    return 1


def roles(kernel: ir.KernelIR) -> Roles:
    """The roles of all axes, read off the products."""
    found: dict[str, set[str]] = {}
    dots = products(kernel)
    for dot in dots:
        contract: tuple[int, int] = dot.attr("contract")
        batch: tuple = dot.attr("batch", ((), ()))
        sides = zip(dot.args, contract, batch, ("rows", "columns"), strict=True)
        for operand, along, repeated, free in sides:
            for place, dim in enumerate(operand.type.shape):
                role = "summed" if place == along else "batch" if place in repeated else free
                if isinstance(dim, str):
                    found.setdefault(dim, set()).add(role)
    fused = any("summed" in r and r & {"rows", "columns"} for r in found.values()) or any(
        a is not b and summed(a) in b.type.shape for a in dots for b in dots
    )
    widest = max((itemsize(d.args[0].type.dtype) for d in dots), default=4)
    return Roles({a: frozenset(r) for a, r in found.items()}, len(dots), fused, widest)


def minor(kernel: ir.KernelIR, axis: str) -> int:
    """How far from the last dimension an axis indexes arrays: 0 is contiguous."""
    indices = [e.index for e in every_expr(kernel.body) if isinstance(e, ir.Load)]
    indices += [s.index for s in every_store(kernel.body)]
    ranked = [i for i in indices if len(i) > 1] or indices
    places = [
        len(index) - 1 - d
        for index in ranked
        for d, entry in enumerate(index)
        if (isinstance(entry, ir.Along) and entry.axis == axis)
        or (isinstance(entry, ir.Gather) and entry.expr.type.shape == (axis,))
    ]
    return min(places, default=9)


def scattered(kernel: ir.KernelIR) -> frozenset[str]:
    """Axes whose tiles say where rows are stored, of which the last one for a place stays."""
    stores = (s for s in every_store(kernel.body) if s.combine is None)
    picks = (i.expr.type.shape for s in stores for i in s.index if isinstance(i, ir.Gather))
    return frozenset(d for shape in picks for d in shape if isinstance(d, str))
