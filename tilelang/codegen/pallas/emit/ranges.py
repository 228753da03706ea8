"""Ranges: the lines that say where a loop begins and stops, as the plan has it."""

from __future__ import annotations

from tilelang.codegen.pallas.plan import types as plan
from tilelang.codegen.pallas.plan.steps.names import COUNT, seen
from tilelang.codegen.writer import Node, flat
from tilelang.ir import Expr

from .block import Block
from .expressions import Printer

Shared = dict[Expr, Node]
SHARED = ("begin", "end", "runs")  # what loops in a row may have in common


def outer_indices(printer: Printer, table: plan.Table) -> list[str]:
    """The printed indices of the columns whose loops nest."""
    return [printer.names.axes[c.axis] for c in table.outer]


def seen_name(printer: Printer, table: plan.Table, column: plan.Column) -> str:
    """The cursor of a column: every tile below it has a row already."""
    if column.phase is None and sum(c.cursor for c in table.outer) == 1:
        return printer.names.word("seen")
    return f"{printer.names.axes[column.axis]}_seen"


def print_lines(
    printer: Printer, block: Block, lines: tuple[plan.Line, ...], shared: Shared | None = None
) -> Printer:
    """Prints the lines of a range.  The printer that is returned knows their names.

    `shared` has the begins and ends of other ranges whose lines are there.
    """
    scope = printer.scope()
    shared = {} if shared is None else shared
    for line in lines:
        node = shared.get(line.value) if line.part in SHARED else None
        if node is None:
            node, index = scope.node(line.value), printer.names.axes[line.axis]
            block.flush(scope)
            if line.part:
                node = block.named(f"{index}_{line.part}", node)
            else:  # the body reads an index by its name, be it as short as one
                block.put(index, node)
            if line.part in SHARED:
                shared[line.value] = node
        scope.locals[line.name.name] = flat(node)
    return scope


def visiting(
    printer: Printer, block: Block, table: plan.Table, column: plan.Column,
    counter: str | None, shared: Shared | None = None,
) -> Printer:  # fmt: skip
    """A printer of what the loop over a column visits, after the lines that this needs.

    `counter` holds how many rows there are so far; None where nothing has counted any.
    """
    assert column.visits is not None
    scope = printer.scope()
    if counter is not None:
        scope.locals[COUNT.name] = counter
    if column.cursor:
        scope.locals[seen(column.axis).name] = seen_name(printer, table, column)
    return print_lines(scope, block, column.visits.lines, shared)
