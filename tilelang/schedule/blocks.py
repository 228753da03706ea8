"""Blocks that a config names: which tile axes they are for, and whether the author allows them."""

from __future__ import annotations

from collections.abc import Mapping

from ..analysis.facts import Facts, NumberFact
from ..ir import BlockSize, KernelIR
from .config import Config
from .refusal import Refused, Rule


def chosen(ir: KernelIR, config: Config) -> dict[str, int]:
    """Tile axis -> the block that the author fixed or the config gives; others are left out.

    Raises Refused if the config names an axis that is not there.
    """
    tiles = [a for a in ir.axes if a.kind == "tile"]
    names = list(dict.fromkeys(str(a.block) for a in tiles if a.fixed is None))
    given = dict(config.blocks)
    if config.block_sizes is not None:
        if len(config.block_sizes) != len(names):
            raise Refused(
                Rule.CONFIG,
                f"block_sizes has {len(config.block_sizes)} entries, "
                f"{ir.name} has {len(names)} block sizes to choose",
                ir.loc,
                f"they are, in order: {', '.join(names) or 'none'}",
            )
        given = dict(zip(names, config.block_sizes, strict=True))
    for name in given:
        if name not in names:
            fixed = [a for a in tiles if a.name == name and a.fixed is not None]
            reason = "its block_size is fixed in the kernel" if fixed else "no tile axis has it"
            raise Refused(
                Rule.CONFIG,
                f"config names a block for {name!r}, but {reason}",
                fixed[0].loc if fixed else ir.loc,
                f"blocks that can be chosen: {', '.join(names) or 'none'}",
            )
    fixed_sizes = {a.name: a.fixed for a in tiles if a.fixed is not None}
    return {**fixed_sizes, **{a.name: given[str(a.block)] for a in tiles if str(a.block) in given}}


def named(ir: KernelIR, blocks: Mapping[str, int]) -> dict[str, int]:
    """The blocks of tile axes as a config gives them, by the author's names.

    A block is no larger than its dimension, however short; a config keeps to registered bounds.
    """
    found: dict[str, int] = {}
    for axis in ir.axes:
        if isinstance(axis.block, str):
            block, bounds = blocks[axis.name], ir.block_size(axis)
            block = block if bounds is None else bounds.nearest(block)
            found[axis.block] = max(block, found.get(axis.block, 0))
    return found


def check_bounds(bounds: BlockSize, block: int) -> None:
    """Refused if a block is not within what the author registered."""
    if not bounds.holds(block):
        raise Refused(
            Rule.CONFIG,
            f"a block of {block} for {bounds.name}, which goes from {bounds}",
            bounds.loc,
            "choose one within the bounds, or change what hl.register_block_size is given",
        )


def check_numbers(facts: Facts, blocks: Mapping[str, int]) -> None:
    """Refused if blocks make more tiles than an array has room for that is indexed by tiles."""
    for fact in facts.numbers:
        if all(c.axis in blocks for c in fact.counts) and not fact.holds(blocks):
            raise Refused(
                Rule.CONFIG, f"{fact.why}, and {_made(fact, blocks)}", fact.loc, _mend(fact)
            )


def _made(fact: NumberFact, blocks: Mapping[str, int]) -> str:
    """How many tiles there are."""
    most = "" if fact.sure else "up to "
    found = (
        f"blocks of {blocks[c.axis]} make {most}{c.tiles(blocks[c.axis])} tiles of {c.user}"
        for c in fact.counts
    )
    return " and ".join(found)


def _mend(fact: NumberFact) -> str:
    """What to do about tiles that have no place."""
    least, names = fact.least(), " and ".join(c.user for c in fact.counts)
    blocks = (
        f"use larger blocks of {names}"
        if least is None
        else f"blocks of {names} are {least} at least"
    )
    if fact.sure:
        return f"{blocks}, or that has to be longer"
    return (
        f"{blocks}, or that has to be longer, or an `if` says which tiles are meant: "
        f"if {fact.place} {fact.side}: ..."
    )
