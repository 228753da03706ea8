"""refuse(facts): raises the first mistake of the author's that the facts prove."""

from __future__ import annotations

from ..errors import ParseError
from ..ir import KernelIR
from .facts import Facts
from .sentences import listed


def refuse(ir: KernelIR, facts: Facts) -> None:
    """ParseError for a position outside of its array, or a result that depends on a block size."""
    for place in facts.positions:
        if place.kind == "refused":
            raise ParseError(place.why, place.loc, place.hint)
    for store in facts.stores:
        if store.varies:
            users = listed(ir.axis(a).user for a in store.varies)
            raise ParseError(
                f"every tile of {users} stores to the same elements of {store.tensor}, and another "
                f"value: the result would depend on the block of {users}",
                store.loc,
                f"store it after the loop of {users}, which carries a part of it"
                if store.again
                else f"carry the value over the loop, or use hl.atomic_add({store.tensor}, ...)",
            )
