"""What a loop carries in registers besides adding products up: a state, results that are scaled.

o = dot(q[t], state); state = state + dot(k[t].T, v[t])      16384 elements of a state
acc = acc * c[:, None] + dot(p, v[tk])                       1 result that is scaled
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

from tilelang.codegen.triton.passes.pad_dims import power_of_two
from tilelang.codegen.triton.target import WARP, Target
from tilelang.ir import Apply, Carry, Expr, KernelIR, Loop, Var, every_loop, meant, reached
from tilelang.ir.traversal import definitions

from .roles import Roles, products, widest
from .shapes import WIDEST

# Elements of a state, or of results, that take a quarter of the registers of 8 warps.
QUARTER = 64 * 8 * WARP
UNBOUNDED = 1 << 20


def most_keys(ir: KernelIR, target: Target) -> int:
    """The longest block along which a loop of four products and more carries what it does.

    By the compiler's figures for 64 of both axes, in bytes of stack: of a state of 128 x 128 that
    is a product's operand, 1,456 on sm_80 and 392 on sm_89, and of 16 rows none and 64; scaled as
    well, 1,944, 560 and 16 on sm_90; there 32 rows spill none.  Of two softmaxes over 64 columns,
    24 on sm_80 and 8 on sm_89, over 128 columns 8 on sm_90, and of 32 keys none.  Of 64 columns of
    a state of 128 rows 48 and 64, and of 32 rows none.
    """
    if target.columns:
        return UNBOUNDED  # results are elsewhere
    alone, quarter = target.matrix_warps == 1, state(ir) >= QUARTER
    results = scaled(ir)
    if quarter and alone:
        return 16
    wide = quarter or (results > 1 and widest(ir) * 64 * results >= QUARTER)
    several = alone and (results > 1 or tall(ir))
    return 32 if several or (results and wide) else UNBOUNDED


def beside(ir: KernelIR, found: Roles) -> bool:
    """Whether columns of a last product have a wide result of another one beside them.

    By the compiler's figures, 128 of them beside 128 spill 16 to 64 bytes, 64 none.
    """
    last = frozenset({"columns"}) in found.of.values()
    return found.fused and last and found.itemsize <= 2 and widest(ir) >= WIDEST


def is_latent(ir: KernelIR, target: Target) -> bool:
    """Whether scores are sums of two products, and results are scaled, beside tensor memory.

    By the compiler's figures on sm_100: 128 rows over 128 columns spill 120 bytes, 64 none; 64 rows
    over 256 columns spill 56, and none where nothing is copied ahead.
    """
    return target.columns > 0 and len(products(ir)) == 3 and scaled(ir) == 1


def state(ir: KernelIR) -> int:
    """Elements of the largest state that no block cuts."""
    return max(map(_size, states(ir)), default=0)


def tall(ir: KernelIR) -> bool:
    """Whether products sum over the many rows of a state."""
    dims = (d for carry in states(ir) for d in carry.init.type.shape)
    return any(isinstance(d, int) and d >= WIDEST for d in dims)


def decays(ir: KernelIR) -> bool:
    """Whether a state of many rows is scaled before products are added to it."""
    made = definitions(ir.body)
    return tall(ir) and any(_is_scaled(carry, made) for carry in states(ir))


def states(ir: KernelIR) -> list[Carry]:
    """The values that loops carry and products read."""
    made = definitions(ir.body)
    read = {e.name for dot in products(ir) for a in dot.args for e in _names(a, made)}
    return [carry for _, carry in _carried(ir) if carry.name in read]


def scaled(ir: KernelIR) -> int:
    """Of the loop that has most: results of products that it multiplies by what it finds."""
    made, found = definitions(ir.body), dict[str, int]()
    for loop, carry in _carried(ir):
        if _is_scaled(carry, made):
            found[loop.axis] = found.get(loop.axis, 0) + 1
    return max(found.values(), default=0)


def _carried(ir: KernelIR) -> Iterator[tuple[Loop, Carry]]:
    every = ((loop, carry) for loop in every_loop(ir.body) for carry in loop.carries)
    return ((loop, carry) for loop, carry in every if carry.next.type.rank > 1)


def _size(carry: Carry) -> int:
    dims = carry.next.type.shape
    static = [power_of_two(d) for d in dims if isinstance(d, int)]
    return prod(static) if len(static) == len(dims) else 0


def _names(expr: Expr, made: Mapping[str, Expr]) -> Iterator[Var]:
    return (e for e in reached(expr, made) if isinstance(e, Var))


def _is_scaled(carry: Carry, made: Mapping[str, Expr]) -> bool:
    value = meant(carry.next, made)
    if not (isinstance(value, Apply) and value.op == "add"):
        return False
    return any(
        isinstance(factor, Var) and factor.name == carry.name
        for term in value.args
        if isinstance(term, Apply) and term.op == "mul"
        for factor in term.args
    )
