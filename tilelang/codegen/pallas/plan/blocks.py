"""Blocks: which array dimensions each axis indexes, and the block size of every tile axis."""

from __future__ import annotations

from collections.abc import Mapping

from tilelang.codegen.pallas.target import Target
from tilelang.errors import PlanError
from tilelang.ir import Axis, KernelIR
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule


def multiple(problem: Problem, axis: str, target: Target) -> int:
    """What a block of this axis must be a multiple of, unless it is the whole dimension."""
    needs = (target.tile(use.place, use.itemsize) for use in problem.all_uses(axis))
    return max(needs, default=1)


def sizes(
    problem: Problem, config: Config, target: Target, default: Mapping[str, int]
) -> dict[str, int]:
    """The block of every tile axis: fixed by the author, chosen by config, or the default.

    Raises PlanError if the config names an axis that is not there, or if a block is illegal.
    """
    ir = problem.ir
    tiles = [a for a in ir.axes if a.kind == "tile"]
    chosen = _chosen(ir, config, tiles)
    out = {}
    for axis in tiles:
        size, bounds = problem.extent(axis.name), ir.block_size(axis)
        block = chosen.get(axis.name, default[axis.name])
        if axis.name in chosen and bounds is not None and not bounds.holds(block):
            raise Refused(
                Rule.BLOCKS,
                f"a block of {block} for {bounds.name}, which goes from {bounds}",
                bounds.loc,
                "choose one within the bounds, or change what hl.register_block_size is given",
            )
        out[axis.name] = max(size, 1) if block >= size else block
        _check(problem, axis, out[axis.name], size, target)
    return out


def _chosen(ir: KernelIR, config: Config, tiles: list[Axis]) -> dict[str, int]:
    names = list(dict.fromkeys(str(a.block) for a in tiles if not isinstance(a.block, int)))
    given = dict(config.blocks)
    if config.block_sizes is not None:
        if len(config.block_sizes) != len(names):
            raise PlanError(
                f"block_sizes has {len(config.block_sizes)} entries, "
                f"{ir.name} has {len(names)} block sizes to choose",
                ir.loc,
                f"they are, in order: {', '.join(names) or 'none'}",
            )
        given = dict(zip(names, config.block_sizes, strict=True))
    for name in given:
        if name not in names:
            fixed = [a for a in tiles if a.name == name and isinstance(a.block, int)]
            reason = "its block_size is fixed in the kernel" if fixed else "no tile axis has it"
            raise PlanError(
                f"config names a block for {name!r}, but {reason}",
                fixed[0].loc if fixed else ir.loc,
                f"blocks that can be chosen: {', '.join(names) or 'none'}",
            )
    fixed_sizes = {a.name: a.block for a in tiles if isinstance(a.block, int)}
    return {**fixed_sizes, **{a.name: given[str(a.block)] for a in tiles if str(a.block) in given}}


def _check(problem: Problem, axis: Axis, block: int, size: int, target: Target) -> None:
    need, bounds = multiple(problem, axis.name, target), problem.bounds(axis.name)
    if block == size or block % need == 0 or target.name == "cpu":
        return  # the interpreter runs any block
    hint = f"on {target} use a multiple of {need}, or at least {size} for the whole dimension"
    if bounds is not None and bounds.most is not None and bounds.most < need:
        hint = f"on {target} it is a multiple of {need}: raise the bound of {bounds.name}"
    raise Refused(
        Rule.BLOCKS,
        f"a block of {block} for {axis.user} cannot be cut from a dimension of {size}",
        axis.loc,
        hint,
    )
