"""beside_sums(kernel): whether a loop changes a product before it adds it to what it carries.

acc = acc + dot(x, w) * scale      registers hold the product beside the sum of all before it
acc = acc + dot(x, w)              they hold the sum alone, which the product begins with
"""

from __future__ import annotations

from collections.abc import Mapping

from tilelang.ir import Apply, Carry, Expr, KernelIR, definitions, every_loop, meant, reached
from tilelang.ir.traversal import dots


def beside_sums(kernel: KernelIR) -> bool:
    """Whether any does, of a product that is as large as what is carried."""
    made = definitions(kernel.body)
    carries = (carry for loop in every_loop(kernel.body) for carry in loop.carries)
    return any(_is_changed(c, made) for c in carries if c.init.type.rank > 1)


def _is_changed(carry: Carry, made: Mapping[str, Expr]) -> bool:
    """Whether what is carried next is made of a product like it otherwise than by a sum of both."""
    value, shape = meant(carry.next, made), carry.init.type.shape
    terms = value.args if isinstance(value, Apply) and value.op == "add" else (value,)
    if any(dots(meant(term, made) for term in terms)):
        return False
    return any(dot.type.shape == shape for dot in dots(reached(value, made)))
