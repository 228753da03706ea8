"""Flows: the copies of arrays that come and go in pieces, and what a step waits for.

flow[0]  how many pieces are here
flow[1]  how many have gone
flow[2]  of how many of those nobody has to wait any more
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tilelang.codegen.pallas.plan import types as plan
from tilelang.codegen.pallas.plan.types import BACK, GONE, HERE, HIGH, LATER, LOW, REACH
from tilelang.codegen.writer import Atom, Call, Node, filled, flat, infix, statement
from tilelang.ir import Expr

from . import ops
from .block import Block
from .conditions import test_of
from .expressions import Printer, any_of
from .names import Names

COPY = """
def {name}({piece}):
    return pltpu.make_async_copy(
        {source},
        {to},
        {copied},
    )

"""
EACH = """

@pl.loop({first}, {stop})
def _({piece}):
    @each

"""
WAITS = """
@pl.when({tests})
def _():
    @content

"""
ENDS = """
# which rows are used by any of the step
{begin}, {end} = {own_0}, {own_1}
for {later} in [{at} for i in range(1, {count})]:
    {begin} = jnp.minimum({begin}, {there_0})
    {end} = jnp.maximum({end}, {there_1})

"""
GOES_BACK = """
# ranges that do not rise: what had gone is waited for, and goes again
@pl.when({again})
def _():
    @wait
    {flow}[1], {flow}[2] = {back}, {back}
"""


def params(launch: plan.Launch, names: Names) -> list[str]:
    """What the kernel takes for the flow: the arrays' memory, what counts copies, and pieces."""
    found = [w for w in launch.windows if w.flows]
    refs = [*(w.ref for w in found), *(names.scratch[w.ref] for w in found)]
    return [*refs, names.word("flow")] if found else []


def scratch(launch: plan.Launch) -> list[Node]:
    """The same, as scratch memory."""
    if launch.flow is None:
        return []
    found = [w for w in launch.windows if w.flows]
    held = [Call("pltpu.VMEM", (ops.shape(w.shown), ops.dtype(w.dtype))) for w in found]
    each = Atom(f"pltpu.SemaphoreType.DMA(({launch.flow.pieces},))")
    counts = [Atom("pltpu.SemaphoreType.DMA") if w.output else each for w in found]
    return [*held, *counts, Atom("pltpu.SMEM((3,), jnp.int32)")]


def print_start(printer: Printer, block: Block) -> None:
    """The copies; those of all that is read start with the first step."""
    launch, flow = printer.launch, printer.launch.flow
    if flow is None:
        return
    block.raw("")
    meanwhile = "steps compute" if flow.step is not None else "loops turn"
    block.raw(f"# Pieces of {flow.rows} rows are copied while {meanwhile}.")
    for window in (w for w in launch.windows if w.flows):
        _put(block, _copy(printer, window, flow))
    count = printer.names.word("flow")
    content = [", ".join(f"{count}[{i}]" for i in range(3)) + " = 0, 0, 0"]
    content += _each(printer, _coming(launch), "0", str(flow.pieces), "start")
    _put(block, _at(printer, flow, "first", content))


def print_reach(printer: Printer, block: Block) -> None:
    """Waits for the pieces that the step uses, and for those that had gone, if they are used."""
    launch, flow, count = printer.launch, printer.launch.flow, printer.names.words.get("flow", "")
    if flow is None or flow.step is None:
        return
    _print_ends(printer, block, flow.step.ends)
    own, back, step = _scope(printer), printer.names.word("back"), flow.step
    tests: list[Node] = []
    content: list[str] = []
    if _coming(launch):
        tests.append(own.node(step.comes.lacks))
        content += _waited(printer, step.comes, block.indent)
    if going := _going(launch):
        tests.append(own.node(step.again.early))
        wait = _each(printer, going, f"{count}[2]", f"{count}[1]", "wait")
        words = {"flow": count, "back": back, "again": own.text(step.again.again)}
        content += [f"{back} = {own.text(step.again.back)}", ""]
        content += filled(GOES_BACK, words, wait=wait)
    _put(block, filled(WAITS, {"tests": flat(any_of(tests))}, content=content))


def _print_ends(printer: Printer, block: Block, ends: Sequence[Expr]) -> None:
    """Where the rows begin and end that all iterations of the step use."""
    many = printer.launch.beside
    if not ends or many is None:
        return
    names, own = printer.names, printer.scope()
    own.locals[LATER.name] = "i"
    there = printer.scope({many.axis: names.word("later")})
    words = {
        "begin": names.word("begin_row"), "end": names.word("end_row"),
        "later": names.word("later"), "count": str(many.count), "at": own.text(many.later),
    }  # fmt: skip
    for place, scope in (("own", printer), ("there", there)):
        words |= {f"{place}_{i}": scope.text(end) for i, end in enumerate(ends)}
    _put(block, filled(ENDS, words))


def print_turn(printer: Printer, block: Block, axis: str, end: Literal["first", "last"]) -> None:
    """Waits for the pieces that a turn of a loop uses; behind it, those go that it has passed."""
    turn = printer.launch.flow.turn(axis) if printer.launch.flow is not None else None
    if turn is not None and turn.comes is not None and end == "first":
        tests = _scope(printer).text(turn.comes.lacks)
        content = _waited(printer, turn.comes, block.indent)
        _put(block, filled(WAITS, {"tests": tests}, content=content))
    if turn is not None and turn.goes is not None and end == "last":
        _put(block, _gone(printer, turn.goes))


def print_end(printer: Printer, block: Block) -> None:
    """Pieces go that the step leaves behind; in the last step, all that are left."""
    launch, flow, count = printer.launch, printer.launch.flow, printer.names.words.get("flow", "")
    if flow is None:
        return
    coming, going = _coming(launch), _going(launch)
    if going and flow.step is not None:
        _put(block, _gone(printer, flow.step.goes))
    content = [
        line
        for windows, first, what in ((coming, 0, "wait"), (going, 1, "start"), (going, 2, "wait"))
        for line in _each(printer, windows, f"{count}[{first}]", str(flow.pieces), what)
    ]
    _put(block, _at(printer, flow, "last", content))


def _waited(printer: Printer, comes: plan.Comes, indent: int) -> list[str]:
    """The wait for pieces that are used, and how many are here then."""
    own, count, reach = _scope(printer), printer.names.word("flow"), printer.names.word("reach")
    inside = indent + 4
    content = [line[inside:] for line in statement(reach, own.node(comes.reach), inside)]
    content += _each(printer, _coming(printer.launch), f"{count}[0]", reach, "wait")
    return [*content, f"{count}[0] = {own.text(comes.here)}"]


def _gone(printer: Printer, goes: plan.Goes) -> list[str]:
    """The copies of pieces that are left behind, where there are any."""
    own, count, reach = _scope(printer), printer.names.word("flow"), printer.names.word("reach")
    content = [f"{reach} = {own.text(goes.left)}"]
    content += _each(printer, _going(printer.launch), f"{count}[1]", reach, "start")
    content.append(f"{count}[1] = {own.text(goes.gone)}")
    return filled(WAITS, {"tests": own.text(goes.passed)}, content=content)


def _scope(printer: Printer) -> Printer:
    """A printer that knows what is counted."""
    count, words = printer.names.word("flow"), printer.names.words
    own = printer.scope()
    own.locals |= {
        HERE.name: f"{count}[0]", GONE.name: f"{count}[1]",
        REACH.name: words["reach"], BACK.name: words["back"],
        LOW.name: words.get("begin_row", ""), HIGH.name: words.get("end_row", ""),
    }  # fmt: skip
    return own


def _coming(launch: plan.Launch) -> list[plan.Window]:
    return [w for w in launch.windows if w.flows and not w.output]


def _going(launch: plan.Launch) -> list[plan.Window]:
    return [w for w in launch.windows if w.flows and w.output]


def _at(
    printer: Printer, flow: plan.Flow, end: Literal["first", "last"], lines: list[str]
) -> list[str]:
    """Lines that run in that step, if there are others."""
    if flow.step is None:
        return lines
    axis = printer.launch.dims[-1].axis
    assert axis is not None
    return filled(WAITS, {"tests": flat(test_of(printer, plan.AtDim(axis, end)))}, content=lines)


def _copy(printer: Printer, window: plan.Window, flow: plan.Flow) -> list[str]:
    names, piece = printer.names, printer.names.word("piece")
    copied, rows = names.scratch[window.ref], f"pl.ds({piece} * {flow.rows}, {flow.rows})"
    far = ", ".join([rows, *_columns(printer, window)])
    pair = f"{window.argument}.at[{far}]", f"{window.ref}.at[{rows}]"
    source, to = reversed(pair) if window.output else pair
    words = {
        "name": names.words[window.ref], "piece": piece, "source": source, "to": to,
        "copied": copied if window.output else f"{copied}.at[{piece}]",
    }  # fmt: skip
    return filled(COPY, words)


def _columns(printer: Printer, window: plan.Window) -> list[str]:
    """Which part of an array's rows is copied; nothing of dimensions that end with all of them."""
    found: list[str] = []
    for dim, number in reversed([*zip(window.dims, window.numbers, strict=True)][1:]):
        if isinstance(dim, plan.ByTile):
            first = flat(infix("*", printer.number(number), Atom(str(dim.block))))
            found.insert(0, f"pl.ds({first}, {dim.block})")
        elif found:
            found.insert(0, ":")
    return found


def _each(
    printer: Printer, windows: Sequence[plan.Window], first: str, stop: str, what: str
) -> list[str]:
    """The same for every piece of some arrays."""
    piece = printer.names.word("piece")
    each = [f"{printer.names.words[w.ref]}({piece}).{what}()" for w in windows]
    words = {"first": first, "stop": stop, "piece": piece}
    return ["", *filled(EACH, words, each=each), ""] if each else []


def _put(block: Block, lines: list[str]) -> None:
    """The lines of a function, with one blank line before it, after it, and around those in it."""
    for line in ("", *lines, ""):
        last = block.lines[-1] if block.lines else ""
        if line or (last and not last.endswith(":") and not last.lstrip().startswith("#")):
            block.raw(line)
