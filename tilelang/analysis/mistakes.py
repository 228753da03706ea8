"""refuse(facts): raises the first mistake of the author's that the facts prove."""

from __future__ import annotations

from ..errors import ParseError
from ..ir import KernelIR
from .facts import Facts, OrderFact
from .sentences import listed


def refuse(ir: KernelIR, facts: Facts) -> None:
    """ParseError for a position outside of its array, or a result that depends on a block size."""
    for place in facts.positions:
        if place.kind == "refused":
            raise ParseError(place.why, place.loc, place.hint)
    for store in facts.stores:
        if store.varies:
            users = listed(ir.axis(a).user for a in store.varies)
            done = f"stores to the same elements of {store.tensor}, and another value"
            if store.variable:
                done = f"gives {store.tensor} another value, and the last one is read later"
            raise ParseError(
                f"every tile of {users} {done}: the result would depend on the block of {users}",
                store.loc,
                f"fold the values, as in {store.tensor} = {store.tensor} + ..., or fix the tiles: "
                f"hl.tile(..., block_size=...)"
                if store.variable
                else f"store it after the loop of {users}, which carries a part of it"
                if store.again
                else f"carry the value over the loop, or use hl.atomic_add({store.tensor}, ...)",
            )
    for fold in facts.folds:
        user = ir.axis(fold.axis).user
        same = fold.what == "value"
        what = "the same value" if same else f"the {fold.what} of the tile"
        change = fold.op == "change"
        done = "is changed" if change else f"takes in {what}"
        raise ParseError(
            f"{fold.into} {done} once for every tile of {user}"
            f"{'' if change else f', as a {fold.op}'}: "
            f"the result would depend on the block of {user}",
            fold.loc,
            f"do it once, outside of the loop of {user}, or fix the tiles: "
            f"hl.tile(..., block_size=...)"
            if change
            else f"do it once, outside of the loop of {user}, or for every position: "
            f"times ({user}.end - {user}.begin)"
            if same
            else f"fold by one operation: a {fold.op} over tiles of a {fold.op} over {user}",
        )
    for lag in facts.lags:
        user = ir.axis(lag.axis).user
        raise ParseError(
            f"{lag.into} is what {lag.of} was one tile of {user} earlier: the result would depend "
            f"on the block of {user}",
            lag.loc,
            f"take what {lag.of} is after the loop of {user}, or fix the tiles: "
            f"hl.tile(..., block_size=...)",
        )
    for order in facts.orders:
        what, hint = _order(order, ir)
        raise ParseError(what, order.loc, hint)


def _order(order: OrderFact, ir: KernelIR) -> tuple[str, str]:
    """What is wrong, and what to do."""
    user, tensor = ir.axis(order.axis).user, order.tensor
    if order.inner is not None:
        inner = ir.axis(order.inner).user
        two = f"two positions of {user}, in different {inner}"
        who = f"{two}, may touch the same element of {tensor}"
        how = f"write the loop of {inner} around that of {user}, use hl.atomic_add"
    elif order.before:
        two = f"two positions of {user} may touch the same element"
        who, how = f"{tensor} is read and then stored to, and {two}", "use hl.atomic_add"
    else:
        who = f"two statements may touch the same element of {tensor} at different {user}"
        how = f"write a loop over {user} for each of them"
    return (
        f"{who}: which of them is first would depend on the block of {user}",
        f"{how}, or fix the tiles: hl.tile(..., block_size=...)",
    )
