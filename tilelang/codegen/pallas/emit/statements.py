"""Statements: physical statements -> lines, one for each of the author's, under its source line."""

from __future__ import annotations

from tilelang.codegen.pallas.plan.physical import names_read, walk_physical
from tilelang.codegen.pallas.plan.types import (
    Bind,
    Inner,
    Keep,
    PExpr,
    PStmt,
    PutRows,
    Select,
    TakeRows,
    Write,
)
from tilelang.codegen.writer import (
    Atom,
    Call,
    Group,
    Infix,
    Keyword,
    Node,
    Tuple,
    flat,
    infix,
    statement,
)
from tilelang.ir import Var
from tilelang.ir.names import fresh, stem

from . import specs
from .block import Block, flush
from .expressions import Printer
from .gathers import take_rows
from .ranges import named, range_lines
from .scatters import put_rows


def print_body(
    printer: Printer, block: Block, body: tuple[PStmt, ...], after: frozenset[str] = frozenset()
) -> None:
    """Prints the statements of one scope in order.  `after` are names that are read later on."""
    for position, stmt in enumerate(body):
        later = after.union(*(names_read(s) for s in body[position + 1 :]))
        match stmt:
            case Bind():
                _bind(printer, block, stmt, later)
            case Keep(value=value):
                block.quote(stmt.loc)
                node = _value(printer, block, value, stmt.value.type.dtype == "bool")
                _update(block, printer.kept(stmt), node)
            case Write(rows=PutRows()):
                block.quote(stmt.loc)
                node = _value(printer, block, stmt.value, as_int=False)
                block.part(put_rows(printer, stmt, node, block.indent))
            case Write(ref, select, value):
                block.quote(stmt.loc)
                name = printer.block(ref, stmt.turned)
                target = f"{name}[{_selected(printer, block, select)}]"
                block.put(target, _value(printer, block, value, as_int=False))
            case Inner(form="pipeline"):
                _pipeline(printer, block, stmt, later)
            case Inner():
                _inner(printer, block, stmt, later)


def _value(printer: Printer, block: Block, value: PExpr, as_int: bool) -> Node:
    """The node of a value, after the index and mask lines that it needs."""
    if isinstance(value, TakeRows):
        lines, node = take_rows(printer, value, block.indent)
        block.part(lines)
    else:
        node = printer.node(value)
    flush(printer, block)
    return Call("astype", (Atom("jnp.int32"),), of=node) if as_int else node


def _update(block: Block, target: str, node: Node) -> None:
    """`ref += x` where the text would be `ref = ref + x`."""
    if isinstance(node, Infix) and node.op == "+" and node.left == Atom(target):
        lines = statement(target, node.right, block.indent)
        block.lines += [lines[0].replace(f"{target} = ", f"{target} += ", 1), *lines[1:]]
        return
    block.put(target, node)


def _selected(printer: Printer, block: Block, select: tuple[Select, ...]) -> str:
    text = printer.select(select)
    flush(printer, block)
    return text


def _bind(printer: Printer, block: Block, stmt: Bind, later: frozenset[str]) -> None:
    block.quote(stmt.loc)
    node = _value(printer, block, stmt.value, as_int=False)
    name = local_name(printer, stmt.name, stmt.user, later)
    printer.locals[stmt.name] = name
    block.put(name, node)


def local_name(printer: Printer, unique: str, user: str, needed: frozenset[str]) -> str:
    """The author's name if nothing that is still needed has it, else one with a number."""
    wish = user or stem(unique)
    busy = {p for u, p in printer.locals.items() if u in needed and u != unique}
    busy |= printer.names.taken | set(printer.made.values())
    return fresh(wish, busy)


# ---------------------------------------------------------------- loops inside the step


def _inner(printer: Printer, block: Block, loop: Inner, later: frozenset[str]) -> None:
    block.quote(loop.loc)
    index = printer.names.axes[loop.axis]
    first, stop = _bounds(printer, block, loop.axis)
    # every trip reads these again, so nothing inside the loop may take their names
    again = later | names_read(loop) | _ends(loop)
    starts = [_value(printer, block, c.init, as_int=False) for c in loop.carries]
    names: list[str] = []
    scope = printer.scope()
    for carry in loop.carries:
        names.append(local_name(scope, carry.name, carry.user, again))
        scope.locals[carry.name] = names[-1]
        again |= {carry.name}
    _set_all(block, names, starts)
    if loop.form == "unroll":
        if printer.launch.axis(loop.axis).place == "within":
            _hoist(scope, block, loop, again)
        inner = Block(block.indent + 4, quoted=loop.loc)
        axis = printer.launch.axis(loop.axis)
        if axis.base is None:
            start = "" if first == Atom("0") else f"{flat(first)}, "
            block.raw(f"for {index} in range({start}{flat(stop)}):")
        else:  # Python counts; where the count begins is known to the chip only
            block.raw(f"for {index}_step in range({axis.tiles}):")
            inner.raw(f"{index} = {flat(first)} + {index}_step")
        print_body(scope, inner, loop.body, again)
        values = [_value(scope, inner, c.next, as_int=False) for c in loop.carries]
        _set_all(inner, names, values)
        block.lines += inner.lines
    else:
        _fori(scope, block, loop, names, (first, stop), again)
    for carry, name in zip(loop.carries, names, strict=True):
        printer.locals[carry.out] = name


def _hoist(scope: Printer, block: Block, loop: Inner, again: frozenset[str]) -> None:
    """Puts positions and masks before a loop, all of whose iterations use the same ones."""
    trial = scope.scope()
    print_body(trial, Block(0), loop.body, again)
    for key in [k for k in trial.made if k not in scope.made]:
        axis, kind, shape = key
        if kind in ("index", "position", "mask"):
            scope.axis_line(axis, kind, shape)
    flush(scope, block)


def _pipeline(printer: Printer, block: Block, loop: Inner, later: frozenset[str]) -> None:
    """A pipeline of its own over blocks of arrays; scratch memory carries from step to step."""
    block.quote(loop.loc)
    index = printer.names.axes[loop.axis]
    first, stop = _bounds(printer, block, loop.axis)
    launch = printer.launch
    windows = [w for w in (*launch.inputs, *launch.outputs) if w.stream == loop.axis]
    body = f"each_{index}"
    block.raw("")
    block.raw(f"def {body}({', '.join(w.ref for w in windows)}):")
    scope, inner = printer.scope(), Block(block.indent + 4, quoted=loop.loc)
    offset = "" if first == Atom("0") else f"{flat(first)} + "
    inner.raw(f"{index} = {offset}pl.program_id(0)")
    for window in windows:
        if window.existing is not None:
            inner.raw(f"# rows of other ranges stay as {window.array} has them")
            inner.raw(f"{window.ref}[...] = {window.existing}[...]")
    print_body(scope, inner, loop.body, later | names_read(loop))
    block.lines += [*inner.lines, ""]
    count = stop if first == Atom("0") else infix("-", stop, first)
    if launch.form == "pipeline" and launch.axis(loop.axis).tiles is not None:
        # JAX 0.10.2's interpreter fails on a constant number of steps inside another pipeline
        block.raw(f"# always {flat(count)}, but JAX's interpreter needs a count that is computed")
        count = Call(
            "jnp.where", (infix(">=", Atom(printer.names.step), Atom("0")), count, Atom("0"))
        )
    args: list[Node] = [Atom(body), Keyword("grid", Group((count,)))]
    for name, output in (("in_specs", False), ("out_specs", True)):
        each = tuple(specs.stream_spec(printer, w, first) for w in windows if w.output == output)
        if each:
            args.append(Keyword(name, Group(each, "[]")))
    lines = statement("", Call("pltpu.emit_pipeline", tuple(args)), block.indent)
    lines[-1] += f"({', '.join(w.back or w.argument for w in windows)})"
    block.lines += lines


def _ends(loop: Inner) -> frozenset[str]:
    """Names that the carries' next values read."""
    exprs = [e for c in loop.carries for e in walk_physical(c.next)]
    return frozenset(e.name for e in exprs if isinstance(e, Var))


def _set_all(block: Block, names: list[str], values: list[Node]) -> None:
    """Assigns at once, so that no value sees another's new one."""
    moved = [(n, v) for n, v in zip(names, values, strict=True) if flat(v) != n]
    if len(moved) == 1:
        block.put(*moved[0])
    elif moved:
        targets = ", ".join(n for n, _ in moved)
        block.put(targets, Tuple(tuple(v for _, v in moved)))


def _bounds(printer: Printer, block: Block, axis_name: str) -> tuple[Node, Node]:
    """First and stop of a loop inside the step, with the lines they need."""
    found = printer.launch.axis(axis_name).range
    scope = range_lines(printer, block, axis_name, found)
    first, stop = scope.node(found.first), scope.node(found.stop)
    if found.live is not None:
        stop = Call("jnp.where", (scope.node(found.live), stop, first))
        stop = named(block, f"{printer.names.axes[axis_name]}_stop", stop)
    flush(scope, block)
    return first, stop


def _fori(
    scope: Printer,
    block: Block,
    loop: Inner,
    names: list[str],
    bounds: tuple[Node, Node],
    again: frozenset[str],
) -> None:
    index = scope.names.axes[loop.axis]
    body = f"each_{index}"
    carried = ", ".join(names)
    state = carried if len(names) == 1 else "carried" if names else "_"
    block.raw(f"def {body}({index}, {state}):")
    inner = Block(block.indent + 4, quoted=loop.loc)
    if len(names) > 1:
        inner.raw(f"{carried} = carried")
    print_body(scope, inner, loop.body, again)
    values = [flat(_value(scope, inner, c.next, as_int=False)) for c in loop.carries]
    inner.raw(f"return {', '.join(values) if values else 0}")
    block.lines += [*inner.lines, ""]
    start = carried if len(names) == 1 else f"({carried})" if names else "0"
    call = Call("jax.lax.fori_loop", (*bounds, Atom(body), Atom(start)))
    block.put(carried, call)
