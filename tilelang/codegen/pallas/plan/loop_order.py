"""Loop order: every range reads the indices of loops around it.

    for tm in hl.tile(32): for c in hl.grid(3): y[c * 32 + tm.index] = ...
                                                     the tiles of tm, in y, begin at c * 32
    ->  for c: for tm

Only a loop whose iterations are independent moves out; another one is the author's to move.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang.ir import Loop, Store, every_loop, integers
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule


def defined_first(problem: Problem, loop: Loop, around: tuple[str, ...] = ()) -> Loop:
    """The nest in such an order; `around` are the loops that moved out of this one already.

    Raises Refused if a loop that would have to move cannot.
    """
    moving = moved_by(problem, loop.axis)
    needed = [inner.axis for inner in every_loop(loop.body) if inner.axis in moving]
    if not needed:
        nested = (defined_first(problem, s) if isinstance(s, Loop) else s for s in loop.body)
        return replace(loop, body=tuple(nested))
    lifted = _lifted(loop, needed[0]) if problem.fact(needed[0]).independent else None
    if lifted is None or needed[0] in around:
        outer, inner = problem.axis(loop.axis), problem.axis(needed[0])
        raise Refused(
            Rule.KERNEL,
            f"the positions that {outer.user} goes through depend on {inner.user}, whose loop is "
            "inside",
            inner.loc,
            f"write the loop over {inner.user} around that over {outer.user}",
        )
    return defined_first(problem, lifted, (*around, loop.axis))


def moved_by(problem: Problem, name: str) -> set[str]:
    """Axes that the offset of a tile's accesses depends on."""
    shift = problem.shift(name) if problem.axis(name).kind == "tile" else None
    return set() if shift is None else integers.axes(shift)


def _lifted(loop: Loop, name: str) -> Loop | None:
    """The same with the loop over `name` outermost.

    None if another loop or a store stands beside it, or a value is carried on the way.
    """
    inner = [s for s in loop.body if isinstance(s, Loop)]
    if len(inner) != 1 or loop.carries or any(isinstance(s, Store) for s in loop.body):
        return None
    found = inner[0] if inner[0].axis == name else _lifted(inner[0], name)
    if found is None or found.carries:
        return None
    place = loop.body.index(inner[0])
    body = (*loop.body[:place], *found.body, *loop.body[place + 1 :])
    return replace(found, body=(replace(loop, body=body),))
