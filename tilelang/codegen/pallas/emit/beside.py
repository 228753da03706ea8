"""Beside: several iterations in a step, in one run of straight code where their loops turn once.

def g_turns(g): ...     how often a loop of it turns, at most
def g_short(g): ...     without loops
def each_g(g): ...      with loops
"""

from __future__ import annotations

from dataclasses import replace

from tilelang.codegen.pallas.plan import types as plan
from tilelang.codegen.writer import filled, flat

from .block import Block
from .expressions import Printer
from .ranges import print_lines
from .statements import print_body

ONE = "{turns}({axis}) <= 1"
STEP = """
# {count} of {axis} in a step: where a tile is enough for each, none waits for another's loops
{once} = {first}
for {later} in range({rest}):
    {once} &= {turns}({next}) <= 1

@pl.when({once})
def _():
    for {later} in range({count}):
        {short}({axis} + {later})

@pl.when(jnp.logical_not({once}))
def _():
    @pl.loop({axis}, {stop})
    def _({axis}):
        {each}({axis})

"""


def print_beside(
    printer: Printer, block: Block, body: tuple[plan.PStmt, ...], many: plan.Beside
) -> None:
    """The functions of one iteration, and which of them the step calls."""
    axis, later = printer.names.axes[many.axis], printer.names.word("later")
    own = printer.scope()
    own.locals[plan.LATER.name] = later
    words = {
        "axis": axis, "count": str(many.count), "later": later, "once": f"{axis}_once",
        "turns": f"{axis}_turns", "short": f"{axis}_short", "each": f"each_{axis}",
        "next": own.text(many.later), "stop": own.text(many.stop),
        "rest": f"1, {many.count}" if many.whole else str(many.count),
    }  # fmt: skip
    words["first"] = ONE.format(**words) if many.whole else own.text(many.there)
    brief = replace(printer.scope(), launch=printer.launch.with_axes(many.short))
    block.raw("")
    _print_turns(brief.scope(), block.inside(f"def {words['turns']}({axis}):"), many)
    for name, scope, stmts in (("short", brief, many.body), ("each", printer.scope(), body)):
        block.raw("")
        print_body(scope, block.inside(f"def {words[name]}({axis}):"), stmts)
    block.raw("")
    for line in filled(STEP, words):
        block.raw(line)


def _print_turns(printer: Printer, block: Block, many: plan.Beside) -> None:
    """How often the loop turns that does so most often."""
    for axis in many.ends:
        printer = print_lines(printer, block, axis.range.lines)
    turns = printer.node(many.turns)
    block.flush(printer)
    block.raw(f"return {flat(turns)}")
