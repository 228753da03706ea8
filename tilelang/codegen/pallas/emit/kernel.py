"""Kernel: one launch -> its kernel function: step table, step body, pipeline."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tilelang.codegen.pallas.plan.reads import step_reads
from tilelang.codegen.pallas.plan.types import (
    AtDim,
    AxisPlan,
    Condition,
    Dim,
    Ends,
    Enters,
    InPhase,
    Launch,
    Plan,
    RowStarts,
    Runs,
    Section,
    Table,
    Turns,
    Window,
)
from tilelang.codegen.writer import Atom, Call, Group, Keyword, Node, flat, infix, statement

from . import ops, specs
from .block import Block
from .expressions import Printer
from .names import Names
from .statements import print_body
from .steps import print_rectangle, print_table


def print_kernel(plan: Plan, launch: Launch, names: Names) -> list[str]:
    """The lines of the kernel function of one launch."""
    printer = Printer(launch, names)
    block = Block(4)
    if launch.form == "pipeline":
        params = _pipeline_params(launch, names)
        _print_pipeline(printer, block, launch)
    else:
        inputs, outputs = specs.operands(launch)
        arrays = [o.param for o in (*inputs, *outputs)]
        listed = specs.prefetched_list(printer, launch)
        scratch = [names.scratch[s.name] for s in launch.scratch]
        params = [*launch.scalars, *listed, *arrays, *scratch]
        _print_step(printer, block, launch)
    head = f"def {launch.name}({', '.join(params)}):"
    heads = [head]
    if len(head) > 100:
        heads = [f"def {launch.name}(", *_filled(params), "):"]
    return [*heads, *_facts(launch), *block.lines]


def _filled(params: list[str]) -> list[str]:
    """As many parameters on a line as fit."""
    lines = ["   "]
    for param in params:
        if len(lines[-1]) + len(param) + 2 > 100:
            lines.append("   ")
        lines[-1] += f" {param},"
    return lines


def _pipeline_params(launch: Launch, names: Names) -> list[str]:
    arrays = list(dict.fromkeys(w.argument for w in (*launch.inputs, *launch.outputs)))
    table = launch.table is not None and launch.table.steps == "table"
    return [
        *launch.scalars,
        *arrays,
        *(names.scratch[s.name] for s in launch.scratch),
        *(names.columns.values() if table else ()),
    ]


def _facts(launch: Launch) -> list[str]:
    """The axis facts, as comments at the loops they became."""
    order = [d.axis for d in launch.dims if d.axis] + [
        c.axis for c in (launch.table.columns if launch.table else ())
    ]
    shown = [*order, *(a.name for a in launch.axes if a.name not in order)]
    return [line for name in shown for line in _fact(launch.axis(name))]


def _fact(axis: AxisPlan) -> list[str]:
    where = {
        "dim": "grid dimension",
        "table": "column of the step table",
        "inner": "loop inside the step",
        "stream": "pipeline inside the step",
        "within": "every step runs all of them",
        "single": "one tile" if axis.block else "one index",
    }[axis.place]
    block = f", blocks of {axis.block}" if axis.block else ""
    block += " from where its range begins" if axis.length is not None else ""
    text = f"{axis.name}: {where}{block}; {axis.kind}: {axis.why}"
    out, line = [], "    # "
    for word in text.split():
        if len(line) + len(word) > 99:
            out.append(line.rstrip())
            line = "    #     "
        line += word + " "
    return [*out, line.rstrip()]


# ---------------------------------------------------------------- the pipeline


def _print_pipeline(printer: Printer, block: Block, launch: Launch) -> None:
    names, table = printer.names, launch.table
    if table is not None and table.steps == "table":
        print_table(printer, block, table)
        block.raw("")
    elif table is not None:
        print_rectangle(printer, block, table)
    inputs = [w for w in launch.inputs if w.stream is None]
    outputs = [w for w in launch.outputs if w.stream is None]
    refs = [w.ref for w in (*inputs, *outputs)]
    block.raw(f"def {names.word('step')}({', '.join(refs)}):")
    inner = Block(block.indent + 4)
    _print_step(printer, inner, launch)
    block.lines += [*inner.lines, ""]
    specs.print_rows(printer, block.lines, launch)
    ins = tuple(specs.block_spec(printer, launch, w, False) for w in inputs)
    outs = tuple(specs.block_spec(printer, launch, w, False) for w in outputs)
    args: list[Node] = [
        Atom(names.word("step")),
        Keyword("grid", specs.grid(launch, names.steps)),
        Keyword("in_specs", Group(ins, "[]")),
        Keyword("out_specs", Group(outs, "[]")),
        Keyword("dimension_semantics", specs.semantics(launch, pipeline=True)),
    ]
    if launch.cores > 1:
        args.append(Keyword("core_axis", Atom("0")))
    pipeline = Call("pltpu.emit_pipeline", tuple(args))
    lines = statement("", pipeline, block.indent)
    if len(lines) == 1:  # one argument a line reads better than one long line
        lines = [" " * 4 + "pltpu.emit_pipeline(", *(f"        {flat(a)}," for a in args), "    )"]
    arrays = [w.argument for w in (*inputs, *outputs)]
    lines[-1] += f"({', '.join(arrays)})"
    block.lines += lines


# ---------------------------------------------------------------- the step


def _print_step(printer: Printer, block: Block, launch: Launch) -> None:
    shown = printer.names.axes  # of tracks, too
    columns = {shown.get(key, key): column for key, column in printer.names.columns.items()}
    if launch.table is not None and launch.table.tracks:
        printer = _on_tracks(printer, launch.table)
    _print_indices(printer, block, launch, columns)
    for section in launch.sections:
        _print_section(printer, block, launch, section)
    if not launch.sections:
        block.raw("pass")


def _on_tracks(printer: Printer, table: Table) -> Printer:
    """A printer in which the tile of a loop in a row is that of the track it is found on."""
    names = printer.names
    tiles = {c.axis: names.axes[table.track(c.axis).name] for c in table.phases}
    moved = printer.scope()
    moved.names = replace(names, axes={**names.axes, **tiles})
    return moved


def _print_indices(printer: Printer, block: Block, launch: Launch, columns: dict[str, str]) -> None:
    """Where the step is: grid indices, then its row of the table: index or tile -> its column."""
    names, table, reads = printer.names, launch.table, step_reads(launch)
    for position, dim in enumerate(launch.dims):
        first = launch.axis(dim.axis).first if dim.axis is not None else 0
        if dim.axis is None or dim.axis in reads.iterations:
            start = f" + {first}" if first else ""
            block.raw(f"{_step_name(launch, names, dim)} = pl.program_id({position}){start}")
    for axis in launch.moving:
        base = launch.axis(axis).base
        if base is not None and axis in reads.numbers:
            block.raw(f"{names.axes[axis]} = {printer.text(base)} + {names.axes[axis]}_step")
    if table is None:
        return
    if launch.worklist:
        block.raw(f"{names.steps} = {names.steps}_of[0]")
        if not table.sure:
            block.raw(f"{names.word('live')} = {names.step} < {names.steps}")
    if table.steps == "table":
        used = {names.axes[a] for a in reads.numbers}  # of a loop in a row, that of its track
        used |= {names.word("phase")} if table.tracks else set()
        read = [name for name in columns if name in used]
        if read:
            right = ", ".join(f"{columns[name]}[{names.step}]" for name in read)
            block.raw(f"{', '.join(read)} = {right}")
    else:
        listed = [names.axes[c.axis] for c in table.columns]
        ends = ", ".join(f"{c}_first, {c}_stop" for c in listed)
        at, live = names.word("at"), names.word("live")
        comma = "," if len(listed) == 1 else ""
        block.raw(f"{live}, ({', '.join(listed)}{comma}), ({ends}) = {at}({names.step})")
    _print_neighbours(block, launch, names)


def _step_name(launch: Launch, names: Names, dim: Dim) -> str:
    """What a grid index is called: the tile that it counts from a moving first one is not it."""
    if dim.axis is None:
        return names.step
    moving = launch.axis(dim.axis).base is not None
    return names.axes[dim.axis] + ("_step" if moving else "")


def _print_neighbours(block: Block, launch: Launch, names: Names) -> None:
    conditions = [c for s in launch.sections for c in s.conditions]
    before, after = names.word("before"), names.word("after")
    table = launch.table
    assert table is not None
    if table.steps == "rectangle":
        if any(_looks_back(c) for c in conditions):
            at = names.word("at")
            block.raw(f"_, {before}, _ = {at}(jnp.maximum({names.step} - 1, 0))")
        return
    firsts = [c for c in conditions if _looks_back(c)]
    firsts += [c for c in conditions if isinstance(c, Ends) and c.end == "first" and c.outer]
    firsts += [c for c in conditions if isinstance(c, Enters)]
    if firsts:
        block.raw(f"{before} = jnp.maximum({names.step} - 1, 0)")
    if any(isinstance(c, Ends) and c.end == "last" and c.outer for c in conditions):
        block.raw(f"{after} = jnp.minimum({names.step} + 1, {names.steps} - 1)")


def _looks_back(condition: Condition) -> bool:
    """Whether the row before of the step table is asked for a block."""
    return isinstance(condition, Turns) and condition.axis is None and bool(condition.numbers)


def _print_section(printer: Printer, block: Block, launch: Launch, section: Section) -> None:
    tests = [_test(printer, launch, c) for c in section.conditions]
    table = launch.table
    unsure = launch.worklist and table is not None and not table.sure
    rectangle = unsure or (table is not None and table.steps == "rectangle")
    window = next((w for w in launch.windows if w.ref == section.title), None)
    if rectangle and not section.always:
        tests.insert(0, Atom(printer.names.word("live")))
    if not tests:
        scope, inner = printer, block
        _print_content(scope, inner, launch, section, window)
        return
    condition = tests[0]
    for test in tests[1:]:
        condition = infix("&", condition, test)
    scope, inner = printer.scope(), Block(block.indent + 4)
    _print_content(scope, inner, launch, section, window)
    block.raw("")
    when = statement("", Call("@pl.when", (condition,)), block.indent)
    block.lines += when
    block.raw("def _():")
    block.lines += [*inner.lines, ""]


def _print_content(
    printer: Printer, block: Block, launch: Launch, section: Section, window: Window | None
) -> None:
    name = window.ref.removesuffix("_ref") if window is not None else ""
    if window is None or not window.output:
        if window is not None and window.turned is not None:
            copy, axis = printer.block(window.ref, turned=True), window.turned.axis
            block.raw(f"# {copy}[i] is {name}_ref[:, i]: the block with {axis} in front")
        print_body(printer, block, section.body)
        return
    if window.init == "existing":
        block.raw(f"# first step at this block of {name}: start from what the array holds")
        block.raw(f"{window.ref}[...] = {window.existing}[...]")
        return
    extents = tuple(b for b in window.block if b is not None)
    value = ops.number(window.fill, window.dtype)
    block.raw(f"# first step at this block of {name}: rows of no range keep {value.text}")
    node = ops.full(extents, value, window.dtype, zero=window.fill == 0)
    block.put(f"{window.ref}[...]", node)


# ---------------------------------------------------------------- conditions


def _test(printer: Printer, launch: Launch, condition: Condition) -> Node:
    names = printer.names
    match condition:
        case AtDim(axis, end):
            return _at_dim(names, launch.axis(axis), end)
        case RowStarts(axis, number, first):
            rest = Call("jax.lax.rem", (printer.node(number.expr), Atom(str(number.rows))))
            start = infix("==", rest, Atom("0"))
            return infix("|", start, _at_dim(names, launch.axis(axis), "first")) if first else start
        case Runs(axis):
            return printer.runs(launch.axis(axis))
        case Turns():
            return _turns(printer, launch, condition)
        case Ends():
            return _ends(printer, launch, condition)
        case InPhase(phase):
            return infix("==", Atom(names.word("phase")), Atom(str(phase)))
        case Enters():
            return _enters(printer, launch, condition)


def _turns(printer: Printer, launch: Launch, turns: Turns) -> Node:
    before = _before(printer, launch, turns.axis)
    node: Node = infix("==", Atom(printer.names.step), Atom("0"))
    if turns.axis is not None:
        node = _at_dim(printer.names, launch.axis(turns.axis), "first")
    for number in turns.numbers:
        node = infix("|", node, infix("!=", before.number(number), printer.number(number)))
    return node


def _before(printer: Printer, launch: Launch, dim: str | None) -> Printer:
    """A printer for which indices are what they were in the iteration, or row, before."""
    names, axes = printer.names, dict(printer.names.axes)
    if dim is not None:
        axes[dim] = f"({axes[dim]} - 1)"
    elif launch.table is not None:
        tracks = {c.axis: launch.table.track(c.axis).name for c in launch.table.phases}
        for column in launch.table.columns:
            key = tracks.get(column.axis, column.axis)
            axes[column.axis] = flat(_neighbour(names, launch, key, "before"))
    moved = printer.scope()
    moved.names = replace(names, axes=axes)
    return moved


def _neighbour(names: Names, launch: Launch, axis: str, which: str) -> Node:
    assert launch.table is not None
    if launch.table.steps == "rectangle":
        position = [c.axis for c in launch.table.columns].index(axis)
        return Atom(f"{names.word(which)}[{position}]")
    return Atom(f"{names.columns[axis]}[{names.word(which)}]")


def _at_dim(names: Names, axis: AxisPlan, end: Literal["first", "last"]) -> Node:
    """The grid dimension is at its first, or last, iteration."""
    wanted = axis.first + (0 if end == "first" else (axis.tiles or 1) - 1)
    index = names.axes[axis.name] + ("" if axis.base is None else "_step")
    return infix("==", Atom(index), Atom(str(wanted)))


def _ends(printer: Printer, launch: Launch, ends: Ends) -> Node:
    names = printer.names
    assert launch.table is not None
    if launch.table.steps == "rectangle":
        tests = [_at_end(names.axes[a], ends.end) for a in ends.inner]
        node = tests[0]
        for test in tests[1:]:
            node = infix("&", node, test)
        return node
    first = ends.end == "first"
    edge = Atom("0") if first else infix("-", Atom(names.steps), Atom("1"))
    node = infix("==", Atom(names.step), edge)
    for axis in ends.outer:
        there = _neighbour(names, launch, axis, "before" if first else "after")
        node = infix("|", node, infix("!=", there, Atom(names.axes[axis])))
    return node


def _enters(printer: Printer, launch: Launch, enters: Enters) -> Node:
    names, phase = printer.names, printer.names.word("phase")
    assert launch.table is not None
    number = Atom(str(enters.phase))
    last = enters.phase == len(launch.table.phases) - 1
    here = infix("==" if last else ">=", Atom(phase), number)
    node: Node = infix("==", Atom(names.step), Atom("0"))
    for axis in enters.outer:
        there = _neighbour(names, launch, axis, "before")
        node = infix("|", node, infix("!=", there, Atom(names.axes[axis])))
    before = Atom(f"{names.columns[phase]}[{names.word('before')}]")
    return infix("&", here, infix("|", node, infix("<", before, number)))


def _at_end(index: str, end: str) -> Node:
    if end == "first":
        return infix("==", Atom(index), Atom(f"{index}_first"))
    return infix("==", Atom(index), infix("-", Atom(f"{index}_stop"), Atom("1")))
