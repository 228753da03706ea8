"""cut(problem, plan, rows) -> Plan | Refusal: the plan with the bodies that its steps run.

Steps run in pieces of rows where that pays, and interior ones without masks.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang.codegen.pallas.target import Target
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refusal, Rule, attempted

from .body.pieces import in_pieces
from .estimate.beside import with_beside
from .estimate.interiors import with_interiors
from .memory import again
from .types import Launch, Plan
from .verify import verify


def cut(problem: Problem, found: Plan, rows: int | None) -> Plan | Refusal:
    """The plan whose steps run in pieces of so many rows, or as pays where that is left open."""
    if rows == 0:
        return verify(_with_bodies(problem, found))
    made = attempted(lambda: [_cut(launch, rows, found.target) for launch in found.launches])
    if isinstance(made, Refusal):
        return made
    if rows and not any(made):
        return Refusal(
            Rule.FORM,
            f"pieces={rows}, but no step of {found.ir.name} makes something of a product of a tile "
            "that has more rows, each row by itself",
            found.ir.loc,
            f"leave pieces out, or use a multiple of {found.target.rows(1)} rows that divides a "
            "block",
        )
    each = zip(found.launches, made, strict=True)
    whole = replace(found, launches=tuple(new or old for old, new in each))
    return verify(_with_bodies(problem, whole))


def _with_bodies(problem: Problem, found: Plan) -> Plan:
    """The plan with bodies of their own for steps without masks, and for short loops."""
    return with_beside(problem, with_interiors(problem, found))


def _cut(launch: Launch, rows: int | None, target: Target) -> Launch | None:
    """A launch whose steps run in pieces, and what those take of memory."""
    found = in_pieces(launch, rows, target)
    return None if found is None else replace(found, memory=again(found, target))
