"""Statements: physical statements -> lines, one for each of the author's, under its source line."""

from __future__ import annotations

from typing import assert_never

from tilelang.codegen.pallas.plan import types as plan
from tilelang.codegen.pallas.plan.physical import names_read, walk_physical
from tilelang.codegen.pallas.plan.reads import body_reads, targets
from tilelang.codegen.writer import Atom, Call, Group, Infix, Keyword, Node, Tuple, flat, statement
from tilelang.ir import Const, Var
from tilelang.ir.names import fresh, stem

from . import specs
from .block import Block
from .expressions import Printer
from .flows import print_turn
from .gathers import take_rows
from .moved_rows import moved_rows
from .ranges import print_lines
from .scatters import put_rows


def print_body(
    printer: Printer,
    block: Block,
    body: tuple[plan.PStmt, ...],
    after: frozenset[str] = frozenset(),
) -> None:
    """Prints the statements of one scope in order.  `after` are names that are read later on."""
    for stmt, later in zip(body, _read_later(body, after), strict=True):
        block.quote(stmt.loc)
        if isinstance(stmt, plan.Inner):  # every trip sees what those before it wrote
            printer.written.update(targets((stmt,)))
        match stmt:
            case plan.Bind(name, value):
                node = _value(printer, block, value)
                printer.locals[name] = local_name(printer, name, stmt.user, later)
                block.put(printer.locals[name], node)
            case plan.Keep(_, value):
                _update(block, printer.kept(stmt), _value(printer, block, value))
            case plan.Write(rows=plan.PutRows()):
                node = _value(printer, block, stmt.value)
                block.part(put_rows(printer, stmt, node, block.indent))
            case plan.Write(ref, value=plan.MovedRows() as moved):
                block.part(moved_rows(printer, ref, moved, block.indent))
            case plan.Write(ref, select, value):
                target = f"{printer.block(ref, stmt.turned)}[{printer.select(select)}]"
                block.flush(printer)
                block.put(target, _value(printer, block, value))
            case plan.Inner(form="pipeline"):
                _pipeline(printer, block, stmt, later)
            case plan.Inner():
                _inner(printer, block, stmt, later)
            case _:
                assert_never(stmt)
        printer.written.update(targets((stmt,)))


def _read_later(body: tuple[plan.PStmt, ...], after: frozenset[str]) -> list[frozenset[str]]:
    """For each statement the names that are read behind it."""
    found = [after]
    for stmt in reversed(body[1:]):
        found.append(found[-1] | names_read(stmt))
    return found[: len(body)][::-1]


def _value(printer: Printer, block: Block, value: plan.PExpr) -> Node:
    """The node of a value, after the index and mask lines that it needs."""
    if isinstance(value, plan.TakeRows):
        lines, node = take_rows(printer, value, block.indent)
        block.part(lines)
    else:
        node = printer.node(value)
    block.flush(printer)
    return node


def _update(block: Block, target: str, node: Node) -> None:
    """`ref += x` where the text would be `ref = ref + x`."""
    if isinstance(node, Infix) and node.op == "+" and node.left == Atom(target):
        block.put(target, node.right, " += ")
    else:
        block.put(target, node)


def local_name(printer: Printer, unique: str, user: str, needed: frozenset[str]) -> str:
    """The author's name if nothing that is still needed has it, else one with a number."""
    busy = {p for u, p in printer.locals.items() if u in needed and u != unique}
    return fresh(user or stem(unique), busy | printer.names.taken | {*printer.made.values()})


# ---------------------------------------------------------------- loops inside the step


def _inner(printer: Printer, block: Block, loop: plan.Inner, later: frozenset[str]) -> None:
    axis, index = printer.launch.axis(loop.axis), printer.names.axes[loop.axis]
    first, stop, _ = _bounds(printer, block, axis)
    # every trip reads these again, so nothing inside the loop may take their names
    ends = {e.name for c in loop.carries for e in walk_physical(c.next) if isinstance(e, Var)}
    again = later | names_read(loop) | ends
    starts = [_value(printer, block, c.init) for c in loop.carries]
    names: list[str] = []
    scope = printer.scope()
    for carry in loop.carries:
        names.append(local_name(scope, carry.name, carry.user, again))
        scope.locals[carry.name] = names[-1]
        again |= {carry.name}
    _set_all(block, names, starts)
    if loop.form in ("fori_loop", "once"):
        _fori(scope, block, loop, names, (first, stop), again)
    else:
        if axis.place == "within" or loop.ahead:
            _hoist(scope, block, loop, again)
        if loop.ahead:
            _ahead(scope, block, loop, again)
            return
        if axis.base is None:
            by = f", {loop.together}" if loop.together > 1 else ""
            start = f"{flat(first)}, " if by or first != Atom("0") else ""
            inner = block.inside(f"for {index} in range({start}{flat(stop)}{by}):", loop.loc)
        else:  # Python counts; where the count begins is known to the chip only
            inner = block.inside(f"for {index}_step in range({axis.tiles}):", loop.loc)
            inner.raw(f"{index} = {flat(first)} + {index}_step")
        print_body(scope, inner, loop.body, again)
        _set_all(inner, names, [_value(scope, inner, c.next) for c in loop.carries])
    for carry, name in zip(loop.carries, names, strict=True):
        printer.locals[carry.out] = name


def _ahead(scope: Printer, block: Block, loop: plan.Inner, again: frozenset[str]) -> None:
    """A loop in each turn of which the first statements of the next one come first.

    Those are a function of their own, which is called before the loop, too.
    """
    index, last = scope.names.axes[loop.axis], (scope.launch.axis(loop.axis).tiles or 1) - 1
    first, rest = loop.body[: loop.ahead], loop.body[loop.ahead :]
    inner, own = scope.scope(), block.inside(f"def {index}_products({index}):", loop.loc)
    print_body(inner, own, first, again | {*loop.handed})
    names = [inner.locals[name] for name in loop.handed]
    own.raw(f"return {', '.join(names)}")
    block.raw("")
    block.raw(f"{index}_ahead = {index}_products(0)")
    turn = block.inside(f"for {index} in range({last + 1}):", loop.loc)
    turn.raw(f"{', '.join(names)} = {index}_ahead")
    turn.raw(f"if {index} < {last}:  # the units that multiply are busy meanwhile")
    turn.raw(f"    {index}_ahead = {index}_products({index} + 1)")
    scope.locals |= dict(zip(loop.handed, names, strict=True))
    print_body(scope, turn, rest, again)


def _hoist(scope: Printer, block: Block, loop: plan.Inner, again: frozenset[str]) -> None:
    """Puts positions and masks before a loop, all of whose iterations use the same ones."""
    trial = scope.scope()
    print_body(trial, Block(0), loop.body, again)
    for key in [k for k in trial.made if k not in scope.made]:
        axis, kind, shape = key
        if axis != loop.axis and kind in ("index", "position", "mask"):
            scope.axis_line(axis, kind, shape)
    block.flush(scope)


def _pipeline(printer: Printer, block: Block, loop: plan.Inner, later: frozenset[str]) -> None:
    """A pipeline of its own over blocks of arrays; scratch memory carries from step to step."""
    launch, index = printer.launch, printer.names.axes[loop.axis]
    axis = launch.axis(loop.axis)
    first, _, count = _bounds(printer, block, axis)
    windows = [w for w in (*launch.inputs, *launch.outputs) if w.stream == loop.axis]
    body = f"each_{index}"
    block.raw("")
    head = f"def {body}({', '.join(w.ref for w in windows)}):"
    scope, inner = printer.scope(), block.inside(head, loop.loc)
    if loop.axis in body_reads(launch, loop.body):
        offset = "" if first == Atom("0") else f"{flat(first)} + "
        inner.raw(f"{index} = {offset}pl.program_id(0)")
    for window in windows:
        if window.existing is not None:
            inner.raw(f"# rows of other ranges stay as {window.array} has them")
            inner.raw(f"{window.ref}[...] = {window.existing}[...]")
    print_body(scope, inner, loop.body, later | names_read(loop))
    block.raw("")
    if axis.tiles is not None and not isinstance(axis.range.count, Const):
        many = f"# always {axis.tiles}, but JAX's interpreter"
        block.raw(f"{many} needs a count that is computed")
    args: list[Node] = [Atom(body), Keyword("grid", Group((count,)))]
    for name, output in (("in_specs", False), ("out_specs", True)):
        each = tuple(specs.stream_spec(printer, w, first) for w in windows if w.output == output)
        if each:
            args.append(Keyword(name, Group(each, "[]")))
    lines = statement("", Call("pltpu.emit_pipeline", tuple(args)), block.indent)
    lines[-1] += f"({', '.join(w.back or w.argument for w in windows)})"
    block.lines += lines


def _set_all(block: Block, names: list[str], values: list[Node]) -> None:
    """Assigns at once, so that no value sees another's new one."""
    moved = [(n, v) for n, v in zip(names, values, strict=True) if flat(v) != n]
    if len(moved) == 1:
        block.put(*moved[0])
    elif moved:
        block.put(", ".join(n for n, _ in moved), Tuple(tuple(v for _, v in moved)))


def _bounds(printer: Printer, block: Block, axis: plan.AxisPlan) -> tuple[Node, Node, Node]:
    """First, stop and number of steps of a loop inside the step, with the lines they need.

    Tiles near a range know where that begins.
    """
    found = axis.range
    scope = print_lines(printer, block, found.lines)
    if axis.near is not None:
        printer.locals |= {e.name.name: scope.locals[e.name.name] for e in found.lines}
    first, stop = scope.node(found.first), scope.node(found.stop)
    count = stop if found.count is None else scope.node(found.count)
    block.flush(scope)
    return first, stop, count


def _fori(
    scope: Printer,
    block: Block,
    loop: plan.Inner,
    names: list[str],
    bounds: tuple[Node, Node],
    again: frozenset[str],
) -> None:
    index = scope.names.axes[loop.axis]
    carried = ", ".join(names)
    state = carried if len(names) == 1 else "carried" if names else "_"
    inner = block.inside(f"def each_{index}({index}, {state}):", loop.loc)
    if len(names) > 1:
        inner.raw(f"{carried} = carried")
    print_turn(scope, inner, loop.axis, "first")
    print_body(scope, inner, loop.body, again)
    print_turn(scope, inner, loop.axis, "last")
    values = [flat(_value(scope, inner, c.next)) for c in loop.carries]
    inner.raw(f"return {', '.join(values) if values else 0}")
    block.raw("")
    start = carried if len(names) == 1 else f"({carried})" if names else "0"
    turn, state = Atom(f"each_{index}"), Atom(start)
    if loop.form == "fori_loop":
        named = loop.unroll > 1 and not loop.counted
        several = (Atom(f"{loop.unroll}" if named else f"unroll={loop.unroll}"),)
        called = "turned_in_rows" if named else "jax.lax.fori_loop"
        args = (*bounds, turn, state, *(several if loop.unroll > 1 else ()))
        block.put(carried, Call(called, args))
    elif names:
        block.put(carried, Call("turned_once", (bounds[1], turn, state)))
    else:
        block.put("", Call(f"each_{index}", (bounds[0], state)))
