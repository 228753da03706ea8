"""shared(program, rng): an input that several indices of a loop share: heads that share keys.

x[h, t]   ->   x[h // 2, t]
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.changes import sites, swapped
from tests.fuzzing.program import Load, Pick, Program, fitted

SHARES = (2, 2, 3)


def shared(program: Program, rng: random.Random) -> Program | None:
    """The program with one such load; None if no input is loaded at an index alone."""
    grids = {a.name for a in program.axes if a.kind == "grid" and not a.offsets}
    found = [
        (site.node, place)
        for site in sites(program.body)
        if isinstance(site.node, Load) and program.tensor(site.node.tensor).role == "input"
        for place, pick in enumerate(site.node.index)
        if pick.axis in grids and pick == Pick(pick.axis)
    ]
    if not found:
        return None
    load, place = rng.choice(found)
    pick = replace(load.index[place], share=rng.choice(SHARES))
    new = replace(load, index=(*load.index[:place], pick, *load.index[place + 1 :]))
    axes = tuple(
        replace(a, size=a.size * pick.share)
        if a.name == pick.axis and a.size < pick.share and _only_counts(program, a.name)
        else a
        for a in program.axes
    )
    return fitted(replace(program, axes=axes, body=swapped(program.body, load, new)))


def _only_counts(program: Program, name: str) -> bool:
    """Whether nothing but loads and stores goes by how many indices there are."""
    return not any(name in (a.of, a.until) for a in program.axes)
