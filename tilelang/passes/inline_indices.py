"""Inline indices: bounds and indices are written in terms of loop indices and scalar memory.

    start = offsets[g]; hl.tile(start, ...)   ->   bounds that read offsets[g]

Index maps and the step table run outside of the body, where its locals do not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from ..analysis.uses import picks_rows
from ..errors import Loc
from ..ir import (
    Body,
    Expr,
    KernelIR,
    Load,
    Stmt,
    Store,
    map_children,
    map_index,
    read_by,
)
from ..ir.traversal import authors, definitions, inlined, map_body, map_range, map_stmt
from ..schedule.refusal import Refused, Rule


@dataclass(frozen=True)
class Values:
    """What names stand for, and what their author calls them."""

    of: Mapping[str, Expr]
    users: Mapping[str, str]


def inline_indices(ir: KernelIR) -> KernelIR:
    """The kernel with its bounds and indices written out.

    Raises Refused at the user's line if one of them depends on a value that a loop carries.
    """
    values = Values(definitions(ir.body), authors(ir.body))
    axes = tuple(map_range(a, partial(_resolved, values=values, loc=a.loc)) for a in ir.axes)
    return replace(ir, axes=axes, body=map_body(ir.body, partial(_statement, values=values)))


def _resolved(expr: Expr, values: Values, loc: Loc | None) -> Expr:
    found = inlined(expr, values.of)
    carried = next(read_by((found,)), None)
    if carried is None:
        return found
    raise Refused(
        Rule.KERNEL,
        f"this bound or index depends on {values.users.get(carried, carried)}, "
        "which a loop changes",
        loc,
        "compute it from loop indices and from numbers loaded from tensors",
    )


def _statement(stmt: Stmt, values: Values) -> Body:
    position = partial(_resolved, values=values, loc=stmt.loc)
    if isinstance(stmt, Store) and stmt.mask is not None and picks_rows(stmt.index):
        # Rows are stored one by one; the mask is asked for each, outside of the body.
        stmt = replace(stmt, mask=position(stmt.mask))
    value = partial(_value, values=values, loc=stmt.loc)
    return (map_stmt(stmt, value, partial(map_index, fn=position)),)


def _value(expr: Expr, values: Values, loc: Loc | None) -> Expr:
    inner = partial(_value, values=values, loc=loc)
    if not isinstance(expr, Load):
        return map_children(expr, inner)
    position = partial(_resolved, values=values, loc=expr.loc or loc)
    mask = None if expr.mask is None else inner(expr.mask)
    return replace(expr, index=tuple(map_index(i, position) for i in expr.index), mask=mask)
