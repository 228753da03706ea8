"""Moved rows: the loop over the groups of a block, whose rows go where others of them are."""

from __future__ import annotations

from tilelang.codegen.pallas.plan import types as plan
from tilelang.codegen.writer import Atom, Call, Node, filled, inner

from .expressions import ZERO, Printer
from .gathers import Words, free_words

LOOP = """
def {move_group}({lane}, _):
    @begins
    @firsts
    @stops

    @live
    def {move}():
        @moved

    return 0

@looped
"""
NAMES = {plan.BEGIN.name: "begin", plan.FIRST_ROW.name: "first", plan.STOP_ROW.name: "stop"}


def moved_rows(printer: Printer, ref: str, moved: plan.MovedRows, indent: int) -> list[str]:
    """The rows that a tile has of every group of a block, one group after the other."""
    words = free_words(printer, "lane", *NAMES.values(), "move")
    words["move_group"] = printer.names.fresh("move_group")
    scope, depth = printer.scope(), indent + 4
    scope.lane = words["lane"]
    scope.locals |= {name: words[word] for name, word in NAMES.items()}

    def line(word: str, value: plan.PExpr) -> list[str]:
        return inner(words[word], scope.node(value), depth)

    loop = (ZERO, printer.node(moved.count), Atom(words["move_group"]), ZERO)
    lines = filled(
        LOOP,
        words,
        begins=line("begin", moved.begin),
        firsts=line("first", moved.first),
        stops=line("stop", moved.stop),
        live=inner("", Call("@pl.when", (scope.node(moved.live),)), depth),
        moved=inner("", _call(scope, ref, moved, words), depth + 4),
        looped=inner("", Call("jax.lax.fori_loop", loop), indent),
    )
    return [" " * indent + line if line else "" for line in lines]


def _call(scope: Printer, ref: str, moved: plan.MovedRows, words: Words) -> Node:
    """`move_rows(source, target, held, by, first, stop, some)`: rows counted in the target."""
    box = f".at[{words['lane']}]"
    source = moved.source.ref + ("" if moved.to_box else box)
    blocks = (source, ref + (box if moved.to_box else ""), scope.names.scratch[moved.name])
    places = (scope.node(e) for e in (moved.by, *moved.here))
    return Call("move_rows", (*map(Atom, blocks), *places, Atom(str(moved.some))))
