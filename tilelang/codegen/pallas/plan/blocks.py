"""Blocks: which array dimensions each axis indexes, and the block size of every tile axis."""

from __future__ import annotations

from collections.abc import Mapping

from tilelang.codegen.pallas.moves import edges
from tilelang.codegen.pallas.target import Target
from tilelang.ir import Axis, KernelIR
from tilelang.schedule.blocks import check_bounds, check_numbers, chosen
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem
from tilelang.schedule.refusal import Refused, Rule


def multiple(problem: Problem, axis: str, target: Target) -> int:
    """What a block of this axis must be a multiple of, unless it is the whole dimension.

    Single numbers of scalar memory can lie anywhere.
    """
    single = edges(problem.ir)
    cut = (use for use in problem.all_uses(axis) if use.tensor not in single)
    needs = (target.tile(use.place, use.itemsize) for use in cut)
    return max(needs, default=1)


def is_cut(problem: Problem, axis: str, block: int, target: Target) -> bool:
    """Whether arrays are cut into such blocks; the interpreter runs any."""
    return target.interpreted or block % multiple(problem, axis, target) == 0


def sizes(
    problem: Problem, config: Config, target: Target, default: Mapping[str, int]
) -> dict[str, int]:
    """The block of every tile axis: fixed by the author, chosen by config, or the default.

    Raises Refused if the config names an axis that is not there, or if a block is illegal.
    """
    ir = problem.ir
    tiles = [a for a in ir.axes if a.kind == "tile"]
    given = chosen(ir, config)
    out = {}
    for axis in tiles:
        size, bounds = problem.extent(axis.name), ir.block_size(axis)
        if axis.name in given and bounds is not None:
            check_bounds(bounds, given[axis.name])
        block, all_of_it = given.get(axis.name, default[axis.name]), whole(problem, axis, target)
        out[axis.name] = all_of_it if block >= size else block
        _check(problem, axis, out[axis.name], all_of_it, target)
    check_numbers(problem.facts, out)
    return out


def whole(problem: Problem, axis: Axis, target: Target) -> int:
    """The block that is all of a range: whole registers, where that is not all of each array."""
    size, cut = max(problem.extent(axis.name), 1), problem.uses(axis.name)
    places = {use.offset for use in cut}  # an array that is masked there is cut there, too
    other = any(use.size != size for use in cut) or any(
        use.size < size or (use.size > size and use.offset in places)
        for use in problem.all_uses(axis.name)
    )
    need = multiple(problem, axis.name, target) if other and not target.interpreted else 1
    return -(-size // need) * need


def _check(problem: Problem, axis: Axis, block: int, size: int, target: Target) -> None:
    if block == size or is_cut(problem, axis.name, block, target):
        return
    need, bounds = multiple(problem, axis.name, target), problem.bounds(axis.name)
    hint = f"on {target} use a multiple of {need}, or at least {size} for the whole dimension"
    if bounds is not None and bounds.most is not None and bounds.most < need:
        hint = f"on {target} it is a multiple of {need}: raise the bound of {bounds.name}"
    raise Refused(
        Rule.CONFIG,
        f"a block of {block} for {axis.user} cannot be cut from a dimension of {size}",
        axis.loc,
        hint,
    )


def blocks_of_groups(kernel: KernelIR, config: Config) -> dict[str, int]:
    """The blocks that a config gives `hl.grid` loops."""
    grids = {a.name for a in kernel.axes if a.kind == "grid"}
    return {name: block for name, block in config.blocks if name in grids}
