"""Moved rows: the loop over the groups of a block, whose rows go where others of them are."""

from __future__ import annotations

from tilelang.codegen.pallas.plan import types as plan
from tilelang.codegen.pallas.plan.physical import BEGIN
from tilelang.codegen.writer import Atom, Call, Node, filled, flat, infix, inner

from .expressions import ZERO, Printer
from .gathers import free_words

LOOP = """
def {move_group}({lane}, _):
    @begins
    @firsts
    @stops

    @pl.when({first} < {stop})
    def {move}():
        @moved

    return 0

@looped
"""
WORDS = ("lane", "begin", "first", "stop", "move")


def moved_rows(printer: Printer, ref: str, moved: plan.MovedRows, indent: int) -> list[str]:
    """The rows that a tile has of every group of a block, one group after the other."""
    words = free_words(printer, *WORDS)
    words["move_group"] = printer.names.fresh("move_group")
    scope = printer.scope()
    scope.lane = words["lane"]
    origin = printer.node(printer.launch.axis(moved.rows).tile.origin)
    tile = Atom(str(printer.launch.axis(moved.rows).size))
    scope.locals[BEGIN.name] = words["begin"]
    begin, end = Atom(words["begin"]), scope.node(moved.end)
    behind = tile if origin == ZERO else infix("+", origin, tile)
    depth = indent + 4
    lines = filled(
        LOOP,
        words,
        begins=inner(words["begin"], scope.node(moved.begin), depth),
        firsts=inner(words["first"], Call("jnp.maximum", (begin, origin)), depth),
        stops=inner(words["stop"], Call("jnp.minimum", (end, behind)), depth),
        moved=inner("", _call(printer, ref, moved, words, origin), depth + 4),
        looped=inner(
            "",
            Call(
                "jax.lax.fori_loop",
                (ZERO, printer.node(moved.stop), Atom(words["move_group"]), ZERO),
            ),
            indent,
        ),
    )
    return [" " * indent + line if line else "" for line in lines]


def _call(
    printer: Printer, ref: str, moved: plan.MovedRows, words: dict[str, str], origin: Node
) -> Node:
    """`move_rows(source, target, held, by, first, stop, some)`: rows counted in the target."""
    begin, lane = Atom(words["begin"]), words["lane"]
    held = Atom(printer.names.scratch[moved.name])
    there, here = (begin, origin) if moved.to_box else (origin, begin)
    blocks = moved.source.ref, f"{ref}.at[{lane}]"
    if not moved.to_box:
        blocks = f"{moved.source.ref}.at[{lane}]", ref
    places = _less(there, here), *(_less(Atom(words[w]), there) for w in ("first", "stop"))
    return Call("move_rows", (*map(Atom, blocks), held, *places, Atom(str(moved.some))))


def _less(a: Node, b: Node) -> Node:
    return a if flat(b) == "0" else infix("-", a, b)
