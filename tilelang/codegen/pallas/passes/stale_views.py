"""refuse_stale(kernel): no loop reads an array that it stores to by another form of it.

v = y.reshape(M, 2, 4)        a view is made in the host program, between launches:
for t in hl.tile(...):
    y[t, :] = ...
    z[t, :, :] = v[t, :, :]   what the loop itself has stored is not in it

Views that permute dimensions, or add some of length 1, are the array by now: frontend/through.
"""

from __future__ import annotations

from tilelang.ir import KernelIR, every_loop, every_store, exprs_of, loads
from tilelang.schedule.refusal import Refused, Rule


def refuse_stale(kernel: KernelIR) -> None:
    """Refused at the first loop that would read what was there before it, in ranges too."""
    for loop in kernel.body:
        stores = {kernel.root(s.tensor): s for s in every_store((loop,))}
        ranges = (kernel.axis(s.axis) for s in every_loop((loop,)))
        for load in (found for e in exprs_of((loop,), ranges) for found in loads(e)):
            store = stores.get(kernel.root(load.tensor))
            if store is not None and load.tensor != store.tensor:
                raise Refused(
                    Rule.KERNEL,
                    f"{load.tensor} is a view of {store.tensor}, which is stored to in the same "
                    "loop: TPUs make views between loops, and what is stored would not be in it",
                    store.loc,
                    f"read {store.tensor} itself, or {load.tensor} in a loop of its own",
                )
