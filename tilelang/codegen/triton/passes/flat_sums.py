"""Flat sums: a loop that adds up products of a batch of one carries a matrix.

    for k carrying acc = full([b, m, n]):            for k carrying acc = full([m, n]):
        next acc = acc + reshape(multiply(x, w))  ->     next acc = multiply(x, w, acc)
    y[b, m, n] = acc                                 y[b, m, n] = reshape(acc, [b, m, n])

With the reshape between product and sum the compiler waits for every product, and adds it to
results of its own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from tilelang.ir import (
    Apply,
    Assign,
    Body,
    Carry,
    Expr,
    KernelIR,
    Loop,
    Stmt,
    Var,
    exprs_of,
    read_by,
)
from tilelang.ir.names import names_in, take
from tilelang.ir.traversal import definitions, map_body


def flat_sums(ir: KernelIR) -> KernelIR:
    """The kernel with such carries in the dimensions of the product."""
    found = _Flattening(definitions(ir.body), Counter(read_by(exprs_of(ir.body))), names_in(ir))
    return replace(ir, body=map_body(ir.body, found.changed))


@dataclass(frozen=True)
class _Flattening:
    """What names stand for, how often each is read, and which are taken."""

    defined: dict[str, Expr]
    uses: Counter[str]
    taken: set[str]

    def changed(self, stmt: Stmt) -> Body:
        """A loop, and behind it what its flat sums are."""
        if not isinstance(stmt, Loop):
            return (stmt,)
        after: list[Stmt] = []
        for carry in stmt.carries:
            if (shaped := self.added(carry)) is not None:
                out = take(f"{carry.user}_flat", self.taken)
                stmt = self.flat(stmt, carry, shaped.args[0], out)
                whole = replace(shaped, args=(Var(out, shaped.args[0].type),))
                after.append(Assign(carry.out, whole, carry.loc, carry.user))
        return (stmt, *after)

    def added(self, carry: Carry) -> Apply | None:
        """The product, in the shape of the carry, that is all that an iteration adds to it."""
        match self.next(carry), self.meant(carry.init):
            case Apply("add", args), Apply("full", ()) if self.uses[carry.name] == 1:
                for own, shaped in (args, args[::-1]):
                    if isinstance(shaped, Apply) and own == Var(carry.name, shaped.type):
                        return shaped if _is_reshaped_product(shaped) else None
            case _:
                pass  # no sum, or one that begins with what is computed
        return None

    def meant(self, expr: Expr) -> Expr:
        return self.defined.get(expr.name, expr) if isinstance(expr, Var) else expr

    def next(self, carry: Carry) -> Expr | None:
        """What a carry becomes, if nothing else reads that."""
        other = isinstance(carry.next, Var) and self.uses[carry.next.name] > 1
        return None if other else self.meant(carry.next)

    def flat(self, loop: Loop, carry: Carry, product: Expr, out: str) -> Loop:
        """The loop with a carry of the product's type."""
        assert isinstance(product, Apply)
        end: Expr = replace(product, args=(*product.args, Var(carry.name, product.type)))
        body = loop.body
        if isinstance(carry.next, Var):
            name, value = carry.next.name, end
            own = (isinstance(s, Assign) and s.name == name for s in body)
            body = tuple(
                replace(s, value=value) if o else s for s, o in zip(body, own, strict=True)
            )
            end = Var(name, product.type)
        init = replace(self.meant(carry.init), type=product.type)
        made = replace(carry, init=init, next=end, out=out)
        return replace(
            loop, body=body, carries=tuple(made if c == carry else c for c in loop.carries)
        )


def _is_reshaped_product(expr: Apply) -> bool:
    """Whether it is a product without an accumulator, in more dimensions than it has."""
    match expr:
        case Apply("reshape", (Apply("multiply", (_, _)) as made,)):
            return made.type.rank < expr.type.rank and made.type.dtype == expr.type.dtype
        case _:
            return False
