"""refuse(facts): raises the first mistake of the author's that the facts prove."""

from __future__ import annotations

from ..errors import ParseError
from ..ir import KernelIR
from .facts import Facts, FoldFact, OrderFact, StoreFact
from .sentences import listed

FIXED = "hl.tile(..., block_size=...)"


def refuse(ir: KernelIR, facts: Facts) -> None:
    """ParseError for a position outside of its array, or a result that depends on a block size."""
    for place in facts.positions:
        if place.kind == "refused":
            raise ParseError(place.why, place.loc, place.hint)
    for store in facts.stores:
        if store.varies:
            what, hint = _store(store, listed(ir.axis(a).user for a in store.varies))
            raise ParseError(what, store.loc, hint)
        if store.squares:
            users = listed(ir.axis(a).user for a in store.squares)
            raise ParseError(
                f"{users} is the position in two dimensions of {store.tensor}, and the value knows "
                f"one: which pairs it is stored at would depend on the block of {users}",
                store.loc,
                "for one place each, make both dimensions one, store at row * columns + column and "
                f"return the reshape; or say which places in a mask, or fix the tiles: {FIXED}",
            )
    for fold in facts.folds:
        what, hint = _fold(fold, ir.axis(fold.axis).user)
        raise ParseError(what, fold.loc, hint)
    for lag in facts.lags:
        user = ir.axis(lag.axis).user
        raise ParseError(
            f"{lag.into} is what {lag.of} was one tile of {user} earlier: the result would depend "
            f"on the block of {user}",
            lag.loc,
            f"take what {lag.of} is after the loop of {user}, or fix the tiles: {FIXED}",
        )
    for order in facts.orders:
        what, hint = _order(order, ir)
        raise ParseError(what, order.loc, hint)
    for store in facts.stores:
        if store.cut:
            what, hint = _store(store, listed(ir.axis(a).user for a in store.cut))
            raise ParseError(what, store.loc, hint)


def _store(store: StoreFact, user: str) -> tuple[str, str]:
    """What is wrong, and what to do."""
    would, tensor = f"the result would depend on the block of {user}", store.tensor
    if store.folds:
        return (
            f"{tensor} takes in one value for every tile of {user}, which is not the {store.folds} "
            f"of those of its positions: {would}",
            f"take in the {store.folds} over {user} alone, and compute what is made of it, such as "
            f"a root or a mean, after the loop of {user}; or fix the tiles: {FIXED}",
        )
    if store.varies or store.again:
        return (
            f"every tile of {user} stores to the same elements of {tensor}, and another value: "
            f"{would}",
            f"store what the loop of {user} carries after it, or fix the tiles: {FIXED}"
            if store.again
            else f"carry the value over the loop, or use hl.atomic_add({tensor}, ...)",
        )
    return (
        f"{tensor} at one position of {user} goes by which others are in its tile: {would}",
        f"leave out those that it must not see, hl.where(..., 0), carry what goes over several "
        f"tiles, give each tile a place, [{user}.id], or fix the tiles: {FIXED}",
    )


def _fold(fold: FoldFact, user: str) -> tuple[str, str]:
    """What is wrong, and what to do."""
    into, would = fold.into, f"the result would depend on the block of {user}"
    once = f"do it once, outside of the loop of {user}, or"
    match fold.op, fold.what:
        case "last", _:
            return (
                f"{into} is what the last tile of {user} made, and none before it: {would}",
                f"fold it, {into} = {into} + ... or hl.maximum({into}, ...), store it for each "
                f"tile, or fix the tiles: {FIXED}; the last position is {user}.end - 1",
            )
        case "tie", _:
            return (
                f"{into} goes by which of several equal numbers are in one tile of {user}: {would}",
                f"keep of equal ones the first, > and the least {user}.index of a tile, or the "
                f"last, >= and the greatest {user}.index, or put what they have together where "
                f"both are equal; or fix the tiles: {FIXED}",
            )
        case "change", _:
            return (
                f"{into} is changed once for every tile of {user}: {would}",
                f"{once} fix the tiles: {FIXED}",
            )
        case _, "value":
            return (
                f"{into} takes in the same value once for every tile of {user}, as a {fold.op}: "
                f"{would}",
                f"{once} for every position: times ({user}.end - {user}.begin)",
            )
        case _:
            return (
                f"{into} takes in the {fold.what} of the tile once for every tile of {user}, as a "
                f"{fold.op}: {would}",
                f"fold by one operation: a {fold.op} over tiles of a {fold.op} over {user}",
            )


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
        who = f"{tensor} is read and then stored to, and {two}"
        how = "store to another array, add with hl.atomic_add"
    else:
        who = f"two statements may touch the same element of {tensor} at different {user}"
        how = f"write a loop over {user} for each of them"
    return (
        f"{who}: which of them is first would depend on the block of {user}",
        f"{how}, or fix the tiles: {FIXED}",
    )
