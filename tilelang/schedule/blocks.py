"""Blocks: which array dimensions each axis indexes, and the block size of every tile axis."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..errors import PlanError
from ..ir import (
    Along,
    At,
    Axis,
    BlockSize,
    Expr,
    Index,
    KernelIR,
    Load,
    Loop,
    Stmt,
    Store,
    children,
    statements,
)
from ..language.dtypes import itemsize
from .config import Config
from .target import Target


@dataclass(frozen=True)
class Use:
    """A tensor dimension that a tile axis moves along; `place` counts dimensions from the last."""

    tensor: str
    dim: int
    size: int
    place: int
    itemsize: int
    offset: Expr | None
    written: bool
    loose: bool = False


def loads(expr: Expr) -> Iterator[Load]:
    """Every load in an expression."""
    for child in children(expr):
        yield from loads(child)
    if isinstance(expr, Load):
        yield expr


def references(body: Iterable[Stmt]) -> Iterator[tuple[str, tuple[Index, ...], bool]]:
    """(tensor, index, written) of every load and store, in program order."""
    for stmt in statements(tuple(body)):
        for expr in _own(stmt):
            for load in loads(expr):
                yield load.tensor, load.index, False
        if isinstance(stmt, Store):
            yield stmt.tensor, stmt.index, True


def _own(stmt: Stmt) -> tuple[Expr, ...]:
    match stmt:
        case Store():
            masks = () if stmt.mask is None else (stmt.mask,)
            return (*_inside(stmt.index), stmt.value, *masks)
        case Loop():
            return tuple(e for c in stmt.carries for e in (c.init, c.next))
        case _:
            return (stmt.value,)


def _inside(index: tuple[Index, ...]) -> tuple[Expr, ...]:
    found = []
    for entry in index:
        expr = getattr(entry, "offset", None) or getattr(entry, "expr", None)
        if expr is not None:
            found.append(expr)
    return tuple(found)


def uses(ir: KernelIR, axis: str) -> tuple[Use, ...]:
    """The dimensions that an axis cuts into tiles, in program order, without repeats.

    Those are the ones that it indexes at one offset: where it is stored to, else where it begins.
    What it may leave has no say.
    """
    found = tuple(u for u in all_uses(ir, axis) if not u.loose or u.written)
    stored = [u.offset for u in found if u.written]
    plain = [None] if any(u.offset is None for u in found) else [u.offset for u in found]
    return tuple(u for u in found if u.offset == (stored or plain)[0])


def all_uses(ir: KernelIR, axis: str) -> tuple[Use, ...]:
    """The dimensions that an axis indexes, at whatever offset."""
    found: dict[Use, None] = {}
    for name, index, written in references(ir.body):
        tensor = ir.tensor(name)
        for dim, entry in enumerate(index):
            if isinstance(entry, Along) and entry.axis == axis:
                place = _place(index, dim)
                size = itemsize(tensor.dtype)
                use = Use(
                    name, dim, tensor.shape[dim], place, size, entry.offset, written, entry.loose
                )  # fmt: skip
                found[use] = None
    return tuple(found)


def _place(index: tuple[Index, ...], dim: int) -> int:
    """The dimension counted from the last one, once single positions have moved to the front."""
    picked = [isinstance(entry, At) for entry in index]
    if any(picked[-2:]) and sum(picked) <= len(index) - 2:
        return 1 + picked[dim + 1 :].count(False)
    return len(index) - dim


def extent(ir: KernelIR, axis: Axis) -> int:
    """The length of the dimension that a tile axis moves along."""
    sizes = {u.size for u in uses(ir, axis.name)}
    if sizes:
        return max(sizes)
    if axis.max_extent is not None:
        return axis.max_extent
    if axis.static is not None:
        return axis.static[1]
    raise PlanError(
        f"{axis.user} has no bound", axis.loc, "give hl.tile(..., max_extent=) an upper bound"
    )


def multiple(ir: KernelIR, axis: str, target: Target) -> int:
    """What a block of this axis must be a multiple of, unless it is the whole dimension."""
    needs = (target.tile(use.place, use.itemsize) for use in all_uses(ir, axis))
    return max(needs, default=1)


def sizes(
    ir: KernelIR, config: Config, target: Target, default: Mapping[str, int]
) -> dict[str, int]:
    """The block of every tile axis: fixed by the author, chosen by config, or the default.

    Raises PlanError if the config names an axis that is not there, or if a block is illegal.
    """
    tiles = [a for a in ir.axes if a.kind == "tile"]
    chosen = _chosen(ir, config, tiles)
    out = {}
    for axis in tiles:
        size, bounds = extent(ir, axis), ir.block_size(axis)
        if axis.name in chosen and bounds is not None:
            _check_bounds(bounds, chosen[axis.name])
        block = chosen.get(axis.name, default[axis.name])
        out[axis.name] = max(size, 1) if block >= size else block
        _check(ir, axis, out[axis.name], size, target)
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


def _check_bounds(bounds: BlockSize, block: int) -> None:
    if not bounds.holds(block):
        raise PlanError(
            f"a block of {block} for {bounds.name}, which goes from {bounds}",
            bounds.loc,
            "choose one within the bounds, or change what hl.register_block_size is given",
        )


def _check(ir: KernelIR, axis: Axis, block: int, size: int, target: Target) -> None:
    need, bounds = multiple(ir, axis.name, target), ir.block_size(axis)
    if block == size or block % need == 0 or target.name == "cpu":
        return  # the interpreter runs any block
    hint = f"on {target} use a multiple of {need}, or at least {size} for the whole dimension"
    if bounds is not None and bounds.most is not None and bounds.most < need:
        hint = f"on {target} it is a multiple of {need}: raise the bound of {bounds.name}"
    raise PlanError(
        f"a block of {block} for {axis.user} cannot be cut from a dimension of {size}",
        axis.loc,
        hint,
    )
