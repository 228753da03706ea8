"""Inline indices: bounds and indices are written in terms of loop indices and scalar memory.

    start = offsets[g]; hl.tile(start, ...)   ->   bounds that read offsets[g]

Index maps and the step table run outside of the body, where its locals do not exist.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from .. import ir
from ..analysis.uses import of_vectors, picks_rows
from ..errors import Loc
from ..ir import map_children, map_index, read_by
from ..ir.traversal import authors, definitions, inlined, map_body, map_range, map_stmt
from ..schedule.refusal import Refused, Rule


@dataclass(frozen=True)
class Values:
    """What names stand for, and what their author calls them."""

    of: Mapping[str, ir.Expr]
    users: Mapping[str, str]


def inline_indices(kernel: ir.KernelIR) -> ir.KernelIR:
    """The kernel with its bounds and indices written out.

    Raises Refused at the user's line if one of them depends on a value that a loop carries.
    """
    values = Values(definitions(kernel.body), authors(kernel.body))
    axes = tuple(map_range(a, partial(_resolved, values=values, loc=a.loc)) for a in kernel.axes)
    return replace(
        kernel, axes=axes, body=map_body(kernel.body, partial(_statement, values=values))
    )


def _resolved(expr: ir.Expr, values: Values, loc: Loc | None) -> ir.Expr:
    found = inlined(expr, values.of)
    carried = next(read_by((found,)), None)
    if carried is not None:
        what = f"depends on {values.users.get(carried, carried)}, which a loop changes"
    elif not found.type.shape and of_vectors(found):
        what = "is computed from whole vectors"
    else:
        return found
    raise Refused(
        Rule.KERNEL,
        f"this bound or index {what}",
        loc,
        "compute it from loop indices and from numbers loaded from tensors: what else it is made "
        "of can be stored to one, and loaded in a loop of its own after that",
    )


def _statement(stmt: ir.Stmt, values: Values) -> ir.Body:
    resolved = partial(_resolved, values=values, loc=stmt.loc)
    if isinstance(stmt, ir.Store) and stmt.mask is not None and picks_rows(stmt.index):
        # Rows are stored one by one; the mask is asked for each, outside of the body.
        stmt = replace(stmt, mask=resolved(stmt.mask))
    value = partial(_value, values=values, loc=stmt.loc)
    return (map_stmt(stmt, value, partial(map_index, fn=resolved)),)


def _value(expr: ir.Expr, values: Values, loc: Loc | None) -> ir.Expr:
    inner = partial(_value, values=values, loc=loc)
    if not isinstance(expr, ir.Load):
        return map_children(expr, inner)
    mask = None if expr.mask is None else inner(expr.mask)
    resolved = partial(_resolved, values=values, loc=expr.loc or loc)
    return replace(expr, index=tuple(map_index(e, resolved) for e in expr.index), mask=mask)
