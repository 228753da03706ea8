"""Kernel: one launch -> its kernel function: step table, step body, pipeline."""

from __future__ import annotations

from tilelang.codegen.pallas.plan import types as plan
from tilelang.codegen.pallas.plan.reads import Reads, step_reads, targets
from tilelang.codegen.pallas.plan.steps.names import COUNT, STEP
from tilelang.codegen.writer import Atom, Call, Group, Keyword, Node, flat, statement

from . import flows, ops, specs
from .beside import print_beside
from .block import Block
from .conditions import test_of
from .expressions import Printer, all_of
from .names import Names
from .statements import print_body
from .steps import asked_ends, print_part, print_rectangle, print_table

WHERE = {
    "dim": "grid dimension",
    "table": "column of the step table",
    "inner": "loop inside the step",
    "stream": "pipeline inside the step",
    "within": "every step runs all of them",
}
CLEAR = {True: "whole tiles, of which no lane is masked", False: "the tiles that a mask cuts"}


def print_kernel(launch: plan.Launch, names: Names) -> list[str]:
    """The lines of the kernel function of one launch."""
    printer, block, table = Printer(launch, names), Block(4), launch.table
    scratch = [names.scratch[s.name] for s in launch.scratch]
    if launch.form == "pipeline":
        columns = names.columns.values() if table is not None and table.steps == "table" else ()
        arrays = dict.fromkeys(w.argument for w in (*launch.inputs, *launch.outputs))
        params = [*launch.scalars, *arrays, *scratch, *columns]
        _print_pipeline(printer, block)
    else:
        inputs, outputs = specs.operands(launch)
        arrays = [o.param for o in (*inputs, *outputs)]
        scratch += flows.params(launch, names)
        params = [*launch.scalars, *specs.prefetched_list(printer), *arrays, *scratch]
        _print_step(printer, block)
    return [*_head(launch.name, params, 0), *_facts(launch), *block.lines]


def _head(name: str, params: list[str], depth: int) -> list[str]:
    """`def name(params):`, without its indentation."""
    whole = f"def {name}({', '.join(params)}):"
    if depth + len(whole) <= 100:
        return [whole]
    return [f"def {name}(", *_wrapped([f"{p}," for p in params], "    ", 100 - depth), "):"]


def _wrapped(words: list[str], start: str, width: int, more: str = "") -> list[str]:
    """As many words on a line as fit; lines after the first one begin with `more`."""
    lines = [start]
    for word in words:
        if len(lines[-1]) + len(word) > width:
            lines.append(more or start)
        lines[-1] += word + " "
    return [line.rstrip() for line in lines]


def _facts(launch: plan.Launch) -> list[str]:
    """The axis facts, as comments at the loops they became."""
    columns = [c.axis for c in launch.table.columns] if launch.table else []
    order = [*(d.axis for d in launch.dims if d.axis), *columns]
    shown = [*order, *(a.name for a in launch.axes if a.name not in order)]
    return [line for name in shown for line in _fact(launch.axis(name))]


def _fact(axis: plan.AxisPlan) -> list[str]:
    where = WHERE.get(axis.place) or ("one tile" if axis.block else "one index")
    block = f", blocks of {axis.block}" if axis.block else ""
    block += " from where its range begins" if axis.length is not None else ""
    text = f"{axis.name}: {where}{block}; {axis.kind}: {axis.why}"
    return _wrapped(text.split(), "    # ", 99, "    #     ")


# ---------------------------------------------------------------- the pipeline


def _print_pipeline(printer: Printer, block: Block) -> None:
    names, launch = printer.names, printer.launch
    table = launch.table
    if table is not None and table.steps == "table":
        print_table(printer, block, table)
        if isinstance(launch.parts, plan.Parts):
            print_part(printer, block, launch.parts)
        block.raw("")
    elif table is not None:
        print_rectangle(printer, block, table)
    inputs = [w for w in launch.inputs if w.stepped]
    outputs = [w for w in launch.outputs if w.stepped]
    refs = [w.ref for w in (*inputs, *outputs)]
    *before, head = _head(names.word("step"), refs, 4)
    for line in before:
        block.raw(line)
    _print_step(printer, block.inside(head))
    block.raw("")
    specs.print_rows(printer, block.lines)
    ins, outs = (
        Group(tuple(specs.block_spec(printer, w) for w in some), "[]") for some in (inputs, outputs)
    )
    args: list[Node] = [
        Atom(names.word("step")),
        Keyword("grid", specs.grid(launch, names.steps)),
        Keyword("in_specs", ins),
        Keyword("out_specs", outs),
        Keyword("dimension_semantics", specs.semantics(launch, pipeline=True)),
    ]
    if launch.cores > 1 and not isinstance(launch.parts, plan.Parts):
        args.append(Keyword("core_axis", Atom("0")))
    lines = statement("", Call("pltpu.emit_pipeline", tuple(args)), block.indent)
    if len(lines) == 1:  # one argument a line reads better than one long line
        lines = ["    pltpu.emit_pipeline(", *(f"        {flat(a)}," for a in args), "    )"]
    lines[-1] += f"({', '.join(w.argument for w in (*inputs, *outputs))})"
    block.lines += lines


# ---------------------------------------------------------------- the step


def _print_step(printer: Printer, block: Block) -> None:
    launch, names = printer.launch, printer.names
    table, reads = launch.table, step_reads(launch)
    if table is not None and table.tracks:  # the tile of a loop in a row is that of its track
        tracks = {c.axis: table.track(c.axis).name for c in table.phases}
        printer = printer.scope({axis: names.axes[track] for axis, track in tracks.items()})
    printer.locals |= {STEP.name: names.step, COUNT.name: names.steps}
    _print_indices(printer, block, reads)
    if table is not None:
        columns = {names.axes.get(key, key): column for key, column in names.columns.items()}
        _print_row(printer, block, table, reads, columns)
        _print_neighbours(printer, block, table)
    specs.print_held(printer, block.lines)
    flows.print_start(printer, block)
    first = [s for s in launch.sections if s.title]
    for section in first:
        _print_section(printer, block, section)
    flows.print_reach(printer, block)
    for section in launch.sections[len(first) :]:
        _print_section(printer, block, section)
    flows.print_end(printer, block)
    if not launch.sections:
        block.raw("pass")


def _print_indices(printer: Printer, block: Block, reads: Reads) -> None:
    """Where the step is in the grid; a tile that counts from a moving first one comes later."""
    launch, names = printer.launch, printer.names
    for position, dim in enumerate(launch.dims):
        axis = None if dim.axis is None else launch.axis(dim.axis)
        if axis is None or axis.name in reads.iterations:
            name = names.step if axis is None else names.axes[axis.name]
            name += "" if axis is None or axis.base is None else "_step"
            start = f" + {axis.first}" if axis is not None and axis.first else ""
            if (count := launch.together(dim.axis)) > 1:
                start = f" * {count}"  # the first of those that the step has
            block.raw(f"{name} = pl.program_id({position}){start}")
    for name in launch.moving:
        base, index = launch.axis(name).base, names.axes[name]
        if base is not None and name in reads.numbers:
            block.raw(f"{index} = {printer.text(base)} + {index}_step")


def _print_row(
    printer: Printer, block: Block, table: plan.Table, reads: Reads, columns: dict[str, str]
) -> None:
    """The row of the step table that belongs to the step; `columns` are called as tracks are."""
    launch, names, live = printer.launch, printer.names, printer.names.word("live")
    if launch.worklist:
        ends = (c for s in launch.sections for c in s.conditions if isinstance(c, plan.Ends))
        if table.live is not None or any(e.end == "last" for e in ends):
            block.raw(f"{names.steps} = {names.steps}_of[0]")
        if table.live is not None:
            block.put(live, printer.node(table.live))
    if table.steps == "rectangle":
        ends = [(names.axes[a], "first" if e == "first" else "stop") for a, e in asked_ends(launch)]
        listed = [names.axes[c.axis] if c.axis in reads.numbers else "_" for c in table.columns]
        targets = [live, flat(Group(tuple(map(Atom, listed))))]
        if ends:
            targets.append(flat(Group(tuple(Atom(f"{a}_{e}") for a, e in ends))))
        block.raw(f"{', '.join(targets)} = {names.word('at')}({names.step})")
        return
    used = {names.axes[a] for a in reads.numbers} | {*names.words.values()}
    read = [name for name in columns if name in used]
    if read:
        right = ", ".join(f"{columns[name]}[{names.step}]" for name in read)
        block.raw(f"{', '.join(read)} = {right}")


def _print_neighbours(printer: Printer, block: Block, table: plan.Table) -> None:
    """The rows beside the step's, as far as conditions ask for them."""
    names, before, after = printer.names, printer.names.word("before"), printer.names.word("after")
    if table.before is not None and table.steps == "rectangle":
        rest = ", _" if asked_ends(printer.launch) else ""
        there = f"{names.word('at')}({printer.text(table.before)})"
        block.raw(f"_, {before}{rest} = {there}")
    elif table.before is not None:
        block.put(before, printer.node(table.before))
    if table.after is not None:
        block.put(after, printer.node(table.after))


def _print_section(printer: Printer, block: Block, section: plan.Section) -> None:
    table = printer.launch.table
    tests = [test_of(printer, c) for c in section.conditions]
    if table is not None and table.live is not None and not section.always:
        tests.insert(0, Atom(printer.names.word("live")))
    if not tests:
        _print_content(printer, block, section)
        return
    block.raw("")
    for condition in section.conditions:
        if isinstance(condition, plan.Clear):
            block.raw(f"# {CLEAR[condition.clear]}")
    block.put("", Call("@pl.when", (all_of(tests),)))
    _print_content(printer.scope(), block.inside("def _():"), section)
    block.raw("")
    printer.written.update((section.title, *targets(section.body)))


def _print_content(printer: Printer, block: Block, section: plan.Section) -> None:
    window = next((w for w in printer.launch.windows if w.ref == section.title), None)
    name = window.ref.removesuffix("_ref") if window is not None else ""
    many = printer.launch.beside
    if many is not None and not section.title:
        print_beside(printer, block, section.body, many)
    elif window is None or not window.output:
        if window is not None and window.turned is not None:
            copy, axis = printer.block(window.ref, turned=True), window.turned.axis
            block.raw(f"# {copy}[i] is {name}_ref[:, i]: the block with {axis} in front")
        print_body(printer, block, section.body)
    elif back := next((c for c in section.conditions if isinstance(c, plan.Back)), None):
        block.raw(f"# ranges that overlap: this block of {name} was stored before, and comes back")
        block.put("", specs.copied_back(printer, window, back))
    elif window.init == "existing":
        block.raw(f"# first step at this block of {name}: start from what the array holds")
        block.raw(f"{window.ref}[...] = {window.existing}[...]")
    else:
        value = ops.number(window.fill, window.dtype)
        block.raw(f"# first step at this block of {name}: rows of no range keep {value.text}")
        node = ops.full(window.shown, value, window.dtype, zero=window.fill == 0)
        block.put(f"{window.ref}[...]", node)
