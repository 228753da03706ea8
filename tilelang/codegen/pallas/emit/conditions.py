"""Conditions: in which steps a section runs -> tests."""

from __future__ import annotations

from typing import Literal, assert_never

from tilelang.codegen.pallas.plan import types as plan
from tilelang.codegen.writer import Atom, Call, Node, flat, infix

from .expressions import ONE, ZERO, Printer, all_of, any_of


def test_of(printer: Printer, condition: plan.Condition) -> Node:
    """The test of one condition."""
    launch = printer.launch
    match condition:
        case plan.AtDim(axis, end):
            return _at_dim(printer, axis, end)
        case plan.RowStarts(axis, number, first):
            rest = Call("jax.lax.rem", (printer.node(number.expr), Atom(str(number.rows))))
            start = infix("==", rest, ZERO)
            return infix("|", start, _at_dim(printer, axis, "first")) if first else start
        case plan.Runs(axis):
            return printer.node(launch.axis(axis).tile.runs)
        case plan.Clear(clear=clear):
            tests = [printer.node(test) for test in condition.tests]
            return all_of(tests) if clear else any_of(tests)
        case plan.Back(_, tests):
            return all_of([printer.node(test) for test in tests])
        case plan.Turns(numbers, axis):
            before = _before(printer, axis)
            new = _at_step(printer, ZERO) if axis is None else _at_dim(printer, axis, "first")
            pairs = ((before.number(n), printer.number(n)) for n in numbers)
            return any_of([new, *(infix("!=", old, here) for old, here in pairs)])
        case plan.Ends():
            return _ends(printer, condition)
        case plan.InPhase(phase):
            return infix("==", Atom(printer.names.word("phase")), Atom(str(phase)))
        case plan.Enters(outer, phase):
            return _enters(printer, outer, phase)
        case _:
            assert_never(condition)


def _at_step(printer: Printer, number: Node) -> Node:
    return infix("==", Atom(printer.names.step), number)


def _at_dim(printer: Printer, name: str, end: Literal["first", "last"]) -> Node:
    """The grid dimension is at its first, or last, iteration."""
    axis = printer.launch.axis(name)
    last = (axis.tiles or 1) - 1
    last -= last % printer.launch.together(name)  # the first iteration of the step
    wanted = axis.first + (0 if end == "first" else last)
    index = printer.names.axes[name] + ("" if axis.base is None else "_step")
    return infix("==", Atom(index), Atom(str(wanted)))


def _before(printer: Printer, dim: str | None) -> Printer:
    """A printer for which indices are what they were in the iteration, or row, before."""
    if dim is not None:
        return printer.scope({dim: f"({printer.names.axes[dim]} - 1)"})
    table = printer.launch.table
    if table is None:
        return printer
    tracks = {c.axis: table.track(c.axis).name for c in table.phases}
    keys = {c.axis: tracks.get(c.axis, c.axis) for c in table.columns}
    return printer.scope({a: flat(_neighbour(printer, k, "before")) for a, k in keys.items()})


def _neighbour(printer: Printer, axis: str, which: str) -> Node:
    """What a row beside this one holds of an axis."""
    table, names = printer.launch.table, printer.names
    assert table is not None
    if table.steps == "rectangle":
        position = [c.axis for c in table.columns].index(axis)
        return Atom(f"{names.word(which)}[{position}]")
    return Atom(f"{names.columns[axis]}[{names.word(which)}]")


def _new_outer(printer: Printer, edge: Node, outer: tuple[str, ...], which: str) -> list[Node]:
    """The step is at the edge of the table, or a row beside it is of another iteration around."""
    axes = printer.names.axes
    other = (infix("!=", _neighbour(printer, a, which), Atom(axes[a])) for a in outer)
    return [_at_step(printer, edge), *other]


def _ends(printer: Printer, ends: plan.Ends) -> Node:
    names, table, first = printer.names, printer.launch.table, ends.end == "first"
    if table is not None and table.steps == "rectangle":
        return all_of([_at_end(names.axes[a], first) for a in ends.inner])
    edge = ZERO if first else infix("-", Atom(names.steps), ONE)
    return any_of(_new_outer(printer, edge, ends.outer, "before" if first else "after"))


def _at_end(index: str, first: bool) -> Node:
    end = Atom(f"{index}_first") if first else infix("-", Atom(f"{index}_stop"), ONE)
    return infix("==", Atom(index), end)


def _enters(printer: Printer, outer: tuple[str, ...], number: int) -> Node:
    names, table = printer.names, printer.launch.table
    assert table is not None
    phase = names.word("phase")
    last = number == len(table.phases) - 1
    here = infix("==" if last else ">=", Atom(phase), Atom(str(number)))
    earlier = infix("<", _neighbour(printer, phase, "before"), Atom(str(number)))
    return infix("&", here, any_of([*_new_outer(printer, ZERO, outer, "before"), earlier]))
